"""Backfills: runs of one program over parts of the past, some at a time, beside those of its schedules.

The items of a backfill are recorded when it starts: partitions, logical times, or runs to repeat. A scheduler advances
a backfill when a run of an item has ended: one transaction settles that item and makes the next runs. Items and counts
change under the lock of the backfill's row only. So any number of schedulers may advance a backfill, and a crash
between two transactions leaves nothing to mend.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, assert_never

from tidemill.catalog.db import Catalog, Db
from tidemill.epoch import show_time
from tidemill.errors import Conflict, UserError
from tidemill.names import BackfillId, DatasetId, RunId, WritePointer
from tidemill.run.records.programs import Program, ProgramRetired, find_program_by_id
from tidemill.run.records.runs import BACKFILL, NewRun, RunState, create_pending, find_run
from tidemill.run.records.workflows import plan_start
from tidemill.run.step.chosen_input import choose_partitions, repeat_input
from tidemill.run.step.inputs import refuse_taking
from tidemill.run.step.needs import ItemNeed, find_needs_again
from tidemill.run.step.node_end import NO_INPUT
from tidemill.schedule.backfill_records import (
    Backfill,
    BackfillState,
    By,
    EndedItem,
    ItemChange,
    ItemState,
    NewBackfill,
    insert_backfill,
    list_due,
    list_ended,
    list_items,
    list_next,
    list_open_items,
    lock_backfill,
    move_items,
    store_backfill,
)
from tidemill.world import World

_REPEATED_TIMES: Final = ("logical_time", "logical_times")
"""Fields of the cause of a run that a repetition has too. The feeds of triggers may not be kept any more."""
_TAKEN_MEANWHILE: Final = (
    "another run of the program has taken the partition, or will take it; `tidemill backfill retry` looks again"
)
_IN_ANOTHER: Final = "another backfill of the program has the item; `tidemill backfill retry` looks again"
_DONE_MEANWHILE: Final = "another run of the program has taken it meanwhile"
REPEATS: Final = "replays"
"""Field of the cause of a run that repeats the input of another run: the id of that run."""
LOGICAL_TIME: Final[Mapping[str, object]] = {"from": "logical_time"}
"""The argument that is the logical time of each item."""
_MOST_LOOKED_AT: Final = 1000
"""The most items that one transaction looks at: other commits wait meanwhile."""
_MORE_EACH_LOOK: Final = 10
_REFUSED_IN_A_ROW: Final = 20
"""After so many items in a row for which no run could be made, a backfill pauses by itself."""


class BackfillOver(Conflict):
    """A backfill that was cancelled, or whose items have all ended."""

    code = "backfill_over"

    def __init__(self, backfill_id: str, state: str) -> None:
        self.backfill_id = backfill_id
        self.state = state
        super().__init__(f"backfill {backfill_id} is {state}", "`tidemill backfill start` starts another")


class NothingFailed(Conflict):
    """A backfill without failed items was to try them again."""

    code = "nothing_failed"

    def __init__(self, backfill_id: str) -> None:
        self.backfill_id = backfill_id
        super().__init__(f"backfill {backfill_id} has no failed items", "`tidemill backfill items` lists all items")


def start_backfill(db: Db, world: World, pointer: WritePointer, new: NewBackfill) -> Backfill:
    """Record a backfill with its items, and make its first runs. Cost: its items.

    `pointer` is a tick that the caller's transaction has taken as its first act: see `choose`.
    """
    insert_backfill(db, new)
    return _advance(db, world, pointer, lock_backfill(db, new.backfill_id))


def advance_due(catalog: Catalog, world: World) -> int:
    """Advance the backfills of which runs have ended, or that may make more runs; each once. Return their number.

    Runs may end faster than a scheduler advances: between two calls the scheduler looks after schedules. Several
    schedulers may do so at once.
    """
    due = catalog.read(list_due)
    for backfill_id in due:
        world.mark("backfill.before_advance")
        catalog.write(partial(_advance_one, world=world, backfill_id=backfill_id))
        world.mark("backfill.advanced")
    return len(due)


def pause_backfill(db: Db, backfill_id: BackfillId) -> tuple[Backfill, Backfill]:
    """Make no more runs of a backfill. Return the backfill before and after: the same object if it was paused.

    `BackfillOver`.
    """
    found = _lock_going(db, backfill_id)
    if found.state is BackfillState.PAUSED:
        return found, found
    return found, store_backfill(db, replace(found, state=BackfillState.PAUSED))


def resume_backfill(db: Db, world: World, pointer: WritePointer, backfill_id: BackfillId) -> tuple[Backfill, Backfill]:
    """Go on with a paused backfill; return as `pause_backfill` does. `BackfillOver`.

    `pointer` as for `start_backfill`.
    """
    found = _lock_going(db, backfill_id)
    if found.state is BackfillState.RUNNING:
        return found, found
    return found, _advance(db, world, pointer, replace(found, state=BackfillState.RUNNING, reason=""))


def cancel_backfill(db: Db, backfill_id: BackfillId) -> tuple[Backfill, Backfill]:
    """Drop the waiting items of a backfill for good; return as `pause_backfill` does.

    Runs that are under way go on. `BackfillOver` for a backfill whose items have all ended.
    """
    found = lock_backfill(db, backfill_id)
    if found.state is BackfillState.COMPLETED:
        raise BackfillOver(backfill_id, found.state)
    if found.state is BackfillState.CANCELLED:
        return found, found
    move_items(db, backfill_id, ItemState.WAITING, ItemState.DROPPED)
    dropped = replace(found, state=BackfillState.CANCELLED, waiting=0, dropped=found.dropped + found.waiting)
    return found, store_backfill(db, dropped)


def retry_backfill(db: Db, world: World, pointer: WritePointer, backfill_id: BackfillId) -> tuple[Backfill, Backfill]:
    """Set the failed items of a backfill to WAITING, and make the next runs; return as `pause_backfill` does.

    A paused backfill stays paused. Items that wait or run in another backfill of the program stay FAILED, unless this
    backfill takes all. `pointer` as for `start_backfill`. `BackfillOver` for a cancelled backfill, `NothingFailed`.
    Cost: the failed items, and those of `list_open_items`.
    """
    found = lock_backfill(db, backfill_id)
    if found.state is BackfillState.CANCELLED:
        raise BackfillOver(backfill_id, found.state)
    if not found.failed:
        raise NothingFailed(backfill_id)
    others = {} if found.takes_all else list_open_items(db, found.program_id, found.dataset_id)
    failed = list_items(db, backfill_id, most=found.failed, state=ItemState.FAILED) if others else []
    kept = [ItemChange(one.no, ItemState.FAILED, None, _IN_ANOTHER) for one in failed if one.item in others]
    move_items(db, backfill_id, ItemState.FAILED, ItemState.WAITING, but=kept)
    again = replace(found, waiting=found.waiting + found.failed - len(kept), failed=len(kept))
    if found.state is not BackfillState.PAUSED:
        again = replace(again, state=BackfillState.RUNNING)
    return found, _advance(db, world, pointer, again, kept)


def _lock_going(db: Db, backfill_id: BackfillId) -> Backfill:
    found = lock_backfill(db, backfill_id)
    if found.state.over:
        raise BackfillOver(backfill_id, found.state)
    return found


def _advance_one(db: Db, world: World, backfill_id: BackfillId) -> None:
    pointer = WritePointer(db.tick())
    _advance(db, world, pointer, lock_backfill(db, backfill_id))


def _advance(db: Db, world: World, pointer: WritePointer, found: Backfill, also: Sequence[ItemChange] = ()) -> Backfill:
    """Settle the items whose runs have ended, make the next runs, and store the backfill with items of `also`.

    The caller holds the lock of the backfill.
    """
    settled = _settle_items(db, found)
    advanced = _move_counts(found, ItemState.RUNNING, settled)
    changed = [*also, *settled]
    runs: list[NewRun] = []
    if advanced.state is BackfillState.RUNNING and advanced.waiting:
        advanced, started, runs = _start_items(db, world, pointer, advanced)
        changed += started
    # A paused backfill tries its failed items again after its resumption.
    going = advanced.waiting + advanced.running + (advanced.failed if advanced.state is BackfillState.PAUSED else 0)
    if not going and not advanced.state.over:
        advanced = replace(advanced, state=BackfillState.COMPLETED)
    # First, since it locks data sets. Items change under the lock of the backfill alone.
    create_pending(db, runs)
    return store_backfill(db, advanced, changed)


def _settle_items(db: Db, found: Backfill) -> list[ItemChange]:
    """Return the items whose runs have ended, as they are now."""
    return [
        ItemChange(one.no, ItemState.DONE, one.run_id)
        if one.state is RunState.COMPLETED and one.exit_reason != NO_INPUT
        else ItemChange(one.no, ItemState.FAILED, one.run_id, _why_failed(one))
        for one in list_ended(db, found.backfill_id)
    ]


def _why_failed(one: EndedItem) -> str:
    if one.state is None:
        return "the record of the run was deleted"
    return f"{one.state.lower()}: {one.exit_reason}" if one.exit_reason else one.state.lower()


def _start_items(
    db: Db, world: World, pointer: WritePointer, found: Backfill
) -> tuple[Backfill, list[ItemChange], list[NewRun]]:
    """Decide on the next items, until as many runs are under way as may be; return them with the new runs.

    After `_MOST_LOOKED_AT` items the rest is left to the next advance. Too many failures in a row pause the backfill.
    """
    program = find_program_by_id(db, found.program_id)
    if program.retired:
        return replace(found, state=BackfillState.PAUSED, reason=str(ProgramRetired(program.qualified_name))), [], []
    changed: list[ItemChange] = []
    runs: list[NewRun] = []
    # In the order of the items: only the ids order runs of one millisecond.
    run_ids = [RunId(one) for one in world.new_ids("run", found.concurrency - found.running)]
    after, size, refused = -1, len(run_ids), 0
    while (
        len(runs) < len(run_ids) and refused < _REFUSED_IN_A_ROW and len(changed) < min(found.waiting, _MOST_LOOKED_AT)
    ):
        most = min(size, _MOST_LOOKED_AT - len(changed))
        following = list_next(db, found.backfill_id, after=after, most=most)
        needs = _find_needs(db, found, program, [item for _, item in following])
        for no, item in following:
            state, why = decide_item(needs.get(item, ItemNeed.MISSING))
            run_id = None
            if state is ItemState.RUNNING:
                try:
                    runs.append(_make_run(db, pointer, found, program, run_ids[len(runs)], no, item))
                    run_id = runs[-1].run_id
                except UserError as error:
                    state, why = ItemState.FAILED, str(error)
            changed.append(ItemChange(no, state, run_id, why))
            refused = refused + 1 if state is ItemState.FAILED else 0
            if len(runs) == len(run_ids) or refused == _REFUSED_IN_A_ROW:
                break
        after = changed[-1].no
        # Most advances make a run of the next item. Where others have taken many items, few looks pass over them.
        size *= _MORE_EACH_LOOK
    moved = _move_counts(found, ItemState.WAITING, changed)
    if refused == _REFUSED_IN_A_ROW:
        reason = f"no run could be made of the last {refused} items: {changed[-1].why}"
        moved = replace(moved, state=BackfillState.PAUSED, reason=reason)
    return moved, changed, runs


def decide_item(need: ItemNeed) -> tuple[ItemState, str]:
    """Decide what becomes of a waiting item, and why. A run is to be made of a RUNNING item. Pure."""
    match need:
        case ItemNeed.DONE:
            return ItemState.DROPPED, _DONE_MEANWHILE
        case ItemNeed.WAITING | ItemNeed.RUNNING:
            return ItemState.FAILED, _TAKEN_MEANWHILE
        case ItemNeed.MISSING | ItemNeed.FAILED:
            return ItemState.RUNNING, ""
        case _:
            assert_never(need)


def _move_counts(found: Backfill, before: ItemState, changed: Sequence[ItemChange]) -> Backfill:
    """Return the backfill with the counts that follow when items in the state `before` change."""
    more = Counter(item.state for item in changed)
    more[before] -= len(changed)
    return replace(
        found,
        waiting=found.waiting + more[ItemState.WAITING],
        running=found.running + more[ItemState.RUNNING],
        done=found.done + more[ItemState.DONE],
        failed=found.failed + more[ItemState.FAILED],
        dropped=found.dropped + more[ItemState.DROPPED],
    )


def _find_needs(db: Db, found: Backfill, program: Program, items: Sequence[str]) -> Mapping[str, ItemNeed]:
    """Return what partitions need by now: a backfill may have been paused for days. Nothing if it takes all."""
    if found.dataset_id is None or found.takes_all:
        return {}
    needs = find_needs_again(db, program, found.dataset_id, items)
    return {str(key): need for key, need in needs.items()}


def _make_run(  # a run is made of all of these
    db: Db, pointer: WritePointer, found: Backfill, program: Program, run_id: RunId, no: int, item: str
) -> NewRun:
    """Return the run of an item.

    `MissingInput`, `BadArgument`, `NothingToRepeat`, `TakesWork`, `NotFound`, `NothingStarts`.
    """
    cause: dict[str, object] = {
        "asked": "by a backfill",
        "by": found.actor,
        BACKFILL: found.backfill_id,
        "item": no,
    }
    arguments = dict(found.arguments)
    chosen = None
    match found.item_kind:
        case By.TIMES:
            refuse_taking(db, program)  # it may be another than at the start
            logical_time = datetime.fromisoformat(item)
            cause |= {"logical_time": logical_time, "logical_times": [logical_time]}
            shown = show_time(logical_time)
            arguments = {name: shown if given == LOGICAL_TIME else given for name, given in arguments.items()}
        case By.PARTITIONS | By.VERSIONS:
            chosen = choose_partitions(db, pointer, found.dataset_id or DatasetId(""), [item])
        case By.RUNS:
            before = find_run(db, RunId(item))
            cause |= {REPEATS: before.run_id}
            cause |= {name: before.triggered_by[name] for name in _REPEATED_TIMES if name in before.triggered_by}
            arguments = {**before.arguments, **arguments}
            chosen = repeat_input(db, pointer, program, before.run_id)
        case by:
            assert_never(by)
    bound = program.bind(arguments)
    plan_start(db, program, bound)  # refuses a workflow that would never end
    return NewRun(
        run_id,
        program.program_id,
        bound,
        cause,
        priority=found.priority,
        chosen=chosen,
        quiet=found.quiet,
        backfill_id=found.backfill_id,
    )
