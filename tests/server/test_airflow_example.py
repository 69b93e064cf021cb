"""examples/airflow: its module against a real server, and its DAG by a stand-in for Airflow."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from starlette.routing import compile_path

from tests.airflow_double import dag_of
from tests.client.test_connect import Breaking
from tests.served import serving
from tests.stage import Stage, staged
from tidemill.mill.routes import list_routes

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "airflow"
MODULE, DAG = FOLDER / "tidemill_files.py", FOLDER / "orders_dag.py"
APP = """
import tidemill as tm

app = tm.App("shop")
orders = app.inbox("orders", "landing/orders", schema="id int", settle="0s", retry_after="1s")
"""


@pytest.fixture
def stage(sqlite_catalog_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A project with one inbox."""
    with staged(tmp_path, sqlite_catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        yield opened


@pytest.fixture
def server(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
    """Address of a real server and the secret of a token, also in the environment."""
    with serving(stage.mill, "developer") as (url, secret):
        monkeypatch.setenv("TIDEMILL_URL", url)
        monkeypatch.setenv("TIDEMILL_TOKEN", secret)
        yield url, secret


@pytest.fixture
def module() -> ModuleType:
    """The module of the example."""
    spec = importlib.util.spec_from_file_location("tidemill_files", MODULE)
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def land(stage: Stage, *names: str) -> None:
    """Write files into the inbox."""
    folder = stage.mill.project.config.folder / "landing" / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text("id\n1\n", encoding="utf-8")


def states(stage: Stage) -> dict[str, str]:
    """Return the state of each file."""
    return {file.name: str(file.status) for file in stage.mill.inboxes.files("orders")}


def test_the_module_claims_renews_and_closes_files(stage, server, module):
    """A user copies the module into an engine that we do not know."""
    land(stage, "1.csv", "2.csv", "3.csv_current")
    files = module.Files(*server)

    claim = files.get_latest_files("orders", key="first", owner="engine")
    files.renew_claim(claim, "1h")
    during = states(stage)
    left = files.update_file_status(claim, "SUCCESS", ["1.csv"])
    files.release_claim(claim)

    assert [file["name"] for file in claim["files"]] == ["1.csv", "2.csv"]
    assert during == {"1.csv": "IN_PROGRESS", "2.csv": "IN_PROGRESS"}
    assert left == 1
    assert states(stage) == {"1.csv": "SUCCESS", "2.csv": "NEW"}


def test_a_step_that_is_repeated_keeps_its_claim_or_gets_another(stage, server, module):
    """A claim that has ended must not be worked on, though the server remembers it as the answer to the key."""
    land(stage, "1.csv")
    files = module.Files(*server)

    first = files.get_latest_files("orders", key="run 1")
    again = files.get_latest_files("orders", key="run 1")
    files.release_claim(first)
    later = files.get_latest_files("orders", key="run 1")

    assert again == first
    assert later["claim_id"] != first["claim_id"]
    assert [file["name"] for file in later["files"]] == ["1.csv"]


def test_a_lost_answer_is_asked_for_again(stage, server, module):
    """The files would stay in progress until the lease ends, held by no step."""
    land(stage, "1.csv")
    url, secret = server
    way = Breaking(int(url.rpartition(":")[2]), losses=2)

    claim = module.Files(way.url, secret).get_latest_files("orders", key="k")
    way.close()

    assert [file["name"] for file in claim["files"]] == ["1.csv"]
    assert stage.sql("SELECT count(*) FROM run WHERE kind = 'external'") == [(1,)]


def test_a_claim_is_renewed_while_a_block_works_and_its_loss_is_seen(stage, server, module):
    """Work goes on for longer than a lease; and must stop when another run may have the files."""
    land(stage, "1.csv")
    files = module.Files(*server)
    claim = files.get_latest_files("orders", key="k", lease="5s")
    stage.sql("UPDATE run SET lease_until = 1 WHERE kind = 'external' RETURNING 1")

    with files.renewing(claim, "1h", every=0.05) as lost:
        while stage.sql("SELECT lease_until FROM run WHERE kind = 'external'") == [(1,)]:
            threading.Event().wait(0.05)
        before = lost.is_set()
        stage.mill.inboxes.release_claim(claim["claim_id"])
        after = lost.wait(30)

    assert (before, after) == (False, True)


def test_errors_have_their_code(stage, server, module):
    """A workflow decides by the code."""
    url, _ = server
    files = module.Files(*server)
    for call, code in (
        (lambda: files.get_latest_files("nothing", key="k"), "not_found"),
        (lambda: files.renew_claim({"claim_id": "run_1"}), "not_found"),
        (lambda: module.Files(url, "wrong").release_claim({"claim_id": "run_1"}), "unauthorized"),
    ):
        with pytest.raises(module.Refused) as refused:
            call()
        assert refused.value.code == code
    with pytest.raises(ValueError, match="no address"):
        module.Files("file:///etc/passwd", "x")


def test_the_module_needs_the_standard_library_alone():
    """A worker of Airflow has no Tidemill."""
    program = f"import sys; sys.path.insert(0, {str(FOLDER)!r}); import tidemill_files; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()

    assert not {"airflow", "tidemill", "httpx"} & set(loaded)


def test_the_paths_of_the_module_are_routes():
    """A renamed route would be found by a worker in the night."""
    paths = re.findall(r'f"(/v1/[^"]+)"', MODULE.read_text(encoding="utf-8"))
    routes = [compile_path(route.path)[0] for route in list_routes() if route.method == "POST"]

    assert len(paths) == 4
    for path in paths:
        assert any(route.fullmatch(re.sub(r"\{.*?\}", "x", path)) for route in routes), path


def test_the_dag_does_the_workflow_of_the_seed(stage, server, capsys):
    """Claim, process, update: each file once; without files all tasks are skipped."""
    land(stage, "1.csv", "2.csv", "3.csv_current")
    with dag_of(DAG) as dag:
        first = dag.run("scheduled__1")
        land(stage, "4.csv")
        second = dag.run("scheduled__2")
        third = dag.run("scheduled__3")

    done = {"get_latest_files": "success", "process": "success", "update_file_status": "success"}
    assert first == second == done | {"report_error": "skipped"}
    assert set(third.values()) == {"skipped"}
    assert capsys.readouterr().out.splitlines() == ["1.csv: 2 lines", "2.csv: 2 lines", "4.csv: 2 lines"]
    assert set(states(stage).values()) == {"SUCCESS"}
    assert dag.options["catchup"] is False


def test_files_of_a_failed_dag_run_come_again(stage, server, tmp_path):
    """A file that cannot be read fails its batch, which is in ERROR then."""
    land(stage, "1.csv")
    path = tmp_path / "landing" / "orders" / "1.csv"
    path.write_bytes(b"\xff\xfe")
    with dag_of(DAG) as dag:
        failed = dag.run("scheduled__1")
        during = states(stage)
        path.write_text("id\n1\n", encoding="utf-8")
        stage.mill.inboxes.retry("orders")
        passed = dag.run("scheduled__2")

    assert (failed["process"], failed["update_file_status"], failed["report_error"]) == (
        "failed",
        "upstream_failed",
        "success",
    )
    assert during == {"1.csv": "ERROR"}
    assert passed["update_file_status"] == "success"


def test_a_claim_that_fails_leaves_nothing_to_report(stage, server, monkeypatch):
    """The server is away, or the token was revoked."""
    land(stage, "1.csv")
    monkeypatch.setenv("TIDEMILL_TOKEN", "tm_revoked")
    with dag_of(DAG) as dag:
        ended = dag.run("scheduled__1")

    assert (ended["get_latest_files"], ended["process"], ended["report_error"]) == (
        "failed",
        "upstream_failed",
        "success",
    )


def test_the_dag_file_compiles_for_airflow_2_too():
    """Airflow reads it with the Python of its workers."""
    text = DAG.read_text(encoding="utf-8")
    compile(text, str(DAG), "exec")

    assert "airflow.decorators" in text
