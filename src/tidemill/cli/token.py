"""`tidemill token`: secrets by which programs use the server."""

from __future__ import annotations

import click

from tidemill.cli.output import json_option, open_mill, page_options, say, show_page


@click.group(name="token", help="Tokens: secrets by which programs use the server.")
def command() -> None:
    """Group of the verbs."""


@command.command()
@click.argument("name")
@click.option(
    "--role",
    required=True,
    type=click.Choice(["viewer", "operator", "developer", "admin"]),
    help="The role of the token.",
)
@click.option("--namespace", metavar="NAMESPACE", help="The only namespace of the token; without the option, all.")
@click.option("--expires", metavar="DURATION", help="The life of the token, such as 90d; without the option, no end.")
@json_option
def create(name: str, role: str, *, namespace: str | None, expires: str | None, as_json: bool) -> None:
    """Create a token, and print its secret once."""
    with open_mill() as mill:
        made = mill.tokens.create(name, role=role, namespace=namespace, expires=expires)
    say(made, made.secret, as_json=as_json)


@command.command("list")
@click.option("--namespace", metavar="NAMESPACE", help="Only tokens of this namespace; '*' for tokens of all.")
@click.option("--role", metavar="ROLE", help="Only tokens with this role.")
@page_options
def list_(*, namespace: str | None, role: str | None, limit: int, after: str, as_json: bool) -> None:
    """List tokens by name, with their last use."""
    with open_mill() as mill:
        rows = mill.tokens.list(namespace=namespace, role=role, limit=limit, after=after)
    columns = ("name", "prefix", "role", "namespace", "created_at", "expires_at", "last_used_at", "ended_at")
    none = "no tokens yet; `tidemill token create NAME --role viewer` creates one"
    show_page(rows, columns, as_json=as_json, empty=none)


@command.command()
@click.argument("name")
@json_option
def revoke(name: str, *, as_json: bool) -> None:
    """Revoke a token: all servers refuse it at once."""
    with open_mill() as mill:
        done = mill.tokens.revoke(name)
    say(done, f"token {name} is revoked", as_json=as_json)
