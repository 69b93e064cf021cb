"""Replays: what a run that repeats another one has written, compared with what that one has published.

Rows are compared, not files: the same rows in other files are equal. A replay that publishes must not double rows, and
must not undo what later runs have written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.errors import UserError
from tidemill.json_specs import write_plain
from tidemill.lake.fileset.fileset import Change, ColumnSchema, Fileset, Partition, WriteOp
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.lake.written import WrittenChange, find_writers, read_written
from tidemill.names import CommitSeq, RunId
from tidemill.run.records.runs import Replay, find_runs
from tidemill.run.step.workspace import Workspace
from tidemill.shapes.keys import Key, KeyText
from tidemill.shapes.manifest import tx_directory

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_MOST_SHOWN: Final = 20
_MOST_ROWS: Final = 5


class ReplayRefused(UserError):
    """A replay would double rows, or undo what later runs have written."""

    code = "replay_refused"

    def __init__(self, run_id: str, partition: str, dataset: str, why: str) -> None:
        self.run_id = run_id
        self.partition = partition
        self.dataset = dataset
        self.why = why
        super().__init__(
            f"the replay of {run_id} does not publish {partition} of {dataset}: {why}",
            f"`tidemill run replay {run_id} --sandbox --diff` compares the rows and publishes nothing",
        )


@dataclass(frozen=True, slots=True)
class PartitionDifference:
    """A partition in which a replay differs: the rows that only the run has published, and that only the replay has."""

    partition: str
    why: str
    only_published: int
    only_replayed: int


@dataclass(frozen=True, slots=True)
class OutputComparison:
    """Comparison of one output. `differing` are the first partitions that differ, of `differing_partitions`.

    `only_published` and `only_replayed` are some of the rows that differ, as JSON. Rows are not compared without Spark,
    but files; `by_rows` is false then.
    """

    dataset: str
    partitions: int
    rows_published: int
    rows_replayed: int
    by_rows: bool
    differing_partitions: int
    differing: tuple[PartitionDifference, ...]
    only_published: tuple[str, ...] = ()
    only_replayed: tuple[str, ...] = ()


def check_replay(run: Workspace, replay: Replay, writes: Iterable[str]) -> dict[str, object]:
    """Check what a replay has written, before its commit, and return the facts of the comparison that was asked for.

    The declared outputs `writes` are compared, and no rejects: these have the run and the time of their discovery.
    `ReplayRefused` for a replay that would publish what it must not.
    """
    if not replay.sandbox:
        _refuse_unsafe(run, replay, run.outputs.filesets)
    if not replay.diff:
        return {}
    compared = _compare_outputs(run, replay, {name: run.outputs.filesets[name] for name in writes})
    same = not any(one.differing_partitions for one in compared)
    return {"comparison": {"same": same, "outputs": write_plain(compared)}}


def _compare_outputs(run: Workspace, replay: Replay, filesets: Mapping[str, Fileset]) -> list[OutputComparison]:
    """Compare what the attempt has written with what the run has published, output by output. Cost: reads both."""
    found = []
    for name, fileset in filesets.items():
        published = run.catalog.read(
            partial(read_written, write_pointer=replay.write_pointer, dataset_id=fileset.dataset_id)
        )
        written = run.written(name)
        if published or written:
            found.append(_ReplayedOutput(run, name, fileset, published, written).compare())
    return found


def _refuse_unsafe(run: Workspace, replay: Replay, filesets: Mapping[str, Fileset]) -> None:
    """Raise `ReplayRefused` unless each written partition is as the run, or a replay of it, has left it.

    Appended rows are there already, unless such a run has dropped the partition since. What commits after this look is
    found by the commit. Cost: a look-up a partition.
    """
    for name, fileset in filesets.items():
        writes = {fileset.keys.encode(write.key): write for write in run.written(name)}
        rows = run.catalog.read(partial(find_writers, dataset_id=fileset.dataset_id, keys=[*writes]))
        known = _find_same(run, replay, {row.run_id for row in rows})
        for key, run_id, is_dropped in rows:
            shown = f"partition {fileset.show(key)}"
            if writes[key].op is WriteOp.APPEND and writes[key].brings_rows and not is_dropped:
                raise ReplayRefused(replay.of, shown, name, "its rows would be there twice")
            if run_id not in known and not (is_dropped and writes[key].op is WriteOp.DROP):
                why = "has dropped it" if is_dropped else "has written it too"
                raise ReplayRefused(replay.of, shown, name, f"{run_id} {why}")


def _find_same(run: Workspace, replay: Replay, run_ids: Iterable[RunId]) -> set[RunId]:
    """Return those of `run_ids` that are the run that is repeated, or repeat it."""

    def block(db: Db) -> set[RunId]:
        found = find_runs(db, sorted(run_ids))
        return {one.run_id for one in found if one.replay is not None and one.replay.of == replay.of}

    return {replay.of, *run.catalog.read(block)}


@dataclass(frozen=True, slots=True)
class _ComparedRows:
    """Differences of partitions that both sides have. With `by_rows` off their files were compared, and no rows."""

    by_rows: bool
    differing: Mapping[KeyText, PartitionDifference] = field(default_factory=dict)
    only_published: tuple[str, ...] = ()
    only_replayed: tuple[str, ...] = ()


@dataclass(slots=True)
class _ReplayedOutput:
    run: Workspace
    name: str
    fileset: Fileset
    published: Sequence[WrittenChange]
    written: Sequence[PartitionWrite]

    def compare(self) -> OutputComparison:
        """Compare the partitions of one output."""
        keys = self.fileset.keys
        before = {one.change.partition_key: one.change for one in self.published}
        after = {keys.encode(write.key): self._change(write) for write in self.written}
        differing: dict[KeyText, PartitionDifference] = {}
        both: list[KeyText] = []
        for key in sorted({*before, *after}):
            old, new = before.get(key), after.get(key)
            if old is None or new is None or old.op is not new.op:
                differing[key] = self._differ(key, _tell_ops(old, new), _rows_of(old), _rows_of(new))
            else:
                both.append(key)
        rows = self._compare_rows([before[key] for key in both], [after[key] for key in both])
        differing |= rows.differing
        return OutputComparison(
            self.name,
            len({*before, *after}),
            sum(map(_rows_of, before.values())),
            sum(map(_rows_of, after.values())),
            rows.by_rows,
            len(differing),
            tuple(differing[key] for key in sorted(differing)[:_MOST_SHOWN]),
            rows.only_published,
            rows.only_replayed,
        )

    def _compare_rows(self, before: Sequence[Change], after: Sequence[Change]) -> _ComparedRows:
        """Compare the rows of partitions that both sides have, in the same order."""
        both = zip(before, after, strict=True)
        changed = [(old, new) for old, new in both if _contents(old) != _contents(new)]
        if not changed:
            return _ComparedRows(by_rows=True)
        columns = next((one.columns for one in self.published if one.columns), None)
        own = self.run.outputs.columns_of(self.name)
        # Columns may have been added since: the rows of the run have no values in them.
        if columns is None or own is None or not columns.types.items() <= own.types.items():
            return _ComparedRows(True, self._differ_all(changed, "its columns are others, or have other types"))
        session = self.run.session
        if session is None:
            why = "its files differ; the program has no Spark to compare the rows"
            return _ComparedRows(False, self._differ_all(changed, why))
        return self._diff(session, [old for old, _ in changed], [new for _, new in changed])

    def _diff(self, spark: SparkSession, before: Sequence[Change], after: Sequence[Change]) -> _ComparedRows:
        from tidemill.frames.row_diff import diff_rows
        from tidemill.frames.spark import read_partitions

        def read(changes: Sequence[Change], columns: ColumnSchema | None) -> DataFrame:
            parts = [Partition(change.partition_key, (change,)) for change in changes]
            return read_partitions(self.run.world, spark, self.fileset, parts, columns)

        columns = self.run.outputs.columns_of(self.name)
        found = diff_rows(read(before, columns), read(after, columns), self.fileset.keys.names, _MOST_ROWS)
        differing = {}
        for values, (lost, won) in found.numbers.items():
            key = self.fileset.keys.encode(self._key(values))
            differing[key] = self._differ(key, "its rows differ", lost, won)
        return _ComparedRows(True, differing, found.only_old, found.only_new)

    def _differ_all(self, changed: Iterable[tuple[Change, Change]], why: str) -> dict[KeyText, PartitionDifference]:
        return {
            old.partition_key: self._differ(old.partition_key, why, _rows_of(old), _rows_of(new))
            for old, new in changed
        }

    def _key(self, values: Sequence[object]) -> Key:
        return self.fileset.keys.check(dict(zip(self.fileset.keys.names, values, strict=True)))

    def _change(self, write: PartitionWrite) -> Change:
        tx, key = self.run.tx, self.fileset.keys.encode(write.key)
        place = write.location or tx_directory(tx)
        return Change(key, tx.write_pointer, CommitSeq(0), write.op, place, write.manifest)

    def _differ(self, key: KeyText, why: str, only_published: int, only_replayed: int) -> PartitionDifference:
        return PartitionDifference(self.fileset.show(key), why, only_published, only_replayed)


def _rows_of(change: Change | None) -> int:
    return 0 if change is None else change.manifest.total_rows


def _contents(change: Change) -> list[tuple[str, int, int]]:
    """Return the contents of files, which are the same rows wherever they are the same."""
    return sorted((file.checksum or file.name, file.bytes, file.rows) for file in change.manifest.files)


def _tell_ops(old: Change | None, new: Change | None) -> str:
    if new is None:
        return "only the run has published it"
    if old is None:
        return "only the replay has written it"
    return f"the run has published it by {old.op}, the replay by {new.op}"
