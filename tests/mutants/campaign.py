"""Hunts mutants: makes each in a copy of the product, and has explorer, simulation and fail points look at the copy.

The tools run as processes of their own, by the same commands as a person would give, with the copy on PYTHONPATH. A
mutant is killed when a tool says that a promise does not hold; whatever else is not a clean end, a mutant that is no
sound program among it, is an error of the hunt and proves nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from tests.mutants.mutant import Killer, Mutant, copy_source
from tests.yardstick import patience

ROOT: Final = Path(__file__).parents[2]
SEEDS: Final = 1000
"""Schedules that a mutant has to live through: a tenth of what CI plays of the product itself."""
_SIGNS: Final = ("BROKEN ", "AssertionError: ")
_NO_PROGRAM: Final = re.compile(
    r"\b(?:TypeError|NameError|AttributeError|UnboundLocalError|ImportError|SyntaxError|SQLError|Internal)\b"
)
_PATIENCE: Final = patience(600)
"""Seconds: ten times what the slower tool takes without a mutant."""
_COMMANDS: Final = {
    Killer.EXPLORER: ("tests.explore", "--quick"),
    Killer.SIMULATION: ("tests.sim", "--seeds", str(SEEDS), "--workers", "1"),
    Killer.JOINS: ("tests.sim.joins", "--seeds", "100"),
    Killer.CHAINS: ("tests.sim.chains", "--seeds", "100"),
    Killer.POLICIES: ("tests.sim.policies", "--seeds", "200"),
    Killer.FAIL_POINTS: ("tests.acceptance.fail_points", "--database", "sqlite", "--kind", "PAUSE", "--kind", "CRASH"),
}
_RUN: Final = """
import runpy, sys, tidemill
copies, module = sys.argv[1:3]
assert tidemill.__file__.startswith(copies), tidemill.__file__
sys.argv[:] = [module, *sys.argv[3:]]
runpy.run_module(module, run_name="__main__", alter_sys=True)
"""
"""Check that the product is the copy, then run a module as `python -m` does."""


class HuntFailed(Exception):
    """A tool did not come to a verdict."""


class Fate(StrEnum):
    """Fate of a mutant after its hunt."""

    KILLED = "killed"
    HUNG = "hung"
    """A tool ran without end, which a person would notice."""
    SURVIVED = "SURVIVED"


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of one hunt: `where` is a scenario or seed of the killer, `seen` the promise that did not hold."""

    mutant: Mutant
    fate: Fate
    killer: Killer | None
    where: str
    seen: str
    seconds: float

    @property
    def by(self) -> str:
        """Return the tool that found the mutant, and the scenario or seed."""
        return f"{self.killer or ''} {self.where}".strip()


def hunt_all(
    mutants: Sequence[Mutant], *, jobs: int, only: Killer | None, tell: Callable[[Verdict], None]
) -> list[Verdict]:
    """Hunt `mutants`, so many at a time, and give the verdicts in their order; `tell` hears of each at once."""
    with ThreadPoolExecutor(jobs) as pool:
        hunts = {pool.submit(hunt, mutant, only): place for place, mutant in enumerate(mutants)}
        verdicts: dict[int, Verdict] = {}
        for done in as_completed(hunts):
            verdicts[hunts[done]] = done.result()
            tell(done.result())
    return [verdicts[place] for place in sorted(verdicts)]


def hunt(mutant: Mutant, only: Killer | None = None) -> Verdict:
    """Look for one mutant with one tool after the other, the one that finds it sooner first."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=f"tidemill-{mutant.name}-") as folder:
        copy_source(Path(folder), mutant)
        for killer, command in _tries(mutant, only):
            fate, where, seen = look(command, Path(folder))
            if fate is not Fate.SURVIVED:
                return Verdict(mutant, fate, killer, where, seen, time.monotonic() - started)
    return Verdict(mutant, Fate.SURVIVED, None, "", "", time.monotonic() - started)


def check_tools(only: Killer | None) -> dict[Killer, float]:
    """Have the tools look at an unchanged copy, and give the seconds of each; `HuntFailed` if they find anything."""
    seconds: dict[Killer, float] = {}
    with tempfile.TemporaryDirectory(prefix="tidemill-unchanged-") as folder:
        copy_source(Path(folder))
        for killer, command in _COMMANDS.items():
            if only in {None, killer}:
                started = time.monotonic()
                fate, where, seen = look(command, Path(folder))
                seconds[killer] = time.monotonic() - started
                if fate is not Fate.SURVIVED:
                    raise HuntFailed(f"the {killer} finds something in the product itself: {where}: {seen}")
    return seconds


def look(command: Sequence[str], copies: Path) -> tuple[Fate, str, str]:
    """Run one tool on the product in `copies`: what it says, where, and why."""
    with _started(command, copies) as tool:
        assert tool.stdout is not None
        late = threading.Event()
        timer = threading.Timer(_PATIENCE, lambda: (late.set(), _end(tool)))
        timer.start()
        try:
            last: list[str] = []
            for line in tool.stdout:
                last = [*last[-30:], line]
                if line.startswith(_SIGNS):
                    return Fate.KILLED, *_verdict(line, tool.stdout)
            status = tool.wait()
        finally:
            timer.cancel()
        if late.is_set():
            return Fate.HUNG, "", f"no end within {_PATIENCE:.0f} s"
        if status != 0:
            raise HuntFailed(f"python -m {' '.join(command)} ended with {status} and no verdict:\n{''.join(last)}")
    return Fate.SURVIVED, "", ""


def _verdict(line: str, following: Iterable[str]) -> tuple[str, str]:
    """Return scenario or seed with the reason from the next line, or the reason of an assertion."""
    word, _, rest = line.strip().partition(" ")
    seen = rest if word != "BROKEN" else next((reason.strip() for reason in following if reason.strip()), "")
    if _NO_PROGRAM.search(seen):
        raise HuntFailed(f"the mutant is no sound program: {seen}")
    if word != "BROKEN":
        return "", seen
    where = rest.split()
    return " ".join(where[:2] if where[0] == "seed" else where[:1]), seen


def _tries(mutant: Mutant, only: Killer | None) -> Iterator[tuple[Killer, Sequence[str]]]:
    if mutant.scenario and only in {None, Killer.EXPLORER}:
        yield Killer.EXPLORER, ("tests.explore", mutant.scenario)
    for killer in sorted(Killer, key=lambda killer: killer is not mutant.first):
        if only in {None, killer}:
            yield killer, _COMMANDS[killer]


@contextlib.contextmanager
def _started(command: Sequence[str], copies: Path) -> Iterator[subprocess.Popen[str]]:
    environ = os.environ | {"PYTHONPATH": f"{copies}{os.pathsep}{ROOT}", "PYTHONUNBUFFERED": "1"}
    tool = subprocess.Popen(
        [sys.executable, "-c", _RUN, str(copies), *command],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # the tools start workers of their own, which end with them
    )
    with tool:  # closes its pipe, and waits for it
        try:
            yield tool
        finally:
            _end(tool)


def _end(tool: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(tool.pid, signal.SIGKILL)
