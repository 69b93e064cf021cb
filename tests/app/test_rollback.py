"""Deployments are numbered, and `tidemill app rollback` makes an earlier one the newest."""

from __future__ import annotations

import json

import pytest

from tests.app.test_bundles import digests
from tests.app.test_deploy import redeploy, schedules
from tests.app.test_plan import Died, content, die, parts
from tests.errors import raises_code
from tests.run.conftest import rows_of
from tests.stage import staged
from tidemill import NotFound
from tidemill.cli.main import main

ONE = """
from pathlib import Path
import tidemill as tm
import helper

app = tm.App("shop")
lines = app.fileset("lines", keys={"hour": "int"}, format="text")

@app.python(arguments={"level": 1})
def load(run):
    with Path(__file__).with_name("said.txt").open("a") as said:
        print(helper.word, run.arguments["level"], file=said)

@app.python(reads=[lines])
def report(run):
    pass

app.schedule("hourly", load, trigger=tm.Every("1h"))
app.schedule("on_lines", report, trigger=tm.NewPartitions(lines, 2))
"""
TWO = (
    ONE[: ONE.index("@app.python(reads")].replace('"level": 1', '"level": 2')
    + 'app.schedule("hourly", load, trigger=tm.Every("2h"))\napp.schedule("often", load, trigger=tm.Every("1m"))\n'
)


@pytest.fixture
def stage(tmp_path, catalog_url):
    """A project that was deployed twice: the second deployment has other code, programs and schedules."""
    (tmp_path / "helper.py").write_text("word = 'one'")
    with staged(tmp_path, catalog_url, ONE) as stage:
        stage.first = parts(stage)
        (tmp_path / "helper.py").write_text("word = 'two'")
        redeploy(stage.mill, TWO)
        yield stage


def test_a_rollback_brings_back_code_and_declarations_as_a_new_deployment(stage):
    """All of it in one step: programs, arguments, consumers and schedules are those of the first deployment."""
    deployed = stage.mill.acting_as("ann").apps.rollback("shop")
    stage.mill.runs.start("shop.load")
    stage.work()
    newest, *_ = stage.mill.apps.history("shop")
    (entry,) = stage.mill.audit.log(subject="default.shop", limit=1)

    assert parts(stage) == stage.first
    assert stage.lines_of() == ["one 1"]
    assert (deployed.version, deployed.programs_retired) == (3, ())
    assert (deployed.schedules_changed, deployed.schedules_removed) == (("hourly",), ("often",))
    assert (newest.version, newest.rolled_back_to, newest.actor, newest.kept) == (3, 1, "ann", True)
    assert (entry.action, entry.actor, entry.detail["to"]) == ("app.rollback", "ann", 1)


def test_a_second_rollback_returns_to_the_deployment_that_the_first_has_left(stage):
    """Without --to, the newest deployment of other code is meant."""
    stage.mill.apps.rollback("shop")
    after = stage.mill.apps.rollback("shop")
    stage.mill.runs.start("shop.load")
    stage.work()

    assert after.version == 4
    assert [one.rolled_back_to for one in stage.mill.apps.history("shop")] == [2, 1, None, None]
    assert stage.lines_of() == ["two 2"]


def test_a_deployment_may_be_named(stage):
    """Two steps back, say."""
    redeploy(stage.mill, TWO.replace("1m", "3m"))

    assert stage.mill.apps.rollback("shop", to=1).version == 4
    assert parts(stage) == stage.first


def test_an_attempt_under_way_keeps_its_code_and_its_version(stage):
    """The run records which deployment it has executed; the next run has the code of the rollback."""
    stage.at["driver.claimed"] = lambda: stage.mill.apps.rollback("shop")
    during = stage.mill.runs.start("shop.load").run_id
    (run,) = stage.work()
    later = stage.mill.runs.start("shop.load").run_id
    stage.work()

    assert run.state == "COMPLETED"
    assert stage.lines_of() == ["two 2", "one 1"]
    assert [stage.mill.runs.show(one).app_version for one in (during, later)] == [2, 3]
    assert len({stage.mill.runs.show(one).bundle for one in (during, later)}) == 2


def test_a_rollback_keeps_schedules_where_the_site_or_the_request_says_so(stage):
    """As a deployment does. The schedules of programs that the rollback removes go in any case."""
    redeploy(
        stage.mill,
        TWO + '\n@app.python()\ndef late(run):\n    pass\napp.schedule("late", late, trigger=tm.Every("1h"))\n',
    )
    before = schedules(stage.mill)
    stage.mill.apps.rollback("shop", to=1, update_schedules=False)

    assert schedules(stage.mill) == {name: status for name, status in before.items() if not name.endswith("late")}


def test_the_app_file_is_left_alone(stage, capsys):
    """The next plan shows what a deployment of the app file would undo."""
    text = stage.mill.project.config.app.read_text()
    stage.mill.apps.rollback("shop")
    (planned,) = stage.mill.plan()

    assert stage.mill.project.config.app.read_text() == text
    assert "often" in {change.name for change in planned.changes}


