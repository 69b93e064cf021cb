"""The page of a snapshot: its versions on a time line, what differs between two, and the way back to one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.errors import TidemillError
from tidemill.lake.snapshot.comparison import VersionComparison
from tidemill.lake.snapshot.versions import KeptVersion
from tidemill.mill.datasets import DatasetView
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.server.pages.columns import LISTENERS, READERS
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
from tidemill.server.pages.lists import section
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import Action
from tidemill.sizes import format_bytes

_SHOWN: Final = 50
_ROWS: Final = 20
_LINE: Final = 960


def show_snapshot(request: Request, dataset: DatasetView) -> HTMLResponse:
    """Return the page of a snapshot."""
    mill: Mill = request.state.mill
    name, asked = dataset.name, request.query_params
    versions = mill.snapshots.versions(name, limit=_SHOWN, after=asked.get("after", ""))
    current = next((one for one in versions if one.current), None)
    late = dataset.expectation
    consumers = mill.consumers.list(dataset=name, limit=_SHOWN)
    rows: Mapping[str, Any] = {"rows": None, "row_names": ()}
    if asked.get("rows"):
        rows = _read_rows(mill, name)
    return show_data(
        request,
        "snapshot.html",
        title=name,
        state=late.state if late else "",
        sub=f"snapshot · {dataset.location}" + (f" · expected {late.expect}" if late else ""),
        links=[
            ("Why", link("/why", name)),
            ("Lineage", f"/lineage{query(thing=name)}"),
            ("Show rows", f"{link('/datasets', name)}?rows={_ROWS}"),
        ],
        preview=_preview(request, mill, dataset, versions),
        facts=[
            ("current version", current.version if current else "–", ""),
            ("rows", dataset.rows, ""),
            ("size", format_bytes(dataset.bytes), number_of(dataset.files, "file")),
            ("versions kept", len(versions), "or more" if versions.next else ""),
            ("consumers", len(consumers), "or more" if consumers.next else ""),
        ],
        comparison=_compare(mill, name, asked, versions),
        line=_line(versions),
        plot=_plot(versions),
        versions=[_version(plain(one), current) for one in versions],
        versions_command=command_of("snapshot", "versions", name),
        next=query(after=versions.next) if versions.next else None,
        readers=[plain(one) for one in consumers],
        reader_columns=READERS,
        readers_command=command_of("consumer", "list", "--dataset", name),
        listeners={
            **section(
                "Schedules that listen",
                mill.schedules.triggered_by(name, limit=_SHOWN),
                LISTENERS,
                "no schedule listens; declare one in the app: app.schedule(…)",
            ),
            "command": command_of("schedule", "triggered-by", name),
        },
        rows_sub=f"the first {_ROWS} of the current version",
        rows_command=command_of("dataset", "head", name, "--limit", _ROWS),
        record=plain(dataset),
        left_out=("name", "partitions", "files", "rows", "bytes", "expectation"),
        command=command_of("dataset", "show", name),
        **rows,
    )


def _read_rows(mill: Mill, name: str) -> Mapping[str, Any]:
    try:
        rows = mill.datasets.head(name, limit=_ROWS)
    except TidemillError as error:
        return {"rows": [{"not read": error.sentence}], "row_names": ["not read"]}
    return {"rows": rows, "row_names": list(dict.fromkeys(column for row in rows for column in row))}


def _line(versions: Sequence[KeptVersion]) -> Sequence[Mapping[str, Any]]:
    """Return the place of each version on a line from the oldest to the newest, with what it says."""
    if not versions:
        return ()
    first, last = versions[-1].committed_at, versions[0].committed_at
    whole = (last - first).total_seconds() or 1
    return [
        {
            "x": round(20 + _LINE * (one.committed_at - first).total_seconds() / whole),
            "shape": "ok" if one.current else "wait" if one.kept_for else "off",
            "title": f"version {one.version}: {number_of(one.rows, 'row')}, {format_bytes(one.bytes)}, "
            + (", ".join(one.kept_for) or "goes with the next sweep"),
            "href": f"#v{one.version}" if one.current else _against_current(one.version, versions),
        }
        for one in reversed(versions)
    ]


def _against_current(version: int, versions: Sequence[KeptVersion]) -> str:
    """Return the link to what differs between a version and the current one."""
    current = next((one.version for one in versions if one.current), None)
    return f"#v{version}" if current is None else f"{query(old=version, new=current)}#difference"


def _compare(
    mill: Mill, name: str, asked: Mapping[str, str], versions: Sequence[KeptVersion]
) -> Mapping[str, Any] | None:
    """Return what differs between the two versions that the URL names, and the versions to choose from."""
    if len(versions) < 2:  # nothing to compare
        return None
    old = asked.get("old", "") or str(versions[1].version)
    new = asked.get("new", "") or str(versions[0].version)
    view: dict[str, Any] = {
        "choices": [str(one.version) for one in versions],
        "old": old,
        "new": new,
        "command": command_of("snapshot", "compare", name, old, new),
        "found": None,
        "refused": "",
    }
    if not asked.get("old") and not asked.get("new"):
        return view
    if not (old.isdecimal() and new.isdecimal()):
        return view | {"refused": "A version is a whole number: choose two versions below."}
    try:
        found = mill.snapshots.compare(name, int(old), int(new))
    except TidemillError as error:
        return view | {"refused": error.sentence}
    rows, size = abs(found.more_rows), format_bytes(abs(found.more_bytes))
    return view | {
        "found": found,
        "says": _say_difference(found),
        "facts": [
            ("rows", f"{found.old.rows:,} → {found.new.rows:,}", f"{rows:,} {_more(found.more_rows)}"),
            (
                "size",
                f"{format_bytes(found.old.bytes)} → {format_bytes(found.new.bytes)}",
                f"{size} {_more(found.more_bytes)}",
            ),
            ("files added", found.files_added, ""),
            ("files removed", found.files_removed, ""),
            ("files in both", found.same_files, ""),
        ],
        "columns": [
            *(f"column {one} was added" for one in found.columns_added),
            *(f"column {one} was removed" for one in found.columns_removed),
            *(f"column {one.name} was {one.old_type}, and is {one.new_type}" for one in found.columns_retyped),
        ],
        "rows_command": command_of("snapshot", "diff", name, old, new),
    }


def _say_difference(found: VersionComparison) -> str:
    old, new = found.old.version, found.new.version
    if found.identical:
        return f"Versions {old} and {new} have the same rows: their columns and files are the same."
    if not found.more_rows:
        return f"Version {new} has as many rows as version {old}, in other files or columns."
    rows = number_of(abs(found.more_rows), "row")
    return f"Version {new} has {rows} {_more(found.more_rows)} than version {old}."


def _more(number: int) -> str:
    return "more" if number > 0 else "fewer" if number else "more or fewer"


def _plot(versions: Sequence[KeptVersion]) -> Plot:
    ordered = [*reversed(versions)]
    return Plot(
        "Rows of each version",
        [one.committed_at for one in ordered],
        [Series("rows", "✓", "bar", [one.rows for one in ordered])],
        "rows",
        "no version yet; a run of a program that writes it makes the first",
        "version",
    )


def _version(row: Mapping[str, Any], current: KeptVersion | None) -> Mapping[str, Any]:
    number = row["version"]
    differs = current is not None and not row["current"]
    return {
        **row,
        "size": format_bytes(row["bytes"]),
        "state": "current" if row["current"] else "kept" if row["kept_for"] else "goes",
        "shape": "ok" if row["current"] else "wait" if row["kept_for"] else "off",
        "sign": "✓" if row["current"] else "‖" if row["kept_for"] else "–",
        "why": ", ".join(row["kept_for"]) or "the next sweep expires it",
        "run": link("/runs", row["run_id"]),
        "back": None if row["current"] else query(ask="rollback", version=number),
        "change": None if current is None or row["current"] else row["rows"] - current.rows,
        "difference": f"{query(old=number, new=current.version)}#difference" if differs and current else None,
    }


def _preview(request: Request, mill: Mill, dataset: DatasetView, versions: Sequence[KeptVersion]) -> Preview | None:
    asked = request.query_params
    if asked.get("ask") != "rollback":
        return None
    wanted = asked.get("version", "")
    command = command_of("snapshot", "rollback", dataset.name, wanted)
    every = versions if not asked.get("after") else mill.snapshots.versions(dataset.name, limit=1000)
    one = next((one for one in every if str(one.version) == wanted), None)
    current = next((one for one in every if one.current), None)
    if one is None or current is None or one.current:
        says = f"Version {wanted} of {dataset.name} is current, or is not kept any more."
        return Preview("Nothing to roll back", says, command_of("snapshot", "versions", dataset.name))
    change = one.rows - current.rows
    more = f"{number_of(abs(change), 'row')} {'more' if change > 0 else 'fewer'} than" if change else "as many rows as"
    says = (
        f"This makes version {one.version} of {dataset.name} current again, as a new version: "
        f"{number_of(one.rows, 'row')}, {more} version {current.version} has. The next refresh replaces it: "
        "suspend the schedule of the refreshes first."
    )
    action = Action(
        f"Roll back to {one.version}",
        f"{link('/v1/snapshots', dataset.name)}:rollback",
        says,
        f"version {one.version} is current again",
        Right.DEPLOY,
        body=body_of(version=one.version),
        danger=True,
    )
    return offered(request, Preview(f"Roll back to version {one.version}", says, command, action))
