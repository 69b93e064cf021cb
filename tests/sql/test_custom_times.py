"""Custom extractors: a function of the project reads the time of a partition, and its failures hold nothing up."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import UTC, date, datetime

import pytest

from tests.sql.conftest import open_windows
from tests.sql.hours import Plain, write_app
from tidemill.app.deploy import Deployed
from tidemill.catalog.db import Catalog
from tidemill.run.records.bundles import find_sums
from tidemill.run.records.programs import BrokenApp
from tidemill.shapes.custom_time import forget_modules, import_from, load, read_custom
from tidemill.shapes.time_formats import BadPartitionTime
from tidemill.world import World

TIMES = """
from datetime import datetime, time
def read_time(values):
    if values["hour"] == {bad}:
        raise ValueError("no such hour")
    return datetime.combine(values["day"], time(values["hour"]))
"""
APP = write_app(windows="HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '2' HOUR)").replace(
    'pattern="$day $hour:00:00"', 'extractor="times:read_time"'
)
VISITS = """
CREATE TABLE visits (ts timestamp, WATERMARK FOR ts AS SOURCE_WATERMARK) PARTITIONED BY (day date, hour int) WITH (
  'streaming-source.enable'='true', 'partition.time-interval'='1h',
  'partition.time-extractor.kind'='custom', 'partition.time-extractor.class'='visit_times:read_time')"""


class Timed(Plain):
    """Such a project whose function can be changed."""

    def write_times(self, bad: int) -> None:
        """Write the function, which raises for hour `bad`."""
        (self.mill.project.config.folder / "times.py").write_text(TIMES.format(bad=bad), encoding="utf-8")


@pytest.fixture
def project(sqlite_catalog_url, tmp_path):
    """A project with such a watermark. The function raises for hour 9."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "times.py").write_text(TIMES.format(bad=9), encoding="utf-8")
    plain = Timed(open_windows(folder, sqlite_catalog_url, APP).mill)
    yield plain
    plain.mill.close()


WATCHED = """
import tests.sql.test_custom_times as watch
watch.calls.append(("import", watch.depth))
from datetime import datetime, time
def read_other(values):
    watch.calls.append((values["hour"], watch.depth))
    return datetime.combine(values["day"], time(values["hour"]))
"""
calls: list[tuple[object, int]] = []
depth = 0


def test_no_function_of_the_project_runs_in_a_transaction(project, monkeypatch):
    """A function that waits would hold up the whole catalog. A declaration, a plan and EXPLAIN read all times."""
    for hour in (8, 10):
        project.add(f"2021-03-19 {hour:02}:00", hour)
    (project.mill.project.config.folder / "watched.py").write_text(WATCHED, encoding="utf-8")
    watched = sys.modules[__name__]

    def inside(kind: str) -> Callable[..., object]:
        run = getattr(Catalog, kind)

        def call(catalog, block, **options):
            def counted(db):
                watched.depth += 1
                try:
                    return block(db)
                finally:
                    watched.depth -= 1

            return run(catalog, counted, **options)

        return call

    for kind in ("read", "write"):
        monkeypatch.setattr(Catalog, kind, inside(kind))
    app = project.mill.project.config.app
    app.write_text(app.read_text().replace("times:read_time", "watched:read_other"), encoding="utf-8")
    watched.calls.clear()
    project.mill.plan()
    planned = list(calls)
    project.mill.deploy()
    shown = project.mill.watermarks.show("clicks").watermark
    deployed = list(calls)
    calls.clear()
    taken = project.mill.consumers.take("clicks", "mirror")
    project.mill.transactions.abort(taken.write_pointer)
    project.mill.consumers.reset("clicks", "mirror", "beginning", time_from="2021-03-19")
    project.mill.sql("ALTER TABLE clicks SET ('streaming-source.enable'='false')")
    hours = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
    project.mill.sql(f"EXPLAIN SELECT window_start FROM {hours}")

    assert {what for what, _ in planned} >= {"import", 8, 10}
    assert {what for what, _ in deployed} >= {"import", 8, 10}
    assert {what for what, _ in calls} >= {8, 10}
    assert {within for _, within in (*deployed, *calls)} == {0}
    assert shown == "2021-03-19 11:00:00"


def test_a_long_lived_process_takes_an_extractor_that_was_changed(project):
    """Processes of `tidemill up` live for months. Another process has deployed the function meanwhile."""
    project.add("2021-03-19 08:00", 8)
    project.add("2021-03-19 09:00", 9)
    broken = project.mill.watermarks.show("clicks")

    project.write_times(bad=250)
    project.add("2021-03-19 10:00", 10)

    assert len(broken.parked) == 1
    assert project.mill.watermarks.show("clicks").parked == ()


def test_a_fixed_extractor_releases_what_was_parked(project):
    """By hand, in windows of two hours: hour 9 is missing in [08:00, 10:00) and [09:00, 11:00), and then counts."""
    times = project.mill.project.config.folder / "times.py"
    for hour in (8, 9, 10):
        project.add(f"2021-03-19 {hour:02}:00", hour, hour + 1)
    project.settle()
    broken, shown = project.results(), project.mill.watermarks.show("clicks")

    times.write_text(TIMES.format(bad=25), encoding="utf-8")
    (deployed,) = project.mill.deploy()
    ((bundle,),) = project.sql("SELECT DISTINCT bundle FROM program")
    project.settle()
    project.mill.deploy()
    moved = project.sql("SELECT revision FROM window_program")
    project.mill.deploy()

    (parked,) = shown.parked
    assert (parked.partition, parked.why) == (
        "day=2021-03-19 hour=9",
        "times:read_time: it raises ValueError: no such hour",
    )
    assert (shown.watermark, broken) == ("2021-03-19 11:00:00", {"07:00": 2, "08:00": 2, "09:00": 2})
    assert project.results() == {"07:00": 2, "08:00": 4, "09:00": 4}
    assert project.mill.watermarks.show("clicks").parked == ()
    assert project.sql("SELECT revision FROM window_program") == moved
    assert deployed.changes
    assert "times.py" in project.mill.project.catalog.read(lambda db: find_sums(db, bundle))


