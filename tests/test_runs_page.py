"""docs/runs.md: its commands and calls work as they stand."""

from __future__ import annotations

import re
import shlex
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

import tidemill as tm
from tests.errors import raises_code
from tests.stage import EMPTY, Stage, staged
from tidemill.cli.main import main

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "runs.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
APP = """
clicks = app.fileset("clicks", keys={"day": "date", "hour": "int"})
raw = app.inbox("raw", "landing", format="csv", schema="id INT", settle="0s")


@app.python(reads=[clicks], arguments={"level": 1})
def report(run):
    pass


@app.python(reads=[raw])
def load(run):
    pass
"""


@pytest.fixture
def stage(tmp_path, sqlite_catalog_url, monkeypatch):
    """A project with the data sets and programs of the page."""
    monkeypatch.chdir(tmp_path)
    with staged(tmp_path, sqlite_catalog_url, EMPTY + APP) as stage:
        (tmp_path / "landing").mkdir(exist_ok=True)
        (tmp_path / "landing" / "a.csv").write_text("id\n1\n")
        stage.mill.inboxes.scan("raw")
        stage.publish("clicks", "day=2026-11-01/hour=3", "day=2026-11-01/hour=4")
        yield stage


@contextmanager
def runner_of(stage: Stage) -> Iterator[None]:
    """Work on the runs of a project during a block."""
    ended = threading.Event()

    def work() -> None:
        while not ended.wait(0.02):
            stage.work()

    runner = threading.Thread(target=work)
    runner.start()
    try:
        yield
    finally:
        ended.set()
        runner.join()


def test_the_commands_of_the_page_work(stage, capsys):
    """A reader copies them."""
    commands = [shlex.split(line)[1:] for kind, text in BLOCKS if not kind for line in text.splitlines()]
    run_id = ""
    for words in commands:
        known = [run_id if word == "RUN_ID" else word for word in words]
        if known[1] == "retry":
            stage.mill.runs.kill(run_id)
        if known[1] == "replay":
            stage.work()
            known[2] = next(run.run_id for run in stage.runs() if run.state == "COMPLETED")
        with runner_of(stage) if known[1] == "replay" else nullcontext(), pytest.raises(SystemExit, match="0"):
            main(known)
        run_id = stage.mill.runs.list(limit=1)[0].run_id

    assert capsys.readouterr().out.splitlines()[-1] == "both wrote nothing"
    assert stage.find(run_id).exit_reason == "sandbox"
    assert [words[1] for words in commands] == ["start", "retry", "kill", "start", "start", "replay"]


def test_an_argument_of_the_page_is_a_secret_in_the_driver_alone(tmp_path, sqlite_catalog_url):
    """A password in the catalog is in each of its backups."""
    secret = tmp_path / "secret"
    secret.write_text("swordfish\n")
    (app,) = (text for kind, text in BLOCKS if kind == "python" and "import tidemill" in text)
    told = f"    with open({str(tmp_path / 'told')!r}, 'w') as told:\n        told.write(f'{{key}} {{password}}')\n"
    with staged(tmp_path, sqlite_catalog_url, app + told, environ={"CRM_KEY": "open sesame"}) as stage:
        stage.mill.runs.start("shop.mirror", {"password": tm.Secret(f"file:{secret}")})
        (ran,) = stage.work()
        with raises_code("bad_secret_place") as refused:
            stage.mill.runs.start("shop.mirror", {"password": "swordfish"})
        kept = str(stage.mill.project.catalog.dump())

    assert (ran.state, (tmp_path / "told").read_text()) == ("COMPLETED", "open sesame swordfish"), ran.exit_reason
    assert ran.arguments == {"key": "env:CRM_KEY", "password": f"file:{secret}"}
    assert "swordfish" not in str(refused.value)
    assert "swordfish" not in kept
    assert "open sesame" not in kept


def test_a_node_without_the_secret_leaves_the_run_to_other_nodes(tmp_path, sqlite_catalog_url):
    """Each attempt there would count against the program, and against the partitions that the attempt has taken."""
    (app,) = (text for kind, text in BLOCKS if kind == "python" and "import tidemill" in text)
    with staged(tmp_path, sqlite_catalog_url, app, environ={"CRM_KEY": "open sesame"}) as stage:
        stage.mill.runs.start("shop.mirror", {"password": tm.Secret(f"file:{tmp_path}")})
        (ran,) = stage.work()

    assert (ran.state, ran.failures, ran.write_pointer) == ("PENDING", 0, None)
    assert f"no_secret: there is no secret at file:{tmp_path}" in ran.exit_reason


def test_an_error_with_a_secret_in_its_text_shows_the_place(tmp_path, sqlite_catalog_url):
    """Libraries write the arguments of a call into their errors, also by `repr`, which escapes some characters."""
    (app,) = (text for kind, text in BLOCKS if kind == "python" and "import tidemill" in text)
    fails = "    raise ValueError(f'no such login: {key}, {password!r}')\n"
    with staged(
        tmp_path, sqlite_catalog_url, app + fails, environ={"CRM_KEY": "open sesame", "PW": "sword'\"fish"}
    ) as stage:
        stage.mill.runs.start("shop.mirror", {"password": tm.Secret("env:PW")})
        (ran,) = stage.work()
        complaints = "".join(stage.spawner.complaints)

    assert ran.exit_reason == "ValueError: no such login: env:CRM_KEY, 'env:PW'"
    assert "no such login: env:CRM_KEY" in complaints
    assert "fish" not in complaints.replace(fails, "")
    assert "sesame" not in complaints


def test_no_error_of_tidemill_shows_a_secret(tmp_path, sqlite_catalog_url):
    """The error of a store names its location, and a location may have a key in it."""
    (app,) = (text for kind, text in BLOCKS if kind == "python" and "import tidemill" in text)
    asks = (
        "    from tidemill.storage.files import StorageUnavailable\n"
        "    raise StorageUnavailable(f's3://{password}@lake', '', 'no answer')\n"
    )
    with staged(
        tmp_path, sqlite_catalog_url, app + asks, environ={"CRM_KEY": "open sesame", "PW": "swordfish"}
    ) as stage:
        stage.mill.runs.start("shop.mirror", {"password": tm.Secret("env:PW")})
        (ran,) = stage.work()

    assert "storage_unavailable: storage s3://env:PW@lake fails" in ran.exit_reason
    assert "swordfish" not in ran.exit_reason


def test_the_calls_of_the_page_work(stage):
    """The same in Python."""
    (text,) = (text for kind, text in BLOCKS if kind == "python" and "import tidemill" not in text)

    exec(text, {"mill": stage.mill})

    assert sorted(run.state for run in stage.work()) == ["COMPLETED", "COMPLETED"]
