"""The page on other engines, run from its top to its end against a real server."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet, table

from tests.served import serving
from tests.stage import staged
from tidemill.cli.main import main
from tidemill.mill.routes import list_routes

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "outside-engines.md").read_text(encoding="utf-8")
PROGRAMS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS, READING = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
APP = """
import tidemill as tm

app = tm.App("shop")
orders = app.inbox("orders", "landing/orders", schema="id int", settle="0s")
clicks = app.fileset("clicks", keys={"day": "date"})
hourly = app.fileset("hourly", keys={"day": "date"})
"""


def test_the_programs_do_what_the_page_says(sqlite_catalog_url, tmp_path, monkeypatch, capsys):
    """A reader copies them."""
    with staged(tmp_path, sqlite_catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as stage:
        for name in ("5.csv", "6.csv"):
            (tmp_path / "landing" / "orders" / name).write_text("id\n1\n", encoding="utf-8")
        with serving(stage.mill, "developer") as (url, secret):
            monkeypatch.setenv("TIDEMILL_URL", url)
            monkeypatch.setenv("TIDEMILL_TOKEN", secret)
            names: dict[str, Any] = {}
            for program in PROGRAMS:
                if "Object Created" in program:
                    (tmp_path / "landing" / "orders" / "7.csv").write_text("id\n1\n", encoding="utf-8")
                exec(program, names)
            names["server"].close()
        printed = capsys.readouterr().out.splitlines()
        states = {file.name: str(file.status) for file in stage.mill.inboxes.files("orders")}
        partitions = [(one.partition, one.rows, one.metadata) for one in stage.mill.datasets.partitions("clicks")]

    assert [line.split()[0] for line in printed[:2]] == ["5.csv", "6.csv"]
    assert printed[2] == "1 0"
    assert printed[3].endswith("parquet {'day': 'date'}")
    assert printed[4:] == [
        "1 2",
        "day=2026-01-01 new 2",
        "part-0.parquet True True",
        "1",
        "1 1",
        "aborted column price is missing",
        "['7.csv']",
    ]
    assert states == {"5.csv": "SUCCESS", "6.csv": "ERROR", "7.csv": "NEW"}
    assert partitions == [("day=2026-01-01", 2, {"written_by": "flink"})]


def test_the_commands_are_commands(sqlite_catalog_url, tmp_path, capsys):
    """Typed as they stand."""
    pointer = ""
    with staged(tmp_path, sqlite_catalog_url, APP):
        for line in COMMANDS.strip().splitlines():
            words = shlex.split(line.removeprefix("$ tidemill ").replace("WRITE_POINTER", pointer))
            words = [str(tmp_path / word) if word == "commit.json" else word for word in words]
            with pytest.raises(SystemExit) as ended:
                main(["--project", str(tmp_path), *words, "--json"])
            assert not ended.value.code, line
            said = json.loads(capsys.readouterr().out)
            if " begin " in line:
                pointer = str(said["write_pointer"])
                file = Path(said["outputs"][0]["location"]) / "day=2026-01-01" / "a.parquet"
                file.parent.mkdir(parents=True)
                parquet.write_table(table({"n": [1]}), file)
                about = {"name": "day=2026-01-01/a.parquet", "bytes": file.stat().st_size, "rows": 1}
                change = {"dataset": "clicks", "key": "day=2026-01-01", "op": "append", "files": [about]}
                (tmp_path / "commit.json").write_text(json.dumps({"partitions": [change]}), encoding="utf-8")

        assert said["state"] == "committed"


def test_the_commands_of_a_reader_are_commands(sqlite_catalog_url, tmp_path, capsys):
    """Typed as they stand."""
    pointer, states = "", []
    with staged(tmp_path, sqlite_catalog_url, APP) as stage:
        stage.publish("clicks", "day=2026-01-01")
        for line in READING.strip().splitlines():
            words = shlex.split(line.removeprefix("$ tidemill ").replace("WRITE_POINTER", pointer))
            with pytest.raises(SystemExit) as ended:
                main(["--project", str(tmp_path), *words, "--json"])
            assert not ended.value.code, line
            said = json.loads(capsys.readouterr().out)
            pointer = str(said["write_pointer"])
            states += [str(work.state) for work in stage.mill.consumers.show("clicks", "flink").work]

    assert states == ["in_progress"]
    assert (said["state"], said["reason"]) == ("aborted", "column price is missing")


def test_the_codes_on_the_page_are_codes_and_its_paths_are_routes():
    """A program that decides by a code with a slip decides nothing."""
    source = Path(__file__).resolve().parent.parent / "src"
    known = {code for file in source.rglob("*.py") for code in re.findall(r'\n    code = "(\w+)"', file.read_text())}
    codes = set(re.findall(r"code `(\w+)`|code is `(\w+)`", PAGE))
    paths = set(re.findall(r'"(/v1/[^"]+)"', PAGE))

    named = {one or other for one, other in codes}
    assert len(named) == 5
    assert named <= known
    routes = {re.sub(r"\{.*?\}", "X", route.path) for route in list_routes()}
    names = r"\{.*?\}|(?<=inboxes/)orders|(?<=consumers/)clicks|(?<=clicks/)\w+"
    assert {re.sub(names, "X", path) for path in paths} <= routes | {"/v1/transactions/X"}
