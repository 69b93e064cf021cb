"""Facts for constraints: read for many jobs together, under the rows of the limits that keep the facts true."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.records import to_json
from tidemill.names import JobId, ProgramId, launches_limit, program_limit
from tidemill.schedule.constraints import (
    Facts,
    LastRun,
    ProbeReading,
    limit_of,
    longest_windows,
    slots_key,
    window_of,
)
from tidemill.schedule.jobs import Job, Turn, list_waiting, lock_limits
from tidemill.schedule.launch_window import LaunchWindow
from tidemill.schedule.specs import Schedule

if TYPE_CHECKING:
    from tidemill.schedule.facts_sql import Sql

SQL: Sql = load_sql(__file__)


class _Start(NamedTuple):
    program_id: ProgramId
    created_at: datetime


class _Success(NamedTuple):
    program_id: ProgramId
    started_at: datetime
    ended_at: datetime


@dataclass(frozen=True, slots=True)
class FactSheet:
    """Facts about the limits and programs of many jobs, and the launches that the checker has decided since.

    The checker's transaction holds the rows of all limits until its end.
    """

    now: datetime
    held: Counter[str]
    """Slots in use by limit: a program's count its runs that have not ended."""
    others: Mapping[str, Mapping[int | None, Sequence[Turn]]]
    """The jobs beside those of this check that wait for a slot of each limit: their turns in order, by their `most`."""
    successes: Mapping[ProgramId, LastRun]
    starts: dict[ProgramId, list[datetime]]
    readings: Mapping[str, ProbeReading]
    windows: Mapping[str, LaunchWindow]
    """The launches of namespaces that have a cap, by the row of their limit."""
    locked_at: datetime
    """The time after the rows of the limits were locked."""

    def read(self, job: Job, schedule: Schedule, needs: Iterable[str]) -> Facts:
        """Return the facts of these names, which the constraints of a job need."""
        fed_at = [fed.last_at for fed in job.fed.values() if fed.last_at is not None]
        return Facts(
            program_id=schedule.program_id,
            satisfied_at=job.satisfied_at or self.now,
            fed_at=max(fed_at, default=job.created_at),
            values={name: self._read(name, job) for name in needs},
        )

    def launch(self, schedule: Schedule) -> None:
        """Count a launch: the run has its slots, and other jobs of the same check must see them."""
        self.held.update(schedule.spec.slots(schedule.program_id))
        self.starts.setdefault(schedule.program_id, []).insert(0, self.now)

    def admit(self, job: Job, schedule: Schedule) -> datetime | None:
        """Return None if the cap of the namespace lets the job start, else the time of the job's place."""
        window = self.windows.get(launches_limit(schedule.namespace))
        return None if window is None else window.admit(job.place, self.locked_at)

    def store(self, db: Db) -> None:
        """Store the launches and places of the check. The runs of the launches exist."""
        if self.windows:
            at = db.now()
            rows = [{"limit_key": key, "launches": window.write(at)} for key, window in self.windows.items()]
            db.run(SQL.store_launches, limits=json.dumps(rows))

    def _read(self, name: str, job: Job) -> object:
        kind, _, subject = name.partition(":")
        match kind:
            case "slots":
                return self.held[subject]
            case "ahead":
                return self._count_ahead(subject, job)
            case "active":
                return self.held[program_limit(ProgramId(subject))]
            case "last_success":
                return self.successes.get(ProgramId(subject))
            case "probe":
                return self.readings[subject]
            case _:
                program_id, window = window_of(subject)
                return tuple(at for at in self.starts.get(program_id, ()) if at > self.now - window)

    def _count_ahead(self, limit: str, job: Job) -> int:
        """Count the other jobs with a better turn that could take a slot now: a slot is kept for no other job."""
        by_most = self.others.get(limit)
        if not by_most:
            return 0
        turn = job.turn(self.now)
        return sum(
            bisect_left(turns, turn) for most, turns in by_most.items() if most is None or self.held[limit] < most
        )


