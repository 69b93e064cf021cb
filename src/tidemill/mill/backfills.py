"""Backfills, as `Mill` offers them: plan, start, watch, pause, resume, cancel, retry."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

from tidemill.catalog.db import Db, write_effects
from tidemill.catalog.named import FROM_LATEST
from tidemill.epoch import show_second
from tidemill.lake.datasets import find_some
from tidemill.lake.fileset.fileset import Fileset
from tidemill.mill.backfill_plan import BadBackfill, Choice, Planned, Selection, plan_backfill
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, check_filter, cut, one_more, read_key, write_key
from tidemill.mill.project import MOST_SHOWN, Noun, program_names
from tidemill.names import BackfillId, ProgramId, RunId, WritePointer
from tidemill.run.records.programs import Program
from tidemill.run.records.runs import RunState
from tidemill.run.step.needs import ItemNeed
from tidemill.schedule import backfill_records, backfills
from tidemill.schedule.argument_sources import MissingSource
from tidemill.schedule.backfill_records import (
    MOST_AT_ONCE,
    Backfill,
    BackfillState,
    By,
    Item,
    ItemState,
    NewBackfill,
)
from tidemill.schedule.backfills import LOGICAL_TIME
from tidemill.shapes.filters import Where
from tidemill.shapes.keys import KeyText

PRIORITY: Final = -1
"""The priority of the runs of a backfill, unless it says another: below that of schedules."""


@dataclass(frozen=True, slots=True)
class PlannedItemView:
    """An item that a backfill would take. `need` is `missing`, `failed`, `done`, `waiting` or `running`."""

    item: str
    need: ItemNeed
    bytes: int | None
    rows: int | None


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """A dry run: `items` are the runs that a backfill would make, `bytes` and `rows` their input.

    `named` are the numbers of all items of the choice by their needs. `first` are the first thousand items. The
    sizes of logical times and runs are not known.
    """

    program: str
    items: int
    bytes: int | None
    rows: int | None
    named: Mapping[str, int]
    first: tuple[PlannedItemView, ...]


@dataclass(frozen=True, slots=True)
class BackfillView:
    """A backfill: its choice, its settings, and the numbers of its items by their states.

    `reason` says why it paused by itself.
    """

    backfill_id: BackfillId
    program: str | None
    state: BackfillState
    reason: str
    choice: Mapping[str, object]
    arguments: Mapping[str, object]
    concurrency: int
    priority: int
    quiet: bool
    items: int
    waiting: int
    running: int
    done: int
    failed: int
    dropped: int
    actor: str
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class BackfillItem:
    """An item of a backfill, with its newest run. `why` is the reason of a failure."""

    no: int
    item: str
    state: ItemState
    run_id: RunId | None
    why: str


@dataclass(frozen=True, slots=True)
class ChangedBackfill:
    """A backfill after a change. `changed` is false if the backfill was in that state before.

    `killed` is the number of runs whose end was asked for.
    """

    backfill_id: BackfillId
    state: BackfillState
    changed: bool
    killed: int = 0


class _Cancelled(NamedTuple):
    """Result of the transaction of a cancellation: what it has changed, and the runs to be killed."""

    changed: bool
    killed: Sequence[RunId]


class Backfills(Noun):
    """Operations on backfills."""

    noun = "backfill"

    @operation(Right.READ)
    def plan(  # noqa: PLR0913  # the choice, by keyword
        self,
        program: str,
        *,
        by: str = By.PARTITIONS,
        dataset: str | None = None,
        where: Where | Sequence[str] | None = None,
        schedule: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        runs: Sequence[str] | None = None,
        from_version: int | None = None,
        to_version: int | None = None,
        select: str | None = None,
    ) -> BackfillPlan:
        """Count the runs that a backfill would make, and their input. Changes nothing.

        `by="partitions"` names the current partitions of an input of the program: of `dataset`, if it has several,
        and those that `where` chooses. `by="versions"` names those that transactions with write pointers from
        `from_version` to `to_version` have changed. `by="times"` names the times of `schedule` in [since, until).
        `by="runs"` names runs of the program, or those made in [since, until) that have committed and repeat no other
        run. Their inputs are taken again.

        Of these, `select` takes `missing` ones, `failed` ones, `unfinished` ones (both), or `all`. The default is
        `unfinished`, and `all` of `by="runs"`: a run that has failed took no input. `BadBackfill`, `BadKey`,
        `BadPeriod`, `NotFound`, `TakesWork`. Cost: what the choice names; by times, the runs since the first time.
        """
        choice = Choice.read(
            by,
            select,
            dataset=dataset,
            where=where,
            schedule=schedule,
            since=since,
            until=until,
            runs=runs,
            from_version=from_version,
            to_version=to_version,
        )
        found, planned = self._catalog.read(lambda db: self._choose(db, program, choice))
        return BackfillPlan(
            found.qualified_name,
            len(planned.items),
            _sum(one.bytes for one in planned.items),
            _sum(one.rows for one in planned.items),
            {need.value: planned.named[need] for need in ItemNeed if planned.named.get(need)},
            tuple(PlannedItemView(one.shown, one.need, one.bytes, one.rows) for one in planned.items[:MOST_SHOWN]),
        )

    @operation(Right.OPERATE, in_block=True)
    def start(  # noqa: PLR0913  # the choice, by keyword
        self,
        program: str,
        arguments: Mapping[str, object] | None = None,
        *,
        by: str = By.PARTITIONS,
        dataset: str | None = None,
        where: Where | Sequence[str] | None = None,
        schedule: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        runs: Sequence[str] | None = None,
        from_version: int | None = None,
        to_version: int | None = None,
        select: str | None = None,
        concurrency: int = 1,
        priority: int = PRIORITY,
        quiet: bool = False,
    ) -> BackfillView:
        """Start a backfill: one run for each item that `plan` counts with the same choice.

        At most `concurrency` of its runs are under way at a time. They take no slot of the program, and constraints of
        schedules do not look at them. Runs of a higher `priority` go first. With `quiet`, consumers and triggers get
        nothing of what the runs publish. `BadArgument`, `MissingSource` for an argument of the schedule that has
        neither a default nor a value here, and the errors of `plan`.
        """
        choice = Choice.read(
            by,
            select,
            dataset=dataset,
            where=where,
            schedule=schedule,
            since=since,
            until=until,
            runs=runs,
            from_version=from_version,
            to_version=to_version,
        )
        if not 1 <= concurrency <= MOST_AT_ONCE:
            raise BadBackfill(f"concurrency {concurrency} is not a number from 1 to {MOST_AT_ONCE}")
        backfill_id = BackfillId(self._world.new_id("backfill"))

        # Before the transaction of the start: a plan reads much, and commits wait for the clock.
        planned = self._catalog.read(lambda db: self._choose(db, program, choice))[1]

        def block(db: Db) -> BackfillView:
            pointer = WritePointer(db.tick())
            found = self._project.startable(db, program)
            given = {**planned.arguments, **(arguments or {})}
            for name, path in planned.missing.items():
                if name not in given:
                    raise MissingSource(name, path, "a backfill by times has a logical time alone")
            later = {name for name, value in given.items() if choice.by is By.TIMES and value == LOGICAL_TIME}
            if choice.by is By.RUNS:  # each run has those of the run that it repeats
                later |= {one.name for one in found.arguments} - set(given)
            found.bind({name: value for name, value in given.items() if name not in later}, later)
            items = [one.item for one in planned.items]
            if choice.select is not Selection.ALL:
                others = backfill_records.list_open_items(db, found.program_id, planned.dataset_id)
                items = [item for item in items if item not in others]
            if not items:
                named = ", ".join(f"{number} {need}" for need, number in sorted(planned.named.items())) or "none"
                raise BadBackfill(
                    f"select={choice.select.value!r} takes none of the named items ({named}); "
                    "name other items, or choose another `select`"
                )
            new = NewBackfill(
                backfill_id,
                found,
                choice.by,
                choice.select is Selection.ALL,
                choice.shown(),
                planned.dataset_id,
                given,
                concurrency,
                priority,
                quiet,
                self._project.actor,
                items,
            )
            made = backfills.start_backfill(db, self._world, pointer, new)
            self._note("start", found.qualified_name, backfill_id=backfill_id, items=len(new.items)).write(db)
            return _view(made, {found.program_id: found.qualified_name})

        return self._catalog.write(block)

    @operation(Right.READ)
    def list(
        self, *, program: str | None = None, state: str | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[BackfillView]:
        """List the backfills that fit each filter, newest first. `BadFilter`, `NotFound`."""
        before = read_key(after, FROM_LATEST)
        chosen = None if state is None else check_filter("state", state, BackfillState)

        def block(db: Db) -> Page[BackfillView]:
            found = backfill_records.list_backfills(
                db,
                most=one_more(limit),
                program_id=None if program is None else self._project.program(db, program).program_id,
                namespace=self._project.access.only,
                state=chosen,
                before=before,
            )
            names = program_names(db, (one.program_id for one in found))
            return cut(
                found, limit, lambda one: write_key(one.created_at, one.backfill_id), lambda one: _view(one, names)
            )

        return self._catalog.read(block)

    @operation(Right.READ)
    def show(self, backfill_id: str) -> BackfillView:
        """Return a backfill with its progress; `NotFound`."""

        def block(db: Db) -> BackfillView:
            found = self._find(db, backfill_id)
            return _view(found, program_names(db, [found.program_id]))

        return self._catalog.read(block)

    @operation(Right.READ)
    def items(
        self, backfill_id: str, *, state: str | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[BackfillItem]:
        """List the items of a backfill in their order: all, or those in a state. `BadFilter`, `NotFound`."""
        (place,) = read_key(after, (-1,))
        chosen = None if state is None else check_filter("state", state, ItemState)

        def block(db: Db) -> Page[BackfillItem]:
            found = self._find(db, backfill_id)
            show = _shower(db, found)
            rows = backfill_records.list_items(db, found.backfill_id, most=one_more(limit), state=chosen, after=place)
            return cut(
                rows,
                limit,
                lambda one: write_key(one.no),
                lambda one: BackfillItem(one.no, show(one), one.state, one.run_id, one.why),
            )

        return self._catalog.read(block)

    @operation(Right.OPERATE, in_block=True)
    def pause(self, backfill_id: str) -> ChangedBackfill:
        """Make no more runs of a backfill. Runs that are under way go on. `NotFound`, `BackfillOver`."""

        def block(db: Db) -> ChangedBackfill:
            return self._changed(db, "pause", *backfills.pause_backfill(db, self._id(db, backfill_id)))

        return self._catalog.write(block)

    @operation(Right.OPERATE, in_block=True)
    def resume(self, backfill_id: str) -> ChangedBackfill:
        """Go on with a paused backfill. `NotFound`, `BackfillOver`."""

        def block(db: Db) -> ChangedBackfill:
            pointer = WritePointer(db.tick())
            resumed = backfills.resume_backfill(db, self._world, pointer, self._id(db, backfill_id))
            return self._changed(db, "resume", *resumed)

        return self._catalog.write(block)

    @operation(Right.OPERATE)
    def cancel(self, backfill_id: str, *, kill: bool = False) -> ChangedBackfill:
        """Drop the waiting items of a backfill for good. Runs that are under way end as usual.

        With `kill`, those runs are killed, each in a transaction of its own. `NotFound`, `BackfillOver`.
        """
        # As for `run kill`: a list does not load the room of attempts.
        from tidemill.run.step.attempts import kill_run

        def block(db: Db) -> _Cancelled:
            before, after = backfills.cancel_backfill(db, self._id(db, backfill_id))
            under_way = backfill_records.list_running(db, after.backfill_id) if kill else []
            changed = self._changed(db, "cancel", before, after).changed
            write_effects(db, self._keep_part({"changed": changed, "killed": under_way}))
            return _Cancelled(changed, tuple(under_way))

        # An earlier try of the same request has cancelled it, and perhaps killed some of the runs.
        done = self._catalog.write(block) if self._part is None else _Cancelled(**self._part)
        ends = [kill_run(self._catalog, one, self._project.note("run.kill", one)) for one in done.killed]
        # An end that an earlier try has asked for counts too, and no run that had ended by itself.
        killing = {RunState.STOPPING, RunState.KILLED} if self._part is not None else set()
        killed = sum(changed or state in killing for state, changed in ends)
        return ChangedBackfill(BackfillId(backfill_id), BackfillState.CANCELLED, changed=done.changed, killed=killed)

    @operation(Right.OPERATE, in_block=True)
    def retry(self, backfill_id: str) -> ChangedBackfill:
        """Try the failed items of a backfill again: of a paused one after `resume`.

        Items that another backfill of the program has stay failed, unless this backfill takes all.
        `NotFound`, `BackfillOver`, `NothingFailed`.
        """

        def block(db: Db) -> ChangedBackfill:
            pointer = WritePointer(db.tick())
            retried = backfills.retry_backfill(db, self._world, pointer, self._id(db, backfill_id))
            return self._changed(db, "retry", *retried)

        return self._catalog.write(block)

    def _choose(self, db: Db, name: str, choice: Choice) -> tuple[Program, Planned]:
        program = self._project.startable(db, name)
        return program, plan_backfill(db, self._project, program, choice)

    def _find(self, db: Db, backfill_id: str) -> Backfill:
        found = backfill_records.find_backfill(db, BackfillId(backfill_id))
        self._project.check(found.namespace, "backfill", backfill_id)
        return found

    def _id(self, db: Db, backfill_id: str) -> BackfillId:
        return self._find(db, backfill_id).backfill_id

    def _changed(self, db: Db, verb: str, before: Backfill, after: Backfill) -> ChangedBackfill:
        if after is not before:
            self._note(verb, before.backfill_id).between(_state(before), _state(after)).write(db)
        return ChangedBackfill(after.backfill_id, after.state, after is not before)


def _state(one: Backfill) -> dict[str, object]:
    """Return the state of a backfill in the audit log."""
    return {"state": one.state, "waiting": one.waiting, "failed": one.failed, "dropped": one.dropped}


def _view(one: Backfill, names: Mapping[ProgramId, str]) -> BackfillView:
    return BackfillView(
        backfill_id=one.backfill_id,
        program=names.get(one.program_id),
        state=one.state,
        reason=one.reason,
        choice=one.choice,
        arguments=one.arguments,
        concurrency=one.concurrency,
        priority=one.priority,
        quiet=one.quiet,
        items=one.waiting + one.running + one.done + one.failed + one.dropped,
        waiting=one.waiting,
        running=one.running,
        done=one.done,
        failed=one.failed,
        dropped=one.dropped,
        actor=one.actor,
        created_at=one.created_at,
        ended_at=one.ended_at,
    )


def _shower(db: Db, found: Backfill) -> Callable[[Item], str]:
    """Return the function that shows items of a backfill as people read them."""
    match found.item_kind:
        case By.PARTITIONS | By.VERSIONS if found.dataset_id is not None:
            fileset = Fileset.of(find_some(db, [found.dataset_id])[found.dataset_id])
            return lambda one: fileset.show(KeyText(one.item))
        case By.TIMES:
            return lambda one: show_second(datetime.fromisoformat(one.item))
        case _:
            return lambda one: one.item


def _sum(sizes: Iterable[int | None]) -> int | None:
    """Return the sum of sizes; None if they are not known."""
    known = [one for one in sizes if one is not None]
    return sum(known) if known else None
