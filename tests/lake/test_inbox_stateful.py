"""Inboxes against a model: in whatever order files, runs, failures and crashes come, nothing is lost or twice.

The model knows what is on disk and which contents a committed run has processed. In the end, when all runs have ended
and everything was listed and tried often enough, each content that is still there is done in exactly one of them or
quarantined, and nothing was ever handed to two runs.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psycopg
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.lake.test_inbox import Mill, make_mill
from tidemill.catalog.transactions import EndTransaction, Transaction, TxState, commit
from tidemill.errors import Fenced
from tidemill.lake.inbox.file_checks import FileOutcome, FileRewritten, sort_out, succeeded, verify_claims
from tidemill.lake.inbox.file_claims import ClaimedFile, read_claims
from tidemill.lake.inbox.file_endings import CloseFiles
from tidemill.lake.inbox.inbox import FileState, content_version

NAMES = ("a", "b", "c", "d/e")
POISON = "poison"  # content that the program cannot stand, and no error names
NAMED = "named"  # content that an error of the program names
CUT = "cut"  # content that shows to be bad


@dataclass(eq=False)
class Attempt:
    """A run under way, as its driver sees it."""

    run: str
    epoch: int = 1
    tx: Transaction | None = None
    good: list[ClaimedFile] = field(default_factory=list)
    others: list[FileOutcome] = field(default_factory=list)


class InboxMachine(RuleBasedStateMachine):
    """Files land, are written again and go; several runs claim, read, commit, fail, die and are killed."""

    def __init__(self, mill: Mill) -> None:
        super().__init__()
        self.mill = mill
        self.disk: dict[str, tuple[str, str]] = {}  # name → content version, kind
        self.done: list[tuple[str, str, str]] = []  # name, content version, run
        self.attempts: list[Attempt] = []
        self.lengths = iter(range(1, 1_000_000))
        self.runs = iter(range(1_000_000))

    def write(self, name: str, kind: str) -> None:
        """Land one file, with a content of its own size."""
        end = "" if kind == CUT else "\n"
        self.mill.land(name, content=kind + "x" * next(self.lengths) + end)
        self.disk[name] = (content_version(self.mill.inbox.files(self.mill.catalog.world).stat(name)), kind)

    @rule(name=st.sampled_from(NAMES), kind=st.sampled_from(("good", "good", "good", POISON, NAMED, CUT)))
    def land(self, name, kind):
        """A file is written, or written again."""
        self.write(name, kind)

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name):
        """A file goes."""
        if self.disk.pop(name, None):
            (self.mill.folder / name).unlink()

    @rule()
    def list_folder(self):
        """A scheduler lists the folder."""
        self.mill.discover()

    @rule()
    def retry_times_come(self):
        """A while passes."""
        self.mill.retries_come_due()

    @precondition(lambda self: len(self.attempts) < 3)
    @rule(most=st.integers(1, 4))
    def start(self, most):
        """A new run begins and claims."""
        attempt = Attempt(f"run_{next(self.runs)}")
        self.attempts.append(attempt)
        self.begin(attempt, most)

    def begin(self, attempt: Attempt, most: int = 4) -> None:
        """The attempt's first steps, up to what the program gets."""
        attempt.tx = self.mill.begin(attempt.run, attempt.epoch)
        claimed = self.mill.claim(attempt.tx, max_files=most)
        attempt.good, attempt.others = sort_out(self.mill.catalog.world, [self.mill.inbox], claimed)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), crashed=st.sampled_from(("no", "no", "no", "before", "after")))
    def run_program(self, data, crashed):
        """The program reads what it got, and fails or commits; its process may die before or after the commit."""
        attempt = data.draw(st.sampled_from(self.attempts))
        read = {file.name: self.disk.get(file.name) for file in attempt.good}
        named = next((f for f in attempt.good if read[f.name] and read[f.name][1] == NAMED), None)
        if named or any(kind and kind[1] == POISON for kind in read.values()):
            self.fail(attempt, named)
            return
        if crashed == "before":
            self.lose(attempt)
            return
        try:
            verify_claims(self.mill.catalog.world, [self.mill.inbox], attempt.good)
        except FileRewritten:
            self.lose(attempt)
            return
        outcomes = (*attempt.others, *map(succeeded, attempt.good))
        commit(self.mill.catalog, attempt.tx, [CloseFiles(attempt.tx.run_id, attempt.epoch, outcomes)])
        self.attempts.remove(attempt)
        self.done += [(file.name, file.content_version, attempt.run) for file in attempt.good]
        if crashed == "after":
            with pytest.raises(Fenced):  # a zombie says it again
                commit(self.mill.catalog, attempt.tx, [CloseFiles(attempt.tx.run_id, attempt.epoch, outcomes)])

    def fail(self, attempt: Attempt, blamed: ClaimedFile | None) -> None:
        """The program raised; the run has three attempts."""
        last = attempt.epoch >= 3
        self.mill.fail(attempt.tx, blamed, last=last)
        if last:
            self.attempts.remove(attempt)
        else:
            attempt.epoch += 1
            self.begin(attempt)

    def lose(self, attempt: Attempt) -> None:
        """The attempt ends without a verdict, and the next one begins; the old one can do nothing any more."""
        old, good = attempt.tx, (*attempt.others, *map(succeeded, attempt.good))
        self.mill.catalog.apply([EndTransaction(old.write_pointer, TxState.INVALID, "lost")])
        attempt.epoch += 1
        self.begin(attempt)
        with pytest.raises(Fenced):
            commit(self.mill.catalog, old, [CloseFiles(old.run_id, attempt.epoch - 1, good)])

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def kill(self, data):
        """A user kills a run."""
        attempt = data.draw(st.sampled_from(self.attempts))
        self.mill.kill(attempt.tx)
        self.attempts.remove(attempt)

    @invariant()
    def nothing_is_processed_twice(self):
        """Each content in one committed run at most."""
        contents = [(name, version) for name, version, _ in self.done]
        assert len(contents) == len(set(contents))

    @invariant()
    def no_two_runs_hold_one_name(self):
        """Not even two contents of it."""
        held = [
            file.name
            for attempt in self.attempts
            for file in self.mill.catalog.read(lambda db, a=attempt: read_claims(db, a.tx.run_id))
        ]
        assert len(held) == len(set(held))

    def teardown(self):
        """Let all processes come to rest. Then each present content is processed once, or quarantined."""
        try:
            self.settle()
            rows = {(row.name, row.content_version): row for row in self.mill.list(limit=10_000)}
            for name, (version, kind) in self.disk.items():
                row = rows[name, version]
                runs = [run for done, content, run in self.done if (done, content) == (name, version)]
                if kind == "good":
                    assert (row.status, runs) == (FileState.SUCCESS, [row.run_id])
                else:
                    assert (row.status, runs) == (FileState.QUARANTINED, [])
            assert {row.status for row in rows.values()} <= {
                FileState.SUCCESS,
                FileState.QUARANTINED,
                FileState.SKIPPED,
            }
        finally:
            self.mill.catalog.close()

    def settle(self) -> None:
        """End all runs; then list and process until nothing moves."""
        for attempt in self.attempts:
            self.mill.kill(attempt.tx)
        self.attempts.clear()
        for _ in range(40):
            self.mill.retries_come_due()
            self.mill.discover()
            attempt = Attempt(f"run_{next(self.runs)}")
            self.attempts.append(attempt)
            self.begin(attempt)
            idle = not attempt.good and not attempt.others
            while attempt in self.attempts:
                self.step(attempt)
            if idle:
                return
        pytest.fail(f"the inbox never comes to rest: {self.mill.list()}")

    def step(self, attempt: Attempt) -> None:
        """Do one attempt to its end, without faults."""
        kinds = {file.name: self.disk[file.name][1] for file in attempt.good}
        named = next((file for file in attempt.good if kinds[file.name] == NAMED), None)
        if named or POISON in kinds.values():
            self.fail(attempt, named)
            return
        outcomes = (*attempt.others, *map(succeeded, attempt.good))
        commit(self.mill.catalog, attempt.tx, [CloseFiles(attempt.tx.run_id, attempt.epoch, outcomes)])
        self.attempts.remove(attempt)
        self.done += [(file.name, file.content_version, attempt.run) for file in attempt.good]


