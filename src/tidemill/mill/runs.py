"""Runs, as `Mill` offers them: list, show, start, kill, read their logs.

Fields ending in `_at` are epoch milliseconds; the command line shows them as ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, cast

from tidemill.catalog.db import Db
from tidemill.catalog.named import Row, load_sql
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset import Fileset
from tidemill.lake.keys import KeyText
from tidemill.mill.project import MOST_SHOWN, Project, datasets_by_id, fields_of, program_names
from tidemill.names import ProgramId, RunId
from tidemill.run import runs
from tidemill.run.attempts import ask_kill
from tidemill.run.logs import LogLine, follow_logs
from tidemill.run.runs import NewRun, RunRecord

SQL: Final = load_sql(__file__)


@dataclass(frozen=True, slots=True)
class RunView:
    """A run; `facts` is what its last attempt reported: rows in and out, seconds, process."""

    run_id: RunId
    program: str | None
    state: str
    epoch: int
    failures: int
    losses: int
    priority: int
    arguments: Mapping[str, object]
    triggered_by: Mapping[str, object]
    write_pointer: int | None
    created_at: int
    started_at: int | None
    ended_at: int | None
    exit_reason: str | None
    log_location: str | None
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class InputView:
    """What a run took: a partition, or a file with its content version."""

    dataset: str
    write_pointer: int
    item: str
    content_version: str


class Runs(Project):
    """Operations on runs."""

    def list_runs(self, *, program: str | None = None, limit: int = 20) -> list[RunView]:
        """The newest runs (of one program) first."""

        def block(db: Db) -> list[RunView]:
            program_id = None if program is None else self._program(db, program).program_id
            names = program_names(db)
            return [_run_view(run, names) for run in runs.list_runs(db, most=limit, program_id=program_id)]

        return self.catalog.read(block)

    def show_run(self, run_id: str) -> dict[str, object]:
        """A run with what it took; `NotFound`."""

        def block(db: Db) -> dict[str, object]:
            view = _run_view(runs.find_run(db, RunId(run_id)), program_names(db))
            by_id = datasets_by_id(db)
            rows = db.all(SQL.list_inputs, run_id=run_id, limit=MOST_SHOWN)
            return {**fields_of(view), "inputs": [_input_view(row, by_id) for row in rows]}

        return self.catalog.read(block)

    def start_run(self, program: str, arguments: Mapping[str, object] | None = None) -> RunId:
        """Make a pending run of `program` (`app.program`), which a runner carries out; its id."""
        run_id = RunId(self.world.new_id("run"))

        def block(db: Db) -> None:
            found = self._program(db, program)
            bound = found.bind(arguments or {})
            new = NewRun(run_id, found.program_id, bound, {"asked": "by hand"})
            runs.create_pending(db, [new])

        self.catalog.write(block)
        return run_id

    def kill_run(self, run_id: str) -> str:
        """Ask for the end of a run; its state afterwards. No effect on one that has ended."""
        return ask_kill(self.catalog, RunId(run_id)).value

    def read_logs(
        self, run_id: str, *, attempt: int | None = None, follow_every: timedelta | None = None
    ) -> Iterator[LogLine]:
        """The lines that an attempt (the newest) wrote; with `follow_every` until the run has ended."""
        return follow_logs(self.catalog, self.world, RunId(run_id), attempt=attempt, every=follow_every)


def _run_view(run: RunRecord, names: Mapping[ProgramId, str]) -> RunView:
    return RunView(
        run_id=run.run_id,
        program=None if run.program_id is None else names.get(run.program_id),
        state=run.state,
        epoch=run.epoch,
        failures=run.failures,
        losses=run.losses,
        priority=run.priority,
        arguments=run.arguments,
        triggered_by=run.triggered_by,
        write_pointer=run.write_pointer,
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        exit_reason=run.exit_reason,
        log_location=run.log_location,
        facts=run.facts,
    )


def _input_view(row: Row, by_id: Mapping[str, Dataset]) -> InputView:
    dataset_id, write_pointer, item, version = row
    dataset = by_id[str(dataset_id)]
    shown = str(item)
    if dataset.kind is DatasetKind.FILESET:
        shown = Fileset.of(dataset).show(KeyText(shown))
    return InputView(dataset.qualified_name, cast("int", write_pointer), shown, str(version))
