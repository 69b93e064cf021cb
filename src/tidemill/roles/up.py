"""The process of a node, such as `tidemill up`: its roles as threads, which share nothing but the catalog."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from tidemill.alerts.connecting import Reach
from tidemill.app.edits import Edits
from tidemill.catalog.db import Catalog, Db
from tidemill.errors import TidemillError
from tidemill.lake.inbox import leaving
from tidemill.mill.mill import Mill
from tidemill.names import DatasetId
from tidemill.narration import Narrator, log_to
from tidemill.roles.alerter import Alerter
from tidemill.roles.collecting import collecting_seldom
from tidemill.roles.discoverer import Discoverer
from tidemill.roles.janitor import LEAVE_SOON, Janitor, MachineJanitor
from tidemill.roles.keeper import LOOK_AGAIN, Keeper
from tidemill.roles.loops import AWAY, LONGEST_NAP, SHORTEST_NAP, Loops, loop
from tidemill.roles.node import Node
from tidemill.roles.process_end import asked_by_signals
from tidemill.run.processes.cluster import cluster_environ, page_port_of
from tidemill.run.processes.local_launcher import DriverOptions, LocalLauncher, ProfileOptions
from tidemill.run.processes.runner import Runner
from tidemill.run.processes.session import require_spark, settings_of
from tidemill.run.records.bundles import AppCode, find_code
from tidemill.run.records.logs import LogKeeper
from tidemill.run.records.nodes import NodeRole, count_free_slots
from tidemill.run.records.programs import Program, ProgramKind, list_programs
from tidemill.run.records.runs import has_unfinished
from tidemill.schedule import backfill_records
from tidemill.schedule.jobs import JobState, list_jobs
from tidemill.schedule.loop import Scheduler
from tidemill.schedule.probes import Source, read_spark_load
from tidemill.schedule.subscriber import has_messages
from tidemill.storage.hints import FolderHints

_LOOK_OUT_EVERY: Final = timedelta(seconds=2)


class Served(Protocol):
    """The server of a process: REST and pages."""

    @property
    def url(self) -> str:
        """The address for browsers."""

    def start(self, failed: Callable[[BaseException], None]) -> str:
        """Serve beside everything else; return a link that signs a browser in once, or an empty text.

        An error that ends the server is given to `failed`.
        """

    def stop(self) -> None:
        """End the server, unless it has ended."""


class UntilIdle(StrEnum):
    """The rest at which a process ends: nothing runs, waits or is due, by data or time; or by data alone.

    With `DATA` the process starts nothing by a time trigger, so that a short interval cannot keep it up for ever.
    """

    ALL = "all"
    DATA = "data"


def run_node(
    mill: Mill,
    *,
    echo: Callable[[str], None],
    roles: Collection[NodeRole] = frozenset(NodeRole),
    deploy: bool = True,
    until_idle: UntilIdle | None = None,
    drain: timedelta = timedelta(0),
    as_json: bool = False,
    server: Served | None = None,
) -> None:
    """Run the loops of `roles`, and a server if there is one, until SIGINT or SIGTERM, or until `until_idle` holds.

    At the end the runner takes no more runs. Runs get `drain` to end by themselves; then their drivers are ended, and
    the runs returned. A node that is asked to drain ends when its last run has ended. An error of a role ends all roles
    and is raised. `until_idle` needs all roles.
    """
    narrator = Narrator(mill.project.world, echo, as_json=as_json)
    with log_to(narrator, as_json=as_json), ExitStack() as last:
        if server is not None:
            last.callback(server.stop)  # also if nothing starts
        deployed = [done.sentence() for done in mill.deploy()] if deploy else None
        last.enter_context(collecting_seldom())
        _NodeProcess(mill, narrator, roles, deployed).run(until_idle, drain, server)


class _NodeProcess:
    """The loops of a process, and what they share. `deployed` is None if the process reads no app file."""

    def __init__(self, mill: Mill, narrator: Narrator, roles: Collection[NodeRole], deployed: list[str] | None) -> None:
        self._mill = mill
        self._world, self._config, self._catalog = mill.project.world, mill.project.config, mill.project.catalog
        self._narrator = narrator
        self._roles = roles
        self._deployed = deployed
        self._loops = Loops(self._catalog, self._world)
        self._runner: Runner | None = None
        self._discoverer: Discoverer | None = None
        self._wake_scheduler: Callable[[], None] = lambda: None

    @property
    def _busy(self) -> int:
        return 0 if self._runner is None else self._runner.busy

    def run(self, until_idle: UntilIdle | None, drain: timedelta, server: Served | None) -> None:
        """Start all loops, wait for the end, and end all in order."""
        loops, world = self._loops, self._world
        # A signal right after the line `ready` ends all in order too. After an error as well all threads end: one that
        # is left keeps the process alive.
        with asked_by_signals(loops.ending), ExitStack() as ending:
            self._start(ending, until_idle, server)
            while not loops.ending.wait(LONGEST_NAP if until_idle is None else AWAY):
                if until_idle is not None and self._is_idle():
                    break
            loops.draining = True
            if server is not None:
                server.stop()
            give_up_at = world.clock.monotonic() + drain
            while self._busy and world.clock.monotonic() < give_up_at and not loops.failed:
                world.clock.sleep(SHORTEST_NAP)
        state = self._config.state
        self._narrator.tell("stopped", str(self._config.folder), f"state stays in {state}", state=str(state))

    def _start(self, ending: ExitStack, until_idle: UntilIdle | None, server: Served | None) -> None:
        loops, is_runner = self._loops, NodeRole.RUNNER in self._roles
        slots = self._config.slots if is_runner else 0
        node = Node(self._catalog, self._roles, slots, loops=loops, busy=lambda: self._busy)
        ending.callback(node.leave)
        ending.callback(self._leave_inboxes)
        launcher = _make_launcher(self._mill) if is_runner else None
        if launcher is not None:
            _keep_logs(self._mill, loops, launcher.options.logs, ending)
        ending.callback(loops.stop)
        spark = None if launcher is None else _warm_up(self._mill, launcher)
        node.join()
        self._tell_ready(node, spark, server)
        if server is not None:
            ending.callback(server.stop)
            if link := server.start(loops.fail):
                text = "signs one browser in, within 10 minutes; `tidemill open` makes another"
                self._narrator.tell("open", link, text, link=link)
        if NodeRole.SCHEDULER in self._roles:
            self._start_scheduler(ending, timers=until_idle is not UntilIdle.DATA)
        if launcher is not None:
            self._start_runner(launcher)
        if NodeRole.JANITOR in self._roles:
            self._start_janitor()
        elif is_runner:
            loops.start(
                "janitor of this machine", loop(self._world, MachineJanitor(self._catalog, self._config.state).step)
            )
        loops.start("place", loop(self._world, partial(_look_for, self._catalog)))
        if self._deployed is not None:
            edits = Edits(self._catalog, self._config, self._tell_edited)
            loops.start("edits", loop(self._world, partial(_look_at, edits)))

    def _tell_ready(self, node: Node, spark: str | None, server: Served | None) -> None:
        folder = self._config.folder
        shown = self._catalog.shown_url.removeprefix(f"sqlite:///{folder}/")
        parts = [f"catalog {shown}"]
        if len(self._roles) < len(NodeRole):
            parts.append(f"{', '.join(node.roles)} {node.node_id}")
        if spark is not None:
            parts.append(f"spark {spark}")
        if NodeRole.SCHEDULER in self._roles and NodeRole.RUNNER in self._roles:
            parts.append(f"deployed {'; '.join(self._deployed or ()) or 'nothing new'}")
        place = str(folder) if server is None else server.url
        self._narrator.tell(
            "ready",
            place,
            "   ".join(parts),
            catalog=shown,
            spark=spark,
            deployed=self._deployed or [],
            node_id=node.node_id,
            roles=node.roles,
        )

    def _tell_edited(self, text: str) -> None:
        self._narrator.tell("edited", self._config.app.name, text, message=text)

    def _start_scheduler(self, ending: ExitStack, *, timers: bool) -> None:
        hints: FolderHints[DatasetId] = FolderHints()
        ending.callback(hints.close)
        self._discoverer = Discoverer(self._catalog, self._narrator, hints)
        keeper = Keeper(self._catalog, self._discoverer)
        spark = self._config.spark
        probes: dict[str, Source] = {
            "free_slots": lambda: self._catalog.read(count_free_slots),
            "spark_load": partial(read_spark_load, spark.master, page_port_of(spark.conf)),
        }
        scheduler = Scheduler(
            self._catalog,
            self._world,
            self._narrator.launched,
            timers=timers,
            probes=probes,
            most_launches=self._config.most_launches,
        )
        alerter = Alerter(
            self._catalog,
            self._world,
            Reach(self._config.private_hosts),
            self._config.state,
            on_event=self._narrator.alerted,
            on_dead=self._narrator.gave_up,
        )
        self._wake_scheduler = self._loops.start("scheduler", scheduler.run, Scheduler.AWAITED).wake
        self._loops.start("keeper", loop(self._world, keeper.step, look_again=LOOK_AGAIN, hints=hints), Keeper.AWAITED)
        ending.callback(alerter.stop)
        alerter.start(self._loops)

    def _leave_inboxes(self) -> None:
        if self._discoverer is not None:
            self._discoverer.leave()

    def _start_runner(self, launcher: LocalLauncher) -> None:
        config = self._config
        self._runner = runner = Runner(
            self._world, self._catalog, launcher, slots=config.slots, lease=config.lease, on_event=self._narrator.ran
        )
        self._loops.start("runner", partial(runner.run, taking=lambda: not self._loops.draining), Runner.AWAITED)

    def _start_janitor(self) -> None:
        sweeper = Janitor.of(self._catalog, self._config)
        self._loops.start("janitor", loop(self._world, sweeper.step))
        leaving = loop(self._world, sweeper.empty_inboxes, look_again=LEAVE_SOON)
        self._loops.start("janitor of inboxes", leaving, Janitor.AWAITED)

    def _is_idle(self) -> bool:
        if self._discoverer is None or not self._discoverer.looked or self._runner is None or self._runner.busy:
            return False
        # Runs that need something that this node lacks wait for other nodes.
        avoided = self._runner.avoided()
        idle = self._catalog.read(lambda db: is_idle(db, avoided))
        if not idle:
            # Messages that no schedule hears wake no scheduler. They are work until a scheduler has read them.
            self._wake_scheduler()
        return idle


def _make_launcher(mill: Mill) -> LocalLauncher:
    """Make the launcher of this node from the settings of the project."""
    world, config, catalog = mill.project.world, mill.project.config, mill.project.catalog
    options = DriverOptions(
        catalog.url,
        config.state,
        config.cache,
        class_data=config.spark_class_data,
        keeps_logs=bool(config.logs),
        node=catalog.node,
        profiles={
            one.name: ProfileOptions(
                settings_of(config, one.name), one.warm, partial(cluster_environ, world, one), one.on_cluster
            )
            for one in (config.spark, *config.spark_profiles.values())
        },
    )
    return LocalLauncher(world, options)


def _keep_logs(mill: Mill, loops: Loops, folder: Path, ending: ExitStack) -> None:
    """Put logs into the location of the setting `logs`, if there is one, until `loops` have ended."""
    config = mill.project.config
    if config.logs:
        keeper = LogKeeper(mill.project.catalog, mill.project.world, folder, config.logs)
        ending.callback(keeper.step)
        loops.start("keeper of logs", loop(mill.project.world, keeper.step))


def _warm_up(mill: Mill, launcher: LocalLauncher) -> str:
    """Start drivers before runs need them, and return the state of Spark for people.

    Raises `NoSpark`: without PySpark each run of such a program would fail, and its good files would be blamed.
    """
    config = mill.project.config
    programs = [program for program in mill.project.catalog.read(list_programs) if not program.retired]
    plain = [program for program in programs if program.kind is ProgramKind.PYTHON]
    spark = [program for program in programs if program.kind.needs_spark]
    if plain:
        with suppress(TidemillError, OSError):  # the first run says why
            launcher.keep(_code_of(mill, plain), None)
    if not spark:
        return f"{config.spark.master} not needed"
    require_spark()
    return ", ".join(
        _warm_profile(mill, launcher, profile, [one for one in spark if one.spark_profile == profile])
        for profile in sorted({one.spark_profile for one in spark})
    )


def _warm_profile(mill: Mill, launcher: LocalLauncher, profile: str, programs: Sequence[Program]) -> str:
    """Start drivers of one Spark profile, and return its state for people."""
    found = mill.project.config.spark_profile(profile)
    if found is None:
        return f"{profile} not configured here"
    shown = f"{profile} ({found.master})" if profile else found.master
    if found.warm == 0:
        return f"{shown} cold"
    try:
        launcher.keep(_code_of(mill, programs), profile)
    except (TidemillError, OSError) as error:
        return f"{shown} not available: {error}"
    return f"{shown} warming"


def _code_of(mill: Mill, programs: Sequence[Program]) -> AppCode:
    """Find the code of a program of this project's app file, if there is one, else of the first program."""
    first = next((program for program in programs if program.app_file == str(mill.project.config.app)), programs[0])
    return find_code(mill.project.catalog, mill.project.config.state, first, first.bundle)


def _look_for(catalog: Catalog) -> timedelta:
    catalog.check_place()
    return _LOOK_OUT_EVERY


def _look_at(edits: Edits) -> timedelta:
    edits.step()
    return _LOOK_OUT_EVERY


def is_idle(db: Db, avoided: Sequence[str]) -> bool:
    """Tell whether nothing runs, waits or is due, apart from runs that this node leaves to others."""
    now = db.now()
    jobs = list_jobs(db)
    waiting = any(job.state is not JobState.PENDING_TRIGGER for job in jobs)
    unchecked = any(job.next_check_at is not None and job.next_check_at <= now for job in jobs)
    due = has_messages(db) or backfill_records.is_due(db) or leaving.is_due(db)
    return not (waiting or unchecked or due or has_unfinished(db, avoided))
