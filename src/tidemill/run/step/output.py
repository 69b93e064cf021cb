"""`Output`: what a program writes to one of its data sets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

from tidemill.frames.checks import Check
from tidemill.lake.fileset.fileset import WriteOp
from tidemill.lake.fileset.metadata import MetadataChange
from tidemill.lake.snapshot.guards import parse_allowed
from tidemill.run.records.declared import Declared, qualified_name
from tidemill.run.step.outputs import Dropped, Outputs
from tidemill.shapes.filters import Where

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Output:
    """A file set or snapshot that this run may publish to; all it writes becomes visible at once, with its commit."""

    def __init__(self, outputs: Outputs, name: str) -> None:
        self._outputs = outputs
        self._name = name

    def append(
        self,
        rows: DataFrame,
        *,
        metadata: Mapping[str, str] | None = None,
        expect: Sequence[Check] = (),
        quarantine: Declared | str | None = None,
    ) -> None:
        """Add `rows` to their partitions. Missing partitions are created. `metadata` joins the partitions' metadata.

        `expect` are checks that the rows have to pass before any row is published: `NotNull("id")`, `Unique("id")`,
        `Rows(min=1)`, `Expect("amount >= 0", otherwise="warn")`. Rows that fail a check with `otherwise="quarantine"`
        are appended to the file set `quarantine`, also an output, with a column `failed_checks`. The results of the
        checks are in the run's facts and in the partitions' metadata.
        """
        self._write(WriteOp.APPEND, rows, metadata, expect, quarantine)

    def overwrite(
        self,
        rows: DataFrame,
        *,
        metadata: Mapping[str, str] | None = None,
        expect: Sequence[Check] = (),
        quarantine: Declared | str | None = None,
    ) -> None:
        """Replace the partitions that `rows` have rows of, with their metadata; checks as for `append`."""
        self._write(WriteOp.OVERWRITE, rows, metadata, expect, quarantine)

    def create(
        self,
        rows: DataFrame,
        *,
        metadata: Mapping[str, str] | None = None,
        expect: Sequence[Check] = (),
        quarantine: Declared | str | None = None,
    ) -> None:
        """Make the partitions of `rows`; one that exists already fails the whole run. Checks as for `append`."""
        self._write(WriteOp.CREATE, rows, metadata, expect, quarantine)

    def create_empty(self, key: Mapping[str, object]) -> None:
        """Make the partition `key` without rows (`{"day": date(2026, 1, 1), "hour": 10}`), as an hour without events.

        It counts like any other: for the watermark, for triggers and for consumers. One that exists already fails the
        whole run, as for `create`.
        """
        self._outputs.create_empty(self._name, key)

    def _write(
        self,
        op: WriteOp,
        rows: DataFrame,
        metadata: Mapping[str, str] | None,
        expect: Sequence[Check],
        quarantine: Declared | str | None,
    ) -> None:
        aside = None if quarantine is None else qualified_name(quarantine)
        self._outputs.write(self._name, op, rows, metadata=metadata, expect=expect, quarantine=aside)

    def drop(self, where: Where) -> list[Dropped]:
        """Drop the partitions that `where` accepts (`{"day": date(2026, 1, 1)}`); what they were.

        Consumers that have not taken them yet never get them. Their files are kept for a while: see `keep_superseded`.
        """
        return self._outputs.drop(self._name, where)

    def describe(
        self,
        key: Mapping[str, object],
        *,
        add: Mapping[str, str] | None = None,
        set: Mapping[str, str] | None = None,  # noqa: A002  # the word for it
        remove: Collection[str] = (),
    ) -> None:
        """Change the metadata of the partition `key`: `add` what must not be there yet, `set`, and `remove` names.

        Another transaction that changed the same name meanwhile fails the commit of the later.
        """
        self._outputs.describe(self._name, key, MetadataChange(add or {}, set or {}, remove))

    def replace(self, rows: DataFrame, *, allow: Sequence[str] = ()) -> None:
        """Refresh a snapshot: `rows` become its next version. `RefreshRefused` when its guards do not let them pass.

        `allow` names guards that are to let them pass (`["drop"]`), as the argument of that name does for a run.
        """
        self._outputs.replace(self._name, rows, parse_allowed(",".join(allow)))
