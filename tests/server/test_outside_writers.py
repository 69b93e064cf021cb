"""Transactions of outside writers over a real server: files by another process, published at once, and never twice."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from pyarrow import array, parquet, table, timestamp

from tests.errors import raises_code
from tests.stage import Stage, staged
from tidemill.cli.main import main
from tidemill.client.connect import connect
from tidemill.roles.janitor import Janitor
from tidemill.run.processes.reaper import Reaper
from tidemill.upkeep.audit import audit

MARKS = (
    "outside_writer.noted",
    "output.side_cars",
    "external.before_commit",
    "commit.after_message",
    "external.committed",
)
"""Steps of a commit after which the server may die."""
HIDDEN = """
import tidemill as tm
app = tm.App("zebra", namespace="secret")
app.fileset("zebra_orders", keys={"day": "date"})
"""
ORDERS = {"dataset": "orders", "key": "day=2026-01-01", "op": "append"}


def begin(client: Any, *writes: str, **more: Any) -> dict[str, Any]:
    """Begin a transaction, and return the answer."""
    answer = client.post("/v1/transactions", json={"writes": list(writes or ("orders",)), **more})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


DAY = "day=2026-01-01"


def write(begun: dict[str, Any], name: str = "a.parquet", values: tuple[int, ...] = (1, 2), **columns: Any) -> dict:
    """Write a file as an outside engine does, and return what its writer says of it."""
    name = name if "=" in name else f"{DAY}/{name}"
    path = Path(begun["outputs"][0]["location"]) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(table({"n": list(values), **columns}), path)
    return {"name": name, "bytes": path.stat().st_size, "rows": len(values)}


def change(*files: dict, **more: Any) -> dict[str, Any]:
    """Return a change of one partition."""
    return {**ORDERS, "files": list(files), **more}


def commit(client: Any, begun: dict[str, Any], *changes: dict, headers: Any = None, **more: Any) -> Any:
    """Ask for a commit."""
    path = f"/v1/transactions/{begun['write_pointer']}:commit"
    return client.post(path, json={"partitions": list(changes), **more}, headers=headers)


def sum_of(stage: Stage) -> int:
    """Return the sum of the rows that readers see."""
    return sum(parquet.read_table(one.path)["n"].to_pylist()[0] for one in stage.mill.datasets.files("orders"))


def state_of(stage: Stage, begun: dict[str, Any]) -> str:
    """Return the state of a transaction."""
    return str(stage.mill.transactions.show(begun["write_pointer"]).state)


def test_files_of_an_outside_engine_become_visible_with_the_commit_and_feed_programs(sign, stage):
    """A job of another engine hands over what it has written, and the schedules of the data set go on by themselves."""
    client = sign("developer")
    begun = begin(client, owner="flink")
    (output,) = begun["outputs"]
    said = write(begun)
    before = list(stage.mill.datasets.files("orders"))

    answer = commit(client, begun, change(said, metadata={"by": "flink"}))

    assert before == []
    assert (output["dataset"], output["format"], output["keys"]) == ("default.orders", "parquet", {"day": "date"})
    assert answer.status_code == 200, answer.text
    done = answer.json()
    assert (done["partitions"], done["files"], done["rows"], done["bytes"]) == (1, 1, 2, said["bytes"])
    (partition,) = stage.mill.datasets.partitions("orders")
    assert (partition.partition, partition.rows, partition.commit_seq, partition.metadata) == (
        "day=2026-01-01",
        2,
        done["commit_seq"],
        {"by": "flink"},
    )
    assert sum_of(stage) == 1
    assert stage.schedule() == ["default.shop.on_orders"]
    run = stage.mill.runs.show(done["run_id"])
    assert run.state == "COMPLETED"
    assert stage.find(run.run_id).owner == "flink"
    assert audit(stage.mill.project.catalog).findings == ()


def test_overwrite_append_create_and_drop_are_those_of_a_program(sign, stage):
    """A transaction may do all of them, to several data sets."""
    client = sign("developer")
    stage.publish("orders", "day=2026-01-09")
    stage.sql("DELETE FROM dataset_schema RETURNING 1")
    begun = begin(client, "orders", "default.late")
    one, two, three = (write(begun, name) for name in ("a.parquet", "x/b.parquet", "day=2026-01-02/c.parquet"))

    answer = commit(
        client,
        begun,
        change(one),
        change(two, op="overwrite"),
        change(three, key="day=2026-01-02", op="create"),
        {**ORDERS, "key": "day=2026-01-09", "op": "drop"},
    )

    assert answer.status_code == 200, answer.text
    assert {one.partition: one.op for one in stage.mill.datasets.partitions("orders")} == {
        "day=2026-01-01": "overwrite",
        "day=2026-01-02": "create",
    }
    assert [Path(one.path).name for one in stage.mill.datasets.files("orders")] == ["b.parquet", "c.parquet"]
    assert [one.op for one in stage.mill.transactions.show(begun["write_pointer"]).published] == [
        "overwrite",
        "create",
        "drop",
    ]


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"bytes": 1}, "bytes, not 1"),
        ({"rows": 3}, "has 2 rows, not 3"),
        ({"name": f"{DAY}/b.parquet"}, "is not there"),
        ({"name": f"{DAY}/_temporary/a.parquet"}, "begins with"),
        ({"name": "a.parquet"}, "is not in the folder day=2026-01-01/"),
        ({"name": "day=2026-01-02/a.parquet"}, "is not in the folder day=2026-01-01/"),
        ({"name": f"{DAY}/day=2026-01-02/a.parquet"}, "is not in the folder day=2026-01-01/"),
    ],
)
def test_files_that_are_not_as_their_writer_says_are_refused_and_may_be_corrected(sign, stage, wrong, why):
    """A file that was cut on its way would be published as if it were whole."""
    client = sign("developer")
    begun = begin(client)
    said = write(begun)

    refused = commit(client, begun, change(said | wrong))

    assert (refused.status_code, refused.json()["code"]) == (422, "files_refused")
    assert why in refused.json()["detail"]
    assert state_of(stage, begun) == "in_progress"
    assert list(stage.mill.datasets.files("orders")) == []
    assert commit(client, begun, change(said)).status_code == 200


def test_a_file_with_nanoseconds_is_refused(sign, stage):
    """No program could read the partition."""
    client = sign("developer")
    begun = begin(client)

    refused = commit(client, begun, change(write(begun, ts=array([1, 2], timestamp("ns")))))

    assert (refused.status_code, refused.json()["code"]) == (422, "files_refused")
    assert "column ts has nanoseconds" in refused.json()["detail"]
    assert list(stage.mill.datasets.files("orders")) == []


def test_a_file_of_something_else_is_refused(sign):
    """Its rows could never be read."""
    client = sign("developer")
    begun = begin(client)
    path = Path(begun["outputs"][0]["location"]) / DAY / "a.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no parquet")

    refused = commit(client, begun, change({"name": f"{DAY}/a.parquet", "bytes": 10, "rows": 0}))

    assert (refused.status_code, refused.json()["code"]) == (422, "files_refused")
    assert "cannot be read as parquet" in refused.json()["detail"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (
            [{"dataset": "orders", "key": "day=x", "op": "append", "files": [{"name": "a", "bytes": 1, "rows": 1}]}],
            "bad_key",
        ),
        ([{"dataset": "late", "key": "day=2026-01-01", "op": "drop"}], "not_an_output"),
        ([{"dataset": "nothing", "key": "day=2026-01-01", "op": "drop"}], "not_an_output"),
        ([{**ORDERS, "op": "merge"}], "bad_json"),
        ([{**ORDERS, "files": []}], "wrong_input"),
        ([{**ORDERS, "op": "drop", "files": [{"name": "a", "bytes": 1, "rows": 1}]}], "wrong_input"),
        ([{**ORDERS, "files": [{"name": "../a", "bytes": 1, "rows": 1}]}], "bad_file_name"),
        ([{**ORDERS, "files": [{"name": "a"}]}], "bad_json"),
        ([{"key": "day=2026-01-01"}], "bad_json"),
    ],
)
def test_a_commit_that_cannot_be_read_is_refused_with_its_reason(sign, stage, changes, code):
    """The transaction stays open."""
    client = sign("developer")
    begun = begin(client)

    refused = commit(client, begun, *changes)

    assert (refused.status_code, refused.json()["code"]) == (422, code)
    assert state_of(stage, begun) == "in_progress"


def test_one_file_is_never_published_twice(sign):
    """Its rows would be read twice."""
    client = sign("developer")
    begun = begin(client)
    said = write(begun)

    refused = commit(client, begun, change(said), change(said))

    assert "a.parquet is named twice" in refused.json()["detail"]


def test_columns_that_the_file_set_has_not_are_refused(sign):
    """Readers of the file set would find two tables in it; and a key column in the files could differ from the key."""
    client = sign("developer")
    first = begin(client)
    assert commit(client, first, change(write(first))).status_code == 200
    begun = begin(client)
    other = write(begun, more=["x", "y"])

    refused = commit(client, begun, change(other))
    keyed = commit(client, begun, change(write(begun, "b.parquet", day=["a", "b"])))

    assert (refused.status_code, refused.json()["code"]) == (422, "schema_changed")
    assert (keyed.status_code, keyed.json()["code"]) == (422, "bad_key")
    assert json.loads(begun["outputs"][0]["columns"])["fields"][0]["name"] == "n"


def test_the_same_commit_again_has_the_same_answer_and_publishes_nothing_twice(sign, stage):
    """A writer whose connection broke asks again, with its key or without, and after the key is forgotten."""
    client = sign("developer")
    begun = begin(client)
    said = change(write(begun))
    first = commit(client, begun, said, headers={"idempotency-key": "k"})

    again = commit(client, begun, said, headers={"idempotency-key": "k"})
    without = commit(client, begun, said)
    other = commit(client, begun, {**said, "op": "overwrite"})

    assert first.status_code == 200
    assert first.json() == again.json() == without.json()
    assert (other.status_code, other.json()["code"]) == (409, "commit_differs")
    assert len(stage.mill.datasets.partitions("orders")) == 1


def test_a_commit_is_on_record_with_its_actor(sign, stage):
    """An audit asks which caller has published these rows."""
    client = sign("developer", name="flink")
    begun = begin(client)

    commit(client, begun, change(write(begun)))

    (row,) = [one for one in stage.mill.audit.log(subject=str(begun["write_pointer"])) if one.action == "tx.commit"]
    assert row.actor == "flink@127.0.0.1"
    assert row.detail["changes"] == ["append default.orders day=2026-01-01"]
    assert (row.detail["before"], row.detail["after"]) == ({"state": "in_progress"}, {"state": "committed"})


def test_a_commit_whose_record_cannot_be_written_publishes_nothing(sign, stage):
    """Row and change are one transaction."""
    begun = begin(sign("developer"))
    said = change(write(begun))
    stage.mill.project.catalog.run_script("ALTER TABLE audit RENAME TO elsewhere", unless=99)

    with pytest.raises(Exception, match="audit"):
        stage.mill.transactions.commit(begun["write_pointer"], [said])

    assert list(stage.mill.datasets.files("orders")) == []
    assert state_of(stage, begun) == "in_progress"


def test_many_commits_of_one_transaction_at_once_publish_it_once(sign, stage):
    """An impatient writer, or a proxy that repeats requests."""
    client = sign("developer")
    begun = begin(client)
    said = change(write(begun))
    answers: list[tuple[int, str]] = []

    def ask(wanted: dict) -> None:
        answer = commit(client, begun, wanted)
        answers.append((answer.status_code, json.dumps(answer.json(), sort_keys=True) if answer.is_success else ""))

    others = [{**said, "metadata": {"n": str(n)}} for n in range(2)]
    threads = [threading.Thread(target=ask, args=(one,)) for one in (said, said, said, *others)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert {status for status, _ in answers} <= {200, 409}
    assert len({text for status, text in answers if status == 200}) == 1
    assert len(stage.mill.datasets.partitions("orders")) == 1
    assert audit(stage.mill.project.catalog).findings == ()


class Died(BaseException):
    """The server ended here."""


@pytest.mark.parametrize(
    "mark",
    [
        "outside_writer.noted",
        "output.side_cars",
        "external.before_commit",
        "commit.after_message",
        "external.committed",
    ],
)
def test_a_server_that_dies_within_a_commit_leaves_it_to_be_asked_again(sign, stage, mark):
    """The writer does not know what has become of the commit. It asks another server for the same."""
    client = sign("developer")
    begun = begin(client)
    said = change(write(begun))

    def die() -> None:
        raise Died

    stage.at[mark] = die
    with pytest.raises(Died):
        stage.mill.transactions.commit(begun["write_pointer"], [said])
    other = commit(client, begun, {**said, "op": "overwrite"})
    again = commit(client, begun, said, headers={"idempotency-key": "k"})

    assert (other.status_code, other.json()["code"]) == (409, "commit_differs")
    assert again.status_code == 200, again.text
    assert again.json() == commit(client, begun, said).json()
    assert [one.op for one in stage.mill.datasets.partitions("orders")] == ["append"]
    assert audit(stage.mill.project.catalog).findings == ()


def test_a_conflict_ends_the_transaction_and_names_the_other_one(sign, stage):
    """First committer wins: what the writer has read is old."""
    client = sign("developer")
    slow, fast = begin(client), begin(client)
    said = change(write(slow), op="overwrite")
    assert commit(client, fast, change(write(fast))).status_code == 200

    refused = commit(client, slow, said)
    again = commit(client, slow, said)

    assert (refused.status_code, refused.json()["code"]) == (409, "partition_conflict")
    assert refused.json()["write_pointer"] == fast["write_pointer"]
    assert (again.status_code, again.json()["code"]) == (409, "transaction_ended")
    assert "partition_conflict" in again.json()["reason"]
    assert state_of(stage, slow) == "aborted"


def test_a_writer_that_does_not_renew_is_fenced_and_its_files_are_deleted(sign, stage):
    """A dead writer must not hold watermarks and consumers for ever; and it may not be dead."""
    client = sign("developer")
    begun = begin(client, lease="5s")
    said = change(write(begun))
    reaper = Reaper(stage.world, stage.mill.project.catalog, stage.mill.project.config.lease)
    stage.sql("UPDATE run SET lease_until = 1 WHERE kind = 'external' RETURNING 1")

    assert client.post(f"/v1/transactions/{begun['write_pointer']}:renew", json={"lease": "10m"}).status_code == 200
    stage.sql("UPDATE run SET lease_until = 1 WHERE kind = 'external' RETURNING 1")
    reaper.lease = type(reaper.lease)(0)
    reaper._looked_at = stage.world.clock.monotonic()
    while not reaper.step():
        reaper._looked_at = stage.world.clock.monotonic()
    renewed = client.post(f"/v1/transactions/{begun['write_pointer']}:renew", json={})
    refused = commit(client, begun, said)

    for answer in (renewed, refused):
        assert (answer.status_code, answer.json()["code"]) == (409, "transaction_ended")
    assert "did not renew" in refused.json()["reason"]
    stage.sql("UPDATE garbage SET not_before = 1 RETURNING 1")
    Janitor(stage.mill.project.catalog, state=stage.mill.project.config.state).step()
    assert not (Path(begun["outputs"][0]["location"]) / DAY).exists()


def test_an_aborted_transaction_cannot_commit(sign, stage):
    """Abort and commit by the same words as on the command line."""
    client = sign("developer")
    begun = begin(client)
    said = change(write(begun))

    assert client.post(f"/v1/transactions/{begun['write_pointer']}:abort").json()["state"] == "invalid"

    assert commit(client, begun, said).json()["code"] == "transaction_ended"
    assert client.post(f"/v1/transactions/{begun['write_pointer']}:abort").json()["state"] == "invalid"
    assert stage.mill.runs.show(begun["run_id"]).state == "KILLED"


def test_a_transaction_of_a_process_is_not_committed_from_outside(sign, stage):
    """Its process knows what it has written, and the server does not."""
    client = sign("developer")
    with stage.mill.transaction(["default.orders"]) as tx:
        renewed = client.post(f"/v1/transactions/{tx.write_pointer}:renew", json={})
        refused = client.post(f"/v1/transactions/{tx.write_pointer}:commit", json={"partitions": []})

    for answer in (renewed, refused):
        assert (answer.status_code, answer.json()["code"]) == (422, "not_an_outside_writer")


def test_messages_come_with_the_commit(sign, stage):
    """And never without it."""
    client = sign("developer")
    begun = begin(client)
    message = {"topic": "bells", "payload": {"n": 1}, "key": "door"}

    refused = commit(client, begun, change({"name": "a", "bytes": 1, "rows": 1}), messages=[message])
    assert (refused.status_code, [one.topic for one in stage.mill.topics.list() if one.topic == "bells"]) == (422, [])
    assert commit(client, begun, change(write(begun)), messages=[message]).status_code == 200

    (read,) = stage.mill.topics.read("bells", after="0")
    assert (read.event_key, read.payload) == ("door", {"n": 1})


def test_a_snapshot_or_inbox_is_no_output_of_an_outside_writer(catalog_url, tmp_path):
    """The guards of a snapshot compare whole versions, which a program computes."""
    text = "import tidemill as tm\napp = tm.App('shop')\nusers = app.snapshot('users', key=['id'])\n"
    text += "raw = app.inbox('raw', 'landing', schema='id int')\n"
    with staged(tmp_path, catalog_url, text) as stage:
        with raises_code("not_a_snapshot"):
            stage.mill.transactions.begin(["users"])
        with raises_code("wrong_input"):
            stage.mill.transactions.begin(["raw"])
        with raises_code("wrong_input"):
            stage.mill.transactions.begin([])


def test_roles_below_developer_begin_and_commit_nothing(sign):
    """Data are published by developers."""
    begun = begin(sign("developer"))
    client = sign("operator")

    assert client.post("/v1/transactions", json={"writes": ["orders"]}).status_code == 403
    assert commit(client, begun).status_code == 403
    assert client.post(f"/v1/transactions/{begun['write_pointer']}:abort").status_code == 200


def test_a_token_of_one_namespace_writes_there_alone_and_learns_nothing_of_others(sign, stage, tmp_path):
    """No name of another namespace is in an error, and its transactions are as if they did not exist."""
    folder = tmp_path / "other"
    with staged(folder, stage.mill.project.config.catalog, HIDDEN, environ={"TIDEMILL_NAMESPACE": "secret"}) as hidden:
        theirs = hidden.mill.transactions.begin(["secret.zebra_orders"], owner="zebra").write_pointer
        client = sign("developer", "default")
        own = begin(client)
        said = write(own)
        answers = [
            client.post("/v1/transactions", json={"writes": ["orders", "secret.zebra_orders"]}),
            client.post("/v1/transactions", json={"writes": ["secret.zebra_order"]}),
            client.post(f"/v1/transactions/{theirs}:renew", json={}),
            client.post(f"/v1/transactions/{theirs}:commit", json={"partitions": []}),
            client.post(f"/v1/transactions/{theirs}:abort"),
            client.get(f"/v1/transactions/{theirs}"),
            commit(client, own, change(said, dataset="secret.zebra_orders")),
            commit(client, own, change(said), messages=[{"topic": "bells"}]),
        ]
        texts = [answer.text.replace("secret.zebra_orders", "").replace("secret.zebra_order", "") for answer in answers]

        assert [answer.status_code for answer in answers] == [404, 404, 404, 404, 404, 404, 404, 403]
        assert not [text for text in texts if "zebra" in text or "secret" in text]
        assert client.get(f"/v1/transactions/{theirs}").json()["detail"] == client.get(
            f"/v1/transactions/{theirs + 10_000}"
        ).json()["detail"].replace(str(theirs + 10_000), str(theirs))
        assert client.post(f"/v1/transactions/{own['write_pointer']}:renew", json={}).status_code == 200
        assert commit(client, own, change(said)).status_code == 200
        assert client.get(f"/v1/transactions/{own['write_pointer']}").json()["state"] == "committed"
        assert hidden.mill.transactions.show(theirs).state == "in_progress"


def test_the_command_line_and_the_client_do_the_same(sign, stage, capsys, tmp_path):
    """The words are the same everywhere."""
    client = sign("developer")
    folder = str(stage.mill.project.config.folder)

    def run(*words: str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as ended:
            main(["--project", folder, "tx", *words, "--json"])
        assert not ended.value.code, words
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    begun = run("begin", "orders")
    assert run("renew", str(begun["write_pointer"]), "--lease", "1h")["lease"] == "1h"
    document = tmp_path / "commit.json"
    document.write_text(json.dumps({"partitions": [change(write(begun))]}), encoding="utf-8")
    assert run("commit", str(begun["write_pointer"]), str(document))["rows"] == 2
    assert run("abort", str(begun["write_pointer"]))["state"] == "committed"

    secret = client.headers["authorization"].removeprefix("Bearer ")
    with connect(str(client.base_url), token=secret) as far:
        opened = far.transactions.begin(["orders"])
        assert far.transactions.renew(opened.write_pointer).lease == "10m"
        location = {"outputs": [{"location": opened.outputs[0].location}]}
        done = far.transactions.commit(opened.write_pointer, [change(write(location))])
        with raises_code("commit_differs"):
            far.transactions.commit(opened.write_pointer, [])
    assert (done.partitions, done.rows) == (1, 2)
