"""The page of a file set: its partitions by time, its readers, growth, columns and rows, and what may be changed."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, time, timedelta
from typing import Any, Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.errors import TidemillError
from tidemill.mill.datasets import DatasetView, SchemaView
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.mill.partition_views import Growth
from tidemill.server.pages.calendar_view import view_calendar
from tidemill.server.pages.columns import (
    BY_RUN,
    BYTES,
    COMMITTED,
    FILES,
    LISTENERS,
    PARTITION,
    PARTITION_PAGE,
    READERS,
    ROWS,
    RUN,
    STATE,
    Column,
)
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
from tidemill.server.pages.inbox_page import show_inbox
from tidemill.server.pages.lists import PARTITION_COLUMNS, Filter, section
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.snapshot_page import show_snapshot
from tidemill.server.pages.thing import Action, Field, Form
from tidemill.sizes import format_bytes

_PLACED: Final = (
    PARTITION_PAGE,
    STATE,
    ROWS,
    BYTES,
    FILES,
    COMMITTED,
    RUN,
)
_FILES: Final = (
    Column("path", "File", "long"),
    PARTITION,
    ROWS,
    BYTES,
)
_DROPPED: Final = (
    PARTITION_PAGE,
    Column("dropped_at", "Dropped", "time"),
    BY_RUN,
)
_GOING: Final = (
    PARTITION,
    FILES,
    ROWS,
    BYTES,
)
MOST_ROWS: Final = 20
_GROWTH: Final = 60
_SHOWN: Final = 50
_FEW: Final = 12
_NONE_HERE: Final = "no partition in this period; go to another one above"


def show_dataset(request: Request, name: str) -> HTMLResponse:
    """Return the page of a data set, by its kind."""
    mill: Mill = request.state.mill
    dataset = mill.datasets.show(name)
    if dataset.kind == "inbox":
        return show_inbox(request, name)
    if dataset.kind == "snapshot":
        return show_snapshot(request, dataset)
    asked = request.query_params
    calendar = mill.datasets.calendar(name, within=asked.get("within", ""))
    view = view_calendar(calendar) if calendar.by else None
    consumers = mill.consumers.list(dataset=name, limit=_SHOWN)
    values = {**_partitions(mill, dataset, asked, view), **_rows(mill, dataset, asked)}
    sections = [
        {
            **section(
                "Schedules that listen",
                mill.schedules.triggered_by(name, limit=_SHOWN),
                LISTENERS,
                "no schedule listens; declare one in the app: app.schedule(…)",
            ),
            "command": command_of("schedule", "triggered-by", dataset.name),
        },
        *_dropped(mill, dataset),
    ]
    columns = list_columns(dataset, mill.datasets.schemas(name, limit=_SHOWN))
    keys = dataset.spec.get("keys")
    missing, odd = (view["missing"], view["odd"]) if view else (0, 0)
    return show_data(
        request,
        "dataset.html",
        title=dataset.name,
        state=dataset.expectation.state if dataset.expectation else "",
        sub=_sub(dataset, keys),
        preview=_preview(request, mill, dataset),
        links=_links(dataset),
        facts=[
            ("partitions", dataset.partitions, ""),
            ("rows", dataset.rows, ""),
            ("size", format_bytes(dataset.bytes), number_of(dataset.files, "file")),
            ("missing", missing if view else None, "in this period" if view else ""),
            ("late or rewritten", odd if view else None, "in this period" if view else ""),
            ("consumers", len(consumers), "or more" if consumers.next else ""),
        ],
        notes=_notes(dataset),
        calendar=view,
        fields="",
        calendar_sub=f"by {'partition time' if calendar.by == 'watermark' else calendar.by}, {calendar.zone}"
        if view
        else "by key",
        calendar_command=_calendar_command(dataset, asked.get("within", "")) if view else "",
        cells=values["cells"],
        readers=[plain(one) for one in consumers],
        reader_columns=READERS,
        readers_sub="what is left, and since when",
        readers_command=command_of("consumer", "list", "--dataset", dataset.name),
        growth=plot_growth(mill.datasets.growth(name)),
        growth_sub="rows, by the day of the commit, UTC",
        growth_command=command_of("dataset", "growth", dataset.name),
        schema=columns,
        columns_sub="",
        has_columns=any(not one["key"] for one in columns),
        columns_command=command_of("dataset", "schemas", dataset.name),
        table=values["table"],
        table_columns=values["columns"],
        filters=[(Filter("where", "Partitions where"), asked.get("where", ""))],
        filtered=bool(asked.get("where")),
        table_title=values["title"],
        table_sub=values["sub"],
        table_command=values["command"],
        table_empty=values["empty"],
        next=values["next"],
        sections=sections,
        rows=values["rows"],
        row_names=values["row_names"],
        rows_sub=f"the first {MOST_ROWS}",
        rows_command=command_of("dataset", "head", dataset.name, "--limit", MOST_ROWS),
        forms=_forms(dataset, asked),
        record=plain(dataset),
        left_out=("name", "partitions", "files", "rows", "bytes", "expectation", "schema"),
        command=command_of("dataset", "show", dataset.name),
    )


def _sub(dataset: DatasetView, keys: object) -> str:
    by = f" by {', '.join(keys)}" if isinstance(keys, Mapping) else ""
    stored = dataset.spec.get("format") or "parquet"
    expected = f" · expected {dataset.expectation.expect}" if dataset.expectation else ""
    return f"file set{by} · {stored} · {dataset.location}{expected}"


def _links(dataset: DatasetView) -> Sequence[tuple[str, str]]:
    links = [("Why", link("/why", dataset.name)), ("Lineage", f"/lineage{query(thing=dataset.name)}")]
    if dataset.spec.get("watermark"):
        links.append(("Watermark", link("/watermarks", dataset.name)))
    return [*links, ("Show rows", f"{link('/datasets', dataset.name)}?rows={MOST_ROWS}")]


def _notes(dataset: DatasetView) -> Sequence[tuple[str, str, str, str]]:
    notes = []
    late = dataset.expectation
    if late is not None and late.state != "kept":
        why = f"an arrival was expected by {late.expected_by:%Y-%m-%d %H:%M} UTC ({late.expect})"
        notes.append(("late", why, link("/why", dataset.name), "See why"))
    if dataset.hint:
        notes.append(("wait", dataset.hint, query(ask="compact"), "Compact"))
    return notes


def _calendar_command(dataset: DatasetView, within: str) -> str:
    return command_of("dataset", "calendar", dataset.name, *(["--within", within] if within else []))


def _partitions(
    mill: Mill, dataset: DatasetView, asked: Mapping[str, str], view: Mapping[str, Any] | None
) -> Mapping[str, Any]:
    """Return the table of partitions: of the period, of a moment, or all by key."""
    after, name = asked.get("after", ""), dataset.name
    if as_of := asked.get("as_of", ""):
        try:
            files = mill.datasets.files(name, as_of=as_of, limit=_SHOWN, after=after)
        except TidemillError as error:
            return _table(
                [], _FILES, f"As of {as_of}", error.sentence, command_of("dataset", "files", name, "--as-of", as_of)
            )
        following = query(as_of=as_of, after=files.next) if files.next else None
        shown = _table(
            [plain(one) for one in files],
            _FILES,
            f"Files as of {as_of}",
            "no file was there then",
            command_of("dataset", "files", name, "--as-of", as_of),
        )
        return {**shown, "next": following}
    if (where := asked.get("where", "")) and asked.get("ask") != "drop":
        return _chosen(mill, dataset, where, after)
    if view is not None and not view["shown"].counted and not after:
        rows = view["partitions"]
        title = f"Partitions of {view['title']}"
        cut = f"the first {_FEW} of {len(rows):,}" if len(rows) > _FEW else ""
        shown = _table(rows[:_FEW], _PLACED, title, _NONE_HERE, command_of("dataset", "partitions", name))
        if asked.get("all") or len(rows) <= _FEW:
            return {**shown, "table": rows}
        return {**shown, "sub": cut, "next": query(within=asked.get("within", ""), all="1")}
    page = mill.datasets.partitions(name, limit=_SHOWN if view else 200, after=after)
    most = max((one.rows for one in page), default=1) or 1
    cells = [
        {
            "shape": f"s{min(4 * one.rows // most + 1, 4)}",
            "link": link("/datasets", name, one.partition),
            "title": f"{one.partition}: {number_of(one.rows, 'row')}, {format_bytes(one.bytes)}",
        }
        for one in page
    ]
    columns = (PARTITION_PAGE, *PARTITION_COLUMNS[1:])
    rows = [{**plain(one), "page": link("/datasets", name, one.partition)} for one in page[:_SHOWN]]
    empty = "no partition yet; a run of a program that writes it brings them"
    following = query(after=page.next, within=asked.get("within", "")) if page.next else None
    shown = _table(rows, columns, "All partitions by key", empty, command_of("dataset", "partitions", name))
    return {**shown, "cells": () if view else cells, "next": following}


def _chosen(mill: Mill, dataset: DatasetView, where: str, after: str) -> Mapping[str, Any]:
    """Return the table of the partitions that `where` chooses, by key; in place of rows the reason of a refusal."""
    columns = (Column("partition", "Partition", "name", "{page}"), *PARTITION_COLUMNS[1:])
    try:
        words = shlex.split(where)
        page = mill.datasets.partitions(dataset.name, where=words, limit=_SHOWN, after=after)
    except (TidemillError, ValueError) as error:
        command = command_of("dataset", "partitions", dataset.name)
        return _table([], columns, "Chosen partitions", f"{where} is refused: {error}", command)
    rows = [{**plain(one), "page": link("/datasets", dataset.name, one.partition)} for one in page]
    options = [word for one in words for word in ("--where", one)]
    command = command_of("dataset", "partitions", dataset.name, *options)
    shown = _table(rows, columns, "Chosen partitions", "no partition fits", command)
    return {**shown, "next": query(where=where, after=page.next) if page.next else None}


def _table(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[Column], title: str, empty: str, command: str
) -> Mapping[str, Any]:
    return {
        "table": rows,
        "columns": columns,
        "title": title,
        "sub": "",
        "empty": empty,
        "command": command,
        "next": None,
        "cells": (),
    }


def _rows(mill: Mill, dataset: DatasetView, asked: Mapping[str, str]) -> Mapping[str, Any]:
    """Return the first rows, if they are asked for: only that opens a file."""
    if not asked.get("rows"):
        return {"rows": None, "row_names": ()}
    return read_rows(mill, dataset.name, None)


def read_rows(mill: Mill, name: str, key: str | None) -> Mapping[str, Any]:
    """Return the first rows of a data set or partition; the reason in their place if they cannot be read."""
    try:
        rows = mill.datasets.head(name, key, limit=MOST_ROWS)
    except TidemillError as error:
        return {"rows": [{"not read": error.sentence}], "row_names": ["not read"]}
    return {"rows": rows, "row_names": list(dict.fromkeys(column for row in rows for column in row))}


def _dropped(mill: Mill, dataset: DatasetView) -> Sequence[Mapping[str, Any]]:
    page = mill.datasets.dropped(dataset.name, limit=10)
    if not page:
        return ()
    rows = [{**plain(one), "page": link("/datasets", dataset.name, one.partition)} for one in page]
    found = dict(section("Dropped", (), _DROPPED, "", "the newest 10"))
    return ({**found, "rows": rows, "command": command_of("dataset", "dropped", dataset.name)},)


def plot_growth(growth: Growth) -> Plot:
    """Return the rows that were written on each of the last days."""
    by_day = {one.day: one.rows for one in growth.days}
    last = max(by_day, default=None)
    days = []
    if last is not None:
        number = min((last - min(by_day)).days + 1, _GROWTH)
        days = [last - timedelta(days=n) for n in reversed(range(number))]
    return Plot(
        "Rows written by day",
        [datetime.combine(day, time(), UTC) for day in days],
        [Series("rows written", "✓", "bar", [by_day.get(day, 0) for day in days])],
        "rows",
        "nothing was written yet; a run of a program that writes it does",
        "day",
    )


def list_columns(dataset: DatasetView, schemas: Sequence[SchemaView]) -> Sequence[Mapping[str, Any]]:
    """Return the columns of a file set, each with the commit that brought it or its type."""
    keys = dataset.spec.get("keys")
    found: dict[str, dict[str, Any]] = {
        name: {"name": name, "type": kind, "key": True, "said": ""}
        for name, kind in (keys.items() if isinstance(keys, Mapping) else ())
    }
    for place, one in enumerate(schemas):
        seq = one.commit_seq
        current = {field["name"]: _type(field["type"]) for field in _fields(one.schema)}
        for name, kind in current.items():
            before = found.get(name)
            if before is None:
                said = f"added by commit {seq:,}" if place else ""
                found[name] = {"name": name, "type": kind, "key": False, "said": said}
            elif before["type"] != kind and not before["key"]:
                before |= {"type": kind, "said": f"{before['type']} until commit {seq:,}"}
        for name in found.keys() - current.keys():
            if not found[name]["key"]:
                found[name]["said"] = f"left out since commit {seq:,}"
    return [*found.values()]


def _fields(schema: str) -> Sequence[Mapping[str, Any]]:
    try:
        fields: Sequence[Mapping[str, Any]] = json.loads(schema)["fields"]
    except (ValueError, KeyError, TypeError):
        return ()
    return fields


def _type(kind: object) -> str:
    return kind if isinstance(kind, str) else json.dumps(kind)


def _forms(dataset: DatasetView, asked: Mapping[str, str]) -> Sequence[Form]:
    key = next(iter(dataset.spec.get("keys") or {"day": ""}))  # type: ignore[call-overload]  # a mapping
    return (
        Form(
            "See the files of then",
            (Field("as_of", "As of a commit or time", "2026-01-31T12:00Z", asked.get("as_of", "")),),
            ask="as_of",
        ),
        Form("What would go?", (Field("where", "Drop partitions", f"{key}=…", asked.get("where", "")),), ask="drop"),
    )


def _preview(request: Request, mill: Mill, dataset: DatasetView) -> Preview | None:
    asked, path = request.query_params, link("/v1/datasets", dataset.name)
    try:
        match asked.get("ask"):
            case "drop":
                return offered(request, _ask_drop(mill, dataset, asked.get("where", ""), path))
            case "compact":
                return offered(request, _ask_compact(dataset, path))
    except (TidemillError, ValueError) as error:
        says = error.sentence if isinstance(error, TidemillError) else str(error)
        return Preview("This cannot be done", says, command_of("dataset", "show", dataset.name))
    return None


def _ask_drop(mill: Mill, dataset: DatasetView, text: str, path: str) -> Preview:
    where = shlex.split(text)
    going = mill.datasets.drop(dataset.name, where, dry_run=True)
    rows, files = sum(one.rows for one in going), sum(one.files for one in going)
    command = command_of("dataset", "drop", dataset.name, *(word for one in where for word in ("--where", one)))
    if not going:
        return Preview("Nothing to drop", f"No partition of {dataset.name} is meant by {text}.", f"{command} --dry-run")
    says = (
        f"This drops {number_of(len(going), 'partition')} of {dataset.name} with {number_of(rows, 'row')} in "
        f"{number_of(files, 'file')}. The files stay for the time of keep_superseded."
    )
    action = Action(
        f"Drop {number_of(len(going), 'partition')}",
        f"{path}:drop",
        says,
        f"{number_of(len(going), 'partition')} dropped",
        Right.DEPLOY,
        body=body_of(where=where),
        danger=True,
    )
    return Preview("Drop partitions", says, command, action, [plain(one) for one in going[:_SHOWN]], _GOING)


def _ask_compact(dataset: DatasetView, path: str) -> Preview:
    says = (
        f"This merges the small files of {dataset.name}: it has {number_of(dataset.files, 'file')} in "
        f"{number_of(dataset.partitions or 0, 'partition')}. Rows stay the same. The server starts Spark for it."
    )
    action = Action("Compact", f"{path}:compact", says, "the small files were merged", Right.DEPLOY)
    return Preview("Compact", says, command_of("dataset", "compact", dataset.name), action)
