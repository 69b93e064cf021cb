"""The search through all orders of turns, with the states that were visited, and the report of what it found."""

from __future__ import annotations

import re
import time
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeAlias
from unittest.mock import patch

from tests.explore.stage import Log, Loss, Parked, Stage
from tidemill.lake.consumer import take

TABLES = {
    "tx": "write_pointer state commit_seq run_id epoch",
    "in_progress": "dataset_id write_pointer logical_time order_time",
    "message": "topic seq n event_type event_key payload",
    "subscriber": "topic name seq n",
    "garbage": "location dataset_id write_pointer reason",
    "partition_change": "dataset_id write_pointer partition_key op commit_seq superseded_seq delivers run_id "
    "location manifest expired_at logical_time order_time",
    "consumer": "consumer_id dataset_id name start_version versions_to_check dropped",
    "consumer_work": "consumer_id write_pointer partition_key commit_seq state failures not_before run_id epoch error",
    "inbox_file": "dataset_id name content_version status failures not_before run_id epoch alone error afterwards",
    "run": "run_id program_id schedule_id job_id state epoch failures losses triggered_by write_pointer not_before "
    "kill_asked lease_until created_at exit_reason pid first_write_pointer",
    "workflow_run": "run_id revision holding holds_until resumed_by",
    "workflow_node": "workflow_id node run_id outcome result",
    "run_input": "run_id dataset_id write_pointer item content_version",
    "slot": "limit_key run_id",
    "slot_limit": "limit_key launches",
    "reader_pin": "pin_id dataset_id commit_seq run_id",
    "schedule": "schedule_id generation created_seq since_seq since_at program_id spec status suspended_mode",
    "passed_while_suspended": "schedule_id topic messages",
    "timer": "schedule_id trigger_no next_fire_at behind",
    "boundary": "schedule_id trigger_no next_at last_at zone behind",
    "fire": "schedule_id generation trigger_no fire_time job_id",
    "job": "job_id schedule_id generation state created_at satisfied_at next_check_at deadline progress verdict "
    "revision",
    "job_message": "job_id topic seq n trigger_no",
    "job_waits": "wait_key job_id",
    "job_history": "job_id schedule_id generation outcome run_id created_at detail",
    "given": "reader run_id epoch write_pointer partition_key",
    "kept": "reader start_version versions_to_check snapshot public",
    "landed": "name version",
    "watermark": "dataset_id value target next_time next_check_at",
    "time_slot": "dataset_id slot_time complete",
    "window_program": "program_id computed seen revision retry_at",
    "window_result": "program_id window_start window_end write_pointer stale",
    "window_failure": "program_id window_start window_end",
    "inbox_marker": "dataset_id next_listing_at superseded in_charge",
    "backfill": "backfill_id state concurrency waiting running done failed dropped",
    "backfill_item": "backfill_id no item state run_id",
}
"""Contents of a state. Only times without any effect, and texts for people, are left out."""

GHOSTS = """
CREATE TABLE given (reader TEXT, run_id TEXT, epoch BIGINT, write_pointer BIGINT, partition_key TEXT);
CREATE TABLE kept (reader TEXT PRIMARY KEY, start_version BIGINT, versions_to_check TEXT, snapshot BIGINT,
    public INTEGER);
CREATE TABLE landed (name TEXT PRIMARY KEY, version BIGINT);
"""
"""Deliveries, the states that callers keep, and files: they go back with everything else."""

_ROWS = {name: namedtuple(name, columns) for name, columns in TABLES.items()}  # noqa: PYI024  # made from the list
_QUERIES = {name: f"SELECT {', '.join(columns.split())} FROM {name}" for name, columns in TABLES.items()}
_TICK = re.compile(r"\b(7\d{9})\b")

_CUT_ANYHOW = 8
"""So many states are enough for the smallest scenarios to be seen from everywhere."""

_Here: TypeAlias = tuple[list["_Standing"], Any, str, "Tables", int]
Tables: TypeAlias = Mapping[str, Sequence[Any]]


class Broken(Exception):
    """A promise that does not hold."""


@dataclass(frozen=True)
class Actor:
    """Actor that takes turns. An actor that `repeats` starts again at its end. The actors of one `group` are alike."""

    name: str
    body: Callable[[Stage], None]
    repeats: bool = False
    group: str = ""


