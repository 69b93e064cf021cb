"""The search: any name, id, file or partition by its beginning, and where to look next."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.errors import raises_code
from tests.stage import Stage, staged
from tidemill.cli.main import main
from tidemill.mill.access import Access, Role
from tidemill.shapes.keys import KeySchema

APP: Final = """
import tidemill as tm

app = tm.App("shop")
orders = app.inbox("orders", "landing/orders", format="text", settle="0s")
lines = app.fileset("lines", keys={"day": "date", "hour": "int"}, format="text")
names = app.fileset("names", keys={"name": "string"}, format="text")


@app.python(reads=[orders], writes=[lines])
def load(run):
    if run.input(orders):
        run.output(lines).append({"day=2026-01-01/hour=5": "a\\n"})


@app.python()
def loaf(run):
    pass


app.schedule("on_orders", load, trigger=tm.NewFiles(orders))
app.schedule("on_signal", loaf, trigger=tm.Hook("go"))
"""


@pytest.fixture
def stage(catalog_url: str, tmp_path: Path) -> Iterator[Stage]:
    """A project with files, partitions, runs and a job."""
    with staged(tmp_path, catalog_url, APP) as opened:
        for name in ("o_1.txt", "o_2.txt", "o'neil 3.txt"):
            (tmp_path / "landing" / "orders" / name).write_text("a\n")
        opened.mill.inboxes.scan("orders")
        assert opened.outcome("shop.load") == ("COMPLETED", "")
        opened.publish("lines", "day=2026-01-01/hour=5", "day=2026-01-01/hour=15", "day=2026-02-01/hour=5")
        opened.publish("names", "name=anna", "name=ann b")
        opened.mill.topics.publish("orders_late", {})
        yield opened


def hits(found):
    """Return kind and name of all hits."""
    return [(hit.kind.value, hit.name) for hit in found.hits]


FILES: Final = [
    ("file", "default.orders/o'neil 3.txt"),
    ("file", "default.orders/o_1.txt"),
    ("file", "default.orders/o_2.txt"),
]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("order", [("dataset", "default.orders"), ("topic", "orders_late")]),
        ("default.orders", [("dataset", "default.orders")]),
        ("shop", [("app", "default.shop")]),
        ("default.sh", [("app", "default.shop")]),
        ("loa", [("program", "default.shop.load"), ("program", "default.shop.loaf")]),
        ("shop.load", [("program", "default.shop.load")]),
        ("default.shop.loaf", [("program", "default.shop.loaf")]),
        ("shop.", [(kind, f"default.shop.{name}") for kind, name in (
            ("program", "load"), ("program", "loaf"), ("schedule", "on_orders"), ("schedule", "on_signal"))]),
        ("on_s", [("schedule", "default.shop.on_signal")]),
        ("o_", FILES[1:]),
        ("orders/o", FILES),
        ("default.orders/o'", FILES[:1]),
        ("day=2026-01", [("partition", "default.lines/day=2026-01-01/hour=15"),
                         ("partition", "default.lines/day=2026-01-01/hour=5")]),
        ("day=2026-01-01/hour=5", [("partition", "default.lines/day=2026-01-01/hour=5")]),
        ("lines/day=2026-02-01 hour=5", [("partition", "default.lines/day=2026-02-01/hour=5")]),
        ("name=ann", [("partition", "default.names/name=ann b"), ("partition", "default.names/name=anna")]),
        ("orders/day=2026-01", []),
        ("hour=5", []),
        ("Order", []),
        ("nothing", []),
        ("100%_", []),
    ],
)  # fmt: skip
def test_things_are_found_by_the_beginning_of_their_names(stage, text, names):
    """Somewhere in a chat stands half a name: the search says which thing is meant, whatever its kind."""
    found = stage.mill.search(text)

    assert sorted(hits(found)) == sorted(names)
    assert not found.more


@pytest.fixture
def wide(stage):
    """The project with a consumer of a program and of a person, a subscriber, an alert rule and a transaction."""
    declared = """
