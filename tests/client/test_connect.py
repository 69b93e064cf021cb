"""The client: each operation gives over HTTP what it gives beside the catalog, and a broken line doubles nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

import tidemill as tm
from tests.app.test_audited_operations import APP as AUDITED
from tests.app.test_audited_operations import PLAYS
from tests.app.test_pages import APP as LISTED
from tests.app.test_pages import LISTS, fill
from tests.errors import raises_code
from tests.manual_clock import ManualClock
from tests.served import serving
from tests.server.busy import APP as BUSY
from tests.server.busy import make_busy
from tests.stage import Stage, staged
from tidemill.client.connect import connect
from tidemill.client.forms import write_argument, write_key, write_where
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.mill.operations import OPERATIONS
from tidemill.mill.plain import to_answer
from tidemill.run.records.logs import LogLine

ANY_PORT = {"TIDEMILL_SERVER_PORT": "0"}
READS: dict[str, Callable[[Mill], object]] = {
    "alert.show": lambda mill: mill.alerts.show(open_alert_of(mill)),
    "app.show": lambda mill: mill.apps.show("shop"),
    "backfill.plan": lambda mill: mill.backfills.plan("shop.sift", dataset="orders", select="all"),
    "backfill.show": lambda mill: mill.backfills.show(next(iter(mill.backfills.list())).backfill_id),
    "catalog.audit": lambda mill: replace(mill.catalog.audit(["orders"]), tick=0),
    "consumer.show": lambda mill: mill.consumers.show("orders", "default.shop.sift"),
    "catalog.fsck": lambda mill: mill.catalog.fsck(),
    "inbox.explain": lambda mill: mill.inboxes.explain("raw"),
    "consumer.peek": lambda mill: mill.consumers.peek("orders", "default.shop.sift"),
    "dataset.head": lambda mill: mill.datasets.head("orders", {"day": date(2026, 1, 2)}),
    "dataset.calendar": lambda mill: mill.datasets.calendar("orders"),
    "dataset.growth": lambda mill: mill.datasets.growth("orders"),
    "dataset.partition": lambda mill: mill.datasets.partition("orders", "day=2026-01-02"),
    "dataset.lineage": lambda mill: mill.datasets.lineage("orders"),
    "dataset.show": lambda mill: mill.datasets.show("orders"),
    "flow": lambda mill: mill.flow(),
    "inbox.lineage": lambda mill: mill.inboxes.lineage("raw", "a.csv"),
    "inbox.show": lambda mill: mill.inboxes.show("raw"),
    "job.show": lambda mill: mill.jobs.show(mill.jobs.list()[0].job_id),
    "run.show": lambda mill: mill.runs.show(mill.runs.list()[0].run_id),
    "run.lineage": lambda mill: mill.runs.lineage(mill.runs.list(program="shop.load")[0].run_id),
    "schedule.show": lambda mill: mill.schedules.show("shop.on_orders"),
    "search": lambda mill: mill.search("or"),
    "subscriber.read": lambda mill: mill.subscribers.read("erp", limit=2),
    "subscriber.show": lambda mill: mill.subscribers.show("erp"),
    "token.list": lambda mill: [one.name for one in mill.tokens.list()],
    "topic.show": lambda mill: mill.topics.show("data"),
    "tx.show": lambda mill: mill.transactions.show(mill.transactions.list()[0].write_pointer),
    "watermark.show": lambda mill: mill.watermarks.show("orders"),
    "why": lambda mill: mill.why("orders", kind="dataset"),
}


def open_alert_of(mill: Mill) -> str:
    """Return the id of the alert that the fixture opened."""
    return mill.alerts.list()[0].alert_id


NEVER_THE_SAME = {"inbox.arrivals", "metrics", "overview"}
"""Their answers hold ages and rates of the moment."""
ELSEWHERE = {"snapshot.compare"}
"""Played by tests/mill/test_snapshot_comparison.py, with the client too."""


@pytest.fixture
def far(stage: Stage) -> Iterator[Mill]:
    """A client of the project, whose token may do all."""
    with served(stage) as found:
        yield found


@contextmanager
def served(stage: Stage) -> Iterator[Mill]:
    """A client of a server of the project."""
    with serving(stage.mill) as (url, secret), connect(url, token=secret) as mill:
        yield mill


@pytest.fixture
def stage(catalog_url, tmp_path) -> Iterator[Stage]:
    """A project in which something of each kind has happened."""
    with staged(tmp_path, catalog_url, BUSY, ManualClock(), environ=ANY_PORT) as made:
        make_busy(made)
        made.mill.subscribers.create("erp", "data", start="beginning")
        made.mill.backfills.start("shop.sift", dataset="orders", select="all")
        made.sql(
            "INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at) "
            "VALUES ('alert_1', 'rule_1', 'default', 'default.mine', 'x', 'OPEN', 'y', 1, 1) RETURNING 1"
        )
        yield made


def test_each_read_gives_the_same_record(stage, far):
    """A script moves from the machine of the catalog to another one by one line."""
    for name, read in READS.items():
        found, known = read(far), read(stage.mill)
        assert type(found) is type(known), name
        # Values of keys, which Python has as dates, are text.
        assert found == known or to_answer(found) == to_answer(known), name


def test_each_list_gives_the_same_pages(tmp_path, monkeypatch):
    """Rows, order and the key of the next page, at one moment: some rows tell an age."""
    with staged(tmp_path, f"sqlite:///{tmp_path}/catalog.db", LISTED, ManualClock(), environ=ANY_PORT) as stage:
        fill(stage)
        with served(stage) as far:
            for action, bind in LISTS.items():
                one, many = bind(far)(limit=1), bind(far)(limit=50)
                assert (one, many) == (bind(stage.mill)(limit=1), bind(stage.mill)(limit=50)), action
                assert isinstance(many, tm.Page)
                with monkeypatch.context() as patched:  # a page of any size is read in parts
                    patched.setattr("tidemill.client.connect.MOST", 2)
                    for limit in (3, 4, 50):
                        assert bind(far)(limit=limit) == bind(stage.mill)(limit=limit), action
            assert list(tm.iterate(far.runs.list, limit=1)) == list(stage.mill.runs.list())


@pytest.mark.parametrize("action", sorted(PLAYS.keys() - {"catalog.restore"}))
def test_each_change_is_made(tmp_path, action):
    """By the name of the token, and with the result that Python has."""
    play = PLAYS[action]
    with staged(tmp_path, f"sqlite:///{tmp_path}/catalog.db", AUDITED, environ=ANY_PORT) as stage:
        prepared = play.prepare(stage)
        with served(stage) as far:
            done = play.act(far, prepared)

        (row,) = [one for one in stage.mill.audit.log(subject=play.subject) if one.actor.startswith("client@")]
        assert (row.action, row.subject) == (action, play.subject)
        assert done is None or type(done).__module__.startswith("tidemill") or isinstance(done, list)


def test_each_operation_of_a_server_is_tried():
    """An operation that is added without a test may have a record that JSON cannot hold."""
    offered = {one.action for one in OPERATIONS if one.right is Right.READ and not one.mark.no_route}

    assert offered <= READS.keys() | LISTS.keys() | NEVER_THE_SAME | ELSEWHERE


def test_an_operation_beside_the_catalog_is_refused(far):
    """Such a backup would lie on the machine of the server."""
    for refused in (lambda: far.catalog.backup("/tmp/x"), lambda: far.project, far.transaction):
        with raises_code("not_over_http"):
            refused()


def test_an_error_is_the_error_of_python(far, stage):
    """A program catches the same class, and reads the same fields."""
    for mill in (far, stage.mill):
        with pytest.raises(tm.NotFound) as found:
            mill.datasets.show("order")
        assert (found.value.code, found.value.nearest) == ("not_found", "default.orders")
        assert found.value.hint == "did you mean 'default.orders'? `tidemill dataset list` lists them all"
        with pytest.raises(tm.UserError, match="mode 'never'") as refused:
            mill.schedules.suspend("shop.nightly", mode="never")
        assert refused.value.hint.startswith("use ")
        assert str(refused.value).endswith(refused.value.hint)


def test_an_error_has_the_same_parts_on_both_sides(far, stage):
    """A program that shows what is wrong apart from the next step shows the step once, with and without a server."""
    refusals: list[Callable[[Mill], object]] = [
        lambda mill: mill.datasets.show("order"),
        lambda mill: mill.schedules.suspend("shop.nightly", mode="never"),
        lambda mill: mill.consumers.reset("orders", "default.shop.sift", to="2999-01-01"),
        lambda mill: mill.why("orders", kind="nothing"),
        lambda mill: mill.schedules.update("shop.nightly", trigger={"type": "every", "duration": "soon"}),
        lambda mill: mill.runs.start("shop.load", arguments={"nothing": 1}),
    ]
    for refusal in refusals:
        parts = []
        for mill in (far, stage.mill):
            with pytest.raises(tm.TidemillError) as found:
                refusal(mill)
            error = found.value
            parts.append((error.code, str(error), error.wrong, error.hint, error.sentence, error.fields()))
        assert parts[0] == parts[1]
        assert parts[0][2]
        assert parts[0][3] not in parts[0][2]


def test_a_caller_without_a_right_is_refused(far, stage):
    """The server decides, not the client."""
    with served_as(stage, far, "viewer") as viewer, raises_code("forbidden"):
        viewer.runs.start("shop.load")
    with connect(far_url(far), token="tm_none") as stranger, raises_code("unauthorized"):
        stranger.runs.list()


def served_as(stage: Stage, far: Mill, role: str) -> Mill:
    """Return a client of the same server with another role."""
    return connect(far_url(far), token=stage.mill.tokens.create(role, role=role).secret)


def far_url(far: Mill) -> str:
    """Return the address of the server."""
    url: str = vars(far)["_line"].url
    return url


class Breaking:
    """A way to a server on which the first answers are lost: the request arrives, its answer does not."""

    def __init__(self, port: int, losses: int) -> None:
        self._port, self._left = port, losses
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}"
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                near, _ = self._socket.accept()
            except OSError:
                return
            self._left -= 1
            with near, socket.create_connection(("127.0.0.1", self._port)) as far:
                threading.Thread(target=self._pass, args=(near, far), daemon=True).start()
                while part := far.recv(65536):
                    if self._left >= 0:
                        near.shutdown(socket.SHUT_RDWR)  # the server has answered
                        break
                    near.sendall(part)

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        try:
            while part := near.recv(65536):
                far.sendall(part)
            far.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        """Take no more connections."""
        self._socket.close()


def test_a_change_whose_answer_was_lost_is_made_once(stage, far):
    """The client asks again with the same key; the server has kept the answer."""
    way = Breaking(int(far_url(far).rpartition(":")[2]), losses=2)
    before = len(stage.mill.runs.list())
    with served_through(stage, way) as client:
        made = client.runs.start("shop.sift")
    way.close()

    assert len(stage.mill.runs.list()) == before + 1
    assert stage.mill.runs.show(made.run_id).program == "default.shop.sift"


def test_a_change_without_a_key_is_not_sent_again(stage, far):
    """A token whose secret was lost is there, and its name is taken."""
    way = Breaking(int(far_url(far).rpartition(":")[2]), losses=1)
    with served_through(stage, way) as client, raises_code("server_unavailable"):
        client.tokens.create("laptop", role="viewer")
    way.close()

    assert "laptop" in [one.name for one in stage.mill.tokens.list()]


def served_through(stage: Stage, way: Breaking) -> Mill:
    """Return a client whose requests go a way that breaks."""
    return connect(way.url, token=stage.mill.tokens.create("through", role="admin").secret)


def test_a_server_that_is_not_there_is_named():
    """The next step is in the message."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with connect(f"http://127.0.0.1:{port}") as gone, raises_code("server_unavailable", match="tidemill server"):
        gone.runs.list()


