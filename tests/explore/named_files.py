"""Files of window programs on the stage, which has no disk: a file is its name, which holds the rows.

A file of another program has one row, which its version tells.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final
from unittest.mock import patch

from tests.explore.stage import Stage
from tests.sql import plain, sessions
from tests.sql.plain import Texts
from tidemill.frames.spark import PartitionWrites
from tidemill.lake.fileset.fileset import Fileset, Partition
from tidemill.run.processes import monitoring
from tidemill.shapes.keys import KeySchema, KeyText
from tidemill.shapes.manifest import DataFile, Manifest
from tidemill.shapes.partition_time import Zone
from tidemill.storage import locations
from tidemill.storage.files import Capabilities, FileStatus
from tidemill.testing.clock import NOON
from tidemill.testing.plain import LINES as COLUMNS
from tidemill.world import World

UTC: Final = Zone("UTC")
MINUTE: Final = 60_000_000
KEYS: Final = KeySchema.of({"day": "date", "hour": "int"})
OUTER: Final = "file:///outer"
"""The location of the table whose files another program writes."""


class StageFiles:
    """A location on the stage. The listing of a table of another program is a turn, if its files may change."""

    capabilities = Capabilities(lists_from_name=True)

    def __init__(self, folder: Path, _world: World, _root: str | None = None) -> None:
        self.url = folder.as_uri()

    def check_location(self) -> None:
        """The location is always there."""

    def list_after(self, _prefix: str, _after: str | None, *_: object) -> Iterator[FileStatus]:
        stage = Stage.on_stage
        if self.url != OUTER:
            return iter(())
        return iter(stage.turn(self._list) if stage.files_change else self._list())

    def _list(self) -> list[FileStatus]:
        query = "SELECT name, version FROM landed ORDER BY name"
        rows = Stage.on_stage.connection.execute(query).fetchall()
        return [FileStatus(name, 10, NOON + timedelta(minutes=version), str(version)) for name, version in rows]

    def stat(self, name: str) -> FileStatus | None:
        """Any file that is asked for is there, as it was written."""
        return FileStatus(name, 10, NOON, "e")

    def put(self, _name: str, _content: bytes) -> None:
        """Side-cars and markers are for the janitor, and there is none."""

    def delete(self, _name: str) -> None:
        """A file that no manifest names is not there."""

    def delete_below(self, _folder: str) -> None:
        """A file that no manifest names is not there."""


def name_of(text: str) -> str:
    """Return the name of a file with these lines."""
    return f"{text.strip().replace(' ', '_').replace(chr(10), '.')}.rows"


def write_names(_world: World, rows: Texts, fileset: Fileset, directory: str, columns: object) -> PartitionWrites:
    """Write lines of text into the names of files."""
    del columns
    number = directory.rpartition("/")[2]
    made = {
        fileset.keys.from_path(path): Manifest((file_of(f"{number}/{path}/{name_of(text)}", text.count("\n")),))
        for path, text in rows.items()
    }
    return PartitionWrites(made, COLUMNS)


def file_of(name: str, rows: int) -> DataFile:
    """Return a file of a manifest."""
    return DataFile(name, 10, rows, "e")


def rows_of(key: KeyText, files: Iterable[DataFile]) -> list[str]:
    """Return the rows of the files of a partition."""
    found: list[str] = []
    for file in files:
        name = file.name.rpartition("/")[2]
        if name.endswith(".rows"):
            found += [line.replace("_", " ") for line in name.removesuffix(".rows").split(".") if line]
        else:
            day, hour = KEYS.decode(key)
            opens = UTC.opens(datetime.fromisoformat(str(day)) + timedelta(hours=int(str(hour))))
            found.append(f"{opens + int(file.etag) * MINUTE} {file.etag}")
    return found


def _read_lines(_world: World, _fileset: Fileset, partition: Partition) -> list[str]:
    return rows_of(partition.partition_key, [file for change in partition.changes for file in change.manifest.files])


@contextmanager
def played() -> Iterator[None]:
    """Have the product and the calculators use these files."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(locations, "LocalFiles", StageFiles))
        stack.enter_context(patch.object(plain, "read_lines", _read_lines))
        stack.enter_context(patch.object(sessions, "read_lines", _read_lines))
        stack.enter_context(patch.object(monitoring, "_look_for", lambda *_: lambda *_: (1, COLUMNS)))
        yield
