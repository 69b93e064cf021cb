"""Views of runs and their inputs, as lists and pages show them to a caller."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import cast

from tidemill.catalog.named import Row
from tidemill.lake.datasets import Dataset
from tidemill.mill.access import Access
from tidemill.names import DatasetId, ProgramId, RunId, WritePointer
from tidemill.run.records.explain import explain_run
from tidemill.run.records.runs import RunRecord, RunState


@dataclass(frozen=True, slots=True)
class RunView:
    """A run.

    `why` says what a pending run waits for, or how a run ended. `exit_reason` is the end of the newest attempt that has
    ended: no reason while another attempt is under way. `facts` is what the newest attempt reported: rows in and out,
    seconds, process.
    """

    run_id: RunId
    program: str | None
    state: str
    why: str | None
    epoch: int
    failures: int
    losses: int
    priority: int
    arguments: Mapping[str, object]
    triggered_by: Mapping[str, object]
    write_pointer: int | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    exit_reason: str | None
    log_location: str | None
    bundle: str
    """The code of its last attempt."""
    app_version: int
    """The deployment of its app that its last attempt executes; 0 before the first attempt."""
    core_seconds: float | None
    """Seconds for which cores were held by the attempts: running time of Spark's tasks, and CPU time of the driver's
    Python process. An attempt whose process was killed adds nothing. None before the first attempt has ended."""
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class InputView:
    """Input of a run: a partition, a file with its content version, or the version of a snapshot."""

    dataset: str
    write_pointer: int
    item: str
    content_version: str


def view_run(
    run: RunRecord,
    names: Mapping[ProgramId, str],
    now: datetime,
    under_way: Callable[[], Mapping[str, int]],
    access: Access,
) -> RunView:
    """Return a run as a caller sees it; `under_way` counts the runs of each machine, for a run that waits."""
    reason = None if run.state.live else run.exit_reason
    return RunView(
        run_id=run.run_id,
        program=None if run.program_id is None else names.get(run.program_id),
        state=run.state,
        why=explain_run(run, now, under_way).why if run.state is RunState.PENDING else reason,
        epoch=run.epoch,
        failures=run.failures,
        losses=run.losses,
        priority=run.priority,
        arguments=run.arguments,
        triggered_by=run.triggered_by,
        write_pointer=run.write_pointer,
        created_at=run.created_at,
        started_at=run.started_at,
        ended_at=run.ended_at,
        exit_reason=reason,
        log_location=run.log_location,
        bundle=run.bundle,
        app_version=run.app_version,
        core_seconds=None if run.core_time is None else run.core_time.total_seconds(),
        facts=_cut_facts(run.facts, access),
    )


def _cut_facts(facts: Mapping[str, object], access: Access) -> Mapping[str, object]:
    """Return the facts of a run without those about data sets that the caller may not read."""
    if access.only is None:
        return facts
    return {
        name: [one for one in value if _is_seen(one, access)] if isinstance(value, list) else value
        for name, value in facts.items()
    }


def _is_seen(fact: object, access: Access) -> bool:
    named = [fact.get("dataset"), fact.get("against")] if isinstance(fact, Mapping) else []
    return all(access.sees_name(one) for one in named if isinstance(one, str) and one)


def view_input(row: Row, by_id: Mapping[DatasetId, Dataset]) -> InputView:
    """Return an input of a run as a caller sees it, from a row of `list_inputs`."""
    # As for `run kill`: the kinds of input are loaded for a run's inputs alone.
    from tidemill.run.step.inputs import kind_of

    dataset_id, write_pointer, item, version = row
    dataset = by_id[DatasetId(str(dataset_id))]
    pointer = WritePointer(cast("int", write_pointer))
    shown = kind_of(dataset).show_item(dataset, pointer, str(item))
    return InputView(dataset.qualified_name, pointer, shown, str(version))
