"""The output of attempts: their standard output and error, and Spark's log, as files in a folder of each attempt.

The folder is on the machine of the attempt. With the setting `logs`, each node also puts the files of attempts that are
over into a location that all nodes reach, and other nodes read them there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from itertools import groupby, takewhile
from pathlib import Path
from typing import Final

from tidemill.catalog.db import Catalog
from tidemill.errors import NotFound, TidemillError, Unavailable
from tidemill.json_specs import read_text, write_text
from tidemill.names import RunId
from tidemill.run.records.runs import RunRecord, find_run, find_runs
from tidemill.storage.files import Files
from tidemill.storage.locations import open_files
from tidemill.world import Disk, World

_log = logging.getLogger(__name__)

SPARK_LOG: Final = "spark.log"
_WAITING: Final = "waiting"
"""The folder beside those of runs with a file for each attempt whose log is still to be put into the location."""
_LOOK_EVERY: Final = timedelta(seconds=10)
_FIRST_RUN: Final = "run_"
_PART: Final = 500


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log; `file` names its file: `stdout`, `stderr` or `spark.log`."""

    file: str
    text: str


class LogElsewhere(Unavailable):
    """A log that lies on another machine."""

    code = "log_elsewhere"

    def __init__(self, run_id: str, attempt: str, folder: str, node: str, *, kept: str = "") -> None:
        self.run_id = run_id
        self.attempt = attempt
        self.folder = folder
        self.node = node
        self.kept = kept
        absent = f", and not yet in {kept}" if kept else ""
        where = f"on {node}, in {folder}" if node else "on the machine that worked on it"
        next_step = (
            "wait until the attempt has ended and its node has run `tidemill up` since"
            if kept
            else "ask a server on that machine, or set `logs` to a location that all nodes reach"
        )
        super().__init__(f"the log of {run_id}, attempt {attempt}, is {where}{absent}", next_step)


