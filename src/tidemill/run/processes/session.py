"""The Spark of one driver: started, exercised, given to one run at a time as a session of its own, tidied between."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from tidemill.config import REDACTION, SENSITIVE, Config, is_local_master, masked
from tidemill.errors import Unavailable
from tidemill.frames.jdbc import DRIVERS_SETTING
from tidemill.frames.jvm import gateway_of, jvm_of
from tidemill.frames.local_files import set_permissions_in_jvm
from tidemill.frames.spark import PINNED, USUAL
from tidemill.frames.spark_way import forget_copies
from tidemill.lake.fileset.stored import FILE_BYTES
from tidemill.run.processes.cluster import (
    DRIVER_BIND,
    DRIVER_HOST,
    SECRET,
    SECRET_VARIABLE,
    SUBMITTED_VARIABLE,
    cluster_environ,
    cluster_settings,
    find_route,
)
from tidemill.run.processes.java import find_java, spark_environ
from tidemill.run.processes.task_time import TaskTime
from tidemill.run.records.bundles import read_unpacked
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_MASTER: Final = "spark.master"
_TIME_ZONE: Final = "spark.sql.session.timeZone"
_ALWAYS: Final = {
    "spark.ui.killEnabled": "false",
    "spark.ui.showConsoleProgress": "false",
    _TIME_ZONE: "UTC",
    "spark.sql.catalogImplementation": "in-memory",
    # Python workers import the modules that were deployed, not those that lie in the working folder.
    "spark.executorEnv.PYTHONSAFEPATH": "1",
    **PINNED,
}
"""The settings that a site cannot change: results must not depend on them."""
_HERE: Final = {DRIVER_HOST: "127.0.0.1", DRIVER_BIND: "127.0.0.1"}
"""The settings of a Spark on this machine alone, which must not listen beyond it."""

_PAGES: Final = "spark.ui.enabled"
_USUAL: Final = {
    **USUAL,
    # Spark's pages have no sign-in: by SPARK_LOCAL_IP they listen on this machine alone.
    _PAGES: "true",
    # Spark tries 16 ports from 4040 on. A seventeenth driver would not start.
    "spark.ui.port": "0",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": str(FILE_BYTES),
    # HotSpot compiles no method of more than 8,000 bytes, and Spark's own limit is 65,535. The strict reading of CSV
    # with seven typed columns makes one of 9,067: with this limit it takes two thirds of the CPU (measured).
    "spark.sql.codegen.hugeMethodLimit": "8000",
}
"""The settings that a site may change."""
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_OF_ONE_PROCESS: Final = frozenset(
    {
        _JAVA_OPTIONS,
        "spark.executor.extraJavaOptions",
        "spark.app.id",
        "spark.app.initial.jar.urls",
        "spark.executorEnv.TIDEMILL_DRIVER",
        "spark.app.startTime",
        "spark.app.submitTime",
        "spark.driver.port",
        "spark.executor.id",
        "spark.local.dir",
        "spark.sql.warehouse.dir",
    }
)
"""The settings that differ from driver to driver by ports, times and folders, and those with options of the JVM."""
_TELL_EVERY: Final = timedelta(seconds=2)
"""The interval at which the progress of jobs goes into the record of a run: a short run costs nothing."""
_SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
_SHUFFLES_A_CORE: Final = 4

_LOG4J: Final = """\
rootLogger.level = warn
rootLogger.appenderRef.route.ref = route
logger.scheduler.name = org.apache.spark.scheduler.DAGScheduler
logger.scheduler.level = info
appender.route.type = Routing
appender.route.name = route
appender.route.routes.type = Routes
appender.route.routes.pattern = $${sys:tidemill.log}
appender.route.routes.file.type = Route
appender.route.routes.file.appender.type = File
appender.route.routes.file.appender.name = ${sys:tidemill.log}
appender.route.routes.file.appender.append = true
appender.route.routes.file.appender.fileName = ${sys:tidemill.log}
appender.route.routes.file.appender.layout.type = PatternLayout
appender.route.routes.file.appender.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z %p %c{1}: %m%n%ex
appender.route.purge.type = IdlePurgePolicy
appender.route.purge.timeToLive = 1
appender.route.purge.timeUnit = MINUTES
"""


class NoSpark(Unavailable):
    """PySpark is not installed where Tidemill is."""

    code = "no_spark"

    def __init__(self) -> None:
        super().__init__(
            f"PySpark is not installed for {sys.executable}, and programs that read or write with Spark need it",
            '`pip install "tidemill[spark]"` (about 480 MB)',
            before=": ",
        )


def require_spark() -> None:
    """Raise `NoSpark` where PySpark is not installed, without importing PySpark."""
    if importlib.util.find_spec("pyspark") is None:
        raise NoSpark


class SparkLost(Unavailable):
    """Spark has ended while a program used it: no fault of the program, unless it happens again and again."""

    code = "spark_lost"

    hint = "read spark.log of the attempt for the cause"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"Spark has ended while the program used it: {why}")


class SparkHome:
    """A Spark application and its JVM, which live as long as this process."""

    def __init__(
        self,
        world: World,
        folder: Path,
        settings: Mapping[str, str],
        log: Path,
        *,
        modules: str = "",
        tag: str = "",
        secret: str = "",
    ) -> None:
        """Start it: some 5 s. To be called from the main thread, whose end would end the JVM's standard input.

        The nodes of a cluster get the Python modules of the folder `modules`, and their executors the variable
        `TIDEMILL_DRIVER` with the `tag` of this driver, so that people find whose they are. `secret` is the cluster's.
        """
        from pyspark import SparkConf, SparkContext
        from pyspark.sql import SparkSession

        scratch = folder / "scratch"
        world.disk.make_folder(scratch)
        log4j = folder / "log4j2.properties"
        world.disk.write_bytes(log4j, _LOG4J.encode())
        java_options = [
            settings.get(_JAVA_OPTIONS, ""),
            f"-Dlog4j2.configurationFile={log4j.as_uri()}",
            f"-Dtidemill.log={log}",
            f"-Djava.io.tmpdir={scratch}",
            "-Duser.timezone=UTC",
        ]
        master = settings.get(_MASTER, "local[*]")
        conf = SparkConf().setMaster(master).setAppName("tidemill")
        submitted = SUBMITTED_VARIABLE in world.environ
        # On a worker of a cluster, Spark's pages would listen on the addresses of the worker.
        conf.setAll(list((_USUAL | ({_PAGES: "false"} if submitted else {})).items()))
        conf.setAll([(name, value) for name, value in settings.items() if name != _MASTER])
        conf.setAll(list((_ALWAYS | (_HERE if is_local_master(master) else find_route(master, settings))).items()))
        conf.set(REDACTION, "|".join(filter(None, [settings.get(REDACTION, ""), SENSITIVE])))
        conf.set(_JAVA_OPTIONS, " ".join(filter(None, java_options)))
        conf.set("spark.local.dir", str(scratch))
        conf.set("spark.sql.warehouse.dir", str(folder / "warehouse"))
        if tag:
            conf.set("spark.executorEnv.TIDEMILL_DRIVER", tag)
        self._world = world
        self._folder = folder
        if secret or submitted:
            # PySpark starts the JVM with all settings as arguments, which all users of the machine see.
            SparkContext._ensure_initialized(conf=conf)  # noqa: SLF001  # PySpark has no other way
        if secret:
            conf.set(SECRET, secret)
        if submitted:
            # The JVM was there before these files.
            jvm: Any = SparkContext._jvm  # noqa: SLF001  # PySpark has no other way
            jvm.java.lang.System.setProperty("tidemill.log", str(log))
            jvm.org.apache.logging.log4j.core.config.Configurator.reconfigure(jvm.java.net.URI(log4j.as_uri()))
        self._base: SparkSession = SparkSession.builder.config(conf=conf).getOrCreate()
        self._next: SparkSession | None = None
        """A session that no run has had."""
        self.task_time = TaskTime(self._base)
        """The running time of the tasks of the present run."""
        context = self._base.sparkContext
        if modules and not is_local_master(master):
            archive = folder / "modules.zip"
            world.disk.write_bytes(archive, read_unpacked(world.disk, Path(modules)).to_zip())
            context.addPyFile(str(archive))
        set_permissions_in_jvm(self._base)
        is_local = master == "local" or master.startswith("local[")
        # Spark's 200 are for a cluster: on two cores a program of a few rows spends half of its time on empty ones.
        fitting = is_local and _SHUFFLE_PARTITIONS not in settings
        self._shuffle_partitions = context.defaultParallelism * _SHUFFLES_A_CORE if fitting else None
        options = {name: value for name, value in settings.items() if name.endswith(".extraJavaOptions")}
        self.settings = read_settings(self._base) | masked(options)
        """The settings of Spark that runs record: those in force, without those of this process alone."""
        if self._shuffle_partitions is not None:
            self.settings[_SHUFFLE_PARTITIONS] = str(self._shuffle_partitions)

    @property
    def application_id(self) -> str:
        """Spark's name for it."""
        return str(self._base.sparkContext.applicationId)

    @property
    def ui(self) -> str | None:
        """The address of its own pages, on the machine of the driver; None where `spark.ui.enabled` is off."""
        address = self._base.sparkContext.uiWebUrl
        if address is None or SUBMITTED_VARIABLE in self._world.environ:
            return address
        # Spark names the address at which executors reach the driver. Its pages do not listen there.
        parts = urlsplit(address)
        return parts._replace(netloc=f"127.0.0.1:{parts.port}").geturl()

    @property
    def usable(self) -> bool:
        """Return whether another run can have it: a program may have stopped it, or it is lost."""
        return self._java_context is not None and not self.lost

    @property
    def lost(self) -> bool:
        """Return whether it has ended by itself: its JVM has ended, or ends as the worker under it has ended.

        A program that stops it with `spark.stop()` has not lost it.
        """
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]

        try:
            return self._java_context is not None and bool(self._java_context.sc().isStopped())
        except (Py4JError, OSError):
            return True

    @property
    def _java_context(self) -> Any:  # noqa: ANN401  # an object of the JVM
        """The context in the JVM; None after the program has stopped it."""
        return self._base.sparkContext._jsc  # noqa: SLF001  # PySpark has no other way

    def exercise(self) -> None:
        """Go once through reading, shuffling and writing, so that the first run does not wait for classes.

        The nodes of a cluster have no folder of this machine: there it is shuffling alone.
        """
        frame = self._base.range(0, 1000, 1, 2).selectExpr("id", "id % 7 AS part")
        if is_local_master(str(self._base.sparkContext.master)):
            place = str(self._folder / "exercise")
            frame.write.partitionBy("part").mode("overwrite").parquet(place)
            frame = self._base.read.parquet(place)
        frame.groupBy("part").count().collect()
        self._start_over()

    def end(self) -> None:
        """Stop Spark, and wait until its JVM has ended by itself. This process may start another Spark after it."""
        from pyspark import SparkContext

        jvm = gateway_of(self._base).proc
        self._base.stop()
        jvm.stdin.close()
        jvm.wait()
        # PySpark would connect the next Spark to the JVM that has ended.
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001  # PySpark has no other way

    def new_session(self) -> SparkSession:
        """A session for one run: settings, temporary views and functions of its own."""
        from pyspark.sql import SparkSession

        session, self._next = self._next or self._make_session(), None
        # What `SparkSession.builder.getOrCreate()` in the program's code gives.
        SparkSession._instantiatedSession = session  # noqa: SLF001  # PySpark keeps the first one there
        SparkSession._activeSession = session  # noqa: SLF001
        jvm = jvm_of(session)
        jvm.SparkSession.setDefaultSession(session._jsparkSession)  # noqa: SLF001
        jvm.SparkSession.setActiveSession(session._jsparkSession)  # noqa: SLF001
        return session

    def _make_session(self) -> SparkSession:
        session = self._base.newSession()
        if self._shuffle_partitions is not None:
            session.conf.set(_SHUFFLE_PARTITIONS, self._shuffle_partitions)
        return session

    def log_to(self, log: Path) -> None:
        """Send the JVM's log to another file."""
        jvm_of(self._base).java.lang.System.setProperty("tidemill.log", str(log))

    @contextmanager
    def watched(self, session: SparkSession, tell: Callable[[Mapping[str, int]], None]) -> Iterator[None]:
        """For a block: tell the stages and tasks of the jobs of `session` that are under way, whenever they change."""
        told: dict[str, int] = {}

        def step() -> bool:
            found = count_stages(session.sparkContext)
            if found and found != told:
                tell(found)
                told.update(found)
            return True

        with self._world.beside("stages", _TELL_EVERY, step):
            yield

    def stop_jobs(self, session: SparkSession) -> None:
        """Stop what a program has left running: streaming queries and jobs. Call before the commit."""
        for query in session.streams.active:
            query.stop()
        session.sparkContext.cancelAllJobs()

    def tidy(self) -> None:
        """Leave nothing of a run to the next, and make the next session: cached data, global views."""
        self._base.catalog.clearCache()
        views = self._base._jsparkSession.sharedState().globalTempViewManager()  # noqa: SLF001  # a list by SQL: 0.1 s
        views.clear()
        forget_copies(self._world)
        self._start_over()

    def _start_over(self) -> None:
        self._next = self._make_session()
        self.task_time.start_over()


