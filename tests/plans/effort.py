"""Rows that a statement really read: PostgreSQL and SQLite both count them, and both show their plan."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import apsw
import psycopg

from tidemill.catalog.named import Call, RowSet
from tidemill.catalog.postgres import execute_text
from tidemill.catalog.sqlite import hold_rows, text_of

_PARTIAL = "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql LIKE '% WHERE %'"
_TICK = "UPDATE clock SET value = value + 1 WHERE id = 1"
_NO_SCANS = frozenset({"Subquery Scan", "Bitmap Index Scan", "CTE Scan"})
"""Nodes of a plan whose rows were counted where they were read."""
_STOPS_EARLY = re.compile(r"\bLIMIT\b|\bmin\(|\bmax\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Effort:
    """An execution of a statement, rolled back."""

    rows: int
    """The number of returned or changed rows."""
    read: int
    """PostgreSQL: rows that its plan touched, the thrown away among them. SQLite: steps of its machine."""
    objections: tuple[str, ...]
    """Parts of the plan that grow with the history, whatever they cost this time."""
    plan: str

    def __str__(self) -> str:
        return "\n".join((f"gave {self.rows}, read {self.read}", *self.objections, self.plan))


def try_on_sqlite(connection: apsw.Connection, call: Call, big: Collection[str]) -> Effort:
    """Run `call` in a transaction that is rolled back, and look at its plan."""
    text = text_of(call)
    params = {name: value for name, value in call.params.items() if not isinstance(value, RowSet)}
    hold_rows(connection, [call])
    profiles: list[dict[str, Any]] = []
    connection.execute("BEGIN IMMEDIATE")
    try:
        plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {text}", params)]
        if call.statement.dated:
            connection.execute(_TICK)
        connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, profiles.append)
        before = connection.total_changes()
        rows = len(connection.execute(text, params).fetchall())
        rows = rows or connection.total_changes() - before
    finally:
        connection.trace_v2(0, None)
        connection.execute("ROLLBACK")
    steps = sum(profile["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"] for profile in profiles)
    names = _aliases(text)
    partial = {str(row[0]) for row in connection.execute(_PARTIAL)}
    objections = []
    for line in plan:
        words = line.split()
        table = names.get(words[1], words[1]) if len(words) > 1 else ""
        if "AUTOMATIC" in words and table in big:
            objections.append(f"makes an index of its own over {table}: {line}")
        elif words[0] == "SCAN" and table in big and partial.isdisjoint(words) and not _STOPS_EARLY.search(text):
            objections.append(f"reads all of {table}: {line}")
    return Effort(rows, steps, tuple(objections), "\n".join(plan))


def try_on_postgres(
    connection: psycopg.Connection[tuple[Any, ...]], call: Call, big: Collection[str], mode: str
) -> Effort:
    """Run `call` as EXECUTE in a transaction that is rolled back; `mode` is PostgreSQL's plan_cache_mode.

    After five executions PostgreSQL may turn to a plan that knows no parameters: `force_generic_plan` has it at once,
    `auto` leaves the choice to it, after five executions.
    """
    explain = f"EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) {execute_text(call)}"
    connection.execute("BEGIN")
    try:
        connection.execute(f"SET LOCAL plan_cache_mode = {mode}")
        connection.execute(f'PREPARE "{call.statement.name}" AS {call.statement.positional}')
        if call.statement.dated:
            connection.execute("SELECT tidemill_tick()")
        for _ in range(5 if mode == "auto" else 0):
            connection.execute(execute_text(call))
        row = connection.execute(explain).fetchone()
    finally:
        connection.execute("ROLLBACK; DEALLOCATE ALL")  # a prepared statement outlives the transaction
    assert row is not None
    top = row[0][0]["Plan"]
    nodes = list(_nodes(top))
    scans = [node for node in nodes if "Scan" in node["Node Type"] and node["Node Type"] not in _NO_SCANS]
    objections = []
    for node in nodes:
        if node["Node Type"] == "Seq Scan" and node["Relation Name"] in big:
            objections.append(f"reads all of {node['Relation Name']}")
        # An index whose first columns are not bound is read from end to end, and its rows are not counted.
        blocks = _blocks(node) - sum(_blocks(child) for child in node.get("Plans", ()))
        if "$" in node.get("Index Cond", ""):  # it may be the first to ask for what was planned apart
            blocks -= sum(_blocks(one) for one in nodes if one.get("Parent Relationship") == "InitPlan")
        if "Index Name" in node and blocks > 100 + 10 * (_touched(node) + node["Actual Loops"]):
            objections.append(f"reads {blocks} blocks of {node['Index Name']} for {_touched(node)} rows")
    if top["Node Type"] == "ModifyTable" and not top["Actual Rows"]:  # no RETURNING
        rows = sum(child["Actual Rows"] for child in top["Plans"] if child["Parent Relationship"] == "Outer")
    else:
        rows = top["Actual Rows"]
    return Effort(rows, sum(map(_touched, scans)), tuple(objections), "\n".join(_shown(top)))


def _blocks(node: dict[str, Any]) -> int:
    return int(node["Shared Hit Blocks"] + node["Shared Read Blocks"])


def _nodes(node: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield node
    for child in node.get("Plans", ()):
        yield from _nodes(child)


def _touched(node: dict[str, Any]) -> int:
    rows = sum(node.get(key, 0) for key in ("Actual Rows", "Rows Removed by Filter", "Rows Removed by Index Recheck"))
    return round(rows * node["Actual Loops"])


def _shown(node: dict[str, Any], depth: int = 0) -> Iterator[str]:
    where = [node[key] for key in ("Relation Name", "Index Name", "Index Cond", "Filter", "Hash Cond") if key in node]
    counted = f"{node['Actual Rows']} rows × {node['Actual Loops']}, removed {node.get('Rows Removed by Filter', 0)}"
    yield f"{'  ' * depth}{node['Node Type']} {' · '.join(where)} ({counted})"
    for child in node.get("Plans", ()):
        yield from _shown(child, depth + 1)


def _aliases(text: str) -> dict[str, str]:
    return {m["alias"]: m["table"] for m in re.finditer(r"\b(?P<table>\w+) AS (?P<alias>\w+)", text)}
