"""Class data for the JVMs of Spark tests: a program that lends an archive of Spark's classes to a command.

`python -m tests.spark_classes -- pytest …` makes the archive in `build/`, unless it is there, and runs the command with
the archive in `SPARK_SUBMIT_OPTS`. A JVM that starts Spark and runs a first job takes less than half of the CPU time
with the archive (measured: 18.2 s to 8.4 s beside other work). A JVM that cannot use the archive goes on without.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tidemill.run.processes.class_data import ClassArchive, Training, find_archive, train
from tidemill.run.processes.java import Java, NoJava, find_java, spark_environ
from tidemill.world import World

OPTIONS: Final = "SPARK_SUBMIT_OPTS"
# JVMs of tests are short: code that is compiled twice costs a third more CPU time (measured: 79 s to 57 s).
SHORT_LIVED: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_FOLDER: Final = Path(__file__).resolve().parent.parent / "build"


def _make(archive: ClassArchive, java: Java) -> None:
    environ = {**os.environ, **spark_environ(java), OPTIONS: SHORT_LIVED}
    subprocess.run([sys.executable, "-m", "tests.spark_classes", "--make", archive.path], env=environ, check=True)


def main(arguments: list[str]) -> int:
    """The program; its exit code is that of the command it runs."""
    match arguments:
        case ["--make", path]:
            # In a process of its own: Spark's environment is not that of the command.
            with tempfile.TemporaryDirectory(prefix="tidemill-spark-classes-") as folder:
                train(World(), Training(path, folder, {}))
            return 0
        case ["--", *command] if command:
            world, options = World(), SHORT_LIVED
            try:
                java = find_java(world, _FOLDER, install=False)
            except NoJava as error:
                print(error, file=sys.stderr)
            else:
                archive = find_archive(_FOLDER, java, {})
                if archive.is_wanted(world):
                    _make(archive, java)
                options = f"{options} {archive.options(world)}"
            return subprocess.run(command, env={OPTIONS: options, **os.environ}, check=False).returncode
        case _:
            print(__doc__, file=sys.stderr)
            return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
