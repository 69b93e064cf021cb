"""Verdict after the storm: nothing is lost, doubled, dirty or orphaned, and both ways to deliver agree.

The committed transactions are known without the catalog: writers have noted the end of each transaction as they saw it,
and the landed files are in a folder.
"""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from tests.chaos.breadth import find_wrong_windows, judge_inbox, judge_snapshot, judge_windows
from tests.chaos.flows import judge_workflows
from tests.chaos.past import judge_backfills
from tests.chaos.site import DATASETS, MARK, Site, find_fileset, rows_of, rows_of_file
from tests.chaos.workers import read_follower
from tests.processes import command_of, find_processes
from tests.yardstick import patience
from tidemill.catalog.db import Catalog
from tidemill.catalog.transactions import LONGEST_LIFE, Snapshot
from tidemill.lake.consumer.consumer import consume_partitions
from tidemill.lake.fileset.fileset import read_partitions
from tidemill.lake.janitor import sweep
from tidemill.names import WritePointer
from tidemill.roles.up import is_idle
from tidemill.testing.clock import Backdoor
from tidemill.upkeep.audit import audit
from tidemill.upkeep.fsck import fsck

CONSUMERS: Final = {"lines": "sum_up", "loaded": "finish", "totals": "finish"}
_TABLES: Final = ("tx", "in_progress", "partition_change", "consumer", "consumer_work", "inbox_file", "run",
                  "run_input", "slot", "job", "job_history", "message", "garbage", "subscriber",
                  "watermark", "watermark_move", "window_program", "window_result",
                  "workflow_run", "workflow_node", "backfill", "backfill_item")  # fmt: skip
_UNQUIET: Final = {
    "runs": "SELECT count(*) FROM run WHERE state NOT IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED')",
    "transactions": "SELECT count(*) FROM tx WHERE state = 'in_progress'",
    "claims": "SELECT count(*) FROM consumer_work WHERE state IN ('new', 'in_progress')",
    "files": "SELECT count(*) FROM inbox_file WHERE status IN ('NEW', 'IN_PROGRESS', 'ERROR')",
    "held": "SELECT count(*) FROM workflow_run WHERE holding = 'held'",
    "backfills": "SELECT count(*) FROM backfill WHERE ended_at IS NULL",
    "items": "SELECT count(*) FROM backfill_item WHERE state IN ('WAITING', 'RUNNING')",
}
_UNSWEPT: Final = """
    SELECT 1 FROM garbage WHERE not_before = 0
     UNION ALL
    SELECT 1 FROM tx
     WHERE commit_seq > coalesce((SELECT seq FROM subscriber WHERE topic = 'markers' AND name = 'strays'), 0)
     LIMIT 1"""
"""A row while the janitor has not looked at all garbage and for strays of all commits."""


@dataclass
class Verdict:
    """Findings, by kind, each with its evidence."""

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    dirty: list[str] = field(default_factory=list)
    orphaned: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    """Deliveries that differ between the order of write pointers and that of commits (R19)."""
    audited: list[str] = field(default_factory=list)
    """Findings of the product's own audit and fsck."""
    stuck: list[str] = field(default_factory=list)
    broke: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def findings(self) -> dict[str, list[str]]:
        """Each promise with its violations."""
        kinds = ("lost", "doubled", "dirty", "orphaned", "differing", "audited", "stuck", "broke")
        return {kind: getattr(self, kind) for kind in kinds}

    @property
    def holds(self) -> bool:
        """Return whether nothing was found."""
        return not any(self.findings.values())


