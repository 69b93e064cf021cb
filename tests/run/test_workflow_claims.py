"""The decision what becomes of the claims of a workflow when a node of it ends."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tidemill.run.records.runs import RunState
from tidemill.run.records.workflows import Holding
from tidemill.run.step.workflow_claims import Close, Hold, Keep, ReturnAll, decide_claims

DAY, NOT_AT_ALL = timedelta(days=1), timedelta(0)
NOTHING, HELD, CLOSED, RETURNED = Holding.NOTHING, Holding.HELD, Holding.CLOSED, Holding.RETURNED
COMPLETED, FAILED, KILLED = RunState.COMPLETED, RunState.FAILED, RunState.KILLED


@pytest.mark.parametrize(
    ("holding", "end", "read", "within", "claims"),
    [
        # The last node that reads them has ended well, whatever becomes of the workflow.
        (HELD, None, True, DAY, Close(taken=True)),
        (HELD, COMPLETED, True, DAY, Close(taken=True)),
        (HELD, FAILED, True, DAY, Close(taken=True)),
        (HELD, KILLED, True, DAY, Close(taken=True)),
        (NOTHING, None, True, DAY, Close(taken=False)),
        # Nodes that read them are still to come.
        (HELD, None, False, DAY, Keep(HELD)),
        (NOTHING, None, False, DAY, Keep(NOTHING)),
        # The workflow failed before that.
        (HELD, FAILED, False, DAY, Hold(DAY)),
        (HELD, FAILED, False, NOT_AT_ALL, ReturnAll(RETURNED)),
        (NOTHING, FAILED, False, DAY, ReturnAll(NOTHING)),
        (NOTHING, FAILED, False, NOT_AT_ALL, ReturnAll(NOTHING)),
        # The workflow was killed before that.
        (HELD, KILLED, False, DAY, ReturnAll(RETURNED)),
        (NOTHING, KILLED, False, DAY, ReturnAll(RETURNED)),
        # The claims were closed before.
        (CLOSED, None, True, DAY, Keep(CLOSED)),
        (CLOSED, COMPLETED, True, DAY, Keep(CLOSED)),
        (CLOSED, FAILED, True, DAY, Keep(CLOSED)),
        (CLOSED, KILLED, True, DAY, Keep(RETURNED)),
    ],
)
def test_claims_are_closed_kept_or_returned_by_the_end_of_the_workflow(holding, end, read, within, claims):
    """Claims that are kept by mistake stick; claims that are returned by mistake are worked on twice."""
    assert decide_claims(holding, end, holds=True, read=read, within=within) == claims


@pytest.mark.parametrize(
    ("end", "holding"), [(None, NOTHING), (COMPLETED, NOTHING), (FAILED, NOTHING), (KILLED, RETURNED)]
)
def test_a_workflow_that_holds_nothing_returns_nothing(end, holding):
    """A failed one is resumed all the same, and a killed one is not."""
    assert decide_claims(NOTHING, end, holds=False, read=True, within=DAY) == Keep(holding)
