from __future__ import annotations

import importlib
import pkgutil
import threading
from dataclasses import dataclass
from datetime import timedelta

import pytest

import tidemill
from tests.catalog.conftest import OpenCatalog
from tests.catalog.test_named import SQL
from tidemill.catalog.db import Catalog, Db, NumberTooLarge, UnstorableText, refusal
from tidemill.catalog.effects import Commit, Effect, Phase
from tidemill.catalog.named import Call, Statement
from tidemill.epoch import EPOCH
from tidemill.errors import Conflict, Internal


@refusal
class TestNamed(Conflict):
    """Refusal of the guards of test_named.sql."""

    __test__ = False
    code = "test_named"

    def __init__(self, first: str, second: str = "nothing") -> None:
        self.first = first
        self.second = second
        super().__init__(f"{first} and {second}")


@dataclass(frozen=True)
class Does(Effect):
    """An effect put together by hand, in the phase of the run."""

    phase = Phase.RUN

    refuses: tuple[Call, ...] = ()
    does: tuple[Call, ...] = ()

    def guards(self) -> tuple[Call, ...]:
        return self.refuses

    def writes(self) -> tuple[Call, ...]:
        return self.does


def _limit(key: str) -> Call:
    return SQL.write_limit(limit_key=key)


def _limits(catalog: Catalog) -> list[object]:
    return [row[0] for row in catalog.read(lambda db: db.all(SQL.read_limits))]


def _refuse(first: str, second: str | None) -> Call:
    return SQL.refuse_always(first=first, second=second)


def test_rows_are_locked_in_one_order(catalog: Catalog) -> None:
    """Two transactions that take the same rows the other way round wait for each other (tried: within 1.3 s)."""

    def against(db: Db) -> None:
        db.all(SQL.lock_run, run_id="run_1")
        db.all(SQL.lock_job, job_id="job_1")

    with pytest.raises(Internal, match=r"test_named.lock_job locks job after run"):
        catalog.write(against)


def test_the_clock_is_the_first_lock(catalog: Catalog) -> None:
    """A block that holds a row and asks for the clock stops every block that holds the clock and asks for the row."""

    def against(db: Db) -> None:
        db.all(SQL.lock_job, job_id="job_1")
        db.tick()

    with pytest.raises(Internal, match="tick locks clock after job"):
        catalog.write(against)


def test_looking_locks_nothing(catalog: Catalog) -> None:
    """Only what locks has a place in the order."""

    def with_the_order(db: Db) -> None:
        db.tick()
        db.all(SQL.lock_job, job_id="job_1")
        db.all(SQL.lock_run, run_id="run_1")
        db.all(SQL.look_at_job, job_id="job_1")

    catalog.write(with_the_order)


def test_a_commit_sequence_needs_a_tick(catalog: Catalog) -> None:
    """On PostgreSQL it would be the tick that an earlier user of the same connection took: a row in the past."""
    first = catalog.write(lambda db: (db.tick(), db.all(SQL.read_tick)))

    with pytest.raises(Internal, match="take a tick first"):
        catalog.write(lambda db: db.all(SQL.read_tick))
    assert first == (first[0], [(first[0],)])


def test_ticks_rise_and_an_error_returns_none(catalog: Catalog) -> None:
    """A tick that is seen twice would order two commits as one."""

    def fail(db: Db) -> None:
        db.tick()
        raise ZeroDivisionError

    first = catalog.write(lambda db: db.tick())
    with pytest.raises(ZeroDivisionError):
        catalog.write(fail)
    second = catalog.apply([])

    assert first < second


