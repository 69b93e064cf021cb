"""The balance of the rows of raw files: rows that runs read from an inbox against rows published and left out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

MOST_NAMED: Final = 10
_INBOX: Final = "inbox"


@dataclass(frozen=True, slots=True)
class Balance:
    """The runs that took files of an inbox; rows are of those whose balance is known.

    `rows_out` includes rows that checks have quarantined, which are published too; `rejected` rows were bad and went to
    the file set of rejects; `duplicates` were left out. Where a run
    differs its program has dropped or made rows, which may be as it should: it filters, or groups. Not known is the
    balance of runs that read files by themselves, or beside other inputs, or of whose reading nothing shows that it
    came to its end: what a program looks at (`count()`, `isEmpty()`), caches or cuts short before it writes it.
    """

    balanced: int = 0
    differing: int = 0
    not_known: int = 0
    rows_in: int = 0
    rows_out: int = 0
    rejected: int = 0
    duplicates: int = 0
    differ: tuple[str, ...] = ()
    """The first runs that differ."""


class Balances:
    """The balance of each inbox, run by run."""

    def __init__(self) -> None:
        self._of: defaultdict[str, Balance] = defaultdict(Balance)

    def add(self, run_id: str, facts: Mapping[str, Any]) -> None:
        """Weigh a completed run by its facts, for each inbox of which it took files."""
        weighed = weigh(facts)
        for name, kind in _taken(facts).items():
            if kind == _INBOX:
                self._of[name] = _add(self._of[name], run_id, weighed)

    def of(self, name: str) -> Balance:
        """That of an inbox."""
        return self._of[name]


def weigh(facts: Mapping[str, Any]) -> tuple[int, int, int, int] | None:
    """Rows that a run has read of inboxes, published, rejected, and left out as duplicates; None when not known."""
    read = {one["dataset"]: one["rows"] for one in facts.get("read", [])}
    rejected = sum(one.get("rejected", 0) for one in facts.get("read", []))
    duplicates = [one for one in facts.get("duplicates", []) if one["rows_in"] != 0]
    left_out = [one[why] for one in duplicates for why in ("within", "published")]
    taken = _taken(facts)
    only_raw = all(kind == _INBOX for kind in taken.values())
    if not only_raw or set(read) != set(taken) or None in (*read.values(), *left_out):
        return None
    published = sum(one["rows"] for one in facts.get("outputs", []))  # rejects are rows of an output, too
    return sum(read.values()) + rejected, published - rejected, rejected, sum(left_out)


def _taken(facts: Mapping[str, Any]) -> Mapping[str, str]:
    """The kinds of those inputs that had anything, by data set."""
    return {one["dataset"]: one["kind"] for one in facts.get("inputs", []) if one["count"]}


def _add(balance: Balance, run_id: str, weighed: tuple[int, int, int, int] | None) -> Balance:
    if weighed is None:
        return replace(balance, not_known=balance.not_known + 1)
    rows_in, rows_out, rejected, duplicates = weighed
    differs = rows_in != rows_out + rejected + duplicates
    return replace(
        balance,
        balanced=balance.balanced + (not differs),
        differing=balance.differing + differs,
        rows_in=balance.rows_in + rows_in,
        rows_out=balance.rows_out + rows_out,
        rejected=balance.rejected + rejected,
        duplicates=balance.duplicates + duplicates,
        differ=(*balance.differ, run_id)[:MOST_NAMED] if differs else balance.differ,
    )
