"""Operations as data: one list for command line, server and pages, with the right that each operation needs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tests.test_words import Text, breaches_of
from tidemill.cli.main import cli
from tidemill.mill.operation import Right
from tidemill.mill.operations import NOUNS, OPERATIONS

NO_OPERATION = {
    "catalog migrate": "works on a catalog that `Mill` refuses to open",
    "demo": "makes a project of its own",
    "doctor": "answers before there is a project",
    "init": "makes a project",
    "up": "is a process, not an operation",
    "inbox reconcile": "is `inbox scan` with reconcile=True",
}


def commands(group: click.Group, above: str = "") -> Iterator[str]:
    """Yield the words of each command below `group`."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        words = f"{above} {name}".strip()
        if isinstance(command, click.Group):
            yield from commands(command, words)
        else:
            yield words


COMMANDS = set(commands(cli))


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.action)
def test_each_operation_has_a_command_and_a_plain_summary(operation):
    """Half of the users never find an operation that Python offers and the command line does not."""
    breaches = [str(one) for one in breaches_of(Text(Path(__file__), 1, operation.summary, docstring=True))]

    assert operation.summary.endswith(".") or "`" in operation.summary
    assert breaches == []
    assert operation.command in COMMANDS or operation.mark.no_command


def test_each_command_has_an_operation():
    """A command that decides by itself is out of the reach of rights, audit and server."""
    backed = {operation.command for operation in OPERATIONS}

    assert COMMANDS - backed == set(NO_OPERATION)


def test_each_public_method_of_a_noun_is_an_operation():
    """A method without a declared right would be open to all callers of the server."""
    methods = {f"{noun.noun}.{name}" for noun in NOUNS for name in vars(noun) if not name.startswith("_")}

    assert methods - {f"{noun.noun}.noun" for noun in NOUNS} == {one.action for one in OPERATIONS if one.noun}


def test_what_reads_needs_the_least_right():
    """The right to look is no right to change: a list or `show` that needs more is a slip."""
    looks = {"list", "show", "versions", "diff", "peek", "lag", "files", "partitions", "head", "audit", "fsck"}

    assert {one.right for one in OPERATIONS if one.verb in looks} == {Right.READ}
    assert [one.action for one in OPERATIONS if one.right is Right.READ and one.mark.no_audit] == []
