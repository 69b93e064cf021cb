"""Scripts: PySpark files that know nothing of Tidemill, deployed and executed as they are."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tidemill as tm
from tests.command import TIDEMILL
from tests.errors import raises_code
from tests.stage import Stage, staged
from tests.yardstick import patience

SCRIPTS = Path(__file__).parent / "scripts"
ETL = """
app.script(
    "jobs/etl.py",
    arguments={"day": str, "strict": False},
    argv=["--orders", "ORDERS", "--customers", "CUSTOMERS", "--target", "TARGET", "--day=$day", "--strict=$strict"],
)
"""
SETTINGS = """
[runner]
slots = 1

[spark]
master = "local[2]"
class_data = false
"""
ORDERS = """order_id,customer,amount,currency,note
1,ann,10.0,EUR,Card 1234567890123456
1,ann,10.0,EUR,Card 1234567890123456
2,ann,200.0,USD,
3,bob,4.0,GBP,gift
,bob,1.0,EUR,no number
"""


def write_shop(folder: Path) -> str:
    """Write the script with its module, and its input; return the declaration of the script."""
    shutil.copytree(SCRIPTS, folder / "jobs", ignore=shutil.ignore_patterns("__pycache__"))
    orders = folder / "orders" / "day=2026-01-02"
    orders.mkdir(parents=True)
    (orders / "a.csv").write_text(ORDERS, encoding="utf-8")
    (folder / "customers.csv").write_text("customer,country,since\nann,DE,2020\n", encoding="utf-8")
    (folder / "target").mkdir()
    places = {"ORDERS": folder / "orders", "CUSTOMERS": folder / "customers.csv", "TARGET": folder / "target"}
    text = ETL
    for name, place in places.items():
        text = text.replace(f'"{name}"', repr(str(place)))
    return text


def put_script(stage: Stage, text: str, declaration: str) -> None:
    """Deploy a script of these lines."""
    jobs = stage.mill.project.config.folder / "jobs"
    jobs.mkdir(exist_ok=True)
    (jobs / "job.py").write_text(text, encoding="utf-8")
    stage.declare(declaration)


@pytest.fixture
def stage(tmp_path: Path, sqlite_catalog_url: str, request: pytest.FixtureRequest) -> Iterator[Stage]:
    """A project; a test that executes a script asks for Spark by its mark."""
    spark = request.getfixturevalue("spark") if request.node.get_closest_marker("spark") else None
    with staged(tmp_path, sqlite_catalog_url, spark=spark) as made:
        yield made


@pytest.mark.spark
def test_a_script_of_two_hundred_lines_runs_unchanged(tmp_path, sqlite_catalog_url, spark):
    """A site has hundreds of such files. Their first try must need no edit."""
    with staged(tmp_path, sqlite_catalog_url, spark=spark) as stage:
        stage.declare(write_shop(tmp_path))
        outcome = stage.outcome("etl", day="2026-01-02")
    report = json.loads((tmp_path / "target" / "report-2026-01-02.json").read_text(encoding="utf-8"))
    countries = spark.read.parquet(str(tmp_path / "target" / "countries")).orderBy("country").collect()

    assert report == {"orders": 3, "rejected": 1, "customers": 2, "revenue": 115.0}
    assert [tuple(row)[:3] for row in countries] == [("?", 1, 5.0), ("DE", 2, 110.0)]
    assert outcome == ("COMPLETED", "")
    assert "shop_common" not in sys.modules


@pytest.mark.spark
def test_a_deployed_script_does_not_change_before_the_next_deployment(stage):
    """The file is edited in place, while runs of the deployed file are under way."""
    declared = 'app.script("jobs/job.py", name="nightly")'
    put_script(stage, "import helper\nprint(helper.WORD)\n", declared.replace("nightly", "early"))
    folder = stage.mill.project.config.folder / "jobs"
    (folder / "helper.py").write_text("WORD = 'deployed'\n", encoding="utf-8")
    put_script(stage, "import helper, sys\nsys.exit(helper.WORD)\n", declared)
    (folder / "helper.py").write_text("WORD = 'edited'\n", encoding="utf-8")
    (folder / "job.py").write_text("raise ValueError('edited')\n", encoding="utf-8")

    assert stage.outcome("nightly") == ("FAILED", "SystemExit: deployed")


@pytest.mark.spark
def test_a_script_gets_its_command_line_and_the_run(stage):
    """`sys.argv` is all that a script has; `current_run()` is there for the first line that wants more."""
    text = """
