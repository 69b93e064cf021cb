"""Completed inputs, for audits of consumers and inboxes: the inputs of runs that have committed."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from tidemill.catalog.named import load_sql
from tidemill.upkeep.search import WINDOW, FindingKind, Search, Value

if TYPE_CHECKING:
    from tidemill.upkeep.completed_sql import Sql

SQL: Sql = load_sql(__file__)

ENDED: Final = frozenset({"COMPLETED", "FAILED", "KILLED", "REJECTED"})
"""States in which runs hold nothing."""


def check_completed(
    search: Search, subject: str, row: tuple[str, str, Value, Value, Value], lone: list[tuple[str, str]]
) -> None:
    """Each completed partition or file is the input of a run that has committed."""
    where, run, is_input, run_state, tx_state = row
    if is_input is None:
        what = f"{where} is done, and is not in the input of {run}, which completed it"
        search.report(FindingKind.LOST, subject, what, "run its program on it by hand; report it as a bug")
    elif run_state is None:
        lone.append((where, run))
    elif tx_state != "closed by a claim" and (run_state != "COMPLETED" or tx_state != "committed"):
        what = f"{where} is done by {run}, which is {run_state} with a transaction {tx_state or 'of none'}"
        search.report(FindingKind.LOST, subject, what, "run its program on it by hand; report it as a bug")


def check_lone(search: Search, subject: str, lone: Iterable[tuple[str, str]]) -> None:
    """Inputs of runs without a record: their transactions show whether they have committed."""
    by_run: dict[str, str] = {}
    for where, run in lone:
        by_run.setdefault(run, where)
    runs = sorted(by_run)
    for start in range(0, len(runs), WINDOW):
        some = runs[start : start + WINDOW]
        committed = {row[0] for row in search.ask(SQL.find_commits_of_runs, runs=json.dumps(some))}
        for run in some:
            if run not in committed:
                what = f"{by_run[run]} is done by {run}, which has not committed"
                search.report(FindingKind.LOST, subject, what, "run its program on it by hand; report it as a bug")
