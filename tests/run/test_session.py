"""The Spark of a process that runs no program: its own, or the one that it has."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.stage import staged
from tests.yardstick import patience
from tidemill.config import load_config
from tidemill.run.processes.session import spark_of_our_own
from tidemill.world import World


@pytest.mark.spark
def test_a_process_that_has_spark_keeps_it(spark, tmp_path):
    """A notebook that compares two versions goes on with its own session afterwards, as that was."""
    zone = spark.conf.get("spark.sql.session.timeZone")

    with spark_of_our_own(World(), load_config(World(), tmp_path)) as session:
        told = session.sparkContext.applicationId, session.conf.get("spark.sql.session.timeZone")

    assert told == (spark.sparkContext.applicationId, "UTC")
    assert session is not spark
    assert (spark.range(3).count(), spark.conf.get("spark.sql.session.timeZone")) == (3, zone)
    assert list(tmp_path.iterdir()) == []


UI = """
import sys, urllib.request
from pathlib import Path
from tidemill.run.processes.java import find_java, spark_environ
from tidemill.config import load_config
from tidemill.run.processes.session import SparkHome
from tidemill.world import World

folder, settings, world = Path(sys.argv[1]), dict([sys.argv[2].split("=")]), World()
with world.spawner.passed_on(spark_environ(find_java(world, folder / "cache"))):
    home = SparkHome(world, folder, {"spark.master": "local[1]", **settings}, folder / "spark.log")
    print("ui", home.ui, home.settings["spark.ui.killEnabled"])
    if home.ui:
        print("status", urllib.request.urlopen(home.ui + "/jobs/").status)
    home.end()
"""


@pytest.mark.spark
@pytest.mark.share("true-True")
@pytest.mark.parametrize(("enabled", "shown"), [("true", True), ("false", False)])
def test_a_site_may_turn_the_pages_of_spark_on(tmp_path, enabled, shown):
    """Spark's pages have no sign-in: they are off, and where a site wants them they listen on this machine alone."""
    command = [sys.executable, "-c", UI, str(tmp_path), f"spark.ui.enabled={enabled}"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)

    lines = done.stdout.splitlines()
    assert (lines[0].startswith("ui http://127.0.0.1:"), lines[1:]) == (shown, ["status 200"] if shown else []), done
    assert lines[0].endswith(" false")


@pytest.mark.spark
def test_a_run_records_its_deployment_and_the_settings_of_its_spark(spark, tmp_path, sqlite_catalog_url):
    """Also a run that fails: after a change of the settings, a person compares two runs."""
    app = "import tidemill as tm\napp = tm.App('shop')\n\n@app.spark()\ndef load(run, spark):\n    1 / 0\n"
    with staged(tmp_path, sqlite_catalog_url, app, spark=spark) as stage:
        run_id = stage.mill.runs.start("shop.load").run_id
        stage.work()
        shown = stage.mill.runs.show(run_id)

    assert (shown.state, shown.app_version, shown.bundle) == ("FAILED", 1, shown.facts["code"])
    assert shown.facts["spark_conf"]["spark.master"] == spark.sparkContext.master
    assert not {"spark.app.id", "spark.driver.port"} & shown.facts["spark_conf"].keys()
