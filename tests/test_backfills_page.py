"""docs/backfills.md: its app deploys, its script runs, and its commands do what they say."""

from __future__ import annotations

import json
import re
import shlex
import time
from pathlib import Path

import pytest

import tidemill as tm
from tests.nodes import node_up
from tests.stage import staged
from tests.yardstick import patience
from tidemill.cli.main import main

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "backfills.md").read_text(encoding="utf-8")
APP, SCRIPT, WAIT = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line.removeprefix("$ tidemill ") for line in PAGE.splitlines() if line.startswith("$ tidemill ")]


@pytest.fixture
def stage(sqlite_catalog_url, tmp_path, monkeypatch, spark):
    """The project of the page, which has summed up four days of January."""
    monkeypatch.chdir(tmp_path)
    with staged(tmp_path, sqlite_catalog_url, APP, spark=spark) as opened:
        opened.commit("days", spark.sql("SELECT id, date_add(DATE '2026-01-01', int(id)) AS day FROM range(4)"))
        opened.play()
        yield opened


def run(capsys, command):
    """Run a command of the page; return what it has printed."""
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    return printed.out


@pytest.mark.spark
def test_the_commands_of_the_page_do_what_they_say(stage, capsys):
    """A reader copies them, with the id of a backfill of their own."""
    plan, start, listed, plan_times, start_times, *on_one = COMMANDS

    planned = run(capsys, plan)
    started = run(capsys, f"{start} --json")
    running = run(capsys, listed)
    times = run(capsys, plan_times)
    run(capsys, start_times)
    stage.play()
    backfill_id = json.loads(started)["backfill_id"]
    shown = {}
    for command in on_one:
        if "cancel" in command:
            with tm.open(".") as mill:
                backfill_id = mill.backfills.start("shop.sum_up", select="all").backfill_id
        if "pause" in command:
            with tm.open(".") as mill:
                backfill_id = mill.backfills.start("shop.sum_up", select="all").backfill_id
        shown[command.split()[1]] = run(capsys, command.replace("BACKFILL", backfill_id))

    assert "4 runs of default.shop.sum_up: " in planned
    assert "(named: 4 done)" in planned
    assert "RUNNING" in running
    assert "31 runs of default.shop.report (named: 31 missing)" in times
    assert "4" in re.search(r"done +(\d+)", shown["show"])[1]
    assert {word: out.split()[-1] for word, out in shown.items() if word in {"pause", "resume"}} == {
        "pause": "PAUSED", "resume": "RUNNING"
    }  # fmt: skip
    assert "CANCELLED; 1 runs are killed" in shown["cancel"]


@pytest.mark.spark
def test_the_script_of_the_page_runs(stage, capsys):
    """The backfill of the script ends, and what it has published starts nothing."""
    exec(compile(SCRIPT, "backfills.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    ran = stage.play(30)
    exec(compile(WAIT, "backfills.md", "exec"), {})
    waited = capsys.readouterr().out.splitlines()[-1]

    assert (printed[0].split()[0], printed[1]) == ("4", "0 items wait")
    assert {(one.arguments["rate"], one.state) for one in ran} == {(2, "COMPLETED")}
    assert len(ran) == 4
    assert waited.strip() == "COMPLETED 4 done, 0 failed"


@pytest.mark.spark
def test_the_reports_of_a_backfill_have_their_days(stage):
    """The schedule's arguments are those of each run."""
    stage.mill.backfills.start(
        "shop.report", by="times", schedule="shop.nightly", since="2026-01-01", until="2026-01-03"
    )
    ran = stage.play()

    assert [one.arguments for one in ran] == [{"day": f"2026-01-0{day}T03:00:00.000Z"} for day in (1, 2)]


@pytest.mark.long
def test_a_node_that_is_killed_leaves_a_backfill_to_the_next_one(sqlite_catalog_url, tmp_path):
    """Each item is done once after a kill -9, and a run that ends brings the next run at once."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    settings = f'catalog = "{sqlite_catalog_url}"\n[runner]\nlease = "5s"\n'
    (tmp_path / "tidemill.toml").write_text(settings, encoding="utf-8")
    log = tmp_path / "up.log"

    def wait_for(done):
        deadline = time.monotonic() + patience(40)
        while mill.backfills.show(backfill_id).done < done:
            assert time.monotonic() < deadline, log.read_text()[-4000:]
            time.sleep(0.05)

    with tm.open(tmp_path) as mill:
        mill.deploy()
        choice = {"by": "times", "schedule": "shop.nightly", "since": "2026-01-01", "until": "2026-01-13"}
        backfill_id = mill.backfills.start("shop.report", **choice, concurrency=2).backfill_id
        with node_up(tmp_path, "one", log) as one:
            wait_for(3)
            one.kill()
            one.wait()
        with node_up(tmp_path, "two", log):
            wait_for(12)
        runs = [run.triggered_by["item"] for run in mill.runs.list() if run.state == "COMPLETED"]

        assert mill.backfills.show(backfill_id).state == "COMPLETED"
        assert sorted(runs) == list(range(12))
        assert mill.catalog.audit().findings == ()
