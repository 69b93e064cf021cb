"""A page of one thing: its head, its actions, its sections, and the record below."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.operation import Right
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


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a form: the name of the operation's parameter, its label, and its values where these are few."""

    name: str
    label: str
    choices: tuple[str, ...] = ()
    required: bool = False
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Form:
    """A form that calls an operation: its button, its route, the answer after it, and its fields."""

    label: str
    path: str
    done: str
    fields: tuple[Field, ...]


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
    sections = [{"acts": False, **one} for one in values.pop("sections")]
    return show_page(request, "table.html", actions=actions, **{**blank, **values, "sections": sections})


def show_page(request: Request, template: str, *, actions: Iterable[Action] = (), **values: Any) -> HTMLResponse:  # noqa: ANN401
    """Return a page with a template of its own. The caller sees only the actions it may do."""
    return render(request, template, actions=allowed(request, actions), **values)


def allowed(request: Request, actions: Iterable[Action]) -> list[Action]:
    """Return the actions that the caller may do."""
    role = request.state.principal.role
    return [one for one in actions if role.grants(one.right)]
