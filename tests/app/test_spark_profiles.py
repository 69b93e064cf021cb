"""Spark profiles of programs: what a deployment takes and refuses, and where a person sees the profile of a program."""

from __future__ import annotations

import json
from typing import Any

import pytest

import tidemill as tm
from tests.errors import raises_code
from tidemill.cli.main import main

APP = """
import tidemill as tm

app = tm.App("shop")
orders = app.inbox("orders", "landing", format="text")
lines = app.fileset("lines", keys={"day": "date"}, format="text")

@app.spark(reads=[orders], spark_profile="big")
def load(run, spark):
    pass

@app.spark(reads=[lines])
def report(run, spark):
    pass

@app.worker(reads=[lines], spark=True, instances=0, spark_profile="big")
def follow(run, spark):
    pass

app.pipeline("copy", source=orders, sink=lines, transform="SELECT value, DATE'2026-01-01' AS day FROM source",
             spark_profile="small")
"""
SETTINGS = """
[spark.profiles.big]
conf = { "spark.driver.memory" = "8g" }
[spark.profiles.small]
"""


@pytest.fixture
def project(catalog_url, tmp_path):
    """A project with two Spark profiles."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n{SETTINGS}', encoding="utf-8")
    return tmp_path


def test_the_profile_of_a_program_is_deployed_and_shown(project):
    """The app shows why a run has other memory than the runs of other programs."""
    with tm.open(project) as mill:
        mill.deploy()
        shown = mill.apps.show("shop")

    assert shown.spark_profiles == {"load": "big", "follow": "big", "copy": "small"}


def test_an_unknown_profile_is_refused_with_the_known_ones(project):
    """A typing error must not become a run that waits for ever."""
    (project / "app.py").write_text(APP.replace('"big"', '"bigg"', 1), encoding="utf-8")

    with tm.open(project) as mill:
        with raises_code("unknown_spark_profile", "default.shop.load names the Spark profile 'bigg'.*has big, small"):
            mill.deploy()
        with raises_code("unknown_spark_profile"):
            mill.plan()
        assert list(mill.apps.list()) == []


def test_a_plan_shows_another_profile(project):
    """And nothing else: a program without a profile is as it was."""
    with tm.open(project) as mill:
        mill.deploy()
        text = APP.replace(', spark_profile="big")\ndef load', ")\ndef load").replace(
            "reads=[lines])", "reads=[lines], spark_profile='small')"
        )
        (project / "app.py").write_text(text, encoding="utf-8")
        (planned,) = mill.plan()
        mill.deploy()
        shown = mill.apps.show("shop")
        mill.apps.rollback("shop", to=1)
        again = mill.apps.show("shop")

    fields = {
        change.name: [str(field) for field in change.fields] for change in planned.changes if change.part == "program"
    }
    assert fields == {"load": ['spark_profile: "big" -> -'], "report": ['spark_profile: - -> "small"']}
    assert shown.spark_profiles == {"follow": "big", "copy": "small", "report": "small"}
    assert again.spark_profiles == {"load": "big", "follow": "big", "copy": "small"}


@pytest.mark.parametrize("profile", ["big", "a b"])
def test_a_profile_is_declared_with_spark_and_by_a_name(profile):
    """A program without Spark would ignore the settings silently."""
    app = tm.App("shop")
    lines = app.fileset("lines", keys={"day": "date"})

    def follow(run):
        run.take()

    with raises_code("bad_declaration" if profile == "big" else "bad_name"):
        app.worker(reads=[lines], spark=profile != "big", spark_profile=profile)(follow)


def tell(project, capsys, *command: str) -> Any:
    """Run a command, and return what it prints as JSON."""
    with pytest.raises(SystemExit):
        main(["--project", str(project), *command, "--json"])
    return json.loads(capsys.readouterr().out)


def test_a_node_without_the_profile_fails_no_run_and_blames_no_file(project, capsys):
    """Its file of settings is older than that of another node, and the file that waits is good."""
    text = (
        APP[: APP.index("@app.spark(reads=[lines])")] + "app.schedule('on_orders', load, trigger=tm.NewFiles(orders))"
    )
    (project / "app.py").write_text(text, encoding="utf-8")
    (project / "landing").mkdir()
    (project / "landing" / "good.txt").write_text("1\n")
    with tm.open(project) as mill:
        mill.deploy()
    before = tell(project, capsys, "doctor")
    (project / "tidemill.toml").write_text((project / "tidemill.toml").read_text().replace(".big]", ".large]"))

    with pytest.raises(SystemExit) as ended:
        main(["--project", str(project), "up", "--until-idle", "--no-deploy", "--no-server"])
    told = capsys.readouterr().out
    (run,) = tell(project, capsys, "run", "list")
    why = tell(project, capsys, "why", run["run_id"])
    files = tell(project, capsys, "inbox", "files", "orders")
    after = tell(project, capsys, "doctor")

    found = [next(one for one in each["findings"] if one["subject"] == "profiles") for each in (before, after)]
    assert ended.value.code == 0
    assert "until a node has the Spark that it needs" in told
    assert (run["state"], run["failures"], run["losses"]) == ("PENDING", 0, 0)
    assert [one["code"] for one in why["because"]] == ["run_waits_for_profile"]
    assert "no_spark_profile: the configuration of" in why["because"][0]["why"]
    assert [file["status"] for file in files] == ["NEW"]
    assert (found[0]["good"], found[1]["good"]) == (True, False)
    assert "this node has no big, which default.shop.load names" in found[1]["found"]
    assert "1 runs wait for a node with big" in found[1]["found"]
    assert "[spark.profiles.big]" in found[1]["cure"]
