"""Rows of the audit log by REST: each changing route leaves one, with its caller, in the transaction of the change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.app.test_audited_operations import ELSEWHERE, PLAYS, Play, content, tells_both_states
from tests.served import serving
from tests.server.conftest import APP
from tests.stage import Stage, staged
from tidemill import Every, Mill, TidemillError
from tidemill.client.connect import connect
from tidemill.mill.operation import Right
from tidemill.mill.operations import OPERATIONS
from tidemill.run.processes.external import open_transaction
from tidemill.schedule.subscriber import subscribe

LISTENING = f"""{APP}
raw = app.inbox("raw", "landing", schema="id int", settle="0s")
app.schedule("on_two", sift, trigger=tm.NewPartitions(orders, 2))
app.schedule("on_bell", sift, trigger=tm.Hook("bell"))
"""
LONG_AGO, SOME_DAY = datetime(2020, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)
NIGHTLY = "default.shop.nightly"


def job(stage: Stage) -> str:
    """Have a job that waits for more, and return its id."""
    stage.publish("orders", "day=2026-01-01")
    subscribe(stage.mill.project.catalog, stage.world)
    return next(one.job_id for one in stage.mill.jobs.list() if one.schedule.endswith("on_two"))


def ended_run(stage: Stage) -> str:
    """Have a run that was killed."""
    run_id = stage.mill.runs.start("shop.load").run_id
    stage.mill.runs.kill(run_id)
    return run_id


def committed_run(stage: Stage) -> str:
    """Have a run that has committed."""
    stage.mill.runs.start("shop.load")
    (run,) = stage.work()
    return run.run_id


def open_one(stage: Stage) -> int:
    """Have an open transaction, and return its write pointer."""
    opened = open_transaction(stage.mill.project.catalog, stage.world, [])
    left = ExitStack()
    pointer = int(left.enter_context(opened).write_pointer)
    stage.at["left"] = left.close
    return pointer


def empty_folder(stage: Stage) -> None:
    """Have an inbox whose files are gone."""
    folder = stage.mill.project.config.folder / "landing"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("1\n", encoding="utf-8")
    stage.mill.inboxes.scan("raw")
    folder.rename(folder.with_name("before"))
    folder.mkdir()


def suspend(stage: Stage) -> None:
    """Suspend a schedule."""
    stage.mill.schedules.suspend("shop.nightly")


def nothing(_: Stage) -> None:
    """Prepare nothing."""


def of_it(act: Callable[[Mill, Any], object], prepare: Callable[[Stage], Any] = nothing, subject: str = "{}") -> Play:
    """Return a play whose subject is, or holds, what `prepare` returned."""
    return Play(subject, prepare, act)


CREATED = {"name": "shop.often", "program": "shop.load", "trigger": Every("1h")}
REST = {
    "app.delete": of_it(lambda mill, _: mill.apps.delete("shop"), subject="default.shop"),
    "consumer.reset": of_it(
        lambda mill, _: mill.consumers.reset("orders", "default.shop.sift", "now"),
        subject="default.orders default.shop.sift",
    ),
    "hook.fire": of_it(lambda mill, _: mill.hooks.fire("bell"), subject="default.bell"),
    "inbox.scan": of_it(
        lambda mill, _: mill.inboxes.scan("raw", reconcile=True, accept_empty=True), empty_folder, "default.raw"
    ),
    "job.drop": of_it(lambda mill, job_id: mill.jobs.drop(job_id), job),
    "job.force": of_it(lambda mill, job_id: mill.jobs.force(job_id), job),
    "run.kill": of_it(
        lambda mill, run_id: mill.runs.kill(run_id), lambda stage: stage.mill.runs.start("shop.load").run_id
    ),
    "run.replay": of_it(lambda mill, run_id: mill.runs.replay(run_id), committed_run),
    "run.retry": of_it(lambda mill, run_id: mill.runs.retry(run_id), ended_run),
    "run.start": of_it(lambda mill, _: mill.runs.start("shop.load"), subject="default.shop.load"),
    "schedule.create": of_it(
        lambda mill, _: mill.schedules.create("shop.often", "shop.load", trigger=Every("1h")),
        subject="default.shop.often",
    ),
    "schedule.create_many": of_it(lambda mill, _: mill.schedules.create_many([CREATED]), subject="default.shop.often"),
    "schedule.delete": of_it(lambda mill, _: mill.schedules.delete("shop.nightly"), subject=NIGHTLY),
    "schedule.delete_many": of_it(lambda mill, _: mill.schedules.delete_many(["shop.nightly"]), subject=NIGHTLY),
    "schedule.resume": of_it(lambda mill, _: mill.schedules.resume("shop.nightly"), suspend, NIGHTLY),
    "schedule.resume_suspended": of_it(
        lambda mill, _: mill.schedules.resume_suspended(since=LONG_AGO, until=SOME_DAY), suspend, NIGHTLY
    ),
    "schedule.suspend": of_it(lambda mill, _: mill.schedules.suspend("shop.nightly"), subject=NIGHTLY),
    "schedule.suspend_all": of_it(lambda mill, _: mill.schedules.suspend_all(), subject=NIGHTLY),
    "schedule.update": of_it(lambda mill, _: mill.schedules.update("shop.nightly", priority=3), subject=NIGHTLY),
    "sql": of_it(
        lambda mill, _: mill.sql("CREATE TABLE drops (day DATE) PARTITIONED BY (day)"), subject="default.drops"
    ),
    "topic.publish": of_it(lambda mill, _: mill.topics.publish("own", {}), subject="own"),
    "tx.abort": of_it(lambda mill, pointer: mill.transactions.abort(pointer), open_one),
}
NAMED_OTHERWISE = {
    "schedule.create_many": "schedule.create",
    "schedule.delete_many": "schedule.delete",
    "schedule.resume_suspended": "schedule.resume",
    "schedule.suspend_all": "schedule.suspend",
}
"""Changes of many things have the rows of the changes of each."""
WITH_SPARK = {"dataset.compact"}
OUTSIDE_WRITERS = {"tx.commit"}
"""Played by tests/server/test_outside_writers.py."""


@pytest.fixture
def stage(catalog_url, tmp_path):
    """The project on each database."""
    with staged(tmp_path, catalog_url, LISTENING, environ={"TIDEMILL_SERVER_PORT": "0"}) as made:
        yield made
        with suppress(TidemillError):
            made.at.get("left", lambda: None)()


def test_each_changing_route_is_played():
    """A route that is added without a play is found here; the client's tests play those of `PLAYS`."""
    routed = {
        one.action
        for one in OPERATIONS
        if one.right is not Right.READ and not one.mark.no_audit and not one.mark.no_route
    }

    assert routed - PLAYS.keys() - WITH_SPARK - OUTSIDE_WRITERS == REST.keys()
    assert REST.keys() <= set().union(*ELSEWHERE.values())


