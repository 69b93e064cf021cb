"""Runs, as `Mill` offers them: list, show, start, kill, read their logs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.effects import Effect
from tidemill.catalog.named import FROM_LATEST, load_sql
from tidemill.epoch import EPOCH
from tidemill.errors import Conflict, NotFound, UserError
from tidemill.lake.chosen import MissingInput, choose_again
from tidemill.lake.datasets import find_some
from tidemill.mill.choosing import check_choosable, choose_input
from tidemill.mill.lineage import DEPTH, NODES, Lineage, read_bounds
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, check_filter, cut, read_key, write_key
from tidemill.mill.period import read_period
from tidemill.mill.project import MOST_SHOWN, Noun, Project, check_startable, fields_of, program_names
from tidemill.mill.run_course import AnnouncedMessage, AttemptView, read_attempts, read_published
from tidemill.mill.run_views import InputView, RunView, view_input, view_run
from tidemill.mill.workflow_view import WorkflowView, view_workflow
from tidemill.names import DatasetId, RunId, ScheduleId, WritePointer
from tidemill.run.records import runs
from tidemill.run.records.bundles import is_kept
from tidemill.run.records.logs import LogLine, LogReader
from tidemill.run.records.programs import Program, find_program_by_id
from tidemill.run.records.runs import HANDED_ON, NewRun, Replay, RunKind, RunRecord, RunState, count_under_way
from tidemill.run.records.triggers import TriggerFeed, leaves_of, read_triggers
from tidemill.run.records.workflows import Holding
from tidemill.schedule.schedules import list_limits

if TYPE_CHECKING:
    from tidemill.mill.runs_sql import Sql

SQL: Sql = load_sql(__file__)


class BadLogicalTime(UserError):
    """A logical time that cannot be read."""

    code = "bad_logical_time"

    def __init__(self, given: str) -> None:
        self.given = given
        super().__init__(
            f"logical time {given!r} is refused", "write it in ISO 8601, as 2026-01-31T06:00:00Z", before=": "
        )


class NothingToRetry(Conflict):
    """A run that has committed, or has not ended, or that no program can repeat."""

    code = "nothing_to_retry"

    def __init__(self, run_id: str, state: str) -> None:
        self.run_id = run_id
        self.state = state
        super().__init__(
            f"run {run_id} is {state}: only runs of programs that ended FAILED, KILLED or REJECTED are retried",
            "`tidemill run start` starts another",
        )


class RetriedByBackfill(Conflict):
    """A run of a backfill was to be retried outside of the backfill, which would process its item twice."""

    code = "retried_by_backfill"

    def __init__(self, run_id: str, backfill_id: str) -> None:
        self.run_id = run_id
        self.backfill_id = backfill_id
        super().__init__(
            f"run {run_id} is of backfill {backfill_id}, which tries its failed items again by itself",
            f"`tidemill backfill retry {backfill_id}`",
        )


class RetriedByWorkflow(Conflict):
    """The run of a node was to be retried outside of its workflow, which would then run the node twice."""

    code = "retried_by_workflow"

    def __init__(self, run_id: str, workflow: str) -> None:
        self.run_id = run_id
        self.workflow = workflow
        super().__init__(
            f"run {run_id} is a node of workflow {workflow}, which runs its failed nodes again when it is retried",
            f"`tidemill run retry {workflow}`",
        )


class NothingToReplay(Conflict):
    """A run that has not committed, that no program can repeat, or that is a node of a workflow."""

    code = "nothing_to_replay"

    def __init__(self, run_id: str, why: str) -> None:
        self.run_id = run_id
        self.why = why
        super().__init__(
            f"run {run_id} {why}: only committed runs of programs outside of workflows are replayed",
            "`tidemill run retry` repeats one that has failed",
        )


class _ClaimCounts(NamedTuple):
    partitions: int
    files: int


@dataclass(frozen=True, slots=True)
class RunDetail(RunView):
    """A run with its inputs, and with the feed of each leaf of its schedule's trigger (`run.triggers`).

    `attempts` are those that began a transaction, oldest first. `published` are messages of the newest commit. A run
    that is under way holds claims of `claimed_partitions` and `claimed_files`.
    """

    inputs: tuple[InputView, ...]
    claimed_partitions: int
    claimed_files: int
    triggers: tuple[TriggerFeed, ...]
    attempts: tuple[AttemptView, ...]
    published: tuple[AnnouncedMessage, ...]
    workflow: WorkflowView | None = None
    """The nodes of a workflow's run; None for other runs."""


