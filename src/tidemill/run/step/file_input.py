"""`FileInput`: the files of an inbox that a run works on, read strictly, with bad files and bad rows apart."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, ClassVar, Final, Self

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import Transaction
from tidemill.errors import UserError
from tidemill.lake.backlog import Backlog
from tidemill.lake.claims import Blamed, ClaimTable
from tidemill.lake.consumer.managed import Consumer
from tidemill.lake.datasets import Dataset, DatasetKind, find_by_id
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.inbox.file_checks import FileOutcome, sort_out, succeeded, verify_claims, went_wrong
from tidemill.lake.inbox.file_claims import (
    ClaimedFile,
    claim_files,
    find_blamed,
    find_claimed_inboxes,
)
from tidemill.lake.inbox.file_endings import (
    FILES,
    INBOXES,
    CloseFiles,
    blame_file,
)
from tidemill.lake.inbox.inbox import Inbox
from tidemill.names import RunId
from tidemill.run.records.declared import find_dataset
from tidemill.run.records.programs import Program
from tidemill.run.step.input_kind import InputKind, TakenInput
from tidemill.run.step.workspace import Workspace
from tidemill.shapes.formats import READING, BadRows, Unknown
from tidemill.storage.files import Files as Storage
from tidemill.storage.locations import path_for_readers
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tidemill.frames.bad_rows import BadFile, BadRow


class BadUnderSchema(UserError):
    """A file that another schema has read, and that has bad rows under this one."""

    code = "bad_under_schema"
    hint = "correct the file or the schema, and run again"

    def __init__(self, files: Storage, file: ClaimedFile, why: str) -> None:
        self.file = file.name
        self.why = why
        super().__init__(f"{READING}{path_for_readers(files.url, file.name)}.  {why}")


REJECT_COLUMNS: Final = "file STRING, line BIGINT, text STRING, reason STRING, run_id STRING, day DATE"
"""The columns of a file set of rejects; the last one is its key."""


class FileInput:
    """The files of an inbox that this run has claimed, and no other run."""

    def __init__(self, run: Workspace, taken: TakenFiles) -> None:
        self._run = run
        self._taken = taken

    @property
    def claimed(self) -> tuple[ClaimedFile, ...]:
        """The claims of the files, oldest first; without those that reading has found bad."""
        return tuple(self._taken.files)

    @property
    def files(self) -> list[str]:
        """Names of the files below the inbox's location, oldest first."""
        return [file.name for file in self.claimed]

    def read(self, schema: str | None = None) -> DataFrame:
        """Their rows, read strictly: what does not fit `schema` (else the declared one) fails the run and is blamed.

        Files that failed before are looked through first; bad ones go to ERROR with the commit, and their rows are not
        among these. An inbox with `bad_rows="reject"` has all its files looked through, which reads them twice: bad
        rows go to the file set of rejects, and a file with too many of them goes to ERROR.
        """
        from tidemill.frames.raw_rows import read_files

        run, taken = self._run, self._taken
        if taken.unread:
            verify_claims(run.world, [taken.inbox], taken.files)
            taken.unread = False
        inbox = taken.inbox if schema is None else taken.inbox.read_as(schema)
        if schema not in taken.reads:
            is_first = not taken.reads
            taken.reads[schema] = inbox
            self._add_columns(schema, inbox, is_first=is_first)
            looked_through = len(taken.files)
            self._look_through(taken.reads[schema], is_first=is_first)
            if len(taken.files) < looked_through:
                self._add_columns(schema, inbox, is_first=is_first)  # a bad file adds none
        inbox = taken.reads[schema]
        rejects = inbox.spec.format.bad_rows is BadRows.REJECT
        frame, counted = read_files(run.world, run.spark, inbox, taken.files, skip_bad=rejects)
        run.note_read(inbox.qualified_name, counted)
        return frame

    def _add_columns(self, schema: str | None, inbox: Inbox, *, is_first: bool) -> None:
        """Have fields that the schema does not name read as columns, under `unknown="evolve"`."""
        if inbox.spec.format.unknown is not Unknown.EVOLVE:
            return
        from tidemill.frames.added_columns import add_columns

        run, taken = self._run, self._taken
        added = add_columns(run.world, run.spark, inbox, taken.files)
        for file, why in added.refused.items():
            self._refuse(inbox, file, why, is_first=is_first)
        taken.added_by[schema] = added.types
        taken.reads[schema] = added.extend(inbox)

    def _refuse(self, inbox: Inbox, file: ClaimedFile, why: str, *, is_first: bool) -> None:
        """Have the commit close a bad file.

        After the first read, also by another node, and of chosen files, fail the attempt.
        """
        if not is_first or self._taken.shared or self._taken.is_chosen:
            raise BadUnderSchema(inbox.files(self._run.world), file, why)
        self._taken.refuse(file, why)

    def _look_through(self, inbox: Inbox, *, is_first: bool) -> None:
        """Refuse the files that are bad, and publish the bad rows of the others.

        After the first read the program has the rows of all files already: then a bad file fails the attempt.
        """
        raw = inbox.spec.format
        suspects = [file for file in self._taken.files if file.failures or raw.bad_rows is BadRows.REJECT]
        if not suspects:
            return
        some: list[ClaimedFile] = []
        for file, found in find_bad(self._run, inbox, suspects).items():
            if is_tolerated(inbox, found):
                some.append(file)
            else:
                self._refuse(inbox, file, found.why, is_first=is_first)
        if some:
            self._reject(inbox, some)

    def _reject(self, inbox: Inbox, files: list[ClaimedFile]) -> None:
        from tidemill.frames.bad_rows import list_bad_rows
        from tidemill.frames.raw_rows import RawFiles

        run = self._run
        bad = list_bad_rows(RawFiles.of(run.world, run.spark, inbox, files))
        # A row that is bad under two schemas is one reject.
        rows = list((Counter(_reject_rows(bad, run.id, run.world.clock.now())) - self._taken.rejects).elements())
        self._taken.rejects.update(rows)
        if not rows:
            return
        run.publish_rejects(inbox, run.spark.createDataFrame(rows, REJECT_COLUMNS).coalesce(1))


