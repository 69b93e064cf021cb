"""Many schedules in one transaction: created or deleted, all of them or none, on both databases."""

from __future__ import annotations

import io
import json
import sys

import pytest

from tests.errors import raises_code
from tests.run.conftest import rows_of
from tidemill import Every, NewPartitions
from tidemill.cli.main import main

HOURLY = {"type": "every", "duration": "1h"}
OLD = ["default.shop.on_clean", "default.shop.on_orders"]


def entry(name, **options):
    """Return the entry of a schedule of `shop.report`."""
    return {"name": f"shop.{name}", "program": "shop.report", "trigger": HOURLY, **options}


@pytest.fixture
def deployed(mill):
    """The project with its app."""
    mill.deploy()
    return mill


@pytest.fixture
def tidemill(deployed, project, capsys):
    """Run a command in the project; its exit code, output and errors."""

    def run(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(project), *arguments])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def names_of(mill):
    """Return the names of all schedules."""
    return [one.name for one in mill.schedules.list()]


def changes_of(mill):
    """Return action and subject of each audit row about schedules."""
    return sorted((one.action, one.subject) for one in mill.audit.log() if one.action.startswith("schedule."))


def test_many_schedules_are_created_in_the_order_of_the_list(deployed):
    """A caller pairs its entries with the answers."""
    made = deployed.schedules.create_many(
        [entry("b", priority=3), entry("a", suspended=True), {**entry("c"), "trigger": NewPartitions("clean", 2)}]
    )

    assert [(one.name, one.status, one.priority) for one in made] == [
        ("default.shop.b", "SCHEDULED", 3),
        ("default.shop.a", "SUSPENDED", 0),
        ("default.shop.c", "SCHEDULED", 0),
    ]
    assert made[2].trigger == "NewPartitions(default.clean, 2)"
    assert {one.owner for one in made} == {"ops"}
    assert changes_of(deployed) == [("schedule.create", f"default.shop.{name}") for name in "abc"]


def test_many_schedules_are_one_transaction(deployed):
    """A reader between two of them would see half of a list."""
    made = deployed.schedules.create_many([entry(f"s{i}") for i in range(20)])

    since = rows_of(deployed.project.catalog, "SELECT DISTINCT since_seq FROM schedule WHERE owner = 'ops'")
    assert (len(made), len(since)) == (20, 1)


@pytest.mark.parametrize(
    ("bad", "because", "match"),
    [
        (entry("x", priorty=7), "bad_json", "did you mean 'priority'"),
        (entry("x", timeout="0s"), "bad_schedule", "timeout must be"),
        ({**entry("x"), "trigger": {"type": "new_partitions", "fileset": "lost"}}, "not_found", "lost"),
        ({**entry("x"), "program": "shop.lost"}, "not_found", "lost"),
        ({**entry("x"), "name": "shop.no name"}, "bad_name", "no name"),
        ({**entry("x"), "name": "nowhere.x"}, "not_found", "nowhere"),
        ({"name": "shop.x", "trigger": HOURLY}, "bad_json", "program"),
        ({"name": "shop.x", "program": "shop.report"}, "bad_json", "trigger"),
        (entry("x", suspended="yes"), "bad_json", "suspended"),
        (entry("x", arguments={"lost": 1}), "bad_argument", "lost"),
    ],
)
def test_an_entry_that_is_refused_is_named_and_nothing_is_created(deployed, bad, because, match):
    """The caller has to find the entry among a hundred."""
    with raises_code("bad_entry", match=match) as caught:
        deployed.schedules.create_many([entry("good"), bad, entry("later")])

    assert (caught.value.place, caught.value.name, caught.value.because) == (2, bad["name"], because)
    assert str(caught.value).startswith(f"no schedule is created: entry 2 ({bad['name']}) is refused: ")
    assert names_of(deployed) == OLD
    assert changes_of(deployed) == []


@pytest.mark.parametrize("entries", [["shop.x"], [None], [[1]], [{}]])
def test_an_entry_that_is_no_object_is_refused(deployed, entries):
    """A list of names is an easy slip."""
    with raises_code("bad_entry", match="entry 1"):
        deployed.schedules.create_many(entries)


@pytest.mark.parametrize("entries", [{"name": "shop.x"}, "shop.x", 3, None])
def test_entries_that_are_no_list_are_refused(deployed, entries):
    """A single entry without brackets is the easiest slip."""
    with raises_code("bad_entry", match="no list"):
        deployed.schedules.create_many(entries)


