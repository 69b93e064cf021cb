"""`tidemill topic`: messages, as they were published."""

from __future__ import annotations

import click

from tidemill.catalog.messages import Topic
from tidemill.cli.output import json_option, open_mill, page_options, parse_payload, say, show_one, show_page
from tidemill.texts import count_of


@click.group(name="topic", help="Topics: messages of commits, and messages of users.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--kind", metavar="KIND", help="Only topics that are built_in, or your own.")
@click.option("--prefix", default="", metavar="TEXT", help="Only topics whose names begin so. Without it: all.")
@page_options
def list_(*, kind: str | None, prefix: str, limit: int, after: str, as_json: bool) -> None:
    """List topics with their newest message, and how far each subscriber has read: all, or those that fit."""
    with open_mill() as mill:
        rows = mill.topics.list(kind=kind, prefix=prefix, limit=limit, after=after)
    none = "no messages yet; the first commit publishes one"
    columns = ("topic", "newest", "newest_at", "subscribers", "outside", "quarantined")
    show_page(rows, columns, as_json=as_json, empty="no topic fits" if kind or prefix else none)


@command.command()
@click.argument("topic")
@json_option
def show(topic: str, *, as_json: bool) -> None:
    """Show a topic: its newest message, and the positions of its subscribers."""
    with open_mill() as mill:
        show_one(mill.topics.show(topic), as_json=as_json)


@command.command()
@click.argument("topic")
@click.option("--since", metavar="TIME", help="Begin with the first message published at TIME or later.")
@page_options
def read(topic: str, *, since: str | None, limit: int, after: str, as_json: bool) -> None:
    """Print messages in order: those after the position --after, or the newest; 0 begins with the first message."""
    with open_mill() as mill:
        rows = mill.topics.read(topic, limit=limit, after=after, since=since)
    columns = ("position", "published_at", "event_type", "event_key", "payload", "flaw")
    show_page(rows, columns, as_json=as_json, empty="no messages behind that position" if after else "no messages yet")


@command.command()
@click.argument("topic")
@page_options
def quarantined(topic: str, *, limit: int, after: str, as_json: bool) -> None:
    """List messages that a subscriber could not read, each with the reason, newest first."""
    with open_mill() as mill:
        rows = mill.topics.quarantined(topic, limit=limit, after=after)
    columns = ("position", "event_key", "subscriber", "reason", "quarantined_at")
    show_page(rows, columns, as_json=as_json, empty="no message is quarantined")


@command.command()
@click.argument("topic")
@click.argument("payload", metavar="[JSON]", default="{}")
@click.option("--key", default="", help="The key of the message, to which a trigger can listen. Without it: none.")
@json_option
def publish(topic: str, payload: str, *, key: str, as_json: bool) -> None:
    """Publish a message, a JSON object, to a topic of your own. The first message makes the topic.

    `data` and `program` are for commits.
    """
    said = parse_payload("JSON", payload)
    with open_mill() as mill:
        published = mill.topics.publish(topic, said, key=key)
    say(published, f"published at {published.position} of {topic}", as_json=as_json)


@command.command()
@click.argument("topic")
@click.option("--keep", metavar="TIME", help="Its messages stay so long, as 30d. Without it: retention.messages.")
@json_option
def create(topic: str, *, keep: str | None, as_json: bool) -> None:
    """Create a topic of your own. The first message of a topic makes it too."""
    with open_mill() as mill:
        created = mill.topics.create(topic, keep=keep)
    say(created, f"topic {topic} is there", as_json=as_json)


@command.command()
@click.argument("topic")
@click.option("--keep", metavar="TIME", help="Its messages stay so long, as 30d. Without it: retention.messages.")
@json_option
def update(topic: str, *, keep: str | None, as_json: bool) -> None:
    """Change the time to live of a topic's messages. Expired messages do not come back."""
    with open_mill() as mill:
        updated = mill.topics.update(topic, keep=keep)
    audited = ", and at least for retention.history, since audits compare them" if topic in set(Topic) else ""
    say(updated, f"messages of {topic} stay for {keep or 'retention.messages'}{audited}", as_json=as_json)


@command.command()
@click.argument("topic")
@json_option
def delete(topic: str, *, as_json: bool) -> None:
    """Delete a topic of your own with all its messages. Call an interrupted deletion again."""
    with open_mill() as mill:
        deleted = mill.topics.delete(topic)
    say(deleted, f"topic {topic} is deleted, with {count_of(deleted.messages, 'message')}", as_json=as_json)
