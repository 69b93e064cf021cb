"""Class-data sharing for Spark's JVM: what it reads at each start, once, from a file made by a training run.

A start costs 8 s to the first job on 2 cores, of which most is reading and checking classes. The archive (some 175 MB)
lies in the cache folder under a name that says for which Spark and Java it is, and is made once, in the background, by
a process of the lowest priority while a warm driver waits. Nothing depends on it: a JVM that cannot use it goes on
without.

`python -m tidemill.run.processes.class_data` is that process, started by a `Launcher`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemill.json_specs import read_text
from tidemill.processes import live_with_parent
from tidemill.run.processes.java import Java
from tidemill.world import World

JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_CLASS_PATH: Final = ("spark.driver.extraClassPath", "spark.jars", "spark.jars.packages")
"""Settings that change what stands on the class path: with another one an archive is of no use."""


@dataclass(frozen=True, slots=True)
class ClassArchive:
    """Archive of the classes of one Spark on one Java, or the place for one."""

    path: Path

    @property
    def failed(self) -> Path:
        """File with the output of a failed training run. While the file is there, no process trains again."""
        return self.path.with_suffix(".failed")

    def options(self, world: World) -> str:
        """Return the option by which a JVM uses the archive; empty while there is none."""
        # A JVM that finds it unusable would say so in each run's output.
        shared = f'"-XX:SharedArchiveFile={self.path}" -Xlog:disable -Xlog:all=error'
        return shared if world.disk.exists(self.path) else ""

    def is_wanted(self, world: World) -> bool:
        """Return whether the archive is still to be made."""
        return not world.disk.exists(self.path) and not world.disk.exists(self.failed)


def find_archive(cache: Path, java: Java, settings: Mapping[str, str]) -> ClassArchive:
    """The archive for the Spark of this process's environment on `java`, there or not."""
    spark = importlib.metadata.version("pyspark")
    place = importlib.metadata.distribution("pyspark").locate_file("pyspark")
    parts = (str(place), str(java.home), *(settings.get(name, "") for name in _CLASS_PATH))
    digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:8]
    return ClassArchive(cache / "class-data" / f"spark-{spark}-java-{java.version}-{digest}.jsa")


@dataclass(frozen=True, slots=True)
class Training:
    """Order to the training run, on its standard input."""

    archive: str
    folder: str
    settings: Mapping[str, str]


def trainer_command() -> list[str]:
    """Return the command that starts the process."""
    return ["nice", "-n", "19", sys.executable, "-m", "tidemill.run.processes.class_data"]


def train(world: World, training: Training) -> None:
    """Make the archive, unless another process of this machine is about it; it appears whole, or not at all."""
    from tidemill.run.processes.session import SparkHome

    archive, folder = ClassArchive(Path(training.archive)), Path(training.folder)
    world.disk.make_folder(archive.path.parent)
    # Beside the archive, since a rename does not leave a file system; the lock ends with the process that holds it.
    partial = archive.path.with_suffix(".partial")
    if not world.disk.lock(archive.path.with_suffix(".lock")) or not archive.is_wanted(world):
        return
    world.disk.remove(partial)
    options = (
        f"{training.settings.get(JAVA_OPTIONS, '')} '-XX:ArchiveClassesAtExit={partial}' -Xlog:disable -Xlog:all=error"
    )
    settings = {**training.settings, "spark.master": "local[1]", JAVA_OPTIONS: options}
    spark = SparkHome(world, folder, settings, folder / "spark.log")
    spark.exercise()
    spark.end()
    if world.disk.exists(partial):
        world.disk.move(partial, archive.path)
    else:
        world.disk.write_bytes(archive.failed, b"the JVM wrote no archive; remove this file to have it tried again\n")


def main() -> None:
    """Read what to do, and do it."""
    lines = live_with_parent()
    train(World(), read_text(Training, next(lines)))


if __name__ == "__main__":
    main()