@dataclass(frozen=True)
class Scenario:
    """Scenario: actors, and promises that hold always, at each turn, and after a power cut at any point.

    `recover` starts all processes again and lets them come to rest. Then `at_rest` judges.
    """

    name: str
    promise: str
    set_up: Callable[[Stage], None]
    actors: Callable[[], Sequence[Actor]]
    always: Callable[[Tables], None]
    recover: Callable[[Stage], None]
    at_rest: Callable[[Tables], None]
    each_turn: Callable[[Tables, Tables], None] = lambda _before, _after: None
    most_filled: int = take.MOST_FILLED
    played: Callable[[], AbstractContextManager[object]] = nullcontext
    """Parts of the product that the scenario replaces."""
    """Changes that one transaction moves into a working set: as few as that a take is cut."""
    losses: int = 0
    """Number of lost commit replies on one way, anywhere."""
    tables: tuple[str, ...] = tuple(TABLES)
    """Tables that a promise reads."""


@dataclass
class Figures:
    """Figures of a search. `whole` is true if there was nothing more to see."""

    states: int = 0
    turns: int = 0
    deepest: int = 0
    ends: int = 0
    recovered: int = 0
    seconds: float = 0.0
    whole: bool = True


@dataclass(frozen=True)
class _Standing:
    """Stand of one actor: its log, the log as text, and the point where it is parked. None when it has ended."""

    log: Log
    text: str
    parked: Parked | None


def canonical(text: str) -> str:
    """`text` with each tick replaced by its rank among all: only their order matters to the product."""
    parts = _TICK.split(text)  # every other one is a tick
    ticks = parts[1::2]
    ranks = {tick: f"t{rank}" for rank, tick in enumerate(sorted(set(ticks)))}
    parts[1::2] = [ranks[tick] for tick in ticks]
    return "".join(parts)


def read_tables(stage: Stage, names: Iterable[str]) -> tuple[dict[str, list[tuple[Any, ...]]], str]:
    """All rows of these tables, and their text."""
    execute = stage.connection.execute
    rows = {name: sorted(execute(_QUERIES[name]).fetchall(), key=repr) for name in names}
    return rows, repr(rows)


def named(rows: Mapping[str, Sequence[tuple[Any, ...]]]) -> Tables:
    """The rows by the names of their columns."""
    return {name: list(map(make._make, rows.get(name, ()))) for name, make in _ROWS.items()}


