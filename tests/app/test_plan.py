"""`tidemill plan`: it names exactly what `tidemill deploy` then changes, and changes nothing itself."""

from __future__ import annotations

import json
import random
import threading
from typing import Any

import pytest

import tidemill as tm
from tests.app.conftest import APP
from tests.app.test_deploy import redeploy, schedules
from tests.errors import raises_code
from tests.run.conftest import rows_of
from tests.stage import Stage, staged
from tidemill import Mill
from tidemill.cli.main import main

TABLES = {
    "data set": "SELECT name, kind, location, spec FROM dataset",
    "program": "SELECT name, kind, spec, (SELECT instances FROM worker WHERE worker.program_id = program.program_id)"
    " FROM program WHERE retired = 0",
    "consumer": "SELECT substr(c.name, 14) || ' of ' || d.namespace || '.' || d.name, c.spec"
    " FROM consumer AS c JOIN dataset AS d ON d.dataset_id = c.dataset_id",
    "schedule": "SELECT schedule.name, schedule.spec, program.name, owner"
    " FROM schedule JOIN program ON program.program_id = schedule.program_id",
}
"""The parts of the app `shop` as the catalog holds them, by name."""


@pytest.fixture
def stage(tmp_path, catalog_url):
    """A project whose app is deployed, and that has a partition."""
    with staged(tmp_path, catalog_url, APP) as stage:
        yield stage


def plan(mill: Mill, text: str, **options: Any) -> Any:
    """Change the app file and plan its deployment."""
    mill.project.config.app.write_text(text, encoding="utf-8")
    return mill.plan(**options)[0]


def titles(plan: Any) -> list[tuple[str, str, str]]:
    """The changes of a plan or deployment without their fields."""
    return [(str(change.act), str(change.part), change.name) for change in plan.changes]


def content(stage: Stage) -> dict[str, list[Any]]:
    """All that the catalog holds, but for its clock."""
    tables = stage.mill.project.catalog.dump()
    return {table.name: sorted(map(repr, table.rows)) for table in tables if table.name != "clock"}


def parts(stage: Stage) -> dict[tuple[str, str], tuple[Any, ...]]:
    """The parts of the app, read from the tables."""
    catalog = stage.mill.project.catalog
    return {(part, str(row[0])): row[1:] for part, query in TABLES.items() for row in rows_of(catalog, query)}


def test_a_first_deployment_adds_all(mill):
    """A reviewer sees what a new app brings."""
    (planned,) = mill.plan()

    assert titles(planned) == [
        ("add", "app", "shop"),
        ("add", "data set", "clean"),
        ("add", "data set", "orders"),
        ("add", "program", "load"),
        ("add", "program", "report"),
        ("add", "consumer", "report of default.clean"),
        ("add", "schedule", "on_clean"),
        ("add", "schedule", "on_orders"),
    ]
    assert planned.version == 1
    assert list(mill.apps.list()) == []
    assert not (mill.project.config.folder / "landing").exists()


def test_what_is_deployed_has_nothing_to_do(stage):
    """CI is green when the catalog is as the app file says. A deployment of the same has no number of its own."""
    (planned,) = stage.mill.plan()
    (deployed,) = stage.mill.deploy()

    assert (planned.changes, planned.sentence()) == ((), "shop: nothing to do")
    assert (deployed.changes, deployed.version) == ((), 1)


def test_each_changed_field_is_named_with_its_old_and_new_value(stage):
    """A line for each part; a field that is the same is no line."""
    text = APP.replace("NewPartitions(clean, 2)", "NewPartitions(clean, 3)").replace('{"limit": 5}', '{"limit": 6}')
    planned = plan(stage.mill, text)

    by_part = {(str(one.part), one.name): [(f.field, f.old, f.new) for f in one.fields] for one in planned.changes}
    (trigger,) = by_part["schedule", "on_clean"]
    assert by_part["program", "load"] == [
        (
            "arguments",
            [{"name": "limit", "type": "int", "default": 5}],
            [{"name": "limit", "type": "int", "default": 6}],
        )
    ]
    assert (trigger[0], trigger[1]["n"], trigger[2]["n"]) == ("trigger", 2, 3)
    assert [field for field, *_ in by_part["app", "shop"]] == ["code", "file app.py"]
    assert "  ~ schedule on_clean: trigger: {" in planned.sentence()


