"""Mutants of watermarks and windows."""

from __future__ import annotations

from typing import Final

from tests.mutants.mutant import Edit, Killer, Room, mutants_of

_WATERMARK: Final = "lake/window/watermark.py"
_WATERMARK_SQL: Final = "lake/window/watermark.sql"
_WINDOWS: Final = "lake/window/windows.py"
_WINDOWS_SQL: Final = "lake/window/windows.sql"
_PLAN: Final = "lake/window/window_plan.py"
_RETRIES: Final = "lake/window/retries.py"
_BOUNDARIES_SQL: Final = "schedule/boundaries.sql"
_OUTPUTS: Final = "run/outputs.py"
_PUBLISH: Final = "lake/fileset/publish.py"
_PROGRAM: Final = "sql/window_program.py"

_mutant = mutants_of(Room.WINDOWS)

MUTANTS: Final = (
    _mutant(
        "watermark_passes_open_spans",
        "an open transaction that has declared earlier times holds the watermark back",
        Edit(
            _WATERMARK_SQL,
            "i.from_time IS NOT NULL\n                        AND (o.value IS NULL",
            "i.from_time IS NULL\n                        AND (o.value IS NULL",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "slot_complete_by_halves",
        "a slot waits for all of the partitions that were named",
        Edit(_WATERMARK_SQL, "AND :expected <= (SELECT count(*)", "AND :expected * 0 + 1 <= (SELECT count(*)"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "hole_passed_over",
        "under wait a missing slot holds the watermark",
        Edit(_WATERMARK, "(SQL.raise_target_waiting if waits else", "(SQL.raise_target_waiting if not waits else"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "watermark_moves_in_silence",
        "a move is told in the commit that makes it",
        Edit(
            _WATERMARK,
            "return SQL.move(dataset_id=dataset.dataset_id), SQL.publish_move(**message)",
            "return (SQL.move(dataset_id=dataset.dataset_id),) if message else ()",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "watermark_never_released",
        "the keeper moves a watermark when who held it is gone",
        Edit(
            _WATERMARK_SQL,
            " WHERE w.target IS NOT NULL AND (w.value IS NULL OR w.value < w.target)\n",
            " WHERE w.target IS NULL\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "two_runs_of_one_state",
        "`computed` moves by compare-and-set",
        Edit(_WINDOWS, "return (SQL.refuse_moved(**params),)", "return () if params else ()"),
        Edit(
            _WINDOWS_SQL,
            " WHERE program_id = :program_id AND revision = :revision\n\n-- name: put_results",
            " WHERE program_id = :program_id AND :revision >= 0\n\n-- name: put_results",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "closed_one_hour_early",
        "a window is closed when the watermark has reached its end",
        Edit(_PLAN, "if closes <= at.passed and", "if closes <= at.passed + 3_600_000_000 and"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "closed_beyond_its_end",
        "a window that ends at the watermark is closed",
        Edit(_PLAN, "if closes <= at.passed and", "if closes < at.passed and"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "watermark_of_another_moment",
        "what a run has computed ends where the watermark stood for its snapshot, not where it stands by now",
        Edit(
            _PROGRAM,
            "computed, seen = plan.computed, plan.seen",
            "computed, seen = run.ask(lambda db, _: value_at(db, look.source.dataset_id, 1 << 60)), plan.seen",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "late_not_recomputed",
        "late partitions have their windows computed again",
        Edit(_PROGRAM, "if spec.late is LatePolicy.RECOMPUTE and state.computed else", "if not spec.late else"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "late_recomputed_though_dropped",
        "late partitions may be dropped",
        Edit(_PROGRAM, "if spec.late is LatePolicy.RECOMPUTE and state.computed else", "if state.computed else"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "seen_until_the_commit",
        "a run has seen what its snapshot shows, not what was published while it ran",
        Edit(
            _WINDOWS_SQL,
            "SET computed = :computed, seen = :seen,",
            "SET computed = :computed, seen = :seen * 0 + {commit_seq},",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "late_in_silence",
        "the commit of a late partition says that computed windows have to be done again",
        Edit(
            _WINDOWS_SQL,
            "WHERE p.dataset_id = :dataset_id AND p.late = 'recompute' AND p.computed > :begins\n\n",
            "WHERE p.dataset_id = :dataset_id AND p.late = 'never' AND p.computed > :begins\n\n",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "windows_of_the_killed_forgotten",
        "windows of a run that was killed are announced again",
        Edit("run/attempts.py", "windows = [] if run.program_id is None else", "windows = [] if run.program_id else"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "failing_windows_forgotten",
        "a window that could not be computed is tried again",
        Edit(_RETRIES, "        if self.failures:\n", "        if self.failures and not self.mended and self.left:\n"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "rewind_reopens_nothing",
        "a rewind of the watermark opens the windows that end after it",
        Edit(
            _WATERMARK,
            "return reopen_windows(db, fileset, value, to_wall(spec.window_zone.local(value)), cause)",
            "return ()",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "rewind_counts_what_is_there",
        "after a rewind the watermark waits for commits of later hours",
        Edit(
            _WATERMARK,
            "db.run(SQL.forget_slots_beyond, **one, low=low, ends=ends)",
            "db.run(SQL.forget_slots_beyond, **one, low=low, ends=ends + (1 << 50))",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "rewind_forgets_waiting",
        "hours that wait for their runs, and that the watermark has still passed after a rewind, get them",
        Edit(
            _BOUNDARIES_SQL,
            "SET last_at = coalesce(r.last_at, boundary.next_at - 1)",
            "SET last_at = boundary.next_at - 1",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "advance_waits_for_holes",
        "hours before the time to which a person has advanced the watermark hold it no more",
        Edit(_WATERMARK, "SQL.go_on(**goes_on), *_settle(self.fileset)\n", "*_settle(self.fileset)\n"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "span_completes_nothing",
        "the commit of a declared span completes its hours, also those without a partition",
        Edit(
            _OUTPUTS,
            "return self.catalog.read(lambda db: list_slots(db, output.fileset, keys, *declared))",
            "return []",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "span_completes_halves",
        "an hour that reaches beyond the declared span is not complete with it",
        Edit(
            _WATERMARK,
            "while (span := spec.partition_time.span_at(time)).ends <= ends:",
            "while (span := spec.partition_time.span_at(time)).begins < ends:",
        ),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "span_stands_for_all_parts",
        "hours that wait for several partitions are not completed by a declared span",
        Edit(_WATERMARK, "or not _is_alone(spec) or begins == EARLIEST", "or begins == EARLIEST"),
        Edit(_WATERMARK, "complete=int(alone))", "complete=int(alone or bool(complete)))"),
        first=Killer.SIMULATION,
    ),
    _mutant(
        "empty_partition_is_nothing",
        "a partition that was created without rows completes its hour",
        Edit(
            _PUBLISH,
            "        return self.op is not WriteOp.DROP\n",
            "        return self.op is not WriteOp.DROP and bool(self.manifest.files)\n",
        ),
        first=Killer.SIMULATION,
    ),
)
