"""Promises about partitions that were dropped, and perhaps created again, at the end of a simulated schedule."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from tests.sim.committed import Committed, fold, plain, publish, refuse

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

Place = tuple[int, str]
"""A change: its write pointer and the partition."""


def check(simulation: Simulation, committed: Committed) -> None:
    """Raise `Broken` for the first promise that does not hold."""
    for pointer, name, key, found in simulation.drops:
        there = key in publish(simulation, committed, name, before=pointer)
        refuse(found == there, "dirty", f"{pointer} was to drop {key} of {name}, found {found}, there {there}")
    ends = _check_ends(simulation, committed)
    drops = {key: [seq for seq, write in writes if write] for key, writes in _find_ends(simulation, committed).items()}
    for consumer, program, counted in simulation.ground.sql(
        "SELECT c.consumer_id, p.name, c.dropped FROM consumer AS c JOIN program AS p"
        " ON c.name = p.namespace || '.' || p.app || '.' || p.name"
        f" WHERE c.dataset_id = '{committed.datasets['lines']}'"
    ):
        delivered, own = _find_delivered(committed, program)
        missed = {
            (key, end)
            for (pointer, key), end in ends.items()
            if end in drops.get(key, ()) and not delivered[pointer, key] and pointer not in own
        }
        once = program == "once"
        if once:
            _check_once(simulation, committed, consumer, delivered, ends, drops)
        # A program that wants a partition once may have had the partition before the dropped change.
        exact = len(missed) == counted or (once and counted < len(missed))
        refuse(exact, "lost", f"{program} counts {counted} dropped, missed {sorted(missed)}")


def _find_ends(simulation: Simulation, committed: Committed) -> dict[str, list[tuple[int, bool]]]:
    """The commits that have replaced each partition of `lines`, and whether they have dropped it."""
    found: dict[str, list[tuple[int, bool]]] = {}
    for pointer, seq, *_ in committed.rows:
        for key, write in fold(simulation.intents.get(pointer, ()), "lines").items():
            if write.replaces:
                found.setdefault(key, []).append((seq, write.drops))
    return found


def _check_ends(simulation: Simulation, committed: Committed) -> dict[Place, int | None]:
    """Each change of `lines` is current until the next commit that replaces its partition; gives that commit."""
    replaced = _find_ends(simulation, committed)
    ends: dict[Place, int | None] = {}
    for pointer, key, seq, superseded, _ in committed.changes:
        name = plain(key)
        end = next((later for later, _ in replaced.get(name, ()) if later > seq), None)
        refuse(superseded == end, "dirty", f"{name} of {pointer} was replaced by {end}, the catalog says {superseded}")
        ends[pointer, name] = end
    return ends


def _find_delivered(committed: Committed, program: str) -> tuple[Counter[Place], set[int]]:
    """Return the deliveries to the committed runs of a program, and the write pointers of these runs."""
    delivered: Counter[Place] = Counter()
    own = set()
    for pointer, _, run_id, name in committed.rows:
        if name == program:
            own.add(pointer)
            delivered.update((taken, plain(key)) for taken, key, _ in committed.inputs_of(run_id, "lines"))
    return delivered, own


def _check_once(
    simulation: Simulation,
    committed: Committed,
    consumer: str,
    delivered: Counter[Place],
    ends: dict[Place, int | None],
    drops: dict[str, list[int]],
) -> None:
    """From its creation until it is dropped a partition comes to one run; what comes later of it is not delivered."""
    runs: dict[tuple[str, int], set[str]] = {}
    lives: dict[Place, tuple[str, int]] = {}
    for pointer, key, seq, *_ in committed.changes:
        name = plain(key)
        lives[pointer, name] = name, sum(drop < seq for drop in drops.get(name, ()))
    for _, _, run_id, program in committed.rows:
        for taken, key, _ in committed.inputs_of(run_id, "lines") if program == "once" else ():
            runs.setdefault(lives[taken, plain(key)], set()).add(run_id)
    for place, end in ends.items():
        several = runs.get(lives[place], ())
        refuse(len(several) < 2, "doubled", f"once got {lives[place]} in {several}")
        refuse(several or end is not None, "lost", f"once never got {place}, nor anything of {lives[place]}")
    discarded = {
        (pointer, plain(key))
        for pointer, key in simulation.ground.sql(
            f"SELECT write_pointer, partition_key FROM consumer_work WHERE consumer_id = '{consumer}'"
            " AND state = 'discarded'"
        )
    }
    wrong = [place for place in discarded if delivered[place] or not runs.get(lives[place])]
    refuse(not wrong, "lost", f"once has given up {wrong}")
    refuse(not discarded or simulation.shape.once == "error", "lost", f"once has given up {discarded}")
