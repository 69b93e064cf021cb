"""Data sets, programs and schedules as an app declares them: values, before any catalog knows of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Protocol

from tidemill.app.reads import Changes, Reads
from tidemill.errors import UserError
from tidemill.lake.fileset import fileset as lake_fileset
from tidemill.lake.fileset.stored import Storing
from tidemill.lake.inbox.inbox import InboxSpec
from tidemill.lake.snapshot.snapshot import SnapshotSpec
from tidemill.lake.window.cascade import OutputReach
from tidemill.run.records.programs import Argument, Code, ProgramKind, WrittenSpan
from tidemill.run.records.workflow_spec import WorkflowSpec
from tidemill.run.step.spans import DeclaredSpan
from tidemill.schedule.specs import ScheduleSpec
from tidemill.shapes.partition_time import Instant
from tidemill.shapes.watermark_spec import WatermarkSpec


class BadDeclaration(UserError):
    """An app that declares something twice, or something that cannot be."""

    code = "bad_declaration"
    hint = "correct the declaration in the app file, and deploy again"

    def __init__(self, subject: str, why: str) -> None:
        self.subject = subject
        self.why = why
        super().__init__(f"{subject} {why}")


@dataclass(frozen=True, slots=True)
class DeclaredInbox:
    """A folder into which others write files, as an app declares it."""

    qualified_name: str
    name: str
    location: str
    spec: InboxSpec


@dataclass(frozen=True, slots=True)
class DeclaredFileset:
    """A file set, as an app declares it; `location` is None for the site's usual place."""

    qualified_name: str
    name: str
    location: str | None
    storing: Storing
    watermark: WatermarkSpec | None = None

    def span(self, start: str | datetime | None = None, end: str | datetime | None = None) -> DeclaredSpan:
        """Declare, in the `writes` of a transaction or a program, the times `[start, end)` that it will write.

        Wall-clock times in the zone of the watermark, either side open: the watermark does not pass them meanwhile.
        In a program they may name arguments of the run: `clicks.span("$start", "$end")`.
        """
        return DeclaredSpan(self.qualified_name, start, end)


@dataclass(frozen=True, slots=True)
class DeclaredSnapshot:
    """A mirror of a source in versions, as an app declares it; `location` is None for the site's usual place."""

    qualified_name: str
    name: str
    location: str | None
    spec: SnapshotSpec


@dataclass(frozen=True, slots=True)
class DeclaredProgram:
    """A program, as an app declares it; `reads` and `writes` are qualified names, `terms` of those read on terms."""

    name: str
    kind: ProgramKind
    code: Code
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    retries: int
    backoff: timedelta
    run_on_empty: bool | None
    deliver_own: bool
    arguments: tuple[Argument, ...]
    terms: Mapping[str, Reads | Changes] = field(default_factory=dict)
    spans: tuple[WrittenSpan, ...] = ()
    """Times of `writes` that the watermarks do not pass while a run is open."""
    instances: int = 0
    """Number of runs of a worker that are kept alive. 0 for other programs."""
    windows: WindowCode | None = None
    spark_profile: str = ""
    """The named Spark profile of a program with Spark; empty for the settings of `[spark]`."""
    held: tuple[str, ...] = ()
    """Data sets of `reads` that a node gets from its workflow."""
    workflow: WorkflowSpec | None = None


class WindowCode(Protocol):
    """The code of a window program, as a deployment needs to know it."""

    statement: str
    sources: tuple[str, ...]

    def check(
        self,
        sources: Sequence[lake_fileset.Fileset],
        sink: lake_fileset.Fileset,
        schemas: Sequence[lake_fileset.ColumnSchema | None],
    ) -> None:
        """Raise a `UserError` for file sets over which it cannot be computed, or into which it cannot be written.

        `schemas` are the columns of the sources, None before their first commit.
        """

    def definition(self, sources: Sequence[lake_fileset.Fileset]) -> str:
        """Return the definition of the results beside the rows.

        A change of the definition makes computed windows stale.
        """

    def find_reach(self, sources: Sequence[lake_fileset.Fileset], computed: Instant | None) -> OutputReach:
        """Return how far the output has come when windows are computed up to `computed`."""


@dataclass(frozen=True, slots=True)
class DeclaredSchedule:
    """A schedule, as an app declares it; its consumers are known when it is deployed."""

    name: str
    program: str
    spec: ScheduleSpec
    suspended: bool | None
    """None: as the setting `schedules.suspended` says."""
