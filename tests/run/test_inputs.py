"""Claims at the end of an attempt, on both databases."""

from __future__ import annotations

import pytest

from tidemill.lake.claims import Blame
from tidemill.run.records.runs import RunState
from tidemill.run.step.attempts import AttemptEnd, Cause, end_attempt


@pytest.mark.parametrize("retries", [0, 1])
def test_an_attempt_ends_whatever_its_program_raised(works, retries):
    """A text that a database refuses would leave the run to die of it, again and again, as lost."""
    run = works.under_way(works.program(retries=retries))
    said = "ValueError: 'i\0d' and \ud83c"

    ended = end_attempt(works.catalog, run.run_id, run.epoch, AttemptEnd(Cause.FAILED, said, Blame(said)))

    assert ended is (RunState.PENDING if retries else RunState.FAILED)
    assert (
        works.run(run.run_id).exit_reason == "ValueError: 'i\N{REPLACEMENT CHARACTER}d' and \N{REPLACEMENT CHARACTER}"
    )
