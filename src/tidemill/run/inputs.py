"""What a program reads, and what becomes of a run's claims at each end of an attempt."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect
from tidemill.lake.consumer.backlog import NoteUnread, PublishBacklog, PutOffBacklog
from tidemill.lake.consumer.claims import FailClaims, ReleaseClaims, RestampClaims
from tidemill.lake.consumer.managed import Consumer, find_consumer
from tidemill.lake.datasets import Dataset, DatasetKind, find, find_by_id
from tidemill.lake.fileset.fileset import Fileset, Unpin
from tidemill.lake.inbox.file_claims import RestampFiles, find_claimed_inboxes
from tidemill.lake.inbox.file_endings import (
    BlamedFile,
    FailFiles,
    PublishInboxBacklog,
    PutOffInboxBacklog,
    QuarantineAlone,
    ReleaseFiles,
)
from tidemill.lake.inbox.inbox import Inbox
from tidemill.lake.snapshot.changes import NoteUnseen, find_feed
from tidemill.lake.snapshot.snapshot import SnapshotDataset
from tidemill.lake.window.windows import PublishClosed
from tidemill.names import ConsumerId, DatasetId, RunId, ScheduleId, split_qualified
from tidemill.run.programs import Program
from tidemill.texts import printable


@dataclass(frozen=True, slots=True)
class Inputs:
    """The data sets that a program reads, by qualified name: file sets by its consumer, inboxes, pinned snapshots.

    `feeds` are the snapshots of which it gets what changed. `program` is None for a caller outside.
    """

    program: Program | None = None
    filesets: dict[str, tuple[Fileset, Consumer]] = field(default_factory=dict)
    inboxes: dict[str, Inbox] = field(default_factory=dict)
    snapshots: dict[str, SnapshotDataset] = field(default_factory=dict)
    feeds: dict[str, tuple[SnapshotDataset, Consumer]] = field(default_factory=dict)

    def announce_rest(self) -> list[Effect]:
        """Say what can be claimed still: the last effects of an end of a run."""
        return [PublishBacklog(self._consumers), PublishInboxBacklog(self._inbox_ids)]

    def announce_rest_later(self, wait: timedelta) -> list[Effect]:
        """Have the keeper say it, after a time that is never shorter than `wait`."""
        return [PutOffBacklog(self._consumers, wait), PutOffInboxBacklog(self._inbox_ids, wait)]

    def note_unread(self) -> list[Effect]:
        """Have the rest include what nobody has taken a look at; stands before the announcement."""
        return [NoteUnread(self._consumers)]

    def leave_changes(self, wait: timedelta | None) -> list[Effect]:
        """Say that what changed in snapshots is left to the next run: at once, or never sooner than after `wait`."""
        feeds = sorted(feed.consumer_id for _, feed in self.feeds.values())
        return [NoteUnseen(feeds), PublishBacklog(feeds) if wait is None else PutOffBacklog(feeds, wait)]

    @property
    def _consumers(self) -> list[ConsumerId]:
        return sorted(consumer.consumer_id for _, consumer in self.filesets.values())

    @property
    def _inbox_ids(self) -> tuple[DatasetId, ...]:
        return tuple(sorted(inbox.dataset_id for inbox in self.inboxes.values()))


def find_dataset(db: Db, name: str) -> Dataset:
    """The data set of that (qualified) name; `NotFound` with the nearest."""
    namespace, (short,) = split_qualified("data set", name, 1)
    return find(db, namespace, short)


def find_claimed(db: Db, run_id: RunId) -> Inputs | None:
    """The inboxes of which a run without a program holds files; None when it holds none."""
    held = [Inbox.of(find_by_id(db, dataset_id)) for dataset_id in find_claimed_inboxes(db, run_id)]
    return Inputs(inboxes={inbox.qualified_name: inbox for inbox in held}) if held else None


def find_inputs(db: Db, program: Program) -> Inputs:
    """What `program` reads, as it is deployed."""
    inputs = Inputs(program)
    for name in program.reads:
        dataset = find_dataset(db, name)
        if dataset.kind is DatasetKind.INBOX:
            inputs.inboxes[name] = Inbox.of(dataset)
        elif dataset.kind is DatasetKind.SNAPSHOT:
            feed = find_feed(db, dataset.dataset_id, program.qualified_name)
            if feed is None:
                inputs.snapshots[name] = SnapshotDataset.of(dataset)
            else:
                inputs.feeds[name] = (SnapshotDataset.of(dataset), feed)
        else:
            consumer = find_consumer(db, dataset.dataset_id, program.qualified_name)
            inputs.filesets[name] = (Fileset.of(dataset), consumer)
    return inputs


def announce_waiting(db: Db, programs: Iterable[Program], schedules: Sequence[ScheduleId]) -> None:
    """Announce the work that waits in all inputs of `programs` to `schedules`; call it after a tick.

    Work is what no take has seen, what a take may claim, what has changed in followed snapshots, and closed windows.
    Locks consumers. Cost: a few look-ups for each input.
    """
    programs = list(programs)
    inputs = [find_inputs(db, program) for program in programs]
    consumers = [consumer.consumer_id for one in inputs for _, consumer in one.filesets.values()]
    feeds = [feed.consumer_id for one in inputs for _, feed in one.feeds.values()]
    inboxes = {inbox.dataset_id for one in inputs for inbox in one.inboxes.values()}
    effects: list[Effect] = [
        NoteUnread(sorted(consumers)),
        NoteUnseen(sorted(feeds)),
        PublishBacklog(sorted([*consumers, *feeds]), schedules),
        PublishInboxBacklog(tuple(sorted(inboxes)), schedules),
        PublishClosed(sorted(program.program_id for program in programs), schedules),
    ]
    for effect in effects:
        for call in effect.writes():
            db.call(call)


def follows_changes(db: Db, program: Program, name: str) -> bool:
    """Whether `program` gets what changed in the data set of that (qualified) name, and not all of it."""
    dataset = find_dataset(db, name)
    is_snapshot = dataset.kind is DatasetKind.SNAPSHOT
    return is_snapshot and find_feed(db, dataset.dataset_id, program.qualified_name) is not None


def take_over_claims(run_id: RunId, epoch: int) -> list[Effect]:
    """The claims of earlier attempts follow the new one, in its begin."""
    return [RestampClaims(run_id, epoch), RestampFiles(run_id, epoch)]


@dataclass(frozen=True, slots=True)
class Blame:
    """What the claims of an attempt learn of its failure; `files` are those that could not be read."""

    error: str
    files: tuple[BlamedFile, ...] = ()

    def __post_init__(self) -> None:
        """Keep of the error what the catalog can: it comes from user code."""
        object.__setattr__(self, "error", printable(self.error))


def keep_claims(run_id: RunId, epoch: int, blame: Blame | None) -> list[Effect]:
    """The run goes on to another attempt: it keeps its claims, which count a failure if there was one."""
    effects: list[Effect] = [Unpin(run_id)]
    if blame is not None:
        effects += [
            FailClaims(run_id, epoch, blame.error),
            *_quarantine_alone(run_id, epoch, blame),
            FailFiles(run_id, epoch, blame.error, blame.files),
        ]
    return effects


def give_back_claims(run_id: RunId, epoch: int, blame: Blame | None, backoff: timedelta) -> list[Effect]:
    """The run has ended without success: others get what it held, at once, or after a failure at the back-off.

    What says so (`Inputs.announce_rest`, or later) comes after it.
    """
    failed = blame is not None
    return [
        Unpin(run_id),
        *_quarantine_alone(run_id, epoch, blame),
        ReleaseFiles(run_id, epoch, blame.error if blame else None, backoff, blame.files if blame else ()),
        ReleaseClaims(run_id, epoch, failed, blame.error if blame else "", backoff),
    ]


def _quarantine_alone(run_id: RunId, epoch: int, blame: Blame | None) -> list[Effect]:
    return [] if blame is None or blame.files else [QuarantineAlone(run_id, epoch, blame.error)]
