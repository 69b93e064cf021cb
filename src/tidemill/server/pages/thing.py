"""A page of one thing: its head, its actions, its sections, and the record below."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.operation import Right
from tidemill.server.pages.command_line import write_command
from tidemill.server.pages.render import render


@dataclass(frozen=True, slots=True)
class Action:
    """A button: its route, the question before it, and the answer after it. It appears for callers with `right`."""

    label: str
    path: str
    ask: str
    done: str
    right: Right = Right.OPERATE
    method: str = "POST"
    body: str = "{}"
    danger: bool = False
    then: str = ""
    """The page to go to afterwards; empty for the same page."""
    whole: bool = False
    """True if the operation is about all namespaces: a caller of one namespace may not do it."""

    @property
    def command(self) -> str:
        """Return the command that does the same, without `tidemill`."""
        return write_command(self.method, self.path, self.body)


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form: the name of a parameter, its label, an example, and its values where these are few."""

    name: str
    label: str
    hint: str = ""
    value: str = ""
    choices: tuple[str, ...] = ()
    required: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """A form: its button and its fields. It asks for the preview of an action, or calls an operation by its `path`."""

    label: str
    fields: tuple[Field, ...]
    ask: str = ""
    """The preview that the form asks for, by the URL."""
    path: str = ""
    done: str = ""
    """The answer after the operation."""
    kept: tuple[tuple[str, str], ...] = ()
    """Parts of the URL that the form keeps."""


def show_thing(request: Request, *, actions: Iterable[Action] = (), **values: Any) -> HTMLResponse:  # noqa: ANN401
    """Return the page of a thing. `values` are parts of `show.html`; the caller sees only the actions it may do."""
    blank: dict[str, Any] = {
        "sub": "",
        "state": "",
        "facts": (),
        "links": (),
        "timeline": (),
        "strip": (),
        "cells": (),
        "triggers": (),
        "because": (),
        "sections": (),
        "record": None,
        "left_out": (),
    }
    return show_page(request, "show.html", actions=actions, **{**blank, **values})


def show_table(request: Request, *, actions: Iterable[Action] = (), **values: Any) -> HTMLResponse:  # noqa: ANN401
    """Return a page of tables, whose rows may have actions of their own. `values` are parts of `table.html`."""
    blank: dict[str, Any] = {"sub": "", "state": "", "links": (), "form": None, "record": None, "left_out": ()}
    blank |= {"filters": (), "filtered": False}
    sections = [{"acts": False, **one} for one in values.pop("sections")]
    return show_page(request, "table.html", actions=actions, **{**blank, **values, "sections": sections})


def show_page(request: Request, template: str, *, actions: Iterable[Action] = (), **values: Any) -> HTMLResponse:  # noqa: ANN401
    """Return a page with a template of its own. The caller sees only the actions it may do."""
    return render(request, template, actions=allowed(request, actions), **values)


def allowed(request: Request, actions: Iterable[Action]) -> list[Action]:
    """Return the actions that the caller may do."""
    return [one for one in actions if may(request, one)]


def may(request: Request, action: Action) -> bool:
    """Return whether the caller of a page may do an action."""
    return bool(request.state.principal.may(action.right, action.whole))
