"""The test kit: what a user's test can do, that it is quick, and that chaos finds what it is for."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from datetime import date, timedelta

import pytest

from tidemill import NotFound, UserError
from tidemill.testing import EndedRun
from tidemill.testing.clock import NOON
from tidemill.testing.mill import NoSuchArrival, NotAtRest, OutsideOfTest, VirtualMill
from tidemill.testing.plain import NotPlainRows

APP = """
import csv
from datetime import date
from pathlib import Path
import tidemill as tm

app = tm.App("shop")
orders = app.inbox("orders", "data/inbox", format="csv", schema="id long, day date", settle="0s", attempts=2)
clean = app.fileset("clean", keys={"day": "date"})
days = app.fileset("days", keys={"day": "date"})

@app.python(reads=[orders], writes=[clean], retries=1)
def load(run):
    rows = []
    for name in run.input(orders).files:
        with Path("data/inbox", name).open() as file:
            rows += [{"id": int(row["id"]), "day": date.fromisoformat(row["day"])} for row in csv.DictReader(file)]
    run.output(clean).append(rows)

@app.python(reads=[clean], writes=[days])
def count(run):
    run.output(days).append([{"seen": 1, **key} for key in run.input(clean).partitions])

@app.python()
def strike(run):
    pass

app.schedule("on_orders", load, trigger=tm.NewFiles(orders), constraints=[tm.Concurrency(1)])
app.schedule("on_clean", count, trigger=tm.NewPartitions(clean, 2), constraints=[tm.Concurrency(1)])
app.schedule("hourly", strike, trigger=tm.Every("1h"))
"""
MARCH_1, MARCH_2 = date(2026, 3, 1), date(2026, 3, 2)


def csv(*rows: tuple[int, date]) -> str:
    """A file of orders."""
    return "id,day\n" + "".join(f"{number},{day}\n" for number, day in rows)


@pytest.fixture
def project_folder(tmp_path):
    """The project."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    return tmp_path


def edit(project_folder, old, new):
    """Change the app."""
    assert old in APP
    (project_folder / "app.py").write_text(APP.replace(old, new), encoding="utf-8")


def ids(mill) -> list[object]:
    """The orders that are published."""
    return sorted(row["id"] for row in mill.published("clean").rows())


def test_what_lands_is_published_with_its_key_and_its_types(mill):
    """A test compares rows, not text."""
    mill.land("orders/1.csv", csv((1, MARCH_1), (2, MARCH_2)))

    runs = mill.run_until_idle()

    assert runs == [EndedRun("load", "COMPLETED", ""), EndedRun("count", "COMPLETED", "")]
    assert mill.published("clean").rows() == [{"id": 1, "day": MARCH_1}, {"id": 2, "day": MARCH_2}]
    assert mill.published("days").partitions == ({"day": MARCH_1}, {"day": MARCH_2})
    assert mill.files("orders") == {"1.csv": "SUCCESS"}
    assert mill.run_until_idle() == []


def test_each_timer_fires_once_in_a_day_that_passes_at_once(mill):
    """Time moves from one due time to the next: nothing is skipped, nothing is merged."""
    runs = mill.advance("1d")

    assert len(runs) == 24
    assert mill.now == NOON + timedelta(days=1)


def test_a_retry_takes_virtual_time(mill):
    """A back-off of seconds would make each test of a failure slow."""
    mill.land("orders/1.csv", "id,day\nx,2026-03-01\n")

    (run,) = mill.run_until_idle()

    assert (run.program, run.state) == ("load", "FAILED")
    assert "invalid literal" in run.reason
    assert mill.now > NOON + timedelta(seconds=5)


def test_a_bad_file_is_quarantined_and_a_good_one_is_not(mill):
    """Both came in one run."""
    mill.land("orders/bad.csv", "id,day\nx,2026-03-01\n")
    mill.land("orders/good.csv", csv((1, MARCH_1)))

    mill.advance("3h")

    assert mill.files("orders") == {"bad.csv": "QUARANTINED", "good.csv": "SUCCESS"}
    assert ids(mill) == [1]


