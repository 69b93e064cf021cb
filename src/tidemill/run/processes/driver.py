"""The process of one attempt after the other: register, load, step, call, end.

A `Launcher` starts it: `python -m tidemill.run.processes.driver`. All that an attempt does is in its commit, or
invisible. The driver may be killed at any point, and the next attempt has the same claims.
"""

from __future__ import annotations

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, CatalogUnavailable, Db, LostReply
from tidemill.catalog.engine import open_catalog
from tidemill.errors import Conflict, Fenced, NotOnThisNode, TidemillError, Unavailable, UserError
from tidemill.json_specs import read_text
from tidemill.lake.claims import Blame
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.snapshot.guards import ALLOW, parse_allowed
from tidemill.processes import live_with_parent
from tidemill.run.processes.assignments import DONE, LAST, READY, STATUS, Assignment, DriverSetup
from tidemill.run.processes.cluster import SECRET_VARIABLE, SPARK_DRIVER, SUBMITTED_VARIABLE
from tidemill.run.processes.worker import NotCommitted, Steps, Worker
from tidemill.run.records.bundles import CodeUnavailable
from tidemill.run.records.declared import find_dataset
from tidemill.run.records.programs import (
    LoadedProgram,
    Program,
    ProgramSource,
    Value,
    choose_program,
    load_apps,
)
from tidemill.run.records.runs import Cause, RunRecord, RunState, find_with_program
from tidemill.run.records.workers import PostponeStarts
from tidemill.run.records.workflow_spec import NodeOutcome, NodeStand
from tidemill.run.records.workflows import WorkflowMoved, check_held, find_workflow
from tidemill.run.step.attempts import (
    AttemptEnd,
    FinishRun,
    Registration,
    end_attempt,
    note_stages,
    register,
)
from tidemill.run.step.context import Run, being_current
from tidemill.run.step.inputs import Inputs, find_inputs
from tidemill.run.step.node_end import ALONE, NO_INPUT, decide_node_end
from tidemill.run.step.outputs import Writer, write_frames
from tidemill.run.step.replays import check_replay
from tidemill.run.step.run_ends import announce_end, announce_start
from tidemill.run.step.spans import bind_spans
from tidemill.run.step.step import Step
from tidemill.secret_places import KnownSecrets
from tidemill.shapes.formats import reason as spark_reason
from tidemill.storage.files import FileUnreadable, StorageUnavailable
from tidemill.storage.locations import is_object_store
from tidemill.token_text import digest_of, make_run_token
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tidemill.run.processes.session import SparkHome, SparkLost

SANDBOX: Final = "sandbox"
TOKEN_VARIABLE: Final = "TIDEMILL_TOKEN"  # noqa: S105  # a name, no secret
"""The variable in which a program finds the token of its run."""
URL_VARIABLE: Final = "TIDEMILL_URL"
"""The variable in which a program finds the address of a server, if the runner knows one."""


class ProgramFailed(Exception):
    """The program raised; `blame` says which of its claims. It never leaves this module."""

    def __init__(self, reason: str, blamed: Blame) -> None:
        super().__init__(reason)
        self.blame = blamed