def read_facts(
    db: Db,
    schedules: Sequence[Schedule],
    needs: Collection[str],
    decided: Collection[JobId],
    now: datetime,
    readings: Mapping[str, ProbeReading],
    most_launches: int,
) -> FactSheet:
    """Lock the limits of schedules whose jobs may start, then read the facts of the names `needs`. Six statements.

    `needs` is what the constraints of the schedules need. `decided` are the jobs of this check: those that may start,
    and those that leave the queues, which are ahead of no job.
    `readings` has one for each of the probes that the jobs need. `most_launches` is the cap of each namespace on the
    launches in a second, or 0.
    Cost: the slots and waiting jobs of these limits, and the launches in the windows of a `Rate`.
    """
    capped = {launches_limit(schedule.namespace) for schedule in schedules} if most_launches else set()
    guards = {limit for name in needs if (limit := limit_of(name)) is not None}
    limits = sorted(capped.union(guards, *[one.spec.takes(one.program_id) for one in schedules]))
    held: Counter[str] = Counter()
    others: dict[str, dict[int | None, list[Turn]]] = {}
    locked_at = now
    lock_limits(db, limits, decided)
    if limits:
        locked_at = db.now() if capped else now
        held.update(dict(db.records(SQL.count_slots, tuple[str, int], limit_keys=json.dumps(limits))))
        if ahead := sorted(_subjects("ahead", needs)):
            others = _list_others(db, ahead, decided, now)
    return FactSheet(
        now,
        held,
        others,
        _list_successes(db, sorted(_subjects("last_success", needs))),
        _list_starts(db, longest_windows(needs), now),
        readings,
        _read_windows(db, sorted(capped), most_launches, locked_at),
        locked_at,
    )


def _read_windows(db: Db, limits: Sequence[str], most: int, now: datetime) -> dict[str, LaunchWindow]:
    if not limits:
        return {}
    found = db.records(SQL.read_launches, tuple[str, str | None], limit_keys=json.dumps(limits))
    return {limit: LaunchWindow.read(most, stored, now) for limit, stored in found}


def probe_names(needs: Iterable[str]) -> set[str]:
    """Return the probes of which `needs` are facts."""
    return _subjects("probe", needs)


def _list_others(
    db: Db, limits: Sequence[str], own: Collection[JobId], now: datetime
) -> dict[str, dict[int | None, list[Turn]]]:
    others: dict[str, dict[int | None, list[Turn]]] = {limit: {} for limit in limits}
    for key, waiting in list_waiting(db, [slots_key(limit) for limit in limits], now).items():
        for job_id, most, turn in waiting:
            if job_id not in own:
                others[key.removeprefix(slots_key(""))].setdefault(most, []).append(turn)
    for by_most in others.values():
        for turns in by_most.values():
            turns.sort()
    return others


def _list_successes(db: Db, programs: Sequence[str]) -> dict[ProgramId, LastRun]:
    if not programs:
        return {}
    rows = json.dumps([{"program_id": program_id} for program_id in programs])
    found = db.records(SQL.list_last_successes, _Success, programs=rows)
    return {one.program_id: LastRun(one.started_at, one.ended_at) for one in found}


def _list_starts(db: Db, windows: Mapping[ProgramId, timedelta], now: datetime) -> dict[ProgramId, list[datetime]]:
    starts: dict[ProgramId, list[datetime]] = {program_id: [] for program_id in windows}
    if windows:
        rows = [{"program_id": program_id, "since": now - window} for program_id, window in sorted(windows.items())]
        for one in db.records(SQL.list_starts, _Start, windows=to_json(rows)):
            starts[one.program_id].append(one.created_at)
    return starts


def _subjects(kind: str, names: Iterable[str]) -> set[str]:
    begin = f"{kind}:"
    return {name.removeprefix(begin) for name in names if name.startswith(begin)}