def test_dropped_jobs_and_schedules_of_ops_are_named(stage):
    """The seed deletes schedules of ops with a deployment; a person wants to know before."""
    stage.mill.schedules.create("shop.by_ops", "shop.report", trigger={"type": "every", "duration": "1h"})
    stage.mill.schedules.resume("shop.on_clean")
    stage.publish("clean", "day=2026-01-01")
    stage.schedule()

    planned = plan(stage.mill, APP.replace("NewPartitions(clean, 2)", "NewPartitions(clean, 3)"))
    kept = stage.mill.plan(update_schedules=False)[0]
    deployed = stage.mill.deploy()[0]

    assert (planned.dropped_jobs, planned.ops_schedules) == (1, ("by_ops",))
    assert "- schedule by_ops (of ops)" in planned.sentence()
    assert "would drop 1 pending job" in planned.sentence()
    assert (kept.dropped_jobs, kept.ops_schedules) == (0, ())
    assert deployed.dropped_jobs == 1


def test_a_removed_program_takes_its_schedules_along_in_the_plan_too(stage):
    """Seed 001: also where schedules are kept. Its consumer stays, as retired."""
    text = APP[: APP.index("@app.python(reads=[clean])")] + APP[APP.index("app.schedule") :]
    text = text[: text.index('app.schedule("on_clean"')]
    planned = plan(stage.mill, text, update_schedules=False)

    assert ("remove", "program", "report") in titles(planned)
    assert ("remove", "schedule", "on_clean") in titles(planned)
    assert not any(part == "consumer" for _, part, _ in titles(planned))


def test_a_watermark_that_would_be_computed_again_is_named(stage):
    """Its windows would be computed again, too."""
    days = (
        'days = app.fileset("days", keys={"day": "date"}, watermark='
        'tm.Watermark("ts", pattern="$day 00:00:00", interval="1d"%s))\n'
    )
    text = APP.replace("@app.python(reads=[orders]", f"{days}\n@app.python(reads=[orders]", 1)
    redeploy(stage.mill, text % "")
    stage.publish("days", "day=2026-01-01")

    planned = plan(stage.mill, text % ', zone="Europe/Berlin"')
    (deployed,) = stage.mill.deploy()

    assert planned.watermarks == deployed.watermarks
    assert len(planned.watermarks) == 1
    assert titles(planned) == titles(deployed)
    assert ("change", "data set", "days") in titles(planned)


def test_what_deploy_refuses_a_plan_refuses(stage):
    """With the same error, and nothing is changed."""
    before = content(stage)

    with raises_code("dataset_clash", match="cannot be changed"):
        plan(stage.mill, APP.replace('"day": "date"', '"day": "string"'))
    assert content(stage) == before


def test_an_app_that_reads_the_data_of_an_app_before_it_is_planned(mill):
    """The apps of a file are deployed one after the other, and so they are planned."""
    other = 'market = tm.App("market")\n\n@market.python(reads=[clean])\ndef look(run):\n    pass\n'
    mill.project.config.app.write_text(f"{APP}\n{other}")
    planned = mill.plan()
    deployed = mill.deploy()

    assert ("add", "consumer", "look of default.clean") in titles(planned[1])
    assert [titles(one) for one in planned] == [titles(one) for one in deployed]


def test_an_app_that_is_left_is_named(stage):
    """The app goes on until it is deleted."""
    planned = plan(stage.mill, "import tidemill as tm\napp = tm.App('store')\n")

    assert "the app file no longer declares app default.shop, which goes on" in planned.sentence()


def test_new_schedules_begin_as_the_setting_of_the_site_says(stage):
    """The default of seed 001, suspended, is a setting; an app or command that says otherwise beats it."""
    folder = stage.mill.project.config.folder
    toml = folder / "tidemill.toml"
    toml.write_text(f"{toml.read_text()}[schedules]\nsuspended = true\n")
    text = (folder / "app.py").read_text()
    added = "app.schedule({}, 'report', trigger=tm.Every('1h'){})\n"
    more = added.format("'plain'", "") + added.format("'keen'", ", suspended=False")
    (folder / "app.py").write_text(f"{text}\n{more}")
    with tm.open(folder) as mill:
        before = {one.name: one.status for one in mill.schedules.list()}
        mill.deploy()
        mill.schedules.create("shop.by_ops", "shop.report", trigger=tm.Every("1h"))
        mill.schedules.create("shop.keen_ops", "shop.report", trigger=tm.Every("1h"), suspended=False)

        found = {one.name: one.status for one in mill.schedules.list()}

    assert found == before | {
        "default.shop.plain": "SUSPENDED",
        "default.shop.keen": "SCHEDULED",
        "default.shop.by_ops": "SUSPENDED",
        "default.shop.keen_ops": "SCHEDULED",
    }


