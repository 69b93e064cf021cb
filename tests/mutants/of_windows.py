"""Mutants of watermarks and windows."""

from __future__ import annotations

from typing import Final

from tests.mutants.edit import In, Sql
from tests.mutants.mutant import Killer, Room, mutants_of

_mutant = mutants_of(Room.WINDOWS)

MUTANTS: Final = (
    _mutant(
        "watermark_passes_open_spans",
        "an open transaction that has declared earlier times holds the watermark back",
        Sql("note_move").swap(
            "i.from_time IS NOT NULL AND (o.value IS NULL", "i.from_time IS NULL AND (o.value IS NULL"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "slot_complete_by_halves",
        "a slot waits for all of the partitions that were named",
        Sql("complete_slots").swap("AND :expected <= (SELECT count(*)", "AND :expected * 0 + 1 <= (SELECT count(*)"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "hole_passed_over",
        "under wait a missing slot holds the watermark",
        In("_raise_target").swap("waits", "not waits"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "watermark_moves_in_silence",
        "a move is told in the commit that makes it",
        In("watermark._settle").drop("SQL.publish_move"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "watermark_never_released",
        "the keeper moves a watermark when who held it is gone",
        Sql("find_releasable").swap(
            "WHERE w.target IS NOT NULL AND (w.value IS NULL OR w.value < w.target)", "WHERE w.target IS NULL"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "two_runs_of_one_state",
        "`computed` moves by compare-and-set",
        In("MoveWindows.guards").drop("SQL.refuse_moved"),
        Sql("windows.move_state").swap(
            "WHERE program_id = :program_id AND revision = :revision",
            "WHERE program_id = :program_id AND :revision >= 0",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "windows_beyond_the_snapshot",
        "a run replaces no windows that its snapshot does not see",
        In("WindowProgram.__call__").swap("opened.state.moved_seq >= tx.write_pointer", "False"),
        Sql("windows.refuse_moved").swap("moved_seq < :write_pointer", "0 < :write_pointer"),
        first=Killer.EXPLORER,
        scenario="windows-moved",
    ),
    _mutant(
        "listing_takes_rows_of_runs",
        "a listing replaces no rows that a run has added since the comparison of the directory",
        In("AddPartitions._compared").swap(
            "self.tx.write_pointer if self.seen is None else self.seen", "self.tx.write_pointer"
        ),
        first=Killer.EXPLORER,
        scenario="windows-listed-beside",
    ),
    _mutant(
        "passes_what_was_not_read",
        "a run of a back-fill leaves the windows of partitions that it has not read to later runs",
        In("Reached.upto").swap("min(self.passed, horizon)", "self.passed"),
        first=Killer.POLICIES,
    ),
    _mutant(
        "stops_at_what_was_read",
        "a run reads more of the partitions that wait while its limits reach further",
        In("WindowProgram._look").swap("at.upto(horizon) != at", "False"),
        first=Killer.POLICIES,
    ),
    _mutant(
        "closed_one_hour_early",
        "a window is closed when the watermark has reached its end",
        In("window_plan.plan").swap(
            "computed < grid.closes(one) <= passed", "computed < grid.closes(one) <= passed + 3600000000"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "closed_beyond_its_end",
        "a window that ends at the watermark is closed",
        In("window_plan.plan").swap("computed < grid.closes(one) <= passed", "computed < grid.closes(one) < passed"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "watermark_of_another_moment",
        "what a run has computed ends where the watermark stood for its snapshot, not where it stands by now",
        In("WindowProgram._find_move").swap(
            "plan.computed", "workspace.ask(lambda db, _: value_at(db, look.sources[0].dataset_id, 1 << 60))"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "late_not_recomputed",
        "late partitions have their windows computed again",
        In("window_program._list_dirty").swap("spec.late not in {LatePolicy.RECOMPUTE, LatePolicy.ERROR}", "spec.late"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "late_recomputed_though_dropped",
        "late partitions may be dropped",
        In("window_program._list_dirty").swap("spec.late not in {LatePolicy.RECOMPUTE, LatePolicy.ERROR}", "False"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "late_not_kept",
        "late rows that count in no window are in the side table",
        In("Aside.put_late").swap("one.files", "False"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "late_kept_again",
        "a run keeps the late rows of the commits that no earlier run has seen",
        In("Aside.put_late").swap("rows.since <= c.commit_seq < rows.until", "c.commit_seq < rows.until"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "seen_until_the_commit",
        "a run has seen what its snapshot shows, not what was published while it ran",
        Sql("windows.move_state").swap(
            "SET computed = :computed, seen = :seen,", "SET computed = :computed, seen = :seen * 0 + {commit_seq},"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "late_in_silence",
        "the commit of a late partition says that computed windows have to be done again",
        Sql("announce_late").swap("i.late <> 'drop'", "i.late = 'never'"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "windows_of_the_killed_forgotten",
        "windows of a run that was killed are announced again",
        In("WindowInputs.leave").swap("self.postpone(self.ids, leaving.wait)", "()"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "failing_windows_forgotten",
        "a window that could not be computed is tried again",
        In("NotePostponed.writes").swap(
            "if self.failures: ...", "if self.failures and (not self.mended) and self.left: ..."
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "rewind_reopens_nothing",
        "a rewind of the watermark opens the windows that end after it",
        In("rewind_watermark").swap(
            "reopen_windows(db, fileset, value, to_wall(spec.window_zone.local(value)), cause)", "()"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "rewind_counts_what_is_there",
        "after a rewind the watermark waits for commits of later hours",
        In("rewind_watermark").swap(
            "db.run(SQL.forget_slots_beyond, **one, low=low, ends=ends)",
            "db.run(SQL.forget_slots_beyond, **one, low=low, ends=ends + (1 << 50))",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "rewind_forgets_waiting",
        "hours that wait for their runs, and that the watermark has still passed after a rewind, get them",
        Sql("cut").swap(
            "SET last_at = coalesce(r.last_at, boundary.next_at - 1)", "SET last_at = boundary.next_at - 1"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "advance_waits_for_holes",
        "hours before the time to which a person has advanced the watermark hold it no more",
        In("AdvanceWatermark.writes").drop("SQL.go_on"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "span_completes_nothing",
        "the commit of a declared span completes its hours, also those without a partition",
        In("Outputs._completed").swap(
            "self.catalog.read(lambda db: list_slots(db, output.fileset, keys, *declared))", "[]"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "span_completes_halves",
        "an hour that reaches beyond the declared span is not complete with it",
        In("watermark.list_slots").swap(
            "(span := spec.partition_time.span_at(time)).ends <= ends",
            "(span := spec.partition_time.span_at(time)).begins < ends",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "span_stands_for_all_parts",
        "hours that wait for several partitions are not completed by a declared span",
        In("watermark.list_slots").drop("not _is_alone(spec)"),
        In("fill_slots").swap("int(alone)", "int(alone or bool(complete))"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "empty_partition_is_nothing",
        "a partition that was created without rows completes its hour",
        In("PartitionWrite.brings_rows").swap(
            "self.op is not WriteOp.DROP", "self.op is not WriteOp.DROP and bool(self.manifest.files)"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "changed_file_added_again",
        "a file of a monitored table that was written again takes the place of its old content",
        In("monitor._compare_one").swap(
            "partition is not None and len(same) < len(known)", "partition is None and len(same) < len(known)"
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "vanished_directory_stays",
        "a partition of a monitored table is dropped when its directory vanishes",
        In("monitor.find_vanished").swap("sorted(set(known) - signs.keys())", "[]"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "directory_listed_twice",
        "a directory of a monitored table is listed once, with the files on both sides of a directory in it",
        In("list_directories").swap("_is_left_out(directory, prefix)", "not name"),
        In("list_directories").swap("not _is_within(directory, around[-1][0])", "directory != around[-1][0]"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "unread_directory_vanishes",
        "a directory of a monitored table that cannot be read keeps its partition",
        In("list_directories").drop("faults.items()"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "listed_beside_another",
        "a listing publishes nothing after another process has taken charge of the table",
        In("HoldListings.guards").drop("SQL.refuse_other_charge"),
        first=Killer.EXPLORER,
        scenario="windows-listed",
    ),
    _mutant(
        "furthest_of_inputs",
        "a window is closed when the watermarks of all its tables have passed it",
        In("find_least").swap("min(values)", "max(values)"),
        first=Killer.JOINS,
    ),
    _mutant(
        "idle_table_holds",
        "a table without commits for its idle time-out holds no window",
        In("find_least").swap("one.idle_at is None or one.idle_at > now", "True"),
        first=Killer.JOINS,
    ),
    _mutant(
        "idle_table_holds_always",
        "a table is not idle before its time-out has passed",
        In("find_least").swap("one.idle_at is None or one.idle_at > now", "one.idle_at is None"),
        first=Killer.JOINS,
    ),
    _mutant(
        "idle_in_silence",
        "a program starts when a table becomes idle that has held its windows",
        In("WindowProgram._compute").swap("len(look.sources) > 1", "False"),
        first=Killer.JOINS,
    ),
    _mutant(
        "interval_closed_early",
        "a window of an interval join waits for the rows that an interval can reach after its end",
        In("WindowReach.closed_by").swap("value - self.lag", "value"),
        first=Killer.JOINS,
    ),
    _mutant(
        "interval_of_full_join_closed_early",
        "a window of a FULL JOIN waits for the left rows that its right rows can match",
        In("join_tables").swap("WindowReach(own, other, other)", "WindowReach(own, other, 0)"),
        first=Killer.JOINS,
    ),
    _mutant(
        "interval_reads_its_bounds_alone",
        "a window of an interval join reads the partitions that an interval can reach before its start",
        In("WindowReach.needs").swap("span[0] - self.before - spare", "span[0]"),
        first=Killer.JOINS,
    ),
    _mutant(
        "interval_late_beside",
        "a late partition of one table touches the windows of the other one that its rows can match",
        In("WindowReach.touches").swap("begins - self.after - spare", "begins"),
        first=Killer.JOINS,
    ),
    _mutant(
        "interval_late_in_silence",
        "the commit of a late partition starts a program whose windows an interval can reach, beyond `computed` too",
        Sql("announce_late").swap("p.computed + i.lag + abs(i.lag) / 24", "p.computed"),
        first=Killer.JOINS,
    ),
    _mutant(
        "carry_of_changed_rows",
        "a carry counts no more when rows before its end have changed",
        In("find_carry").swap("one.commit_seq >= carry.seen", "False"),
        first=Killer.CHAINS,
    ),
    _mutant(
        "carry_of_later_slots",
        "sessions of a slot follow from a carry that ends before the slot",
        In("find_carry").swap("one.at <= first.start", "True"),
        first=Killer.CHAINS,
    ),
    _mutant(
        "carry_of_changed_partition",
        "a partition that has changed since it was carried is read from its own files",
        In("CarriedPartition.holds").swap("change.commit_seq < self.seen", "True"),
        first=Killer.JOINS,
    ),
    _mutant(
        "sessions_of_their_slot_alone",
        "the sessions of a slot follow from rows of some time before it, where there is no carry",
        In("Grid.spans").swap("_opens(self.zone, window.start) - self.shape.reach", "_opens(self.zone, window.start)"),
        first=Killer.CHAINS,
    ),
    _mutant(
        "late_rows_of_sessions_beside",
        "a late row touches the sessions that follow it in later slots",
        In("Grid.touched").swap("self.shape.reach", "0"),
        first=Killer.CHAINS,
    ),
    _mutant(
        "recomputed_in_silence",
        "a window that is computed again is late data for the next program",
        In("follow_output").swap("(*moved.again, *moved.gone)", "()"),
        first=Killer.CHAINS,
    ),
    _mutant(
        "output_ahead_of_open_windows",
        "a watermark of window_start waits for windows that have begun before",
        In("OutputReach.of").swap("grid.zone.opens(from_wall(grid.first_open(computed)))", "computed"),
        first=Killer.CHAINS,
    ),
    _mutant(
        "output_moved_by_partitions",
        "the partitions of an output move no watermark that follows windows",
        In("watermark._raise_target").swap("not _follows(fileset)", "True"),
        first=Killer.CHAINS,
    ),
    _mutant(
        "output_stands_still",
        "the commit of a window program moves the watermark of its output",
        In("FollowWindows.writes").swap("_follows(self.fileset)", "False"),
        first=Killer.CHAINS,
    ),
    _mutant(
        "rest_of_a_run_forgotten",
        "a run that reaches its limits announces the windows that are left",
        In("WindowProgram._find_move").swap("plan.more or late < len(plan.late) or new < len(plan.new)", "False"),
        first=Killer.POLICIES,
    ),
    _mutant(
        "late_beyond_the_limit_lost",
        "late windows beyond the limits of a run are left to the next runs",
        In("WindowProgram._find_move").swap(
            "[window for window in (*plan.left, *plan.late[late:]) if window not in look.left]", "[]"
        ),
        first=Killer.POLICIES,
    ),
    _mutant(
        "outside_rows_late_unseen",
        "late rows outside their partition touch the windows of their own times",
        In("window_program._list_dirty").swap("dirty + missed + changed", "dirty + missed"),
        first=Killer.POLICIES,
    ),
    _mutant(
        "parked_for_ever",
        "a partition is released when its extractor reads its time at last",
        In("release_parked").swap("catalog.write(lambda db: _release(db, fileset, spans, cause))", "0"),
        first=Killer.POLICIES,
    ),
    _mutant(
        "released_hour_unseen",
        "a released partition is in its windows, though these were computed before",
        In("parked._release").swap(
            "reopen_windows(db, fileset, first, to_wall(spec.window_zone.local(first)), cause)", "0"
        ),
        first=Killer.POLICIES,
    ),
    _mutant(
        "dropped_hour_in_silence",
        "an hour whose directory has vanished is late for its windows",
        In("FollowPartitions._writes").swap(
            "change.brings_rows or change.op is not WriteOp.APPEND", "change.brings_rows"
        ),
        first=Killer.POLICIES,
    ),
    _mutant(
        "nothing_on_demand",
        "on demand, the windows of all partitions are closed",
        In("find_passed").swap("max(map(grid.closes, touched), default=computed)", "computed"),
        first=Killer.POLICIES,
    ),
)
