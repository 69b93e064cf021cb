"""What the processes of the chaos work on, and what they write down where no catalog can lose it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Final

from tests.chaos.minutes import WINDOWS
from tidemill.catalog.db import Catalog
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset
from tidemill.lake.keys import Key
from tidemill.lake.manifest import group_by_partition, list_written
from tidemill.mill.mill import open_project
from tidemill.names import Namespace
from tidemill.run.declared import find_dataset
from tidemill.storage.files import open_files
from tidemill.world import World

MARK: Final = "TIDEMILL_CHAOS"
"""The environment variable that all processes of a site inherit: what carries it at the end is an orphan."""
STARTS: Final = "(starts)"
WAITS: Final = "(waits)"
"""Where a process stands that has not begun to work, and one that has nothing to do; else at a mark."""
SCHEMA: Final = ColumnSchema(
    '{"type":"struct","fields":[{"name":"row","type":"string"},{"name":"ts","type":"timestamp"}]}'
)
"""As if each row told its time, which windows want a column for."""
DATASETS: Final = ("lines", "pairs", "loaded", "totals", "final", "ticks", *(f"by_{name}" for name in WINDOWS))


class Kind(StrEnum):
    """What a forked process does; a driver is started by a runner."""

    WRITER = "writer"
    TICKER = "ticker"
    LANDER = "lander"
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
    def archive(self) -> Path:
        """Where files go that were processed."""
        return self.folder / "archive"

    @property
    def complaints(self) -> Path:
        """What processes print, with the trace of each error that they did not expect."""
        return self.folder / "complaints.log"

    def notes(self, slot: int) -> Path:
        """What a writer wrote down of its transactions: `tried`, `done`, `dropped` or `unknown`, and a number."""
        return self.folder / "notes" / str(slot)

    def tick_notes(self, slot: int) -> Path:
        """The same of a ticker."""
        return self.folder / "tick_notes" / str(slot)

    def state(self, slot: int) -> Path:
        """A follower's state with the keys that it was given, replaced in one step."""
        return self.folder / "followers" / str(slot)

    def set_up(self) -> None:
        """Make folders, project and catalog."""
        for name in ("landing", "arriving", "notes", "tick_notes", "followers", "state/drivers", "state/logs"):
            (self.folder / name).mkdir(parents=True)
        shutil.copy(Path(__file__).with_name("project.py"), self.app_file)
        options = {"catalog": self.catalog_url, "state": str(self.folder / "state")}
        with open_project(self.folder, options=options, create=True) as mill:
            mill.deploy()


def find_fileset(catalog: Catalog, name: str) -> Fileset:
    """One of the project's file sets."""
    return Fileset.of(catalog.read(lambda db: find_dataset(db, f"{Namespace('default')}.{name}")))


def rows_of(slot: int, number: int) -> list[str]:
    """What a writer puts into its partition of that number, or a lander into its file: nobody else writes these."""
    return [f"{slot}.{number}.{part}" for part in range(1 + number % 3)]


def write_texts(
    world: World, rows: Mapping[Key, Iterable[str]], fileset: Fileset, directory: str, columns: ColumnSchema | None
) -> SimpleNamespace:
    """Write a text file for each key: what stands in for Spark's writer, which these processes have no time for."""
    del columns
    files = open_files(fileset.dataset.location, world)
    counts = {}
    for key, texts in rows.items():
        name = "/".join(filter(None, (directory, fileset.keys.to_path(key), "part-0.txt")))
        written = list(texts)
        files.put(name, "".join(f"{text}\n" for text in written).encode())
        counts[name] = len(written)
    manifests = group_by_partition(fileset.keys, directory, list_written(files, directory), counts)
    return SimpleNamespace(manifests=manifests, schema=SCHEMA)
