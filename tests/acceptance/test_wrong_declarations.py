"""Each wrong declaration is refused when it is made, with the field and the cure, and nothing is stored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.resources import files

import pytest

from tests.acceptance.wrong_declarations import APP, CONSTRAINTS, FIELDS, TRIGGERS, Wrong
from tests.stage import Stage, open_stage
from tidemill.cli.main import main

SOUND = {"type": "new_partitions", "fileset": "clicks"}
REFUSED = {2, 4}
"""The exit codes of a command that refuses its input: a wrong value, or a name that is not there."""
SCHEMA = (files("tidemill.catalog.migrations") / "0001_schema.sql").read_text(encoding="utf-8")
TABLES = re.findall(r"^CREATE TABLE (\w+)", SCHEMA, re.MULTILINE)


@pytest.fixture
def stage(catalog_url, tmp_path) -> Iterator[Stage]:
    """A sound app, deployed."""
    stage = open_stage(Stage, tmp_path, catalog_url, APP)
    (tmp_path / "landing").mkdir(exist_ok=True)
    with closing(stage.mill):
        stage.mill.deploy()
        yield stage


def rows(stage: Stage) -> dict[str, list[str]]:
    """All rows of the catalog."""
    return {table: sorted(map(str, stage.sql(f"SELECT * FROM {table}"))) for table in TABLES}


def refusals(stage: Stage, wrong: list[Wrong], say: Callable[[Wrong], list[str]], capsys) -> dict[str, str]:
    """Say each wrong declaration by a command; return those that were not refused as they should be, and why."""
    before, found = rows(stage), {}
    folder = stage.mill.project.config.folder
    for one in wrong:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(folder), *say(one)])
        errors = capsys.readouterr().err
        if ended.value.code not in REFUSED:
            found[one.python] = f"exit code {ended.value.code}: {errors}"
        elif "Traceback" in errors or not all(word in errors for word in one.words):
            found[one.python] = errors
        elif rows(stage) != before:
            found[one.python] = "something is stored"
    return found


@pytest.mark.parametrize(
    ("wrong", "field"), [(TRIGGERS, "trigger"), (CONSTRAINTS, "constraints"), (FIELDS, "")], ids=["t", "c", "fields"]
)
def test_a_deployment_refuses_each_wrong_declaration(stage, capsys, wrong, field):
    """The sound schedules of the same app file are not added either."""
    app = stage.mill.project.config.app
    also = "app.schedule('also', ingest, trigger=tm.NewFiles(raw))"
    trigger = "" if field == "trigger" else ", trigger=tm.NewPartitions(clicks)"

    def declare(one: Wrong) -> list[str]:
        given = f"{field}={one.python}" if field else one.python
        program = "join" if field else "ingest"
        app.write_text(f"{APP}\n{also}\napp.schedule('wrong', {program}, {given}{trigger})\n", encoding="utf-8")
        return ["deploy"]

    assert refusals(stage, wrong, declare, capsys) == {}


@pytest.mark.parametrize(
    ("wrong", "field"), [(TRIGGERS, "trigger"), (CONSTRAINTS, "constraints"), (FIELDS, "")], ids=["t", "c", "fields"]
)
def test_a_list_with_a_wrong_schedule_makes_none(stage, capsys, wrong, field):
    """By `schedule create --file`: the first entry of the list is sound."""
    entries = stage.mill.project.config.folder / "entries.json"

    def write(one: Wrong) -> list[str]:
        program = "shop.join" if field else "shop.ingest"
        more = {field: one.json} if field else one.json
        also = {"name": "shop.also", "program": "shop.join", "trigger": SOUND}
        entries.write_text(json.dumps([also, {"name": "shop.wrong", "program": program, "trigger": SOUND} | more]))
        return ["schedule", "create", "--file", str(entries)]

    assert refusals(stage, wrong, write, capsys) == {}


@pytest.mark.parametrize("verb", ["create", "update"])
@pytest.mark.parametrize(("wrong", "option"), [(TRIGGERS, "--trigger"), (CONSTRAINTS, "--constraint")], ids=["t", "c"])
def test_the_command_line_refuses_each_wrong_option(stage, capsys, verb, wrong, option):
    """A schedule that is there stays as it is."""
    names = {"create": ["shop.wrong", "shop.join"], "update": ["shop.sound"]}[verb]
    trigger = ["--trigger", json.dumps(SOUND)] if (verb, option) == ("create", "--constraint") else []

    def say(one: Wrong) -> list[str]:
        values = one.json if isinstance(one.json, list) else [one.json]
        return ["schedule", verb, *names, *trigger, *(w for value in values for w in (option, json.dumps(value)))]

    assert refusals(stage, wrong, say, capsys) == {}