import sys

import tidemill as tm

if __name__ == "__main__":
    run = tm.current_run()
    run.publish("seen", {"argv": sys.argv[1:], "day": run.arguments["day"], "path": sys.path[0]})
"""
    arguments = 'arguments={"day": str, "full": True, "rate": 0.5}, argv=["--day=$day", "$full", "$$1", "$rate"]'
    put_script(stage, text, f'app.script("jobs/job.py", {arguments})')
    before = (list(sys.argv), list(sys.path))

    outcome = stage.outcome("job", day="2026-01-02")
    (seen,) = (message.payload for message in stage.mill.topics.read("seen"))

    assert outcome == ("COMPLETED", "")
    assert seen["argv"] == ["--day=2026-01-02", "true", "$1", "0.5"]
    assert seen["day"] == "2026-01-02"
    assert str(seen["path"]).endswith("/jobs")
    assert (sys.argv, sys.path) == before
    with raises_code("no_run", "no current run"):
        tm.current_run()


@pytest.mark.spark
def test_a_script_that_fails_publishes_nothing(stage):
    """An exception is the failure of the attempt, as in any program, with the line of the script in the log."""
    put_script(
        stage,
        "import tidemill as tm\ntm.current_run().publish('seen', {})\nraise ValueError('no')\n",
        'app.script("jobs/job.py")',
    )

    outcome = stage.outcome("job")

    assert outcome == ("FAILED", "ValueError: no")
    assert [one.topic for one in stage.mill.topics.list() if one.topic == "seen"] == []


@pytest.mark.parametrize(
    ("declaration", "why"),
    [
        ('"jobs/none.py"', "no file matches 'jobs/none.py', which .*app.py declares: "),
        ('"../job.py"', r"script '\.\./job\.py' is not below the folder of the app file: move it there"),
        ('"jobs/*.py"', "is no Python file"),
        ('"jobs/job.sh"', "is no Python file"),
        ('"jobs/job.py", argv="--day $day"', "write a list of words"),
        ('"jobs/job.py", argv=["$day"]', "no argument 'day'"),
        ('"jobs/job.py", argv=["1$"]', "single \\$"),
    ],
)
def test_a_wrong_declaration_is_refused_by_the_deployment(declaration, why, stage):
    """A typing error would be found at night."""
    with pytest.raises(tm.UserError, match=why):
        put_script(stage, "", f"app.script({declaration})")


@pytest.mark.spark
@pytest.mark.long
def test_runs_of_a_script_complete_in_real_drivers(tmp_path, sqlite_catalog_url):
    """Other tests share one session: only a driver starts Spark, and sees the `stop()` of a script."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "app.py").write_text(f'import tidemill as tm\napp = tm.App("shop")\n{write_shop(project)}')
    (project / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n{SETTINGS}')
    with tm.open(project) as mill:
        mill.deploy()
        runs = [mill.runs.start("etl", {"day": "2026-01-02"}).run_id for _ in range(2)]
        command = [TIDEMILL, "up", "--until-idle", "--no-deploy", "--no-server"]
        subprocess.run(command, cwd=project, check=True, timeout=patience(240), capture_output=True)
        ended = [mill.runs.show(run_id) for run_id in runs]
        said = [line.text for line in mill.runs.logs(runs[0])]

    assert [run.state for run in ended] == ["COMPLETED", "COMPLETED"]
    assert any(line.startswith("done: Report(orders=3") for line in said)
