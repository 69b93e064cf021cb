"""docs/deploying.md: its commands print what the page shows, its setting is one, its app finds its files."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from tests.stage import Stage, staged
from tidemill.cli.main import main

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "deploying.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
(PLAN,) = [block for block in BLOCKS if "tidemill plan" in block]
(HISTORY,) = [block for block in BLOCKS if "app history" in block]
(ROLLBACK,) = [block for block in BLOCKS if "app rollback" in block]
(APP,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
FOLLOW, SUSPEND = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
BEFORE = """
import tidemill as tm

app = tm.App("shop")
lines = app.fileset("lines", keys={"day": "date"}, format="text")


@app.python()
def load(run):
    pass


app.schedule("on_orders", load, trigger=tm.NewPartitions(lines, 2), timeout="1d")
"""
AFTER = BEFORE.replace("1d", "2h") + "\n@app.python()\ndef report(run):\n    pass\n"


@pytest.fixture
def stage(tmp_path, sqlite_catalog_url):
    """The page's project before the deployment that the page plans."""
    with staged(tmp_path, sqlite_catalog_url, BEFORE) as stage:
        yield stage


def type_in(stage: Stage, block: str, capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Run the commands of a block, and return the lines that they print."""
    for line in block.splitlines():
        if line.startswith("$ tidemill "):
            arguments = shlex.split(line.removeprefix("$ tidemill "))
            with pytest.raises(SystemExit) as ended:
                main(["--project", str(stage.mill.project.config.folder), *arguments])
            assert ended.value.code == 0, line
    return capsys.readouterr().out.splitlines()


def plain(lines: list[str]) -> list[str]:
    """Lines without digests, times and names of people."""
    text = re.sub(r"[0-9a-f]{8,16}(?=\W)|\d{4}-\d\d-\d\dT[\d:.]+Z|\S+@\S+", "#", "\n".join(lines))
    return [re.sub(r" +", " ", line).strip() for line in text.splitlines()]


def test_a_plan_prints_what_the_page_shows(stage, capsys):
    """A reader compares the lines with those on the screen."""
    stage.mill.schedules.create("shop.by_ops", "shop.load", trigger={"type": "every", "duration": "1h"})
    stage.publish("lines", "day=2026-01-01")
    stage.schedule()
    stage.mill.project.config.app.write_text(AFTER)

    assert plain(type_in(stage, PLAN, capsys)) == plain(PLAN.splitlines()[1:])


def test_the_history_and_the_rollback_are_as_the_page_shows(stage, capsys):
    """Typed one after the other, on two deployments."""
    stage.mill.project.config.app.write_text(AFTER)
    stage.mill.deploy()
    listed = plain(type_in(stage, HISTORY, capsys))
    type_in(stage, ROLLBACK.splitlines()[0], capsys)
    back = stage.mill.apps.show("shop").programs
    stage.mill.apps.rollback("shop")
    type_in(stage, ROLLBACK.splitlines()[1], capsys)

    shown = plain(HISTORY.splitlines()[1:])
    assert listed[0] == shown[0]
    assert [line.partition("+")[0].partition("~")[0] for line in listed] == [
        line.partition("+")[0].partition("~")[0] for line in shown
    ]
    assert back == stage.mill.apps.show("shop").programs == ("load",)
    assert [one.rolled_back_to for one in stage.mill.apps.history("shop")] == [1, 2, 1, None, None]


def test_the_setting_of_the_page_keeps_schedules(stage):
    """A reader copies the lines."""
    toml = stage.mill.project.config.folder / "tidemill.toml"
    toml.write_text(toml.read_text() + FOLLOW)
    stage.mill.project.config.app.write_text(AFTER)
    assert type_quietly(stage, "deploy") == 0

    assert stage.mill.schedules.show("shop.on_orders").generation == 1


def test_the_setting_of_the_page_suspends_new_schedules(stage):
    """A reader copies the lines."""
    toml = stage.mill.project.config.folder / "tidemill.toml"
    toml.write_text(toml.read_text() + SUSPEND)
    stage.mill.project.config.app.write_text(AFTER + "app.schedule('new', report, trigger=tm.Every('1h'))\n")
    assert type_quietly(stage, "deploy") == 0

    found = {one.name: one.status for one in stage.mill.schedules.list()}
    assert found == {"default.shop.new": "SUSPENDED", "default.shop.on_orders": "SCHEDULED"}


def test_check_ends_with_the_code_of_the_page(stage):
    """CI fails by it."""
    nothing = type_quietly(stage, "plan", "--check")
    stage.mill.project.config.app.write_text(AFTER)

    assert (nothing, type_quietly(stage, "plan", "--check")) == (0, 6)


def type_quietly(stage: Stage, *arguments: str) -> int:
    """Run a command, and return its exit code."""
    with pytest.raises(SystemExit) as ended:
        main(["--project", str(stage.mill.project.config.folder), *arguments])
    return int(ended.value.code or 0)


def test_the_app_of_the_page_finds_its_files_without_the_project(tmp_path, sqlite_catalog_url, capfd):
    """On each node, as they were deployed."""
    folder = tmp_path / "project"
    for name in ("sql/load.sql", "models/eu/x.bin"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("SELECT 1")
    with staged(folder, sqlite_catalog_url, APP) as stage:
        for name in ("sql", "models"):
            shutil.rmtree(folder / name)
        stage.mill.runs.start("shop.load")
        (run,) = stage.work()
        said = (folder / "stdout").read_text() if (folder / "stdout").exists() else capfd.readouterr().out

    assert (run.state, said) == ("COMPLETED", "SELECT 1\n")
