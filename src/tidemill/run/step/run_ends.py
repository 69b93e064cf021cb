"""Ends and begins of runs, as others learn of them: slots become free, and messages say what happened."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.messages import Publish, Topic
from tidemill.catalog.named import Call, load_sql
from tidemill.names import STARTED, EventKey, RunId, program_event
from tidemill.run.records.programs import Program
from tidemill.run.records.runs import RunRecord, RunState
from tidemill.run.records.values import Value

if TYPE_CHECKING:
    from tidemill.run.step.run_ends_sql import Sql

SQL: Sql = load_sql(__file__)


def free_slots(run_id: RunId, beside: Sequence[RunId] = ()) -> tuple[Call, ...]:
    """Return the statements that free the slots of a run at its end, and wake the jobs that wait for them.

    They come before the locks of runs. `beside` are other runs whose slots the same commit frees: the limits of all are
    locked at once, in order.
    """
    runs = json.dumps([run_id, *beside])
    return (SQL.lock_limits(runs=runs), SQL.wake_waiting_jobs(run_id=run_id), SQL.free_slots(run_id=run_id))


@dataclass(frozen=True, slots=True)
class _AnnounceStart(Effect):
    """Announce the begin of a run, if a schedule listens at this moment. Cost: a look-up."""

    phase = Phase.ANNOUNCE

    event_key: EventKey
    payload: Mapping[str, object]

    def writes(self) -> Sequence[Call]:
        return (SQL.announce_start(event_key=self.event_key, payload=json.dumps(self.payload, separators=(",", ":"))),)


def announce_start(run: RunRecord, program: Program) -> list[Effect]:
    """Return the effects by which the begin of the first transaction of `run` announces the run."""
    if run.first_write_pointer is not None or run.quiet:
        return []
    key = program_event(program.namespace, program.app, program.name, STARTED)
    return [_AnnounceStart(key, _describe(run, program, STARTED))]


def announce_end(
    run: RunRecord,
    program: Program,
    state: RunState,
    publications: Sequence[Mapping[str, object]] = (),
    values: Mapping[str, Value] | None = None,
) -> Publish:
    """Return the message that a run of `program` has reached the end state `state`.

    It has what the commit published, and the values that the run, or the nodes of a workflow, have put. No schedule
    listens to the event key of a quiet run.
    """
    key = program_event(program.namespace, program.app, program.name, f"{state}:quiet" if run.quiet else state)
    said = {"publications": list(publications), **({"values": dict(values)} if values else {})}
    return Publish(Topic.PROGRAM, "run_ended", key, {**_describe(run, program, state), **said})


def announce_return(run: RunRecord, program: Program) -> Publish:
    """Return the message that a failed workflow of `program` has returned the claims that it kept."""
    key = program_event(program.namespace, program.app, program.name, "CLAIMS_RETURNED")
    return Publish(Topic.PROGRAM, "claims_returned", key, _describe(run, program, run.state))


def _describe(run: RunRecord, program: Program, state: str) -> dict[str, object]:
    return {
        "program": program.qualified_name,
        "run_id": run.run_id,
        "state": state,
        "schedule_id": run.schedule_id,
        "arguments": dict(run.arguments),
    }
