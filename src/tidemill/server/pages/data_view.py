"""Parts that pages of data share: what an action will do, plots over time, and links that keep the rest of the URL."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.server.pages.render import render
from tidemill.server.pages.thing import Action, allowed, may

_HEIGHT: Final = 96
"""The height of a plot without JavaScript, in the units of its drawing."""


@dataclass(frozen=True, slots=True)
class Preview:
    """An action that was asked for by a link or a form: what it will do, in numbers, before a button does it.

    Without `action` the caller may not do it, or there is nothing to do; `says` has the reason.
    """

    title: str
    says: str
    command: str
    action: Action | None = None
    rows: Sequence[Mapping[str, Any]] = ()
    columns: Sequence[Any] = ()


@dataclass(frozen=True, slots=True)
class Series:
    """The values of one kind over time: its name in words, the sign and shape of its state, its values."""

    label: str
    sign: str
    shape: str
    values: Sequence[int]


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot of bars over time, stacked: for the plotting script as JSON, without it as a drawing."""

    title: str
    times: Sequence[datetime]
    series: Sequence[Series]
    unit: str
    empty: str
    step: str
    """The time that a bar stands for: `hour` or `day`."""

    @property
    def json(self) -> str:
        """Return the data for the script."""
        return json.dumps(
            {
                "unit": self.unit,
                "step": self.step,
                "times": [int(at.timestamp()) for at in self.times],
                "series": [
                    {"label": one.label, "shape": one.shape, "values": [*one.values]}
                    for one in self.series
                    if any(one.values)
                ],
            }
        )

    @property
    def total(self) -> int:
        """Return the sum of all values."""
        return sum(sum(one.values) for one in self.series)

    @property
    def present(self) -> Sequence[tuple[Series, int]]:
        """Return the kinds that have a value, each with its sum."""
        return [(one, sum(one.values)) for one in self.series if any(one.values)]

    @property
    def most(self) -> int:
        """Return the greatest sum of one time."""
        return max((sum(column) for column in zip(*(one.values for one in self.series), strict=True)), default=0)

    @property
    def bars(self) -> Sequence[Mapping[str, Any]]:
        """Return the rectangles of the drawing, from the bottom up, 10 wide for each time."""
        found = []
        most = self.most or 1
        for place, column in enumerate(zip(*(one.values for one in self.series), strict=True)):
            base = _HEIGHT
            for one, value in zip(self.series, column, strict=True):
                if value:
                    height = max(2, round(_HEIGHT * value / most))
                    base -= height
                    found.append({"x": place * 10 + 1, "y": max(base, 0), "height": height, "shape": one.shape})
        return found

    @property
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return the times that have a value, newest first, with the values by kind."""
        return [
            {"at": at, "values": [one.values[place] for one, _ in self.present]}
            for place, at in reversed([*enumerate(self.times)])
            if any(one.values[place] for one in self.series)
        ]


def show_data(request: Request, template: str, *, actions: Iterable[Action] = (), **values: Any) -> HTMLResponse:  # noqa: ANN401
    """Return a page of data; of the actions, the caller sees those that it may do."""
    blank: dict[str, Any] = {"sub": "", "state": "", "links": (), "preview": None, "forms": (), "notes": ()}
    return render(request, template, actions=allowed(request, actions), **{**blank, **values})


def offered(request: Request, preview: Preview) -> Preview:
    """Return a preview whose action is left out if the caller may not do it."""
    if preview.action is None or may(request, preview.action):
        return preview
    where = " in all namespaces" if preview.action.whole else ""
    says = f"{preview.says} Your role may not do it: it needs the right to {preview.action.right}{where}."
    return Preview(preview.title, says, preview.command, None, preview.rows, preview.columns)


def command_of(*words: object, **options: object) -> str:
    """Return a command line as the shell takes it; `options` follow the words, without those that are empty."""
    given = (word for name, value in options.items() if value not in (None, "") for word in (f"--{name}", value))
    return shlex.join(str(word) for word in (*words, *given))


def query(**values: object) -> str:
    """Return the query of a link, without values that are empty."""
    text = urlencode({name: value for name, value in values.items() if value not in (None, "")}, doseq=True)
    return f"?{text}" if text else "?"


def number_of(number: int, one: str, many: str = "", most: int | None = None) -> str:
    """Return a number with its noun: `1 file`, `2,000 files`.

    If the record has `most` of the things at the most, `50 or more files`.
    """
    return f"{count_of(number, most)} {one if number == 1 else many or one + 's'}"


def count_of(number: int, most: int | None = None) -> str:
    """Return a number of things; `50 or more` if the record has `most` of them at the most."""
    return f"{number:,} {or_more(number, most)}".rstrip()


def or_more(number: int, most: int | None) -> str:
    """Return the words behind a number of things of which a record has `most` at the most."""
    return "or more" if most is not None and number >= most else ""


def body_of(**values: object) -> str:
    """Return the body of a request."""
    return json.dumps(values)
