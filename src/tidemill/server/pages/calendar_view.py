"""The calendar of a file set as a page shows it: a grid of days or slots, or tiles of months and years."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final

from tidemill.mill.calendar import Calendar, CalendarCell, CellState
from tidemill.server.pages.data_view import number_of, query
from tidemill.server.pages.render import link
from tidemill.sizes import format_bytes

SIGNS: Final = {
    CellState.PRESENT: ("there", ""),
    CellState.REWRITTEN: ("rewritten", "↻"),
    CellState.LATE: ("late", "!"),
    CellState.INCOMPLETE: ("incomplete", "◐"),
    CellState.MISSING: ("missing", "✕"),
    CellState.AWAITED: ("awaited", "◷"),
    CellState.OPEN: ("not due yet", ""),
    CellState.EMPTY: ("nothing", ""),
}
"""The words and the sign of each state of a cell."""
_SHADES: Final = 4
_WEEK: Final = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def view_calendar(calendar: Calendar) -> Mapping[str, Any]:
    """Return what the page of a file set shows of its calendar."""
    most = max((one.rows for one in calendar.cells), default=0) or 1
    cells = [_cell(calendar, one, most) for one in calendar.cells]
    states = {one.state for one in calendar.cells}
    return {
        "shown": calendar,
        "title": _title(calendar),
        "up": _up(calendar),
        "previous": query(within=calendar.previous) if calendar.previous else None,
        "next": query(within=calendar.next) if calendar.next else None,
        "columns": _columns(calendar),
        "rows": _rows(calendar, cells),
        "tiles": cells if calendar.level in {"all", "year"} else (),
        "legend": [
            (state.value, *SIGNS[state]) for state in CellState if state in states and state is not CellState.EMPTY
        ],
        "missing": sum(one.missing for one in calendar.cells),
        "odd": sum(one.late + one.rewritten for one in calendar.cells),
        "partitions": [
            {
                "partition": one.partition,
                "state": one.state.value,
                "slot": one.slot,
                "rows": one.rows,
                "bytes": one.bytes,
                "files": one.files,
                "committed_at": one.committed_at,
                "run_id": one.run_id,
                "page": link("/datasets", calendar.dataset, one.partition),
            }
            for one in calendar.partitions
        ],
    }


def _title(calendar: Calendar) -> str:
    if calendar.level == "all":
        return "all years"
    if calendar.level == "month":
        return f"{date.fromisoformat(f'{calendar.within}-01'):%B %Y}"
    if calendar.level == "week":
        begin = date.fromisoformat(calendar.cells[0].slot[:10])
        end = begin + timedelta(days=6)
        return f"{_day(begin)} to {_day(end)} {end.year}"
    return calendar.within


def _day(at: date) -> str:
    return f"{_WEEK[at.weekday()]} {at.day} {at:%b}"


def _up(calendar: Calendar) -> Sequence[tuple[str, str]]:
    """Return the links to the levels above."""
    if not calendar.by or calendar.level == "all":
        return ()
    above = [("All years", query(within="all"))]
    first = calendar.cells[0].slot if calendar.cells else calendar.within
    if calendar.level == "week":  # a week is of the year and month of its Thursday
        first = (date.fromisoformat(first[:10]) + timedelta(days=3)).isoformat()
    if calendar.level != "year":
        above.append((first[:4], query(within=first[:4])))
    if calendar.level in {"week", "day"}:
        above.append((f"{date.fromisoformat(first[:10]):%B}", query(within=first[:7])))
    if calendar.level == "day" and calendar.by == "watermark":
        year, week, _ = date.fromisoformat(first[:10]).isocalendar()
        above.append((f"week {week}", query(within=f"{year:04}-W{week:02}")))
    return above


def _cell(calendar: Calendar, cell: CalendarCell, most: int) -> Mapping[str, Any]:
    words, sign = SIGNS[cell.state]
    said = [f"{cell.slot}: {words}"]
    if cell.partitions:
        said.append(_number(cell))
        said.append(f"{number_of(cell.rows, 'row')}, {format_bytes(cell.bytes)}")
    if cell.late:
        said.append(f"{cell.late} late")
    if cell.rewritten:
        said.append(f"{cell.rewritten} rewritten")
    if cell.missing and cell.state is not CellState.MISSING:
        said.append(f"{cell.missing} missing")
    target = None
    if cell.partition is not None:
        target = link("/datasets", calendar.dataset, cell.partition)
    elif cell.within is not None and (cell.partitions or cell.missing):
        target = query(within=cell.within)
    return {
        "slot": cell.slot,
        "state": cell.state.value,
        "sign": sign,
        "shade": f"v{min(_SHADES * cell.rows // most + 1, _SHADES)}" if cell.partitions else "v0",
        "title": ", ".join(said),
        "link": target,
        "label": _label(calendar, cell),
        "text": _label(calendar, cell) if calendar.level == "month" else "",
        "number": _number(cell),
        "missing": cell.missing,
        "rows": cell.rows,
    }


def _number(cell: CalendarCell) -> str:
    return ("over " if cell.more else "") + number_of(cell.partitions, "partition")


def _label(calendar: Calendar, cell: CalendarCell) -> str:
    if calendar.level == "year":
        return f"{date.fromisoformat(f'{cell.slot}-01'):%b}"
    if calendar.level == "month":
        return str(int(cell.slot[8:10]))
    return cell.slot


def _columns(calendar: Calendar) -> Sequence[str]:
    if calendar.level == "month" or (calendar.level == "week" and len(calendar.cells) == len(_WEEK)):
        return _WEEK
    first = calendar.cells[0].slot[:10] if calendar.cells else ""
    times = [one.slot[11:] for one in calendar.cells if one.slot[:10] == first]
    return [time.removesuffix(":00") for time in times]


def _rows(calendar: Calendar, cells: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """Return the lines of the grid: weeks of days, or days of slots. None stands where there is no cell."""
    if calendar.level in {"all", "year"} or not cells:
        return ()
    if calendar.level == "month":
        first = date.fromisoformat(cells[0]["slot"])
        padded = [None] * first.weekday() + [*cells]
        padded += [None] * (-len(padded) % len(_WEEK))
        weeks = [padded[at : at + len(_WEEK)] for at in range(0, len(padded), len(_WEEK))]
        begin = first - timedelta(days=first.weekday())
        return [
            {"label": f"week {(begin + timedelta(weeks=n)).isocalendar().week}", "cells": week, "link": None}
            for n, week in enumerate(weeks)
        ]
    days: dict[str, list[Any]] = {}
    for cell in cells:
        days.setdefault(cell["slot"][:10], []).append(cell)
    if len(calendar.cells) == len(_WEEK):
        return [{"label": calendar.within, "cells": [*cells], "link": None}]
    return [
        {
            "label": _day(datetime.fromisoformat(day)),
            "cells": some,
            "link": query(within=day) if calendar.level == "week" else None,
        }
        for day, some in days.items()
    ]
