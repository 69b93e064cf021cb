"""docs/triggers.md: its table is what triggers are, its app deploys, its commands do what they say."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import tidemill as tm
from tests.stage import staged
from tidemill.cli.main import main
from tidemill.json_specs import read_plain, write_plain
from tidemill.schedule.trigger_json import TRIGGERS
from tidemill.schedule.triggers import Trigger

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "triggers.md").read_text(encoding="utf-8")
_APP, _ = PAGE.split("## Triggers, constraints and probes of your own")
_TRIGGERS, _ = PAGE.split("## Constraints")
FORMS = [json.loads(text) for text in re.findall(r"`(\{.*?\})` \|$", _TRIGGERS, re.MULTILINE)]


@pytest.fixture
def project(sqlite_catalog_url, tmp_path):
    """The page's project."""
    (tmp_path / "app.py").write_text("\n".join(re.findall(r"```python\n(.*?)```", _APP, re.DOTALL)), encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    with tm.open(tmp_path):
        return tmp_path


def test_a_program_prints_what_started_its_run(sqlite_catalog_url, tmp_path, capsys):
    """The first program of the page, and the program that explains its run."""
    first, *others = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (explained,) = [other for other in others if "def explain(" in other]
    with staged(tmp_path, sqlite_catalog_url, f"{first}{explained}") as stage:
        (tmp_path / "landing").mkdir(exist_ok=True)
        (tmp_path / "landing" / "a.csv").write_text("1,2.5\n", encoding="utf-8")
        stage.mill.inboxes.scan("orders")
        stage.publish("clean", "day=2026-01-01", "day=2026-01-02")
        stage.schedule()
        stage.work()

    printed = capsys.readouterr().out.splitlines()
    assert "NewFiles(default.orders) 1 ()" in printed
    assert "NewPartitions(default.clean, 2) 2 ()" in printed
    assert sum("'key': 'day=2026-01-02'" in line for line in printed) == 1


def test_new_days_of_one_country_start_a_run(sqlite_catalog_url, tmp_path, capsys):
    """The page's example: other countries and corrections do not count, and the run gets all."""
    first, *others = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (german,) = [other for other in others if "def german(" in other]
    with staged(tmp_path, sqlite_catalog_url, f"{first}{german}") as stage:
        stage.publish("sales", "country=de/day=2026-01-01", "country=fr/day=2026-01-01")
        stage.publish("sales", "country=de/day=2026-01-01", op="overwrite")
        early = stage.schedule()
        stage.publish("sales", "country=de/day=2026-01-02")
        launched = stage.schedule()
        stage.work()

    assert (early, launched) == ([], ["default.shop.german"])
    assert "fr de de" in capsys.readouterr().out.splitlines()


def test_arguments_come_from_what_started_the_run(sqlite_catalog_url, tmp_path, capsys):
    """The page's example, started by two new days."""
    first, *others = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (summaries,) = [other for other in others if "def summarize(" in other]
    with staged(tmp_path, sqlite_catalog_url, f"{first}{summaries}") as stage:
        stage.publish("clean", "day=2026-01-01", "day=2026-01-02")
        stage.schedule()
        stage.work()
        shown = stage.mill.schedules.show("shop.summaries").arguments

    forms = [json.loads(text) for text in re.findall(r"^\| `From.*\| `(\{\"from\".*?\})` \|", PAGE, re.MULTILINE)]
    assert "2026-01-02 early" in capsys.readouterr().out.splitlines()
    assert shown["at"] in forms
    assert [write_plain(read_plain(tm.From, form)) for form in forms] == forms


def test_each_recipe_deploys_as_it_is_written(sqlite_catalog_url, tmp_path):
    """A reader copies a line of the table. tests/acceptance/test_seed_scheduler.py shows what the lines do."""
    first, *_ = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    recipes = re.findall(r"^\| [A-Z].*\. \| `(tm\..*?)` \| (?:`(.*?)` )?\|$", PAGE, re.MULTILINE)
    schedules = [
        f"app.schedule('recipe_{number}', report, trigger={trigger}, {options})\n"
        for number, (trigger, options) in enumerate(recipes)
    ]
    with staged(tmp_path, sqlite_catalog_url, f"{first}{''.join(schedules)}") as stage:
        names = {view.name for view in stage.mill.schedules.list().items}

    assert len(recipes) == 13
    assert {f"default.shop.recipe_{number}" for number in range(13)} <= names


def test_the_table_has_every_trigger_in_the_form_that_is_read():
    """A user that writes JSON copies it from the table."""
    assert [form["type"] for form in FORMS] == [write_plain(read_plain(Trigger, form))["type"] for form in FORMS]
    assert {form["type"] for form in FORMS} == set(TRIGGERS)


def test_the_example_of_constraints_deploys_as_it_is_written(project):
    """A reader copies it."""
    with tm.open(project) as mill:
        mill.deploy()
        shown = {view.name: view.constraints for view in mill.schedules.list().items}

    assert shown["default.shop.to_crm"] == (
        "GroupConcurrency('crm', 5), Rate(10, per='1h'), Delay('5m', debounce=True), "
        "TimeRange('22:00', '06:00', zone='Europe/Berlin')"
    )
    assert shown["default.shop.seldom"] == "SinceLastRun('10m', on_limit='skip')"


def test_exports_are_spread_over_the_day(project):
    """Each customer's export has a moment of its own, once a day, the same after another deployment."""
    with tm.open(project) as mill:
        mill.deploy()
        names = [f"shop.export_{customer}" for customer in ("anna", "bert", "carl")]
        moments = [[fire.fire_at for fire in mill.schedules.next(name).items] for name in names]
        (project / "app.py").write_text((project / "app.py").read_text().replace("'by hand'", "'by a hand'"))
        mill.deploy()
        again = [[fire.fire_at for fire in mill.schedules.next(name).items] for name in names]
        (reason, *_) = mill.why("shop.export_anna").because

    assert len({moment.time() for moment, *_ in moments}) == 3
    assert all(len(found) == 5 for found in moments)
    assert moments == again
    assert (reason.code, reason.next_look_at) == ("waits_for_time", moments[0][0])


def test_the_commands_do_as_the_page_says(project, capsys, monkeypatch):
    """Typed one after the other."""
    (commands,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    (more,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (project / "more.json").write_text(more, encoding="utf-8")
    monkeypatch.chdir(project)
    told = {}
    for line in commands.splitlines():
        arguments = shlex.split(line.removeprefix("$ tidemill "))
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(project), *arguments])
        told[" ".join(arguments[:3])] = capsys.readouterr().out
        assert ended.value.code == 0, line

    assert told["schedule next shop.nightly"].count("Cron('30 2 * * *', zone='Europe/Berlin')") == 3
    assert "default.shop.nightly" in told["schedule next --from"]
    assert "2999-01-01" in told["schedule next --from"]
    assert "shop.often" in told["schedule triggered-by clean"]
    assert "scheduled" in told["schedule create shop.mine"]
    assert "shop.often" in told["schedule resume --suspended-between"]
    assert "is deleted" in told["schedule delete shop.mine"]
    assert "shop.hourly" in told["schedule create --file"]
    assert "shop.mine" in told["schedule list --trigger"]
    assert "no job waits" in told["job list --state"]
    assert told["schedule delete shop.early"].count("is deleted") == 2


def test_the_listeners_of_a_program_and_of_a_topic_are_listed(project):
    """By its name, as those of a data set."""
    with tm.open(project) as mill:
        mill.deploy()
        found = {of: {one.name for one in mill.schedules.triggered_by(of).items} for of in ("shop.load", "payments")}
        with pytest.raises(tm.NotFound):
            mill.schedules.triggered_by("nothing")

    assert "default.shop.after_load" in found["shop.load"]
    assert found["payments"] == {"default.shop.settle"}


def test_why_a_message_of_a_users_topic_started_nothing(project):
    """Its listeners are those of the topic, whatever its event key is."""
    with tm.open(project) as mill:
        mill.deploy()
        heard = mill.why(f"payments:{mill.topics.publish('payments', key='settled').position}")
        unheard = mill.why(f"others:{mill.topics.publish('others', key='settled').position}")

    assert heard.because[0].code == "message_waits_for_scheduler"
    assert unheard.because[0].why == "no schedule listens to topic others, or to its key 'settled'"


def test_the_cap_of_the_page_is_a_setting(project):
    """Copied to the configuration as the page has it."""
    (setting,) = re.findall(r"```toml\n(\[schedules\].*?)```", PAGE, re.DOTALL)
    with (project / "tidemill.toml").open("a", encoding="utf-8") as file:
        file.write(setting)

    with tm.open(project) as mill:
        assert mill.project.config.shown()["schedules.max_launches_per_second"] == 10
