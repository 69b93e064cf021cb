"""`tidemill subscriber`: readers and receivers of messages outside of Tidemill."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, page_options, parse_json, say, show_one, show_page
from tidemill.mill.plain import to_plain
from tidemill.mill.subscribers import MovedSubscriber


@click.group(name="subscriber", help="Subscribers: named positions in topics, of readers and receivers outside.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--topic", help="Only the subscribers of this topic.")
@click.option("--kind", metavar="KIND", help="Only subscribers that pull, or those to which messages are pushed: push.")
@click.option("--state", metavar="STATE", help="Only subscribers that are failing, behind or current.")
@page_options
def list_(*, limit: int, after: str, as_json: bool, **filters: str | None) -> None:
    """List subscribers by name, with their positions and what waits for them: all, or those that fit each option."""
    with open_mill() as mill:
        rows = mill.subscribers.list(limit=limit, after=after, **filters)
    none = "no subscribers yet; `tidemill subscriber create` makes one"
    columns = ("name", "topic", "to", "state", "position", "newest", "waiting", "oldest_at", "error")
    show_page(rows, columns, as_json=as_json, empty="no subscriber fits" if any(filters.values()) else none)


@command.command()
@click.argument("name")
@json_option
def show(name: str, *, as_json: bool) -> None:
    """Show a subscriber."""
    with open_mill() as mill:
        show_one(mill.subscribers.show(name), as_json=as_json)


@command.command()
@click.argument("name")
@page_options
def read(name: str, *, limit: int, after: str, as_json: bool) -> None:
    """Print the messages behind the position of a subscriber, or behind --after. Acknowledge the position it prints."""
    with open_mill() as mill:
        found = mill.subscribers.read(name, limit=limit, after=after)
    if as_json:
        say(found, "", as_json=True)
        return
    for one in found.messages:
        click.echo(f"{one.position}  {one.event_type}  {one.event_key}  {to_plain(one)['payload']}")
    more = "; there is more" if found.more else ""
    click.echo(f"acknowledge {found.position}{more}")


@command.command()
@click.argument("name")
@page_options
def deliveries(name: str, *, limit: int, after: str, as_json: bool) -> None:
    """List the messages that the receiver refused for a day. `tidemill alert retry` tries one of them again."""
    with open_mill() as mill:
        rows = mill.subscribers.deliveries(name, limit=limit, after=after)
    columns = ("delivery_id", "target", "event", "state", "attempt", "made_at", "error")
    show_page(rows, columns, as_json=as_json, empty="no message was given up")


@command.command()
@click.argument("name")
@click.argument("topic")
@click.option("--start", default="now", show_default=True, help="Begin at now, beginning, a position, or a time.")
@click.option("--event-type", default="", help="Leave out messages of other types. Without it: none.")
@click.option("--key-prefix", default="", help="Leave out messages whose key begins otherwise. Without it: none.")
@click.option("--to", "target", metavar="JSON", help='{"type": "web_hook", "url": "https://…"}. Without it: for reads.')
@json_option
def create(
    name: str, topic: str, *, start: str, event_type: str, key_prefix: str, target: str | None, as_json: bool
) -> None:
    """Create a subscriber of a topic, which reads, or to whose target messages are pushed."""
    to = None if target is None else parse_json("--to", target)
    with open_mill() as mill:
        made = mill.subscribers.create(name, topic, start=start, event_type=event_type, key_prefix=key_prefix, to=to)
    say(made, f"{name} is at {made.position} of {topic}", as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("position")
@click.option(
    "--expected", default="", metavar="POSITION", help="Move only from here. Without it, from anywhere before."
)
@json_option
def acknowledge(name: str, position: str, *, expected: str, as_json: bool) -> None:
    """Move a subscriber forward: all messages up to POSITION are processed."""
    with open_mill() as mill:
        done = mill.subscribers.acknowledge(name, position, expected=expected)
    _say_moved(done, as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("start")
@json_option
def reset(name: str, start: str, *, as_json: bool) -> None:
    """Move a subscriber to START, which is now, beginning, a position such as 17.0, or a time; also back."""
    with open_mill() as mill:
        done = mill.subscribers.reset(name, start)
    _say_moved(done, as_json=as_json)


@command.command()
@click.argument("name")
@json_option
def delete(name: str, *, as_json: bool) -> None:
    """Delete a subscriber. Its messages stay in their topic."""
    with open_mill() as mill:
        done = mill.subscribers.delete(name)
    say(done, f"{name} is deleted", as_json=as_json)


def _say_moved(done: MovedSubscriber, *, as_json: bool) -> None:
    say(done, f"{done.name} {'moved to' if done.changed else 'stays at'} {done.position}", as_json=as_json)
