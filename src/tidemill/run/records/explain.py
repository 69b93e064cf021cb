"""Reasons of runs: a pure function over the record of a run, and the number of runs under way on each machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Final

from tidemill.epoch import show_time
from tidemill.reasons import Because, Reason
from tidemill.run.records.runs import Cause, RunKind, RunRecord, RunState

_OF_END: Final[Mapping[RunState, Reason]] = {
    RunState.COMPLETED: Reason.RUN_COMPLETED,
    RunState.FAILED: Reason.RUN_FAILED,
    RunState.KILLED: Reason.RUN_KILLED,
    RunState.REJECTED: Reason.RUN_REJECTED,
}


def explain_run(run: RunRecord, now: datetime, under_way: Callable[[], Mapping[str, int]]) -> Because:
    """Return what a run waits for, does, or how it ended. `under_way` counts the runs at work by machine."""
    if run.state is RunState.PENDING:
        return _explain_pending(run, now, under_way)
    if run.state.ended:
        return _explain_end(run)
    return _explain_live(run, now)


def _explain_pending(run: RunRecord, now: datetime, under_way: Callable[[], Mapping[str, int]]) -> Because:
    evidence: dict[str, object] = {"attempts": run.epoch, "failures": run.failures, "losses": run.losses}
    ended = run.exit_reason
    if run.exit_cause is Cause.UNLOADED:
        why = f"waits for a node that can load its code; the last attempt ended: {ended}"
        cure = "a node that can load the code runs `tidemill up`, or a deployment corrects the code"
        return Because(Reason.RUN_WAITS_FOR_CODE, why, evidence | {"bundle": run.bundle}, cure)
    if run.exit_cause is Cause.LACKING:
        why = f"waits for a node with the Spark that its program needs; the last attempt ended: {ended}"
        cure = "a node with PySpark, Java and the profile runs `tidemill up`, or a deployment names another profile"
        return Because(Reason.RUN_WAITS_FOR_PROFILE, why, evidence, cure)
    if run.not_before is not None and run.not_before > now:
        attempt = f"attempt {run.epoch + 1} at {show_time(run.not_before)}"
        why = f"waits for {attempt}; the last ended: {ended or 'without a reason'}"
        evidence |= {"exit_reason": ended}
        return Because(Reason.RUN_WAITS_FOR_RETRY, why, evidence, "the time comes", run.not_before)
    machines = under_way()
    if not machines:
        why = "waits for a runner: none is at work now; `tidemill up` starts one"
        return Because(Reason.RUN_WAITS_FOR_RUNNER, why, evidence, "`tidemill up`")
    shown = ", ".join(f"{_count(number)} on {host}" for host, number in sorted(machines.items()))
    why = f"waits for a free slot of a runner (`runner.slots`); under way: {shown}"
    cure = "a run on one of these machines ends, or Spark has started there"
    return Because(Reason.RUN_WAITS_FOR_SLOT, why, evidence | {"under_way": dict(machines)}, cure)


def _explain_live(run: RunRecord, now: datetime) -> Because:
    if run.kind is RunKind.WORKFLOW:
        begun: dict[str, object] = {"started_at": run.started_at}
        nodes = f"`tidemill run list --parent {run.run_id}` lists the runs of its nodes"
        if run.state is RunState.STOPPING:
            why = f"is ending: a kill was asked for; {nodes}"
            return Because(Reason.RUN_STOPPING, why, begun, "the runs of its nodes have ended")
        cure = f"its nodes end, or `tidemill run kill {run.run_id}`"
        return Because(Reason.RUN_RUNNING, f"waits for its nodes; {nodes}", begun, cure)
    evidence: dict[str, object] = {
        "attempt": run.epoch,
        "host": run.host,
        "started_at": run.started_at,
        "lease_until": run.lease_until,
        "write_pointer": run.write_pointer,
    }
    where = f"attempt {run.epoch} on {run.host or 'another machine'}"
    if run.lease_until is not None and run.lease_until <= now:
        why = f"{where} has not renewed its lease, which ended at {show_time(run.lease_until)}"
        cure = "its runner renews the lease, or a reaper of another runner fences the run"
        if run.kind is RunKind.EXTERNAL:
            cure = "its caller renews the lease, or a reaper fences the run"
        return Because(Reason.RUN_LEASE_EXPIRED, why, evidence, cure)
    if run.state is RunState.STARTING:
        why = f"{where} starts: its process, and Spark if the program needs Spark"
        return Because(Reason.RUN_STARTING, why, evidence, "the process or Spark has started", run.lease_until)
    if run.state is RunState.STOPPING:
        return Because(
            Reason.RUN_STOPPING, f"{where} is ending: a kill was asked for", evidence, "its processes have ended"
        )
    cure = f"the program ends, or `tidemill run kill {run.run_id}`"
    return Because(Reason.RUN_RUNNING, f"{where} is at work", evidence, cure, run.lease_until)


def _explain_end(run: RunRecord) -> Because:
    reason = run.exit_reason
    evidence: dict[str, object] = {"attempts": run.epoch, "ended_at": run.ended_at, "exit_reason": reason}
    why = f"is {run.state}{f': {reason}' if reason else ''}"
    if run.state is RunState.COMPLETED:
        return Because(Reason.RUN_COMPLETED, why, evidence | {"write_pointer": run.write_pointer})
    evidence |= {"failures": run.failures, "losses": run.losses, "logs": f"tidemill run logs {run.run_id}"}
    return Because(_OF_END[run.state], why, evidence, f"`tidemill run logs {run.run_id}` shows its output")


def _count(number: int) -> str:
    return f"{number} run{'' if number == 1 else 's'}"