def test_the_code_of_kept_deployments_is_not_deleted(stage, monkeypatch):
    """A rollback to an older deployment is refused with the reason."""
    monkeypatch.setattr("tidemill.app.deployments.KEPT", 2)
    stage.sweep()
    kept = len(digests(stage))
    redeploy(stage.mill, TWO.replace("1m", "3m"))
    stage.sweep()
    left = [(one.version, one.kept) for one in stage.mill.apps.history("shop")]

    assert (kept, len(digests(stage))) == (2, 2)
    assert left == [(3, True), (2, True), (1, False)]
    with raises_code("cannot_roll_back", match="the code of deployment 1 is deleted"):
        stage.mill.apps.rollback("shop", to=1)


def test_a_rollback_and_a_janitor_never_disagree(stage, monkeypatch):
    """The janitor marks the bundle between the look of the rollback and its transaction: nothing is changed."""
    monkeypatch.setattr("tidemill.app.deployments.KEPT", 2)

    def overtake():
        redeploy(stage.mill, TWO.replace("1m", "3m"))
        overtaken.append(parts(stage))
        stage.sweep()

    overtaken = []
    stage.at["deploy.prepared"] = overtake
    with raises_code("bundle_deleted"):
        stage.mill.apps.rollback("shop", to=1)

    assert overtaken == [parts(stage)]


@pytest.mark.parametrize("mark", ["deploy.prepared", "deploy.programs", "deploy.schedules", "deploy.noted"])
def test_a_rollback_that_dies_changes_nothing(stage, mark):
    """And the next one succeeds."""
    before = content(stage)
    stage.at[mark] = die
    with pytest.raises(Died):
        stage.mill.apps.rollback("shop")
    died = content(stage)
    stage.mill.apps.rollback("shop")

    assert died == before
    assert parts(stage) == stage.first


def test_there_must_be_something_to_return_to(tmp_path, catalog_url):
    """Each refusal says what to do."""
    (tmp_path / "helper.py").write_text("word = 'one'")
    with staged(tmp_path, catalog_url, ONE) as stage:
        with raises_code("cannot_roll_back", match="no earlier deployment of other code"):
            stage.mill.apps.rollback("shop")
        with raises_code("cannot_roll_back", match="deployment 1 is the current one"):
            stage.mill.apps.rollback("shop", to=1)
        with pytest.raises(NotFound, match=r"7 of default\.shop"):
            stage.mill.apps.rollback("shop", to=7)
        with pytest.raises(NotFound, match="shopp"):
            stage.mill.apps.rollback("shopp")
        with pytest.raises(NotFound, match="shopp"):
            stage.mill.apps.history("shopp")


def test_a_deleted_app_keeps_no_code_and_goes_on_counting(stage):
    """Its history stays; a rollback to what was before the deletion is refused."""
    stage.mill.apps.delete("shop")
    stage.sweep()
    deleted = digests(stage)
    stage.mill.deploy()
    stage.sweep()

    assert deleted == set()
    assert [(one.version, one.kept) for one in stage.mill.apps.history("shop")] == [(3, True), (2, False), (1, False)]


def test_one_app_of_a_file_is_rolled_back_and_the_other_stays(tmp_path, catalog_url):
    """Both come from one bundle; the rollback is of one app."""
    (tmp_path / "helper.py").write_text("word = 'one'")
    other = '\nmarket = tm.App("market")\n@market.python(arguments={"level": 1})\ndef look(run):\n    pass\n'
    with staged(tmp_path, catalog_url, ONE + other) as stage:
        stage.mill.project.config.app.write_text((ONE + other).replace('"level": 1', '"level": 2'))
        stage.mill.deploy()
        stage.mill.apps.rollback("shop")
        bundles = dict(rows_of(stage.mill.project.catalog, "SELECT name, bundle FROM program"))

        assert [stage.mill.apps.show(app).version for app in ("shop", "market")] == [3, 2]
        assert bundles["load"] == bundles["report"] != bundles["look"]


def test_the_commands_show_and_roll_back(stage, capsys):
    """As an operator types them."""
    folder = stage.mill.project.config.folder

    def run(*command: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(folder), *command])
        assert ended.value.code == 0
        return capsys.readouterr().out

    listed = json.loads(run("app", "history", "shop", "--json"))
    rolled_back = run("app", "rollback", "shop").splitlines()

    assert rolled_back[0] == "shop: deployment 3"
    assert "  + program report" in rolled_back
    assert rolled_back[-1].startswith(
        "shop: 0 inboxes, 1 file set, 2 programs, 2 schedules   schedules: added on_lines"
    )
    assert [one["version"] for one in listed] == [2, 1]
    assert "~ schedule hourly" in listed[0]["changes"]
    assert "- program report" in listed[0]["changes"]
    assert run("app", "history", "shop").splitlines()[1].startswith("3 ")
    assert parts(stage) == stage.first
