"""Pages: the pages of each list together are the list, whatever the size of a page."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime

import pytest

from tests.errors import raises_code
from tests.manual_clock import ManualClock
from tests.run.conftest import rows_of
from tests.stage import Stage, staged
from tidemill import Mill, NotFound, Page, RunFailed, UserError, iterate
from tidemill.cli.main import main
from tidemill.mill.operations import OPERATIONS
from tidemill.mill.page import read_key, write_key

APP = """
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing/raw", format="csv", schema="line string", settle="0s")
lines = app.fileset("lines", keys={"hour": "int"})
days = app.fileset("days", keys={"day": "date"}, watermark=tm.Watermark("ts", pattern="$day 00:00:00", interval="1d"))
weeks = app.fileset("weeks", keys={"day": "date"}, watermark=tm.Watermark("ts", pattern="$day 00:00:00", interval="1d"))
users = app.snapshot("users", key=["id"], max_versions=9)
other = tm.App("other")

@app.python(reads=[raw, lines])
def one(run):
    pass

@app.python(reads=[lines])
def two(run):
    pass

app.schedule("clock", one, trigger=tm.AnyOf(tm.Every("1h"), tm.Every("2h")))
app.schedule("on_one", one, trigger=tm.NewPartitions(lines, 99))
app.schedule("on_two", two, trigger=tm.NewPartitions(lines, 99))
"""


@pytest.fixture(scope="module")
def stage(request, tmp_path_factory) -> Iterator[Stage]:
    """A project with two or more of each thing, at one moment: some rows tell an age."""
    folder = tmp_path_factory.mktemp("pages")
    with staged(folder, f"sqlite:///{folder}/catalog.db", APP, ManualClock()) as made:
        fill(made)
        yield made


def fill(stage: Stage) -> None:
    """Do everything twice or more."""
    mill, catalog = stage.mill, stage.mill.project.catalog
    for number in range(2):
        mill.project.config.app.write_text(f"{APP}\n# {number}\n", encoding="utf-8")
        mill.deploy()
    landing = stage.mill.project.config.folder / "landing" / "raw"
    landing.mkdir(parents=True, exist_ok=True)
    for name in ("a.csv", "b c.csv", "d%2Fe.csv"):
        (landing / name).write_text("1\n", encoding="utf-8")
    mill.inboxes.scan("raw")
    stage.publish("days", "day=2026-01-01", "day=2026-01-02", "day=2026-01-05")
    for hour in (1, 2, 2, 3):
        stage.publish("lines", f"hour={hour}")
    mill.datasets.drop("lines", ["hour=3"])
    mill.datasets.drop("lines", ["hour=1"])
    stage.publish("lines", "hour=1", "hour=4")
    for _ in range(3):
        with stage.transaction("users") as tx:
            tx.snapshot("default.users").replace({"": "a\n"}, allow=["drop"])
        mill.topics.publish("own", key="door")
        mill.runs.start("shop.one")
    for name in ("ann", "bob"):
        mill.tokens.create(name, role="viewer")
    mill.topics.publish("second", key="door")
    stage.schedule()
    mill.jobs.drop(mill.jobs.list(schedule="shop.on_one")[0].job_id)
    stage.publish("lines", "hour=5")
    stage.schedule()
    mill.jobs.drop(mill.jobs.list(schedule="shop.on_one")[0].job_id)
    stage.publish("lines", "hour=6")
    stage.schedule()
    for n in range(3):
        rows_of(
            catalog,
            "INSERT INTO node (node_id, host, process, roles, slots, started_at, seen_at) "
            f"VALUES ('node_{n}', 'h', 'p', '[]', 1, {n}, {n}) RETURNING 1",
        )
        put_backfill(catalog, n)
        mill.alerts.create(f"rule_{n}", RunFailed())
        mill.subscribers.create(f"reader_{n}", "own")
        rows_of(
            catalog,
            "INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at, ended_at) VALUES "
            f"""('dead_{n}', '{{"type": "slack", "url": "env:X"}}', 1, {n}, 'subscriber reader_0', 'message', '', """
            "'DEAD', 1, 1) RETURNING 1",
        )
        rows_of(
            catalog,
            "INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at) "
            f"VALUES ('alert_{n}', 'rule_{n}', 'default', 'default.mine', 'x', 'OPEN', 'y', 1, 1) RETURNING 1",
        )
        rows_of(
            catalog,
            "INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at) VALUES "
            f"""('delivery_{n}', '{{"type": "slack", "url": "env:X"}}', 1, {n}, 'x', 'opened', '', 'WAITING', 1) """
            "RETURNING 1",
        )
        rows_of(
            catalog,
            "INSERT INTO quarantined_message (topic, seq, n, name, reason, at) "
            f"VALUES ('own', 7, {n}, 'x', 'damaged', 1) RETURNING 1",
        )


def put_backfill(catalog, number):
    """Have a paused backfill, and an item of the first backfill."""
    rows_of(
        catalog,
        "INSERT INTO backfill (backfill_id, program_id, namespace, item_kind, takes_all, choice, arguments, state,"
        f""" concurrency, priority, quiet, actor, waiting, created_at) SELECT 'backfill_{number}', min(program_id),"""
        """ 'default', 'runs', 0, '{}', '{}', 'PAUSED', 1, -1, 0, 'ann', 1, 1 FROM program RETURNING 1""",
    )
    rows_of(
        catalog,
        "INSERT INTO backfill_item (backfill_id, no, item)"
        f" VALUES ('backfill_0', {number}, 'run_{number}') RETURNING 1",
    )


LISTS: dict[str, Callable[[Mill], Callable[..., Page[object]]]] = {
    "alert.deliveries": lambda mill: mill.alerts.deliveries,
    "alert.list": lambda mill: mill.alerts.list,
    "alert.rules": lambda mill: mill.alerts.rules,
    "app.history": lambda mill: bind(mill.apps.history, "shop"),
    "app.list": lambda mill: mill.apps.list,
    "audit.log": lambda mill: mill.audit.log,
    "backfill.items": lambda mill: bind(mill.backfills.items, "backfill_0"),
    "backfill.list": lambda mill: mill.backfills.list,
    "consumer.lag": lambda mill: mill.consumers.lag,
    "consumer.list": lambda mill: mill.consumers.list,
    "dataset.dropped": lambda mill: bind(mill.datasets.dropped, "lines"),
    "dataset.files": lambda mill: bind(mill.datasets.files, "lines"),
    "dataset.list": lambda mill: mill.datasets.list,
    "dataset.partitions": lambda mill: bind(mill.datasets.partitions, "lines"),
    "dataset.schemas": lambda mill: bind(mill.datasets.schemas, "lines"),
    "inbox.list": lambda mill: mill.inboxes.list,
    "inbox.files": lambda mill: bind(mill.inboxes.files, "raw"),
    "job.history": lambda mill: bind(mill.jobs.history, "shop.on_one"),
    "job.list": lambda mill: mill.jobs.list,
    "node.list": lambda mill: mill.nodes.list,
    "run.list": lambda mill: mill.runs.list,
    "schedule.list": lambda mill: mill.schedules.list,
    "schedule.next": lambda mill: bind(mill.schedules.next, "shop.clock"),
    "schedule.triggered_by": lambda mill: bind(mill.schedules.triggered_by, "lines"),
    "snapshot.versions": lambda mill: bind(mill.snapshots.versions, "users"),
    "token.list": lambda mill: mill.tokens.list,
    "subscriber.deliveries": lambda mill: bind(mill.subscribers.deliveries, "reader_0"),
    "subscriber.list": lambda mill: mill.subscribers.list,
    "topic.list": lambda mill: mill.topics.list,
    "topic.quarantined": lambda mill: bind(mill.topics.quarantined, "own"),
    "topic.read": lambda mill: bind(mill.topics.read, "own", after="0"),
    "tx.list": lambda mill: mill.transactions.list,
    "watermark.list": lambda mill: mill.watermarks.list,
    "watermark.slots": lambda mill: bind(mill.watermarks.slots, "days"),
}
ENDLESS = {"schedule.next"}
FEW = {"inbox.list", "dataset.schemas", "watermark.list", "app.list", "job.history"}


def bind(operation: Callable[..., Page[object]], *given: str, after: str = "") -> Callable[..., Page[object]]:
    """Return the operation on one thing, which begins behind `after`."""
    return lambda **page: operation(*given, **({"after": after} | page))


def test_each_operation_that_gives_a_page_is_played():
    """A list that is added without a test may lose a row between two pages."""
    paged = {one.action for one in OPERATIONS if typing.get_origin(one.returns) is Page}

    assert paged == set(LISTS)


@pytest.mark.parametrize("action", LISTS)
def test_the_pages_of_a_list_are_the_list(stage, action):
    """A key that is not unique in its list skips rows, or gives them twice."""
    operation = LISTS[action](stage.mill)
    whole = [str(one) for one in operation(limit=50)]

    assert len(whole) >= (1 if action in FEW else 2)
    for limit in (1, 2, len(whole)):
        if action not in ENDLESS:
            assert [str(one) for one in iterate(operation, limit=limit)] == whole
    assert operation(limit=len(whole)).next is None or action in ENDLESS


def test_the_times_of_a_schedule_go_on_behind_a_page(stage):
    """Two triggers fire at one time: a key of the time alone would lose one of them."""
    pages = iterate(stage.mill.schedules.next, "shop.clock", limit=1)

    assert [next(pages) for _ in range(6)] == list(stage.mill.schedules.next("shop.clock", limit=6))


@pytest.mark.parametrize("at", ["2226-01-01", "9999-12-31"])
def test_a_page_of_times_far_away_is_found_without_the_times_before(stage, at):
    """The key of a page of another century was looked for minute by minute; behind the last year came a traceback."""
    after = write_key(datetime.fromisoformat(f"{at}T00:00:00+00:00"), "", 0)

    found = [fire.fire_at for fire in stage.mill.schedules.next("shop.clock", limit=3, after=after)]

    assert all(f"{fire:%Y-%m-%d}" >= at for fire in found)
    assert len(found) == 3 or at.startswith("9999")


def test_a_page_of_a_million_times_is_refused(stage):
    """The list of a million times took half a minute."""
    with raises_code("bad_page", match="from 1 to 10,000"):
        stage.mill.schedules.next("shop.clock", limit=1_000_000)


def test_pages_of_files_show_the_state_of_the_first_page(stage):
    """An engine that reads a table page by page reads one table, though a commit replaces a partition meanwhile."""
    first = stage.mill.datasets.files("lines", limit=2)
    before = [file.path for file in iterate(stage.mill.datasets.files, "lines", limit=2)]
    stage.publish("lines", "hour=2", op="overwrite")
    rest = [file.path for file in iterate(stage.mill.datasets.files, "lines", limit=2, after=first.next)]

    assert [file.path for file in first] + rest == before
    assert before != [file.path for file in stage.mill.datasets.files("lines")]


def test_files_of_chosen_partitions_come_in_pages(stage):
    """The filter leaves most partitions out: a page goes on until it is full."""
    chosen = list(stage.mill.datasets.files("lines", where=["hour=4", "hour=6"]))

    assert len(chosen) == 2
    assert list(iterate(stage.mill.datasets.files, "lines", where=["hour=4", "hour=6"], limit=1)) == chosen


@pytest.mark.parametrize(("limit", "after"), [(0, ""), (-1, ""), (1, "no/such/key/at/all")])
def test_a_page_that_cannot_be_given_is_refused(stage, limit, after):
    """PostgreSQL refuses a negative LIMIT by an error of its own, and SQLite gives all."""
    for operation in (stage.mill.runs.list, stage.mill.schedules.list, stage.mill.transactions.list):
        with raises_code("bad_page"):
            operation(limit=limit, after=after)


@pytest.mark.parametrize("after", ["9" * 30, "1." + "9" * 30, "9" * 5000, "\udcff", "a\0b", "a%00b"])
def test_no_key_is_an_error_of_the_database(catalog_url, tmp_path, after):
    """A database refuses numbers above 64 bits, text that is no Unicode, and zero bytes, by tracebacks of its own."""
    with staged(tmp_path, catalog_url, APP) as stage:
        stage.mill.topics.publish("own", key="door")
        stage.mill.subscribers.create("reader_0", "own")
        put_backfill(stage.mill.project.catalog, 0)
        for action in set(LISTS) - ENDLESS:
            operation = LISTS[action](stage.mill)
            key = operation(limit=2**70).next or ""
            for given in (after, f"{after}/1", f"1/{after}", f"{after}/{after}/{after}", key + after):
                with suppress(UserError):
                    operation(after=given)


def test_an_unknown_entry_of_the_audit_log_is_refused(stage):
    """A list that begins again by itself never ends for a caller that goes on until the last page."""
    with pytest.raises(NotFound, match="begins with the newest"):
        stage.mill.audit.log(after="audit_unknown")


def test_a_key_comes_back_whole():
    """File names and partition keys hold any character."""
    assert read_key(write_key("a/b c", 5, "d%2F\n"), ("", 0, "")) == ("a/b c", 5, "d%2F\n")


def run_cli(stage: Stage, capsys: pytest.CaptureFixture[str], *command: str) -> tuple[str, str]:
    """Run a command in the project, and return what it prints, and its errors."""
    with pytest.raises(SystemExit) as ended:
        main(["--project", str(stage.mill.project.config.folder), *command])
    printed = capsys.readouterr()
    assert ended.value.code == 0, printed.err
    return printed.out, printed.err


def test_the_last_line_of_a_table_says_how_to_see_more(stage, capsys):
    """A table of 100 data sets looks whole, though there are 101."""
    table, _ = run_cli(stage, capsys, "schedule", "list", "--limit", "2")
    more = table.splitlines()[-1]
    rest, _ = run_cli(stage, capsys, "schedule", "list", "--limit", "2", "--after", more.rpartition(" ")[2])

    assert more == "more: add --after default/shop/on_one"
    assert [line.split()[0] for line in rest.splitlines()] == ["name", "default.shop.on_two"]


def test_a_program_finds_the_next_key_beside_the_document(stage, capsys):
    """Standard output stays one JSON list."""
    document, beside = run_cli(stage, capsys, "schedule", "list", "--limit", "2", "--json")
    last, nothing = run_cli(
        stage, capsys, "schedule", "list", "--limit", "2", "--json", "--after", json.loads(beside)["next"]
    )

    assert [len(json.loads(text)) for text in (document, last)] == [2, 1]
    assert nothing == ""


def test_pages_on_each_database(catalog_url, tmp_path):
    """Both databases compare and order keys alike."""
    with staged(tmp_path, catalog_url, APP) as stage:
        mill = stage.mill
        for hour in range(12):
            stage.publish("lines", f"hour={hour}")
            mill.topics.publish("own", key=f"k{hour}")
            mill.runs.start("shop.one")
        mill.datasets.drop("lines", ["hour>=6"])
        for operation in (
            mill.runs.list,
            bind(mill.datasets.partitions, "lines"),
            bind(mill.datasets.dropped, "lines"),
            bind(mill.datasets.files, "lines"),
            bind(mill.topics.read, "data", after="0"),
            bind(mill.topics.read, "own", after="0"),
            mill.schedules.list,
            mill.datasets.list,
            mill.consumers.list,
            mill.transactions.list,
            mill.audit.log,
        ):
            whole = [str(one) for one in operation(limit=999)]
            assert len(whole) > 1
            assert [str(one) for one in iterate(operation, limit=1)] == whole