def count_stages(context: SparkContext) -> dict[str, int]:
    """Count the stages and the tasks of all jobs that are under way, and those of them that are done.

    Empty without such a job. Stages that Spark skips, since their result is there, count as done.
    """
    tracker = context.statusTracker()
    stages = stages_done = tasks = tasks_done = 0
    for job_id in tracker.getActiveJobsIds():
        job = tracker.getJobInfo(job_id)
        for stage_id in job.stageIds if job is not None else ():
            stages += 1
            stage = tracker.getStageInfo(stage_id)
            if stage is None:
                continue  # it has not begun
            tasks += stage.numTasks
            tasks_done += stage.numCompletedTasks
            stages_done += stage.numCompletedTasks >= stage.numTasks
    if not stages:
        return {}
    return {"stages": stages, "stages_done": stages_done, "tasks": tasks, "tasks_done": tasks_done}


def read_settings(session: SparkSession) -> dict[str, str]:
    """Return the settings that are in force, secrets masked, without those that differ from driver to driver."""
    settings = dict(session.sparkContext.getConf().getAll())
    return masked({name: settings[name] for name in sorted(settings) if name not in _OF_ONE_PROCESS})


def settings_of(config: Config, profile: str = "") -> dict[str, str]:
    """Return the settings of a site for each Spark that Tidemill starts: those of `[spark]`, or of a named profile."""
    found = config.spark_profiles[profile] if profile else config.spark
    return {_MASTER: found.master, DRIVERS_SETTING: config.jdbc_drivers, **cluster_settings(found), **found.conf}


