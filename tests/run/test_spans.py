"""Times that a notebook declares to write."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import date

import pytest

from tests.stage import EMPTY, Stage, open_stage
from tidemill.errors import UserError
from tidemill.lake.window.watermark import list_holders
from tidemill.mill.mill import open_project

APP = """
import tidemill as tm

app = tm.App("shop")
clicks = app.fileset("clicks", keys={"day": "date", "hour": "int"},
                     watermark=tm.Watermark("ts", pattern="$day $hour:00:00", interval="1h", zone="Europe/Berlin"))
plain = app.fileset("plain", keys={"day": "date"})
"""


@pytest.fixture
def mill(catalog_url, tmp_path):
    """A project with a watermark."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n', encoding="utf-8")
    with open_project(tmp_path, create=True) as opened:
        opened.deploy()
        yield opened


def declared(tmp_path):
    """The data sets as the app file declares them."""
    names: dict[str, object] = {}
    exec((tmp_path / "app.py").read_text(), names)
    return names["clicks"], names["plain"]


def test_a_transaction_says_which_times_it_writes(mill, tmp_path):
    """On the wall clock of the file set; the hour that happens twice is one hour of it."""
    clicks, _ = declared(tmp_path)
    dataset_id = mill.project.catalog.read(lambda db: mill.project.dataset(db, "clicks")).dataset_id

    with mill.transaction([clicks.span("2021-10-31 02:00", "2021-10-31 03:00")]):
        (holder,) = mill.project.catalog.read(lambda db: list_holders(db, dataset_id))

    assert (holder.ends - holder.begins) / 3_600_000_000 == 2
    assert mill.project.catalog.read(lambda db: list_holders(db, dataset_id)) == []


def test_the_commit_of_a_declared_span_completes_its_hours(mill, tmp_path):
    """Nothing came in them: the watermark passes them all the same, and no hour is missing."""
    clicks, _ = declared(tmp_path)

    with mill.transaction([clicks.span("2021-03-19 10:00", "2021-03-19 12:30")]):
        before = mill.watermarks.list()[0].watermark
    shown = mill.watermarks.show("clicks")

    assert before is None
    assert (shown.watermark, shown.holes) == ("2021-03-19 12:00:00", ())


@pytest.mark.parametrize("known", [True, False])
def test_a_span_completes_whole_hours_only(mill, tmp_path, known):
    """The span begins within an hour: that hour is not complete, and no hour begins where the span begins."""
    clicks, _ = declared(tmp_path)
    if known:
        with mill.transaction([clicks]) as tx:
            tx.fileset(clicks).create_empty({"day": date(2021, 3, 19), "hour": 9})

    with mill.transaction([clicks.span("2021-03-19 10:30", "2021-03-19 12:30")]):
        pass
    shown = mill.watermarks.show("clicks")

    assert shown.watermark == "2021-03-19 12:00:00"
    assert shown.holes == (("2021-03-19 10:00:00",) if known else ())


def test_a_span_to_the_end_of_the_calendar_commits(mill, tmp_path):
    """The last hour of the calendar has no end that can be written."""
    clicks, _ = declared(tmp_path)

    with mill.transaction([clicks.span("9999-12-31 20:00", "9999-12-31 23:30")]):
        pass

    assert [tx.state for tx in mill.transactions.list()] == ["committed"]


def test_a_span_that_does_not_commit_completes_nothing(mill, tmp_path):
    """Nor does a span with an open side, whose length no process knows."""
    clicks, _ = declared(tmp_path)

    with suppress(ValueError), mill.transaction([clicks.span("2021-03-19 10:00", "2021-03-19 12:00")]):
        raise ValueError
    with mill.transaction([clicks.span("2021-03-19 10:00", None)]):
        pass

    assert mill.watermarks.list()[0].watermark is None


def test_an_empty_hour_moves_the_watermark(mill, tmp_path):
    """An empty hour counts like any other."""
    clicks, _ = declared(tmp_path)

    with mill.transaction([clicks]) as tx:
        tx.fileset(clicks).create_empty({"day": date(2021, 3, 19), "hour": 10})

    assert mill.watermarks.list()[0].watermark == "2021-03-19 11:00:00"
    assert [(one.partition, one.rows) for one in mill.datasets.partitions("clicks")] == [("day=2021-03-19 hour=10", 0)]


