"""A standalone Spark cluster without Spark: the page of a master, and a `java` that submits drivers without a JVM."""

from __future__ import annotations

import json
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs

from tests.processes import find_processes, is_living

FORM = '<form action="{kind}/kill/" method="POST"><input type="hidden" name="id" value="{name}"/>{field}</form>'
ACTIVE = ("app-1", "driver-1")
"""The application and the driver that each page has forms for."""

# In place of SparkSubmit and of the worker: the driver gets the variables that begin with SPARK_, and its own folder.
SUBMIT = """#!{python}
import os, subprocess, sys
from pathlib import Path

submitted = "driver-{number}-" + str(len(list(Path({folder!r}).glob("driver-*"))))
place = Path({folder!r}) / submitted
place.mkdir()
passed = {{name: value for name, value in os.environ.items() if name.startswith("SPARK_")}}
with (place / "log").open("ab") as log:
    jvm = subprocess.Popen(
        [sys.executable, "-c", {jvm!r}, *sys.argv[-2:]],
        env={{"PATH": os.environ["PATH"], "PYTHONPATH": {path!r}, **passed}},
        cwd=place, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
    )
(place / "pid").write_text(str(jvm.pid))
print("State of", submitted, "is RUNNING")
"""
JVM = "import subprocess, sys; subprocess.run([sys.executable, '-c', {far_end!r}, *sys.argv[1:]])"
FAR_END = """
import sys
from tests.spawners import PlayedDrivers
from tidemill.run.processes import far_end
from tidemill.world import World

far_end.World = lambda: World(spawner=PlayedDrivers("-c", {driver!r}))
far_end.main(sys.argv[1:])
"""


@contextmanager
def page_of_a_master(
    field: str = "",
    states: Callable[[], Mapping[str, str]] = dict,
    kill: Callable[[str], None] = lambda _: None,
) -> Iterator[tuple[int, list[dict[str, list[str]]]]]:
    """Serve a master's page, and yield its port and the forms that it took. With a field, other forms are refused.

    `states` gives the states of drivers, and `kill` ends the driver or the application of a form.
    """
    taken: list[dict[str, list[str]]] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the base class names it
            known = [{"id": name, "state": state} for name, state in states().items()]
            shown = {"activedrivers": known, "completeddrivers": []}
            forms = [FORM.format(kind=name.partition("-")[0], name=name, field=field) for name in [*ACTIVE, *states()]]
            self.answer(200, json.dumps(shown) if self.path == "/json/" else "".join(forms))

        def do_POST(self) -> None:  # as above
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            refused = bool(field) and form.get("csrfToken") != ["a&b"]
            if not refused:
                taken.append({"path": [self.path], **form})
                kill(form["id"][0])
            self.answer(403 if refused else 302, "")

        def answer(self, status: int, text: str) -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Location", "/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port, taken
        finally:
            server.shutdown()


@dataclass
class StubCluster:
    """A cluster whose drivers run the source `driver`. Its folder has a folder for each driver."""

    folder: Path
    driver: str
    number: str = field(default_factory=lambda: str(random.randrange(10**13, 10**14)))
    page_port: int = 0

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark for the cluster."""
        return {"spark.master": "spark://127.0.0.1:7077", "spark.master.ui.port": str(self.page_port)}

    @property
    def environ(self) -> dict[str, str]:
        """The variables of drivers for the cluster."""
        return {"JAVA_HOME": str(self.folder), "PYSPARK_PYTHON": sys.executable}

    def states(self) -> dict[str, str]:
        """Return the state of each driver."""
        places = sorted(self.folder.glob("driver-*/pid"))
        return {place.parent.name: "RUNNING" if is_living(int(place.read_text())) else "FAILED" for place in places}

    def kill(self, submitted: str) -> None:
        """Kill the JVM of a driver, as a worker does."""
        with suppress(ProcessLookupError):
            os.kill(int((self.folder / submitted / "pid").read_text()), signal.SIGKILL)

    def count(self) -> int:
        """Count the drivers that were submitted."""
        return len(self.states())

    def count_living(self) -> int:
        """Count the processes of drivers that live, each with its JVM."""
        return len(self._drivers()) + list(self.states().values()).count("RUNNING")

    def newest(self) -> int:
        """Return the process of the newest driver."""
        return self._drivers()[-1]

    def _drivers(self) -> list[int]:
        return [pid for pid in find_processes(rf"\0TIDEMILL_SPARK_DRIVER=driver-{self.number}-") if is_living(pid)]


@contextmanager
def stub_cluster(folder: Path, driver: str) -> Iterator[StubCluster]:
    """Have a cluster for a block."""
    cluster = StubCluster(folder, driver)
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    jvm = JVM.format(far_end=FAR_END.format(driver=driver))
    path = str(Path(__file__).parents[1])
    java.write_text(SUBMIT.format(python=sys.executable, number=cluster.number, folder=str(folder), jvm=jvm, path=path))
    java.chmod(0o755)
    with page_of_a_master(states=cluster.states, kill=cluster.kill) as (cluster.page_port, _):
        yield cluster
