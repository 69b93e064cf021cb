"""Events of S3 over a real server: a hint to look at files, and nothing more."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from httpx import Client

from tests.lake.test_s3_events import BRIDGE, ENVELOPES, record
from tests.stage import Stage, staged
from tidemill.cli.main import main
from tidemill.client.connect import connect
from tidemill.lake.inbox import discovery
from tidemill.mill.inboxes import EventsView
from tidemill.narration import Narrator
from tidemill.roles.discoverer import Discoverer

APP = """
import tidemill as tm

app = tm.App("shop")
orders = app.inbox("orders", "landing/orders", schema="id int", settle="0s")
users = app.inbox("users", "landing/users", schema="id int", settle="200ms")
late = app.fileset("late", keys={"day": "date"})

@app.python(reads=[orders])
def load(run):
    pass
"""
AT = "landing/orders"


@pytest.fixture
def stage(catalog_url: str, tmp_path: Path) -> Iterator[Stage]:
    """Two inboxes, in the folders that mirror two prefixes of one bucket."""
    with staged(tmp_path, catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        yield opened


def land(stage: Stage, name: str, inbox: str = "orders", text: str = "id\n1\n") -> None:
    """Write a file into an inbox."""
    path = stage.mill.project.config.folder / "landing" / inbox / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def send(client: Client, body: object, inbox: str = "orders") -> dict[str, Any]:
    """Send a notification, and return the answer."""
    answer = client.post(f"/v1/inboxes/{inbox}/events", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_each_service_makes_a_file_known_at_once(sign, stage, envelope):
    """Without a listing, and with the message that starts the programs of the inbox."""
    land(stage, "a b+c.csv")

    done = send(sign("operator"), ENVELOPES[envelope])

    assert (done["inbox"], done["events"], done["found"], done["ignored"]) == ("default.orders", 1, ["a b+c.csv"], [])
    (file,) = stage.mill.inboxes.files("orders")
    assert (file.status, file.bytes) == ("NEW", 5)
    assert stage.mill.topics.read("data").items[-1].event_key == "file:default.orders"


def test_what_an_event_says_of_a_file_is_never_trusted(sign, stage):
    """An event is late, and may be forged: size and etag are those of the storage."""
    land(stage, "a.csv", text="id\n1\n2\n")

    send(sign("operator"), {"Records": [record(f"{AT}/a.csv")]})

    (file,) = stage.mill.inboxes.files("orders")
    assert file.bytes == 7


def test_doubled_reordered_and_late_events_give_a_file_once(sign, stage):
    """S3 delivers at least once, in any order; and the listing finds the file too."""
    client = sign("operator")
    land(stage, "a.csv")
    stage.mill.inboxes.scan("orders")
    land(stage, "b.csv")

    first = send(client, {"Records": [record(f"{AT}/{name}.csv") for name in "bab"]})
    again = send(client, {"Records": [record(f"{AT}/b.csv")]})

    assert (first["found"], first["ignored"]) == (["b.csv"], [["a.csv", "the file is known"]])
    assert (again["found"], again["ignored"]) == ([], [["b.csv", "the file is known"]])
    assert stage.mill.inboxes.scan("orders").found == ()
    assert len(stage.mill.inboxes.get_latest_files("orders").files) == 2


def test_the_answer_says_why_other_objects_are_ignored(sign, stage):
    """A feed that stays silent is found by its reasons."""
    land(stage, "a.csv")
    land(stage, "b.csv_current")
    land(stage, "_temporary/c.csv")
    names = [f"{AT}/a.csv", f"{AT}/b.csv_current", f"{AT}/_temporary/c.csv", f"{AT}/none.csv", "other/a.csv"]
    names += [f"{AT}/..%2F..%2Fapp.py", f"{AT}/%00", f"{AT}/%FF"]
    deleted = record(f"{AT}/a.csv", "ObjectRemoved:Delete")

    done = send(sign("operator"), [{"Records": [*map(record, names), deleted]}, {"Records": ["?"]}])

    why = dict(done["ignored"])
    assert (done["found"], done["events"]) == (["a.csv"], 9)
    assert why["b.csv_current"] == "the name matches *_current"
    assert why["_temporary/c.csv"] == "the name matches _*"
    assert why["none.csv"] == "there is no such file"
    assert why["bucket/other/a.csv"] == "the folder of default.orders does not end in its prefix"
    assert why["bucket/landing/orders/a.csv"] == "the event is about no new object"
    assert "is no notification" in why[""]
    assert len(done["ignored"]) == 9
    assert [file.name for file in stage.mill.inboxes.files("orders")] == ["a.csv"]


def test_a_file_that_is_held_back_has_a_listing_due_at_once(sign, stage):
    """The listing process has listed just now, and would look again in a minute."""
    catalog = stage.mill.project.catalog
    discoverer = Discoverer(catalog, Narrator(stage.world, lambda _: None, as_json=False))
    discoverer.list_due()
    assert catalog.read(discovery.due_listings) == []
    land(stage, "a.csv", "users")

    done = send(sign("operator"), {"Records": [record("landing/users/a.csv")]}, "users")

    assert (done["found"], [name for name, _ in done["held_back"]]) == ([], ["a.csv"])
    assert len(catalog.read(discovery.due_listings)) == 1
    discoverer.list_due()
    stage.world.clock.sleep(stage.mill.inboxes._inbox("users").spec.settle)
    discoverer.list_due()
    assert [file.status for file in stage.mill.inboxes.files("users")] == ["NEW"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"Type": "SubscriptionConfirmation", "TopicArn": "t", "Token": "x"}, "subscription_not_confirmed"),
        ({"hello": 1}, "bad_events"),
        ([{"Records": [record()] * 10_001}], "too_many_events"),
    ],
)
def test_a_body_that_is_no_notification_is_refused(sign, body, code):
    """The answer names the next step."""
    refused = sign("operator").post("/v1/inboxes/orders/events", json=body)

    assert (refused.status_code, refused.json()["code"]) == (422, code)


@pytest.mark.parametrize(
    ("verb", "body"),
    [
        ("/events", record(f"{AT}/{'a' * 1024}")),
        (":release", {"files": ["a" * 1025]}),
        (":retry", {"files": ["ä" * 513]}),
        (":reprocess", {"files": ["a" * 1025]}),
    ],
)
def test_a_name_that_no_file_has_is_refused_by_its_length(sign, verb, body):
    """A name of a megabyte would be looked for in the index of all files, and be echoed."""
    answer = sign("operator").post(f"/v1/inboxes/orders{verb}", json=body)

    assert (answer.status_code, answer.json()["code"]) == (
        422,
        "object_key_too_long" if verb == "/events" else "bad_file_name",
    )
    assert len(answer.text) < 5000


def test_a_claimed_file_and_a_committed_one_are_refused_by_their_length(sign, stage):
    """By the routes of outside engines and writers."""
    client = sign("developer")
    land(stage, "a.csv")
    claim = client.post("/v1/inboxes/orders:get-latest-files", json={}).json()["claim_id"]
    files, change = ["a" * 1025], {"dataset": "late", "key": "day=2026-01-01", "op": "append"}
    closed = client.post(f"/v1/inboxes/{claim}:update-file-status", json={"files": files, "status": "SUCCESS"})
    pointer = client.post("/v1/transactions", json={"writes": ["late"]}).json()["write_pointer"]
    named = change | {"files": [{"name": f"day=2026-01-01/{files[0]}", "bytes": 1, "rows": 1}]}
    committed = client.post(f"/v1/transactions/{pointer}:commit", json={"partitions": [named]})

    assert [(one.status_code, one.json()["code"]) for one in (closed, committed)] == [(422, "bad_file_name")] * 2


def test_a_viewer_and_a_token_of_another_namespace_send_no_events(sign):
    """An event costs looks at the storage."""
    assert sign("viewer").post("/v1/inboxes/orders/events", json=BRIDGE).status_code == 403
    hidden = sign("operator", "elsewhere").post("/v1/inboxes/orders/events", json=BRIDGE)
    assert (hidden.status_code, hidden.json()["detail"]) == (404, "no data set named 'orders'")


def test_a_location_that_is_away_is_no_missing_file(sign, stage):
    """A queue gives the event again later."""
    (stage.mill.project.config.folder / "landing" / "orders").rmdir()

    answer = sign("operator").post("/v1/inboxes/orders/events", json=BRIDGE)

    assert (answer.status_code, answer.json()["code"]) == (503, "storage_unavailable")


def test_the_command_line_and_the_client_do_the_same(sign, stage, capsys, monkeypatch):
    """A worker that polls a queue pipes each message on."""
    land(stage, "a b+c.csv")
    client = sign("operator")
    with connect(str(client.base_url), token=client.headers["authorization"].removeprefix("Bearer ")) as far:
        assert far.inboxes.events("orders", BRIDGE) == EventsView("default.orders", 1, ("a b+c.csv",), (), ())
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(BRIDGE).encode())))
    with pytest.raises(SystemExit, match="0"):
        main(["--project", str(stage.mill.project.config.folder), "inbox", "events", "orders", "--json"])

    assert json.loads(capsys.readouterr().out)["ignored"] == [["a b+c.csv", "the file is known"]]
