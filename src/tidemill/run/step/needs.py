"""Needs of partitions: what a program, its runs and its consumer have done so far with the current content of each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.lake.consumer.managed import Consumer, WorkState, find_readers
from tidemill.lake.datasets import find_by_id
from tidemill.names import DatasetId, ProgramId
from tidemill.run.records.programs import Program
from tidemill.run.records.runs import RunState
from tidemill.shapes.keys import KeyText

if TYPE_CHECKING:
    from tidemill.run.step.needs_sql import Sql

SQL: Sql = load_sql(__file__)


class ItemNeed(StrEnum):
    """Course of an item so far: whether a backfill is of use for it."""

    MISSING = "missing"
    """No run of the program has taken it, as far as records go back."""
    FAILED = "failed"
    """The program's newest run of it ended without a commit, or its consumer has discarded it."""
    DONE = "done"
    WAITING = "waiting"
    """The next run of the program takes it, or another backfill of the program."""
    RUNNING = "running"


_FIRST: Final = (ItemNeed.RUNNING, ItemNeed.WAITING, ItemNeed.FAILED, ItemNeed.MISSING, ItemNeed.DONE)
"""Needs of changes, the one that counts for their partition first."""


class _Change(NamedTuple):
    partition_key: KeyText
    write_pointer: int
    commit_seq: int
    delivers: bool
    run_state: RunState | None
    work_state: WorkState | None


def find_needs(db: Db, program_id: ProgramId, consumer: Consumer, keys: Sequence[KeyText]) -> dict[KeyText, ItemNeed]:
    """Return what these partitions need that the program reads by `consumer`; nothing for one that is not there.

    Cost: a few look-ups for each change.
    """
    changes = db.records(
        SQL.list_course,
        _Change,
        keys=json.dumps(keys),
        dataset_id=consumer.dataset_id,
        program_id=program_id,
        consumer_id=consumer.consumer_id,
    )
    needs: dict[KeyText, ItemNeed] = {}
    for change in changes:
        need = _need_of_change(change.run_state, change.work_state, unseen=_is_unseen(consumer, change))
        needs[change.partition_key] = min(need, needs.get(change.partition_key, need), key=_FIRST.index)
    return needs


def find_needs_again(db: Db, program: Program, dataset_id: DatasetId, keys: Sequence[str]) -> dict[KeyText, ItemNeed]:
    """Return as `find_needs` does; nothing if the program does not read the file set any more."""
    named = find_by_id(db, dataset_id).qualified_name
    for consumer in find_readers(db, [(named, program.qualified_name)] if named in program.reads else []):
        return find_needs(db, program.program_id, consumer, [KeyText(key) for key in keys])
    return {}


def need_of_run(state: RunState | None) -> ItemNeed:
    """Return what an item needs whose newest run is in that state; None stands for no run."""
    if state is None:
        return ItemNeed.MISSING
    if not state.ended:
        return ItemNeed.RUNNING
    return ItemNeed.DONE if state is RunState.COMPLETED else ItemNeed.FAILED


def _is_unseen(consumer: Consumer, change: _Change) -> bool:
    """Return whether a take of the consumer will find a change."""
    state, pointer = consumer.state, change.write_pointer
    concerned = change.delivers and change.commit_seq >= consumer.since_seq
    return concerned and (pointer >= state.start_version or pointer in state.versions_to_check)


def _need_of_change(run: RunState | None, work: WorkState | None, *, unseen: bool) -> ItemNeed:
    """Decide what a change needs, by the newest run that took it, and by its state in the consumer. Pure."""
    if run is not None and not run.ended:
        return ItemNeed.RUNNING
    if work in {WorkState.NEW, WorkState.IN_PROGRESS} or (work is None and unseen):
        return ItemNeed.WAITING
    if run is not None:
        return need_of_run(run)
    if work is WorkState.DISCARDED:
        return ItemNeed.FAILED
    # Retention has deleted the run, and kept the work.
    return ItemNeed.DONE if work is WorkState.COMPLETED else ItemNeed.MISSING
