"""Inputs whose claims belong to the workflow of a run: one node takes them, later nodes get the same."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction, lock_open
from tidemill.lake.chosen import InputItem, RecordInput
from tidemill.lake.claims import Blamed, Complete
from tidemill.lake.consumer.claims import PARTITIONS, ReturnOfConsumers
from tidemill.lake.consumer.take import read_deliveries, take_within
from tidemill.lake.inbox.file_checks import FileOutcome, FileRewritten, returned, sort_out, succeeded
from tidemill.lake.inbox.file_claims import claim_waiting, read_claims, worst_beside
from tidemill.lake.inbox.file_endings import CloseFiles, NoteContents
from tidemill.names import RunId, WritePointer
from tidemill.run.records.workflows import Holding, hold_claims, lock_workflow
from tidemill.run.step.file_input import FileInputs, TakenFiles
from tidemill.run.step.partition_input import PartitionInputs, TakenPartitions
from tidemill.run.step.workspace import Workspace
from tidemill.world import World

Taken: TypeAlias = TakenPartitions | TakenFiles


@dataclass(eq=False)
class HeldInputs:
    """The part of what a workflow holds that one of its nodes reads.

    `shared` says that another node may have worked on the same claims. Then the node refuses none of them. `unread`
    says that a node before it has read them, and that this node publishes nothing: then only a read of the files looks
    at their contents.
    """

    workflow: RunId
    epoch: int
    whole: tuple[PartitionInputs, FileInputs]
    """All that the workflow holds."""
    partitions: PartitionInputs
    files: FileInputs
    shared: bool
    unread: bool

    @property
    def taken(self) -> Mapping[str, Taken]:
        """The parts that the attempt has taken, by the qualified name of their data sets."""
        return {**self.partitions.taken, **self.files.taken}

    def take(self, catalog: Catalog, tx: Transaction) -> None:
        """Take of all that the workflow holds, unless a node has done so; then read what the workflow has.

        All is taken in one transaction under the lock of the workflow, so that two nodes that take at once get the
        same.
        """
        tx = replace(tx, claimant=(self.workflow, self.epoch))
        partitions, files = self.whole
        consumers = {consumer.consumer_id: consumer.terms for _, consumer in partitions.sources.values()}
        inboxes = sorted(files.sources.values(), key=lambda inbox: inbox.dataset_id)

        def take(db: Db) -> bool:
            lock_open(db, tx)
            if lock_workflow(db, self.workflow) is not Holding.NOTHING:
                return True
            filled, _ = take_within(db, tx, sorted(consumers), consumers)
            if not filled:
                return False
            claim_waiting(db, self.workflow, self.epoch, inboxes, worst_beside(db, self.workflow, [PARTITIONS]))
            hold_claims(db, self.workflow)
            return True

        catalog.world.mark("held.before_take")
        while not catalog.write(take):
            pass
        catalog.world.mark("held.taken")
        self._read(catalog, tx)

    def _read(self, catalog: Catalog, tx: Transaction) -> None:
        sources = self.partitions.sources
        terms = {consumer.consumer_id: consumer.terms for _, consumer in sources.values()}
        deliveries, claimed = catalog.read(
            lambda db: (read_deliveries(db, self.workflow, terms), read_claims(db, self.workflow))
        )
        self.partitions.taken = {
            name: TakenPartitions(
                fileset,
                consumer.consumer_id,
                deliveries[consumer.consumer_id],
                self.partitions.backoff,
                tx=tx,
                shared=self.shared,
            )
            for name, (fileset, consumer) in sources.items()
        }
        inboxes = self.files.sources
        ids = {inbox.dataset_id for inbox in inboxes.values()}
        files = [file for file in claimed if file.dataset_id in ids]
        good, others = (files, []) if self.unread else sort_out(catalog.world, inboxes.values(), files)
        if others and self.shared:
            raise FileRewritten(others[0].name, others[0].error or "is not as another node has read it")
        self.files.taken = {
            name: TakenFiles(
                inbox,
                [file for file in good if file.dataset_id == inbox.dataset_id],
                [outcome for outcome in others if outcome.dataset_id == inbox.dataset_id],
                shared=self.shared,
                unread=self.unread,
            )
            for name, inbox in inboxes.items()
        }

    def verify(self, world: World) -> None:
        """Raise if what was read is not what was claimed."""
        self.files.verify(world)

    def blame(self, run: Workspace, error: str, reason: str) -> Sequence[Blamed]:
        """Find the files that a failure is about; none if another node may have worked on the same files."""
        return () if self.shared else self.files.blame(run, error, reason)

    def record(self, run_id: RunId) -> list[Effect]:
        """Return what records the claims of the workflow as input of the run of the node, which has read them."""
        items = [
            InputItem(taken.fileset.dataset_id, change.write_pointer, delivery.partition_key)
            for taken in self.partitions.taken.values()
            for delivery in taken.deliveries
            for change in delivery.changes
        ]
        items += [
            InputItem(file.dataset_id, WritePointer(0), file.name, file.content_version)
            for taken in self.files.taken.values()
            for file in taken.files
        ]
        return [RecordInput(run_id, items)] if items else []

    def report(self, run_id: RunId) -> list[Effect]:
        """Return what records that the run of the node has reported discarded partitions."""
        return self.partitions.report(run_id)

    @property
    def refused(self) -> tuple[FileOutcome, ...]:
        """The files that the node has refused, with the reasons."""
        return tuple(outcome for one in self.files.taken.values() for outcome in one.outcomes)

    def keep(self) -> list[Effect]:
        """Return what the commit of the node does to its files if later nodes read them too.

        Files that the node has refused leave the workflow. Of the others the commit records what the node was given.
        """
        taken = self.files.taken.values()
        given = tuple(file for one in taken for file in one.files if not one.unread)
        return [
            *([CloseFiles(self.workflow, self.epoch, self.refused, some=True)] if self.refused else []),
            *([NoteContents(self.workflow, self.epoch, given)] if given else []),
        ]

    def outcomes(self) -> dict[tuple[str, str, str], FileOutcome]:
        """Return how each file that the node has read ends, by its key."""
        closed = [outcome for taken in self.files.taken.values() for outcome in taken.close()]
        return {(one.dataset_id, one.name, one.content_version): one for one in closed}


def close_held(db: Db, workflow: RunId, epoch: int, held: HeldInputs | None, read: Collection[str]) -> list[Effect]:
    """Return what ends all claims of a workflow, in the commit after which no node reads them.

    Claims of the data sets `read` are completed, and the others returned. `held` is what the node of the commit reads,
    if it reads any. Files that the node has not read are as they were claimed.
    """
    known = {} if held is None else held.outcomes()
    partitions, files = PartitionInputs.held_by(db, workflow), FileInputs.held_by(db, workflow)
    filesets = {} if partitions is None else partitions.sources
    unread = sorted(consumer.consumer_id for name, (_, consumer) in filesets.items() if name not in read)
    inboxes = {} if files is None else files.sources
    seen = {inbox.dataset_id for name, inbox in inboxes.items() if name in read}
    outcomes = [
        known.get((one.dataset_id, one.name, one.content_version))
        or (succeeded(one) if one.dataset_id in seen else returned(one))
        for one in read_claims(db, workflow)
    ]
    return [
        *([ReturnOfConsumers(workflow, epoch, unread)] if unread else []),
        Complete(PARTITIONS, workflow, epoch),
        CloseFiles(workflow, epoch, tuple(outcomes)),
    ]
