"""`tidemill alert`: what is wrong for too long, and the notices about it."""

from __future__ import annotations

from collections.abc import Sequence

import click

from tidemill.cli.output import json_option, open_mill, page_options, parse_json, say, show_one, show_page
from tidemill.epoch import show_time


@click.group(name="alert", help="Alerts: what is wrong for too long, the rules about it, and what was sent.")
def command() -> None:
    """Group of the verbs."""


@command.command("list")
@click.option("--rule", metavar="RULE", help="Only the alerts of this rule.")
@click.option("--resolved", is_flag=True, help="List alerts that have ended too.")
@page_options
def list_(*, rule: str | None, resolved: bool, limit: int, after: str, as_json: bool) -> None:
    """List the newest alerts first."""
    with open_mill() as mill:
        rows = mill.alerts.list(rule=rule, resolved=resolved, limit=limit, after=after)
    columns = ("alert_id", "rule", "subject", "state", "since", "why")
    show_page(rows, columns, as_json=as_json, empty="no alert is open; `tidemill alert rules` lists the rules")


@command.command()
@click.argument("alert_id")
@json_option
def show(alert_id: str, *, as_json: bool) -> None:
    """Show an alert."""
    with open_mill() as mill:
        show_one(mill.alerts.show(alert_id), as_json=as_json)


@command.command()
@click.option("--app", metavar="APP", help="Only the rules that this app declares.")
@page_options
def rules(app: str | None, *, limit: int, after: str, as_json: bool) -> None:
    """List the rules by name."""
    with open_mill() as mill:
        rows = mill.alerts.rules(app=app, limit=limit, after=after)
    columns = ("name", "app", "rule", "to", "repeat", "silent_until", "next_look_at")
    show_page(rows, columns, as_json=as_json, empty="no rules yet; declare one in the app: app.alert(…)")


@command.command()
@click.option("--alert", metavar="ALERT_ID", help="Only those of this alert.")
@click.option("--state", metavar="STATE", help="Only those in this state: waiting, sent or dead.")
@page_options
def deliveries(*, alert: str | None, state: str | None, limit: int, after: str, as_json: bool) -> None:
    """List what was sent to targets, what waits, and what was given up: the newest first."""
    with open_mill() as mill:
        rows = mill.alerts.deliveries(alert=alert, state=state, limit=limit, after=after)
    columns = ("delivery_id", "target", "event", "state", "attempt", "made_at", "error")
    show_page(rows, columns, as_json=as_json, empty="nothing was sent yet")


@command.command()
@click.argument("name")
@click.argument("rule", metavar="JSON")
@click.option("--to", "targets", multiple=True, metavar="JSON", help='{"type": "web_hook", "url": "https://…"}')
@click.option("--repeat", metavar="DURATION", help="Notify the targets again after this time, until the end.")
@click.option("--description", default="", metavar="TEXT", help="A text for the people that are notified.")
@json_option
def create(
    name: str, rule: str, *, targets: Sequence[str], repeat: str | None, description: str, as_json: bool
) -> None:
    """Create a rule that no app declares, such as '{"type": "run_failed", "program": "shop.load"}'."""
    to = [parse_json("--to", one) for one in targets]
    with open_mill() as mill:
        made = mill.alerts.create(name, parse_json("the rule", rule), to=to, repeat=repeat, description=description)
    say(made, f"{made.name} is watched", as_json=as_json)


@command.command()
@click.argument("name")
@click.option("--rule", metavar="JSON", help='Another rule, such as \'{"type": "run_failed"}\'.')
@click.option("--to", "targets", multiple=True, metavar="JSON", help="The targets, instead of those that the rule has.")
@click.option("--no-targets", is_flag=True, help="Notify no target any more.")
@click.option("--repeat", metavar="DURATION", help="Notify again after this time; 0s for never.")
@click.option("--description", metavar="TEXT", help="A text for the people that are notified.")
@json_option
def update(
    name: str,
    rule: str | None,
    targets: Sequence[str],
    repeat: str | None,
    description: str | None,
    *,
    no_targets: bool,
    as_json: bool,
) -> None:
    """Change what is given of a rule that no app declares. Its alerts and its silence stay."""
    if targets and no_targets:
        raise click.UsageError("--to and --no-targets exclude each other")
    to = [parse_json("--to", one) for one in targets] if targets or no_targets else None
    wanted = None if rule is None else parse_json("--rule", rule)
    with open_mill() as mill:
        made = mill.alerts.update(name, rule=wanted, to=to, repeat=repeat, description=description)
    say(made, f"{made.name} {'is changed' if made.changed else 'was so before'}", as_json=as_json)


@command.command()
@click.argument("name")
@json_option
def delete(name: str, *, as_json: bool) -> None:
    """Delete a rule that no app declares, and resolve its alerts."""
    with open_mill() as mill:
        done = mill.alerts.delete(name)
    say(done, f"{done.name} is deleted", as_json=as_json)


@command.command()
@click.argument("alert_id")
@json_option
def acknowledge(alert_id: str, *, as_json: bool) -> None:
    """Say that you work on an alert. Its targets are notified of that, and later of its end alone."""
    with open_mill() as mill:
        done = mill.alerts.acknowledge(alert_id)
    say(done, f"{alert_id} is {done.state.lower()}", as_json=as_json)


@command.command()
@click.argument("name", metavar="RULE|ALERT_ID")
@click.option("--subject", metavar="SUBJECT", help="Send nothing about this subject alone, such as a program.")
@click.option("--for", "duration", metavar="DURATION", help="Send nothing for this time. Without it, end the silence.")
@json_option
def silence(name: str, *, subject: str | None, duration: str | None, as_json: bool) -> None:
    """Send nothing about a rule, or about the subject of one alert, for a time. Alerts open and end as before."""
    with open_mill() as mill:
        done = mill.alerts.silence(name, subject=subject, duration=duration)
    about = "" if done.subject is None else f" about {done.subject}"
    until = f"is no longer silent{about}" if done.changed else f"was not silent{about}"
    if done.silent_until is not None:
        until = f"is silent{about} until {show_time(done.silent_until)}"
    say(done, f"{done.rule} {until}", as_json=as_json)


@command.command()
@click.argument("delivery_id")
@json_option
def retry(delivery_id: str, *, as_json: bool) -> None:
    """Try a dead delivery once more, as the next of its target."""
    with open_mill() as mill:
        done = mill.alerts.retry(delivery_id)
    say(done, f"{delivery_id} {'is tried again' if done.changed else 'is not dead'}", as_json=as_json)
