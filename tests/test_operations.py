"""Operations as data: one list for command line, server and pages, with the right that each operation needs."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from inspect import signature
from pathlib import Path
from types import UnionType
from typing import get_args, get_origin

import click
import pytest

from tests.test_words import Text, breaches_of
from tidemill.cli.main import cli
from tidemill.mill.operation import Right
from tidemill.mill.operations import NOUNS, OPERATIONS
from tidemill.mill.page import Page
from tidemill.mill.routes import route_of
from tidemill.server.pages.lists import LISTS
from tidemill.server.pages.routes import PAGES_OF_THINGS
from tools import reference

NO_OPERATION = {
    "catalog migrate": "works on a catalog that `Mill` refuses to open",
    "demo": "makes a project of its own",
    "doctor": "answers before there is a project",
    "init": "makes a project",
    "up": "is a process, not an operation",
    "server": "is a process, not an operation",
    "scheduler": "is a process, not an operation",
    "runner": "is a process, not an operation",
    "janitor": "is a process, not an operation",
    "open": "opens a browser",
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


OTHER_WORDS = {
    "app.deploy": ("deploy", "the app file is that of the project, and names its apps"),
    "app.plan": ("plan", "the app file is that of the project, and names its apps"),
    "catalog.audit": ("audit check", "`tidemill audit` alone is the command that people look for in an alarm"),
    "inbox.explain": ("inbox files", "the list of the files says why they wait"),
    "inbox.get_latest_files": ("inbox claim", "GetLatestFiles and UpdateFileStatus are the words of seed 004"),
    "inbox.update_file_status": ("inbox update", "as above"),
    "inbox.renew_claim": ("inbox renew", "as above"),
    "inbox.release_claim": ("inbox release", "as above"),
    "job.history": ("job list", "its option --history"),
    "node.drain": ("drain", "the word that operators look for before they stop a machine"),
    "schedule.create_many": ("schedule create", "its option --file"),
    "schedule.delete_many": ("schedule delete", "it takes several names"),
    "schedule.resume_suspended": ("schedule resume", "its option --suspended-between"),
    "schedule.suspend_all": ("schedule suspend", "its option --all"),
}
"""Operations whose command has other words, with the reason."""
CRUD = {
    "list": "GET",
    "log": "GET",
    "show": "GET",
    "begin": "POST",
    "create": "POST",
    "start": "POST",
    "update": "PATCH",
    "delete": "DELETE",
} | {"deploy": "PUT"}
NO_LIST_PAGE = {
    "catalog": "its upkeep is done beside it, by commands",
    "hook": "fired from outside; a hook is a node of /flow",
    "snapshot": "a data set of that kind, which /datasets lists",
}
NO_THING_PAGE = NO_LIST_PAGE | {
    "audit": "the list shows all of an entry",
    "node": "the list shows all of a node",
    "subscriber": "the list shows all of a subscriber",
    "token": "the list shows all of a token",
}


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.action)
def test_method_command_and_route_have_the_same_words(operation):
    """With the name of a method a person can guess its command and its route."""
    words = f"{operation.noun} {operation.verb.replace('_', '-')}".strip()
    other = OTHER_WORDS.get(operation.action, (words, ""))[0]
    assert operation.mark.no_command or operation.command == other
    if operation.mark.no_route:
        return
    route = route_of(operation)
    place = f"/v1/{operation.attribute}" if operation.noun else "/v1"
    verb = operation.verb.replace("_", "-")

    assert route.path.startswith(place)
    if verb in CRUD and operation.noun:
        assert route.method == CRUD[verb]
        assert not re.search(r"[:/][a-z-]+$", route.path.removeprefix(place))
    elif operation.mark.parts:
        assert route.path.endswith(f"}}/{operation.mark.parts}")
        assert route.method == ("GET" if operation.right is Right.READ else "POST")
    else:
        assert re.search(rf"[:/]{verb}$", route.path)


def test_the_reasons_are_needed():
    """A reason that outlives its exception hides the next one."""
    by_action = {one.action: one for one in OPERATIONS}
    plain = {one.action for one in OPERATIONS if one.command == f"{one.noun} {one.verb.replace('_', '-')}".strip()}

    assert OTHER_WORDS.keys() <= by_action.keys() - plain
    assert {noun.noun for noun in NOUNS} >= NO_THING_PAGE.keys()


@pytest.mark.parametrize("noun", NOUNS, ids=lambda noun: noun.noun)
def test_each_noun_has_pages_with_its_word(noun):
    """`mill.runs` is `/v1/runs` and the pages `/runs` and `/runs/{run_id}`."""
    attribute = next(one.attribute for one in OPERATIONS if one.noun == noun.noun)
    shown = {path for path, _, _ in PAGES_OF_THINGS}

    assert (f"/{attribute}" in shown | {page.path for page in LISTS}) != (noun.noun in NO_LIST_PAGE)
    assert any(path.startswith(f"/{attribute}/{{") for path in shown) != (noun.noun in NO_THING_PAGE)


@pytest.mark.parametrize("page", LISTS, ids=lambda page: page.path)
def test_the_command_beside_a_list_is_a_command(page):
    """Readers copy the command."""
    words = page.command.split(" -")[0]

    assert words in COMMANDS


def test_each_public_method_of_a_noun_is_an_operation():
    """A method without a declared right would be open to all callers of the server."""
    methods = {f"{noun.noun}.{name}" for noun in NOUNS for name in vars(noun) if not name.startswith("_")}

    assert methods - {f"{noun.noun}.noun" for noun in NOUNS} == {one.action for one in OPERATIONS if one.noun}


ALL_OF_A_CHANGE = {
    "schedule.suspend_all": "one for each schedule that the transaction suspends",
    "schedule.resume_suspended": "one for each schedule that the transaction resumes",
    "deploy": "one for each app of the app file",
    "plan": "one for each app of the app file",
    "app.plan": "one for each declaration of the caller",
    "sql": "one for each statement of the text",
    "schedule.create_many": "one for each entry of the caller",
    "schedule.delete_many": "one for each name of the caller",
    "dataset.drop": "one for each partition that the transaction drops",
    "dataset.expire": "one for each partition that the transaction drops",
    "dataset.compact": "one for each partition that the transaction compacts",
    "consumer.peek": "one for each partition of the next take, as many as its terms allow",
}
"""Operations that return all records of one transaction or take, with the reason why it is no page."""
NO_RECORD = {
    "dataset.head": "rows of the user, whose columns Tidemill does not know",
    "run.logs": "lines, as long as the program writes some",
    "consumer.consume_partitions": "the named tuple of the seed, which callers take apart",
}


def are_records(hint: object) -> bool:
    """Return whether all values of a type are frozen dataclasses."""
    if get_origin(hint) is UnionType:
        return all(map(are_records, get_args(hint)))
    return isinstance(hint, type) and is_dataclass(hint) and vars(hint)["__dataclass_params__"].frozen


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.action)
def test_each_operation_returns_a_frozen_record_or_a_page_of_them(operation):
    """The server makes its answers of the types of the results: a mapping has none."""
    hint = operation.returns
    many = get_origin(hint) in {Page, list, Sequence}
    (record,) = get_args(hint) if many else (hint,)

    assert are_records(record) != (operation.action in NO_RECORD), hint
    if many:
        assert (get_origin(hint) is Page) == (operation.action not in ALL_OF_A_CHANGE | NO_RECORD)
    assert {"limit", "after"} <= {*signature(operation.method).parameters} or get_origin(hint) is not Page


def test_the_reference_is_current():
    """A page that is written by hand names operations that are no more."""
    assert reference.PAGE.read_text(encoding="utf-8") == reference.write_reference(), "run `make reference`"


def test_what_reads_needs_the_least_right():
    """The right to look is no right to change: a list or `show` that needs more is a slip."""
    looks = {"list", "show", "versions", "diff", "peek", "lag", "files", "partitions", "head", "audit", "fsck"}

    # A list of the tokens is a list of the callers: it is for administrators.
    assert {one.right for one in OPERATIONS if one.verb in looks and one.noun != "token"} == {Right.READ}
    assert [one.action for one in OPERATIONS if one.right is Right.READ and one.mark.no_audit] == []