def test_a_span_that_cannot_be_is_refused(mill, tmp_path):
    """Before anything begins."""
    clicks, plain = declared(tmp_path)

    for span, told in (
        (plain.span("2021-10-31", None), "has no watermark"),
        (clicks.span("2021-10-31", "2021-10-30"), "is not after its start"),
        (clicks.span("tomorrow"), "is no time"),
        (clicks.span("2021-10-31T00:00Z"), "has a time zone"),
    ):
        with pytest.raises(UserError, match=told), mill.transaction([span]):
            pytest.fail("it was opened")
    assert list(mill.transactions.list()) == []


PROGRAM = """
clicks = app.fileset("clicks", keys={{"day": "date", "hour": "int"}},
                     watermark=tm.Watermark("ts", pattern="$day $hour:00:00", interval="1h", zone="Europe/Berlin"))
plain = app.fileset("plain", keys={{"day": "date"}})

@app.{kind}writes=[{writes}], arguments={{"since": "", "hour": 12}})
def fill(run):
    run.output(clicks).append({{"day=2021-03-19/hour=10": "a row"}})
"""


def test_a_run_of_a_program_holds_the_times_that_its_arguments_name(catalog_url, tmp_path):
    """While it is open, the watermark waits for them though a later hour is complete; then its hours are complete."""
    stage = open_stage(Stage, tmp_path / "project", catalog_url, EMPTY)
    stage.declare(PROGRAM.format(kind="python(", writes='clicks.span("$since", "2021-03-19 $hour:00")'))
    seen = []

    def publish() -> None:
        stage.publish("clicks", "day=2021-03-19/hour=14")
        shown = stage.mill.watermarks.show("clicks")
        seen.append((shown.watermark, shown.reaches, [one.run_id for one in shown.held_by]))

    stage.at["driver.claimed"] = publish
    run_id = stage.mill.runs.start("shop.fill", {"since": "2021-03-19T09:00:00Z"}).run_id
    (run,) = stage.work()

    shown = stage.mill.watermarks.show("clicks")
    assert (run.state, seen) == ("COMPLETED", [("2021-03-19 10:00:00", "2021-03-19 15:00:00", [run_id])])
    assert (shown.watermark, shown.holes) == ("2021-03-19 15:00:00", ("2021-03-19 12:00:00",))
    stage.mill.close()


def test_a_span_of_a_program_that_cannot_be_is_refused(sqlite_catalog_url, tmp_path):
    """When it is deployed; a time that an argument gives fails the run."""
    stage = open_stage(Stage, tmp_path / "project", sqlite_catalog_url, EMPTY)
    for kind, writes, told in (
        ("python(", 'clicks.span("$until")', "names the argument 'until', which it does not declare"),
        ("python(", 'clicks.span("2021-03-19 10:00", "2021-03-19 09:00")', "is not after its start"),
        ("python(", 'clicks, plain.span("2021-03-19")', "has no watermark"),
        ("python(", 'clicks.span("$since"), clicks.span("$hour")', "names a data set twice"),
        ("worker(reads=[plain], ", 'clicks.span("2021-03-19")', "is a worker"),
    ):
        with pytest.raises(UserError, match=re.escape(told)):
            stage.declare(PROGRAM.format(kind=kind, writes=writes))

    stage.declare(PROGRAM.format(kind="python(", writes='clicks.span("$since")'))
    stage.mill.runs.start("shop.fill", {"since": "yesterday"})
    (run,) = stage.work()
    stage.mill.runs.start("shop.fill", {"since": "2021-03-19 10:00"})
    later = PROGRAM.format(kind="python(", writes='clicks.span("$since", "$until")')
    stage.declare(later.replace('"hour": 12', '"hour": 12, "until": "2021-03-19 11:00"'))
    (older,) = (one for one in stage.work() if one.run_id != run.run_id)

    assert (run.state, "'yesterday' is no time" in (run.exit_reason or "")) == ("FAILED", True)
    assert (older.state, "has no argument 'until'" in (older.exit_reason or "")) == ("FAILED", True)
    stage.mill.close()


def test_a_run_without_input_completes_no_span(sqlite_catalog_url, tmp_path):
    """Its program was not called: the hour would be late when its file comes."""
    stage = open_stage(Stage, tmp_path / "project", sqlite_catalog_url, EMPTY)
    writes = 'clicks.span("2021-03-19 10:00", "2021-03-19 11:00")'
    stage.declare(PROGRAM.format(kind="python(reads=[plain], run_on_empty=False, ", writes=writes))
    stage.mill.runs.start("shop.fill")
    (run,) = stage.work()

    assert (run.state, stage.mill.watermarks.show("clicks").watermark) == ("COMPLETED", None)
    stage.mill.close()