@pytest.fixture(params=["sqlite", "postgres"])
def new_catalog_url(request: pytest.FixtureRequest, memory_folder: Path) -> Iterator[Callable[[], str]]:
    """Gives the address of an empty catalog, again and again."""
    numbers = itertools.count()
    if request.param == "sqlite":
        yield lambda: f"sqlite:///{memory_folder / str(next(numbers))}.db"
        return
    url: str = request.getfixturevalue("postgres_url")
    made: list[str] = []

    def new() -> str:
        made.append(f"t_{uuid.uuid4().hex}")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {made[-1]}")
        return f"{url}?options=-csearch_path%3D{made[-1]}"

    yield new
    with psycopg.connect(url, autocommit=True) as connection:
        for schema in made:
            connection.execute(f"DROP SCHEMA {schema} CASCADE")


@pytest.mark.share("sqlite")
def test_whatever_happens_each_content_that_stays_is_processed_once(new_catalog_url, memory_folder, request):
    """The inbox keeps its promise in orders of events that no developer thought of."""
    folders = itertools.count()
    examples = 150 if "sqlite" in request.node.name else 10

    run_state_machine_as_test(
        lambda: InboxMachine(make_mill(new_catalog_url(), memory_folder / f"raw{next(folders)}")),
        settings=settings(
            max_examples=examples,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
            phases=(Phase.generate, Phase.shrink),
        ),
    )
