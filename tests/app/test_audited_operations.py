"""Each audited operation is played: its row names actor, action and subject, and no row means no change."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from pyarrow import parquet, table

from tests.run.conftest import rows_of
from tests.stage import Stage, staged
from tidemill import Cron, Mill, RunFailed
from tidemill.mill.operation import Right
from tidemill.mill.operations import OPERATIONS

APP = """
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing/raw", format="csv", schema="line string", settle="0s")
lines = app.fileset("lines", keys={"hour": "int"})
plain = app.fileset("plain", keys={"hour": "int"})
days = app.fileset("days", keys={"day": "date"}, watermark=tm.Watermark(
    "ts", pattern="$day 00:00:00", interval="1d"))
counts = app.fileset("counts", keys={"day": "date"})
users = app.snapshot("users", key=["id"], max_versions=9)

@app.python(reads=[tm.Reads(lines, on_change="error")], retries=1, backoff="0s")
def look(run):
    run.input(lines).partitions

@app.python(reads=[raw])
def load(run):
    run.input(raw)

@app.python()
def tidy(run):
    pass

app.schedule("look", look, trigger=tm.NewPartitions(lines))
app.window_sql("count_days", '''
    INSERT INTO counts SELECT window_start, window_end, count(*) AS n, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE days, DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY window_start, window_end''')
"""


@dataclass(frozen=True)
class Play:
    """An operation on `subject`. `act` performs it as its caller, with what `prepare` returned."""

    subject: str
    prepare: Callable[[Stage], Any]
    act: Callable[[Mill, Any], object]


def land(stage: Stage, state: str) -> None:
    """Have an inbox with a file in a state."""
    folder = stage.mill.project.config.folder / "landing" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("1\n", encoding="utf-8")
    stage.mill.inboxes.scan("raw")
    rows_of(stage.mill.project.catalog, f"UPDATE inbox_file SET status = '{state}', run_id = 'run_1' RETURNING 1")


def refresh(stage: Stage) -> int:
    """Commit a version of the snapshot, and return its number."""
    with stage.transaction("users") as tx:
        tx.snapshot("default.users").replace({"": "a\n"}, allow=["drop"])
    return int(tx.write_pointer)


def first_of_two(stage: Stage) -> int:
    """Commit two versions of the snapshot, and return the number of the first."""
    first = refresh(stage)
    refresh(stage)
    return first


def discard(stage: Stage) -> None:
    """Have the consumer of `look` discard a partition: the second change of one is an error."""
    for hour in (1, 1, 2):
        stage.publish("lines", f"hour={hour}")
        stage.play()


def put_beside(stage: Stage) -> None:
    """Write a file into the location of a file set, in Hive's layout."""
    folder = Path(stage.mill.datasets.show("plain").location.removeprefix("file://")) / "hour=3"
    folder.mkdir(parents=True)
    parquet.write_table(table({"n": [1]}), folder / "a.parquet")


def back_up(stage: Stage) -> Path:
    """Write a backup, and return its folder."""
    backup = stage.mill.project.config.folder / "backup"
    stage.mill.catalog.backup(backup)
    return backup


def go_back(stage: Stage) -> None:
    """Restore a backup that is older than the data."""
    backup = back_up(stage)
    stage.publish("lines", "hour=1")
    stage.mill.catalog.restore(backup, replace=True)


def edit(stage: Stage) -> None:
    """Deploy other code."""
    stage.mill.project.config.app.write_text(f"{APP}\n# edited\n", encoding="utf-8")
    stage.mill.deploy()


def declared(stage: Stage) -> tuple[object, str]:
    """Return the declaration of an app without anything, and its packed code."""
    target = BytesIO()
    with ZipFile(target, "w") as archive:
        archive.writestr("app.py", "")
    return {"name": "shop"}, b64encode(target.getvalue()).decode()


def put_a_node(stage: Stage) -> None:
    """Have a node with a known id."""
    rows_of(
        stage.mill.project.catalog,
        "INSERT INTO node (node_id, host, process, roles, slots, started_at, seen_at) "
        "VALUES ('node_1', 'h', 'p', '[\"runner\"]', 1, 1, 1) RETURNING 1",
    )