def test_the_site_says_if_schedules_follow_the_app_and_the_request_beats_it(stage):
    """Seed 001, scenario 3, by the setting of the site: `deploy`, `up` and `plan` honour it."""
    folder = stage.mill.project.config.folder
    toml = folder / "tidemill.toml"
    toml.write_text(f"{toml.read_text()}[deploy]\nupdate_schedules = false\n")
    text = APP.replace("NewPartitions(clean, 2)", "NewPartitions(clean, 9)")
    (folder / "app.py").write_text(text.replace('app.schedule("on_orders"', 'app.schedule("renamed"'))

    def run(*command: str) -> None:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(folder), *command])
        assert ended.value.code == 0

    run("deploy")
    after_deploy = schedules(stage.mill)
    run("up", "--until-idle")
    after_up = schedules(stage.mill)
    generation = stage.mill.schedules.show("shop.on_clean").generation
    run("deploy", "--update-schedules")

    assert after_deploy == after_up == {"default.shop.on_clean": "SUSPENDED", "default.shop.on_orders": "SCHEDULED"}
    assert generation == 1
    assert schedules(stage.mill) == {"default.shop.on_clean": "SUSPENDED", "default.shop.renamed": "SCHEDULED"}
    assert stage.mill.schedules.show("shop.on_clean").generation == 2


def test_plan_check_ends_with_the_code_of_findings(stage, capsys):
    """CI asks for the exit code, and reads the JSON."""
    folder = stage.mill.project.config.folder

    def run(*options: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(folder), "plan", *options])
        return int(ended.value.code or 0), capsys.readouterr().out

    clean = run("--check")
    (folder / "app.py").write_text(APP.replace("NewPartitions(clean, 2)", "NewPartitions(clean, 3)"))
    shown, checked, kept = run("--json"), run("--check"), run("--check", "--keep-schedules")

    assert clean == (0, "shop: nothing to do\n")
    assert (shown[0], checked[0], kept[0]) == (0, 6, 6)  # the code is another, also where schedules are kept
    assert [one["name"] for one in json.loads(shown[1])["changes"]] == ["shop", "on_clean"]
    assert "on_clean" not in kept[1]


@pytest.mark.parametrize(("options", "code"), [((), 0), (("--check",), 6)])
def test_a_plan_before_the_first_deployment_adds_all_and_makes_no_catalog(tmp_path, capsys, options, code):
    """A continuous integration has a fresh clone, and a look makes nothing."""
    (tmp_path / "app.py").write_text(APP)
    with pytest.raises(SystemExit) as ended:
        main(["--project", str(tmp_path), "plan", *options])

    assert ended.value.code == code
    assert "+ schedule on_clean" in capsys.readouterr().out
    assert not (tmp_path / ".tidemill").exists()


def test_a_plan_beside_the_data_of_an_earlier_catalog_is_refused(tmp_path, capsys):
    """As the deployment is: the catalog may be lost, and not new."""
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / ".tidemill" / "data" / "default").mkdir(parents=True)
    with pytest.raises(SystemExit) as ended:
        main(["--project", str(tmp_path), "plan"])

    assert ended.value.code == 2
    assert "holds the data of an earlier one" in capsys.readouterr().err


def draw_app(rng: random.Random) -> str:
    """Return an app file with data sets, programs and schedules by chance. Keys and kinds never change."""
    lines = ["import tidemill as tm", "app = tm.App('shop')"]
    filesets = rng.sample(["a", "b", "c"], rng.randint(1, 3))
    for name in filesets:
        keep = rng.choice(["", ", keep_superseded='1d'", ", retention='9d'"])
        lines.append(f"{name} = app.fileset('{name}', keys={{'day': 'date'}}{keep})")
    if rng.random() < 0.5:
        lines.append(f"raw = app.inbox('raw', 'raw', format='text', attempts={rng.randint(1, 2)})")
    if rng.random() < 0.5:
        lines.append(f"users = app.snapshot('users', key=['id'], max_versions={rng.randint(8, 9)})")
        if rng.random() < 0.5:
            lines.append("@app.python(reads=[tm.Changes(users)])\ndef follow(run):\n    pass")
    for program in rng.sample(["p", "q", "r"], rng.randint(1, 3)):
        read = rng.choice(filesets)
        terms = rng.choice([read, f"tm.Reads({read}, attempts={rng.randint(1, 2)})"])
        kind = rng.choice(["python", "python", "worker"])
        more = f", instances={rng.randint(0, 2)}" if kind == "worker" else f", retries={rng.randint(0, 1)}"
        lines.append(f"@app.{kind}(reads=[{terms}]{more})\ndef {program}(run):\n    pass")
        if kind == "python":
            for schedule in rng.sample([f"{program}1", f"{program}2"], rng.randint(0, 2)):
                trigger = rng.choice([f"tm.Every('{rng.randint(1, 2)}h')", f"tm.NewPartitions({read}, 9)"])
                limit = rng.choice(["", ", constraints=[]", ", priority=1", ", suspended=True"])
                lines.append(f"app.schedule('{schedule}', {program}, trigger={trigger}{limit})")
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize("seed", range(4))
def test_a_plan_names_exactly_what_the_deployment_changes(stage, seed):
    """Random apps after one another: the plan changes nothing, and names what the tables then show as changed."""
    rng = random.Random(seed)
    mill = stage.mill
    redeploy(mill, draw_app(rng))
    for _ in range(6):
        if programs := [name for name in mill.apps.show("shop").programs if rows_of_kind(mill, name) == "python"]:
            name = f"shop.ops{rng.randint(0, 99)}"
            if f"default.{name}" not in schedules(mill):
                mill.schedules.create(name, f"shop.{programs[0]}", trigger={"type": "every", "duration": "1h"})
        for dataset in mill.apps.show("shop").datasets:
            if dataset in {"a", "b", "c"}:
                stage.publish(dataset, f"day=2026-01-{rng.randint(1, 28):02}")
        stage.schedule()
        update = rng.random() < 0.7
        before, all_before = parts(stage), content(stage)
        planned = plan(mill, draw_app(rng), update_schedules=update)
        assert content(stage) == all_before
        (deployed,) = mill.deploy(update_schedules=update)
        after = parts(stage)

        shown = {key for key in titles(planned) if key[1] != "app"}
        assert planned.changes == deployed.changes
        assert (planned.dropped_jobs, planned.watermarks) == (deployed.dropped_jobs, deployed.watermarks)
        assert shown == {
            ("add" if key not in before else "remove" if key not in after else "change", *key)
            for key in before.keys() | after.keys()
            if before.get(key) != after.get(key)
        }
        assert mill.plan(update_schedules=update)[0].changes == ()


