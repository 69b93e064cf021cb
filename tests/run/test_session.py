"""The Spark of a process that runs no program: its own, or the one that it has."""

from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from types import SimpleNamespace

import pytest

from tests.stage import staged
from tests.yardstick import patience
from tidemill.config import load_config
from tidemill.run.processes.session import SparkHome, spark_of_our_own
from tidemill.testing.session import SharedSpark
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
import psutil
from tidemill.frames.jvm import gateway_of
from tidemill.run.processes.java import find_java, spark_environ
from tidemill.config import load_config
from tidemill.run.processes.session import SparkHome
from tidemill.world import World

folder, settings, world = Path(sys.argv[1]), dict(one.split("=", 1) for one in sys.argv[2:]), World()
with world.spawner.passed_on(spark_environ(find_java(world, folder / "cache"))):
    home = SparkHome(world, folder, {"spark.master": "local[1]", **settings}, folder / "spark.log")
    print("ui", home.ui, home.settings["spark.ui.killEnabled"])
    jvm = psutil.Process(gateway_of(home._base).proc.pid)
    listens = {one.laddr.ip for one in jvm.net_connections() if one.status == psutil.CONN_LISTEN}
    print("listens", {one.removeprefix("::ffff:") for one in listens})
    if home.ui:
        places = ["/environment/", f"/api/v1/applications/{home.application_id}/environment"]
        shown = " ".join(urllib.request.urlopen(home.ui + place).read().decode() for place in places)
        print("shows", "spark.site.url" in shown, "hush" in shown)
    home.end()
"""


@pytest.mark.spark
@pytest.mark.share("usual")
@pytest.mark.parametrize("given", [[], ["spark.ui.enabled=false"]], ids=["usual", "off"])
def test_the_pages_of_spark_are_for_this_machine_and_show_no_secret(tmp_path, given):
    """The pages have no sign-in. A site may turn them off."""
    given = [
        *given,
        "spark.site.url=https://ann:hush@example.org/",
        "spark.site.pin=hush",
        "spark.redaction.regex=pin$",
    ]
    command = [sys.executable, "-c", UI, str(tmp_path), *given]

    done = subprocess.run(command, capture_output=True, text=True, timeout=patience(60), check=False)

    pages, listens, *shown = done.stdout.splitlines()
    off = "spark.ui.enabled=false" in given
    assert pages.startswith("ui None" if off else "ui http://127.0.0.1:")
    assert pages.endswith(" false")
    assert listens == "listens {'127.0.0.1'}"
    assert shown == ([] if off else ["shows True False"])


@pytest.mark.spark
def test_a_run_records_its_deployment_and_the_settings_of_its_spark(spark, tmp_path, sqlite_catalog_url):
    """Also a run that fails: after a change of the settings, a person compares two runs, and what they cost."""
    task = 'spark.range(1).selectExpr(\'java_method("java.lang.Thread", "sleep", 300 + id)\').collect()'
    code = f"@app.spark()\ndef load(run, spark):\n    {task}\n    time.sleep(0.4)\n    1 / 0\n"
    app = f"import time\nimport tidemill as tm\napp = tm.App('shop')\n\n{code}"
    with staged(tmp_path, sqlite_catalog_url, app, spark=spark) as stage:
        run_id = stage.mill.runs.start("shop.load").run_id
        stage.work()
        shown = stage.mill.runs.show(run_id)

    assert (shown.state, shown.app_version, shown.bundle) == ("FAILED", 1, shown.facts["code"])
    assert shown.facts["spark_conf"]["spark.master"] == spark.sparkContext.master
    # While the driver sleeps, no core is held.
    assert 0.3 <= shown.core_seconds < (shown.ended_at - shown.started_at).total_seconds()
    assert not {"spark.app.id", "spark.driver.port"} & shown.facts["spark_conf"].keys()


SLOW = """
import tidemill as tm
app = tm.App("shop")
lines = app.fileset("lines", keys={"hour": "int"})

def count(spark):
    spark.range(0, 8, 1, 8).selectExpr("java_method('java.lang.Thread', 'sleep', 200 + id)").collect()

@app.spark()
def load(run, spark):
    count(spark)

@app.worker(reads=[tm.Reads(lines, max_partitions=1)], spark=True)
def look(run, spark):
    while run.take("0s"):
        if run.input(lines).partitions[0]["hour"] == 2:
            count(spark)
        run.commit()
"""


@pytest.mark.spark
@pytest.mark.parametrize("program", ["load", "look"])
def test_a_run_at_work_says_how_many_of_its_tasks_are_done(spark, tmp_path, sqlite_catalog_url, monkeypatch, program):
    """A person sees whether a long job goes on. The facts of a worker's commits and of its Spark stay beside it."""
    monkeypatch.setattr("tidemill.run.processes.session._TELL_EVERY", timedelta(milliseconds=20))
    seen = []

    def watched(_, session, tell):  # no other test has jobs in the session meanwhile
        home = SimpleNamespace(_world=World())
        return SparkHome.watched(home, session, lambda found: (tell(found), seen.append(stage.find(run.run_id).facts)))

    monkeypatch.setattr(SharedSpark, "watched", watched)
    with staged(tmp_path, sqlite_catalog_url, SLOW, spark=spark) as stage:
        if program == "look":
            stage.publish("lines", "hour=1", "hour=2")
            stage.balance_workers()
        else:
            stage.mill.runs.start("shop.load")
        (run,) = stage.take()
        ended = stage.attempt(run)

    noted = [one["stages"] for one in seen]
    in_between = [{"stages": 1, "stages_done": 0, "tasks": 8, "tasks_done": done} for done in range(1, 8)]
    assert any(one in in_between for one in noted), noted
    assert {one["spark"] for one in seen} == {"shared"}
    # The last stages may be seen after the second commit.
    assert {one.get("commits") for one in seen} <= ({1, 2} if program == "look" else {None})
    assert (ended.state, "stages" in ended.facts) == ("COMPLETED", False)
