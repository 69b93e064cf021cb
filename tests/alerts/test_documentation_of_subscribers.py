"""docs/subscribers.md: its commands work, its reader reads all, and its table is what a receiver gets."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.served import serving
from tests.stage import staged
from tidemill.alerts.subscribers import write_event
from tidemill.catalog.messages import Position, read_messages
from tidemill.cli.main import main
from tidemill.client.connect import connect

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "subscribers.md").read_text(encoding="utf-8")
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
(READER,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
APP = """
import tidemill as tm

app = tm.App("shop")
orders = app.fileset("orders", keys={"day": "date"})
"""


@pytest.fixture
def stage(sqlite_catalog_url, tmp_path):
    """A project with two partitions."""
    with staged(tmp_path, sqlite_catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as made:
        made.publish("orders", "day=2026-01-01", "day=2026-01-02")
        yield made


def test_its_commands_work(stage, tmp_path, capsys):
    """A reader copies them."""
    newest = stage.mill.topics.read("data", limit=1)[0].position
    stage.sql(
        "INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at, ended_at) VALUES "
        "('DELIVERY_ID', '{}', 1, 0, 'subscriber pager', 'x', '{}', 'DEAD', 1, 1) RETURNING 1"
    )
    stage.sql('UPDATE delivery SET target = \'{"type": "slack", "url": "env:X"}\' RETURNING 1')
    for command in COMMANDS:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(tmp_path), *shlex.split(command.replace("POSITION", newest))[1:]])
        assert not ended.value.code, (command, capsys.readouterr().err)
    assert [one.name for one in stage.mill.subscribers.list()] == ["pager"]


def test_its_reader_reads_each_message_once_here_and_over_http(stage):
    """The same function for the project and for a client of its server."""
    names: dict = {}
    exec(READER, names)
    known = [
        one.position for one in stage.mill.topics.read("data", after="0") if one.event_key.startswith("partition:")
    ]
    read: list[str] = []

    names["follow"](stage.mill, lambda position, _: read.append(position))
    assert read == known
    stage.mill.subscribers.delete("warehouse")
    read.clear()
    with serving(stage.mill) as (url, secret), connect(url, token=secret) as far:
        names["follow"](far, lambda position, _: read.append(position))
    assert read == known


def test_its_table_has_the_fields_of_an_event(stage):
    """A receiver is written from it."""
    rows = re.findall(r"^\| (`.*?`) \|", PAGE, re.MULTILINE)
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    (message, *_) = stage.mill.project.catalog.read(lambda db: read_messages(db, "data", Position(0, 0), 1))
    event = json.loads(write_event(message))

    assert event.keys() - named == {"specversion", "source", "datacontenttype"}
    assert event["type"] in PAGE
