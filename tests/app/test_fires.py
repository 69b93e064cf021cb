"""The next times at which time triggers fire: of one schedule or of all, in a period, page by page."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from tests.errors import raises_code
from tests.run.conftest import rows_of
from tests.stage import staged
from tidemill import Cron, Every, NewPartitions, iterate
from tidemill.cli.main import main

APP = """
import tidemill as tm

app = tm.App("shop")
clean = app.fileset("clean", keys={"day": "date"}, format="text")


@app.python(reads=[clean])
def report(run):
    pass
"""


@pytest.fixture
def mill(catalog_url, tmp_path):
    """A project with schedules of many kinds."""
    with staged(tmp_path, catalog_url, APP) as stage:
        daily = {"trigger": Cron("30 2 * * *", zone="Europe/Berlin")}
        stage.mill.schedules.create_many(
            [
                *(
                    {"name": f"shop.minutely_{i}", "program": "shop.report", "trigger": Cron("* * * * *")}
                    for i in range(7)
                ),
                *({"name": f"shop.daily_{i}", "program": "shop.report", **daily} for i in range(3)),
                {"name": "shop.both", "program": "shop.report", "trigger": Cron("*/5 * * * *") | Every("7m")},
                {"name": "shop.data", "program": "shop.report", "trigger": NewPartitions("clean")},
                {"name": "shop.asleep", "program": "shop.report", "trigger": Every("1m"), "suspended": True},
                {"name": "shop.all", "program": "shop.report", "trigger": Cron("*/3 * * * *"), "misfire": "all"},
            ]
        )
        yield stage.mill


def known(mill, most, **period):
    """Return the first fires of all schedules, gathered from each schedule alone, in a plain order."""
    names = [one.name for one in mill.schedules.list(limit=100)]
    ids = dict(rows_of(mill.project.catalog, "SELECT name, schedule_id FROM schedule"))
    fires = [fire for name in names for fire in mill.schedules.next(name, limit=most, **period)]
    return sorted(fires, key=lambda fire: (fire.fire_at, ids[fire.schedule.rpartition(".")[2]], fire.trigger))[:most]


@pytest.mark.parametrize("size", [1, 3, 10, 300])
def test_the_fires_of_all_schedules_are_those_of_each(mill, size):
    """Pages of any size end within fires of one minute."""
    pages = iterate(mill.schedules.next, limit=size)

    assert list(islice(pages, 120)) == known(mill, 120)


def test_a_period_holds_its_start_and_not_its_end(mill):
    """Two neighbouring days have each fire once."""
    first = mill.schedules.next("shop.minutely_0", limit=1)[0].fire_at
    start, middle, until = first, first + timedelta(minutes=4), first + timedelta(minutes=9)

    for name in ("shop.minutely_0", "shop.both", "shop.all", None):
        whole = list(iterate(mill.schedules.next, name, start=start, until=until, limit=2))
        halves = [
            fire
            for begin, end in ((start, middle), (middle, until))
            for fire in iterate(mill.schedules.next, name, start=begin, until=end, limit=3)
        ]
        assert whole == halves
        assert all(start <= fire.fire_at < until for fire in whole)
    minutes = [fire.fire_at for fire in mill.schedules.next("shop.minutely_0", start=start, until=until, limit=100)]
    assert minutes == [start + timedelta(minutes=i) for i in range(9)]


def test_a_period_in_years_to_come_costs_no_times_before_it(mill):
    """A million times before the period would take half a minute."""
    start = datetime(2900, 3, 1, tzinfo=UTC)

    fires = mill.schedules.next(start=start, until=start + timedelta(minutes=2), limit=1000)

    assert {fire.schedule for fire in fires} >= {f"default.shop.minutely_{i}" for i in range(7)}
    assert list(fires) == known(mill, 1000, start=start, until=start + timedelta(minutes=2))


def test_a_timer_that_waits_for_a_run_is_listed_too(mill):
    """With `misfire="all"` the next time waits for the end of the run before; it is no less to come."""
    catalog = mill.project.catalog
    rows_of(
        catalog,
        "UPDATE timer SET behind = 'job_x' WHERE schedule_id = "
        "(SELECT schedule_id FROM schedule WHERE name = 'all') RETURNING schedule_id",
    )

    assert "default.shop.all" in {fire.schedule for fire in mill.schedules.next(limit=100)}
    assert list(mill.schedules.next(limit=60)) == known(mill, 60)


@pytest.mark.parametrize(
    ("start", "until"),
    [
        ("tomorrow", None),
        (None, "2026-13-01"),
        ("2999-01-02", "2999-01-01"),
        ("2999-01-01", "2999-01-01"),
        ("0001-01-01T00:00:00+14:00", None),
    ],
)
def test_a_period_that_cannot_be_is_refused(mill, start, until):
    """An empty list would look like a schedule that never fires."""
    with raises_code("bad_period"):
        mill.schedules.next("shop.both", start=start, until=until)


def test_the_command_lists_a_period_of_all_schedules(mill, capsys):
    """Before a maintenance an operator asks which schedules it hits."""
    arguments = ["schedule", "next", "--from", "2999-05-01T00:00", "--until", "2999-05-02T00:00+02:00"]
    folder = str(mill.project.config.folder)

    with pytest.raises(SystemExit, match="0"):
        main(["--project", folder, *arguments, "--limit", "10000", "--json"])

    fires = json.loads(capsys.readouterr().out)
    daily = [fire for fire in fires if ".daily_" in fire["schedule"]]
    assert [fire["fire_at"] for fire in daily] == ["2999-05-01T00:30:00.000Z"] * 3
    assert min(fire["fire_at"] for fire in fires).startswith("2999-05-01T00:00:00")
    assert max(fire["fire_at"] for fire in fires) < "2999-05-01T22:00"
