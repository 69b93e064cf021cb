"""People at a desk that use the operations of a simulated project, each in a process that may die."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING

from tidemill.errors import Conflict, Unavailable, UserError
from tidemill.mill.mill import Mill
from tidemill.mill.project import Project
from tidemill.testing.machine import Process

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

Act = tuple[int, Callable[[Mill], object]]
"""Seconds to wait, and what is done then."""


def start_person(simulation: Simulation, name: str, acts: Sequence[Act]) -> None:
    """Have a person do `acts` one after the other; what is refused, or finds no catalog, is left."""

    def body(process: Process) -> None:
        mill = Mill(Project(process.catalog, process.world, simulation.ground.config, caller=name))
        for wait, act in acts:
            process.world.clock.sleep(timedelta(seconds=wait))
            with suppress(Unavailable, Conflict, UserError):
                act(mill)

    simulation.machine.start(name, body, simulation.machine.group(name, "desk"))