@dataclass(frozen=True, slots=True)
class StartedRun:
    """A new run: pending, or that of a workflow, whose first nodes are pending."""

    run_id: RunId
    program: str


@dataclass(frozen=True, slots=True)
class RetriedRun:
    """A new run, and the run that it repeats or, of a workflow, goes on with."""

    run_id: RunId
    retry_of: RunId


@dataclass(frozen=True, slots=True)
class ReplayedRun:
    """A new run, and the run that it repeats on the same input."""

    run_id: RunId
    replay_of: RunId


@dataclass(frozen=True, slots=True)
class KilledRun:
    """A run whose end was asked for, and its state afterwards.

    `changed` is false if the run had ended, or was being ended, already.
    """

    run_id: RunId
    state: RunState
    changed: bool


class Runs(Noun):
    """Operations on runs."""

    noun = "run"

    @property
    def _asked(self) -> dict[str, object]:
        """The cause of a run that the caller asks for."""
        return {"asked": "by hand", "by": self._project.actor}

    @operation(Right.READ)
    def list(  # filters by keyword
        self,
        *,
        program: str | None = None,
        state: str | None = None,
        schedule: str | None = None,
        parent: str | None = None,
        since: datetime | str | None = None,
        until: datetime | str | None = None,
        limit: int = PAGE,
        after: str = "",
    ) -> Page[RunView]:
        """List the runs that fit each filter, newest first.

        `parent` is the run of a workflow, whose nodes are listed. `since` and `until` bound the time at which a run was
        made: `[since, until)`. `BadFilter` for a state that there is not, `BadPeriod`, `NotFound`. Cost: the page; of a
        state that is no end, the runs in that state; with a schedule and another filter, the runs of the schedule.
        """
        begin, end = read_period(since or EPOCH, until or FROM_LATEST[0])

        # A list of all runs does not load the room of schedules.
        def find_schedule_id(db: Db, name: str) -> ScheduleId:
            from tidemill.mill.scheduled import find_named

            return find_named(self._project, db, name).schedule_id

        before = read_key(after, FROM_LATEST) if after else (min(end, FROM_LATEST[0]), "")
        chosen = None if state is None else check_filter("state", state, RunState)

        def block(db: Db) -> Page[RunView]:
            program_id = None if program is None else self._project.program(db, program).program_id
            schedule_id = None if schedule is None else find_schedule_id(db, schedule)
            if parent is not None:
                self._project.check_run(db, parent)
            found = self._rows(
                lambda place, most: runs.list_runs(
                    db,
                    most=most,
                    program_id=program_id,
                    schedule_id=schedule_id,
                    workflow=None if parent is None else RunId(parent),
                    namespace=self._project.access.only,
                    state=chosen,
                    since=begin,
                    before=place,
                ),
                before,
                limit,
                lambda run: (run.created_at, str(run.run_id)),
                # With a program or schedule in the caller's namespace, few rows are of others.
                None if program_id is None and schedule_id is None else lambda rows: _names_of(db, rows),
            )
            names = program_names(db, (run.program_id for run in found))
            now, under_way = db.now(), cache(lambda: count_under_way(db))

            def key(run: RunRecord) -> str:
                return write_key(run.created_at, run.run_id)

            access = self._project.access
            return cut(found, limit, key, lambda run: view_run(run, names, now, under_way, access))

        return self._catalog.read(block)

    @operation(Right.READ, own=True)
    def show(self, run_id: str) -> RunDetail:
        """Return a run with its attempts, its inputs, and the messages that it got and published; `NotFound`."""

        def block(db: Db) -> RunDetail:
            self._project.check_run(db, run_id)
            run = runs.find_run(db, RunId(run_id))
            names, access = program_names(db, [run.program_id]), self._project.access
            view = view_run(run, names, db.now(), lambda: count_under_way(db), access)
            rows = db.all(SQL.list_inputs, run_id=run_id, limit=MOST_SHOWN)
            by_id = find_some(db, (DatasetId(str(row[0])) for row in rows))
            seen = {one for one, dataset in by_id.items() if access.sees(dataset.namespace)}
            inputs = tuple(view_input(row, by_id) for row in rows if row[0] in seen)
            claimed = db.records(SQL.count_claims, _ClaimCounts, run_id=run_id)[0]
            attempts = read_attempts(db, run.run_id)
            commits = [one.commit_seq for one in attempts if one.commit_seq is not None]
            published = read_published(db, commits[-1]) if commits else ()
            return RunDetail(
                **fields_of(view),
                inputs=inputs,
                claimed_partitions=claimed.partitions,
                claimed_files=claimed.files,
                triggers=read_triggers(db, leaves_of(run.triggered_by)),
                attempts=attempts,
                published=tuple(one for one in published if access.sees_event(one.event_key)),
                workflow=view_workflow(db, run) if run.kind is RunKind.WORKFLOW else None,
            )

        return self._catalog.read(block)

    @operation(Right.OPERATE, in_block=True)
    def start(
        self,
        program: str,
        arguments: Mapping[str, object] | None = None,
        *,
        partitions: Mapping[str, Sequence[Mapping[str, object] | str]] | None = None,
        files: Mapping[str, Sequence[str]] | None = None,
        logical_time: datetime | str | None = None,
        quiet: bool = False,
    ) -> StartedRun:
        """Make a pending run of `program` (`app.program`), which a runner carries out.

        With `partitions` of file sets, or `files` of inboxes, by the names of data sets that the program reads, the run
        works on these as they are now, and on nothing else: its other inputs are empty. It changes no consumer and no
        inbox. No consumer gets what a `quiet` run publishes, and its messages start no run.

        The program sees `logical_time` as if a time trigger had fired then: it works for a day of the past. A time
        without a zone is in UTC. `BadLogicalTime`, `BadArgument`, `NotFound`, `MissingInput`, `BadChoice`, `BadKey`,
        `NothingStarts` for a workflow, `TakesWork` for a quiet run without chosen input whose program takes what waits.
        """
        run_id = RunId(self._world.new_id("run"))
        times = [] if logical_time is None else [_read_logical_time(logical_time)]
        cause = {**self._asked, **({"logical_time": times[0], "logical_times": times} if times else {})}

        def block(db: Db) -> StartedRun:
            is_chosen = partitions is not None or files is not None
            chosen = choose_input(db, self._project, program, partitions, files) if is_chosen else None
            found = self._project.startable(db, program)
            if quiet and chosen is None:
                _refuse_taking(db, found)
            bound = found.bind(arguments or {})
            limits = list_limits(db, found.program_id)
            new = NewRun(run_id, found.program_id, bound, cause, limits=limits, chosen=chosen, quiet=quiet)
            runs.create_pending(db, [new])
            self._note("start", found.qualified_name, run_id=run_id).write(db)
            return StartedRun(run_id, found.qualified_name)

        return self._catalog.write(block)

    @operation(Right.OPERATE, in_block=True)
    def retry(self, run_id: str) -> RetriedRun:
        """Make a new run like a run that ended without a commit. `NotFound`, `NothingToRetry`.

        A run of a backfill is left to its backfill (`RetriedByBackfill`), a node to its workflow (`RetriedByWorkflow`).
        It takes what waits for the program now; what the failed run had claimed is there again. A run with chosen input
        has the same input again (`MissingInput`). `triggers` and logical times of the new run are those of the failed
        run. A failed workflow is resumed: the new run has the same claims, and starts the nodes that have not
        completed. `NotResumable`. A workflow that was killed, or has returned its claims, begins again.
        """
        retry_id = RunId(self._world.new_id("run"))

        def block(db: Db) -> RetriedRun:
            pointer = WritePointer(db.tick())
            self._project.check_run(db, run_id)
            run = runs.find_run(db, RunId(run_id))
            if run.program_id is None or not run.state.ended or run.state is RunState.COMPLETED:
                raise NothingToRetry(run_id, run.state)
            # Retention may have deleted the workflow, and kept this run for an alert.
            if run.workflow is not None and runs.find_runs(db, [run.workflow]):
                raise RetriedByWorkflow(run_id, run.workflow)
            _leave_to_backfill(db, run)
            program = check_startable(find_program_by_id(db, run.program_id))
            cause = {name: run.triggered_by[name] for name in HANDED_ON if name in run.triggered_by}
            asked = {**self._asked, "retry_of": run_id, **cause}
            limits = list_limits(db, run.program_id)
            if run.replay is not None:
                new = _make_replay(db, pointer, runs.find_run(db, run.replay.of), retry_id, run.replay)
                new = replace(new, triggered_by={**new.triggered_by, **asked}, quiet=run.quiet)
            else:
                chosen = choose_again(db, pointer, run.run_id) if run.is_chosen else None
                if run.quiet and chosen is None:
                    _refuse_taking(db, program)
                bound = program.bind(run.arguments)
                new = NewRun(retry_id, run.program_id, bound, asked, chosen=chosen, quiet=run.quiet)
            new = replace(new, priority=run.priority, limits=limits)
            if program.workflow is None or run.state is not RunState.FAILED or not _resume(db, run, program, new):
                runs.create_pending(db, [new])
            self._note("retry", run_id, run_id=retry_id).write(db)
            return RetriedRun(retry_id, RunId(run_id))

        return self._catalog.write(block)

    @operation(Right.OPERATE, in_block=True)
    def replay(self, run_id: str, *, sandbox: bool = False, diff: bool = False, quiet: bool = False) -> ReplayedRun:
        """Make a new run that repeats a committed run on its exact input, with its code, arguments and logical time.

        Its input is what the run took: the same changes of partitions, contents of files and versions. `Run.read` reads
        what the run saw. No consumer and no inbox changes. `diff` compares its rows with those that the run has
        published; `tidemill run show` has the comparison. A `sandbox` publishes nothing. A replay that publishes may
        overwrite what the run has published, and nothing that later runs have written. `NothingToReplay`, `NotFound`,
        `MissingInput` for what is not kept or read any more, `BadArgument` for an argument that has another type now,
        `BadChoice` for a window program.
        """
        replay_id = RunId(self._world.new_id("run"))

        def block(db: Db) -> ReplayedRun:
            pointer = WritePointer(db.tick())
            self._project.check_run(db, run_id)
            run = runs.find_run(db, RunId(run_id))
            of_run = WritePointer(run.write_pointer or 0)
            saw = run.replay.saw if run.replay else of_run
            how = Replay(run.run_id, of_run, saw, sandbox, diff, run.bundle)
            new = _make_replay(db, pointer, run, replay_id, how)
            runs.create_pending(
                db, [replace(new, triggered_by={**self._asked, **new.triggered_by}, quiet=quiet or sandbox)]
            )
            self._note("replay", run_id, run_id=replay_id).write(db)
            return ReplayedRun(replay_id, run.run_id)

        return self._catalog.write(block)

    @operation(Right.OPERATE)
    def kill(self, run_id: str) -> KilledRun:
        """Ask for the end of a run. No effect on a run that has ended. `NotFound`.

        A failed workflow that keeps claims stays FAILED, and returns them.
        """
        # Half of what this module loads, and only a kill needs it: a list would wait for it.
        from tidemill.run.step.attempts import kill_run
        from tidemill.run.step.resumption import end_hold

        def find_kind(db: Db) -> RunKind:
            self._project.check_run(db, run_id)
            return runs.find_run(db, RunId(run_id)).kind

        is_workflow = self._catalog.read(find_kind) is RunKind.WORKFLOW

        def keep(state: RunState) -> Sequence[Effect]:
            if is_workflow and state is RunState.STOPPING:  # the answer comes with the ends of its nodes
                return self._keep_part({"asked": True})
            return self._keep(KilledRun(RunId(run_id), state, changed=True))

        state, changed = kill_run(self._catalog, RunId(run_id), self._note("kill", run_id), keep)
        changed = changed or self._part is not None  # an earlier try of the same request has asked
        if state is RunState.FAILED and not changed:
            note = self._note("kill", run_id).between({"claims": Holding.HELD}, {"claims": Holding.RETURNED})
            changed = end_hold(self._catalog, RunId(run_id), [note, *keep(state)])
        return KilledRun(RunId(run_id), state, changed)

    @operation(Right.READ)
    def lineage(self, run_id: str, *, direction: str = "both", depth: int = DEPTH, limit: int = NODES) -> Lineage:
        """Show what a run took and wrote, where that came from, and which runs took the results.

        `direction`, `depth` and `limit` are as for `mill.datasets.lineage`. `NotFound`.
        """
        from tidemill.mill.lineage_actual import trace_run

        bounds = read_bounds(direction, depth, limit)
        return self._catalog.read(lambda db: trace_run(self._project, db, run_id, bounds))

    @operation(Right.READ, no_route="GET /v1/runs/{run_id}/logs gives the lines as text")
    def logs(
        self, run_id: str, *, attempt: int | None = None, follow_every: timedelta | None = None, whole: bool = False
    ) -> Iterator[LogLine]:
        """Yield the lines that the program wrote in an attempt (the newest), and if `whole` those of Spark after them.

        With `follow_every`, go on until the run has ended. `NotFound`, `LogElsewhere`.
        """
        reader = read_log(self._project, run_id, attempt=attempt, whole=whole)
        return self._read_log(reader, follow_every)

    def _read_log(self, reader: LogReader, every: timedelta | None) -> Iterator[LogLine]:
        yield from reader.read_on(last=every is None)
        while every is not None and not reader.ended:
            self._world.clock.sleep(every)
            yield from reader.read_on()


