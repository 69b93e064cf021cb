"""Mutants: the product with one thing forgotten, as edits that are made in a copy."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

import tidemill
from tests.mutants.edit import Edit, Source, StaleEdit

SOURCE: Final = Path(tidemill.__file__).parent


class StaleMutant(Exception):
    """Mutant of which an edit does not apply: the mutant has to follow the product."""


class Killer(StrEnum):
    """Tools that find mutants."""

    EXPLORER = "explorer"
    SIMULATION = "simulation"
    FAIL_POINTS = "fail points"
    JOINS = "joins"
    CHAINS = "chains"
    POLICIES = "policies"


class Room(StrEnum):
    """Rooms of the product whose promises mutants break."""

    TRANSACTIONS = "transactions"
    CONSUMERS = "consumers"
    RUNS = "runs"
    SCHEDULER = "scheduler"
    SNAPSHOTS = "snapshots"
    WINDOWS = "windows"
    RETENTION = "retention"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A small wrong change, described by what it `forgets`; several edits only where one idea stands in several places.

    If two guards protect the same promise, the mutant drops both: without one alone, the product behaves as before.
    `first` is the tool that finds the mutant sooner. `scenario` names a scenario of the explorer, for a mutant that the
    quick scenarios find late or never.
    """

    name: str
    room: Room
    forgets: str
    edits: tuple[Edit, ...]
    first: Killer = Killer.EXPLORER
    scenario: str = ""

    def texts(self, package: Path) -> dict[str, str]:
        """Return the changed files of the product at `package`; raise `StaleMutant` if an edit does not apply."""
        source = Source(package)
        for edit in self.edits:
            try:
                edit.apply(source)
            except StaleEdit as error:
                raise StaleMutant(f"{self.name}: {error}") from error
        return source.changed


class Make(Protocol):
    """Function that makes mutants of one room; the arguments are the fields of `Mutant`."""

    def __call__(
        self, name: str, forgets: str, *edits: Edit, first: Killer = Killer.EXPLORER, scenario: str = ""
    ) -> Mutant:
        """Return the mutant."""


def mutants_of(room: Room) -> Make:
    """Return the function that makes mutants of `room`."""

    def make(name: str, forgets: str, *edits: Edit, first: Killer = Killer.EXPLORER, scenario: str = "") -> Mutant:
        return Mutant(name, room, forgets, edits, first, scenario)

    return make


def copy_source(folder: Path, mutant: Mutant | None = None) -> Path:
    """Copy the product to `folder`, changed by `mutant`, and return the package; PYTHONPATH has to name `folder`."""
    package = folder / SOURCE.name
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text in mutant.texts(SOURCE).items() if mutant else ():
        (package / file).write_text(text, encoding="utf-8")
    return package
