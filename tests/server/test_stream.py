"""Live events of a real server: each message once, from where the stream broke."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager

from httpx import Client


@contextmanager
def listening(client: Client, path: str, last: str = ""):
    """Yield an iterator of (id, event, data) of a stream."""
    headers = {"last-event-id": last} if last else {}
    with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        assert next(lines) == ": connected"

        def events():
            event = {"id": ""}
            for line in lines:
                name, _, value = line.partition(": ")
                if line and name:
                    event[name] = value
                elif not line and "data" in event:
                    yield event["id"], event["event"], json.loads(event["data"])
                    event = {"id": ""}

        yield events()


def test_a_commit_wakes_a_client(sign, stage):
    """A page is fetched again when something has changed."""
    with listening(sign("viewer"), "/v1/stream") as events:
        stage.mill.schedules.suspend("shop.nightly")

        assert next(events)[1:] == ("commit", {})


def test_messages_come_once_and_in_order_from_where_the_stream_broke(sign, stage):
    """A client that connects again must miss nothing, and get nothing twice."""
    client = sign("viewer")
    stage.mill.topics.publish("own", {"n": 0})
    with listening(client, "/v1/stream?topics=own") as events:
        writer = threading.Thread(target=lambda: [stage.mill.topics.publish("own", {"n": n}) for n in (1, 2, 3)])
        writer.start()
        first = [next(events) for _ in range(2)]
        writer.join()
    stage.mill.topics.publish("own", {"n": 4})
    with listening(client, "/v1/stream?topics=own", last=first[-1][0]) as events:
        rest = [next(events) for _ in range(2)]

    assert [data["payload"]["n"] for _, _, data in first + rest] == [1, 2, 3, 4]


def test_a_caller_of_one_namespace_reads_no_topics(sign):
    """Topics hold messages of all namespaces."""
    client = sign("admin", "default")

    assert client.get("/v1/stream?topics=own").status_code == 403