@dataclass
class Search:
    """All orders in which the actors of a scenario can take their turns, each state once."""

    scenario: Scenario
    most_states: int = 1 << 60
    cut_every: int = 1
    """Share of the states in which the power is cut, beside the first few and those where no actor can continue."""
    progress: Callable[[Figures], None] = lambda _figures: None
    figures: Figures = field(default_factory=Figures)

    def run(self) -> Figures:
        """Search, and give the figures; `Broken` with the way there."""
        with patch.object(take, "MOST_FILLED", self.scenario.most_filled), self.scenario.played():
            return self._run()

    def _run(self) -> Figures:
        self.began = time.process_time()
        self.stage = Stage()
        with self.stage.freely():
            self.stage.connection.execute(GHOSTS)
            self.scenario.set_up(self.stage)
        self.actors = list(self.scenario.actors())
        self.start = [self._stand(actor, (), "") for actor in self.actors]
        self.visited: set[bytes] = set()
        self.recovered: set[bytes] = set()
        self.way: list[tuple[int, int, Loss | None]] = []
        self.reported_at = self.began
        rows, text = read_tables(self.stage, self.scenario.tables)
        try:
            with self.stage.undone():
                self._visit(self.start, rows, text, self.scenario.losses)
        except Broken as error:
            way = list(self.way)
            raise Broken(f"{self.scenario.name}: {error}\n{self._tell(way)}") from error
        finally:
            self.figures.seconds = time.process_time() - self.began
        return self.figures

    def _stand(self, actor: Actor, log: Log, text: str) -> _Standing:
        log, parked = self.stage.act(actor.body, log, turns=0)
        return _Standing(log, text, parked)

    def _visit(self, standing: list[_Standing], rows: Any, text: str, losses: int) -> None:
        """Judge this state, and go on from it, unless that was done before."""
        groups: dict[str, list[str]] = {}
        for actor, one in zip(self.actors, standing, strict=True):
            groups.setdefault(actor.group or actor.name, []).append("ended" if one.parked is None else one.text)
        who = repr([(name, sorted(group)) for name, group in groups.items()])
        own = f"{text}{self.stage.clock.at}"
        key = blake2b(canonical(f"{own}{who}{losses}").encode(), digest_size=16).digest()
        if key in self.visited:
            return
        if len(self.visited) >= self.most_states:
            self.figures.whole = False
            return
        self.visited.add(key)
        figures = self.figures
        figures.states += 1
        figures.deepest = max(figures.deepest, len(self.way))
        if (now := time.process_time()) - self.reported_at > 5:
            self.reported_at = now
            figures.seconds = now - self.began
            self.progress(figures)
        tables = named(rows)
        self.scenario.always(tables)
        went_on = self._go_on(standing, rows, text, tables, losses)
        figures.ends += not went_on
        if not went_on or key[0] % self.cut_every == 0 or len(self.recovered) < _CUT_ANYHOW:
            self._cut_power(own)

    def _go_on(self, standing: list[_Standing], rows: Any, text: str, tables: Tables, losses: int) -> bool:
        """Let each actor take its next turn from here; whether one of them could."""
        went_on = False
        alike: set[tuple[str, str]] = set()
        for place, (actor, one) in enumerate(zip(self.actors, standing, strict=True)):
            if one.parked is None:
                continue
            if actor.group:
                if (actor.group, one.text) in alike:
                    continue
                alike.add((actor.group, one.text))
            options: Sequence[Any] = [()]
            if one.parked.options is not None:
                options = [(option,) for option in one.parked.options()]
            for number, chosen in enumerate(options):
                for loss in [None, *(Loss if losses and one.parked.loses is not False else ())]:
                    self.way.append((place, number, loss))
                    with self.stage.undone():
                        went_on |= self._step(place, chosen, loss, (standing, rows, text, tables, losses))
                    self.way.pop()
        return went_on

    def _step(self, place: int, chosen: Sequence[Any], loss: Loss | None, here: _Here) -> bool:
        """Let one actor take its turn, and go on from there; whether that led away."""
        standing, rows, text, tables, losses = here
        actor, one = self.actors[place], standing[place]
        after = self._turn(actor, one, chosen, loss)
        if loss is not None and not self.stage.lost:
            return False  # nothing that could be lost
        self.figures.turns += 1
        then, then_text = rows, text
        if self.stage.acted:
            then, then_text = read_tables(self.stage, self.scenario.tables)
            if then_text != text:
                self.scenario.each_turn(tables, named(then))
        stands = [*standing[:place], after, *standing[place + 1 :]]
        self._visit(stands, then, then_text, losses - (loss is not None))
        return then_text != text or after.text != one.text or after.parked is None

    def _turn(self, actor: Actor, one: _Standing, chosen: Sequence[Any], loss: Loss | None = None) -> _Standing:
        try:
            log, parked = self.stage.act(actor.body, one.log, chosen, loss=loss)
        except Broken:
            raise
        except Exception as error:
            raise Broken(f"{actor.name} met {type(error).__name__}: {error}") from error
        if parked is None:
            return self.start[self.actors.index(actor)] if actor.repeats else _Standing((), "", None)
        new = "".join(f";{outcome.value!r}{outcome.error!r}" for outcome in log[len(one.log) :])
        # An address differs each time: no state would be met again, and a search of seconds takes minutes.
        assert " at 0x" not in new, f"{actor.name} has read what has no text of its own: {new}"
        return _Standing(log, one.text + new, parked)

    def _cut_power(self, own: str) -> None:
        """Check the end if all processes die at this point: no actor that stands here ever acts again."""
        key = blake2b(canonical(own).encode(), digest_size=16).digest()
        if key in self.recovered:
            return
        self.recovered.add(key)
        self.figures.recovered += 1
        with self.stage.undone(), self.stage.freely():
            self.scenario.recover(self.stage)
            rows, _ = read_tables(self.stage, self.scenario.tables)
            tables = named(rows)
            self.scenario.always(tables)
            self.scenario.at_rest(tables)

    def _tell(self, way: Sequence[tuple[int, int, Loss | None]]) -> str:
        """Describe the way for people: the actor of each turn."""
        lines = []
        standing = list(self.start)
        for step, (place, number, loss) in enumerate(way, 1):
            actor, one = self.actors[place], standing[place]
            chosen: Sequence[Any] = ()
            if one.parked is not None and one.parked.options is not None:
                chosen = (one.parked.options()[number],)
            choice = (f" {chosen[0]!r}" if chosen else "") + (f" ({loss})" if loss else "")
            try:
                after = self._turn(actor, one, chosen, loss)
            except Broken as error:
                lines.append(f"{step:3} {actor.name}{choice}: {error}")
                break
            got = after.text[len(one.text) :] if after.parked is not None else "ends"
            lines.append(f"{step:3} {actor.name}{choice}: {canonical_ticks(got)[:300]}")
            standing[place] = after
        return "\n".join(lines)


def canonical_ticks(text: str) -> str:
    """`text` with short ticks."""
    return _TICK.sub(lambda match: f"t{int(match[0]) - 7_000_000_000}", text)
