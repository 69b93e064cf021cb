"""A monitored table in simulated projects: files that another program writes, and what listings make of them."""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.sim.committed import refuse
from tidemill import App
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.datasets import find
from tidemill.lake.fileset.fileset import Partition, read_partitions
from tidemill.names import DEFAULT_NAMESPACE, WritePointer
from tidemill.storage.locations import open_files

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

_FILES: Final = ("D0", "f1", "f2")
"""The files of a partition. The name of a directory with unfinished files, `_temporary`, sorts between them."""


def declare(app: App, folder: Path, *, there: bool) -> None:
    """A table of lines that another program writes, if it is `there`."""
    if there:
        location = str(folder / "outer")
        app.fileset("outer", keys={"name": "string"}, location=location, format="text", monitor_every="2s")


def make_story(simulation: Simulation) -> Iterator[tuple[int, Callable[[], object]]]:
    """Draw what the other program does: files that appear, change and vanish, and directories that cannot be read."""
    for number, (at, act, name, file, ends) in enumerate(_draw_acts(simulation)):
        if act == "hide":
            # Of two events at one time the later in the list happens first.
            yield ends, lambda d=name: _act(simulation, 0, "show", d, "")
        yield at, lambda n=number, a=act, d=name, f=file: _act(simulation, n, a, d, f)


def _draw_acts(simulation: Simulation) -> Iterator[tuple[int, str, str, str, int]]:
    """Draw the acts by a chance of its own: the step, the act, the partition, the file, and the end of the act."""
    draw = random.Random(f"monitored {simulation.seed}")
    for _ in range(draw.randint(8, 20) if simulation.shape.monitored else 0):
        name, file = draw.choice("abc"), draw.choice(_FILES)
        act = draw.choice(["write", "write", "write", "write", "begin", "begin", "hide", "delete", "clear"])
        at = draw.randrange(12 * simulation.active)  # most listings come when the other faults are over
        yield at, act, name, file, at + draw.randint(50, 500)


def _act(simulation: Simulation, number: int, act: str, name: str, file: str) -> None:
    folder = simulation.folder / "outer" / f"name={name}"
    away = simulation.folder / "outer.away" / name
    match act:
        case "write":
            _write(simulation, number, folder, f"{name}{file}@{number}\n", file)
        case "begin":
            _write(simulation, number, folder / "_temporary" / "0", "unfinished\n", file)
        case "delete":
            (folder / file).unlink(missing_ok=True)
        case "clear":
            shutil.rmtree(folder, ignore_errors=True)
        case "hide" if folder.is_dir() and not folder.is_symlink():
            # No listing follows a link: of what is behind it nothing is known.
            away.parent.mkdir(exist_ok=True)
            folder.rename(away)
            folder.symlink_to(away)
        case "show" if folder.is_symlink():
            folder.unlink()
            away.rename(folder)


def _write(simulation: Simulation, number: int, folder: Path, text: str, file: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    hidden = folder / f".{file}"
    hidden.write_text(text)
    at = int(simulation.ground.clock.at.timestamp() * 1e9) + number * 1_000_000  # no two at one time
    os.utime(hidden, ns=(at, at))
    hidden.replace(folder / file)


def differences(simulation: Simulation) -> dict[str, list[Any]]:
    """Return the files of which the catalog knows another number than one, or that it knows and are not there."""
    if not simulation.shape.monitored:
        return {}
    folder = simulation.folder / "outer"
    there = {str(path.relative_to(folder)) for path in folder.glob("name=*/*") if path.name in _FILES}
    published = _published(simulation)
    known = Counter(name for partition in published for name, _ in partition.files)
    wrong = [name for name in {*there, *known} if known[name] != (name in there)]
    files = open_files(str(folder), simulation.ground.catalog.world)
    for name, file in (named for partition in published for named in partition.files):
        found = files.stat(name)
        if found is not None and found.etag != file.etag:
            wrong.append(name)
    return {"not followed": sorted(wrong)} if wrong else {}


def check(simulation: Simulation) -> None:
    """Check that the table is what its directory is, each file once, and that no change was made for nothing."""
    refuse(not differences(simulation), "monitored", f"{differences(simulation)}")
    if not simulation.shape.monitored:
        return
    rows = simulation.ground.sql(
        "SELECT partition_key, op, manifest FROM partition_change WHERE dataset_id ="
        " (SELECT dataset_id FROM dataset WHERE name = 'outer') ORDER BY commit_seq"
    )
    may_vanish = {name for _, act, name, _, _ in _draw_acts(simulation) if act in {"delete", "clear"}}
    last: dict[str, tuple[str, bytes]] = {}
    for key, op, manifest in rows:
        refuse(last.get(key) != (op, manifest), "monitored", f"{key} was published twice by {op}")
        refuse(op != "drop" or key[-1] in may_vanish, "monitored", f"{key} was dropped, and had not vanished")
        last[key] = op, manifest


def _published(simulation: Simulation) -> list[Partition]:
    everything = Snapshot(WritePointer(2**62), simulation.ground.catalog.incarnation)
    catalog = simulation.ground.catalog
    dataset_id = catalog.read(lambda db: find(db, DEFAULT_NAMESPACE, "outer")).dataset_id
    return catalog.read(lambda db: read_partitions(db, dataset_id, everything))
