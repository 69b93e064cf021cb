"""Sessions by Spark: rows that follow each other within a gap, cut where they go on for too long.

`window_plan.Sessions` has the rules. Spark's own `session_window` has no longest session, and no rows that an earlier
run has left open.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from tidemill.frames.schema import quoted
from tidemill.lake.window.carry import CARRY_BEGAN
from tidemill.lake.window.window_plan import Sessions
from tidemill.shapes.partition_time import Instant, WallTime
from tidemill.sql.window_text import wall_literal
from tidemill.sql.windows import FORCED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROWS: Final = "tidemill_session_rows"
OPENS: Final = "__opens"
"""True for one row of each session."""
OWN: Final = (OPENS, "__at", "__new", "__chain", "__later", "__piece", "__first", "__ends", "__cut", CARRY_BEGAN)
"""Columns for counts and carries, not for the query."""


def assign_sessions(rows: DataFrame, column: str, keys: Sequence[str], sessions: Sessions) -> DataFrame:
    """Return the rows, each with its session: `window_start`, `window_end`, `window_time`, `window_forced`, `OPENS`.

    `column` is the time of the rows. The rows of a carry have the begin of their chain. The session of Spark has the
    zone of windows. Also columns `OWN`.
    """
    gap, longest = sessions.gap, sessions.longest
    same = ", ".join(map(quoted, keys)) or "NULL"
    ordered = f"OVER (PARTITION BY {same} ORDER BY __at)"
    before = f"OVER (PARTITION BY {same} ORDER BY __at ROWS UNBOUNDED PRECEDING)"
    whole = f"OVER (PARTITION BY {same}, __piece)"
    rows.createOrReplaceTempView(_ROWS)
    began = f"coalesce({CARRY_BEGAN}, __at)" if CARRY_BEGAN in rows.columns else "__at"
    text = _ROWS
    cut = f"{longest} + CASE WHEN __piece = __chain THEN __chain ELSE __piece - pmod(__piece, {longest}) END"
    for columns in (
        f"unix_micros(CAST({quoted(column)} AS TIMESTAMP)) AS __at",
        # The first row of a chain has no row near before it.
        f"CASE WHEN __at - lag(__at) {ordered} <= {gap} THEN NULL ELSE {began} END AS __new",
        f"max(__new) {before} AS __chain",
        f"greatest(__chain + {longest}, __at - pmod(__at, {longest})) AS __later",
        f"CASE WHEN __at < __chain + {longest} THEN __chain ELSE __later END AS __piece",
        f"coalesce(lag(__piece) {ordered} <> __piece, true) AS {OPENS}",
        f"min(__at) {whole} AS __first, max(__at) {whole} + {gap} AS __ends, {cut} AS __cut",
        f"{_wall('__first')} AS window_start, {_wall('least(__ends, __cut)')} AS window_end",
        f"{_last_instant(rows, column)} AS window_time, __ends >= __cut AS {FORCED}",
    ):
        text = f"(SELECT *, {columns} FROM {text})"
    return rows.sparkSession.sql(f"SELECT * FROM {text}")


def find_open(
    rows: DataFrame, column: str, keys: Sequence[str], sessions: Sessions, at: WallTime, closes: Instant
) -> DataFrame:
    """Return the rows of sessions that are open at `closes`, or end at the wall-clock time `at` or later.

    `rows` are those before `closes`. Column `CARRY_BEGAN` is the begin of the chain of a row.
    """
    found = assign_sessions(rows, column, keys, sessions)
    is_open = f"window_end >= {wall_literal(at)} OR __ends >= {closes}"
    kept = [quoted(name) for name in rows.columns if name != CARRY_BEGAN]
    return found.filter(is_open).selectExpr(*kept, f"__chain AS {CARRY_BEGAN}")


def _last_instant(rows: DataFrame, column: str) -> str:
    """Return the expression of the last millisecond of a session, of the type of `column`."""
    time = "timestamp_micros(least(__ends, __cut) - 1000)"
    kind = {name.lower(): kind for name, kind in rows.dtypes}[column.lower()]
    return f"CAST({time} AS TIMESTAMP_NTZ)" if kind == "timestamp_ntz" else time


def _wall(instant: str) -> str:
    return f"CAST(timestamp_micros({instant}) AS TIMESTAMP_NTZ)"
