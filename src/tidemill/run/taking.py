"""What one transaction of a run works on: taken at its begin, chosen from by the program, closed by its commit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from tidemill.catalog.db import Catalog, Effect
from tidemill.catalog.transactions import Transaction, begin
from tidemill.lake.consumer.claims import CompleteClaims, SkipOwn
from tidemill.lake.consumer.discards import TellDiscards
from tidemill.lake.consumer.take import give_back, take_claims
from tidemill.lake.fileset.fileset import Fileset, Unpin
from tidemill.lake.inbox.file_checks import FileOutcome, sort_out, succeeded
from tidemill.lake.inbox.file_claims import ClaimedFile, claim_files
from tidemill.lake.inbox.file_endings import CloseFiles
from tidemill.lake.snapshot.changes import MoveFeed, find_changes
from tidemill.lake.snapshot.refresh_order import OrderRefreshes
from tidemill.lake.snapshot.snapshot import PinVersions, RecordVersions, Version, find_current
from tidemill.names import PinId
from tidemill.run.acceptors import choose
from tidemill.run.attempts import AttachTransaction
from tidemill.run.context import Taken, TakenPartitions
from tidemill.run.file_input import TakenFiles
from tidemill.run.inputs import Inputs, take_over_claims
from tidemill.run.outputs import Outputs
from tidemill.run.programs import Code, Program
from tidemill.run.runs import RunRecord


@dataclass(frozen=True, slots=True)
class Claims:
    """What an attempt has taken: `given` goes to the program, `refused` are files that it does not get."""

    given: Taken
    refused: Sequence[FileOutcome]

    @property
    def files(self) -> list[ClaimedFile]:
        """The files that the attempt still works on."""
        return [file for taken in self.given.files.values() for file in taken.files]

    @property
    def outcomes(self) -> list[FileOutcome]:
        """Of the files that the program does not get, and of those that reading has found bad."""
        return [*self.refused, *(outcome for taken in self.given.files.values() for outcome in taken.outcomes)]

    def counted(self) -> list[dict[str, object]]:
        """How much of each input, for people."""
        counted: list[dict[str, object]] = []
        for name, taken in self.given.partitions.items():
            rows = sum(change.manifest.total_rows for delivery in taken.deliveries for change in delivery.changes)
            counted.append({"dataset": name, "kind": "fileset", "count": len(taken.deliveries), "rows": rows})
        for name, taken_files in self.given.files.items():
            counted.append({"dataset": name, "kind": "inbox", "count": len(taken_files.files), "rows": None})
        for name, (_, version) in self.given.versions.items():
            rows = version.manifest.total_rows
            counted.append({"dataset": name, "kind": "snapshot", "count": 1, "rows": rows, "version": version.version})
        for name, changed in self.given.changes.items():
            versions = {"since": _number(changed.old), "version": _number(changed.new)}
            count = int(not changed.empty)
            counted.append({"dataset": name, "kind": "changes", "count": count, "rows": None, **versions})
        return counted


def begin_taking(catalog: Catalog, run: RunRecord, inputs: Inputs, outputs: Mapping[str, Fileset]) -> Transaction:
    """Begin a transaction of an attempt: it pins what it reads as a whole, and claims of earlier attempts follow it."""
    pinned = [*inputs.snapshots.values(), *(snapshot for snapshot, _ in inputs.feeds.values())]
    pins = [(PinId(catalog.world.new_id("pin")), snapshot.dataset_id) for snapshot in pinned]
    return begin(
        catalog,
        run_id=run.run_id,
        epoch=run.epoch,
        writes=[fileset.dataset_id for fileset in outputs.values()],
        effects=[
            AttachTransaction(run.run_id, run.epoch),
            OrderRefreshes(outputs.values(), run.logical_time, run.first_write_pointer),
            PinVersions(run.run_id, pins),
            *take_over_claims(run.run_id, run.epoch),
        ],
    )


def claim(catalog: Catalog, tx: Transaction, program: Program, inputs: Inputs) -> Claims:
    """Take of all inputs what they have to give; what an earlier attempt holds still, if it holds anything."""
    # First: who has nothing to read of a snapshot must take nothing, or its claims would count the failures.
    versions = {
        name: (snapshot, catalog.read(partial(find_current, snapshot=snapshot, seen=tx)))
        for name, snapshot in inputs.snapshots.items()
    }
    changes = {
        name: catalog.read(partial(find_changes, snapshot=snapshot, consumer=feed, tx=tx))
        for name, (snapshot, feed) in inputs.feeds.items()
    }
    consumers = {consumer.consumer_id: consumer.terms for _, consumer in inputs.filesets.values()}
    delivered = take_claims(catalog, tx, consumers) if consumers else {}
    partitions = {
        name: TakenPartitions(fileset, consumer.consumer_id, delivered[consumer.consumer_id], program.backoff)
        for name, (fileset, consumer) in inputs.filesets.items()
    }
    inboxes = inputs.inboxes.values()
    claimed = claim_files(catalog, tx, inboxes) if inboxes else []
    good, others = sort_out(catalog.world, inboxes, claimed)
    files = {
        name: TakenFiles(inbox, [file for file in good if file.dataset_id == inbox.dataset_id])
        for name, inbox in inputs.inboxes.items()
    }
    return Claims(Taken(partitions, files, versions, changes), others)


def accept(catalog: Catalog, tx: Transaction, claims: Claims, acceptors: Mapping[str, Code]) -> None:
    """Ask the acceptors, which are user code, and put back what they do not want; `claims` has the rest then.

    What stands behind a stop goes to the next run at once, if this one works on anything; else it would begin with the
    same, and so on: then it waits, as what was skipped does.
    """
    for name, acceptor in acceptors.items():
        taken = claims.given.partitions[name]
        chosen = choose(taken.fileset, taken.deliveries, acceptor)
        taken.deliveries = chosen.accepted
        left_wait = None if chosen.accepted else taken.wait
        give_back(catalog, tx, taken.consumer_id, [one.partition_key for one in chosen.skipped], taken.wait)
        give_back(catalog, tx, taken.consumer_id, [one.partition_key for one in chosen.left], left_wait)


def effects_of(program: Program, inputs: Inputs, claims: Claims, written: Outputs) -> list[Effect]:
    """What the commit does to outputs and claims. Raises what a look at the written files finds wrong."""
    tx = written.tx
    effects: list[Effect] = [*written.prepare(), CompleteClaims(tx.run_id, tx.epoch), Unpin(tx.run_id)]
    effects += [
        TellDiscards(tx.run_id, consumer, told)
        for name, (_, consumer) in inputs.filesets.items()
        if (told := claims.given.partitions[name].discards)
    ]
    changes = [changed for changed in claims.given.changes.values() if not changed.empty]
    effects += [MoveFeed(tx, changed.consumer) for changed in changes]
    read = [(snapshot.dataset_id, version.version) for snapshot, version in claims.given.versions.values()]
    read += [(changed.snapshot.dataset_id, changed.new.version) for changed in changes if changed.new]
    effects.append(RecordVersions(tx.run_id, read))
    if inputs.inboxes:
        outcomes = (*claims.outcomes, *map(succeeded, claims.files))
        effects.append(CloseFiles(tx.run_id, tx.epoch, outcomes))
    if not program.deliver_own:
        own = [consumer for name, (_, consumer) in inputs.filesets.items() if name in program.writes]
        effects += [SkipOwn(tx, consumer.dataset_id, consumer.name) for consumer in own]
    return effects


def _number(version: Version | None) -> int | None:
    return None if version is None else version.version
