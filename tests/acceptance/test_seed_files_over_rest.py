"""Seed 004 by REST: a workflow engine outside gets the latest files, and updates their status, over real HTTP."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from httpx import Client

from tests.served import serving
from tests.stage import Stage, staged
from tests.yardstick import patience
from tidemill.run.processes.reaper import Reaper

APP = """
import tidemill as tm

app = tm.App("flume")
feed = app.inbox("feed", "tmp", format="text", settle="0s", retry_after="1s", attempts=3)
other = app.inbox("other", "elsewhere", format="text", settle="0s")
"""
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "airflow"
ENGINE = """
import sys, time
sys.path.insert(0, sys.argv[1])
from tidemill_files import Files
claim = Files(sys.argv[2], sys.argv[3]).get_latest_files("feed", key="workflow 1", lease="5s")
print(claim["claim_id"], flush=True)
time.sleep(600)
"""


@pytest.fixture
def stage(catalog_url: str, tmp_path: Path) -> Iterator[Stage]:
    """The folder into which Flume writes."""
    with staged(tmp_path, catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        yield opened


@pytest.fixture
def server(stage: Stage) -> Iterator[tuple[str, str]]:
    """Address of a server and the secret of a token."""
    with serving(stage.mill, "developer") as found:
        yield found


@pytest.fixture
def oozie(server: tuple[str, str]) -> Iterator[Client]:
    """A workflow engine, which knows nothing but HTTP."""
    with _engine(server) as client:
        yield client


def _engine(server: tuple[str, str]) -> Client:
    url, secret = server
    return Client(base_url=url, headers={"authorization": f"Bearer {secret}"}, timeout=patience(20))


def land(stage: Stage, *names: str) -> None:
    """Have Flume write files."""
    folder = stage.mill.project.config.folder / "tmp"
    for name in names:
        (folder / name).write_text(f"{name}\n", encoding="utf-8")


def get_latest_files(engine: Client, key: str = "", **wanted: Any) -> dict[str, Any]:
    """GetLatestFiles of the seed."""
    headers = {"idempotency-key": key} if key else {}
    answer = engine.post("/v1/inboxes/feed:get-latest-files", json=wanted, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def update_file_status(engine: Client, claim: dict[str, Any], status: str, *names: str) -> Any:
    """UpdateFileStatus of the seed."""
    wanted = {"files": list(names) or None, "status": status}
    return engine.post(f"/v1/inboxes/{claim['claim_id']}:update-file-status", json=wanted)


def names_of(claim: dict[str, Any]) -> list[str]:
    """Return the names of the files of a claim."""
    return [file["name"] for file in claim["files"]]


def states(engine: Client) -> dict[str, str]:
    """Return the state of each file, as REST shows it."""
    return {file["name"]: file["status"] for file in engine.get("/v1/inboxes/feed/files").json()["items"]}


def test_the_hours_of_the_seed(stage, oozie):
    """First hour 1.txt and 2.txt; second hour only what has come since, and never what Flume writes at that moment."""
    land(stage, "1.txt", "2.txt", "3.txt_current")
    first = get_latest_files(oozie)
    during = states(oozie)
    assert update_file_status(oozie, first, "SUCCESS").json()["left"] == 0
    (stage.mill.project.config.folder / "tmp" / "3.txt_current").rename(
        stage.mill.project.config.folder / "tmp" / "3.txt"
    )
    land(stage, "4.txt", "5.txt")

    second = get_latest_files(oozie)
    update_file_status(oozie, second, "SUCCESS")
    nothing = get_latest_files(oozie)

    assert names_of(first) == ["1.txt", "2.txt"]
    assert during == {"1.txt": "IN_PROGRESS", "2.txt": "IN_PROGRESS"}
    assert names_of(second) == ["3.txt", "4.txt", "5.txt"]
    assert set(states(oozie).values()) == {"SUCCESS"}
    assert (nothing["claim_id"], nothing["files"]) == ("", [])


def test_files_in_error_come_again_and_success_does_not(stage, oozie):
    """Picked up and not processed: to be picked up again."""
    land(stage, "1.txt", "2.txt")
    claim = get_latest_files(oozie)

    update_file_status(oozie, claim, "SUCCESS", "1.txt")
    update_file_status(oozie, claim, "ERROR", "2.txt")
    at_once = get_latest_files(oozie)
    assert states(oozie) == {"1.txt": "SUCCESS", "2.txt": "ERROR"}
    assert at_once["files"] == []
    again: dict[str, Any] = at_once
    until = time.monotonic() + patience(20)
    while not again["files"] and time.monotonic() < until:
        again = get_latest_files(oozie)

    assert names_of(again) == ["2.txt"]
    assert again["files"][0]["failures"] == 1


def test_a_file_that_comes_late_under_an_earlier_name_is_found(stage, oozie):
    """The marker of the seed loses such a file for ever."""
    land(stage, "hourly_feed.1000002")
    update_file_status(oozie, get_latest_files(oozie), "SUCCESS")
    land(stage, "hourly_feed.1000001")

    assert names_of(get_latest_files(oozie)) == ["hourly_feed.1000001"]


def test_a_claim_is_renewed_by_any_step_that_knows_it(stage, oozie, server):
    """The steps of a workflow are processes of their own, on other machines."""
    land(stage, "1.txt")
    claim = get_latest_files(oozie, lease="5s")
    before = stage.sql("SELECT lease_until FROM run WHERE kind = 'external'")

    with _engine(server) as step:
        renewed = step.post(f"/v1/inboxes/{claim['claim_id']}:renew-claim", json={"lease": "1h"})

    assert renewed.json() == {"claim_id": claim["claim_id"], "lease": "1h"}
    assert stage.sql("SELECT lease_until FROM run WHERE kind = 'external'") > before
    assert update_file_status(oozie, claim, "SUCCESS").status_code == 200


def test_a_request_that_is_sent_again_gets_the_same_claim(stage, oozie):
    """The answer was lost on its way, and the files are in progress."""
    land(stage, "1.txt", "2.txt")

    first = get_latest_files(oozie, "workflow 7", limit=1)
    land(stage, "0.txt")
    again = get_latest_files(oozie, "workflow 7", limit=1)
    other = get_latest_files(oozie, "workflow 8")

    assert again == first
    assert len(first["files"]) == 1
    assert not set(names_of(first)) & set(names_of(other))


def test_a_status_that_is_sent_again_changes_nothing(stage, oozie):
    """The same; and another status for a closed file is refused."""
    land(stage, "1.txt", "2.txt")
    claim = get_latest_files(oozie)

    first = update_file_status(oozie, claim, "SUCCESS", "1.txt")
    again = update_file_status(oozie, claim, "SUCCESS", "1.txt")
    other = update_file_status(oozie, claim, "ERROR", "1.txt")

    assert first.json() == again.json() == {"claim_id": claim["claim_id"], "status": "SUCCESS", "left": 1}
    assert (other.status_code, other.json()["code"]) == (409, "not_claimed")
    assert states(oozie) == {"1.txt": "SUCCESS", "2.txt": "IN_PROGRESS"}


def test_engines_at_the_same_time_never_get_the_same_file(stage, server):
    """Each file is processed once, however many workflows run."""
    files = [f"{number:03}.txt" for number in range(60)]
    land(stage, *files)
    got: Counter[str] = Counter()
    errors: list[str] = []
    lock = threading.Lock()

    def work() -> None:
        with _engine(server) as engine:
            while (claim := get_latest_files(engine, limit=4, scan=False))["files"]:
                answer = update_file_status(engine, claim, "SUCCESS")
                with lock:
                    got.update(names_of(claim))
                    errors.extend([answer.text] * (answer.status_code != 200))

    stage.mill.inboxes.scan("feed")
    threads = [threading.Thread(target=work) for _ in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert errors == []
    assert got == Counter(files)


def test_the_files_of_a_killed_engine_return_when_its_lease_has_run_out(stage, server, oozie):
    """Another run gets them; and what the dead engine had sent comes too late."""
    land(stage, "1.txt", "2.txt")
    words = [sys.executable, "-c", ENGINE, str(EXAMPLE), *server]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        claim = {"claim_id": engine.stdout.readline().strip()}
        held = states(oozie)
        before = get_latest_files(oozie)
        engine.kill()
    reaper = Reaper(stage.world, stage.mill.project.catalog, timedelta(seconds=1))
    until = time.monotonic() + patience(60)
    while not (fenced := reaper.step()) and time.monotonic() < until:
        time.sleep(0.1)
    after = get_latest_files(oozie)
    late = update_file_status(oozie, claim, "SUCCESS")

    assert set(held.values()) == {"IN_PROGRESS"}
    assert before["files"] == []
    assert fenced == [claim["claim_id"]]
    assert names_of(after) == ["1.txt", "2.txt"]
    assert (late.status_code, late.json()["code"]) == (409, "run_taken")
    assert set(states(oozie).values()) == {"IN_PROGRESS"}


def test_a_token_of_one_namespace_does_the_whole_workflow_and_sees_no_other_claim(stage, oozie, server):
    """An engine has a token for its own namespace alone."""
    land(stage, "1.txt")
    url, _ = server
    secret = stage.mill.tokens.create("own", role="developer", namespace="default").secret
    hidden = stage.mill.tokens.create("other", role="developer", namespace="elsewhere").secret
    with _engine((url, secret)) as own, _engine((url, hidden)) as other:
        claim = get_latest_files(own)
        path = f"/v1/inboxes/{claim['claim_id']}"
        unseen = [
            other.post("/v1/inboxes/feed:get-latest-files", json={}),
            other.post(f"{path}:renew-claim", json={}),
            other.post(f"{path}:release-claim", json={}),
            update_file_status(other, claim, "NEW"),
        ]
        nothing = other.post("/v1/inboxes/run_none:renew-claim", json={})
        renewed = own.post(f"{path}:renew-claim", json={})
        closed = update_file_status(own, claim, "SUCCESS")

    assert [answer.status_code for answer in unseen] == [404] * 4
    assert unseen[1].json()["detail"] == nothing.json()["detail"].replace("run_none", claim["claim_id"])
    assert (renewed.status_code, closed.status_code) == (200, 200)
    assert states(oozie) == {"1.txt": "SUCCESS"}