@dataclass(slots=True)
class TakenFiles(TakenInput):
    """The files of an inbox that a run still works on; `outcomes` are of claimed files that it does not work on."""

    inbox: Inbox
    files: list[ClaimedFile]
    outcomes: list[FileOutcome] = field(default_factory=list)
    reads: dict[str | None, Inbox] = field(default_factory=dict)
    """The inbox as the program has read it, by the schema that the program gave."""
    added_by: dict[str | None, Mapping[str, str]] = field(default_factory=dict)
    """The added columns with their types, by the schema that the program gave."""
    rejects: Counter[tuple[object, ...]] = field(default_factory=Counter)
    """The rows that this attempt has published as rejects."""
    is_chosen: bool = False
    """True if the run was given them, and has no claims."""
    shared: bool = False
    """True if another node of the workflow may work on the same files."""
    unread: bool = False
    """True while nothing has looked at the contents of the files, which a node before this one has read."""

    @property
    def rejected(self) -> int:
        """The number of rejects."""
        return self.rejects.total()

    @property
    def added(self) -> dict[str, str]:
        """The columns that `unknown="evolve"` has added, with their types."""
        return {name: kind for types in self.added_by.values() for name, kind in types.items()}

    def refuse(self, file: ClaimedFile, why: str) -> None:
        """Have the commit close a bad file as such."""
        self.files.remove(file)
        self.outcomes.append(went_wrong(self.inbox, file, why))

    def close(self) -> list[FileOutcome]:
        """Return how each claimed file ends with the commit."""
        return [*self.outcomes, *map(succeeded, self.files)]

    @property
    def empty(self) -> bool:
        """True if no file is left."""
        return not self.files

    def open(self, run: Workspace) -> FileInput:
        """Return what the program sees."""
        return FileInput(run, self)

    def count(self) -> dict[str, object]:
        """Return the number of files."""
        return {"kind": "inbox", "count": len(self.files), "of": "file", "rows": None}

    def check_location(self, world: World) -> None:
        """Raise `StorageUnavailable` if the inbox is away."""
        if self.files:
            self.inbox.files(world).check_location()

    def describe_reading(self) -> dict[str, object]:
        """Return what was done with unknown fields and bad rows."""
        raw = self.inbox.spec.format
        decisions = {"unknown": raw.unknown, "bad_rows": raw.bad_rows, "rejected": self.rejected}
        return {**decisions, "added": self.added} if raw.unknown is Unknown.EVOLVE else decisions

    def describe_closed(self) -> list[dict[str, object]]:
        """Return the files that the run does not work on."""
        return [{"name": one.name, "status": one.status, "error": one.error} for one in self.outcomes]


