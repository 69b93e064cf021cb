"""The page of one partition: its files and metadata, its past, and the runs that read it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fastapi import Request
from starlette.responses import HTMLResponse

from tidemill.errors import TidemillError
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.mill.partition_views import MOST_LISTED, PartitionDetail
from tidemill.server.pages.columns import BY_RUN, BYTES, COMMITTED, FILES, PROGRAM, ROWS, STATE, Column
from tidemill.server.pages.data_view import (
    Preview,
    body_of,
    command_of,
    number_of,
    offered,
    or_more,
    query,
    show_data,
)
from tidemill.server.pages.dataset_page import MOST_ROWS, read_rows
from tidemill.server.pages.render import link, plain
from tidemill.server.pages.thing import Action, Field, Form
from tidemill.shapes.keys import split_shown
from tidemill.sizes import format_bytes

_CHANGES: Final = (
    COMMITTED,
    Column("op", "Change", "name"),
    ROWS,
    FILES,
    BYTES,
    BY_RUN,
    Column("replaced_by", "Replaced by", "number"),
)
_TAKEN: Final = (
    Column("run_id", "Run", "name", "/runs/{run_id}"),
    PROGRAM,
    STATE,
    Column("started_at", "Started", "time"),
    Column("ended_at", "Ended", "time"),
)
_STORED: Final = (
    Column("path", "File", "long"),
    ROWS,
    BYTES,
)


def show_partition(request: Request, name: str, key: str) -> HTMLResponse:
    """Return the page."""
    mill: Mill = request.state.mill
    one = mill.datasets.partition(name, key)
    rows = read_rows(mill, name, one.partition) if request.query_params.get("rows") else {"rows": None, "row_names": ()}
    own = link("/datasets", one.dataset, one.partition)
    links = [
        ("Data set", link("/datasets", one.dataset)),
        ("Lineage", f"/lineage{query(thing=f'{one.dataset}/{one.partition}')}"),
    ]
    if one.current:
        links += [("Show rows", f"{own}?rows={MOST_ROWS}"), ("Drop", f"{own}?ask=drop")]
    return show_data(
        request,
        "partition.html",
        title=one.partition,
        state="" if one.current else "dropped",
        sub=f"partition of {one.dataset}",
        links=links,
        preview=_preview(request, one),
        facts=[
            ("rows", one.rows, ""),
            ("size", format_bytes(one.bytes), number_of(one.files, "file")),
            ("changes", len(one.changes), or_more(len(one.changes), MOST_LISTED)),
            ("read by", number_of(len(one.taken), "run"), or_more(len(one.taken), MOST_LISTED)),
        ],
        one=one,
        changes=[plain(change) for change in one.changes],
        change_columns=_CHANGES,
        taken=[plain(run) for run in one.taken],
        taken_columns=_TAKEN,
        stored=[plain(file) for file in one.stored],
        stored_columns=_STORED,
        rows_sub=f"the first {MOST_ROWS}",
        rows_command=command_of("dataset", "head", one.dataset, one.partition, "--limit", MOST_ROWS),
        lineage_command=command_of("dataset", "lineage", one.dataset, one.partition),
        forms=[
            Form(
                "Change metadata",
                (
                    Field("entry", "Name", "quality", request.query_params.get("entry", "")),
                    Field("value", "Text, or nothing to remove it", "checked", request.query_params.get("value", "")),
                ),
                ask="describe",
            )
        ]
        if one.current
        else [],
        command=command_of("dataset", "partition", one.dataset, one.partition),
        **rows,
    )


def _preview(request: Request, one: PartitionDetail) -> Preview | None:
    asked: Mapping[str, str] = request.query_params
    path = link("/v1/datasets", one.dataset)
    try:
        match asked.get("ask"):
            case "drop" if one.current:
                return offered(request, _ask_drop(one, path))
            case "describe" if one.current and asked.get("entry"):
                return offered(request, _ask_describe(one, path, asked["entry"], asked.get("value", "")))
    except TidemillError as error:
        return Preview(
            "This cannot be done", error.sentence, command_of("dataset", "partition", one.dataset, one.partition)
        )
    return None


def _ask_drop(one: PartitionDetail, path: str) -> Preview:
    where = [f"{name}={text}" for name, text in split_shown(one.partition)]
    says = (
        f"This drops {one.partition} of {one.dataset} with {number_of(one.rows, 'row')} in "
        f"{number_of(one.files, 'file')}. The files stay for the time of keep_superseded."
    )
    command = command_of("dataset", "drop", one.dataset, *(word for text in where for word in ("--where", text)))
    action = Action(
        "Drop 1 partition",
        f"{path}:drop",
        says,
        f"{one.partition} was dropped",
        Right.DEPLOY,
        body=body_of(where=where),
        danger=True,
    )
    return Preview("Drop", says, command, action)


def _ask_describe(one: PartitionDetail, path: str, entry: str, value: str) -> Preview:
    words = ["--set", f"{entry}={value}"] if value else ["--remove", entry]
    before = one.metadata.get(entry)
    if value:
        says = f"This sets {entry} of {one.partition} to {value!r}" + (f"; it was {before!r}." if before else ".")
        body = body_of(key=one.partition, set={entry: value})
    else:
        says = f"This removes {entry} from {one.partition}" + (f"; it was {before!r}." if before else ".")
        body = body_of(key=one.partition, remove=[entry])
    action = Action("Describe", f"{path}:describe", says, "the metadata were changed", Right.DEPLOY, body=body)
    return Preview(
        "Change metadata", says, command_of("dataset", "describe", one.dataset, one.partition, *words), action
    )
