"""Rows that count in no window: a run counts such rows, and keeps them in the side table where the policies say so."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Db
from tidemill.catalog.transactions import Transaction
from tidemill.durations import format_duration
from tidemill.lake.fileset.fileset import Partition
from tidemill.lake.window.side import SideReason, to_side_key
from tidemill.lake.window.window_plan import Window
from tidemill.lake.window.windows import LateRows, OutsideRows, WindowState, find_spans, list_late_counted, read_keys
from tidemill.shapes.keys import KeySchema, KeyText
from tidemill.shapes.partition_time import WallTime
from tidemill.shapes.watermark_spec import OUTSIDE, ZONE, OutsidePolicy
from tidemill.sql.batches import Batch, Calculator

if TYPE_CHECKING:
    from tidemill.run.step.workspace import Workspace

_MOST_NAMED: Final = 5
_MOST_ASKED: Final = 20
"""Partitions that are looked at for a shift of their times."""


@dataclass(frozen=True, slots=True)
class Aside:
    """Rows of the partitions of `batch` that count in no window of a program, which keeps such rows in `side`."""

    workspace: Workspace
    calculator: Calculator
    side: str
    batch: Batch
    state: WindowState

    def put_outside(self) -> list[OutsideRows]:
        """Count the rows outside the time of each partition. By policy, put such rows in place of those of before.

        With `include` these are the rows without a time.
        """
        batch, spec = self.batch, self.batch.watermark
        self._drop_stale()
        if spec.outside is OutsidePolicy.ERROR:
            return []
        found = self.calculator.count_outside(self.workspace, batch) if any(p.files for p in batch.partitions) else {}
        if spec.outside in {OutsidePolicy.SIDE, OutsidePolicy.INCLUDE}:
            gone = [key for key in batch.instants if not found.get(key)]
            self._drop(SideReason.OUTSIDE, gone)
            if some := {key for key, rows in found.items() if rows}:
                rows = self.calculator.pick_outside(self.workspace, _only(batch, some))
                self.workspace.output(self.side).overwrite(rows)
        counted = [key for key, rows in found.items() if rows]
        spans = self.workspace.ask(lambda db, tx: find_spans(db, batch.source, tx, counted)) if counted else {}
        times = {key: span.time for key, span in spans.items()}
        source = batch.source.dataset_id
        return [
            OutsideRows(source, key, times.get(key), found.get(key, 0) if key in times else 0)
            for key in sorted(batch.instants)
        ]

    def put_late(self, late: Sequence[LateRows], before: WallTime, waiting: Sequence[Window]) -> list[LateRows]:
        """Count the late rows of a time before `before`, by partition. By policy, append them to the side table.

        Rows of a time in `waiting` are not late.
        """
        by_key = {one.key: one for one in late}

        def find_new(db: Db, tx: Transaction) -> list[Partition]:
            return [
                Partition(
                    one.partition_key,
                    tuple(c for c in one.changes if rows.since <= c.commit_seq < rows.until),
                )
                for one in read_keys(db, self.batch.source, tx, by_key)
                for rows in [by_key[one.partition_key]]
            ]

        partitions = [one for one in self.workspace.ask(find_new) if one.files]
        if partitions:
            batch = _only(replace(self.batch, partitions=tuple(partitions)), [one.partition_key for one in partitions])
            if not self.batch.watermark.keeps_late:
                found = self.calculator.count_late(self.workspace, batch, before, waiting)
                return [replace(one, rows=found[one.key]) for one in late if found.get(one.key)]
            rows = self.calculator.pick_late(self.workspace, batch, before, waiting)
            self.workspace.output(self.side).append(rows)
        keys = self.workspace.outputs.fileset(self.side).keys
        written = {keys.encode(one.key): one.manifest.total_rows for one in self.workspace.written(self.side)}
        kept = [replace(one, rows=written.get(to_side_key(self._keys, SideReason.LATE, one.key), 0)) for one in late]
        return [one for one in kept if one.rows]

    def say_late(self, late: Sequence[LateRows]) -> Iterable[str]:
        """Say for people which late rows count in no window."""
        if late:
            which = self._name([one.key for one in late], sum(one.rows for one in late), "late rows")
            if self.batch.watermark.keeps_late:
                yield f"{which} are in {self.side}: their windows are computed"
            else:
                yield f"{which} are left out of windows that are computed, by partition.late-policy='drop'"

    def say_outside(self, outside: Sequence[OutsideRows]) -> Iterable[str]:
        """Say for people which rows lie outside their partition, and whether another time zone would be right."""
        some = [one for one in outside if one.rows]
        if not some:
            return
        keeps = self.batch.watermark.outside is not OutsidePolicy.DROP
        to = f"are in {self.side}" if keeps else f"are left out, by {OUTSIDE}='drop'"
        which = self._name([one.key for one in some], sum(one.rows for one in some), "rows")
        if self.batch.watermark.outside is OutsidePolicy.INCLUDE:
            yield f"{which} have no time and {to}"
            return
        yield f"{which} lie outside the time of their partition and {to}"
        rows = {one.partition_key: one.rows for one in self.batch.partitions}
        whole = [one.key for one in some if one.rows * 100 >= rows[one.key] * 99][:_MOST_ASKED]
        shifts = self.calculator.find_shifts(self.workspace, _only(self.batch, whole)) if whole else {}
        shifted = {key: quarters for key, quarters in shifts.items() if quarters}
        if shifted:
            each = [frozenset(quarters) for quarters in shifted.values()]
            common = frozenset.intersection(*each) or each[0]
            nearest = min(common, key=lambda number: (abs(number), number))
            by = format_duration(abs(nearest) * timedelta(minutes=15))
            zone = self.batch.watermark.partition_time.zone.name
            yield (
                f"all but 1 % of the rows of {self.batch.source.qualified_name} ({self._show(list(shifted))}) lie "
                f"{by} {'after' if nearest > 0 else 'before'} their partition: is '{ZONE}'='{zone}' right?"
            )

    def _drop_stale(self) -> None:
        """Drop late rows of before a reset of the program: the windows of their partitions are computed again."""
        if not self._has_rows:
            return
        keys, source = list(self.batch.instants), self.batch.source.dataset_id
        counted = set(self.workspace.ask(lambda db, _: list_late_counted(db, self.state.program_id, source, keys)))
        self._drop(SideReason.LATE, [key for key in keys if key not in counted])

    def _drop(self, reason: SideReason, keys: Sequence[KeyText]) -> None:
        """Drop the rows that the side table has of these partitions for this reason."""
        if not keys or not self._has_rows:
            return
        fileset = self.workspace.outputs.fileset(self.side)
        held = [to_side_key(self._keys, reason, key) for key in keys]
        for one in self.workspace.ask(lambda db, tx: read_keys(db, fileset, tx, held)):
            values = fileset.keys.decode(one.partition_key)
            self.workspace.output(self.side).drop(dict(zip(fileset.keys.names, values, strict=True)))

    @property
    def _has_rows(self) -> bool:
        """Return whether the side table has ever had rows: most have none."""
        return self.workspace.columns_of(self.workspace.outputs.fileset(self.side)) is not None

    @property
    def _keys(self) -> KeySchema:
        return self.batch.source.keys

    def _name(self, keys: Sequence[KeyText], rows: int, what: str) -> str:
        return f"{rows} {what} of {self.batch.source.qualified_name} ({self._show(keys)})"

    def _show(self, keys: Sequence[KeyText]) -> str:
        return name_some([self.batch.source.show(key) for key in keys])


def name_some(names: Sequence[str]) -> str:
    """Return the first of `names` for people."""
    return ", ".join(names[:_MOST_NAMED]) + (" …" if len(names) > _MOST_NAMED else "")


def _only(batch: Batch, keys: Iterable[KeyText]) -> Batch:
    """Return the batch with these partitions alone."""
    wanted = set(keys)
    return replace(
        batch,
        partitions=tuple(one for one in batch.partitions if one.partition_key in wanted),
        instants={key: span for key, span in batch.instants.items() if key in wanted},
    )