orders = app.inbox("orders", "landing/orders", format="text", settle="0s")
lines = app.fileset("lines", keys={"day": "date", "hour": "int"}, format="text")
names = app.fileset("names", keys={"name": "string"}, format="text")
@app.python(reads=[lines])
def gather(run): pass
app.schedule("on_signal", gather, trigger=tm.Hook("go_now"))
"""
    stage.declare(declared)
    stage.sql(
        "INSERT INTO consumer (consumer_id, dataset_id, name, start_version, versions_to_check, spec, revision) "
        "SELECT 'c', dataset_id, 'auditor', 1, '[]', '{}', 0 FROM dataset WHERE name = 'names' RETURNING 1"
    )
    stage.mill.subscribers.create("billing", "data")
    stage.mill.alerts.create("failing", {"type": "run_failed"})
    return stage


@pytest.mark.parametrize(
    ("text", "kind", "name", "command"),
    [
        ("audi", "consumer", "default.names/auditor", "consumer show default.names auditor"),
        ("gath", "consumer", "default.lines/default.shop.gather", "consumer show default.lines default.shop.gather"),
        ("shop.gath", "consumer", "default.lines/default.shop.gather", None),
        ("default.shop.gath", "consumer", "default.lines/default.shop.gather", None),
        ("bill", "subscriber", "billing", "subscriber show billing"),
        ("fail", "alert rule", "default.failing", "alert list --rule default.failing"),
        ("default.fail", "alert rule", "default.failing", None),
        ("go", "hook", "default.go_now", "topic read hook"),
        ("default.go_n", "hook", "default.go_now", None),
    ],
)
def test_more_kinds_are_found_by_the_beginning_of_their_names(wide, text, kind, name, command):
    """A person knows a name, and not of which kind it is."""
    found = {(hit.kind.value, hit.name): hit.command for hit in wide.mill.search(text).hits}

    assert (kind, name) in found
    assert command in {None, found[kind, name]}
    stranger = wide.mill.acting_as("ann", Access(Role.VIEWER, "abc"))
    assert stranger.search(text).hits == ()
    if kind != "subscriber":
        own = wide.mill.acting_as("bob", Access(Role.VIEWER, "default"))
        assert (kind, name) in hits(own.search(text))


def test_a_transaction_is_found_by_its_write_pointer(stage):
    """A log has the number, a page shows it with commas."""
    of_run = next(one.write_pointer for one in stage.mill.runs.list() if one.program and one.write_pointer)
    of_none = next(one.write_pointer for one in stage.mill.runs.list() if not one.program and one.write_pointer)
    own = stage.mill.acting_as("bob", Access(Role.VIEWER, "default"))

    assert hits(stage.mill.search(f"{of_run:,}")) == [("transaction", str(of_run))]
    assert hits(own.search(str(of_run))) == [("transaction", str(of_run))]
    assert hits(own.search(str(of_none))) == []
    assert hits(stage.mill.search("99999999999999999999")) == []


def test_runs_and_jobs_are_found_by_id(stage):
    """A log has the id of a run, often cut."""
    run = stage.mill.runs.list()[0]
    stage.schedule()
    stage.mill.schedules.create(
        "shop.later", "shop.loaf", trigger={"type": "new_partitions", "fileset": "default.names", "n": 9}
    )
    stage.publish("names", "name=bob")
    stage.schedule()
    job = stage.mill.jobs.list()[0]

    assert hits(stage.mill.search(run.run_id)) == [("run", run.run_id)]
    assert ("run", run.run_id) in hits(stage.mill.search(run.run_id[:-2]))
    assert hits(stage.mill.search(job.job_id)) == [("job", job.job_id)]
    assert [kind for kind, _ in hits(stage.mill.search("job_"))].count("job") >= 2


def test_the_exact_name_comes_first(stage):
    """The thing that was typed in full must not hide behind ten longer names of another kind."""
    stage.mill.topics.publish("load", {})

    found = stage.mill.search("load")
    stage.declare("orders = app.fileset('on_order', keys={'day': 'date'})\n@app.python()\ndef on_order(run): pass\n")

    assert hits(found) == [("program", "default.shop.load"), ("topic", "load")]
    assert hits(stage.mill.search("on_order"))[:2] == [
        ("dataset", "default.on_order"),
        ("program", "default.shop.on_order"),
    ]


def test_the_answer_is_bounded_and_says_so(stage):
    """A letter fits a million files: the answer is short, and says that there is more."""
    found = stage.mill.search("o", limit=1)

    assert [hit.kind.value for hit in found.hits] == ["dataset", "schedule", "topic", "file"]
    assert found.more


def test_a_caller_of_one_namespace_finds_nothing_of_another(stage):
    """A search would else be a list of all names of all teams."""
    stranger = stage.mill.acting_as("ann", Access(Role.VIEWER, "abc"))
    run = next(one.run_id for one in stage.mill.runs.list() if one.program)
    stage.sql("UPDATE dataset SET namespace = 'abc' WHERE name = 'names' RETURNING 1")

    texts = ("default.", "default.shop.load", "shop.", "load", "on_", "o_", "day=2026", run, "job_", "orders/o")
    assert [hits(stranger.search(text)) for text in texts] == [[] for _ in texts]
    assert hits(stranger.search("name=anna")) == [("partition", "abc.names/name=anna")]


@pytest.mark.parametrize("text", ["", "  ", "a\0", "\ud800", "a" * 1001])
def test_a_text_that_means_nothing_is_refused(stage, text):
    """PostgreSQL would answer with a traceback."""
    with raises_code("bad_search"):
        stage.mill.search(text)


def test_a_limit_that_cannot_be_is_refused(stage):
    """A page of a million hits is no answer."""
    with raises_code("bad_page"):
        stage.mill.search("o", limit=101)


def test_each_command_of_a_hit_works(stage, tmp_path, capsys):
    """The next step is to be copied: also for a name with a quote and a space."""
    run = stage.mill.runs.list()[0].run_id
    found = [hit for text in ("o", "shop", "loa", "day=2026", "name=ann", run) for hit in stage.mill.search(text).hits]

    for hit in found:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(tmp_path), *shlex.split(hit.command)])
        assert not ended.value.code, hit.command
    assert {hit.kind.value for hit in found} >= {"dataset", "app", "program", "schedule", "topic", "run", "file"}
    capsys.readouterr()


def test_the_command_prints_a_table_and_json(stage, tmp_path, capsys):
    """People read a table, a script one document."""

    def say(*words: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(tmp_path), "search", *words])
        assert not ended.value.code
        return capsys.readouterr().out

    assert [line.split() for line in say("loa").splitlines()[1:]] == [
        ["program", f"default.shop.{name}", "tidemill", "run", "list", "--program", f"default.shop.{name}"]
        for name in ("load", "loaf")
    ]
    assert say("o", "--limit", "1").splitlines()[-1].startswith("there is more")
    assert say("nothing").startswith("nothing begins with 'nothing'")
    assert json.loads(say("loa", "--json"))["hits"][0]["kind"] == "program"


@pytest.mark.parametrize(
    ("text", "begins"),
    [
        ("day=2026-01", "2026-01"),
        ("day=2026-01-01/hour=5", "2026-01-01!a5!"),
        ("day=2026-01-01 hour=5 place=a", "2026-01-01!a5!a"),
        ("day=2026-01-01/hour=", None),
        ("day=x/hour=5", None),
        ("hour=5", None),
        ("", None),
        ("day=1/hour=5/place=a/more=1", None),
    ],
)
def test_the_beginning_of_a_key_is_that_of_its_text(text, begins):
    """A number is whole: 5 is no beginning of 50, which the catalog sorts elsewhere."""
    assert KeySchema.of({"day": "date", "hour": "int", "place": "string"}).begin(text) == begins
