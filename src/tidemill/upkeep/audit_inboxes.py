"""The audit of an inbox: each content of a file is processed once, waits, or is quarantined; and rows balance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tidemill.catalog.named import load_sql
from tidemill.lake.datasets import Dataset
from tidemill.lake.inbox.inbox import FileState
from tidemill.names import file_event
from tidemill.upkeep.balance import Balance
from tidemill.upkeep.completed import ENDED, check_completed, check_lone
from tidemill.upkeep.search import FindingKind, Search

if TYPE_CHECKING:
    from tidemill.upkeep.audit_inboxes_sql import Sql

SQL: Sql = load_sql(__file__)

_ANNOUNCED: Final = frozenset({FileState.NEW, FileState.IN_PROGRESS, FileState.SUCCESS, FileState.ERROR})
"""The states of files that were new, and so announced."""


@dataclass(frozen=True, slots=True)
class InboxAudit:
    """An inbox: its files by state, and how the rows of those that were processed balance.

    `old` are files that were there before the horizon: their messages and runs may be deleted.
    """

    dataset: str
    files: int
    old: int
    states: Mapping[str, int]
    announced: int
    balance: Balance


def audit_inbox(search: Search, inbox: Dataset) -> InboxAudit:
    """Each content is the input of one committed run, or waits, or is quarantined."""
    name = inbox.qualified_name
    states: Counter[str] = Counter()
    lone: list[tuple[str, str]] = []
    old = 0
    ((last,),) = search.ask(SQL.find_last_file, dataset_id=inbox.dataset_id)
    for after, bound in search.windows(SQL.find_bound_of_files, "", dataset_id=inbox.dataset_id, last=last):
        for row in search.ask(
            SQL.read_files, after=after, bound=bound, dataset_id=inbox.dataset_id, horizon=search.horizon.seq
        ):
            file, version, status, run_id, is_old, is_input, run_state, tx_state = row
            where = f"file {file} ({version})"
            states[str(status)] += 1
            old += bool(is_old) and status in _ANNOUNCED
            if status == FileState.SUCCESS and run_state is None and is_old:
                continue  # by a run that retention may have deleted
            if status == FileState.SUCCESS:
                check_completed(search, name, (where, str(run_id), is_input, run_state, tx_state), lone)
            elif status == FileState.IN_PROGRESS and run_state in ENDED:
                what = f"{where} is claimed by {run_id}, which is {run_state}"
                search.report(FindingKind.ORPHANED, name, what, "report it; until it is repaired, no run gets the file")
    check_lone(search, name, lone)
    return InboxAudit(name, states.total(), old, dict(sorted(states.items())), 0, Balance())


def compare_files(
    search: Search, inbox: Dataset, files: InboxAudit, announced: Mapping[str, int], balance: Balance
) -> InboxAudit:
    """All files that are or were new were announced; messages are read after the files, so that none is missed."""
    told = announced.get(file_event(inbox.namespace, inbox.name), 0)
    # Others may have been recorded as what they are, without ever being new.
    new = sum(files.states.get(one, 0) for one in _ANNOUNCED) - files.old
    if told < new:
        what = f"{new} files were found, {told} were announced"
        search.report(FindingKind.LOST, files.dataset, what, "start the program by `tidemill run start`")
    return replace(files, announced=told, balance=balance)
