"""Bodies that are wrongly encoded, nested, huge or torn: one clear answer, nothing changed, others go on."""

from __future__ import annotations

import gzip
import json

import pytest

from tests.server.test_rates import connect, status_of
from tests.yardstick import patience

RUN = {"program": "shop.load"}
BODIES = {
    "latin-1": b'{"program": "\xe9"}',
    "utf-16": json.dumps(RUN).encode("utf-16"),
    "utf-32 without a mark": json.dumps(RUN).encode("utf-32-le"),
    "half a pair": b'{"program": "\\ud800"}',
    "NUL": b'{"program": "\\u0000"}',
    "raw NUL": b'{"program": "\x00"}',
    "nested": b"[" * 200_000,
    "nested and closed": b'{"program": "shop.load", "arguments": {"x": ' + b"[" * 50_000 + b"]" * 50_000 + b"}}",
    "digits": b'{"program": ' + b"9" * 100_000 + b"}",
    "not a number": b'{"program": NaN}',
    "infinite": b'{"program": "shop.load", "arguments": {"n": 1e999}}',
    "two names": b'{"program": "shop.none", "program": "shop.nothing"}',
    "gzip": gzip.compress(json.dumps(RUN).encode()),
    "text": b'"shop.load"',
    "empty": b"",
    "blank": b" \r\n\t",
    "two documents": b'{"program": "shop.load"}{"program": "shop.load"}',
    "comment": b'{"program": "shop.load" /* one */}',
    "long name": b'{"program": "' + b"x" * 2_000_000 + b'"}',
    "many fields": json.dumps({f"f{number}": number for number in range(50_000)}).encode(),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_is_no_request_is_refused_and_changes_nothing(sign, stage, name):
    """Each is a 4xx with a problem, never a defect, and the answer does not repeat a huge body."""
    client = sign("operator")
    headers = {"content-type": "application/json", "idempotency-key": "k"}

    answer = client.post("/v1/runs", content=BODIES[name], headers=headers)

    assert 400 <= answer.status_code < 500, answer.text[:500]
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert len(answer.content) < 40_000
    assert list(stage.mill.runs.list()) == []
    assert client.get("/v1/runs").status_code == 200


@pytest.mark.parametrize(
    "lines",
    [
        ["content-length: 10", "content-length: 2"],
        ["content-length: 2", "transfer-encoding: chunked"],
        ["transfer-encoding: gzip, chunked"],
        ["content-length: +2"],
        ["content-length: 2, 2"],
        ["content-encoding: gzip", "content-length: 2"],
    ],
)
def test_heads_that_two_readers_read_in_two_ways_start_no_second_request(sign, stage, lines):
    """A proxy and a server that disagree about the end of a body let a caller smuggle requests."""
    client = sign("operator")
    hidden = f"POST /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {client.headers['authorization']}\r\n"
    hidden += f"content-type: application/json\r\ncontent-length: 24\r\n\r\n{json.dumps(RUN)}"
    head = ["POST /v1/schedules/shop.nightly:suspend HTTP/1.1", "host: 127.0.0.1", "content-type: application/json"]
    text = "\r\n".join([*head, f"authorization: {client.headers['authorization']}", *lines, "", "{}" + hidden])
    with connect(client) as connection:
        connection.sendall(text.encode())
        first = status_of(connection)
        connection.settimeout(patience(2))
        try:
            while connection.recv(10_000):
                pass
        except (TimeoutError, ConnectionError):
            pass

    assert list(stage.mill.runs.list()) == [] or first == 200
    assert client.get("/v1/runs").status_code == 200


def test_a_head_that_stops_in_the_middle_holds_up_no_request(sign):
    """Thirty-two callers that send a letter a minute would hold all threads, if heads were read by threads."""
    client = sign("viewer")
    opened = [connect(client) for _ in range(32)]
    for one in opened:
        one.sendall(b"GET /v1/runs HTTP/1.1\r\nhost: 127.0.0.1\r\nx-slow: ")

    assert client.get("/v1/runs").status_code == 200
    for one in opened:
        one.close()


def test_a_client_that_does_not_read_its_answer_holds_up_no_request(sign, stage):
    """Answers wait in sockets, and no thread waits for them."""
    client = sign("viewer")
    stage.mill.topics.publish("own", {"text": "x" * 60_000})
    token = client.headers["authorization"]
    ask = f"GET /v1/topics/own/messages HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: {token}\r\n"
    opened = [connect(client) for _ in range(32)]
    for one in opened:
        one.sendall(f"{ask}\r\n".encode() * 40)

    assert client.get("/v1/runs").status_code == 200
    for one in opened:
        one.close()
