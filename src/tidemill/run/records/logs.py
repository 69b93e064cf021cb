"""The output of attempts: their standard output and error, and Spark's log, as files in a folder of each attempt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
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


def follow_logs(
    catalog: Catalog,
    world: World,
    run_id: RunId,
    *,
    attempt: int | None,
    every: timedelta | None,
    whole: bool = False,
) -> Iterator[LogLine]:
    """Yield the lines of an attempt (the newest when None), file by file; with `every` until the run has ended.

    The program's own output comes first. Spark's log, which is longer, comes after the output, and only if `whole`.
    `NotFound` for an attempt that the run has not had. Lines of different files have no order among each other.
    """
    offsets: dict[Path, int] = {}
    while True:
        # Read before the files are: what was printed before the end is then in them.
        run = catalog.read(lambda db: find_run(db, run_id))
        ended = every is None or run.state.ended
        folder = _folder(run, attempt)
        paths = world.disk.list_folder(folder) if folder else ()
        for path in sorted(paths, key=lambda path: (path.name == SPARK_LOG, path.name != "stdout", path.name)):
            if path.name == SPARK_LOG and not whole:
                continue
            content = world.disk.read_from(path, offsets.get(path, 0))
            # Half a line waits for its end, unless there will be none.
            complete = len(content) if ended else content.rfind(b"\n") + 1
            offsets[path] = offsets.get(path, 0) + complete
            for line in content[:complete].splitlines():
                yield LogLine(path.name, line.decode(errors="replace"))
        if every is None or ended:
            return
        world.clock.sleep(every)


def _folder(run: RunRecord, attempt: int | None) -> Path | None:
    if attempt is not None and not 1 <= attempt <= run.epoch:
        raise NotFound("attempt", f"{attempt} of {run.run_id}", hint=f"there were {run.epoch}")
    if run.log_location is None:
        return None
    newest = Path(run.log_location)
    return newest if attempt is None else newest.parent / str(attempt)