def start_backfill(stage: Stage, *, failed: bool = False) -> None:
    """Have a backfill of two items with a known id; the first has failed, or waits."""
    rows_of(
        stage.mill.project.catalog,
        "INSERT INTO backfill (backfill_id, program_id, namespace, item_kind, takes_all, choice, arguments, "
        "state, concurrency, priority, quiet, actor, waiting, running, failed, created_at) "
        f"SELECT 'backfill_1', program_id, 'default', 'times', 0, '{{}}', '{{}}', 'RUNNING', 1, -1, 0, 'ann', "
        f"{1 - failed}, {1 - failed}, {int(failed)}, 1 "
        "FROM program WHERE name = 'tidy' RETURNING 1",
    )
    first, second = ("FAILED", "DONE") if failed else ("WAITING", "RUNNING")
    rows_of(
        stage.mill.project.catalog,
        "INSERT INTO backfill_item (backfill_id, no, item, state, run_id) VALUES "
        f"('backfill_1', 0, '2026-01-01T00:00:00+00:00', '{first}', NULL), "
        f"('backfill_1', 1, '2026-01-02T00:00:00+00:00', '{second}', 'run_x') RETURNING 1",
    )


def open_alert(stage: Stage) -> str:
    """Have an alert with a known id, and return the id."""
    stage.mill.alerts.create("mine", RunFailed())
    rows_of(
        stage.mill.project.catalog,
        "INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at) "
        "VALUES ('alert_1', 'rule_1', 'default', 'default.mine', 'x', 'OPEN', 'y', 1, 1) RETURNING 1",
    )
    return "alert_1"


def bury(stage: Stage) -> str:
    """Have a dead delivery, and return its id."""
    rows_of(
        stage.mill.project.catalog,
        "INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at, ended_at) "
        "VALUES ('delivery_1', '{}', 1, 0, 'alert_1', 'opened', '{}', 'DEAD', 1, 1) RETURNING 1",
    )
    return "delivery_1"


def subscribe(stage: Stage) -> str:
    """Have a subscriber with a message, and return the position of the message."""
    stage.mill.subscribers.create("erp", "paid")
    return stage.mill.topics.publish("paid", {}).position


def compute(stage: Stage) -> None:
    """Have the window program stand as if it had computed a day."""
    stage.publish("days", "day=2020-01-01")
    rows_of(stage.mill.project.catalog, "UPDATE window_program SET computed = 1577923200000000 RETURNING 1")


def requeue(mill: Mill) -> None:
    """Requeue the one discarded partition."""
    assert mill.consumers.requeue("lines", LOOK).requeued == 1