@contextmanager
def spark_of_our_own(
    world: World, config: Config, changed: Mapping[str, str] = MappingProxyType({})
) -> Iterator[SparkSession]:
    """A session of its own for a block: of the Spark that this process has, which is left alone, or of a new one.

    The new one has the settings of `[spark]`, but for those `changed`. Its pages are off unless a setting wants them. A
    start takes some 8 s; scratch and log lie in the state folder meanwhile. For commands that need Spark and run no
    program, and for notebooks, which may have it. `NoSpark`, `NoJava`.
    """
    require_spark()
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is not None:  # noqa: SLF001  # PySpark has no other way to ask
        session = SparkSession.builder.getOrCreate().newSession()
        session.conf.set(_TIME_ZONE, _ALWAYS[_TIME_ZONE])
        yield session
        return
    folder = config.state / "drivers" / world.new_id("session")
    world.disk.make_folder(folder)
    environ = {**spark_environ(find_java(world, config.cache)), **cluster_environ(world, config.spark)}
    try:
        with world.spawner.passed_on(environ):
            settings, secret = {_PAGES: "false", **settings_of(config), **changed}, environ.get(SECRET_VARIABLE, "")
            home = SparkHome(world, folder, settings, folder / "spark.log", secret=secret)
            try:
                yield home.new_session()
            finally:
                home.end()
    finally:
        world.disk.remove(folder)