def test_the_error_names_only_the_schedules_that_exist(deployed):
    """The error named all entries, and the caller did not know which of them exists."""
    with raises_code("schedule_exists") as caught:
        deployed.schedules.create_many([entry("free"), entry("on_orders"), entry("on_clean")])
    with raises_code("schedule_exists") as twice:
        deployed.schedules.create_many([entry("free"), entry("double"), entry("double")])

    assert caught.value.names == "default.shop.on_orders, default.shop.on_clean"
    assert twice.value.names == "default.shop.double"
    assert names_of(deployed) == OLD


def test_many_schedules_are_deleted_or_none(deployed):
    """A wrong name in the middle would leave a part of them."""
    deployed.schedules.create_many([entry("a"), entry("b"), entry("c")])

    with raises_code("not_found", match="lost"):
        deployed.schedules.delete_many(["shop.a", "shop.lost", "shop.b"])
    before = names_of(deployed)
    deleted = deployed.schedules.delete_many(["shop.b", "default.shop.a", "shop.b"])

    assert before == ["default.shop.a", "default.shop.b", "default.shop.c", *OLD]
    assert [(one.schedule, one.status, one.changed) for one in deleted] == [
        ("default.shop.b", None, True),
        ("default.shop.a", None, True),
    ]
    assert names_of(deployed) == ["default.shop.c", *OLD]


def test_no_entries_and_no_names_change_nothing(deployed):
    """A script passes on a list that may be empty."""
    assert list(deployed.schedules.create_many([])) == []
    assert list(deployed.schedules.delete_many([])) == []
    assert names_of(deployed) == OLD


def test_the_command_creates_from_a_file_and_from_standard_input(deployed, tidemill, tmp_path, monkeypatch):
    """`-` takes what another command writes."""
    file = tmp_path / "more.json"
    file.write_text(json.dumps([entry("a"), entry("b")]), encoding="utf-8")
    piped = io.BytesIO(json.dumps([entry("c")]).encode())

    from_file = tidemill("schedule", "create", "--file", str(file))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(piped, encoding="utf-8"))
    from_input = tidemill("schedule", "create", "--file", "-", "--json")

    assert from_file[0] == 0
    assert "default.shop.b" in from_file[1]
    assert [one["name"] for one in json.loads(from_input[1])] == ["default.shop.c"]
    assert names_of(deployed)[:3] == ["default.shop.a", "default.shop.b", "default.shop.c"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe\xfa", b"3", b"[3]", b'{"name": "shop.a"}'])
def test_a_file_that_is_no_list_of_schedules_is_refused(deployed, tidemill, tmp_path, content):
    """A slip in a file ends with the exit code of wrong input, and no traceback."""
    file = tmp_path / "more.json"
    file.write_bytes(content)

    code, _, errors = tidemill("schedule", "create", "--file", str(file))

    assert (code, errors.count("\n")) == (2, 1)
    assert names_of(deployed) == OLD


@pytest.mark.parametrize(
    "arguments",
    [["shop.a"], ["shop.a", "shop.report"], [], ["--file", "FILE", "--priority", "3"], ["shop.a", "--file", "FILE"]],
)
def test_a_command_with_half_of_its_arguments_is_refused(tidemill, tmp_path, arguments):
    """Neither a schedule nor a file of them."""
    file = tmp_path / "more.json"
    file.write_text("[]", encoding="utf-8")

    code, _, errors = tidemill("schedule", "create", *(str(file) if one == "FILE" else one for one in arguments))

    assert code == 2
    assert "bad_option" in errors


def test_the_command_deletes_many(deployed, tidemill):
    """Each schedule has its line."""
    deployed.schedules.create("shop.a", "shop.report", trigger=Every("1h"))
    deployed.schedules.create("shop.b", "shop.report", trigger=Every("1h"))

    refused = tidemill("schedule", "delete", "shop.a", "shop.lost")
    code, said, _ = tidemill("schedule", "delete", "shop.a", "shop.b")

    assert refused[0] == 4
    assert (code, said.splitlines()) == (
        0,
        [
            "default.shop.a is deleted, 0 pending jobs were dropped",
            "default.shop.b is deleted, 0 pending jobs were dropped",
        ],
    )
