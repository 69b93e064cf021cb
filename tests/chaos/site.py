"""Site of the chaos: the data that its processes work on, and their notes, which no catalog can lose."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.chaos.minutes import WINDOWS
from tidemill.catalog.db import Catalog
from tidemill.lake.fileset.fileset import Fileset
from tidemill.mill.mill import Mill, open_project
from tidemill.names import Namespace
from tidemill.run.records.declared import find_dataset
from tidemill.world import World

MARK: Final = "TIDEMILL_CHAOS"
"""The environment variable that all processes of a site inherit: what carries it at the end is an orphan."""
STARTS: Final = "(starts)"
WAITS: Final = "(waits)"
"""Stand of a process that has not begun to work, and of a process that has nothing to do; else the stand is a mark."""
DATASETS: Final = (
    "lines", "pairs", "loaded", "totals", "final", "ticks", "shelves", "hours", *(f"by_{name}" for name in WINDOWS)
)  # fmt: skip


class Kind(StrEnum):
    """Kind of a forked process, by its work. A runner starts the drivers."""

    WRITER = "writer"
    TICKER = "ticker"
    LANDER = "lander"
    PERSON = "person"
    FOLLOWER = "follower"
    WORKER = "worker"
    SCHEDULER = "scheduler"
    DISCOVERER = "discoverer"
    REAPER = "reaper"
    JANITOR = "janitor"
    RUNNER = "runner"


@dataclass(frozen=True, slots=True)
class Site:
    """A catalog, and a folder with the project and its data."""

    folder: Path
    catalog_url: str
    lease: timedelta

    def to_json(self) -> str:
        """For the command line of a process."""
        return json.dumps({**asdict(self), "folder": str(self.folder), "lease": self.lease.total_seconds()})

    @classmethod
    def from_json(cls, text: str) -> Site:
        """The inverse of `to_json`."""
        fields = json.loads(text)
        return cls(Path(fields["folder"]), fields["catalog_url"], timedelta(seconds=fields["lease"]))

    @property
    def app_file(self) -> Path:
        """The project's app file."""
        return self.folder / "app.py"

    @property
    def landing(self) -> Path:
        """The folder that the inbox watches."""
        return self.folder / "landing"

    @property
    def parcels(self) -> Path:
        """The folder of the inbox that workflows hold."""
        return self.folder / "parcels"

    @property
    def archive(self) -> Path:
        """Folder to which processed files are archived."""
        return self.folder / "archive"

    @property
    def complaints(self) -> Path:
        """Folder of the processes' output, with the trace of each unexpected error."""
        return self.folder / "complaints.log"

    def notes(self, slot: int) -> Path:
        """File of a writer's notes about its transactions: `tried`, `done`, `dropped` or `unknown`, and a number."""
        return self.folder / "notes" / str(slot)

    def tick_notes(self, slot: int) -> Path:
        """The same of a ticker."""
        return self.folder / "tick_notes" / str(slot)

    def state(self, slot: int) -> Path:
        """A follower's state with the keys that it was given, replaced in one step."""
        return self.folder / "followers" / str(slot)

    def set_up(self) -> None:
        """Make folders, project and catalog."""
        inboxes, notes = ("landing", "parcels", "arriving"), ("notes", "tick_notes", "followers")
        for name in (*inboxes, *notes, "state/drivers", "state/logs"):
            (self.folder / name).mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("project.py"), self.app_file)
        with self.open_mill(create=True) as mill:
            mill.deploy()

    def open_mill(self, world: World | None = None, *, create: bool = False) -> Mill:
        """Open the project, as a person does."""
        options = {"catalog": self.catalog_url, "state": str(self.folder / "state")}
        return open_project(self.folder, options=options, create=create, world=world)


def find_fileset(catalog: Catalog, name: str) -> Fileset:
    """Find a file set of the project."""
    return Fileset.of(catalog.read(lambda db: find_dataset(db, f"{Namespace('default')}.{name}")))


def rows_of(slot: int, number: int) -> list[str]:
    """Return the rows of a writer's partition with that number, or of a lander's file.

    No other process writes these rows.
    """
    return [f"{slot}.{number}.{part}" for part in range(1 + number % 3)]


def rows_of_file(name: str) -> list[str]:
    """Return the rows of a file that has landed."""
    return rows_of(*map(int, name.removesuffix(".txt").split(".")))
