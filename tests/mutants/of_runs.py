"""Mutants of runs, their attempts and leases."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Killer, Room, mutants_of

_ATTEMPTS: Final = "run/attempts.py"
_ATTEMPTS_SQL: Final = "run/attempts.sql"
_REAPER: Final = "run/reaper.py"
_RUNNER: Final = "run/runner.py"
_DRIVER: Final = "run/driver.py"
_TAKEN: Final = """owner = :owner, owner_process = :owner_process, host = :host, pid = NULL,
       write_pointer = NULL, facts = NULL, lease_until = tidemill_now() + :lease,
       bundle = (SELECT program.bundle FROM program WHERE program.program_id = run.program_id)
 WHERE run_id IN (SELECT run_id FROM picked)
RETURNING run_id

-- name: take_plain_runs"""
"""The rest of the statement that takes runs with Spark and without."""


_mutant = mutants_of(Room.RUNS)

MUTANTS: Final = (
    _mutant(
        "completed_without_its_run",
        "a commit completes claims and publishes, and its run goes on",
        Edit(
            _DRIVER,
            "        step.commit(prepared, [finish, *announced])\n",
            "        step.commit(prepared, announced)\n",
        ),
        scenario="kill",
    ),
    _mutant(
        "end_of_what_has_committed",
        "the end of an attempt is decided on what was read, and done whatever has happened since",
        Edit(_ATTEMPTS, "        return (SQL.refuse_if_moved(**params),)\n", "        return ()\n"),
        scenario="zombie-small",
    ),
    _mutant(
        "kill_after_the_commit",
        "a kill changes the run that has committed",
        Edit(
            _ATTEMPTS,
            "if run.epoch != epoch or not (run.state.live or ",
            "if run.epoch != epoch or not (True or ",
        ),
        scenario="zombie-small",
    ),
    _mutant(
        "kill_forgotten_by_a_retry",
        "a run that was to be killed goes on to its next attempt when this one is lost",
        Edit(_ATTEMPTS, "    if run.kill_asked or cause is Cause.KILLED:\n", "    if cause is Cause.KILLED:\n"),
        scenario="kill-asked",
    ),
    _mutant(
        "same_epoch_again",
        "the next attempt has the epoch of the one before, and neither ends the other's",
        Edit(
            _ATTEMPTS_SQL,
            f"epoch = epoch + 1, {_TAKEN}",
            f"epoch = max(epoch, 1), {_TAKEN}",
        ),
        scenario="kill",
    ),
    _mutant(
        "registered_for_what_was_given_up",
        "a driver that comes late registers for an attempt that was fenced",
        Edit(
            _ATTEMPTS_SQL,
            " WHERE run_id = :run_id AND epoch = :epoch AND state = 'STARTING'\n",
            " WHERE run_id = :run_id AND epoch = :epoch AND ended_at IS NULL\n",
        ),
        scenario="fenced",
    ),
    _mutant(
        "registered_by_anyone",
        "a driver registers whatever epoch the run is in by now",
        Edit(
            _ATTEMPTS_SQL,
            " WHERE run_id = :run_id AND epoch = :epoch AND state = 'STARTING'\n",
            " WHERE run_id = :run_id AND epoch >= :epoch AND state = 'STARTING'\n",
        ),
        scenario="fenced",
    ),
    _mutant(
        "retries_not_counted",
        "a program that fails is tried again for ever",
        Edit(_ATTEMPTS, "            failures = run.failures + 1\n", "            failures = run.failures\n"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "one_retry_less",
        "a program has one retry less than it was promised",
        Edit(_ATTEMPTS, "            if failures <= retries:\n", "            if failures < retries:\n"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "losses_use_up_retries",
        "an attempt whose process died counts as a failure of the program",
        Edit(
            _ATTEMPTS,
            "        case Cause.LOST if losses < LOSSES_FOR_A_FAILURE:\n",
            "        case Cause.LOST if losses < 1:\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "losses_without_end",
        "a driver that always dies is started for ever",
        Edit(
            _ATTEMPTS,
            "        case Cause.LOST if losses < LOSSES_FOR_A_FAILURE:\n",
            "        case Cause.LOST if losses < 1 << 30:\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "load_failure_counts",
        "code that a node cannot load counts as a failure of its program, and against the files that it holds",
        Edit(_DRIVER, "AttemptEnd(Cause.UNLOADED, f", "AttemptEnd(Cause.FAILED, f"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "load_failures_count_as_losses",
        "so many nodes that cannot load the code of a run, one after the other, count as a failure of the run",
        Edit(
            _ATTEMPTS,
            "        case Cause.RETURNED | Cause.POSTPONED | Cause.UNLOADED:\n",
            "        case Cause.RETURNED | Cause.POSTPONED:\n",
        ),
        Edit(_ATTEMPTS, "        case Cause.LOST if losses <", "        case Cause.LOST | Cause.UNLOADED if losses <"),
        Edit(
            _ATTEMPTS,
            "        case Cause.FAILED | Cause.LOST |",
            "        case Cause.FAILED | Cause.UNLOADED | Cause.LOST |",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "reaper_trusts_the_clock",
        "an attempt is fenced as soon as the clock says that its lease is out",
        Edit(
            _REAPER,
            "            elif expired and now_here - sight.since >= self.lease:\n",
            "            elif expired:\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "reaper_fences_the_renewed",
        "an attempt is fenced though its lease was renewed between the look and the deed",
        Edit(
            _ATTEMPTS,
            "        if end.unrenewed is not None and run.lease_until != end.unrenewed:\n",
            "        if False:\n",
        ),
        Edit(_REAPER, "reason, zombie=True, unrenewed=run.lease_until)", "reason, zombie=True)"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "reaper_never_fences",
        "nobody ends the attempts of a machine that is gone",
        Edit(
            _REAPER, "            elif expired and now_here - sight.since >= self.lease:\n", "            elif False:\n"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "end_announced_later",
        "that a run has ended is said in a transaction after its end",
        Edit(
            _DRIVER,
            "        step.commit(prepared, [finish, *announced])\n",
            "        step.commit(prepared, [finish])\n"
            "        if announced:\n"
            "            self.catalog.apply(announced)\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "leases_not_renewed",
        "a runner does not renew the leases of its drivers, which another one then fences",
        Edit(_RUNNER, "        if working:\n", "        if False:\n"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "death_of_a_driver_not_seen",
        "a runner neither sees that a driver has died nor lets its lease run out",
        Edit(_RUNNER, "            elif exit_code is not None:\n", "            elif False:\n"),
        Edit(_RUNNER, "            if held.driver.child.poll() is None and not held.driver.child.stopped()\n", ""),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "pins_outlive_their_run",
        "a run that has ended keeps its files from being deleted for ever",
        Edit(
            "run/step.py",
            "([] if program is None else self._close(program)), Unpin(self.tx.run_id)]",
            "([] if program is None else self._close(program))]",
        ),
        first=Killer.SIMULATION,
    ),
)