@dataclass(eq=False)
class FileInputs(InputKind):
    """The inboxes that a program reads, or of which a caller outside holds files."""

    backlog: ClassVar[Backlog | None] = INBOXES
    claims: ClassVar[ClaimTable | None] = FILES
    source_kind = DatasetKind.INBOX

    sources: Mapping[str, Inbox]
    owner: RunId | None = None
    """The workflow that holds the claims; None for the run itself."""
    taken: Mapping[str, TakenFiles] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, db: Db, program: Program, datasets: Mapping[str, Dataset], consumers: Mapping[str, Consumer]
    ) -> FileInputs:
        """Find the inboxes."""
        del db, program, consumers
        return cls({name: Inbox.of(one) for name, one in datasets.items() if one.kind is cls.source_kind})

    @classmethod
    def find_fault(cls, dataset: Dataset, program: Program) -> str | None:
        """Refuse workers."""
        return f"reads the inbox {dataset.qualified_name}: a worker reads file sets" if program.kind.is_worker else None

    @classmethod
    def held_by(cls, db: Db, run_id: RunId) -> Self | None:
        """Find the inboxes of which the run holds files."""
        held = [Inbox.of(find_by_id(db, dataset_id)) for dataset_id in find_claimed_inboxes(db, run_id)]
        return cls({inbox.qualified_name: inbox for inbox in held}) if held else None

    def outputs(self, db: Db) -> Mapping[str, Fileset]:
        """Find the file sets of rejects."""
        rejecting = [one for one in self.sources.values() if one.spec.format.bad_rows is BadRows.REJECT]
        return {inbox.rejects: Fileset.of(find_dataset(db, inbox.rejects)) for inbox in rejecting}

    def take(self, catalog: Catalog, tx: Transaction, beside: Sequence[ClaimTable]) -> None:
        """Claim of all inboxes at once, and look at each file: a bad one fails by itself."""
        inboxes = self.sources.values()
        claimed = claim_files(catalog, tx, inboxes, beside) if inboxes else []
        good, others = sort_out(catalog.world, inboxes, claimed)
        self.taken = {
            name: TakenFiles(
                inbox,
                [file for file in good if file.dataset_id == inbox.dataset_id],
                [outcome for outcome in others if outcome.dataset_id == inbox.dataset_id],
            )
            for name, inbox in self.sources.items()
        }

    def verify(self, world: World) -> None:
        """Refuse if a file is no longer what was claimed (`FileRewritten`)."""
        read = [taken for taken in self.taken.values() if not taken.unread]
        verify_claims(world, self.sources.values(), [file for taken in read for file in taken.files])

    def complete(self, tx: Transaction) -> Sequence[Effect]:
        """Close each file."""
        if not self.sources:
            return ()
        outcomes = [outcome for taken in self.taken.values() for outcome in taken.close()]
        return (CloseFiles(tx.run_id, tx.epoch, tuple(outcomes)),)

    def blame(self, run: Workspace, error: str, reason: str) -> Sequence[Blamed]:
        """Find the files that an error is about: the one that it names, and all others that cannot be read either."""
        if all(taken.empty for taken in self.taken.values()):
            return ()
        culprit = run.ask(lambda db, tx: find_blamed(db, self.owner or tx.run_id, error))
        if culprit is None:
            return ()
        try:
            bad = self._find_bad(run)
        except Exception:  # noqa: BLE001  # of Spark, which has failed before: then the named file has to do
            run.world.spawner.complain(traceback.format_exc())
            bad = {}
        found = [blame_file(file, why, alone=False) for file, why in bad.items()]
        return found if culprit in bad else [blame_file(culprit, reason), *found]

    def _find_bad(self, run: Workspace) -> dict[ClaimedFile, str]:
        """Find the files of all inboxes that were read which cannot be read strictly, each with its reason."""
        return {
            file: found.why
            for taken in self.taken.values()
            for inbox in taken.reads.values()
            for file, found in find_bad(run, inbox, taken.files).items()
            if not is_tolerated(inbox, found)
        }

    def list_waiting(self, db: Db) -> Collection[str]:
        """Return the inboxes."""
        del db
        return self.sources

    @property
    def ids(self) -> Sequence[str]:
        """The inboxes."""
        return sorted(inbox.dataset_id for inbox in self.sources.values())


def _reject_rows(bad: Mapping[ClaimedFile, list[BadRow]], run_id: RunId, now: datetime) -> list[tuple[object, ...]]:
    return [(file.name, row.line, row.text, row.why, run_id, now.date()) for file, rows in bad.items() for row in rows]


def is_tolerated(inbox: Inbox, found: BadFile) -> bool:
    """Return whether the bad rows of a file are few enough to be rejected alone."""
    raw = inbox.spec.format
    return raw.bad_rows is BadRows.REJECT and 0 < found.bad <= found.rows * raw.max_rejects


def find_bad(run: Workspace, inbox: Inbox, files: list[ClaimedFile]) -> dict[ClaimedFile, BadFile]:
    """The files of these that cannot be read strictly."""
    from tidemill.frames.bad_rows import find_bad_files
    from tidemill.frames.raw_rows import RawFiles

    source = RawFiles.of(run.world, run.spark, inbox, files)
    return find_bad_files(source) if source.claimed else {}
