"""The output of attempts: their standard output and error, and Spark's log, as files in a folder of each attempt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemill.catalog.db import Catalog
from tidemill.errors import NotFound
from tidemill.names import RunId
from tidemill.run.records.runs import RunRecord, find_run
from tidemill.world import World

SPARK_LOG: Final = "spark.log"


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log; `file` names its file: `stdout`, `stderr` or `spark.log`."""

    file: str
    text: str


class LogReader:
    """Reads an attempt of a run (the newest when `attempt` is None), each time what is new, until the run has ended.

    With `most`, the first read begins at a line within the last `most` bytes of each file.
    """

    def __init__(
        self,
        catalog: Catalog,
        world: World,
        run_id: RunId,
        *,
        attempt: int | None,
        whole: bool,
        most: int | None = None,
    ) -> None:
        self.ended = False
        """True when the run had ended before the last read: nothing more will come."""
        self._catalog = catalog
        self._world = world
        self._run_id = run_id
        self._attempt = attempt
        self._whole = whole
        self._most = most
        self.cut = False
        """True if the first read left out the begin of a file."""
        self._offsets: dict[Path, int] = {}

    def read_on(self, *, last: bool = False) -> Iterator[LogLine]:
        """Yield the new lines, file by file; of the `last` read, half a line at the end too.

        The program's own output comes first. Spark's log, which is longer, comes after the output, and only if `whole`.
        `NotFound` for an attempt that the run has not had. Lines of different files have no order among each other.
        """
        # Read before the files are: what was printed before the end is then in them.
        run = self._catalog.read(lambda db: find_run(db, self._run_id))
        self.ended = run.state.ended
        folder = _folder(run, self._attempt)
        paths = self._world.disk.list_folder(folder) if folder else ()
        for path in sorted(paths, key=lambda path: (path.name == SPARK_LOG, path.name != "stdout", path.name)):
            if path.name == SPARK_LOG and not self._whole:
                continue
            content = self._world.disk.read_from(path, self._begin(path))
            # Half a line waits for its end, unless there will be none.
            complete = len(content) if last or self.ended else content.rfind(b"\n") + 1
            self._offsets[path] = self._offsets.get(path, 0) + complete
            for line in content[:complete].splitlines():
                yield LogLine(path.name, line.decode(errors="replace"))

    def _begin(self, path: Path) -> int:
        """Return the offset of the next line of a file that is to be read."""
        if path not in self._offsets:
            begin = 0 if self._most is None else max(0, self._world.disk.size(path) - self._most)
            if begin:
                self.cut = True
                begin += self._world.disk.read_from(path, begin).find(b"\n") + 1
            self._offsets[path] = begin
        return self._offsets[path]


def _folder(run: RunRecord, attempt: int | None) -> Path | None:
    if attempt is not None and not 1 <= attempt <= run.epoch:
        raise NotFound("attempt", f"{attempt} of {run.run_id}", hint=f"there were {run.epoch}")
    if run.log_location is None:
        return None
    newest = Path(run.log_location)
    return newest if attempt is None else newest.parent / str(attempt)
