"""The balance of raw rows says what is known of a run, and never that something is wrong which may be meant so."""

from __future__ import annotations

import pytest

from tidemill.upkeep.balance import Balance, Balances, weigh

TAKEN = {"dataset": "default.raw", "kind": "inbox", "count": 2}


def facts(read=10, out=(10,), duplicates=(), inputs=(TAKEN,), rejected=0):
    """Facts of a run."""
    return {
        "inputs": list(inputs),
        "read": [] if read == "by itself" else [{"dataset": "default.raw", "rows": read, "rejected": rejected}],
        "outputs": [{"dataset": f"default.out{n}", "rows": rows} for n, rows in enumerate(out)],
        "duplicates": [{"rows_in": 10, "within": within, "published": known} for within, known in duplicates],
    }


@pytest.mark.parametrize(
    ("said", "weighed"),
    [
        (facts(), (10, 10, 0, 0)),
        (facts(out=(7, 3)), (10, 10, 0, 0)),
        (facts(out=(6,), duplicates=[(1, 3)]), (10, 6, 0, 4)),
        (facts(out=(10, 2), rejected=2), (12, 10, 2, 0)),
        (facts(out=()), (10, 0, 0, 0)),
        (facts(read=None), None),
        (facts(read="by itself"), None),
        (facts(duplicates=[(None, None)]), None),
        (facts(inputs=(TAKEN, {"dataset": "default.other", "kind": "fileset", "count": 1})), None),
        (facts(inputs=(TAKEN, {"dataset": "default.other", "kind": "fileset", "count": 0})), (10, 10, 0, 0)),
        (facts(out=(13,), inputs=(TAKEN, {"dataset": "default.users", "kind": "changes", "count": 1})), None),
        ({}, (0, 0, 0, 0)),
    ],
)
def test_rows_in_are_rows_out_and_duplicates_or_not_known(said, weighed):
    """A program that reads a file by itself, or joins, has no balance: that is no finding."""
    assert weigh(said) == weighed


def test_an_inbox_has_the_sums_of_its_runs_and_names_those_that_differ():
    """Unknown numbers count in no sum."""
    balances = Balances()
    balances.add("run_1", facts())
    balances.add("run_2", facts(out=(4,), duplicates=[(1, 0)]))
    balances.add("run_3", facts(read=None))
    balances.add("run_4", {})

    assert balances.of("default.raw") == Balance(1, 1, 1, 20, 14, 0, 1, ("run_2",))
    assert balances.of("default.other") == Balance()