def rows_of_kind(mill: Mill, program: str) -> str:
    """The kind of a program of the app."""
    ((kind,),) = rows_of(mill.project.catalog, f"SELECT kind FROM program WHERE name = '{program}' AND retired = 0")
    return str(kind)


MARKS = ("deploy.prepared", "deploy.programs", "deploy.schedules", "deploy.noted", "deploy.committed")


class Died(BaseException):
    """The end of a process."""


def die() -> None:
    """End the process, as far as a test can."""
    raise Died


@pytest.mark.parametrize("mark", MARKS)
def test_a_deployment_that_dies_has_changed_all_or_nothing(stage, mark):
    """Half an app would run with the other half's data sets; the next deployment finds nothing to clean up."""
    text = APP.replace("NewPartitions(clean, 2)", "NewPartitions(clean, 3)").replace('"clean"', '"cleaned"')
    before = content(stage)
    stage.at[mark] = die
    with pytest.raises(Died):
        redeploy(stage.mill, text)
    died = content(stage)
    (planned,) = stage.mill.plan()
    stage.mill.deploy()

    assert (died == before) == (mark != "deploy.committed")
    assert (planned.changes == ()) == (mark == "deploy.committed")
    assert [one.version for one in stage.mill.apps.history("shop")] == [2, 1]


def test_two_deployments_at_once_come_one_after_the_other(stage):
    """Each has a number of its own, and the second is compared with what the first has left."""
    config, mill = stage.mill.project.config, stage.mill
    done: list[Any] = []

    def deploy_other() -> None:
        config.app.write_text(APP.replace("NewPartitions(clean, 2)", "NewPartitions(clean, 4)"))
        done.extend(mill.deploy())

    other = threading.Thread(target=deploy_other)
    stage.at["deploy.programs"] = other.start
    first = redeploy(mill, APP.replace("NewPartitions(clean, 2)", "NewPartitions(clean, 3)"))
    other.join()

    (second,) = done
    assert [first.version, second.version] == [2, 3]
    (changed,) = [one for one in second.changes if str(one.part) == "schedule"]
    assert [(one.old["n"], one.new["n"]) for one in changed.fields] == [(3, 4)]
    assert [one.version for one in mill.apps.history("shop")] == [3, 2, 1]


def test_a_deleted_app_takes_all_schedules_along_where_the_site_keeps_them(stage):
    """Seed 001: the deletion of an app deletes its schedules, also those of ops, with their pending jobs."""
    toml = stage.mill.project.config.folder / "tidemill.toml"
    toml.write_text(f"{toml.read_text()}[deploy]\nupdate_schedules = false\n")
    stage.mill.schedules.create("shop.by_ops", "shop.report", trigger={"type": "every", "duration": "1h"})
    stage.mill.schedules.resume("shop.on_clean")
    stage.publish("clean", "day=2026-01-01")
    stage.schedule()

    with pytest.raises(SystemExit) as ended:
        main(["--project", str(toml.parent), "app", "delete", "shop"])

    assert ended.value.code == 0
    assert schedules(stage.mill) == {}
    assert list(stage.mill.jobs.list()) == []