class Judge:
    """Looks at a site by way of the product and behind its back."""

    def __init__(self, site: Site, catalog: Catalog, sql: Backdoor) -> None:
        self.site = site
        self.catalog = catalog
        self.sql: Any = sql
        self.verdict = Verdict()

    def unquiet(self) -> dict[str, int]:
        """Return the work that is still to be done, by kind. Empty when the site is at rest."""
        found = {what: int(self.sql(query)[0][0]) for what, query in _UNQUIET.items()}
        found["landed"] = (
            len(self.landed())
            + len(list(self.site.parcels.iterdir()))
            - int(self.sql("SELECT count(*) FROM inbox_file WHERE status = 'SUCCESS'")[0][0])
        )
        found["lag"] = sum(self._lags())
        found["idle"] = 0 if self.catalog.read(lambda db: is_idle(db, [])) else 1
        if not any(found.values()):  # it reads seven file sets from disk
            found["windows"] = len(find_wrong_windows(self))
        return {what: count for what, count in found.items() if count}

    def judge(self, *, processes_are_gone: bool = True) -> Verdict:
        """Compare the data with the notes. Call this when no process works any more."""
        if processes_are_gone:
            self._orphaned_processes()
        self._sweep()
        rows = {name: self._rows(name) for name in DATASETS}
        self._writers("notes", rows["lines"], rows["pairs"])
        self._writers("tick_notes", rows["ticks"])
        self._programs(rows)
        self._transactions()
        self._messages()
        self._deliveries()
        self._followers()
        judge_windows(self)
        judge_snapshot(self)
        judge_inbox(self)
        judge_workflows(self)
        judge_backfills(self)
        self._left_over()
        self._directories()
        self._audit()
        self._count(rows)
        return self.verdict

    def keep(self, folder: Path) -> None:
        """Put the catalog's tables beside what else is there, for a person."""
        for table in _TABLES:
            with (folder / f"{table}.jsonl").open("w") as file:
                for row in self.sql(f"SELECT * FROM {table}"):
                    file.write(json.dumps(row, default=repr) + "\n")

    # What is there

    def _rows(self, name: str) -> Counter[str]:
        """Every visible row of a file set; files are compared with their manifests on the way."""
        fileset = find_fileset(self.catalog, name)
        pointer = WritePointer(self.catalog.write(lambda db: db.tick()))
        snapshot = Snapshot(pointer, self.catalog.incarnation)
        states = dict(self.sql("SELECT write_pointer, state FROM tx"))
        rows: Counter[str] = Counter()
        for partition in self.catalog.read(lambda db: read_partitions(db, fileset.dataset_id, snapshot)):
            for change in partition.changes:
                if states.get(change.write_pointer) != "committed":
                    self.verdict.dirty.append(f"{name} shows {change.location} of {states.get(change.write_pointer)}")
            for path, file in partition.files:
                content = b""
                with suppress(FileNotFoundError):
                    content = (self.site.folder / "data" / name / path).read_bytes()
                texts = content.decode().splitlines()
                if (len(content), len(texts)) != (file.bytes, file.rows):
                    self.verdict.lost.append(f"{name}/{path} has {len(content)} bytes, its manifest {file.bytes}")
                rows.update(texts)
        return rows

    def landed(self) -> set[str]:
        """The names of all files that ever landed."""
        found = [path.name for folder in (self.site.archive, self.site.landing) for path in folder.iterdir()]
        return {name for name in found if not name.startswith(".")}

    def _notes(self, folder: str) -> Iterator[tuple[int, dict[int, str]]]:
        """Yield the end of each transaction of a writer, as the writer saw it: its last note."""
        for path in (self.site.folder / folder).iterdir():
            ended: dict[int, str] = {}
            for line in path.read_text().splitlines():
                what, number = line.split()
                ended[int(number)] = what
            yield int(path.name), ended

    # What must hold

    def _writers(self, notes: str, *seen: Counter[str]) -> None:
        """Check the notes of these writers against each of the file sets that they write."""
        allowed: set[str] = set()
        acknowledged = 0
        for slot, ended in self._notes(notes):
            for number, what in ended.items():
                rows = rows_of(slot, number)
                there = [sum(one[row] for row in rows) for one in seen]
                whole = [len(rows)] * len(seen)
                if what == "dropped" and any(there):
                    self.verdict.dirty.append(f"writer {slot} dropped {number}, which is there: {there}")
                elif what == "done" and there != whole:
                    self.verdict.lost.append(f"writer {slot} was told that {number} is committed; there are {there}")
                elif there not in ([0] * len(seen), whole):
                    self.verdict.dirty.append(f"half of {number} of writer {slot} is there: {there}")
                acknowledged += what == "done"
                allowed.update(rows)
        for one in seen:
            self._doubles(notes, one)
            self.verdict.dirty += [f"nobody wrote {row}" for row in one if row not in allowed]
        self.verdict.counts[f"acknowledged commits ({notes})"] = acknowledged

    def _programs(self, rows: dict[str, Counter[str]]) -> None:
        """Check that each input of the programs has come out once."""
        landed = {row for name in self.landed() for row in rows_of_file(name)}
        expected = {"loaded": landed, "totals": set(rows["lines"]), "final": landed | set(rows["lines"])}
        for name, wanted in expected.items():
            self._doubles(name, rows[name])
            self.verdict.lost += [f"{row} is not in {name}" for row in sorted(wanted - set(rows[name]))]
            self.verdict.dirty += [f"{row} is in {name} and came from nowhere" for row in set(rows[name]) - wanted]

    def _doubles(self, name: str, rows: Counter[str]) -> None:
        self.verdict.doubled += [f"{row} is {n} times in {name}" for row, n in rows.items() if n > 1]

    def _transactions(self) -> None:
        """A run has one committed transaction at most, and one if and only if it is COMPLETED."""
        rows = self.sql(
            "SELECT r.run_id, r.state, count(t.write_pointer) FROM run AS r"
            " LEFT JOIN tx AS t ON t.run_id = r.run_id AND t.state = 'committed'"
            " WHERE r.kind <> 'workflow' GROUP BY r.run_id, r.state"
        )
        for run_id, state, committed in rows:
            if committed > 1:
                self.verdict.doubled.append(f"{run_id} has committed {committed} times")
            elif (state == "COMPLETED") != (committed == 1):
                self.verdict.dirty.append(f"{run_id} is {state} with {committed} commits")
        bad = self.sql(
            "SELECT c.write_pointer, t.state FROM partition_change AS c"
            " LEFT JOIN tx AS t ON t.write_pointer = c.write_pointer"
            " WHERE t.state IS NULL OR t.state <> 'committed' OR t.commit_seq <> c.commit_seq"
        )
        self.verdict.dirty += [f"a change of transaction {pointer}, which is {state}" for pointer, state in bad]

    def _messages(self) -> None:
        """Check that each publication and each end of a run is announced once, and nothing that did not commit."""
        said: Counter[tuple[int, str]] = Counter()
        partitions: Counter[tuple[int, str, str]] = Counter()
        ends: Counter[tuple[str, str]] = Counter()
        for kind, text in self.sql("SELECT event_type, payload FROM message"):
            payload = json.loads(text)
            if kind == "partitions":
                # What is too much for one message comes in several.
                place = payload["write_pointer"], payload["dataset"]
                said[place] = 1
                partitions.update((*place, one["key"]) for one in payload["partitions"])
            elif kind == "run_ended":
                ends[payload["run_id"], payload["state"]] += 1
        published = {
            (pointer, f"default.{name}")
            for pointer, name in self.sql(
                "SELECT DISTINCT c.write_pointer, d.name FROM partition_change AS c"
                " JOIN dataset AS d ON d.dataset_id = c.dataset_id WHERE d.kind = 'fileset'"
                " AND c.write_pointer NOT IN (SELECT t.write_pointer FROM tx AS t JOIN run AS r USING (run_id)"
                " JOIN backfill AS b USING (backfill_id) WHERE b.quiet = 1)"
            )
        }
        ended = {
            (run_id, state)
            for run_id, state, reason in self.sql(
                "SELECT run_id, state, exit_reason FROM run WHERE kind <> 'external' AND state IN "
                "('COMPLETED', 'FAILED', 'KILLED', 'REJECTED')"
            )
            if not (state == "COMPLETED" and reason == "no_input")
        }
        for what, counted, wanted in (("publication", said, published), ("end", ends, ended)):
            self.verdict.lost += [f"{what} {one} is not announced" for one in wanted - set(counted)]
            self.verdict.dirty += [f"{what} {one} is announced and never was" for one in set(counted) - wanted]
            self.verdict.doubled += [f"{what} {one} is announced {n} times" for one, n in counted.items() if n > 1]
        self.verdict.doubled += [f"{one} is announced {n} times" for one, n in partitions.items() if n > 1]
        launched = self.sql(
            "SELECT h.job_id FROM job_history AS h LEFT JOIN run AS r ON r.job_id = h.job_id"
            " WHERE h.outcome IN ('LAUNCHED', 'FORCED') AND r.run_id IS NULL"
        )
        self.verdict.lost += [f"job {job_id} was launched and has no run" for (job_id,) in launched]

    def _deliveries(self) -> None:
        """By commit sequence and by write pointer the same set is delivered: each change to one committed run (R19)."""
        for name, program in CONSUMERS.items():
            fileset = find_fileset(self.catalog, name)
            changes = self.sql(
                "SELECT write_pointer, partition_key FROM partition_change"
                f" WHERE dataset_id = '{fileset.dataset_id}' AND delivers = 1 ORDER BY commit_seq"
            )
            taken = Counter(
                self.sql(
                    "SELECT i.write_pointer, i.item FROM run_input AS i JOIN run AS r ON r.run_id = i.run_id"
                    " JOIN program AS p ON p.program_id = r.program_id"
                    f" WHERE i.dataset_id = '{fileset.dataset_id}' AND p.name = '{program}' AND r.state = 'COMPLETED'"
                )
            )
            wanted = set(changes)
            self.verdict.differing += [f"{name} {one} never came to {program}" for one in wanted - set(taken)]
            self.verdict.differing += [f"{name} {one} came to {program} from nowhere" for one in set(taken) - wanted]
            self.verdict.differing += [f"{name} {one} came {n} times to {program}" for one, n in taken.items() if n > 1]
            given_up = self.sql(
                "SELECT write_pointer, partition_key, error FROM consumer_work WHERE state = 'discarded'"
            )
            self.verdict.lost += [f"{one} was given up" for one in given_up]

    def _followers(self) -> None:
        """Check that a consumer with its own state was given every partition once, in whatever order they committed."""
        lines = find_fileset(self.catalog, "lines")
        wanted = {tuple(lines.keys.decode(row[0])) for row in self._changes(lines.dataset_id)}
        for path in (self.site.folder / "followers").iterdir():
            if path.name.startswith("."):
                continue  # of one that was killed while it wrote
            state, keys = read_follower(path)
            rest, _ = consume_partitions(self.catalog, lines, state)
            given = Counter(map(tuple, keys))
            given.update((one.key["writer"], one.key["number"]) for one in rest)
            self.verdict.differing += [f"follower {path.name} never got {key}" for key in wanted - set(given)]
            self.verdict.differing += [f"follower {path.name} got {key}, not there" for key in set(given) - wanted]
            self.verdict.differing += [f"follower {path.name} got {k} {n} times" for k, n in given.items() if n > 1]

    def _changes(self, dataset_id: str) -> list[Any]:
        found: list[Any] = self.sql(f"SELECT partition_key FROM partition_change WHERE dataset_id = '{dataset_id}'")
        return found

    def _left_over(self) -> None:
        orphans = {
            "transaction": "SELECT write_pointer FROM tx WHERE state = 'in_progress'",
            "declared output": "SELECT write_pointer FROM in_progress",
            "claim": "SELECT run_id, write_pointer, partition_key FROM consumer_work WHERE state = 'in_progress'",
            "claim of a file": "SELECT run_id, name FROM inbox_file WHERE status = 'IN_PROGRESS'",
            "slot": "SELECT limit_key, run_id FROM slot",
            "pin": "SELECT pin_id, run_id FROM reader_pin",
            "run": "SELECT run_id, state FROM run WHERE state NOT IN ('COMPLETED', 'FAILED', 'KILLED', 'REJECTED')",
        }
        for what, query in orphans.items():
            self.verdict.orphaned += [f"{what} {row}" for row in self.sql(query)]

    def _sweep(self) -> None:
        """Let the janitor look once more, as it does for a day after each end and each commit.

        A process that is killed while it puts a side-car leaves an unfinished upload (`_committed#1`) in a committed
        directory. The janitor deletes the upload `LONGEST_LIFE` after the commit.
        """
        self.sql(f"UPDATE tx SET ended_at = ended_at - {LONGEST_LIFE // timedelta(milliseconds=1)}")
        for _ in range(10):
            self.sql("UPDATE garbage SET not_before = 0")
            found = 0
            # One sweep is bounded: what it has looked at waits again.
            while self.sql(_UNSWEPT):
                swept = sweep(self.catalog)
                found += swept.deleted + swept.marked + swept.strays
            if not found:
                return
        self.verdict.orphaned.append("a janitor that has looked at everything ten times still finds something")

    def _directories(self) -> None:
        """Each directory is of a committed transaction and marked as such; nothing else lies there."""
        for name in DATASETS:
            folder = self.site.folder / "data" / name
            fileset = find_fileset(self.catalog, name)
            named = defaultdict(set)
            for pointer, location in self.sql(
                "SELECT DISTINCT write_pointer, location FROM partition_change"
                f" WHERE dataset_id = '{fileset.dataset_id}'"
            ):
                named[location].add(pointer)
            there = {path.name for path in folder.iterdir()} if folder.exists() else set()
            self.verdict.orphaned += [f"directory {name}/{one}" for one in sorted(there - set(named))]
            self.verdict.lost += [f"directory {name}/{one} is gone" for one in set(named) - there]
            for one in set(named) & there:
                missing = {"_manifest.json", "_committed"} - {path.name for path in (folder / one).iterdir()}
                self.verdict.lost += [f"{name}/{one} has no {side_car}" for side_car in missing]

    def _audit(self) -> None:
        found = audit(self.catalog)
        self.verdict.audited += [f"{one.kind}: {one.subject}: {one.what}" for one in found.findings]
        compared = fsck(self.catalog, [find_fileset(self.catalog, name) for name in DATASETS])
        self.verdict.audited += [f"{one.kind}: {one.where}: {one.what}" for one in compared.differences]
        self.verdict.counts["commits audited"] = found.commits
        self.verdict.counts["files compared"] = compared.files

    def _orphaned_processes(self) -> None:
        deadline = time.monotonic() + patience(10)
        while (left := processes_of(self.site)) and time.monotonic() < deadline:
            time.sleep(0.05)  # the kernel is about to end them
        for pid, command in left.items():
            self.verdict.orphaned.append(f"process {pid} {command}")
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def _lags(self) -> Iterable[int]:
        for name, program in CONSUMERS.items():
            fileset = find_fileset(self.catalog, name)
            query = (
                f"SELECT count(*) FROM partition_change AS c WHERE c.dataset_id = '{fileset.dataset_id}'"
                " AND NOT EXISTS (SELECT 1 FROM consumer_work AS w JOIN consumer AS u ON u.consumer_id = w.consumer_id"
                f" WHERE u.name = 'default.chaos.{program}' AND u.dataset_id = c.dataset_id"
                " AND w.write_pointer = c.write_pointer AND w.partition_key = c.partition_key)"
            )
            yield int(self.sql(query)[0][0])

    def _count(self, rows: dict[str, Counter[str]]) -> None:
        def one(query: str) -> int:
            return int(self.sql(query)[0][0])

        counts = self.verdict.counts
        for state in ("committed", "aborted", "invalid"):
            counts[f"transactions {state}"] = one(f"SELECT count(*) FROM tx WHERE state = '{state}'")
        counts["runs of programs completed"] = one(
            "SELECT count(*) FROM run WHERE kind = 'program' AND state = 'COMPLETED'"
        )
        counts["attempts beyond the first"] = one("SELECT coalesce(sum(epoch - 1), 0) FROM run WHERE kind = 'program'")
        counts["rows that went all the way"] = rows["final"].total()
        counts["rows of inputs recorded"] = one("SELECT count(*) FROM run_input")
        counts["driver folders left by killed runners"] = sum(
            path.name.startswith("driver") for path in (self.site.folder / "state/drivers").iterdir()
        )


def processes_of(site: Site) -> dict[int, str]:
    """The processes that came from a site and live, by id."""
    return {pid: command_of(pid) for pid in find_processes(re.escape(f"{MARK}={site.folder}\0"))}