def test_an_error_in_a_block_undoes_all_of_it(catalog: Catalog) -> None:
    """A transaction is all or nothing, whatever raises."""

    def half(db: Db) -> None:
        db.run(SQL.write_limit, limit_key="half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        catalog.write(half)

    assert _limits(catalog) == []


def test_changed_rows_are_counted(catalog: Catalog) -> None:
    """Compare and set: 0 rows means that another process was first."""

    def block(db: Db) -> tuple[int, int]:
        return db.run(SQL.write_limit, limit_key="a"), db.run(SQL.renew_run, run_id="nobody")

    assert catalog.write(block) == (1, 0)


def test_one_row_is_not_two(catalog: Catalog) -> None:
    """Taking the first of several would hide a broken key."""
    two = '[{"t": "a"}, {"t": "b"}]'

    assert catalog.read(lambda db: db.one(SQL.pick_texts, rs=two, wanted='["b"]')) == ("b",)
    assert catalog.read(lambda db: db.one(SQL.pick_texts, rs=two, wanted='["c"]')) is None
    with pytest.raises(Internal, match="gave 2 rows"):
        catalog.read(lambda db: db.one(SQL.pick_texts, rs=two, wanted='["a", "b"]'))


@pytest.mark.parametrize("hostile", ["plain", "quo\"te ' back\\slash", "é 日本 🙂"])
def test_a_guard_refuses_with_its_error_and_nothing_happens(catalog: Catalog, hostile: str) -> None:
    """The error that the caller gets is the one that the guard named, with the data it named."""
    effects = [Does(does=(_limit("before"),)), Does(refuses=(_refuse(hostile, None),))]

    with pytest.raises(TestNamed) as refused:
        catalog.apply(effects)

    assert (refused.value.first, refused.value.second) == (hostile, "nothing")
    assert _limits(catalog) == []


def test_the_first_guard_that_refuses_wins(catalog: Catalog) -> None:
    """The fence comes first: a fenced caller gets that error, and not that a key is taken."""
    effects = [Does(refuses=(_refuse("first", "guard"),)), Does(refuses=(_refuse("second", "guard"),))]

    with pytest.raises(TestNamed, match="first and guard"):
        catalog.apply(effects)


def test_guards_look_before_anything_is_written(catalog: Catalog) -> None:
    """A guard that saw another effect's writes of the same commit would refuse its own work."""
    seen = SQL.refuse_if_limit(limit_key="new")

    catalog.apply([Does(does=(_limit("new"),)), Does(refuses=(seen,))])

    with pytest.raises(TestNamed, match="new and again"):
        catalog.apply([Does(refuses=(seen,))])


def test_a_statement_that_was_refused_at_its_first_use_is_used_again(catalog: Catalog) -> None:
    """PostgreSQL keeps what a message has prepared although it failed, and refuses to prepare it once more."""
    refused = Does(refuses=(_refuse("at once", None),), does=(_limit("a"),))
    assert _limits(catalog) == []
    for _ in range(2):
        with pytest.raises(TestNamed):
            catalog.apply([refused])

    catalog.apply([Does(does=(_limit("a"),))])

    assert _limits(catalog) == ["a"]


def test_an_unknown_refusal_is_our_mistake(catalog: Catalog) -> None:
    """A guard with an undeclared error must not pass for success."""
    with pytest.raises(Internal, match="unknown code 'never_declared'"):
        catalog.apply([Does(refuses=(SQL.refuse_oddly(),))])


def test_two_errors_with_one_code_are_refused() -> None:
    """The code is what documentation, CLI and REST know an error by."""

    class Other(Conflict):
        code = "test_named"

    with pytest.raises(Internal, match="two errors"):
        refusal(Other)


@dataclass(frozen=True)
class Says(Does):
    """An effect of the last phase."""

    phase = Phase.ANNOUNCE


def test_a_commit_runs_its_effects_in_phases(catalog: Catalog) -> None:
    """Effects of different rooms do not know each other; those of one phase stay in the order in which they came."""
    first, second = Does(does=(_limit("a"),)), Does(does=(SQL.renew_run(run_id="r"),))
    last = Says(does=(_limit("b"),), refuses=(_refuse("one", None),))
    order: list[str] = []
    apply = catalog._apply
    catalog._apply = lambda guards, writes: (  # type: ignore[method-assign]
        order.extend(call.statement.name for call in [*guards, *writes]),
        apply(guards, writes),
    )[1]

    with pytest.raises(TestNamed):
        catalog.apply([last, first, second])

    assert str(Commit([last, first, second])).splitlines() == [
        "run: Does (test_named.write_limit)",
        "run: Does (test_named.renew_run)",
        "announce: Says (test_named.write_limit)",
    ]
    assert order == [
        "test_named.refuse_always",
        *(f"test_named.{name}" for name in ("write_limit", "renew_run", "write_limit")),
    ]


def test_a_commit_refuses_locks_out_of_order() -> None:
    """Sorted statements would hide an effect that writes before another one has looked."""
    run, job = SQL.renew_run(run_id="r"), SQL.change_job_at_the_limit(job_id="j")

    with pytest.raises(Internal, match=r"change_job_at_the_limit locks slot_limit after .*renew_run has locked run"):
        Commit([Does(does=(run,)), Does(does=(job,))])


def test_an_effect_locks_only_rows_of_its_phase() -> None:
    """Else the phases of a commit would not follow the lock order."""
    run = SQL.renew_run(run_id="r")

    with pytest.raises(Internal, match="renew_run locks run in the phase announce: give the effect the phase run"):
        Commit([Says(does=(run,))])


def test_each_effect_has_a_phase() -> None:
    """A commit with an effect without a phase would fail when it is built, in production."""
    for module in pkgutil.walk_packages(tidemill.__path__, "tidemill."):
        if module.name.split(".")[1] in {"catalog", "lake", "run", "sql", "upkeep"}:
            importlib.import_module(module.name)
    effects = [effect for effect in Effect.__subclasses__() if effect.__module__.startswith("tidemill.")]

    assert len(effects) > 30
    assert [effect.__name__ for effect in effects if "phase" in effect.__abstractmethods__] == []


def test_a_commit_waits_for_the_clock(catalog: Catalog, open_again: OpenCatalog) -> None:
    """Ticks are taken one after another, each visible before the next: else a snapshot could miss one."""
    other = open_again()
    holds, go_on = threading.Event(), threading.Event()
    seqs: dict[str, int] = {}

    def hold(db: Db) -> int:
        seq = db.tick()
        holds.set()
        assert go_on.wait(4)
        return seq

    holder = threading.Thread(target=lambda: seqs.update(held=other.write(hold)))
    waiter = threading.Thread(target=lambda: seqs.update(waited=catalog.apply([])))
    holder.start()
    assert holds.wait(10)
    waiter.start()
    waiter.join(0.2)
    early = dict(seqs)
    go_on.set()
    holder.join(10)
    waiter.join(10)

    assert early == {}
    assert seqs["held"] < seqs["waited"]


def test_threads_share_a_catalog(catalog: Catalog) -> None:
    """The roles of `tidemill up` are threads of one process."""
    threads = [threading.Thread(target=catalog.apply, args=([Does(does=(_limit(f"l{n:02}"),))],)) for n in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert _limits(catalog) == [f"l{n:02}" for n in range(20)]


def test_the_catalogs_now_is_a_moment_in_python_and_epoch_milliseconds_in_sql(catalog: Catalog) -> None:
    """Python compares moments; SQL compares whole numbers."""
    by_sql, by_db = catalog.read(lambda db: (db.all(SQL.read_now)[0][0], db.now()))
    here = catalog.world.clock.now()

    assert abs(by_db - (EPOCH + timedelta(milliseconds=int(str(by_sql))))) < timedelta(minutes=1)
    assert abs(by_db - here) < timedelta(minutes=1)
    assert by_db.microsecond % 1000 == 0


def test_a_block_is_run_again_after_a_deadlock_that_the_database_reports(catalog: Catalog) -> None:
    """A caller need not know that the deadlock happened."""
    tries: list[int] = []

    def block(db: Db) -> int:
        tries.append(1)
        db.run(SQL.write_limit, limit_key=f"try {len(tries)}")
        if len(tries) == 1:
            raise _busy(catalog)
        return len(tries)

    assert catalog.write(block) == 2
    assert _limits(catalog) == ["try 2"]


def _busy(catalog: Catalog) -> Exception:
    import apsw
    from psycopg import errors

    return apsw.BusyError("database is locked") if catalog.dialect == "sqlite" else errors.DeadlockDetected("deadlock")


def test_statement_names_are_those_of_their_files() -> None:
    """So that a log line leads to the text."""
    statement: Statement = SQL.lock_run

    assert statement.name == "test_named.lock_run"


UNFIT = [
    (2**63, NumberTooLarge),
    (-(2**64), NumberTooLarge),
    (10**30, NumberTooLarge),
    ("a\udcff", UnstorableText),
    ("\ud800 of a pair", UnstorableText),
]


@pytest.mark.parametrize(("value", "error"), UNFIT, ids=ascii)
def test_a_value_that_no_database_keeps_is_refused(catalog: Catalog, value: str | int, error: type) -> None:
    """Such a value is a slip of a user: a position, a name in another encoding. Both databases gave a traceback."""
    number, text = (value, "") if isinstance(value, int) else (0, value)
    echo = SQL.echo(number=number, text=text, bytes=b"")

    with pytest.raises(error, match="is refused"):
        catalog.read(lambda db: db.call(echo))
    with pytest.raises(error, match="is refused"):
        catalog.apply([Does(does=(_limit("a"), echo))])

    assert _limits(catalog) == []