class LogReader:
    """Reads an attempt of a run (the newest when `attempt` is None), each time what is new, until the run has ended.

    With `most`, the first read begins at a line within the last `most` bytes of each file. `kept` is the location of
    logs that all nodes reach; empty without one.
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
        kept: str = "",
    ) -> None:
        self.ended = False
        """True when the run had ended before the last read: nothing more will come."""
        self._catalog = catalog
        self._world = world
        self._run_id = run_id
        self._attempt = attempt
        self._whole = whole
        self._most = most
        self._kept = kept
        self.cut = False
        """True if the first read left out the begin of a file."""
        self._offsets: dict[str, int] = {}

    def read_on(self, *, last: bool = False) -> Iterator[LogLine]:
        """Yield the new lines, file by file; of the `last` read, half a line at the end too.

        The program's own output comes first. Spark's log, which is longer, comes after the output, and only if `whole`.
        `NotFound` for an attempt that the run has not had. `LogElsewhere` for a log that this machine cannot read.
        Lines of different files have no order among each other.
        """
        # Read before the files are: what was printed before the end is then in them.
        run = self._catalog.read(lambda db: find_run(db, self._run_id))
        self.ended = run.state.ended
        source = self._find(run)
        sizes = source.sizes() if source else {}
        for name in sorted(sizes, key=lambda name: (name == SPARK_LOG, name != "stdout", name)):
            if source is None or (name == SPARK_LOG and not self._whole):
                continue
            content = source.read_from(name, self._begin(source, name, sizes[name]))
            # Half a line waits for its end, unless there will be none.
            complete = len(content) if last or self.ended else content.rfind(b"\n") + 1
            self._offsets[name] += complete
            for line in content[:complete].splitlines():
                yield LogLine(name, line.decode(errors="replace"))

    def _begin(self, source: _Local | _Kept, name: str, size: int) -> int:
        """Return the offset of the next line of a file that is to be read."""
        if name not in self._offsets:
            begin = 0 if self._most is None else max(0, size - self._most)
            if begin:
                self.cut = True
                begin += source.read_from(name, begin).find(b"\n") + 1
            self._offsets[name] = begin
        return self._offsets[name]

    def _find(self, run: RunRecord) -> _Local | _Kept | None:
        """Return where the log of the attempt is; None if the run has had no attempt yet. `LogElsewhere`."""
        if self._attempt is not None and not 1 <= self._attempt <= run.epoch:
            raise NotFound("attempt", f"{self._attempt} of {run.run_id}", hint=f"there were {run.epoch}")
        if run.log_location is None:
            return None
        # The attempt that was taken last may not have registered, and then it has no folder in the record.
        newest = Path(run.log_location)
        folder = newest if self._attempt is None else newest.parent / str(self._attempt)
        if self._world.disk.exists(folder):
            return _Local(self._world.disk, folder)
        kept = _Kept(open_files(self._kept, self._world), f"{run.run_id}/{folder.name}/") if self._kept else None
        if kept is not None and kept.sizes():
            return kept
        # The record has machine and folder of the newest attempt alone.
        node, place = (run.host or "", str(folder)) if folder == newest else ("", "")
        raise LogElsewhere(run.run_id, folder.name, place, node, kept=self._kept)


@dataclass(frozen=True, slots=True)
class _Local:
    """The log of an attempt in its folder."""

    disk: Disk
    folder: Path

    def sizes(self) -> Mapping[str, int]:
        return {path.name: self.disk.size(path) for path in self.disk.list_folder(self.folder)}

    def read_from(self, name: str, offset: int) -> bytes:
        return self.disk.read_from(self.folder / name, offset)


@dataclass(frozen=True, slots=True)
class _Kept:
    """The log of an attempt in the location that all nodes reach."""

    files: Files
    prefix: str

    def sizes(self) -> Mapping[str, int]:
        return {one.name.removeprefix(self.prefix): one.bytes for one in self.files.list_after(self.prefix, None)}

    def read_from(self, name: str, offset: int) -> bytes:
        return self.files.read(self.prefix + name, offset=offset)


def await_log(disk: Disk, folder: Path, run_id: RunId, epoch: int) -> None:
    """Note that the log of an attempt is to be put into the location of logs once the attempt is over.

    `folder` is that of all logs on this machine. Call before the attempt starts, so that a kill of the node forgets no
    log.
    """
    disk.make_folder(folder / _WAITING)
    disk.write_bytes(folder / _WAITING / f"{run_id}.{epoch}", write_text(_Put()).encode())


@dataclass(frozen=True, slots=True)
class _Put:
    """The sizes of the files of a log when they were put into the location last; none before."""

    sizes: Mapping[str, int] = field(default_factory=dict)


class LogKeeper:
    """Puts the logs of attempts that are over from the `folder` of all logs of this machine into a location.

    A driver may write some lines after the end of its attempt. So a log is put again until a later look finds the files
    as they were put.
    """

    def __init__(self, catalog: Catalog, world: World, folder: Path, location: str) -> None:
        self._catalog = catalog
        self._world = world
        self._folder = folder
        self._location = location
        self._prepared = False

    def step(self) -> timedelta:
        """Put what is over, and return the time until the next look. A location that is away is tried again then."""
        disk = self._world.disk
        notes = [one for one in disk.list_folder(self._folder / _WAITING) if not one.name.startswith(".")]
        attempts = [(RunId(run_id), int(epoch)) for run_id, _, epoch in (note.name.rpartition(".") for note in notes)]
        if notes and not self._prepare():
            return _LOOK_EVERY
        known = sorted({run_id for run_id, _ in attempts})
        runs = {run.run_id: run for run in self._catalog.read(lambda db: find_runs(db, known))} if known else {}
        for note, (run_id, epoch) in zip(notes, attempts, strict=True):
            run = runs.get(run_id)
            if run is not None and run.epoch == epoch and run.state.live:
                continue
            try:
                self._put(note, f"{run_id}/{epoch}")
            except (TidemillError, OSError) as error:
                _log.warning("the log of %s stays on this machine for now: %s", run_id, error)
        return _LOOK_EVERY

    def _prepare(self) -> bool:
        """Make the location before the first log comes; False while the location is away."""
        try:
            if not self._prepared:
                open_files(self._location, self._world).prepare()
        except TidemillError as error:
            _log.warning("logs stay on this machine for now: %s", error)
            return False
        self._prepared = True
        return True

    def _put(self, note: Path, name: str) -> None:
        disk = self._world.disk
        source = _Local(disk, self._folder / name)
        sizes = source.sizes()
        if read_text(_Put, disk.read_bytes(note).decode()).sizes == sizes:
            disk.remove(note)
            return
        files = open_files(self._location, self._world)
        for file in sizes:
            files.put(f"{name}/{file}", source.read_from(file, 0))
        disk.write_bytes(note, write_text(_Put(sizes)).encode())


def delete_old_logs(catalog: Catalog, folder: Path, before: datetime) -> int:
    """Delete logs on this machine, of runs that were made before a time and whose records are deleted.

    `folder` is that of all logs on this machine. Return the number of these runs. Cost: a listing of the folder, and a
    look-up for each old run.
    """
    world, last = catalog.world, catalog.world.first_id("run", before)
    old = [path.name for path in world.disk.list_folder(folder) if _FIRST_RUN <= path.name < last]
    deleted = 0
    for run_id in _without_record(catalog, old):
        try:
            world.disk.remove(folder / run_id)
            deleted += 1
        except OSError as error:  # as of a file of another user: the next horizon brings the next try
            _log.warning("%s is not deleted: %s", folder / run_id, error)
    return deleted


def delete_put_logs(catalog: Catalog, location: str, before: datetime) -> int:
    """Delete logs as `delete_old_logs` does, in the location of the setting `logs`."""
    world, last = catalog.world, catalog.world.first_id("run", before)
    files = open_files(location, world)
    listed = takewhile(lambda name: name < last, (file.name for file in files.list_after(_FIRST_RUN, None)))
    by_run = {run_id: list(names) for run_id, names in groupby(listed, lambda name: name.partition("/")[0])}
    deleted = list(_without_record(catalog, list(by_run)))
    for run_id in deleted:
        files.delete_many(by_run[run_id])
    return len(deleted)


def _without_record(catalog: Catalog, run_ids: Sequence[str]) -> Iterator[str]:
    for start in range(0, len(run_ids), _PART):
        part = [RunId(one) for one in run_ids[start : start + _PART]]
        known = {run.run_id for run in catalog.read(lambda db: find_runs(db, part))}  # noqa: B023  # called at once
        yield from (one for one in part if one not in known)
