"""Promises about windows, the watermark, a snapshot and the inbox after the storm."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import TYPE_CHECKING

from tests.chaos.minutes import WINDOWS, compute_plainly
from tests.chaos.site import find_fileset, rows_of_file
from tidemill.catalog.transactions import Snapshot
from tidemill.lake.fileset.fileset import read_partitions
from tidemill.lake.inbox.leaving import empty_inboxes
from tidemill.names import WritePointer
from tidemill.shapes.partition_time import from_wall

if TYPE_CHECKING:
    from tests.chaos.verdict import Judge

_OF = "JOIN dataset AS d ON d.dataset_id = {0}.dataset_id WHERE d.name = '{1}'"


def find_wrong_windows(judge: Judge) -> list[str]:
    """Windows that are not there once, with the result that a plain computation over the visible ticks has."""
    ticks = {key: [row for texts in files for row in texts] for key, files in rows_by_key(judge, "ticks")}
    closed_to = _watermark(judge)
    wrong = []
    for name in WINDOWS:
        expected = {} if closed_to is None else compute_plainly(ticks, name, closed_to)
        found = dict(rows_by_key(judge, f"by_{name}"))
        wrong += [f"window {key} of {name} is missing" for key in expected.keys() - found.keys()]
        wrong += [f"window {key} of {name} came from nowhere" for key in found.keys() - expected.keys()]
        for key in found.keys() & expected.keys():
            if found[key] != [[expected[key]]]:
                wrong.append(f"window {key} of {name} says {found[key]}, and should say {expected[key]}")
    return wrong


def judge_windows(judge: Judge) -> None:
    """Each window is there exactly once, equal to a plain computation; the watermark moved from where it had stood."""
    judge.verdict.differing += find_wrong_windows(judge)
    moves = judge.sql(
        f"SELECT m.previous, m.value FROM watermark_move AS m {_OF.format('m', 'ticks')} ORDER BY commit_seq"
    )
    told = [
        json.loads(text)
        for (text,) in judge.sql("SELECT payload FROM message WHERE event_key = 'watermark:default.ticks'")
    ]
    if [before for before, _ in moves[1:]] != [value for _, value in moves[:-1]]:
        judge.verdict.differing.append(f"the watermark did not move from where it had stood: {moves}")
    if Counter((one["from"], one["to"]) for one in told) != Counter(map(tuple, moves)):
        judge.verdict.differing.append("moves of the watermark are not those that were announced")
    judge.verdict.counts["moves of the watermark"] = len(moves)
    judge.verdict.counts["windows"] = sum(1 for name in WINDOWS for _ in rows_by_key(judge, f"by_{name}"))
    judge.verdict.counts["windows computed again"] = int(
        judge.sql(
            "SELECT count(*) FROM partition_change AS c JOIN dataset AS d ON d.dataset_id = c.dataset_id"
            " WHERE d.name LIKE 'by_%' AND c.superseded_seq IS NOT NULL"
        )[0][0]
    )


def judge_snapshot(judge: Judge) -> None:
    """Check that versions never go back, that each current version was announced once, and that kept versions exist."""
    rows = judge.sql(
        f"SELECT c.write_pointer, c.location, c.superseded_seq, c.expired_at, c.order_time FROM partition_change AS c"
        f" {_OF.format('c', 'mirror')} ORDER BY c.commit_seq"
    )
    current, latest, became = 0, (-1, 0), []
    for pointer, _, _, _, order_time in rows:
        if (order_time or 0, pointer) > latest:
            current, latest = pointer, (order_time or 0, pointer)
            became.append(pointer)
    told = sorted(
        json.loads(text)["version"]
        for (text,) in judge.sql("SELECT payload FROM message WHERE event_key = 'snapshot:default.mirror'")
    )
    if told != sorted(became):
        judge.verdict.differing.append(f"versions {became} became current, told were {told}")
    if rows and [pointer for pointer, _, superseded, *_ in rows if superseded is None] != [current]:
        judge.verdict.differing.append(f"not version {current} of the snapshot is current, or not alone")
    for pointer, location, _, expired, _ in rows:
        files = (judge.site.folder / "data" / "mirror" / location).rglob("part-0.txt")
        if expired is None and [path.read_text() for path in files] != [f"as of {pointer}\n"]:
            judge.verdict.lost.append(f"version {pointer} of the snapshot is not whole")
    judge.verdict.counts["versions of the snapshot"] = len(rows)
    judge.verdict.counts["of them let go"] = sum(1 for row in rows if row[3] is not None)


def judge_inbox(judge: Judge) -> None:
    """Each file was closed by one committed run, and lies in the archive as it landed; nothing else does."""
    judge.sql("UPDATE inbox_file SET leave_at = 0 WHERE leave_at IS NOT NULL RETURNING name")
    while empty_inboxes(judge.catalog):
        pass
    closed = Counter(
        name
        for (name,) in judge.sql(
            f"SELECT i.item FROM run_input AS i JOIN run AS r ON r.run_id = i.run_id {_OF.format('i', 'raw')}"
            " AND r.state = 'COMPLETED'"
        )
    )
    landed = set(judge.landed())
    judge.verdict.doubled += [f"file {name} was closed {times} times" for name, times in closed.items() if times > 1]
    judge.verdict.lost += [f"file {name} was closed by nobody" for name in landed - closed.keys()]
    left = [path.name for path in judge.site.landing.iterdir() if not path.name.startswith(".")]
    judge.verdict.orphaned += [f"file {name} was not taken away" for name in left]
    there = {path.name: path for path in judge.site.archive.iterdir() if not path.name.startswith(".")}
    judge.verdict.lost += [f"file {name} is not in the archive" for name in closed.keys() - there.keys()]
    judge.verdict.dirty += [f"file {name} is in the archive" for name in there.keys() - closed.keys()]
    for name, path in there.items():
        rows = rows_of_file(name)
        if path.read_text().splitlines() != rows:
            judge.verdict.lost.append(f"file {name} is not in the archive as it had landed")
    fates = judge.sql("SELECT name, afterwards FROM inbox_file WHERE status = 'SUCCESS' AND afterwards <> 'archived'")
    judge.verdict.differing += [f"file {name} is {fate}" for name, fate in fates]
    judge.verdict.counts["files archived"] = len(there)
    judge.verdict.counts["hidden files left by killed janitors"] = sum(
        path.name.startswith(".") for folder in (judge.site.landing, judge.site.archive) for path in folder.iterdir()
    )


def _watermark(judge: Judge) -> datetime | None:
    rows = judge.sql(f"SELECT w.value FROM watermark AS w {_OF.format('w', 'ticks')}")
    return from_wall(rows[0][0]) if rows and rows[0][0] is not None else None


def rows_by_key(judge: Judge, name: str) -> Iterator[tuple[str, list[list[str]]]]:
    """Yield the rows of each visible partition, a list a file."""
    fileset = find_fileset(judge.catalog, name)
    snapshot = Snapshot(WritePointer(judge.catalog.write(lambda db: db.tick())), judge.catalog.incarnation)
    for partition in judge.catalog.read(lambda db: read_partitions(db, fileset.dataset_id, snapshot)):
        texts = [(judge.site.folder / "data" / name / path).read_text().splitlines() for path, _ in partition.files]
        yield str(fileset.keys.decode(partition.partition_key)[0]), texts
