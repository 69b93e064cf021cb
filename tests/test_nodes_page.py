"""docs/nodes.md: nodes with the settings of the page share the work, and do the runs of a node that died."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import tidemill as tm
from tests.errors import raises_code
from tests.nodes import node_up
from tests.yardstick import patience

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "nodes.md").read_text(encoding="utf-8")
(SETTINGS,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
ROLES = re.findall(r"^tidemill (\w+) ", PAGE, re.MULTILINE)
FILES = 20
APP = """
import time
from pathlib import Path

import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", format="csv", schema="line string", settle="0s", max_files=1)
HERE = Path(__file__).parent


@app.python(reads=[raw])
def load(run):
    print("attempt", run.attempt, flush=True)
    if (HERE / "wait").exists() and run.attempt == 1:
        (HERE / "waiting").touch()
        while not (HERE / "go").exists():
            time.sleep(0.1)


app.schedule("on_raw", load, trigger=tm.NewFiles(raw), constraints=[])
"""


@pytest.fixture
def project(tmp_path: Path, postgres_catalog_url: str) -> Path:
    """A project with the settings of the page, whose lease is shorter."""
    own = {
        "postgresql://tidemill@db/tidemill": postgres_catalog_url,
        "/mnt/lake": str(tmp_path / "lake"),
        'lease = "60s"': 'lease = "5s"',
    }
    settings = SETTINGS
    for on_page, here in own.items():
        assert on_page in settings
        settings = settings.replace(on_page, here)
    folder = tmp_path / "project"
    (folder / "landing").mkdir(parents=True)
    (folder / "app.py").write_text(APP)
    (folder / "tidemill.toml").write_text(settings)
    with tm.open(folder) as mill:
        mill.deploy()
    return folder


def wait_for(claim: Callable[[], bool], *logs: Path) -> None:
    """Look until `claim` holds."""
    deadline = time.monotonic() + patience(60)
    while not claim():
        assert time.monotonic() < deadline, "\n".join(log.read_text()[-4000:] for log in logs)
        time.sleep(0.1)


def put(folder: Path, name: str) -> None:
    """Put a file into the inbox in one step: without `settle` half of it would be a file too."""
    (folder / "next").write_text("line\nx\n")
    (folder / "next").rename(folder / "landing" / name)


def log_of(mill: tm.Mill, run_id: str, attempt: int | None = None) -> str:
    """Return the lines that a program has printed."""
    return " ".join(line.text for line in mill.runs.logs(run_id, attempt=attempt))


def test_nodes_share_the_work_and_each_reads_the_logs_of_all(project, tmp_path):
    """A site adds a node when the work grows, and reads on its own machine what ran elsewhere."""
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    with tm.open(project) as mill:
        with node_up(project, "one", logs[0]), node_up(project, "two", logs[1]):
            for number in range(FILES):
                put(project, f"{number}.csv")
            wait_for(lambda: mill.inboxes.show("raw").files.get("SUCCESS") == FILES, *logs)
        runs = [run for run in tm.iterate(mill.runs.list) if run.state == "COMPLETED"]
        said = {log_of(mill, run.run_id) for run in runs}

    assert len(runs) >= FILES
    assert said == {"attempt 1"}


def test_another_node_does_the_run_of_a_node_that_died(project, tmp_path):
    """Its log comes when the node works again. The error says so until then."""
    logs = [tmp_path / "one.log", tmp_path / "two.log"]
    (project / "wait").touch()
    with tm.open(project) as mill:
        with node_up(project, "one", logs[0]) as one:
            put(project, "a.csv")
            wait_for((project / "waiting").exists, logs[0])
            with node_up(project, "two", logs[1]):
                one.kill()
                wait_for(lambda: mill.inboxes.show("raw").files.get("SUCCESS") == 1, *logs)
        done = next(run for run in mill.runs.list().items if run.state == "COMPLETED")
        with raises_code("log_elsewhere", "attempt 1, is on the machine that worked on it"):
            log_of(mill, done.run_id, attempt=1)
        with node_up(project, "one", logs[0]):
            wait_for(lambda: _has_log(mill, done.run_id, attempt=1), *logs)

        assert mill.runs.show(done.run_id).failures == 0
        assert [log_of(mill, done.run_id, attempt) for attempt in (1, 2)] == ["attempt 1", "attempt 2"]


@pytest.mark.long
def test_separate_roles_do_together_what_up_does(project, tmp_path):
    """A site gives the small work of a scheduler to one machine, and runs to many others."""
    logs = {role: tmp_path / f"{role}.log" for role in ROLES}
    with tm.open(project) as mill:
        with (
            node_up(project, "one", logs["scheduler"], role="scheduler"),
            node_up(project, "two", logs["runner"], role="runner"),
            node_up(project, "three", logs["janitor"], role="janitor"),
        ):
            put(project, "a.csv")
            wait_for(lambda: mill.inboxes.show("raw").files.get("SUCCESS") == 1, *logs.values())
            listed = mill.nodes.list()
        left = mill.nodes.list()
        (run,) = mill.runs.list()

    assert {(one.host, one.roles, one.slots, str(one.state)) for one in listed} == {
        ("one", ("scheduler",), 0, "WORKING"),
        ("two", ("runner",), 4, "WORKING"),
        ("three", ("janitor",), 0, "WORKING"),
    }
    assert "/.two/" in (run.log_location or "")
    assert list(left) == []


@pytest.mark.long
def test_a_node_that_drains_ends_after_its_run_and_takes_no_other(project, tmp_path):
    """A machine is taken down without a run that has to begin again."""
    log = tmp_path / "one.log"
    (project / "wait").touch()
    with tm.open(project) as mill, node_up(project, "one", log) as one:
        put(project, "a.csv")
        wait_for((project / "waiting").exists, log)
        (node,) = mill.nodes.list()
        done = [mill.nodes.drain(node.node_id), mill.nodes.drain(node.node_id)]
        put(project, "b.csv")
        wait_for(lambda: len(mill.runs.list(state="PENDING")) == 1, log)
        (draining,) = mill.nodes.list()
        (project / "go").touch()
        code = one.wait(patience(60))
        files = mill.inboxes.show("raw").files

    assert [one.changed for one in done] == [True, False]
    assert str(draining.state) == "DRAINING"
    assert code == 0
    assert files == {"SUCCESS": 1, "NEW": 1}


def _has_log(mill: tm.Mill, run_id: str, attempt: int) -> bool:
    try:
        return bool(log_of(mill, run_id, attempt))
    except tm.TidemillError:  # the log is elsewhere
        return False