def _leave_to_backfill(db: Db, run: RunRecord) -> None:
    """Raise `RetriedByBackfill` for a run of a backfill that may still try the item of the run again."""
    if run.backfill_id is None:
        return
    # As in `kill`: few retries are of backfills.
    from tidemill.schedule.backfill_records import BackfillState, find_backfill

    try:
        found = find_backfill(db, run.backfill_id)
    except NotFound:  # retention has deleted it
        return
    if found.state is not BackfillState.CANCELLED:
        raise RetriedByBackfill(run.run_id, found.backfill_id)


def _refuse_taking(db: Db, program: Program) -> None:
    # As in `kill`: few runs are quiet.
    from tidemill.run.step.inputs import refuse_taking

    refuse_taking(db, program)


def _resume(db: Db, run: RunRecord, program: Program, new: NewRun) -> bool:
    # As in `kill`: few retries are of workflows.
    from tidemill.run.step.resumption import resume_workflow

    return resume_workflow(db, run.run_id, program, new)


def _make_replay(db: Db, pointer: WritePointer, run: RunRecord, replay_id: RunId, how: Replay) -> NewRun:
    """Return the run that is to repeat `run`; `pointer` is a tick that the caller's transaction has taken first."""
    if run.program_id is None or run.state is not RunState.COMPLETED:
        raise NothingToReplay(run.run_id, f"is {run.state}" if run.program_id else "has no program")
    if run.is_sandbox:
        raise NothingToReplay(run.run_id, "was a sandbox")
    if run.workflow is not None:
        raise NothingToReplay(run.run_id, f"is a node of {run.workflow}")
    program = check_startable(find_program_by_id(db, run.program_id))
    check_choosable(db, program)
    if how.code and not is_kept(db, how.code):
        raise MissingInput([f"the code {how.code} of {run.run_id}"])
    # The old code is called with the declaration of now.
    for argument in program.arguments:
        if argument.name in run.arguments:
            argument.check(program.qualified_name, run.arguments[argument.name])
    chosen = choose_again(db, pointer, run.run_id, WritePointer(how.write_pointer) if how.diff else None)
    if lost := sorted(chosen.counts.keys() - {*program.reads}):
        raise MissingInput([f"{name}, which {program.qualified_name} reads no more" for name in lost])
    return NewRun(
        replay_id,
        run.program_id,
        run.arguments,
        triggered_by={name: run.triggered_by[name] for name in HANDED_ON if name in run.triggered_by},
        limits=list_limits(db, run.program_id),
        chosen=chosen,
        replay=how,
    )


def _read_logical_time(given: datetime | str) -> datetime:
    try:
        time = given if isinstance(given, datetime) else datetime.fromisoformat(given)
        return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
    except (ValueError, OverflowError):
        raise BadLogicalTime(str(given)) from None


def read_log(project: Project, run_id: str, *, attempt: int | None, whole: bool, most: int | None = None) -> LogReader:
    """Return a reader of the log of a run, for a caller that waits between its reads by itself. `NotFound`.

    With `most`, the reader begins within the last `most` bytes of each file.
    """
    project.catalog.read(lambda db: project.check_run(db, run_id))
    kept = project.config.logs
    return LogReader(project.catalog, project.world, RunId(run_id), attempt=attempt, whole=whole, most=most, kept=kept)


def _names_of(db: Db, found: Sequence[RunRecord]) -> Sequence[str | None]:
    names = program_names(db, (run.program_id for run in found))
    return [None if run.program_id is None else names.get(run.program_id) for run in found]
