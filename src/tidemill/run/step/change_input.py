"""`ChangesInput`: what has changed in a snapshot since the last run of a program that committed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction
from tidemill.lake.claims import ClaimTable
from tidemill.lake.consumer.managed import Consumer, Lag
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.snapshot.changes import FeedChange, MoveFeed, find_changes, measure_feed
from tidemill.lake.snapshot.snapshot import PinVersions, RecordVersions, SnapshotDataset
from tidemill.names import PinId
from tidemill.run.records.programs import Program
from tidemill.run.records.runs import RunRecord
from tidemill.run.step.input_kind import ConsumerKind, Leaving, TakenInput
from tidemill.run.step.workspace import Workspace
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class ChangesInput:
    """Changes of a snapshot since the last committed run of this program. No other run of the program gets them."""

    def __init__(self, run: Workspace, changed: FeedChange) -> None:
        self._run = run
        self._changed = changed

    @property
    def since(self) -> int | None:
        """The version that this program has seen; None at the first time, when all rows are inserted."""
        return None if self._changed.old is None else self._changed.old.version

    @property
    def version(self) -> int | None:
        """The version that was current at the begin of this attempt; None before the first."""
        return None if self._changed.new is None else self._changed.new.version

    def read(self) -> DataFrame:
        """The rows that differ, as `Run.diff` has them: `change`, the key, `before` and `after`."""
        return self._run.versions.diff_changed(self._run.spark, self._changed)


class TakenChanges(TakenInput):
    """The changes that an attempt sees; the commit consumes them."""

    def __init__(self, changed: FeedChange) -> None:
        self.changed = changed

    @property
    def empty(self) -> bool:
        """True if nothing has changed."""
        return self.changed.empty

    def open(self, run: Workspace) -> ChangesInput:
        """Return what the program sees."""
        return ChangesInput(run, self.changed)

    def count(self) -> dict[str, object]:
        """Return from which version to which."""
        old, new = (None if one is None else one.version for one in (self.changed.old, self.changed.new))
        count = int(not self.empty)
        return {"kind": "changes", "count": count, "of": "new version", "rows": None, "since": old, "version": new}


@dataclass(eq=False)
class ChangeInputs(ConsumerKind):
    """The snapshots of which a program gets what changed, each by a feed, which is a consumer."""

    source_kind = DatasetKind.SNAPSHOT

    sources: Mapping[str, tuple[SnapshotDataset, Consumer]]
    taken: Mapping[str, TakenChanges] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, db: Db, program: Program, datasets: Mapping[str, Dataset], consumers: Mapping[str, Consumer]
    ) -> ChangeInputs:
        """Find the feeds of the program."""
        del db, program
        sources = {
            name: (SnapshotDataset.of(dataset), consumers[name])
            for name, dataset in datasets.items()
            if dataset.kind is cls.source_kind and name in consumers
        }
        return cls(sources)

    @classmethod
    def find_fault(cls, dataset: Dataset, program: Program) -> str | None:
        """Refuse another data set than a snapshot, workers, and a snapshot without a key."""
        reads = f"reads the changes of {dataset.qualified_name}"
        if dataset.kind is not cls.source_kind:
            return f"{reads}: that is a data set of kind {dataset.kind}, no snapshot"
        if program.kind.is_worker:
            start = f"start it by Refreshed({dataset.name!r})"
            return f"{reads}, which a worker does not get: make it a program, and {start}"
        if not SnapshotDataset.of(dataset).spec.key:
            return f"{reads}: it has no key that identifies its rows: declare it with key=[…]"
        return None

    @classmethod
    def measure(cls, db: Db, consumer: Consumer) -> Lag:
        """Measure the version that the feed has not reached."""
        return measure_feed(db, consumer)

    def begin(self, record: RunRecord, world: World) -> Sequence[Effect]:
        """Pin what is current."""
        pins = [(PinId(world.new_id("pin")), snapshot.dataset_id) for snapshot, _ in self.sources.values()]
        return (PinVersions(record.run_id, pins),)

    def take(self, catalog: Catalog, tx: Transaction, beside: Sequence[ClaimTable]) -> None:
        """Find the changes; `BaseGone`. Nothing is claimed: the first run that commits has them."""
        del beside
        self.taken = {
            name: TakenChanges(catalog.read(partial(find_changes, snapshot=snapshot, consumer=feed, tx=tx)))
            for name, (snapshot, feed) in self.sources.items()
        }

    def complete(self, tx: Transaction) -> Sequence[Effect]:
        """Move the feeds, and record the versions as inputs of the run."""
        changes = [taken.changed for taken in self.taken.values() if not taken.empty]
        read = [
            (changed.snapshot.dataset_id, version.version)
            for changed in changes
            for version in (changed.old, changed.new)
            if version
        ]
        return [*(MoveFeed(tx, changed.consumer) for changed in changes), RecordVersions(tx.run_id, read)]

    def announce(self) -> Sequence[Effect]:
        """Announce nothing: the commit has moved the feeds, and a later version has a message of its own."""
        return ()

    def leave(self, leaving: Leaving) -> Sequence[Effect]:
        """Announce the changes, if a job was launched for them: nothing was claimed, so the next run may have them."""
        if not leaving.launched:
            return ()
        rest = self.publish(self.ids) if leaving.killed else self.postpone(self.ids, leaving.wait)
        return [*self.note_unseen(self.ids), *rest]
