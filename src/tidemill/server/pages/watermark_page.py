"""The page of a watermark: a strip of time slots with W and what holds it, and how far window programs have come."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.mill.mill import Mill
from tidemill.mill.slots import SlotView
from tidemill.mill.watermarks import MOST_LISTED, ProgramView, WatermarkDetail
from tidemill.server.pages.calendar_view import SIGNS
from tidemill.server.pages.columns import RUN, STATE, Column
from tidemill.server.pages.data_view import (
    Preview,
    body_of,
    command_of,
    number_of,
    offered,
    query,
    show_data,
)
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import Action, Field, Form

_HOLDERS: Final = (
    Column("write_pointer", "Transaction", "name", "/transactions/{write_pointer}"),
    RUN,
    Column("began_at", "Began", "time"),
)
_MOVES: Final = (
    Column("moved_at", "Moved", "time"),
    Column("before", "From"),
    Column("after", "To", "name"),
    Column("cause", "By", "long"),
)
_SLOTS: Final = 72
_SHOWN: Final = 20


def show_watermark(request: Request, name: str) -> HTMLResponse:
    """Return the page of a watermark."""
    mill: Mill = request.state.mill
    asked = request.query_params
    one = mill.watermarks.show(name)
    slots = mill.watermarks.slots(name, limit=_SLOTS, after=asked.get("after", ""))
    late = sum(slot.late for slot in slots)
    gaps = [slot for slot in slots if slot.state in {"missing", "incomplete"}]
    return show_data(
        request,
        "watermark.html",
        title=one.dataset,
        state="",
        sub=f"watermark of {one.column} · {one.zone} · {_says(one)}",
        links=[("Data set", link("/datasets", one.dataset)), ("Why", link("/why", one.dataset))],
        preview=_preview(request, one, slots),
        facts=[
            ("complete up to", one.watermark or "nothing yet", ""),
            ("would reach", one.reaches or "–", "once nothing holds it" if one.reaches != one.watermark else ""),
            ("missing or incomplete", len(gaps), "of the slots below"),
            ("late partitions", late, "of the slots below"),
            ("window programs", len(one.programs), ""),
        ],
        notes=_notes(one, gaps),
        strip=[_slot(slot) for slot in reversed(slots)],
        stands=_place_of_w(slots),
        watermark=one.watermark,
        legend=[(state.value, *SIGNS[state]) for state in SIGNS if any(slot.state is state for slot in slots)],
        strip_sub=f"the newest {len(slots)}, oldest left" if not asked.get("after") else f"{len(slots)} slots",
        strip_command=command_of("watermark", "slots", one.dataset, "--limit", _SLOTS),
        next=query(after=slots.next) if slots.next else None,
        open_slots=[{**plain(slot), "page": _day_of(one, slot)} for slot in gaps[:_SHOWN]],
        open_columns=(
            Column("slot", "Slot", "name", "{page}"),
            STATE,
            Column("have", "Has", "number"),
            Column("of", "Of", "number"),
        ),
        holders=[plain(holder) for holder in one.held_by],
        holder_columns=_HOLDERS,
        programs=[_program(program) for program in one.programs],
        parked=one.parked,
        moves=[plain(move) for move in one.moves],
        move_columns=_MOVES,
        options=one.options,
        forms=_forms(one, asked),
        command=command_of("watermark", "show", one.dataset),
    )


def _says(one: WatermarkDetail) -> str:
    """Return in words what holds the watermark."""
    if one.held_by:
        return f"held by {number_of(len(one.held_by), 'open transaction')}"
    if one.follows:
        return f"follows {', '.join(one.follows)}"
    if one.waits_for:
        slot = one.waits_for[0]
        return f"held by {slot.slot.removesuffix(':00')}, which " + (
            f"has {slot.have} of {slot.of}" if slot.have else "is missing"
        )
    return "nothing holds it"


def _notes(one: WatermarkDetail, gaps: Sequence[SlotView]) -> Sequence[tuple[str, str, str, str]]:
    notes = [
        (
            "run",
            f"transaction {holder.write_pointer} of {holder.run_id} may still write earlier times",
            link("/transactions", holder.write_pointer),
            "Open it",
        )
        for holder in one.held_by[:3]
    ]
    if late := [slot for slot in gaps if slot.passed and slot.state == "missing"]:
        text = f"passed without a partition: {number_of(len(late), 'slot')}, the newest {late[0].slot}"
        notes.append(("late", text, "", ""))
    for program in one.programs:
        if program.postponed:
            first = program.postponed[0]
            failing = number_of(len(program.postponed), "failing window", most=MOST_LISTED)
            text = f"{program.program}: {failing}: {first.reason}"
            notes.append(("fail", text, query(ask="reset", program=program.program, to=""), "Compute again"))
    if one.parked:
        number = number_of(len(one.parked), "partition", most=MOST_LISTED)
        notes.append(("wait", f"{number} have no time that can be read: {one.parked[0].partition}", "", ""))
    return notes


def _slot(slot: SlotView) -> Mapping[str, Any]:
    words, sign = SIGNS[slot.state]
    said = f"{slot.slot}: {words}, {slot.have} of {slot.of}"
    said += f", {slot.late} late" if slot.late else ""
    return {
        "state": slot.state.value,
        "sign": sign,
        "title": f"{said}, {'passed' if slot.passed else 'not passed'} by the watermark",
        "passed": slot.passed,
    }


def _place_of_w(slots: Sequence[SlotView]) -> int:
    """Return the number of slots, from the oldest, that the watermark has passed."""
    return sum(slot.passed for slot in slots)


def _day_of(one: WatermarkDetail, slot: SlotView) -> str:
    return f"{link('/datasets', one.dataset)}{query(within=slot.slot[:10])}"


def _program(one: ProgramView) -> Mapping[str, Any]:
    """Return a window program with its windows, and those that are to be computed again or fail."""
    windows = [
        {
            "window": window.window,
            "write_pointer": window.write_pointer,
            "shape": "wait" if window.stale else "ok",
            "sign": "↻" if window.stale else "✓",
            "words": "to be computed again" if window.stale else "computed",
        }
        for window in one.latest
    ]
    failing = [
        {"window": window.window, "reason": window.reason, "since_at": window.since_at, "tried_at": window.tried_at}
        for window in one.postponed
    ]
    left_out = one.left_out
    return {
        "name": one.program,
        "computed": one.computed or "nothing yet",
        "others": [{"dataset": each.dataset, "watermark": each.watermark or "nothing yet"} for each in one.others],
        "windows": windows,
        "stale": sum(window.stale for window in one.latest),
        "failing": failing,
        "left_out": f"{left_out.late_rows:,} late and {left_out.outside_rows:,} outside rows of "
        f"{number_of(left_out.partitions, 'partition')} are left out of windows"
        if left_out.partitions
        else "",
        "again": query(ask="reset", program=one.program, to=""),
    }


def _forms(one: WatermarkDetail, asked: Mapping[str, str]) -> Sequence[Form]:
    example = one.watermark or "2026-01-31 06:00"

    def given(ask: str) -> str:
        return asked.get("to", "") if asked.get("ask") == ask else ""

    forms = [
        Form("What would be late?", (Field("to", "Advance to", example, given("advance")),), ask="advance"),
        Form("What would open again?", (Field("to", "Rewind to", example, given("rewind")),), ask="rewind"),
    ]
    if one.programs:
        forms.append(
            Form(
                "What would be computed?",
                (
                    Field(
                        "program",
                        "Program",
                        one.programs[0].program,
                        asked.get("program", one.programs[0].program),
                    ),
                    Field("to", "Windows that end after, or all", example, given("reset")),
                ),
                ask="reset",
            )
        )
    return forms


def _preview(request: Request, one: WatermarkDetail, slots: Sequence[SlotView]) -> Preview | None:
    asked = request.query_params
    to = asked.get("to", "").strip()
    match asked.get("ask"):
        case "advance" if to:
            return offered(request, _ask_advance(one, slots, to))
        case "rewind" if to:
            return offered(request, _ask_rewind(one, slots, to))
        case "reset" if asked.get("program"):
            return offered(request, _ask_reset(one, asked["program"], to))
    return None


def _time(text: str) -> datetime | None:
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if time.tzinfo else time


def _refused(title: str, to: str, command: str) -> Preview:
    return Preview(
        title, f"{to!r} is no time on the wall clock of the file set: write it as 2026-01-31 06:00.", command
    )


def _ask_advance(one: WatermarkDetail, slots: Sequence[SlotView], to: str) -> Preview:
    command = command_of("watermark", "advance", one.dataset, to)
    time, now = _time(to), _time(one.watermark or "")
    if time is None:
        return _refused("Advance", to, command)
    if now is not None and time <= now:
        return Preview(
            "Nothing to advance", f"The watermark stands at {one.watermark} already. Rewind moves it back.", command
        )
    between = [slot for slot in slots if not slot.passed and datetime.fromisoformat(slot.slot) < time]
    gaps = sum(slot.state in {"missing", "incomplete"} for slot in between)
    says = (
        f"This moves the watermark of {one.dataset} from {one.watermark or 'nothing'} to {to}, past "
        f"{number_of(len(between), 'slot')} of those below, {gaps:,} of them not complete. Partitions of earlier times "
        "that come later are late."
    )
    action = Action(
        "Advance",
        f"{link('/v1/watermarks', one.dataset)}:advance",
        says,
        f"the watermark is {to}",
        body=body_of(to=to),
        danger=True,
    )
    return Preview("Advance the watermark", says, command, action)


def _ask_rewind(one: WatermarkDetail, slots: Sequence[SlotView], to: str) -> Preview:
    command = command_of("watermark", "rewind", one.dataset, to)
    time, now = _time(to), _time(one.watermark or "")
    if time is None:
        return _refused("Rewind", to, command)
    if now is None or time >= now:
        return Preview(
            "Nothing to rewind",
            f"The watermark stands at {one.watermark or 'nothing'}: it has not passed {to}.",
            command,
        )
    back = sum(slot.passed and datetime.fromisoformat(slot.slot) >= time for slot in slots)
    says = (
        f"This moves the watermark of {one.dataset} from {one.watermark} back to {to}, over {number_of(back, 'slot')} "
        f"of those below. Windows that end later are computed again: {number_of(len(one.programs), 'program')}."
    )
    action = Action(
        "Rewind",
        f"{link('/v1/watermarks', one.dataset)}:rewind",
        says,
        f"the watermark is {to}",
        body=body_of(to=to),
        danger=True,
    )
    return Preview("Rewind the watermark", says, command, action)


def _ask_reset(one: WatermarkDetail, program: str, to: str) -> Preview:
    command = command_of("watermark", "reset", program, *(["--to", to] if to else []))
    found = next((each for each in one.programs if each.program == program), None)
    if found is None:
        return Preview("Nothing to compute", f"{program} is no window program over {one.dataset}.", command)
    if to and _time(to) is None:
        return _refused("Compute windows again", to, command)
    which = f"the windows of {program} that end after {to}" if to else f"all windows of {program}"
    says = (
        f"This computes {which} again; it has computed up to {found.computed or 'nothing'}. Published windows stay "
        "until they are replaced."
    )
    action = Action(
        "Compute again",
        f"{link('/v1/watermarks', program)}:reset",
        says,
        "the windows will be computed again",
        body=body_of(to=to) if to else "{}",
        danger=True,
    )
    return Preview("Compute windows again", says, command, action)
