"""One transaction of an attempt, from its begin to its commit: begin, take, write, verify, commit.

Drivers, workers and transactions of callers outside go through the same steps. Until the commit all of them is
invisible, so that a process may be killed between any two of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from tidemill.catalog.db import Catalog
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction, begin, commit
from tidemill.lake.consumer.claims import CompleteClaims, SkipOwn
from tidemill.lake.consumer.discards import TellDiscards
from tidemill.lake.consumer.take import give_back, take_claims
from tidemill.lake.fileset.fileset import Fileset, Unpin
from tidemill.lake.inbox.file_checks import sort_out, verify_claims
from tidemill.lake.inbox.file_claims import claim_files
from tidemill.lake.inbox.file_endings import CloseFiles
from tidemill.lake.snapshot.changes import Changed, MoveFeed, find_changes
from tidemill.lake.snapshot.guards import Guard
from tidemill.lake.snapshot.refresh_order import OrderRefreshes
from tidemill.lake.snapshot.snapshot import PinVersions, RecordVersions, SnapshotDataset, Version, find_current
from tidemill.lake.window.partition_time import Instant
from tidemill.names import DatasetId, PinId
from tidemill.run.acceptors import choose
from tidemill.run.attempts import AttachTransaction
from tidemill.run.file_input import TakenFiles
from tidemill.run.inputs import Inputs, take_over_claims
from tidemill.run.outputs import Outputs, Writer
from tidemill.run.partition_input import TakenPartitions
from tidemill.run.programs import Code, Program
from tidemill.run.reads import Reads
from tidemill.run.runs import RunRecord


@dataclass(frozen=True, slots=True)
class Taken:
    """What an attempt has claimed or pinned, by the qualified name of its data set."""

    partitions: Mapping[str, TakenPartitions] = field(default_factory=dict)
    files: Mapping[str, TakenFiles] = field(default_factory=dict)
    versions: Mapping[str, tuple[SnapshotDataset, Version]] = field(default_factory=dict)
    """Pinned, not claimed: there is always one, which says nothing about work."""
    changes: Mapping[str, Changed] = field(default_factory=dict)
    """Of snapshots; consumed with the commit."""

    @property
    def empty(self) -> bool:
        """Whether there are inputs, and nothing in any of them."""
        partitions = [taken.deliveries for taken in self.partitions.values()]
        files = [taken.files for taken in self.files.values()]
        changes = [not changed.empty for changed in self.changes.values()]
        return bool(partitions or files or changes) and not (any(partitions) or any(files) or any(changes))

    def count(self) -> list[dict[str, object]]:
        """Return how much of each input it is, for people."""
        counted: list[dict[str, object]] = []
        for name, taken in self.partitions.items():
            rows = sum(change.manifest.total_rows for delivery in taken.deliveries for change in delivery.changes)
            counted.append({"dataset": name, "kind": "fileset", "count": len(taken.deliveries), "rows": rows})
        for name, taken_files in self.files.items():
            counted.append({"dataset": name, "kind": "inbox", "count": len(taken_files.files), "rows": None})
        for name, (_, version) in self.versions.items():
            rows = version.manifest.total_rows
            counted.append({"dataset": name, "kind": "snapshot", "count": 1, "rows": rows, "version": version.version})
        for name, changed in self.changes.items():
            versions = {"since": _number(changed.old), "version": _number(changed.new)}
            count = int(not changed.empty)
            counted.append({"dataset": name, "kind": "changes", "count": count, "rows": None, **versions})
        return counted


_NOTHING: Final = Inputs()


@dataclass(slots=True)
class Step:
    """An open transaction of an attempt; `who` (driver, worker, external) names the marks of its begin and commit.

    `effects` are what the commit does beside publishing and closing claims.
    """

    who: str
    catalog: Catalog
    record: RunRecord
    tx: Transaction
    outputs: Outputs
    inputs: Inputs = _NOTHING
    taken: Taken = field(default_factory=Taken)
    effects: list[Effect] = field(default_factory=list)
    reads: Reads = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing read."""
        self.reads = Reads(self.catalog.world)

    @classmethod
    def begin(
        cls,
        who: str,
        catalog: Catalog,
        record: RunRecord,
        outputs: Mapping[str, Fileset],
        writer: Writer,
        *,
        inputs: Inputs = _NOTHING,
        allowed: Collection[Guard] = (),
        spans: Mapping[DatasetId, tuple[Instant, Instant]] | None = None,
    ) -> Step:
        """Begin a transaction: it pins what it reads as a whole, and claims of earlier attempts follow it.

        `outputs` are what it may publish to, by qualified name; `allowed` and `spans` as for `Outputs`.
        """
        pinned = [*inputs.snapshots.values(), *(snapshot for snapshot, _ in inputs.feeds.values())]
        pins = [(PinId(catalog.world.new_id("pin")), snapshot.dataset_id) for snapshot in pinned]
        effects: list[Effect] = [
            AttachTransaction(record.run_id, record.epoch),
            OrderRefreshes(outputs.values(), record.logical_time, record.first_write_pointer),
        ]
        if inputs.program is not None:
            effects += [PinVersions(record.run_id, pins), *take_over_claims(record.run_id, record.epoch)]
        tx = begin(
            catalog,
            run_id=record.run_id,
            epoch=record.epoch,
            writes=[fileset.dataset_id for fileset in outputs.values()],
            spans=spans or {},
            effects=effects,
        )
        catalog.world.mark(f"{who}.begun")
        written = Outputs(catalog, tx, outputs, writer, allowed, spans)
        return cls(who, catalog, record, tx, written, inputs)

    def take(self) -> None:
        """Take of all inputs what they have to give; what an earlier attempt holds still, if it holds anything."""
        catalog, tx, inputs = self.catalog, self.tx, self.inputs
        assert inputs.program is not None, "what takes is a run of a program"  # noqa: S101
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
        wait = inputs.program.backoff
        partitions = {
            name: TakenPartitions(fileset, consumer.consumer_id, delivered[consumer.consumer_id], wait)
            for name, (fileset, consumer) in inputs.filesets.items()
        }
        claimed = claim_files(catalog, tx, inputs.inboxes.values()) if inputs.inboxes else []
        good, others = sort_out(catalog.world, inputs.inboxes.values(), claimed)
        files = {
            name: TakenFiles(
                inbox,
                [file for file in good if file.dataset_id == inbox.dataset_id],
                [outcome for outcome in others if outcome.dataset_id == inbox.dataset_id],
            )
            for name, inbox in inputs.inboxes.items()
        }
        self.taken = Taken(partitions, files, versions, changes)

    def accept(self, acceptors: Mapping[str, Code]) -> None:
        """Ask the acceptors, which are user code, and return what they do not want; `taken` has the rest then.

        What stands behind a stop goes to the next run at once, if this one works on anything; else it would begin with
        the same, and so on: then it waits, as what was skipped does.
        """
        for name, acceptor in acceptors.items():
            taken = self.taken.partitions[name]
            chosen = choose(taken.fileset, taken.deliveries, acceptor)
            taken.deliveries = chosen.accepted
            for kept_off, wait in (
                (chosen.skipped, taken.wait),
                (chosen.left, None if chosen.accepted else taken.wait),
            ):
                keys = [one.partition_key for one in kept_off]
                give_back(self.catalog, self.tx, taken.consumer_id, keys, wait)

    def prepare(self) -> list[Effect]:
        """Return what the commit does to outputs and claims. Raises what a look at the files finds wrong.

        The files that were read are compared with what was claimed or published, after the program has read them.
        """
        files = [file for taken in self.taken.files.values() for file in taken.files]
        verify_claims(self.catalog.world, self.inputs.inboxes.values(), files)
        self.reads.verify()
        prepared = self.outputs.prepare()
        program = self.inputs.program
        return [*prepared, *([] if program is None else self._close(program)), Unpin(self.tx.run_id)]

    def _close(self, program: Program) -> list[Effect]:
        """Return what becomes of what was taken."""
        tx, inputs, taken = self.tx, self.inputs, self.taken
        effects: list[Effect] = [CompleteClaims(tx.run_id, tx.epoch)]
        effects += [
            TellDiscards(tx.run_id, consumer, told)
            for name, (_, consumer) in inputs.filesets.items()
            if (told := taken.partitions[name].discards)
        ]
        changes = [changed for changed in taken.changes.values() if not changed.empty]
        effects += [MoveFeed(tx, changed.consumer) for changed in changes]
        read = [(snapshot.dataset_id, version.version) for snapshot, version in taken.versions.values()]
        read += [(changed.snapshot.dataset_id, changed.new.version) for changed in changes if changed.new]
        effects.append(RecordVersions(tx.run_id, read))
        if inputs.inboxes:
            outcomes = [outcome for files in taken.files.values() for outcome in files.close()]
            effects.append(CloseFiles(tx.run_id, tx.epoch, tuple(outcomes)))
        if not program.deliver_own:
            own = [consumer for name, (_, consumer) in inputs.filesets.items() if name in program.writes]
            effects += [SkipOwn(tx, consumer.dataset_id, consumer.name) for consumer in own]
        return effects

    def commit(self, prepared: Sequence[Effect], end: Sequence[Effect]) -> None:
        """Commit what was `prepared`, `effects` and the `end` of the attempt, and announce what is left of the inputs.

        The marker beside the files is written after it, and by a janitor if this process dies before.
        """
        self.catalog.world.mark(f"{self.who}.before_commit")
        seq = commit(self.catalog, self.tx, [*prepared, *self.effects, *end, *self.inputs.announce_rest()])
        self.catalog.world.mark(f"{self.who}.committed")
        self.outputs.mark(seq)


def _number(version: Version | None) -> int | None:
    return None if version is None else version.version
