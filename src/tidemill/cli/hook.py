"""`tidemill hook`: signals from outside that start programs."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, parse_payload, say


@click.group(name="hook", help="Hooks: signals from outside that start programs.")
def command() -> None:
    """Group of the verbs."""


@command.command()
@click.argument("name")
@click.option("--payload", default="{}", metavar="JSON", help="What the hook carries, a JSON object. Without it: {}.")
@click.option("--delivery", metavar="ID", help="An id of this delivery: the same id counts once in 24 hours.")
@json_option
def fire(name: str, payload: str, *, delivery: str | None, as_json: bool) -> None:
    """Fire a hook: start what waits for `Hook("NAME")`. Print the schedules that listen."""
    said = parse_payload("--payload", payload)
    with open_mill() as mill:
        fired = mill.hooks.fire(name, said, delivery=delivery)
    listeners = ", ".join(fired.schedules) or "no schedule"
    before = ", as it was before: this delivery counts once" if fired.again else ""
    say(fired, f"{fired.hook} is fired at {fired.position} of hook{before}; {listeners} listens", as_json=as_json)
