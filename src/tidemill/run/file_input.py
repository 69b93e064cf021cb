"""`FileInput`: the files of an inbox that a run works on, read strictly, with bad files and bad rows apart."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final, Protocol

from tidemill.errors import UserError
from tidemill.lake.formats import READING, BadRows, Unknown
from tidemill.lake.inbox.file_checks import FileOutcome, succeeded, went_wrong
from tidemill.lake.inbox.file_claims import ClaimedFile
from tidemill.lake.inbox.inbox import Inbox
from tidemill.names import RunId
from tidemill.storage.files import Files
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tidemill.lake.inbox.bad_rows import BadFile, BadRow
    from tidemill.lake.spark import RowCount


class BadUnderSchema(UserError):
    """A file that another schema has read, and that has bad rows under this one."""

    code = "bad_under_schema"

    def __init__(self, files: Files, file: ClaimedFile, why: str) -> None:
        self.file = file.name
        self.why = why
        super().__init__(f"{READING}{files.local_path(file.name) or files.url_of(file.name)}.  {why}")


REJECT_COLUMNS: Final = "file STRING, line BIGINT, text STRING, reason STRING, run_id STRING, day DATE"
"""The columns of a file set of rejects; the last one is its key."""


@dataclass(slots=True)
class TakenFiles:
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


class Reader(Protocol):
    """The run, as its inputs need it."""

    world: World

    @property
    def id(self) -> RunId:
        """The id of the run."""

    @property
    def spark(self) -> SparkSession:
        """The session of this attempt."""

    def note_read(self, inbox: str, counted: RowCount | None) -> None:
        """Rows of an inbox are going to be read, and perhaps counted."""

    def publish_rejects(self, inbox: Inbox, rows: DataFrame) -> None:
        """Append bad rows of an inbox to its file set of rejects, with the commit."""


class FileInput:
    """The files of an inbox that this run has claimed, and no other run."""

    def __init__(self, run: Reader, taken: TakenFiles) -> None:
        self._run = run
        self._taken = taken

    @property
    def claimed(self) -> tuple[ClaimedFile, ...]:
        """The claims of the files, oldest first; without those that reading has found bad."""
        return tuple(self._taken.files)

    @property
    def files(self) -> list[str]:
        """Their names below the inbox's location, oldest first."""
        return [file.name for file in self.claimed]

    def read(self, schema: str | None = None) -> DataFrame:
        """Their rows, read strictly: what does not fit `schema` (else the declared one) fails the run and is blamed.

        Files that failed before are looked through first; bad ones go to ERROR with the commit, and their rows are not
        among these. An inbox with `bad_rows="reject"` has all its files looked through, which reads them twice: bad
        rows go to the file set of rejects, and a file with too many of them goes to ERROR.
        """
        from tidemill.lake.inbox.raw_rows import read_files

        run, taken = self._run, self._taken
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
        from tidemill.lake.inbox.added_columns import add_columns

        run, taken = self._run, self._taken
        added = add_columns(run.world, run.spark, inbox, taken.files)
        for file, why in added.refused.items():
            self._refuse(inbox, file, why, is_first=is_first)
        taken.added_by[schema] = added.types
        taken.reads[schema] = added.extend(inbox)

    def _refuse(self, inbox: Inbox, file: ClaimedFile, why: str, *, is_first: bool) -> None:
        """Have the commit close a bad file; after the first read, fail the attempt."""
        if not is_first:
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
        from tidemill.lake.inbox.bad_rows import list_bad_rows
        from tidemill.lake.inbox.raw_rows import Source

        run = self._run
        bad = list_bad_rows(Source.of(run.world, run.spark, inbox, files))
        # A row that is bad under two schemas is one reject.
        rows = list((Counter(_reject_rows(bad, run.id, run.world.clock.now())) - self._taken.rejects).elements())
        self._taken.rejects.update(rows)
        if not rows:
            return
        run.publish_rejects(inbox, run.spark.createDataFrame(rows, REJECT_COLUMNS).coalesce(1))


def _reject_rows(bad: Mapping[ClaimedFile, list[BadRow]], run_id: RunId, now: datetime) -> list[tuple[object, ...]]:
    return [(file.name, row.line, row.text, row.why, run_id, now.date()) for file, rows in bad.items() for row in rows]


def is_tolerated(inbox: Inbox, found: BadFile) -> bool:
    """Whether the bad rows of a file are few enough to be rejected alone."""
    raw = inbox.spec.format
    return raw.bad_rows is BadRows.REJECT and 0 < found.bad <= found.rows * raw.max_rejects


def find_bad(run: Reader, inbox: Inbox, files: list[ClaimedFile]) -> dict[ClaimedFile, BadFile]:
    """The files of these that cannot be read strictly."""
    from tidemill.lake.inbox.bad_rows import find_bad_files
    from tidemill.lake.inbox.raw_rows import Source

    source = Source.of(run.world, run.spark, inbox, files)
    return find_bad_files(source) if source.claimed else {}