@pytest.mark.parametrize("url", ["ftp://x", "x", "http://", "http://example.org:8300", "http://[::1"])
def test_a_bad_address_is_refused(url):
    """A token never goes over a network without TLS."""
    with raises_code("bad_server"):
        connect(url, token="secret")


def test_a_log_is_followed_until_the_run_has_ended(stage, far, tmp_path):
    """The lines come while the run goes on."""
    run_id = stage.mill.runs.start("shop.sift").run_id
    (tmp_path / "1").mkdir()
    out = tmp_path / "1" / "stdout"
    out.write_text("one\nha", encoding="utf-8")
    stage.sql(f"UPDATE run SET log_location = '{tmp_path / '1'}' WHERE run_id = '{run_id}' RETURNING 1")

    lines = far.runs.logs(run_id, follow_every=timedelta(seconds=1))
    first = next(lines)
    out.write_text("one\nhalf\n", encoding="utf-8")
    stage.mill.runs.kill(run_id)

    assert [first, *lines] == [LogLine("stdout", "one"), LogLine("stdout", "half")]


def test_arguments_have_the_form_that_the_server_reads():
    """Values of Python are written as people write them."""
    where = {"day": tm.Range(date(2026, 1, 1), date(2026, 2, 1)), "hour": {5, 6}, "name": "a"}
    assert write_where(where) == ["day>=2026-01-01", "day<2026-02-01", "hour=5", "hour=6", "name=a"]
    assert write_where(["day=2026-01-01"]) == ["day=2026-01-01"]
    assert write_key({"day": date(2026, 1, 1), "name": "a b"}) == 'day=2026-01-01 name="a b"'
    assert write_argument(timedelta(minutes=90)) == "1h30m"
    assert write_argument(datetime(2026, 1, 1, tzinfo=UTC)) == "2026-01-01T00:00:00+00:00"
    assert write_argument(tm.Every("1h")) == {"type": "every", "duration": "1h"}
    deep: list[object] = []
    for _ in range(5000):
        deep = [deep]
    with raises_code("too_deep"):
        write_argument(deep)
