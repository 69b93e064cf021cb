"""Mutants of runs, their attempts and leases."""

from __future__ import annotations

from typing import Final

from tests.mutants.edit import In, Sql
from tests.mutants.mutant import Killer, Room, mutants_of

_TAKEN: Final = """owner = :owner, owner_process = :owner_process, host = :host, pid = NULL,
       write_pointer = NULL, facts = NULL, lease_until = tidemill_now() + :lease,
       bundle = (SELECT program.bundle FROM program WHERE program.program_id = run.program_id),
       app_version = (SELECT program.app_version FROM program WHERE program.program_id = run.program_id)
 WHERE run_id IN (SELECT run_id FROM picked)
RETURNING run_id

-- name: take_plain_runs"""
"""The rest of the statement that takes runs with Spark and without."""

_mutant = mutants_of(Room.RUNS)

MUTANTS: Final = (
    _mutant(
        "completed_without_its_run",
        "a commit completes claims and publishes, and its run goes on",
        In("DriverProcess._carry_out").drop("finish"),
        scenario="kill",
    ),
    _mutant(
        "end_of_what_has_committed",
        "the end of an attempt is decided on what was read, and done whatever has happened since",
        In("_EndAttempt.guards").drop("SQL.refuse_if_moved"),
        scenario="zombie-small",
    ),
    _mutant(
        "kill_after_the_commit",
        "a kill changes the run that has committed",
        In("end_attempt").swap("run.state.live", "True"),
        scenario="zombie-small",
    ),
    _mutant(
        "kill_forgotten_by_a_retry",
        "a run that was to be killed goes on to its next attempt when this one is lost",
        In("decide_ending").swap("run.kill_asked or cause is Cause.KILLED", "cause is Cause.KILLED"),
        scenario="kill-asked",
    ),
    _mutant(
        "same_epoch_again",
        "the next attempt has the epoch of the one before, and neither ends the other's",
        Sql("take_runs").swap("epoch = epoch + 1", "epoch = max(epoch, 1)"),
        scenario="kill",
    ),
    _mutant(
        "registered_for_what_was_given_up",
        "a driver that comes late registers for an attempt that was fenced",
        Sql("register").swap(
            "AND (state = 'STARTING' OR (state = 'RUNNING' AND token_digest = :token_digest))", "AND ended_at IS NULL"
        ),
        scenario="fenced",
    ),
    _mutant(
        "registered_by_anyone",
        "a driver registers whatever epoch the run is in by now",
        Sql("register").swap("WHERE run_id = :run_id AND epoch = :epoch", "WHERE run_id = :run_id AND epoch >= :epoch"),
        scenario="fenced",
    ),
    _mutant(
        "retries_not_counted",
        "a program that fails is tried again for ever",
        In("decide_ending").swap("run.failures + 1", "run.failures"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "one_retry_less",
        "a program has one retry less than it was promised",
        In("decide_ending").swap("failures <= retries", "failures < retries"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "losses_use_up_retries",
        "an attempt whose process died counts as a failure of the program",
        In("decide_ending").swap("LOSSES_FOR_A_FAILURE", "1"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "losses_without_end",
        "a driver that always dies is started for ever",
        In("decide_ending").swap("LOSSES_FOR_A_FAILURE", "1 << 30"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "load_failure_counts",
        "code that a node cannot load counts as a failure of its program, and against the files that it holds",
        In("DriverProcess._register_and_work").swap("Cause.UNLOADED", "Cause.FAILED"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "load_failures_count_as_losses",
        "so many nodes that cannot load the code of a run, one after the other, count as a failure of the run",
        In("decide_ending").swap(
            "losses = run.losses + 1",
            "losses = run.losses + 1\ncause = Cause.LOST if cause is Cause.UNLOADED else cause",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "reaper_trusts_the_clock",
        "an attempt is fenced as soon as the clock says that its lease is out",
        In("Reaper.step").swap("expired and now_here - sight.since >= self.lease", "expired"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "reaper_fences_the_renewed",
        "an attempt is fenced though its lease was renewed between the look and the deed",
        In("end_attempt").swap("end.unrenewed is not None and run.lease_until != end.unrenewed", "False"),
        In("Reaper.step").swap(
            "AttemptEnd(Cause.LOST, reason, zombie=True, unrenewed=run.lease_until)",
            "AttemptEnd(Cause.LOST, reason, zombie=True)",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "reaper_never_fences",
        "nobody ends the attempts of a machine that is gone",
        In("Reaper.step").swap("expired and now_here - sight.since >= self.lease", "False"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "end_announced_later",
        "that a run has ended is said in a transaction after its end",
        In("DriverProcess._carry_out").swap(
            "step.commit(prepared, [*node.before, finish, *node.after, *announced])",
            "step.commit(prepared, [*node.before, finish, *node.after])\n"
            "if announced:\n    self.catalog.apply(announced)",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "leases_not_renewed",
        "a runner does not renew the leases of its drivers, which another one then fences",
        In("Runner.renew").swap("if working: ...", "if False: ..."),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "death_of_a_driver_not_seen",
        "a runner neither sees that a driver has died nor lets its lease run out",
        In("Runner.watch").swap("isinstance(life, Ended)", "False"),
        In("Runner._works").swap("isinstance(life, Running)", "True"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "pins_outlive_their_run",
        "a run that has ended keeps its files from being deleted for ever",
        In("Inputs.complete").drop("Unpin(tx.run_id)"),
        first=Killer.SIMULATION,
    ),
    # Workflows
    _mutant(
        "workflow_moves_unseen",
        "what follows from the end of a node is decided from a read, and done whatever has ended since",
        In("_LockWorkflow.guards").drop("SQL.refuse_if_workflow_moved"),
        scenario="fork",
    ),
    _mutant(
        "take_of_a_workflow_unseen",
        "a node that ends while another takes writes that the workflow holds nothing",
        Sql("hold_claims").swap(", revision = revision + 1", ""),
        scenario="fork-aside",
    ),
    _mutant(
        "nodes_not_started",
        "the commit that ends a node starts no other node",
        In("_MoveWorkflow.writes").drop("*insertions(runs)"),
        scenario="fork",
    ),
    _mutant(
        "held_claims_never_completed",
        "the last node that reads what a workflow holds completes none of the claims",
        In("decide_claims").swap("holding is Holding.HELD", "False"),
        scenario="fork",
    ),
    _mutant(
        "held_claims_taken_again",
        "each node of a workflow claims files for itself, and gets files that the nodes before did not have",
        In("HeldInputs.take").swap("lock_workflow(db, self.workflow) is not Holding.NOTHING", "False"),
        In("take_within").swap("if not held: ...", "if True: ..."),
        scenario="fork-late",
    ),
    _mutant(
        "failed_workflow_holds_for_ever",
        "a failed workflow that is not resumed keeps its claims",
        In("_end_hold").drop("*returned"),
        scenario="fork",
    ),
    _mutant(
        "killed_workflow_keeps_its_claims",
        "a workflow that was killed returns nothing",
        In("decide_claims").swap("end is RunState.KILLED", "False"),
        scenario="fork-killed",
    ),
    _mutant(
        "resumed_without_its_files",
        "the run that goes on with a failed workflow does not get the files of that workflow",
        In("resume_workflow").drop("hand_over_files(db, failed, new.run_id)"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "resumed_from_the_beginning",
        "the run that goes on with a failed workflow does again what has completed",
        Sql("inherit_nodes").swap("outcome IN ('COMPLETED', 'NO_INPUT')", "outcome = 'NO_INPUT'"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "returned_claims_in_silence",
        "claims that a failed workflow returns start no other run of it",
        In("return_held").drop("*_leave(db, workflow, program, failed=blame is not None)"),
        first=Killer.SIMULATION,
    ),
)