@pytest.mark.parametrize("action", sorted(REST))
def test_a_change_by_rest_has_a_row_with_its_caller(stage, action):
    """The row names the token, and the address of the connection."""
    play = REST[action]
    prepared = play.prepare(stage)
    with serving(stage.mill) as (url, secret), connect(url, token=secret) as far:
        play.act(far, prepared)

    rows = [one for one in stage.mill.audit.log() if one.actor == "client@127.0.0.1"]
    named = {(one.action, one.subject): one.detail for one in rows}
    place = NAMED_OTHERWISE.get(action, action), play.subject.format(prepared)
    assert place in named
    assert tells_both_states(action, named[place])


@pytest.mark.parametrize("action", ["schedule.suspend", "run.start", "topic.publish", "app.delete", "sql"])
def test_a_change_by_rest_whose_row_cannot_be_written_does_not_happen(stage, action):
    """Row, change and the answer that is kept for a key are one transaction."""
    play, catalog = REST[action], stage.mill.project.catalog
    with serving(stage.mill) as (url, secret), connect(url, token=secret) as far:
        catalog.run_script("ALTER TABLE audit RENAME TO elsewhere", unless=99)
        before = content(stage)
        with pytest.raises(TidemillError):
            play.act(far, None)
        after = content(stage)

    assert before["request_key"] == []
    beside = {"request_key", "token"}  # a thread notes the use of the token
    assert {name: rows for name, rows in after.items() if name not in beside} == {
        name: rows for name, rows in before.items() if name not in beside
    }