LOOK = "default.shop.look"
BACKFILL = "backfill_1"
PLAYS = {
    "alert.acknowledge": Play(
        "alert_1",
        open_alert,
        lambda mill, alert_id: mill.alerts.acknowledge(alert_id),
    ),
    "alert.create": Play("default.mine", lambda _: None, lambda mill, _: mill.alerts.create("mine", RunFailed())),
    "alert.delete": Play(
        "default.mine",
        lambda stage: stage.mill.alerts.create("mine", RunFailed()),
        lambda mill, _: mill.alerts.delete("mine"),
    ),
    "alert.update": Play(
        "default.mine",
        lambda stage: stage.mill.alerts.create("mine", RunFailed()),
        lambda mill, _: mill.alerts.update("mine", description="call the desk"),
    ),
    "alert.retry": Play("delivery_1", bury, lambda mill, delivery_id: mill.alerts.retry(delivery_id)),
    "alert.silence": Play(
        "default.mine",
        lambda stage: stage.mill.alerts.create("mine", RunFailed()),
        lambda mill, _: mill.alerts.silence("mine", duration="1h"),
    ),
    "app.deploy": Play("default.shop", declared, lambda mill, sent: mill.apps.deploy("shop", *sent)),
    "app.rollback": Play("default.shop", edit, lambda mill, _: mill.apps.rollback("shop")),
    "backfill.cancel": Play(BACKFILL, start_backfill, lambda mill, _: mill.backfills.cancel(BACKFILL)),
    "backfill.pause": Play(BACKFILL, start_backfill, lambda mill, _: mill.backfills.pause(BACKFILL)),
    "backfill.resume": Play(
        BACKFILL,
        lambda stage: (start_backfill(stage), stage.mill.backfills.pause(BACKFILL)),
        lambda mill, _: mill.backfills.resume(BACKFILL),
    ),
    "backfill.retry": Play(
        BACKFILL,
        lambda stage: start_backfill(stage, failed=True),
        lambda mill, _: mill.backfills.retry(BACKFILL),
    ),
    "backfill.start": Play(
        "default.shop.tidy",
        lambda stage: stage.mill.schedules.create("shop.nightly", "shop.tidy", trigger=Cron("0 3 * * *")),
        lambda mill, _: mill.backfills.start(
            "shop.tidy", by="times", schedule="shop.nightly", since="2026-01-01", until="2026-01-03"
        ),
    ),
    "catalog.adopt": Play("catalog", go_back, lambda mill, _: mill.catalog.adopt()),
    "catalog.restore": Play("catalog", back_up, lambda mill, backup: mill.catalog.restore(backup, replace=True)),
    "consumer.drop": Play(
        f"default.lines {LOOK}",
        lambda stage: stage.mill.apps.delete("shop"),
        lambda mill, _: mill.consumers.drop("lines", LOOK),
    ),
    "consumer.requeue": Play(f"default.lines {LOOK}", discard, lambda mill, _: requeue(mill)),
    "dataset.add": Play("default.plain", put_beside, lambda mill, _: mill.datasets.add("plain", "hour=3")),
    "dataset.adopt": Play("default.plain", put_beside, lambda mill, _: mill.datasets.adopt("plain")),
    "dataset.describe": Play(
        "default.lines",
        lambda stage: stage.publish("lines", "hour=1"),
        lambda mill, _: mill.datasets.describe("lines", "hour=1", set={"checked": "yes"}),
    ),
    "dataset.drop": Play(
        "default.lines",
        lambda stage: stage.publish("lines", "hour=1"),
        lambda mill, _: mill.datasets.drop("lines", ["hour=1"]),
    ),
    "dataset.expire": Play(
        "default.days",
        lambda stage: stage.publish("days", "day=2020-01-01"),
        lambda mill, _: mill.datasets.expire("days", "1d"),
    ),
    "inbox.release": Play(
        "default.raw",
        lambda stage: land(stage, "QUARANTINED"),
        lambda mill, _: mill.inboxes.release("raw", ["a.csv"]),
    ),
    "inbox.ignore": Play(
        "default.raw",
        lambda stage: land(stage, "QUARANTINED"),
        lambda mill, _: mill.inboxes.ignore("raw", ["a.csv"]),
    ),
    "inbox.reprocess": Play(
        "default.raw",
        lambda stage: land(stage, "SUCCESS"),
        lambda mill, _: mill.inboxes.reprocess("raw", ["a.csv"]),
    ),
    "inbox.retry": Play("default.raw", lambda stage: land(stage, "ERROR"), lambda mill, _: mill.inboxes.retry("raw")),
    "node.drain": Play("node_1", put_a_node, lambda mill, _: mill.nodes.drain("node_1")),
    "snapshot.expire": Play("default.users", first_of_two, lambda mill, first: mill.snapshots.expire("users", [first])),
    "snapshot.rollback": Play(
        "default.users", first_of_two, lambda mill, first: mill.snapshots.rollback("users", first)
    ),
    "subscriber.acknowledge": Play("erp", subscribe, lambda mill, at: mill.subscribers.acknowledge("erp", at)),
    "subscriber.create": Play("erp", lambda _: None, lambda mill, _: mill.subscribers.create("erp", "paid")),
    "subscriber.delete": Play("erp", subscribe, lambda mill, _: mill.subscribers.delete("erp")),
    "subscriber.reset": Play("erp", subscribe, lambda mill, at: mill.subscribers.reset("erp", at)),
    "token.create": Play("laptop", lambda _: None, lambda mill, _: mill.tokens.create("laptop", role="viewer")),
    "token.revoke": Play(
        "laptop",
        lambda stage: stage.mill.tokens.create("laptop", role="viewer"),
        lambda mill, _: mill.tokens.revoke("laptop"),
    ),
    "topic.create": Play("doors", lambda _: None, lambda mill, _: mill.topics.create("doors", keep="7d")),
    "topic.delete": Play(
        "doors", lambda stage: stage.mill.topics.create("doors"), lambda mill, _: mill.topics.delete("doors")
    ),
    "topic.update": Play(
        "doors",
        lambda stage: stage.mill.topics.create("doors"),
        lambda mill, _: mill.topics.update("doors", keep="7d"),
    ),
    "tx.fail": Play(
        "2",
        lambda stage: stage.mill.transactions.begin(["days"]).write_pointer,
        lambda mill, pointer: mill.transactions.fail(pointer, "boom"),
    ),
    "watermark.advance": Play(
        "default.days",
        lambda stage: stage.publish("days", "day=2020-01-01"),
        lambda mill, _: mill.watermarks.advance("days", "2020-01-05 00:00"),
    ),
    "watermark.reset": Play(
        "default.shop.count_days",
        compute,
        lambda mill, _: mill.watermarks.reset("shop.count_days"),
    ),
    "watermark.rewind": Play(
        "default.days",
        lambda stage: stage.publish("days", "day=2020-01-01", "day=2020-01-02"),
        lambda mill, _: mill.watermarks.rewind("days", "2020-01-01 00:00"),
    ),
}
ELSEWHERE = {
    "test_audit_log": {
        "app.delete",
        "consumer.reset",
        "deploy",
        "inbox.scan",
        "hook.fire",
        "job.drop",
        "job.force",
        "run.kill",
        "run.retry",
        "run.start",
        "schedule.create",
        "schedule.create_many",
        "schedule.delete",
        "schedule.delete_many",
        "schedule.resume",
        "schedule.resume_suspended",
        "schedule.suspend",
        "schedule.suspend_all",
        "schedule.update",
        "sql",
        "topic.publish",
        "tx.abort",
    },
    "test_compaction (needs Spark)": {"dataset.compact"},
    "test_outside_writers": {"tx.commit"},
    "test_projects": {"catalog.move"},
    "test_replay": {"run.replay"},
}
STATELESS = {
    "backfill.start": "makes a backfill, whose record has its states; the row has the id",
    "hook.fire": "adds a message, which never changes",
    "run.replay": "makes a run, whose record has its states; the row has the id",
    "run.retry": "makes a run, whose record has its states; the row has the id",
    "run.start": "makes a run, whose record has its states; the row has the id",
    "topic.publish": "adds a message, which never changes",
}
"""Operations whose rows have no state before and after, each with the reason."""
OF_THE_CALL = {"clock", "garbage", "in_progress", "message", "reader_pin", "run", "run_input", "tx"}
"""Tables in which a transaction that is aborted leaves its traces."""


