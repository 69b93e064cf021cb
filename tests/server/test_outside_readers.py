"""Takes of partitions by engines outside, over a real server: no partition twice, none skipped, fenced by the lease."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyarrow import parquet

from tests.errors import raises_code
from tests.server.test_outside_writers import DAY, HIDDEN, change, commit, write
from tests.stage import Stage, staged
from tidemill.cli.main import main
from tidemill.client.connect import connect
from tidemill.lake.consumer.managed import ensure_consumer
from tidemill.mill.transactions import find_source
from tidemill.run.processes.outside_writers import take_outside
from tidemill.run.processes.reaper import Reaper
from tidemill.run.step.outside_writes import OutsideRead
from tidemill.upkeep.audit import audit

LEASE = timedelta(minutes=10)


class Died(BaseException):
    """The server ended here."""


def die() -> None:
    """End the server."""
    raise Died


def take(client: Any, headers: Any = None, **more: Any) -> dict[str, Any]:
    """Take partitions of `orders` by the consumer `flink`."""
    answer = client.post("/v1/consumers/orders/flink:take", json=more, headers=headers)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def begin(client: Any, *writes: str, **read: Any) -> dict[str, Any]:
    """Begin a transaction that takes partitions of `orders` by the consumer `flink`, and may write `writes`."""
    reads = [{"dataset": "orders", "consumer": "flink", **read}]
    answer = client.post("/v1/transactions", json={"writes": list(writes), "reads": reads})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def fail(client: Any, taken: dict[str, Any], error: str = "boom", headers: Any = None) -> Any:
    """Say that the work on a take has failed."""
    return client.post(f"/v1/transactions/{taken['write_pointer']}:fail", json={"error": error}, headers=headers)


def names(taken: dict[str, Any]) -> list[str]:
    """Return the days of the taken partitions."""
    return [one["key"]["day"][-2:] for one in taken["partitions"]]


def publish(stage: Stage, *days: int) -> None:
    """Publish partitions of `orders`, each in a transaction of its own."""
    for day in days:
        stage.publish("orders", f"day=2026-01-{day:02}")


def work(stage: Stage) -> dict[str, tuple[str, int]]:
    """Return the state and the failures of each change that the consumer knows, by its day."""
    rows = stage.sql(
        "SELECT partition_key, state, failures FROM consumer_work JOIN consumer USING (consumer_id)"
        " WHERE consumer.name <> 'other' ORDER BY write_pointer"
    )
    return {str(key)[-2:]: (state, failures) for key, state, failures in rows}


def test_an_engine_takes_partitions_once_and_reads_exactly_their_files(sign, stage):
    """The first take makes the consumer, which begins as that of a program: with all that there is."""
    client = sign("developer")
    publish(stage, 1, 2, 3)

    first, second, third = take(client, limit=2, owner="flink"), take(client), take(client)
    done = commit(client, first)

    assert [names(first), names(second), names(third)] == [["01", "02"], ["03"], []]
    assert third["write_pointer"] is None
    listed = [one for one in stage.mill.datasets.files("orders") if "day=2026-01-01" in one.path]
    files = first["partitions"][0]["files"]
    assert [(one["path"], one["bytes"], one["rows"]) for one in files] == [(o.path, o.bytes, o.rows) for o in listed]
    assert [Path(first["location"]) / one["name"] for one in files] == [Path(one["path"]) for one in files]
    assert (done.status_code, done.json()["taken"], done.json()["partitions"]) == (200, 2, 0)
    shown = stage.mill.transactions.show(first["write_pointer"])
    assert (shown.state, shown.owner, shown.reads) == ("committed", "flink", ("default.orders by flink",))
    assert work(stage) == {"01": ("completed", 0), "02": ("completed", 0), "03": ("in_progress", 0)}
    (consumer,) = [one for one in stage.mill.consumers.list(dataset="orders") if one.name == "flink"]
    assert not consumer.retired
    assert audit(stage.mill.project.catalog).findings == ()


def test_an_empty_take_leaves_no_transaction(sign, stage):
    """An engine that polls each minute must not fill the catalog."""
    client = sign("developer")
    take(client)

    assert take(client)["partitions"] == []
    assert stage.runs() == []
    assert stage.sql("SELECT count(*) FROM tx") == [(0,)]


def test_what_was_taken_and_what_was_published_commit_together(sign, stage):
    """A crash between two commits would lose the partitions, or publish their rows twice."""
    client = sign("developer")
    publish(stage, 1)
    begun = begin(client, "late")
    wrong = commit(client, begun, change({"name": f"{DAY}/no", "bytes": 1, "rows": 1}, dataset="late"))
    before = work(stage)

    done = commit(client, begun, change(write(begun), dataset="late"))
    again = commit(client, begun, change(write(begun), dataset="late"))

    assert (wrong.status_code, before) == (422, {"01": ("in_progress", 0)})
    assert done.status_code == 200, done.text
    assert (done.json()["taken"], done.json()["rows"]) == (1, 2)
    assert work(stage) == {"01": ("completed", 0)}
    assert again.json() == done.json()
    assert [one.partition for one in stage.mill.datasets.partitions("late")] == [DAY]
    run = done.json()["run_id"]
    assert stage.sql(f"SELECT count(*) FROM run_input WHERE run_id = '{run}'") == [(1,)]
    assert audit(stage.mill.project.catalog).findings == ()


def test_a_conflict_returns_the_partitions_and_blames_none(sign, stage):
    """The partitions did not cause it: another writer was faster."""
    client = sign("developer")
    publish(stage, 1)
    slow, fast = begin(client, "late"), client.post("/v1/transactions", json={"writes": ["late"]}).json()
    said = change(write(slow), dataset="late", op="overwrite")
    commit(client, fast, change(write(fast), dataset="late"))

    refused = commit(client, slow, said)

    assert refused.json()["code"] == "partition_conflict"
    assert work(stage) == {"01": ("new", 0)}
    assert names(take(client)) == ["01"]


def test_a_failed_partition_waits_and_is_discarded_after_three_failures(sign, stage):
    """As for runs: the wait doubles, and a person looks at what fails alone again and again."""
    client = sign("developer")
    publish(stage, 1)
    waits = []
    for _ in range(3):
        taken = take(client)
        assert fail(client, taken, "no  such\ncolumn").json()["reason"] == "no such column"
        waits += [row[0] for row in stage.sql("SELECT not_before FROM consumer_work WHERE not_before > 0")]
        assert take(client)["partitions"] == []
        stage.pass_time()

    assert work(stage) == {"01": ("discarded", 3)}
    assert waits[1] - waits[0] > 9_000
    (held,) = stage.mill.consumers.show("orders", "flink").work
    assert held.error == "no such column"
    stage.mill.consumers.requeue("orders", "flink")
    assert names(take(client)) == ["01"]


def test_a_poison_partition_is_found_among_others(sign, stage):
    """Most of the partitions that fail together are innocent: they come again, in ever smaller takes."""
    client = sign("developer")
    publish(stage, 1, 2, 3, 4)
    for _ in range(20):
        taken = take(client)
        if not taken["partitions"]:
            break
        assert (fail(client, taken) if "03" in names(taken) else commit(client, taken)).status_code == 200
        stage.pass_time()

    assert {day: state for day, (state, _) in work(stage).items()} == {
        "01": "completed",
        "02": "completed",
        "03": "discarded",
        "04": "completed",
    }


def test_released_partitions_come_again_at_once_without_blame(sign, stage):
    """The engine has no time for them."""
    client = sign("developer")
    publish(stage, 1)
    taken = take(client)

    client.post(f"/v1/transactions/{taken['write_pointer']}:abort")

    assert work(stage) == {"01": ("new", 0)}
    assert names(take(client)) == ["01"]


def expire(stage: Stage) -> None:
    """Fence all takes that are not renewed, as the reaper does."""
    stage.sql("UPDATE run SET lease_until = 1 WHERE kind = 'external' RETURNING 1")
    reaper = Reaper(stage.world, stage.mill.project.catalog, timedelta(0))
    reaper._looked_at = stage.world.clock.monotonic()
    while not reaper.step():
        reaper._looked_at = stage.world.clock.monotonic()


def test_the_partitions_of_a_dead_engine_are_new_again_and_its_late_end_is_refused(sign, stage):
    """A zombie that finishes at last has processed what another engine is processing."""
    client = sign("developer")
    publish(stage, 1)
    zombie = take(client, lease="5s")
    place = f"/v1/transactions/{zombie['write_pointer']}"

    assert client.post(f"{place}:renew", json={"lease": "10m"}).status_code == 200
    expire(stage)
    other = take(client)
    late = [commit(client, zombie), fail(client, zombie), client.post(f"{place}:renew", json={})]

    assert names(other) == ["01"]
    assert {(answer.status_code, answer.json()["code"]) for answer in late} == {(409, "transaction_ended")}
    assert work(stage) == {"01": ("in_progress", 0)}
    assert commit(client, other).json()["taken"] == 1
    assert audit(stage.mill.project.catalog).findings == ()


def test_each_end_may_be_repeated_and_no_other_end_follows(sign, stage):
    """The reply of the first call may have been lost."""
    client = sign("developer")
    publish(stage, 1, 2)
    good, bad = take(client, limit=1), take(client, limit=1)
    key = {"idempotency-key": "k"}

    done = [commit(client, good), commit(client, good)]
    failed = [fail(client, bad, headers=key), fail(client, bad, headers=key), fail(client, bad)]
    others = [fail(client, good), commit(client, bad), fail(client, bad, "another reason")]

    assert len({answer.text for answer in done}) == 1
    assert len({answer.text for answer in failed}) == 1
    assert failed[0].json()["state"] == "aborted"
    assert {answer.json()["code"] for answer in others} == {"transaction_ended"}
    assert work(stage) == {"01": ("completed", 0), "02": ("new", 1)}
    rows = [one for one in stage.mill.audit.log(subject=str(bad["write_pointer"])) if one.action == "tx.fail"]
    assert [row.detail["error"] for row in rows] == ["boom"]


def test_a_take_with_a_key_is_given_again(sign, stage):
    """The engine did not get the answer: the partitions must not wait for the end of the lease."""
    client = sign("developer")
    publish(stage, 1)
    key = {"idempotency-key": "take 1"}

    first, again = take(client, key), take(client, key)

    assert names(first) == ["01"]
    assert first == again


@pytest.mark.parametrize(
    "mark",
    ["external.created", "external.begun", "take.before_fill", "take.after_claim", "outside_writer.taken"],
)
def test_a_server_that_dies_within_a_take_skips_no_partition(sign, stage, mark):
    """The engine asks another server, with its key or without."""
    client = sign("developer")
    publish(stage, 1, 2)

    stage.at[mark] = die
    with pytest.raises(Died):
        stage.mill.consumers.take("orders", "flink", limit=1)
    first, second = take(client), take(client)

    assert sorted([*names(first), *names(second)]) == ["01", "02"]
    assert {failures for _, failures in work(stage).values()} == {0}
    assert audit(stage.mill.project.catalog).findings == ()


@pytest.mark.parametrize("mark", ["external.before_commit", "commit.after_message", "external.committed"])
def test_a_server_that_dies_within_the_end_of_a_take_leaves_it_to_be_asked_again(sign, stage, mark):
    """The engine does not know what has become of its commit."""
    client = sign("developer")
    publish(stage, 1)
    taken = take(client)

    stage.at[mark] = die
    with pytest.raises(Died):
        stage.mill.transactions.commit(taken["write_pointer"])

    assert commit(client, taken).json()["taken"] == 1
    assert work(stage) == {"01": ("completed", 0)}


@pytest.mark.parametrize("mark", ["end_attempt.before_commit", "end_attempt.after_commit"])
def test_a_server_that_dies_within_a_failure_counts_it_once(sign, stage, mark):
    """Else an innocent partition would be discarded early."""
    client = sign("developer")
    publish(stage, 1)
    taken = take(client)

    stage.at[mark] = die
    with pytest.raises(Died):
        stage.mill.transactions.fail(taken["write_pointer"], "boom")

    assert fail(client, taken).json()["reason"] == "boom"
    assert work(stage) == {"01": ("new", 1)}


def test_no_partition_is_skipped_or_given_twice_under_many_takes(sign, stage):
    """Engines run in several processes, while writers commit."""
    del sign
    publish(stage, *range(1, 5))
    given: list[str] = []
    raised: list[BaseException] = []
    written = threading.Event()

    def read() -> None:
        try:
            while True:
                last = written.is_set()
                taken = stage.mill.consumers.take("orders", "flink", limit=2)
                given.extend(one.partition for one in taken.partitions)
                if taken.write_pointer is not None:
                    stage.mill.transactions.commit(taken.write_pointer)
                elif last:
                    return
        except BaseException as error:  # noqa: BLE001  # the test looks at it
            raised.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    publish(stage, *range(5, 13))
    written.set()
    for thread in threads:
        thread.join()

    assert raised == []
    assert Counter(given) == Counter(f"day=2026-01-{day:02}" for day in range(1, 13))
    assert {state for state, _ in work(stage).values()} == {"completed"}
    assert audit(stage.mill.project.catalog).findings == ()


def test_a_partition_that_commits_late_is_not_skipped(sign, stage):
    """Its write pointer is below those that the consumer has taken (seed 000)."""
    client = sign("developer")
    late = client.post("/v1/transactions", json={"writes": ["orders"]}).json()
    publish(stage, 2)
    stage.sql("DELETE FROM dataset_schema RETURNING 1")
    first = take(client)
    commit(client, first)

    assert commit(client, late, change(write(late))).status_code == 200

    assert [names(first), names(take(client))] == [["02"], ["01"]]


def test_a_take_by_the_consumer_of_a_program_shares_its_partitions_with_its_runs(sign, stage):
    """A program moves to another engine: no partition is processed by both. A released partition starts a run."""
    client = sign("developer")
    publish(stage, 1)

    taken = client.post("/v1/consumers/orders/default.shop.sift:take", json={}).json()
    stage.schedule()
    while_held = [run.facts.get("inputs") for run in stage.work()]
    client.post(f"/v1/transactions/{taken['write_pointer']}:abort")

    assert names(taken) == ["01"]
    assert work(stage) == {"01": ("new", 0)}
    assert stage.schedule() == ["default.shop.on_orders"], while_held
    assert [run.state for run in stage.work()] == ["COMPLETED"]
    assert work(stage) == {"01": ("completed", 0)}


def test_a_read_that_cannot_be_made_has_its_reason(catalog_url, tmp_path):
    """No run and no consumer is left behind."""
    text = "import tidemill as tm\napp = tm.App('shop')\nusers = app.snapshot('users', key=['id'])\n"
    text += "raw = app.inbox('raw', 'landing', schema='id int')\nok = app.fileset('ok', keys={'day': 'date'})\n"
    twice = [{"dataset": "ok", "consumer": name} for name in ("a", "b")]
    with staged(tmp_path, catalog_url, text) as stage:
        take, begin = stage.mill.consumers.take, stage.mill.transactions.begin
        for dataset, name, code in (
            ("users", "flink", "wrong_input"),
            ("raw", "flink", "wrong_input"),
            ("nothing", "flink", "not_found"),
            ("ok", "default.shop.flink", "not_found"),
            ("ok", "a b", "bad_name"),
        ):
            with raises_code(code):
                take(dataset, name)
        with raises_code("wrong_input"):
            take("ok", "flink", limit=0)
        with raises_code("wrong_input"):
            begin([], reads=twice)
        with raises_code("bad_json"):
            begin([], reads=[{"dataset": "ok"}])
        with raises_code("bad_lease"):
            take("ok", "flink", lease="1d")

        assert stage.runs() == []
        assert list(stage.mill.consumers.list()) == []


def test_a_try_that_a_later_one_has_overtaken_leaves_its_partitions_alone(stage):
    """A client repeats its request while the first try is held up: the first one must not end what the second gave."""
    publish(stage, 1)
    catalog, world = stage.mill.project.catalog, stage.mill.project.world
    read = OutsideRead("default.orders", "flink", 10)
    fileset = catalog.read(lambda db: find_source(stage.mill.project, db, read))
    later = []
    calls = []

    def also(run_id):
        calls.append(run_id)
        if len(calls) == 2:  # with its transaction
            later.append(take_outside(catalog, world, fileset, read, owner="b", lease=LEASE, earlier=run_id))
        return ()

    take_outside(catalog, world, fileset, OutsideRead("default.orders", "other", 10), owner="a", lease=LEASE)
    with raises_code("transaction_open"):
        take_outside(catalog, world, fileset, read, owner="a", lease=LEASE, also=also)

    assert stage.mill.transactions.show(later[0].write_pointer).state == "in_progress"
    assert work(stage) == {"01": ("in_progress", 0)}


def test_a_commit_that_names_no_partitions_is_refused_where_some_may_be_written(sign, stage):
    """A file that was forgotten on the command line would complete what was taken, and publish nothing, for ever."""
    client = sign("developer")
    publish(stage, 1)
    begun = begin(client, "late")

    refused = client.post(f"/v1/transactions/{begun['write_pointer']}:commit", json={})
    done = commit(client, begun)

    assert (refused.status_code, refused.json()["code"]) == (422, "wrong_input")
    assert "empty list" in refused.json()["hint"]
    assert done.status_code == 200, done.text
    assert (done.status_code, done.json()["taken"]) == (200, 1)


def test_a_transaction_that_would_take_what_it_publishes_is_refused(sign, stage):
    """Each commit would be new to its own consumer, for ever. A deployment refuses such a program too."""
    reads = [{"dataset": "orders", "consumer": "flink"}]

    answer = sign("developer").post("/v1/transactions", json={"writes": ["orders"], "reads": reads})

    assert (answer.status_code, answer.json()["code"]) == (422, "wrong_input")
    assert stage.runs() == []


def test_the_last_part_of_the_name_of_a_consumer_makes_no_second_consumer(sign, stage):
    """`consumer show orders sift` shows the consumer of the program: `sift` alone would process all once more."""
    client = sign("developer")
    publish(stage, 1)

    answer = client.post("/v1/consumers/orders/sift:take", json={})

    assert (answer.status_code, answer.json()["code"]) == (422, "wrong_input")
    assert "default.shop.sift" in answer.json()["hint"]
    assert names(client.post("/v1/consumers/orders/default.shop.sift:take", json={}).json()) == ["01"]


def test_roles_below_developer_take_nothing(sign, stage):
    """To take is to decide what other engines do not get."""
    publish(stage, 1)
    taken = take(sign("developer"))
    client = sign("operator")

    assert client.post("/v1/consumers/orders/flink:take", json={}).status_code == 403
    assert fail(client, taken).status_code == 403


def test_a_token_of_one_namespace_takes_there_alone_and_learns_nothing_of_others(sign, stage, tmp_path):
    """Takes of another namespace are as if they did not exist."""
    folder = tmp_path / "other"
    with staged(folder, stage.mill.project.config.catalog, HIDDEN, environ={"TIDEMILL_NAMESPACE": "secret"}) as hidden:
        begun = hidden.mill.transactions.begin(["secret.zebra_orders"])
        empty = {"dataset": "secret.zebra_orders", "key": DAY, "op": "create"}
        hidden.mill.transactions.commit(begun.write_pointer, [empty])
        theirs = hidden.mill.consumers.take("secret.zebra_orders", "zebra").write_pointer
        publish(stage, 1)
        catalog = stage.mill.project.catalog
        orders = catalog.read(lambda db: stage.mill.project.dataset(db, "orders"))
        catalog.write(lambda db: ensure_consumer(db, orders.dataset_id, "secret.zebra.eat"))
        by_theirs = stage.mill.consumers.take("orders", "secret.zebra.eat").write_pointer
        client = sign("developer", "default")
        answers = [
            client.post("/v1/consumers/secret.zebra_orders/flink:take", json={}),
            client.post("/v1/consumers/orders/secret.app.zebra:take", json={}),
            client.post(f"/v1/transactions/{theirs}:fail", json={"error": "x"}),
            client.post(f"/v1/transactions/{theirs}:commit", json={}),
            client.post(f"/v1/transactions/{theirs}:renew", json={}),
            client.get(f"/v1/transactions/{theirs}"),
            client.post(f"/v1/transactions/{by_theirs}:commit", json={}),
            client.post(f"/v1/transactions/{by_theirs}:fail", json={"error": "x"}),
            client.get(f"/v1/transactions/{by_theirs}"),
        ]

        assert [answer.status_code for answer in answers] == [404] * 9
        assert client.get("/v1/transactions").json()["items"] == []
        assert hidden.mill.transactions.show(theirs).state == "in_progress"


def test_the_command_line_and_the_client_do_the_same(sign, stage, capsys):
    """The words are the same everywhere."""
    client = sign("developer")
    folder = str(stage.mill.project.config.folder)
    publish(stage, 1, 2, 3)

    def run(*words: str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as ended:
            main(["--project", folder, *words, "--json"])
        assert not ended.value.code, words
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    taken = run("consumer", "take", "orders", "flink", "--limit", "1", "--owner", "me")
    assert names(taken) == ["01"]
    assert run("tx", "commit", str(taken["write_pointer"]))["taken"] == 1
    begun = run("tx", "begin", "late", "--read", "orders", "flink", "--limit", "1")
    assert names(begun["inputs"][0]) == ["02"]
    assert run("tx", "fail", str(begun["write_pointer"]), "--error", "boom")["state"] == "aborted"

    secret = client.headers["authorization"].removeprefix("Bearer ")
    with connect(str(client.base_url), token=secret) as far:
        mine = far.consumers.take("orders", "flink")
        assert [one.partition for one in mine.partitions] == ["day=2026-01-03"]
        assert far.transactions.commit(mine.write_pointer).taken == 1
        more = far.transactions.begin([], reads=[{"dataset": "orders", "consumer": "other", "limit": 1}])
        assert far.transactions.fail(more.write_pointer, "boom").reason == "boom"
    assert work(stage)["02"] == ("new", 1)


def test_an_engine_reads_what_was_appended_and_the_whole_of_what_was_overwritten(sign, stage):
    """The files of an earlier delivery are not among those of a later one, unless all rows are new."""
    client = sign("developer")
    for rows, op in (((1,), "append"), ((2, 3), "append"), ((4,), "overwrite")):
        begun = client.post("/v1/transactions", json={"writes": ["orders"]}).json()
        commit(client, begun, change(write(begun, values=rows), op=op))
        taken = take(client)
        (partition,) = taken["partitions"]
        read = [n for file in partition["files"] for n in parquet.read_table(file["path"])["n"].to_pylist()]
        assert (read, partition["rows"], partition["write_pointer"]) == (list(rows), len(rows), begun["write_pointer"])
        assert partition["kind"] == {1: "new", 2: "appended", 4: "overwritten"}[rows[0]]
        commit(client, taken)
