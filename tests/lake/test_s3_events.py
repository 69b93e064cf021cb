"""Events of S3 as its services send them, and the files that they mean."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.errors import raises_code
from tidemill.lake.inbox.s3_events import MOST_EVENTS, BadEvents, ObjectEvent, find_name, read_events

NAME = "landing/orders/a b+c.csv"
CREATED = ObjectEvent("bucket", NAME, created=True)


def record(key: str = "landing/orders/a+b%2Bc.csv", event: str = "ObjectCreated:Put") -> dict[str, Any]:
    """Return a record as S3 writes it, with the key encoded as in a form."""
    about = {"bucket": {"name": "bucket"}, "object": {"key": key, "size": 999, "eTag": "forged"}}
    return {"eventVersion": "2.1", "eventSource": "aws:s3", "eventName": event, "s3": about}


S3 = {"Records": [record()]}
SNS = {"Type": "Notification", "TopicArn": "arn:aws:sns:eu:1:t", "Message": json.dumps(S3)}
BRIDGE = {
    "version": "0",
    "detail-type": "Object Created",
    "source": "aws.s3",
    "detail": {"bucket": {"name": "bucket"}, "object": {"key": NAME, "size": 1}, "reason": "PutObject"},
}
ENVELOPES = {
    "s3": S3,
    "minio": {"EventName": "s3:ObjectCreated:Put", "Key": "x", "Records": [record(event="s3:ObjectCreated:Put")]},
    "sqs message": {"MessageId": "1", "ReceiptHandle": "x", "Body": json.dumps(S3)},
    "sqs answer": {"Messages": [{"MessageId": "1", "Body": json.dumps(S3)}]},
    "sqs to lambda": {"Records": [{"messageId": "1", "body": json.dumps(S3)}]},
    "sns": SNS,
    "sns to lambda": {"Records": [{"EventSource": "aws:sns", "Sns": SNS}]},
    "sns to sqs": {"Messages": [{"Body": json.dumps(SNS)}]},
    "eventbridge": BRIDGE,
    "eventbridge to sqs": {"Messages": [{"Body": json.dumps(BRIDGE)}]},
    "list of a pipe": [BRIDGE],
    "text": json.dumps(S3),
}


@pytest.mark.parametrize("envelope", ENVELOPES)
def test_each_envelope_gives_the_name_of_the_object_as_it_is(envelope):
    """S3 encodes a blank as + and a plus as %2B; EventBridge does not encode at all."""
    assert read_events(ENVELOPES[envelope]).found == [CREATED]


def test_events_about_other_things_than_new_objects_are_no_new_files():
    """A deleted object is no file."""
    bodies = [
        {"Records": [record(event="ObjectRemoved:Delete")]},
        {"Records": [record(event="ObjectTagging:Put")]},
        BRIDGE | {"detail-type": "Object Deleted"},
    ]

    assert [one.created for body in bodies for one in read_events(body).found] == [False, False, False]
    assert read_events({"Service": "Amazon S3", "Event": "s3:TestEvent", "Bucket": "bucket"}).found == []


def test_a_bad_part_of_a_batch_stops_no_other_part():
    """A queue would give the batch again, for ever."""
    events = read_events({"Messages": [{"Body": "hello"}, {"Body": json.dumps(S3)}, {"MessageId": "3"}, 7]})

    assert events.found == [CREATED]
    assert len(events.unreadable) == 3


DEEP: Any = S3
for _ in range(20):
    DEEP = json.dumps([DEEP])


@pytest.mark.parametrize(
    "body", [{}, [[[[[[[[[[]]]]]]]]]], None, 7, True, "", "[" * 50_000, {"Records": "x"}, {"Body": 1}]
)
def test_a_body_that_is_no_notification_is_refused_or_has_no_events(body):
    """Any system may send anything."""
    try:
        found = read_events(body).found
    except BadEvents:
        return

    assert found == []


def test_envelopes_without_end_are_not_opened():
    """Each level costs a copy of the text."""
    assert read_events(DEEP).found == []


def test_the_number_of_events_is_bounded():
    """Each event costs a look at a file."""
    assert len(read_events({"Records": [record()] * MOST_EVENTS}).found) == MOST_EVENTS
    with raises_code("too_many_events"):
        read_events([{"Records": [record()] * MOST_EVENTS}, {"Records": [record()]}])


@pytest.mark.parametrize("key", ["a" * 1025, "%C3%A4" * 513, "a/" * 512 + "bc"])
def test_a_key_that_no_object_has_is_refused(key):
    """By its bytes in UTF-8, as S3 counts them; one that is as long as a key may be is read."""
    with raises_code("object_key_too_long", match="at most"):
        read_events(record(key))
    batch = read_events({"Records": [record(key), record("a" * 1024), record("%C3%A4" * 512)]})

    assert [len(event.key.encode()) for event in batch.found] == [1024, 1024]
    assert "1024 at most" in batch.unreadable[0]


def test_a_subscription_is_confirmed_by_its_owner():
    """A server that visits addresses in requests can be sent anywhere."""
    asked = {"Type": "SubscriptionConfirmation", "TopicArn": "arn:t", "SubscribeURL": "http://169.254.169.254/"}
    with raises_code("subscription_not_confirmed", match="confirm-subscription"):
        read_events(asked)


@pytest.mark.parametrize(
    ("location", "key", "name"),
    [
        ("file:///mnt/landing/orders", "landing/orders/a.csv", "a.csv"),
        ("file:///mnt/bucket/landing/orders", "landing/orders/day/a.csv", "day/a.csv"),
        ("file:///mnt/orders", "orders/a.csv", "a.csv"),
        ("file:///mnt/bucket", "a.csv", "a.csv"),
        ("file:///mnt/bucket", "orders/a.csv", "orders/a.csv"),
        ("file:///mnt/two%20words", "two words/a.csv", "a.csv"),
        ("file:///mnt/orders/orders", "orders/orders/orders/a.csv", "orders/a.csv"),
        ("file:///mnt/landing/orders", "landing/users/a.csv", None),
        ("file:///mnt/landing/orders", "a.csv", None),
        ("file:///mnt/landing/orders", "", None),
        ("file:///mnt/landing/orders", "ing/orders/a.csv", None),
    ],
)
def test_an_object_belongs_to_the_folder_that_ends_in_its_prefix(location, key, name):
    """Events of other prefixes of the bucket come to the same queue."""
    assert find_name(location, ObjectEvent("bucket", key, created=True)) == name