@pytest.fixture
def stage(catalog_url, tmp_path):
    """The project on each database."""
    with staged(tmp_path, catalog_url, APP) as made:
        yield made


def test_each_audited_operation_is_played():
    """An operation that is added without a row is found here, not by an auditor."""
    audited = {one.action for one in OPERATIONS if one.right is not Right.READ and not one.mark.no_audit}

    assert audited == set(PLAYS).union(*ELSEWHERE.values())
    assert STATELESS.keys() < audited


@pytest.mark.parametrize("action", PLAYS)
def test_an_operation_has_one_row_with_its_actor_and_both_states(stage, action):
    """The row has to name the person, and what there was before, or it answers no question."""
    play = PLAYS[action]
    prepared = play.prepare(stage)

    play.act(stage.mill.acting_as("ann@desk"), prepared)

    rows = [one for one in stage.mill.audit.log(subject=play.subject) if one.actor == "ann@desk"]
    assert [(one.action, one.subject) for one in rows] == [(action, play.subject)]
    assert tells_both_states(action, rows[0].detail)


@pytest.mark.parametrize("action", PLAYS.keys() - {"catalog.adopt", "catalog.restore"})
def test_an_operation_whose_row_cannot_be_written_changes_nothing(stage, action):
    """Row and change are one transaction."""
    play, catalog = PLAYS[action], stage.mill.project.catalog
    prepared = play.prepare(stage)
    catalog.run_script("ALTER TABLE audit RENAME TO elsewhere", unless=99)
    before = content(stage)

    with pytest.raises(Exception, match="audit"):
        play.act(stage.mill.acting_as("ann@desk"), prepared)

    assert content(stage) == before


def tells_both_states(action: str, detail: Mapping[str, object]) -> bool:
    """Return whether a row has the states before and after, and the two differ."""
    if action in STATELESS:
        return not {"before", "after"} & detail.keys()
    return bool({"before", "after"} <= detail.keys() and detail["before"] != detail["after"])


def content(stage: Stage) -> dict[str, list[str]]:
    """Return the rows of all tables that an operation may change."""
    tables = stage.mill.project.catalog.dump()
    return {one.name: sorted(map(str, one.rows)) for one in tables if one.name not in OF_THE_CALL}
