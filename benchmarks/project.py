"""A project in a folder of its own and `tidemill up` on it, for the benchmarks that measure the whole way of a run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tidemill.lake.fileset.fileset import WriteOp
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.mill.mill import Mill, open_project
from tidemill.run.processes.external import open_transaction, outputs_of
from tidemill.shapes.keys import KeySchema
from tidemill.shapes.manifest import Manifest

TIDEMILL = [sys.executable, "-c", "from tidemill.cli.main import main; main()"]
PATIENCE = 120.0
KEYS = KeySchema.of({"n": "int"})
_SETTINGS = """
catalog = "{url}"
[runner]
slots = {slots}
[spark]
master = "local[2]"
class_data = false
conf = {{"spark.driver.memory" = "512m", "spark.sql.shuffle.partitions" = "2"}}
"""


def partition(number: int) -> PartitionWrite:
    """A partition without files: publishing it costs what the catalog costs."""
    return PartitionWrite(KEYS.check({"n": number}), WriteOp.APPEND, Manifest(()))


def publish(mill: Mill, fileset: str, number: int) -> float:
    """Commit one partition; the moment at which the commit returned, by the machine's monotonic clock."""
    with open_transaction(mill.project.catalog, mill.project.world, [fileset]) as tx:
        outputs_of(tx).register(fileset, [partition(number)], None, base=None)
    return time.monotonic()


def register(run: object, fileset: str, number: int) -> None:
    """Publish one partition from within a program, at its commit."""
    run.output(fileset)._outputs.register(fileset, [partition(number)], None, base=None)  # type: ignore[attr-defined]


@contextmanager
def running_project(  # options with defaults
    url: str,
    app: str,
    prepare: Callable[[Mill], None] = lambda _: None,
    command: Sequence[str] = ("up",),
    *,
    slots: int = 2,
    nodes: int = 1,
) -> Iterator[Mill]:
    """Deploy `app` into a new project on the catalog `url`, `prepare` it, and have a command work on it for a block.

    With several `nodes` others work beside it, each with a state folder of its own.
    """
    with tempfile.TemporaryDirectory(prefix="tidemill-bench-") as folder, ExitStack() as ending:
        project = Path(folder)
        (project / "app.py").write_text(app)
        (project / "tidemill.toml").write_text(_SETTINGS.format(url=url, slots=slots))
        with open_project(project, create=True) as mill:
            mill.deploy()
            prepare(mill)
            ending.enter_context(_process(project, command))
            for number in range(1, nodes):
                others = ("up", "--no-deploy", "--no-server")
                ending.enter_context(_process(project, others, TIDEMILL_STATE=f".node{number}"))
            yield mill
            ending.close()


@contextmanager
def _process(project: Path, command: Sequence[str], **variables: str) -> Iterator[None]:
    root = str(Path(__file__).resolve().parent.parent)
    with (project / "up.log").open("ab") as log:
        up = subprocess.Popen(
            [*TIDEMILL, "--project", str(project), *command],
            stdout=log,
            stderr=log,
            env={**os.environ, "PYTHONPATH": root, **variables},
        )
        try:
            yield
        except BaseException:
            sys.stderr.write((project / "up.log").read_text()[-3000:])
            raise
        finally:
            up.send_signal(signal.SIGTERM)
            up.communicate()


def wait_until(claim: Callable[[], bool], every: float = 0.002) -> None:
    """Look until `claim` holds."""
    deadline = time.monotonic() + PATIENCE
    while not claim():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(every)


def lines_of(path: Path) -> list[str]:
    """The lines that programs have written."""
    return path.read_text().splitlines() if path.exists() else []