class DriverProcess:
    """Driver: its catalog, and its Spark once a program has needed it. `writer` writes what programs publish."""

    def __init__(
        self, world: World, catalog: Catalog, start: DriverSetup, tag: str, *, writer: Writer = write_frames
    ) -> None:
        self.world = world
        self.catalog = catalog
        self.start = start
        self.tag = tag
        self.writer = writer
        self.folder = Path(start.folder)
        self.spark: SparkHome | None = None
        self._apps: Sequence[ProgramSource] | None = None
        """The apps of the app file, once it was executed."""
        self._unregistered: Registration | None = None
        """The registration for an attempt that has still to be made."""
        self._secrets = KnownSecrets()
        """The secrets of the attempt, which no reason and no log has."""
        self._began = timedelta(0)
        """The CPU time of this process at the begin of the attempt."""
        self._left = ""
        """Threads and processes that user code has left running in this process."""

    def warm_up(self) -> None:
        """Start Spark, and go through its paths once if many runs are to come."""
        spark = self._spark(Path(self.start.logs) / "spark.log")
        if self.start.warm:
            spark.exercise()
        self._say(READY)

    def work(self, assignment: Assignment) -> None:
        """Work on one attempt to its end, whatever that is."""
        logs = Path(assignment.logs)
        try:
            with self.world.spawner.surrounded(logs / "stdout", logs / "stderr"):
                self._attempt(assignment)
                if self.spark is not None and self.usable:
                    self.spark.tidy()
            if self.start.warm and not self.usable and not self._left:
                self._say(LAST)  # else the next attempt is assigned to a driver that ends
        finally:
            self._say(f"{DONE} {assignment.run_id} {assignment.epoch}")

    @property
    def usable(self) -> bool:
        """True if the driver can serve another attempt."""
        return self.start.warm and not self._left and (self.spark is None or self.spark.usable)

    def _attempt(self, assignment: Assignment) -> None:
        try:
            self._register_and_work(assignment)
        except Fenced:
            self._complain()  # the attempt was not free: another process has it, or ends it

    def _register_and_work(self, assignment: Assignment) -> None:
        self.world.mark("driver.assigned")
        self._began = self.world.spawner.cpu_time()
        run_id, epoch = assignment.run_id, assignment.epoch
        facts: dict[str, object] = {"driver": self.tag, "code": self.start.code.digest}
        if self.spark is not None:
            facts |= self._describe(self.spark)
        pid, token = self.world.spawner.pid(), make_run_token(self.world, run_id)
        logs = assignment.log_location or assignment.logs
        self._unregistered = Registration(run_id, epoch, pid, facts, logs, digest_of(token))
        environ = {TOKEN_VARIABLE: token} | ({URL_VARIABLE: assignment.url} if assignment.url else {})
        try:
            with ExitStack() as attempt:
                attempt.enter_context(self.world.spawner.passed_on(environ))
                self._carry_out(assignment, facts, attempt)
        except ProgramFailed as error:
            self._end(assignment, AttemptEnd(Cause.FAILED, str(error), error.blame))
        except CodeUnavailable as error:
            self._complain()
            self._end(assignment, AttemptEnd(Cause.UNLOADED, f"{error.code}: {error}"))
        except UserError as error:
            self._complain()
            self._end(assignment, AttemptEnd(Cause.FAILED, f"{error.code}: {error}"))
        except (NotOnThisNode, StorageUnavailable) as error:
            self._complain()
            # A location or bucket that is away is no fault of the attempt; a disk that is full may be.
            cause = Cause.POSTPONED if isinstance(error, NotOnThisNode) or _is_away(error) else Cause.LOST
            node = self.world.spawner.host()
            self._end(assignment, AttemptEnd(cause, f"{error.code}: {error} (node {node})"))
        except (Conflict, Fenced, Unavailable) as error:
            # Of an attempt that was fenced this changes nothing; but a program may raise a Fenced of its own.
            self._complain()
            self._end(assignment, AttemptEnd(Cause.LOST, f"{error.code}: {error}"))

    def _register(self) -> None:
        """Register for the attempt, unless that was done: before its end, and before the app file is executed.

        In a driver that has executed the app file, the begin of the transaction registers.
        """
        if (registration := self._unregistered) is not None:
            self.catalog.write(lambda db: register(db, registration))
            self._unregistered = None
            self.world.mark("driver.registered")

    def _carry_out(self, assignment: Assignment, facts: dict[str, object], attempt: ExitStack) -> None:
        started = self.world.clock.monotonic()
        run, program, inputs, outputs = self.catalog.read(lambda db: _read(db, assignment))
        if run.bundle != program.bundle and run.replay is None:
            self._end(assignment, AttemptEnd(Cause.RETURNED, "its program was deployed again before it began"))
            return
        home = None
        if program.kind.needs_spark:
            home = self._spark(Path(assignment.logs) / "spark.log")
            facts |= self._describe(home)
        loaded = self._load(program, is_replay=run.replay is not None)
        self._hide_secrets(program, run.arguments, attempt)
        if program.kind.is_worker:
            self._register()
            self._work_until_stopped(run, program, loaded, outputs, home, facts)
            return
        starts = announce_start(run, program)
        step = Step.begin(
            "driver",
            self.catalog,
            run,
            outputs,
            self.writer,
            inputs=inputs,
            allowed=parse_allowed(str(run.arguments.get(ALLOW, ""))),
            spans=bind_spans(outputs, program.spans, run.arguments),
            announced=starts,
            registration=self._unregistered,
        )
        self._unregistered = None
        begun = self.world.clock.monotonic()
        step.take()
        self.world.mark("driver.claimed")
        with self._blaming(step):
            step.accept(loaded.acceptors)
        on_empty = run.logical_time is not None if program.run_on_empty is None else program.run_on_empty
        empty = inputs.empty and not on_empty
        if empty:
            step.outputs.complete_nothing()
        else:
            self._call(program, loaded, step, home, facts)
        open_for = self.world.clock.monotonic() - begun
        if run.is_sandbox:
            seconds = round((self.world.clock.monotonic() - started).total_seconds(), 3)
            step.verify()
            facts |= {"inputs": inputs.count(), "seconds": seconds}
            step.discard([FinishRun(run.run_id, run.epoch, SANDBOX, facts, core_time=self._measure_core_time())])
            return
        prepared = step.prepare()
        seconds = round((self.world.clock.monotonic() - started).total_seconds(), 3)
        facts |= {**step.describe(), "seconds": seconds}
        values = step.workspace.values
        finish = FinishRun(run.run_id, run.epoch, NO_INPUT if empty else "", facts, open_for, self._measure_core_time())
        published = step.outputs.publications()
        announced = [] if empty else [announce_end(run, program, RunState.COMPLETED, published, values)]
        stand = NodeStand(NodeOutcome.NO_INPUT if empty else NodeOutcome.COMPLETED, values)
        while True:
            node = self.catalog.read(lambda db: decide_node_end(db, run, stand, inputs.held)) if run.workflow else ALONE
            try:
                step.commit(prepared, [*node.before, finish, *node.after, *announced])
            except WorkflowMoved:
                continue  # another node ended meanwhile: the guards have changed nothing
            return

    def _work_until_stopped(
        self,
        run: RunRecord,
        program: Program,
        loaded: LoadedProgram,
        outputs: Mapping[str, Fileset],
        home: SparkHome | None,
        facts: Mapping[str, object],
    ) -> None:
        """Call a worker program, which commits by itself; it returns when it does not want to go on."""
        steps = Steps(self.catalog, run, program, outputs, loaded.acceptors, self.writer)
        steps.facts = facts
        worker = Worker(steps)
        session = steps.session = home.new_session() if home else None
        try:
            self._execute(loaded, worker, run, home, session)
            if steps.step is not None:
                raise NotCommitted  # noqa: TRY301  # as if its last line had raised it
        except (Fenced, NotOnThisNode):
            raise
        except (Exception, SystemExit) as error:  # whatever user code raises
            if steps.lost is not None:
                raise steps.lost from error
            raise self._failure(error, steps.step) from error
        finally:
            steps.close()
        reason = f"it returned after {steps.commits} commits"
        facts = {**facts, "commits": steps.commits}
        finish = FinishRun(run.run_id, run.epoch, reason, facts, core_time=self._measure_core_time())
        postponed = PostponeStarts(program.program_id, program.backoff, failed=False)
        self.world.mark("driver.worker_returned")
        self.catalog.apply([postponed, finish, announce_end(run, program, RunState.COMPLETED)])

    def _call(
        self, program: Program, loaded: LoadedProgram, step: Step, home: SparkHome | None, facts: dict[str, object]
    ) -> None:
        """Call the program's code; `ProgramFailed` whatever it raises. A replay adds its comparison to `facts`."""
        run = Run(step)
        session = step.workspace.session = home.new_session() if home else None
        try:
            with self._blaming(step), being_current(run):
                self._execute(loaded, run, step.record, home, session)
            if (replay := step.record.replay) is not None:
                facts |= check_replay(step.workspace, replay, program.writes)
        finally:
            if home and session and home.usable:
                home.stop_jobs(session)
            self._look_around()
        self.world.mark("driver.called")

    def _execute(
        self,
        loaded: LoadedProgram,
        given: Run | Worker,
        run: RunRecord,
        home: SparkHome | None,
        session: SparkSession | None,
    ) -> None:
        """Execute the program's code with what it is given, and have people see how far its Spark jobs are."""
        if home is None or session is None:
            loaded.code(given)
            return
        with home.watched(session, partial(self._note_stages, run)):
            loaded.code(given, session)

    def _note_stages(self, run: RunRecord, stages: Mapping[str, int]) -> None:
        """Have people see how far the jobs of an attempt are. An attempt goes on without it."""
        with suppress(TidemillError):
            self.catalog.write(lambda db: note_stages(db, run.run_id, run.epoch, stages))

    def _look_around(self) -> None:
        """Refuse further attempts after user code has left something running. Called before the commit is known."""
        left = self.world.spawner.left_running(children=not self.start.spark)
        if left and self.start.warm and not self._left:
            self._left = left
            self._say(LAST)
            self.world.spawner.complain(f"this driver takes no other run: the program has left {left} running\n")

    def _load(self, program: Program, *, is_replay: bool) -> LoadedProgram:
        """Load the code of `program`; `CodeUnavailable`, since what was deployed has loaded once: this node differs.

        Code of a replay may be too old for any node: its `BrokenApp` or `NotFound` fails the attempt.
        An app file of a bundle is executed once in the life of the process: no other process changes it.
        """
        code = self.start.code
        app_file, bundle = Path(code.app_file), Path(code.folder) if code.folder else None
        try:
            if self._apps is None or bundle is None:
                self._register()
                self._apps = load_apps(app_file, bundle)
            return choose_program(self._apps, app_file, program)
        except UserError as error:
            if is_replay:
                raise
            raise CodeUnavailable(code.digest, self.world.spawner.host(), str(error)) from error

    def _hide_secrets(self, program: Program, given: Mapping[str, Value], attempt: ExitStack) -> None:
        """Read the secrets among the arguments, and hide them until the end of the attempt.

        `NoSecret` before the attempt has taken anything.
        """
        revealed = program.reveal(self.world, given)
        places = {str(found): str(given[name]) for name, found in revealed.items() if found != given[name]}
        self._secrets = KnownSecrets(places)
        if self._secrets:
            attempt.enter_context(self.world.spawner.printed_through(self._secrets))

    @contextmanager
    def _blaming(self, step: Step) -> Iterator[None]:
        """Turn what user code raises in the block into `ProgramFailed`, which says what of its claims is to blame."""
        try:
            yield
        except (Fenced, CatalogUnavailable, LostReply, NotOnThisNode):
            raise  # the doing of the catalog or of this node, which uses up no retries
        except (Exception, SystemExit) as error:  # whatever user code raises
            if _is_away(error):
                raise
            for taken in step.inputs.taken.values():
                taken.check_location(self.world)  # else the program is blamed
            raise self._failure(error, step) from error

    def _failure(self, error: BaseException, step: Step | None) -> ProgramFailed | SparkLost:
        from tidemill.run.processes.session import SparkLost

        self._complain()
        text = "".join(traceback.format_exception(error))
        reason = f"{type(error).__name__}: {spark_reason(self._secrets.hide(str(error)))}"
        if self.spark is not None and self.spark.lost:
            return SparkLost(reason)
        if step is None:
            return ProgramFailed(reason, Blame(reason))
        damage = step.workspace.reads.blame(text)
        if damage is not None:
            reason = f"{type(damage).__name__}: {damage}"
        return ProgramFailed(reason, step.inputs.blame(step.workspace, text, reason))

    def _end(self, assignment: Assignment, end: AttemptEnd) -> None:
        # If another process has the attempt, that process ends it.
        self._register()
        reason = self._secrets.hide(end.reason)
        measured = replace(end, reason=reason, core_time=self._measure_core_time())
        end_attempt(self.catalog, assignment.run_id, assignment.epoch, measured)

    def _measure_core_time(self) -> timedelta | None:
        """Return the time for which the attempt has held cores. None if Spark cannot say its part."""
        cpu = self.world.spawner.cpu_time() - self._began
        of_tasks = timedelta(0) if self.spark is None else self.spark.task_time.measure()
        return None if of_tasks is None else cpu + of_tasks

    def _spark(self, log: Path) -> SparkHome:
        from tidemill.run.processes.session import SparkHome

        if self.spark is None:
            self.spark = SparkHome(
                self.world,
                self.folder,
                self.start.spark_settings,
                log,
                modules=self.start.code.folder,
                tag=self.tag,
                secret=self.world.environ.get(SECRET_VARIABLE, ""),
            )
        else:
            self.spark.log_to(log)
        return self.spark

    def _describe(self, home: SparkHome) -> dict[str, object]:
        """Return the facts about the Spark of an attempt."""
        facts: dict[str, object] = {"spark": home.application_id, "spark_conf": home.settings}
        submitted = self.world.environ.get(SUBMITTED_VARIABLE, "")
        named = {"spark_profile": self.start.profile, "spark_ui": home.ui, SPARK_DRIVER: submitted}
        return facts | {name: value for name, value in named.items() if value}

    def _complain(self) -> None:
        """Put the exception that is being handled into the attempt's log."""
        self.world.spawner.complain(self._secrets.hide(traceback.format_exc()))

    def _say(self, line: str) -> None:
        self.world.disk.append(self.folder / STATUS, f"{line}\n")


