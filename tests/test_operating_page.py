"""docs/operating.md: the unit's command exists, and its script prints each failure once."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import tidemill as tm
from tests.stage import staged
from tidemill.cli.main import main
from tidemill.cli.up import command as up

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "operating.md").read_text(encoding="utf-8")
SCRIPT, QUESTION, GRAPH = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
APP = """
import tidemill as tm

app = tm.App("shop")
orders = app.inbox("orders", "landing/", schema="id long", attempts=1)


@app.python(reads=[orders])
def load(run):
    raise ValueError("no such customer")


app.schedule("on_orders", load, trigger=tm.NewFiles(orders))
"""


def test_the_unit_starts_a_command_that_exists():
    """A typing error in a unit is seen first when the machine starts again."""
    (command,) = re.findall(r"^ExecStart=\S+/tidemill (.*)$", PAGE, re.MULTILINE)
    name, *options = shlex.split(command)

    context = up.make_context("up", options)

    assert (name, context.params["no_deploy"], context.params["drain"]) == ("up", True, "5m")


def test_the_script_prints_each_failed_run_once_and_what_is_quarantined(sqlite_catalog_url, tmp_path):
    """Cron mails what the script prints; a mail each five minutes about one run is soon filtered away."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    (tmp_path / "alerts.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/1.csv").write_text("id\n1\n", encoding="utf-8")

    def run(*command: str) -> list[str]:
        done = subprocess.run([sys.executable, *command], cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    run("-c", "from tidemill.cli.main import main; main()", "up", "--until-idle")

    first, second = run("alerts.py"), run("alerts.py")

    thing = "default.orders 1.csv"
    quarantined = f"{thing} is quarantined: ValueError: no such customer (tidemill inbox release {thing})"
    assert [line.partition(" (")[0] for line in first] == [
        "default.shop.load failed: ValueError: no such customer",
        quarantined.partition(" (")[0],
    ]
    assert second == [quarantined]


def test_the_question_why_is_answered_as_the_page_shows(sqlite_catalog_url, tmp_path, monkeypatch, capsys):
    """The example is what a script of an operator begins with."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    (tmp_path / "landing").mkdir()
    (tmp_path / "landing/orders_2.csv").write_text("id\n1\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with tm.open(tmp_path) as mill:
        mill.deploy()
        mill.inboxes.scan("orders")

    exec(compile(QUESTION, "docs/operating.md", "exec"), {})

    assert [line.partition(" default")[0] for line in capsys.readouterr().out.splitlines()] == [
        "file",
        "file_waits_for_run",
        "waits_for_scheduler",
    ]


LOADING = """
import tidemill as tm

app = tm.App("shop")
orders = app.inbox("orders", "landing/", format="text", settle="0s")
clean = app.fileset("clean", keys={"day": "date"}, format="text")


@app.python(reads=[orders], writes=[clean])
def load(run):
    if run.input(orders):
        run.output(clean).append({"day=2026-01-01": "1\\n"})
"""


def test_things_are_found_as_the_page_says(sqlite_catalog_url, tmp_path, monkeypatch, capsys):
    """Each line of the page finds what it is about."""
    with staged(tmp_path, sqlite_catalog_url, LOADING) as stage:
        (tmp_path / "landing/orders_2.csv").write_text("1\n", encoding="utf-8")
        stage.mill.inboxes.scan("orders")
        stage.outcome("shop.load")
    monkeypatch.chdir(tmp_path)
    printed = []
    (commands,) = re.findall(r"```console\n(\$ tidemill search.*?)```", PAGE, re.DOTALL)
    for line in commands.splitlines():
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line)[2:])
        assert not ended.value.code, line
        printed.append(capsys.readouterr().out.splitlines()[1].split()[1:])

    assert printed == [
        ["default.orders", "tidemill", "inbox", "show", "default.orders"],
        ["default.shop.load", "tidemill", "run", "list", "--program", "default.shop.load"],
        ["default.orders/orders_2.csv", "tidemill", "why", "default.orders/orders_2.csv"],
        ["default.clean/day=2026-01-01", "tidemill", "why", "default.clean/day=2026-01-01"],
    ]


def test_lineage_is_shown_as_the_page_says(sqlite_catalog_url, tmp_path, monkeypatch, capsys):
    """The commands are what the engineer on duty copies."""
    with staged(tmp_path, sqlite_catalog_url, LOADING) as stage:
        (tmp_path / "landing/orders_2.csv").write_text("1\n", encoding="utf-8")
        stage.mill.inboxes.scan("orders")
        stage.outcome("shop.load")
    monkeypatch.chdir(tmp_path)
    printed = []
    (commands,) = re.findall(r"```console\n(\$ tidemill inbox lineage.*?)```", PAGE, re.DOTALL)
    for line in commands.splitlines():
        with pytest.raises(SystemExit) as ended:
            main(shlex.split(line)[2:])
        assert not ended.value.code, line
        printed.append(capsys.readouterr().out)

    exec(compile(GRAPH, "docs/operating.md", "exec"), {"tm": tm})

    assert "partition  default.clean/day=2026-01-01" in printed[0]
    assert "file  default.orders/orders_2.csv  SUCCESS" in printed[1]
    assert "program  default.shop.load" in printed[2]
    assert "program:default.shop.load" in printed[3]
    assert [line.split()[1] for line in capsys.readouterr().out.splitlines()] == ["writes", "reads"]


def test_the_table_has_each_code_with_its_meaning():
    """A code that is not explained is as good as none, and a code of the page alone is never answered."""
    members = next(
        node for node in ast.parse(inspect.getsource(tm.Reason)).body if isinstance(node, ast.ClassDef)
    ).body[1:]
    meanings = [node.value.value for node in members if isinstance(node, ast.Expr)]

    table = PAGE.partition("## Why something waits")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| `([a-z_]+)` \| (.*) \|$", table, re.MULTILINE)

    assert rows == [(reason.value, meaning) for reason, meaning in zip(tm.Reason, meanings, strict=True)]
