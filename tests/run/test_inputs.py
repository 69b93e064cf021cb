"""Claims at the end of an attempt, on both databases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lake.test_snapshot import make_mirror
from tidemill.catalog.db import Db
from tidemill.lake.claims import Blame
from tidemill.lake.consumer.managed import ensure_consumer
from tidemill.lake.datasets import DatasetKind
from tidemill.narration import Narrator
from tidemill.run.processes.runner import RunEvent, RunEventKind
from tidemill.run.records.runs import RunState
from tidemill.run.step.attempts import AttemptEnd, Cause, end_attempt
from tidemill.run.step.inputs import KINDS, find_inputs
from tidemill.run.step.outputs import write_frames
from tidemill.run.step.step import Step


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


def test_the_consumers_of_a_program_are_looked_up_at_once(works, monkeypatch):
    """Each begin and each end of an attempt finds the inputs: a look-up for each kind, or each feed, would add up."""
    snapshot = make_mirror(works.catalog).users
    program = works.program(reads=(snapshot.qualified_name,))
    works.catalog.write(lambda db: ensure_consumer(db, snapshot.dataset_id, program.qualified_name))
    run, asked = Db._run, []  # the one place that sees all statements
    monkeypatch.setattr(Db, "_run", lambda db, call: (asked.append(call.statement.name), run(db, call))[1])

    found = works.catalog.read(lambda db: find_inputs(db, program))

    assert [len(kind.ids) for kind in found.kinds] == [0, 1, 0, 0, 1]
    assert asked == ["datasets.find_by_name", "managed.find_readers"]


@pytest.mark.parametrize(
    ("follows", "counted"), [(False, "1 version of users, 3 rows"), (True, "1 new version of users")]
)
def test_the_line_of_a_commit_counts_what_its_inputs_count(works, follows, counted):
    """A version is no partition: the line is for people, and they do not know the kinds of input."""
    mirror = make_mirror(works.catalog)
    mirror.refresh(rows=3)
    program = works.program(reads=(mirror.users.qualified_name,))
    if follows:
        works.catalog.write(lambda db: ensure_consumer(db, mirror.users.dataset_id, program.qualified_name))
    run = works.under_way(program)
    found = works.catalog.read(lambda db: find_inputs(db, program))
    step = Step.begin("driver", works.catalog, run, {}, write_frames, inputs=found)
    step.take()
    told = []

    facts = {"inputs": step.inputs.count(), "outputs": [{"dataset": "default.copy", "partitions": [], "rows": 3}]}
    ended = replace(works.run(run.run_id), state=RunState.COMPLETED, facts=facts)
    narrator = Narrator(works.world, told.append, as_json=False)
    narrator.ran(RunEvent(RunEventKind.ENDED, ended, program))

    assert f"   {counted}   " in told[0]


def test_each_kind_of_data_set_is_read_by_a_kind_of_input():
    """A deployment and the inputs of a run ask the data set for it."""
    sources = [kind.source_kind for kind in KINDS]

    assert set(DatasetKind) <= set(sources)