def _is_away(error: BaseException) -> bool:
    """Return whether a location did not answer: such an attempt uses up no retries, and blames no file."""
    if not isinstance(error, StorageUnavailable) or isinstance(error, FileUnreadable):
        return False
    return not error.name or is_object_store(error.location)


def _read(db: Db, assignment: Assignment) -> tuple[RunRecord, Program, Inputs, dict[str, Fileset]]:
    run, program = find_with_program(db, assignment.run_id)
    assert program is not None, "drivers work on runs of programs"  # noqa: S101
    if run.workflow is not None and (workflow := find_workflow(db, run.workflow)) is not None:
        check_held(workflow.spec.find(run.node), program)
    outputs = {name: Fileset.of(find_dataset(db, name)) for name in program.writes}
    inputs = find_inputs(db, program, run)
    return run, program, inputs, outputs | inputs.outputs(db)


def main(world: World | None = None, *, writer: Writer = write_frames) -> None:
    """Serve until there is nothing more to serve; the watchdog ends this process with its runner."""
    lines = live_with_parent()
    world = world or World()
    start = read_text(DriverSetup, next(lines))
    world = replace(world, stores=start.stores)
    catalog = open_catalog(start.catalog_url, world, create=False, node=start.node)
    tag = world.environ["TIDEMILL_PROCESS"].rpartition("/")[2]
    driver = DriverProcess(world, catalog, start, tag, writer=writer)
    if start.spark:
        driver.warm_up()
    for line in lines:
        driver.work(read_text(Assignment, line))
        if not driver.usable:
            return


if __name__ == "__main__":
    main()