def test_a_process_that_cannot_load_the_extractor_parks_what_another_one_releases(project):
    """The commit succeeds without the time. A later commit by a process that loads the function finds both times."""
    project.mill.sql(VISITS)
    time = datetime(2021, 3, 19, 8, 30, tzinfo=UTC)
    folder = project.mill.project.config.folder
    project.commit("visits", [{"ts": time, "day": time.date(), "hour": 8}])
    before = project.mill.watermarks.show("visits")
    (described,) = project.mill.sql("DESCRIBE visits")

    (folder / "visit_times.py").write_text(TIMES.format(bad=25), encoding="utf-8")
    project.commit("visits", [{"ts": time, "day": time.date(), "hour": 9}])
    after = project.mill.watermarks.show("visits")

    assert (before.watermark, before.parked[0].partition) == (None, "day=2021-03-19 hour=8")
    assert "there is no module 'visit_times' beside the app file" in before.parked[0].why
    assert described.notices == ("visit_times:read_time reads the times of its partitions",)
    assert (after.watermark, after.parked) == ("2021-03-19 10:00:00", ())


def test_a_run_that_has_not_seen_a_released_partition_computes_again(project):
    """The run has planned its windows without hour 9, and the watermark of its program is behind that hour."""
    for hour in (8, 9, 10):
        project.add(f"2021-03-19 {hour:02}:00", hour, hour + 1)

    def marked(name: str) -> None:
        if name == "windows.written" and not deployed:
            project.write_times(bad=25)
            deployed.extend(project.mill.deploy())

    deployed: list[Deployed] = []
    run = project.run(world=World(spawner=project.spawner, marked=marked))
    project.settle()

    assert run.state == "PENDING"
    assert project.results() == {"07:00": 2, "08:00": 4, "09:00": 4}


def test_a_partition_keeps_the_time_that_an_extractor_has_read_when_it_fails_now(project):
    """By hand, in windows of two hours: a late row of hour 8 counts in two windows, and its drop empties both."""
    for hour in (8, 10):
        project.add(f"2021-03-19 {hour:02}:00", hour, hour + 1)
    project.settle()
    project.write_times(bad=8)
    project.mill.deploy()

    project.add("2021-03-19 08:00", 30)
    project.settle()
    added = project.results()
    with project.transaction("clicks") as tx:
        tx.fileset("default.clicks").drop({"day": date(2021, 3, 19), "hour": 8})
    project.settle()

    assert added == {"07:00": 3, "08:00": 3, "09:00": 2}
    assert project.results() == {"09:00": 2}
    assert project.mill.watermarks.show("clicks").parked == ()


def test_a_deployment_releases_partitions_of_a_table_that_a_statement_made(project):
    """The module of the extractor was missing at the commit. No other test has a module of this name."""
    project.mill.sql(VISITS.replace("visit_times", "later_times"))
    time = datetime(2021, 3, 19, 8, 30, tzinfo=UTC)
    project.commit("visits", [{"ts": time, "day": time.date(), "hour": 8}])

    (project.mill.project.config.folder / "later_times.py").write_text(TIMES.format(bad=25), encoding="utf-8")
    project.mill.deploy()

    shown = project.mill.watermarks.show("visits")
    assert (shown.watermark, shown.parked) == ("2021-03-19 09:00:00", ())


def test_a_module_that_is_imported_late_has_no_other_imported_again(tmp_path):
    """The top module of a package connects to a service, perhaps before each partition."""
    package = tmp_path / "late_times"
    package.mkdir()
    (package / "__init__.py").write_text(
        "import tests.sql.test_custom_times as watch\nwatch.calls.append(('top', 0))\n"
    )
    (package / "hours.py").write_text("")
    (package / "days.py").write_text(
        "def read_time(values):\n    import late_times.hours\n    from datetime import datetime\n"
        "    return datetime(2026, 1, values['day'])\n"
    )
    import_from(tmp_path)
    calls.clear()

    times = []
    for day in (1, 2, 3):
        load("late_times.days:read_time")
        times.append(read_custom("late_times.days:read_time", {"day": day}))
    forget_modules()

    assert [time.day for time in times] == [1, 2, 3]
    assert calls == [("top", 0)]


def test_a_module_that_is_refused_stays_imported():
    """Else a deployment would forget a module that other code uses."""
    with pytest.raises(BadPartitionTime, match="there is no module 'colorsys' beside the app file"):
        load("colorsys:rgb_to_hsv")
    import colorsys

    forget_modules()

    assert sys.modules["colorsys"] is colorsys


@pytest.mark.parametrize(
    ("extractor", "why"),
    [
        ("'times:read'", "it cannot be loaded: AttributeError"),
        ("'os.path:join'", "there is no module 'os' beside the app file"),
        ("'times'", "name a function"),
        ("lambda values: values['day']", "only a function with a name"),
    ],
)
def test_a_deployment_refuses_what_it_cannot_load(project, extractor, why):
    """A name with a typing error would park all partitions. A module elsewhere is no code of the project."""
    with pytest.raises(BrokenApp, match=f"BadWatermark: .*{why}"):
        project.deploy(APP.replace('"times:read_time"', extractor))
