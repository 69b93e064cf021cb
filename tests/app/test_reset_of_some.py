"""Resets of a consumer to some partitions, by their keys and their times; and counts that are exact."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from tests.errors import raises_code
from tests.run.conftest import rows_of
from tests.stage import staged
from tidemill import UserError
from tidemill.lake.consumer import resets
from tidemill.mill import consumers

APP = """
from pathlib import Path
import tidemill as tm

HERE = Path(__file__).parent
app = tm.App("shop")
lines = app.fileset("lines", keys={"day": "date", "hour": "int"}, watermark=tm.Watermark(
    "ts", pattern="$day $hour:00:00", interval="1h", zone="Europe/Berlin"))
plain = app.fileset("plain", keys={"hour": "int"})


@app.python(reads=[lines], retries=0, backoff="0s")
def look(run):
    hours = [partition["hour"] for partition in run.input(lines).partitions]
    with (HERE / "said.txt").open("a") as said:
        said.write(f"{hours}\\n")


@app.python(reads=[plain])
def other(run):
    pass


app.schedule("look", look, trigger=tm.NewPartitions(lines))
"""
NAME = "default.shop.look"


@pytest.fixture
def stage(tmp_path, catalog_url):
    """Hours 1 to 4 of a day, all consumed."""
    with staged(tmp_path, catalog_url, APP.replace("\\\\n", "\\n")) as stage:
        stage.publish("lines", *(f"day=2026-01-01/hour={hour}" for hour in (1, 2, 3, 4)))
        stage.play()
        yield stage


def test_a_zone_that_is_left_out_again_stays(stage):
    """Else the hours of the file set would move by the offset of the zone, without a word."""
    stage.mill.project.config.app.write_text(APP.replace(', zone="Europe/Berlin"', ""), encoding="utf-8")
    stage.mill.deploy()

    assert stage.mill.watermarks.show("lines").zone == "Europe/Berlin"


def play(stage):
    """Return the deliveries to the program since the last call."""
    before = len(stage.lines_of())
    stage.play()
    return stage.lines_of()[before:]


@pytest.mark.parametrize(
    ("choice", "given"),
    [
        ({"where": ["hour>=3"]}, [3, 4]),
        ({"where": {"hour": {1, 4}}}, [1, 4]),
        ({"time_from": "2026-01-01T03:00"}, [3, 4]),
        ({"time_from": "2026-01-01T01:00Z", "time_until": "2026-01-01T03:00Z"}, [2, 3]),
        ({"time_until": "2026-01-01T03:30", "where": ["hour>=2"]}, [2, 3]),
    ],
)
def test_only_the_chosen_partitions_of_the_past_come_again(stage, choice, given):
    """To correct one day, no person wants the whole year delivered again."""
    view = stage.mill.consumers.reset("lines", NAME, "beginning", **choice)
    stage.publish("lines", "day=2026-01-02/hour=9")
    said = play(stage)

    assert view.waiting == len(given)
    assert sorted(hour for text in said for hour in json.loads(text)) == [*given, 9]
    assert play(stage) == []
    assert stage.mill.catalog.audit().clean
    (record,) = stage.mill.consumers.show("lines", NAME).resets
    assert record.to.startswith("beginning ")


def test_a_commit_time_and_a_choice_go_together(stage):
    """The start says since which commits, the choice which of their partitions."""
    (seq,) = rows_of(stage.mill.project.catalog, "SELECT max(at) FROM partition_change")[0]
    moment = datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=seq + 1)
    while stage.mill.project.catalog.read(lambda db: db.now()) <= moment:
        pass
    stage.publish("lines", "day=2026-01-01/hour=5", "day=2026-01-01/hour=6")
    stage.play()

    stage.mill.consumers.reset("lines", NAME, moment, where=["hour>=4", "hour<6"])

    assert play(stage) == ["[5]"]


def test_a_choice_that_cannot_be_is_refused(stage, monkeypatch):
    """Nothing is reset then."""
    reset = stage.mill.consumers.reset
    with raises_code("bad_key"):
        reset("lines", NAME, "beginning", where=["week=1"])
    with raises_code("bad_start", match="2026-01-31T06:00"):
        reset("lines", NAME, "beginning", time_from="soon")
    with raises_code("no_times", match="declares no partition time"):
        reset("plain", "default.shop.other", "beginning", time_from="2026-01-01T03:00")
    monkeypatch.setattr(resets, "MOST_CHOSEN", 2)
    with raises_code("too_many_chosen", match="3 changes"):
        reset("lines", NAME, "beginning", where=["hour>=2"])
    with pytest.raises(UserError):
        reset("lines", NAME, "last week", where=["hour>=2"])

    assert stage.mill.consumers.show("lines", NAME).resets == ()


def test_counts_are_exact_however_much_is_discarded(stage, monkeypatch):
    """They stopped at 1000 in silence, and a partition beyond those could not be requeued."""
    monkeypatch.setattr(consumers, "MOST_SHOWN", 2)
    rows_of(stage.mill.project.catalog, "UPDATE consumer_work SET state = 'discarded', error = 'boom' RETURNING 1")

    shown = stage.mill.consumers.show("lines", NAME)
    (listed,) = stage.mill.consumers.list(dataset="lines")
    requeued = stage.mill.consumers.requeue("lines", NAME, ["day=2026-01-01 hour=4"]).requeued

    assert (listed.discarded, shown.discarded, len(shown.work), shown.not_shown) == (4, 4, 2, 2)
    assert requeued == 1