def test_a_schedule_says_what_it_waits_for(mill):
    """The question after `why does nothing happen`."""
    mill.publish("clean", [{"id": 1, "day": MARCH_1}])
    mill.run_until_idle()

    assert mill.why("on_clean") == "1/2 new partitions of default.clean"
    assert mill.why("on_orders") == "nothing has triggered on_orders since its last run"


def test_doubled_reordered_rewritten_and_late_files_arrive(mill):
    """Each is what a sender does one day."""
    files = {f"orders/{number}.csv": csv((number, MARCH_1)) for number in range(1, 5)}
    mill.land_all(files, seed=3, within="1h")
    mill.run_until_idle()
    between = mill.now
    mill.land_again("orders/1.csv", "orders/1-again.csv")
    mill.land("orders/2.csv", csv((20, MARCH_1)))
    path = mill.land("orders/0.csv", csv((0, MARCH_1)), late="3h")
    mill.run_until_idle()

    assert between >= NOON + timedelta(hours=1)
    assert path.stat().st_mtime == pytest.approx((between - timedelta(hours=3)).timestamp(), abs=5)
    assert ids(mill) == [0, 1, 1, 2, 3, 4, 20]


def test_a_torn_file_is_half(mill):
    """Its whole content comes later."""
    whole = csv((1, MARCH_1), (2, MARCH_1))

    assert mill.land("orders/1.csv", whole, torn=True).read_text() == whole[: len(whole) // 2]


def test_kills_at_every_step_lose_and_double_nothing(mill):
    """The promise, for the user's own programs."""

    def story(mill):
        mill.land("orders/1.csv", csv((1, MARCH_1), (2, MARCH_2)))

    assert mill.chaos(story, seed=2, most=12) == 12


def test_chaos_finds_an_effect_outside_of_the_transaction(project_folder, mill, request):
    """Else it would pass for any program."""

    def story(mill):
        mill.land("orders/1.csv", csv((1, MARCH_1), (2, MARCH_2)))

    edit(
        project_folder,
        "    run.output(clean).append(rows)",
        "    with Path('seen').open('a') as file:\n        file.write('x')\n"
        "    run.output(clean).append([{**row, 'tries': len(Path('seen').read_text())} for row in rows])",
    )

    with pytest.raises(AssertionError, match=r"killed at .*row of clean: .*tries=2"):
        mill.chaos(story)
    assert mill.chaos(story, most=12, ignore=["tries"]) == 12


def test_chaos_wants_a_story_in_which_each_file_comes_to_its_end(mill):
    """A file that waits without any kill would wait after a kill."""

    def story(mill):
        mill.land("orders/bad.csv", "id,day\nx,2026-03-01\n")
        mill.land("orders/good.csv", csv((1, MARCH_1)))

    with pytest.raises(AssertionError, match=r"without any kill, file orders/bad.csv is ERROR"):
        mill.chaos(story)


def test_a_project_that_is_never_idle_is_refused_with_a_next_step(project_folder, tmp_path, monkeypatch):
    """A test must not hang."""
    monkeypatch.setattr("tidemill.testing.mill.LONGEST", timedelta(hours=3))
    edit(project_folder, "def strike(run):\n    pass", "def strike(run):\n    raise ValueError")
    (project_folder / "app.py").write_text(
        (project_folder / "app.py").read_text().replace("@app.python()\n", "@app.python(retries=100)\n")
    )
    mill = VirtualMill(project_folder, tmp_path / "mill")
    mill.advance("1h")

    with pytest.raises(NotAtRest, match=r"strike is PENDING; use advance\(\)"):
        mill.run_until_idle()
    mill.close()


@pytest.mark.parametrize(
    "where", ["'{}/elsewhere', format", "'data/inbox', after='archive', archive='{}/elsewhere', format"]
)
def test_a_location_outside_of_the_test_is_refused(project_folder, tmp_path, where):
    """A test would consume the files of production, or put its own among them."""
    edit(project_folder, '"data/inbox", format', where.format(tmp_path))

    with pytest.raises(OutsideOfTest, match="elsewhere"):
        VirtualMill(project_folder, tmp_path / "mill")


def test_a_program_may_publish_from_threads_of_its_own(project_folder, tmp_path):
    """A pool of threads is usual where a program writes several outputs; each writes to the one catalog in memory."""
    edit(
        project_folder,
        '    run.output(days).append([{"seen": 1, **key} for key in run.input(clean).partitions])',
        "    from concurrent.futures import ThreadPoolExecutor\n"
        "    rows = [{'seen': 1, **key} for key in run.input(clean).partitions]\n"
        "    with ThreadPoolExecutor(2) as pool:\n"
        "        pool.submit(run.output(days).append, rows).result()",
    )
    mill = VirtualMill(project_folder, tmp_path / "mill")
    mill.publish("clean", [{"id": 1, "day": MARCH_1}, {"id": 2, "day": MARCH_2}])

    assert mill.run_until_idle() == [EndedRun("count", "COMPLETED", "")]
    assert mill.published("days").partitions == ({"day": MARCH_1}, {"day": MARCH_2})
    mill.close()


def test_a_wrong_name_is_refused(mill):
    """An answer about nothing would let a test pass."""
    with pytest.raises(NotFound, match="no schedule named 'on_order'; did you mean"):
        mill.why("on_order")
    with pytest.raises(UserError, match=r"default\.clean is a data set of kind"):
        mill.files("clean")
    with pytest.raises(UserError, match=r"default\.clean is a data set of kind"):
        mill.land("clean/1.csv", csv((1, MARCH_1)))


@pytest.mark.parametrize("name", ["orders/../../1.csv", "orders//tmp/1.csv", "orders/./1.csv", "orders/", "orders"])
def test_a_file_arrives_below_the_folder_of_its_inbox_only(mill, name):
    """A path upwards writes over files of the developer."""
    with pytest.raises(NoSuchArrival, match="name the inbox and a file below its folder"):
        mill.land(name, csv((1, MARCH_1)))


def test_a_file_that_never_landed_does_not_land_again(mill):
    """The error names the files that are there."""
    mill.land("orders/1.csv", csv((1, MARCH_1)))

    with pytest.raises(
        NoSuchArrival, match=r"'orders/2.csv': the folder of the file holds 1\.csv; land the file first"
    ):
        mill.land_again("orders/2.csv", "orders/3.csv")


def test_a_project_that_cannot_be_deployed_fails_with_one_sentence(project_folder):
    """The user reads the line of the app, not a traceback of Tidemill."""
    edit(project_folder, 'tm.Every("1h")', 'tm.Every("1 apple")')
    (project_folder / "test_app.py").write_text("def test_it(mill):\n    pass\n", encoding="utf-8")

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tidemill.testing.plugin"],
        cwd=project_folder,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    _, shown, _ = re.split("_ ERROR at setup of test_it _+\n|={3,} short", done.stdout)

    assert shown.count("\n") == 1, done.stdout
    assert f"the project in {project_folder} cannot be deployed: " in shown
    assert "1 apple" in shown


def test_rows_of_no_one_type_are_refused(mill):
    """Parquet has one type a column."""
    with pytest.raises(NotPlainRows, match="column id has no one type"):
        mill.publish("clean", [{"id": 1, "day": MARCH_1}, {"id": "2", "day": MARCH_1}])


def test_the_plug_in_imports_neither_tidemill_nor_spark():
    """The plug-in is loaded in each run of pytest, of whichever project, where Tidemill is installed."""
    code = "import sys, tidemill.testing.plugin; print([m for m in sys.modules if m.partition('.')[0] in {heavy}])"
    heavy = {"pyspark", "greenlet", "apsw", "click", "psutil", "pyarrow"}
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            code.replace("{heavy}", repr(heavy)) + "; print(len([m for m in sys.modules if m.startswith('tidemill')]))",
        ],
        capture_output=True,
        text=True,
        check=True,
    )

    assert found.stdout.split("\n")[:2] == ["[]", "3"]
