"""The Spark session that all tests share, as a driver's home of Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

from tidemill.config import load_config
from tidemill.run.processes.session import read_settings, spark_of_our_own
from tidemill.run.processes.task_time import TaskTime
from tidemill.world import World


class SharedSpark:
    """A home of Spark over a session that outlives the driver; each run gets a session of its own."""

    usable = True
    lost = False
    application_id = "shared"
    ui = None

    def __init__(self, session: Any) -> None:
        self.session = session
        self.task_time = TaskTime(session)

    @cached_property
    def settings(self) -> dict[str, str]:
        """The settings that are in force."""
        return read_settings(self.session)

    def new_session(self) -> Any:
        """Make a session with settings, temporary views and functions of its own."""
        self.task_time.start_over()
        return self.session.newSession()

    def log_to(self, log: Path) -> None:
        """Leave the log where the test has it."""

    def watched(self, *_: object) -> AbstractContextManager[None]:
        """Tell nothing: other users of the session have jobs, too."""
        return nullcontext()

    def stop_jobs(self, session: Any) -> None:
        """Leave other users of the session alone."""

    def exercise(self) -> None:
        """Do nothing: the session is warm, or soon will be."""

    def tidy(self) -> None:
        """Leave the session as it is."""


@contextmanager
def start_shared(folder: Path) -> Iterator[Any]:
    """Start a session for a block, with its state in `folder`, or share the one that this process has."""
    world = World()
    config = load_config(world, folder, {"spark.master": "local[2]"})
    with spark_of_our_own(world, config, {"spark.sql.shuffle.partitions": "2"}) as session:
        yield session
