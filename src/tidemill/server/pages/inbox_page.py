"""The page of an inbox: its files by state and over time, the way out of quarantine, and the balance of its rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.errors import TidemillError
from tidemill.lake.inbox.inbox import FileState
from tidemill.mill.arrivals import DAY, ArrivalsView
from tidemill.mill.inboxes import InboxView
from tidemill.mill.mill import Mill
from tidemill.server.pages.columns import BYTES, ERROR, Column
from tidemill.server.pages.data_view import (
    Plot,
    Preview,
    Series,
    body_of,
    command_of,
    number_of,
    offered,
    query,
    show_data,
)
from tidemill.server.pages.render import link, plain, state_of
from tidemill.server.pages.thing import Action
from tidemill.sizes import format_bytes

_WAYS: Final[Mapping[FileState, Mapping[str, str]]] = {
    FileState.QUARANTINED: {"release": "Release", "ignore": "Ignore"},
    FileState.ERROR: {"retry": "Retry"},
    FileState.IGNORED: {"retry": "Retry"},
    FileState.SUCCESS: {"reprocess": "Process again"},
}
"""The ways out of each state that has one: the operation and the label."""
_STACK: Final = (
    FileState.SUCCESS,
    FileState.IN_PROGRESS,
    FileState.NEW,
    FileState.ERROR,
    FileState.QUARANTINED,
    FileState.IGNORED,
    FileState.SKIPPED,
)
_FILES: Final = (
    BYTES,
    Column("row_count", "Rows", "number"),
)
_WEEK: Final = 7 * DAY
_SHOWN: Final = 50
_MOST: Final = 1000


def show_inbox(request: Request, name: str) -> HTMLResponse:
    """Return the page of an inbox."""
    mill: Mill = request.state.mill
    asked = request.query_params
    inbox = mill.inboxes.show(name)
    now = mill.project.world.clock.now()
    state, after = asked.get("state", ""), asked.get("after", "")
    hours = _WEEK if asked.get("hours") == str(_WEEK) else DAY
    files = mill.inboxes.files(name, limit=_SHOWN, after=after, **({"state": state} if state else {}))
    arrivals = mill.inboxes.arrivals(name, hours=hours)
    path = link("/v1/inboxes", inbox.inbox)
    look = Action("Look now", f"{path}:scan", f"This lists the folder of {inbox.inbox}.", "the folder was listed")
    late = inbox.expectation
    words = ["--state", state] if state else []
    return show_data(
        request,
        "inbox.html",
        title=inbox.inbox,
        state=late.state if late else "",
        sub=f"inbox · {inbox.location}" + (f" · expected {late.expect}" if late else ""),
        actions=[look],
        links=[
            ("Why", link("/why", inbox.inbox)),
            ("Lineage", f"/lineage{query(thing=inbox.inbox)}"),
            ("Rejected rows", f"/search{query(text=inbox.inbox + '_rejects')}"),
        ],
        preview=_preview(request, mill, inbox),
        notes=_notes(inbox),
        states=_states(inbox, state, hours),
        balance=_balance(arrivals),
        arrivals=_plot(arrivals),
        ranges=[
            ("24 hours", query(state=state), hours == DAY),
            ("7 days", query(hours=_WEEK, state=state), hours == _WEEK),
        ],
        arrivals_sub=f"by the hour in which they were seen, last {'7 days' if hours == _WEEK else '24 hours'}"
        + ("" if arrivals.complete else "; only the newest 5,000"),
        arrivals_command=command_of("inbox", "arrivals", inbox.inbox, "--hours", hours),
        files=[_file(plain(one), now) for one in files],
        files_sub=_words(state) if state else "by name",
        files_command=command_of("inbox", "files", inbox.inbox, *words),
        files_empty=_empty(inbox, state),
        ways_of_all=_ways_of_all(inbox, state),
        next=query(after=files.next, state=state, hours=asked.get("hours", "")) if files.next else None,
        record=plain(inbox),
        left_out=("inbox", "files", "bytes", "expectation"),
        command=command_of("inbox", "show", inbox.inbox),
    )


def _words(state: str) -> str:
    return state_of(state)[2]


def _states(inbox: InboxView, state: str, hours: int) -> Sequence[Mapping[str, Any]]:
    """Return the filter: all files, and each state that files have, with counts."""
    kept = "" if hours == DAY else hours
    found = [{"word": "", "number": sum(inbox.files.values()), "href": query(hours=kept), "on": not state}]
    found += [
        {"word": one.value, "number": number, "href": query(state=one.value, hours=kept), "on": state == one.value}
        for one in _STACK
        if (number := inbox.files.get(one.value, 0)) or state == one.value
    ]
    return found


def _ways_of_all(inbox: InboxView, state: str) -> Sequence[tuple[str, str]]:
    """Return the ways out of the state that is shown, for all files in it: label and link."""
    one = next((one for one in _WAYS if one.value == state and one is not FileState.SUCCESS), None)
    number = inbox.files.get(state, 0)
    if one is None or number < 2:
        return ()
    return [(f"{label} all {number:,}", query(state=state, ask=way)) for way, label in _WAYS[one].items()]


def _notes(inbox: InboxView) -> Sequence[tuple[str, str, str, str]]:
    notes = []
    if bad := inbox.files.get("QUARANTINED", 0):
        text = f"{number_of(bad, 'file')} in quarantine: failed too often, or refused by rule"
        notes.append(("fail", text, query(state="QUARANTINED", ask="release"), "Release"))
    if failing := inbox.files.get("ERROR", 0):
        notes.append(
            (
                "wait",
                f"{number_of(failing, 'file')} failed and will be tried again",
                query(state="ERROR", ask="retry"),
                "Retry now",
            )
        )
    late = inbox.expectation
    if late is not None and late.state != "kept":
        why = f"an arrival was expected by {late.expected_by:%Y-%m-%d %H:%M} UTC"
        notes.append(("late", why, link("/why", inbox.inbox), "See why"))
    notes += [
        ("wait", f"{number_of(number, 'name')} cannot be processed: {reason}, such as {example}", "", "")
        for reason, number, example in inbox.unusable
    ]
    return notes


def _balance(arrivals: ArrivalsView) -> Mapping[str, Any]:
    """Return the balance in words, and its numbers."""
    one = arrivals.balance
    weighed = one.balanced + one.differing
    if not weighed:
        said = f"not known for {number_of(one.not_known, 'run')}" if one.not_known else "no run completed in this time"
    elif one.differing:
        said = f"{number_of(one.differing, 'run')} of {weighed:,} published other numbers of rows than they read"
    else:
        said = f"{number_of(weighed, 'run')} published all rows that they read"
    if weighed and one.not_known:
        said += f"; not known for {number_of(one.not_known, 'run')}"
    return {
        "said": said,
        "shape": "off" if not weighed else "late" if one.differing else "ok",
        "sign": "–" if not weighed else "!" if one.differing else "✓",
        "facts": [
            ("rows in", one.rows_in, ""),
            ("rows out", one.rows_out, ""),
            ("rejected", one.rejected, ""),
            ("duplicates", one.duplicates, ""),
        ]
        if weighed
        else (),
        "differ": one.differ,
    }


def _plot(arrivals: ArrivalsView) -> Plot:
    series = []
    for state in _STACK:
        shape, sign, words = state_of(state.value)
        series.append(Series(words, sign, shape, [hour.files.get(state.value, 0) for hour in arrivals.hours]))
    return Plot(
        f"Files of {arrivals.inbox} by hour",
        [hour.begins_at for hour in arrivals.hours],
        series,
        "files",
        "no file came in this time; look at the folder by Look now",
        "hour",
    )


def _file(row: Mapping[str, Any], now: datetime) -> Mapping[str, Any]:
    """Return a row of the table of files, with its ways out of its state."""
    ways = _WAYS.get(FileState(row["status"]), {})
    return {
        **row,
        "size": format_bytes(row["bytes"]),
        "retry_at": None if row["retry_at"] is None or row["retry_at"] < now else row["retry_at"],
        "ways": [(label, query(ask=way, file=row["name"], state=row["status"])) for way, label in ways.items()],
        "why": link("/why", row["name"]),
        "run": link("/runs", row["run_id"]) if row["run_id"] else None,
    }


def _empty(inbox: InboxView, state: str) -> str:
    if state:
        return f"no file is {_words(state)}"
    return f"no file yet; put one into {inbox.location}"


def _just_before(name: str) -> str:
    """Return a text that sorts before a name, and behind nearly all names before it."""
    last = ord(name[-1]) - 1
    return name[:-1] + (chr(last) + "\U0010ffff" if " " <= chr(last) <= "~" else "")


def _preview(request: Request, mill: Mill, inbox: InboxView) -> Preview | None:
    asked = request.query_params
    way, file = asked.get("ask", ""), asked.get("file", "")
    states = [state for state, ways in _WAYS.items() if way in ways]
    if not states:
        return None
    state = next((one for one in states if one.value == asked.get("state")), states[0])
    try:
        if file:
            behind = mill.inboxes.files(inbox.inbox, state=state, limit=1, after=_just_before(file))
            found = [one for one in behind if one.name == file]
        else:
            found = [*mill.inboxes.files(inbox.inbox, state=state, limit=_MOST)]
    except TidemillError as error:
        return Preview("This cannot be done", error.sentence, command_of("inbox", "files", inbox.inbox))
    names = sorted({one.name for one in found})
    words = [] if way == "retry" and state is FileState.ERROR and not file else names
    command = command_of("inbox", way, inbox.inbox, *words[:5])
    if not names or (way == "reprocess" and not file):
        return Preview("Nothing to do", f"No such file of {inbox.inbox} is {_words(state)}.", command)
    # Without names, the action is about all such files, of which only the first are counted.
    most = None if words else _MOST
    which = f"the file {names[0]}" if len(names) == 1 else number_of(len(names), "file", most=most)
    size = format_bytes(sum(one.bytes for one in found))
    rows = number_of(sum(one.row_count or 0 for one in found), "row")
    says = {
        "release": f"This releases {which} ({size}) from quarantine. Each is tried again by itself.",
        "ignore": f"This ignores {which} ({size}): no run gets it, and no alert counts it. A retry takes that back."
        if len(names) == 1
        else f"This ignores {which} ({size}): no run gets them, and no alert counts them. A retry takes that back.",
        "retry": f"This tries {which} ({size}) again at once, without the back-off."
        if state is FileState.ERROR
        else f"This ends the ignoring of {which} ({size}). Each is tried again by itself.",
        "reprocess": f"This delivers {which} ({rows}, {size}) again, as if it were new. "
        "A program that appends publishes its rows a second time.",
    }[way]
    done = {
        "release": f"{number_of(len(names), 'file')} released",
        "ignore": f"{number_of(len(names), 'file')} ignored",
        "retry": f"{number_of(len(names), 'file', most=most)} offered again",
        "reprocess": f"{number_of(len(names), 'file')} will be processed again",
    }[way]
    body = body_of(files=words) if words else "{}"
    label = f"{_WAYS[state][way]} {number_of(len(names), 'file', most=most)}"
    action = Action(
        label, f"{link('/v1/inboxes', inbox.inbox)}:{way}", says, done, body=body, danger=way in {"reprocess", "ignore"}
    )
    columns = (
        Column("name", "File", "name"),
        Column("failures", "Attempts", "number"),
        *_FILES,
        ERROR,
    )
    return offered(request, Preview(label, says, command, action, [plain(one) for one in found[:10]], columns))
