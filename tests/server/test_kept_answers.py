"""Each change with a key, struck by a crash: the repeated request makes it once, and gets the first answer."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from tests.app.test_audited_operations import APP, LOOK, OF_THE_CALL, PLAYS, Play, discard, land
from tests.mill.test_so_already import MADE_BEFORE, begin, wait
from tests.stage import Stage, staged
from tidemill import TidemillError
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.effects import Effect
from tidemill.mill.keeping import KeyedRequest
from tidemill.mill.mill import Mill
from tidemill.mill.once import carry_out
from tidemill.mill.operations import OPERATIONS, Operation
from tidemill.mill.plain import to_answer
from tidemill.mill.routes import list_routes

REQUEST = KeyedRequest("ann", "key-1", "d")
KEYED = {
    one.operation.action: one.operation
    for one in list_routes()
    if one.method != "GET" and not one.operation.mark.no_key
}
NEEDS_SPARK = {"dataset.compact"}
HOOKED = "app.schedule('hooked', look, trigger=tm.Hook('door'))"
EVERY = {"type": "every", "duration": "1h"}
STATEMENTS = (
    "CREATE TABLE one (a INT, dt STRING) PARTITIONED BY (dt); "
    "ALTER TABLE one SET ('partition.gap-policy'='wait'); "
    "CREATE TABLE two (a INT, dt STRING) PARTITIONED BY (dt)"
)
T = TypeVar("T")


def claim(stage: Stage) -> str:
    """Have a claim of the only file of the inbox, and return its id."""
    land(stage, "NEW")
    stage.sql("UPDATE inbox_file SET run_id = NULL RETURNING 1")
    return stage.mill.inboxes.get_latest_files("raw").claim_id


def land_new(stage: Stage) -> None:
    """Have a file that waits."""
    land(stage, "NEW")
    stage.sql("UPDATE inbox_file SET run_id = NULL RETURNING 1")


def put(stage: Stage) -> None:
    """Put a file into the folder of the inbox, which nothing has listed."""
    folder = stage.mill.project.config.folder / "landing" / "raw"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("1\n", encoding="utf-8")


def fail(stage: Stage) -> str:
    """Have a run that was killed, and return its id."""
    run_id = stage.mill.runs.start("shop.look").run_id
    stage.mill.runs.kill(run_id)
    return run_id


def complete(stage: Stage) -> str:
    """Have a run that has committed, and return its id."""
    stage.mill.runs.start("shop.look")
    (run,) = stage.work()
    return run.run_id


def event(key: str) -> object:
    """Return a notification of S3 about a new object."""
    return {"Records": [{"eventName": "ObjectCreated:Put", "s3": {"bucket": {"name": "b"}, "object": {"key": key}}}]}


def nothing(_: Stage) -> None:
    """Prepare nothing."""


MORE = {
    "app.delete": Play("", nothing, lambda mill, _: mill.apps.delete("shop")),
    "consumer.requeue": Play("", discard, lambda mill, _: mill.consumers.requeue("lines", LOOK)),
    "consumer.reset": Play("", discard, lambda mill, _: mill.consumers.reset("lines", LOOK, "beginning")),
    "hook.fire": Play("", nothing, lambda mill, _: mill.hooks.fire("door", {"n": 1})),
    "inbox.events": Play("", put, lambda mill, _: mill.inboxes.events("raw", event("landing/raw/a.csv"))),
    "inbox.get_latest_files": Play("", land_new, lambda mill, _: mill.inboxes.get_latest_files("raw")),
    "inbox.release_claim": Play("", claim, lambda mill, claim_id: mill.inboxes.release_claim(claim_id)),
    "inbox.renew_claim": Play("", claim, lambda mill, claim_id: mill.inboxes.renew_claim(claim_id)),
    "inbox.scan": Play("", put, lambda mill, _: mill.inboxes.scan("raw")),
    "inbox.update_file_status": Play(
        "", claim, lambda mill, claim_id: mill.inboxes.update_file_status(claim_id, None, "ERROR")
    ),
    "job.drop": Play("", wait, lambda mill, job_id: mill.jobs.drop(job_id)),
    "job.force": Play("", wait, lambda mill, job_id: mill.jobs.force(job_id)),
    "run.kill": Play(
        "", lambda stage: stage.mill.runs.start("shop.look").run_id, lambda mill, run_id: mill.runs.kill(run_id)
    ),
    "run.replay": Play("", complete, lambda mill, run_id: mill.runs.replay(run_id, sandbox=True)),
    "run.retry": Play("", fail, lambda mill, run_id: mill.runs.retry(run_id)),
    "run.start": Play("", nothing, lambda mill, _: mill.runs.start("shop.look")),
    "schedule.create": Play("", nothing, lambda mill, _: mill.schedules.create("shop.own", "shop.look", trigger=EVERY)),
    "schedule.create_many": Play(
        "",
        nothing,
        lambda mill, _: mill.schedules.create_many([{"name": "shop.own", "program": "shop.look", "trigger": EVERY}]),
    ),
    "schedule.delete": Play("", nothing, lambda mill, _: mill.schedules.delete("shop.look")),
    "schedule.delete_many": Play("", nothing, lambda mill, _: mill.schedules.delete_many(["shop.look"])),
    "schedule.resume": Play(
        "",
        lambda stage: stage.mill.schedules.suspend("shop.look"),
        lambda mill, _: mill.schedules.resume("shop.look"),
    ),
    "schedule.resume_suspended": Play(
        "",
        lambda stage: stage.mill.schedules.suspend("shop.look"),
        lambda mill, _: mill.schedules.resume_suspended(since="2000-01-01", until="2100-01-01"),
    ),
    "schedule.suspend": Play("", nothing, lambda mill, _: mill.schedules.suspend("shop.look")),
    "schedule.suspend_all": Play("", nothing, lambda mill, _: mill.schedules.suspend_all()),
    "schedule.update": Play("", nothing, lambda mill, _: mill.schedules.update("shop.look", priority=3)),
    "sql": Play("", nothing, lambda mill, _: mill.sql(STATEMENTS)),
    "topic.publish": Play("", nothing, lambda mill, _: mill.topics.publish("paid", {"n": 1})),
    "tx.abort": Play("", begin, lambda mill, pointer: mill.transactions.abort(pointer)),
    "tx.begin": Play("", nothing, lambda mill, _: mill.transactions.begin(["lines"])),
    "tx.commit": Play(
        "",
        lambda stage: stage.mill.transactions.begin(["lines"]).write_pointer,
        lambda mill, pointer: mill.transactions.commit(pointer, [{"dataset": "lines", "key": "hour=1", "op": "drop"}]),
    ),
    "consumer.take": Play(
        "",
        lambda stage: stage.publish("lines", "hour=7"),
        lambda mill, _: mill.consumers.take("lines", "flink"),
    ),
    "tx.fail": Play(
        "",
        lambda stage: stage.mill.transactions.begin(["lines"]).write_pointer,
        lambda mill, pointer: mill.transactions.fail(pointer, "boom"),
    ),
    "tx.renew": Play(
        "",
        lambda stage: stage.mill.transactions.begin(["lines"]).write_pointer,
        lambda mill, pointer: mill.transactions.renew(pointer),
    ),
}
ALL = {action: play for action, play in {**PLAYS, **MORE}.items() if action in KEYED}
LOOKS_AGAIN = {"catalog.adopt", "inbox.events", "inbox.scan"}
"""Operations whose repetition answers what there is to find then, which is less: the first try has found it."""
RENEWED = {"inbox.renew_claim", "tx.renew"}


class Died(BaseException):
    """The process ended here."""


class Mortal:
    """A catalog of a process that dies with the reply to its k-th transaction. No cleanup of the dead does anything."""

    def __init__(self, catalog: Catalog, k: int) -> None:
        self._catalog = catalog
        self.left = k

    def __getattr__(self, name: str) -> Any:
        return getattr(self._catalog, name)

    def read(self, block: Callable[[Db], T]) -> T:
        """Read, if the process lives."""
        self._check()
        return self._catalog.read(block)

    def write(self, block: Callable[[Db], T], *, urgent: bool = False) -> T:
        """Write, and perhaps die. Renewals of a lease come at any time: none of them is the k-th."""
        if urgent:
            return self._catalog.write(block, urgent=True)
        self._check()
        made = self._catalog.write(block)
        self._count()
        return made

    def apply(self, effects: list[Effect], **how: Any) -> int:
        """Commit, and perhaps die."""
        self._check()
        made = self._catalog.apply(effects, **how)
        self._count()
        return made

    def _check(self) -> None:
        if self.left <= 0:
            raise Died

    def _count(self) -> None:
        self.left -= 1
        self._check()


@pytest.fixture
def stage(catalog_url, tmp_path):
    """A project in which each operation has something to do."""
    with staged(tmp_path, catalog_url, f"{APP}{MADE_BEFORE}{HOOKED}") as made:
        yield made


def send(mill: Mill, operation: Operation, act: Callable[[Mill], object]) -> dict[str, object]:
    """Send the request with its key."""
    return carry_out(mill, REQUEST, act, in_block=operation.mark.in_block)


def content(stage: Stage, *, without: set[str]) -> dict[str, list[str]]:
    """Return the rows of all tables but the clock, those of requests, and some more."""
    left_out = {"clock", "request_key", *without}
    tables = stage.mill.project.catalog.dump()
    return {one.name: sorted(map(str, one.rows)) for one in tables if one.name not in left_out}


def test_each_change_with_a_key_is_struck():
    """An operation that is added keeps its answer, or has a reason."""
    audited = {one.action for one in OPERATIONS}

    assert audited >= KEYED.keys() == ALL.keys() | NEEDS_SPARK
    assert {action for action, one in KEYED.items() if one.mark.repeats} == LOOKS_AGAIN | RENEWED | {"tx.commit"}
    assert [action for action, one in KEYED.items() if one.mark.repeats and one.mark.in_block] == []


@pytest.mark.parametrize("action", ALL)
def test_a_crash_before_the_answer_left_is_no_second_change(stage, action):
    """The change is made, its answer is not sent: the repetition changes nothing, and gets that very answer."""
    play, operation = ALL[action], KEYED[action]
    prepared, answers = play.prepare(stage), []

    def die(name: str) -> None:
        if name == "once.changed":
            raise Died

    def act(mill: Mill) -> object:
        result = play.act(mill, prepared)
        answers.append(to_answer(result))
        return result

    object.__setattr__(stage.world, "marked", die)
    with pytest.raises(Died):
        send(stage.mill, operation, act)
    object.__setattr__(stage.world, "marked", lambda _: None)
    without = {"run"} if action in RENEWED else {"inbox_listing"} if action in LOOKS_AGAIN else set()
    before = content(stage, without=without)
    again = send(stage.mill, operation, act)
    once_more = send(stage.mill, operation, act)

    assert content(stage, without=without) == before
    assert once_more == again
    assert action in LOOKS_AGAIN or again == answers[0]


@pytest.mark.spark
def test_a_crash_before_the_answer_left_is_no_second_compaction(tmp_path, sqlite_catalog_url, spark):
    """The one operation that needs Spark."""
    operation = KEYED["dataset.compact"]

    def die() -> None:
        raise Died

    with staged(tmp_path, sqlite_catalog_url, APP, spark=spark) as stage:
        for _ in range(2):
            with stage.mill.transaction(["lines"]) as tx:
                tx.fileset("lines").append(spark.sql("SELECT * FROM VALUES (1, 5), (2, 6) AS rows(n, hour)"))
        stage.at["once.changed"] = die
        with pytest.raises(Died):
            send(stage.mill, operation, lambda mill: mill.datasets.compact("lines"))
        again = send(stage.mill, operation, lambda mill: mill.datasets.compact("lines"))
        noted = [one.action for one in stage.mill.audit.log(subject="default.lines")]

    assert [one["partition"] for one in again["items"]] == ["hour=5", "hour=6"]
    assert noted == ["dataset.compact"]


@pytest.mark.parametrize("action", [one for one in ALL if not KEYED[one].mark.repeats])
def test_a_slow_try_changes_nothing_after_it_was_taken_over(stage, action):
    """Two servers have the same request: the slow one is refused in the transaction of its change."""
    play, operation = ALL[action], KEYED[action]
    prepared, seen = play.prepare(stage), []
    without = OF_THE_CALL if action.startswith(("dataset.", "snapshot.")) else set()

    def act(mill: Mill) -> object:
        send(stage.mill, operation, lambda one: play.act(one, prepared))
        seen.append(content(stage, without=without))
        return play.act(mill, prepared)

    with pytest.raises(TidemillError):
        send(stage.mill, operation, act)

    assert content(stage, without=without) == seen[0]


@pytest.mark.long
@pytest.mark.parametrize("action", ALL)
def test_a_crash_behind_any_transaction_leaves_one_change(tmp_path, action):
    """A crash behind each transaction of each operation, and the request again: as if there had been no crash."""
    play, operation = ALL[action], KEYED[action]
    clean, k = None, 0
    while clean is None or k < clean[1]:
        folder = tmp_path / str(k)
        folder.mkdir()
        with staged(folder, f"sqlite:///{folder}/catalog.db", f"{APP}{MADE_BEFORE}{HOOKED}") as stage:
            prepared = play.prepare(stage)
            mortal = Mortal(stage.mill.project.catalog, k or 1000)
            mill = Mill(replace(stage.mill.project, catalog=mortal))
            with suppress(Died):
                send(mill, operation, lambda one, prepared=prepared: play.act(one, prepared))
            again = send(stage.mill, operation, lambda one, prepared=prepared: play.act(one, prepared))
            once_more = send(stage.mill, operation, lambda one, prepared=prepared: play.act(one, prepared))
            counts = {name: len(rows) for name, rows in content(stage, without=OF_THE_CALL).items()}
        if clean is None:
            clean = counts, 1000 - mortal.left
        assert (k, counts) == (k, clean[0])
        assert once_more == again
        k += 1
