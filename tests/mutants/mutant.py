"""A mutant: the product with one thing forgotten, as a change of its text that is made in a copy."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final, Protocol

import tidemill

SOURCE: Final = Path(tidemill.__file__).parent


class StaleMutant(Exception):
    """The text that a mutant changes is not there, or more than once: the list has to follow the product."""


class Killer(StrEnum):
    """What a mutant is to be found by."""

    EXPLORER = "explorer"
    SIMULATION = "simulation"
    FAIL_POINTS = "fail points"


class Room(StrEnum):
    """Whose promises a mutant breaks."""

    TRANSACTIONS = "transactions"
    CONSUMERS = "consumers"
    RUNS = "runs"
    SCHEDULER = "scheduler"
    SNAPSHOTS = "snapshots"
    WINDOWS = "windows"


@dataclass(frozen=True, slots=True)
class Edit:
    """In `file`, below the package, `old` becomes `new`; it stands there exactly once."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small wrong change, named by what it `forgets`; several edits only where one idea stands in several places.

    A guard that is doubled by another is taken away with it: each alone would change nothing that anybody could see.
    `first` is who finds it sooner, and `scenario` the explorer's that does, where its quick ones do not, or late.
    """

    name: str
    room: Room
    forgets: str
    edits: tuple[Edit, ...]
    first: Killer = Killer.EXPLORER
    scenario: str = ""

    def texts(self, package: Path) -> dict[str, str]:
        """The changed files of the product at `package`; `StaleMutant` when a text is not there exactly once."""
        changed: dict[str, str] = {}
        for edit in self.edits:
            text = changed.get(edit.file) or (package / edit.file).read_text(encoding="utf-8")
            if (times := text.count(edit.old)) != 1:
                raise StaleMutant(f"{self.name}: {edit.file} holds {times} times\n{edit.old}")
            changed[edit.file] = text.replace(edit.old, edit.new)
        return changed


class Make(Protocol):
    """Makes a mutant of one room; the arguments are the fields of `Mutant`."""

    def __call__(
        self, name: str, forgets: str, *edits: Edit, first: Killer = Killer.EXPLORER, scenario: str = ""
    ) -> Mutant:
        """The mutant."""


def mutants_of(room: Room) -> Make:
    """What makes the mutants of `room`."""

    def make(name: str, forgets: str, *edits: Edit, first: Killer = Killer.EXPLORER, scenario: str = "") -> Mutant:
        return Mutant(name, room, forgets, edits, first, scenario)

    return make


def copy_source(folder: Path, mutant: Mutant | None = None) -> Path:
    """A copy of the product in `folder`, which then belongs on PYTHONPATH, changed by `mutant`; gives the package."""
    package = folder / SOURCE.name
    shutil.copytree(SOURCE, package, ignore=shutil.ignore_patterns("__pycache__"))
    for file, text in mutant.texts(SOURCE).items() if mutant else ():
        (package / file).write_text(text, encoding="utf-8")
    return package
