"""Scenarios of consumers (R3): writers, workers and readers of one file set, in all orders."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import timedelta

from tests.explore import promises
from tests.explore.search import Actor, Broken, Scenario, Tables
from tests.explore.stage import Stage
from tests.taking import take_runs
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.transactions import Transaction, begin, commit
from tidemill.errors import Conflict, Fenced
from tidemill.lake.backlog import publish_due
from tidemill.lake.claims import Complete
from tidemill.lake.consumer.backlog import CONSUMERS
from tidemill.lake.consumer.claims import PARTITIONS, return_some
from tidemill.lake.consumer.consumer import FROM_BEGINNING, PartitionConsumerState, consume_partitions, take
from tidemill.lake.consumer.managed import ensure_consumer
from tidemill.lake.consumer.take import MOST_FILLED, Delivery, take_claims
from tidemill.lake.consumer.terms import OnChange, Terms
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import ColumnSchema, Fileset, Unpin, WriteOp, read_partitions
from tidemill.lake.fileset.publish import AddPartitions, PartitionExists, PartitionWrite
from tidemill.names import ConsumerId, DatasetId, Namespace, ProgramId, RunId, WritePointer
from tidemill.run.records.programs import Program, ProgramKind, find_program_by_id, put_program
from tidemill.run.records.runs import NewRun, RunRecord, RunState, create_external, create_pending
from tidemill.run.step.attempts import (
    AttachTransaction,
    AttemptEnd,
    Cause,
    FinishRun,
    Registration,
    ask_kill,
    end_attempt,
    register,
)
from tidemill.run.step.inputs import Inputs, find_inputs
from tidemill.run.step.partition_input import PartitionInputs
from tidemill.shapes.manifest import DataFile, Manifest

LINES = Fileset.of(
    Dataset(
        DatasetId("lines"),
        Namespace("default"),
        "lines",
        DatasetKind.FILESET,
        "file:///lake/lines",
        {"keys": {"hour": "int"}},
    )
)
SCHEMA = ColumnSchema('{"type":"struct","fields":[]}')
LEASE = timedelta(seconds=60)
DAY = timedelta(days=1)


# Actors


def writer(name: str, *writes: tuple[int, str], endings: Sequence[str] = ("commit", "abort")) -> Actor:
    """Notebook: it begins, and commits its writes or aborts. Notebooks with the same writes are alike."""
    run_id = RunId(f"run_{name}")
    return Actor(name, lambda stage: write_once(stage, run_id, name, writes, endings), group=f"writer of {writes}")


def write_once(
    stage: Stage, run_id: RunId, name: str, writes: Sequence[tuple[int, str]], endings: Sequence[str]
) -> None:
    """Begin, and commit `writes`, or abort."""
    try:
        tx = begin(
            stage.catalog,
            run_id=run_id,
            epoch=1,
            writes=[LINES.dataset_id],
            effects=[AttachTransaction(run_id, 1)],
        )
        ending = stage.pick(lambda: endings) if len(endings) > 1 else endings[0]
        if ending == "abort":
            end_attempt(stage.catalog, run_id, 1, AttemptEnd(Cause.FAILED, "it raised"))
            return
        added = AddPartitions(tx, LINES, _partitions(name, writes), SCHEMA, frozenset())
        commit(stage.catalog, tx, [added, FinishRun(run_id, 1, "", {}), Unpin(run_id)])
    except (Conflict, PartitionExists):
        end_attempt(stage.catalog, run_id, 1, AttemptEnd(Cause.FAILED, "conflict"))
    except Fenced:
        pass


def _partitions(name: str, writes: Sequence[tuple[int, str]]) -> list[PartitionWrite]:
    file = Manifest((DataFile(f"{name}.parquet", 10, 1, "e"),))
    return [
        PartitionWrite(LINES.keys.check({"hour": hour}), WriteOp(op), Manifest(()) if op == "drop" else file)
        for hour, op in writes
    ]


def worker(
    name: str,
    *,
    most: int = 10_000,
    endings: Sequence[str] = ("commit",),
    group: str = "worker",
    adds: Sequence[tuple[int, str]] = (),
    on_change: OnChange = OnChange.AGAIN,
) -> Actor:
    """A runner with its driver: it takes a run that waits, and works on that attempt to its end.

    `adds` is what each commit brings to the file set that it consumes.
    """

    def body(stage: Stage) -> None:
        stage.pick(lambda: ["take"] if _is_any_pending(stage) else [])
        work(stage, most, endings, adds, on_change)

    return Actor(name, body, repeats=True, group=group)


def take_run(catalog: Catalog) -> tuple[RunRecord, Inputs] | None:
    """Take a due run as a runner and its driver do. Return the run and its inputs."""

    def take_one(db: Db):
        runs = take_runs(db, most=1, owner="runner", host="here", lease=LEASE)
        for run in runs:
            register(db, Registration(run.run_id, run.epoch, run.epoch, {}, "logs"))
        return [(run, find_inputs(db, find_program_by_id(db, run.program_id), run)) for run in runs]

    return next(iter(catalog.write(take_one)), None)


def work(
    stage: Stage,
    most: int,
    endings: Sequence[str] = ("commit",),
    adds: Sequence[tuple[int, str]] = (),
    on_change: OnChange = OnChange.AGAIN,
) -> bool:
    """Do one attempt of a due run. Return whether there was a run."""
    catalog = stage.catalog
    if (taken := take_run(catalog)) is None:
        return False
    run, inputs = taken
    try:
        tx = begin(
            catalog,
            run_id=run.run_id,
            epoch=run.epoch,
            writes=[LINES.dataset_id] if adds else [],
            effects=[AttachTransaction(run.run_id, run.epoch), *inputs.begin(run, catalog.world)],
        )
        (partitions,) = (kind for kind in inputs.kinds if isinstance(kind, PartitionInputs))
        ((_, consumer),) = partitions.sources.values()
        got = take_claims(catalog, tx, {consumer.consumer_id: Terms(most, on_change=on_change)})[consumer.consumer_id]
        for delivery in got:
            for change in delivery.changes:
                note_given(stage, consumer.name, run.run_id, run.epoch, change.write_pointer, change.partition_key)
        ending = stage.pick(lambda: endings) if len(endings) > 1 else endings[0]
        if ending == "poison":
            ending = "fail" if POISON in {delivery.partition_key for delivery in got} else "commit"
        if ending == "put back" and len(got) > 1:
            _return_last(stage, tx, consumer.consumer_id, got)
        if ending == "fail":
            end_attempt(catalog, run.run_id, run.epoch, AttemptEnd(Cause.FAILED, "it raised"))
            return True
        added = [AddPartitions(tx, LINES, _partitions(run.run_id, adds), SCHEMA, frozenset())] if adds else []
        finish = [
            Complete(PARTITIONS, run.run_id, run.epoch),
            Unpin(run.run_id),
            FinishRun(run.run_id, run.epoch, "", {}),
        ]
        commit(catalog, tx, [*added, *finish, *inputs.announce()])
    except Fenced:
        pass
    return True


def _return_last(stage: Stage, tx: Transaction, consumer_id: ConsumerId, got: Sequence[Delivery]) -> None:
    returned = got[-1]
    stage.catalog.write(lambda db: return_some(db, tx.run_id, [(consumer_id, returned.partition_key)]))
    for change in returned.changes:
        stage.note(
            "DELETE FROM given WHERE run_id = ? AND epoch = ? AND write_pointer = ? AND partition_key = ?",
            *(tx.run_id, tx.epoch, change.write_pointer, change.partition_key),
        )


def note_given(stage: Stage, reader: str, run_id: str | None, epoch: int, pointer: int, key: str) -> None:
    """Write down what a reader was given."""
    stage.note("INSERT INTO given VALUES (?, ?, ?, ?, ?)", reader, run_id, epoch, pointer, key)


def reader(name: str, turns: Sequence[int]) -> Actor:
    """Caller that keeps the state: it begins a transaction and takes, once a turn. `public` uses the public function.

    Several callers of one name share one state.
    """

    def body(stage: Stage) -> None:
        for turn in turns:
            if name == "public":
                consume_once(stage)
            else:
                read_once(stage, name, RunId(f"run_{name}{turn}"))

    return Actor(f"{name}{turns[0]}", body)


def read_once(stage: Stage, name: str, run_id: RunId) -> None:
    """Take what is new to the reader, and store it together with the state."""
    catalog = stage.catalog
    tx = begin(catalog, run_id=run_id, epoch=1, effects=[AttachTransaction(run_id, 1)])

    def take_new(db: Db) -> None:
        taken, moved = take(db, LINES.dataset_id, _read_state(stage, name), tx)
        _store(stage, name, moved, [(change.write_pointer, change.partition_key) for change in taken])

    catalog.write(take_new)
    commit(catalog, tx, [FinishRun(run_id, 1, "", {})])


def consume_once(stage: Stage) -> None:
    """The same by `consume_partitions`; which changes came is seen from the directories of their files."""
    state = stage.turn(lambda: _read_state(stage, "public"))
    partitions, moved = consume_partitions(stage.catalog, LINES, state)
    given = [
        (int(file.split("/tx-")[1].split("-")[0]), LINES.keys.encode(LINES.keys.check(dict(partition.key))))
        for partition in partitions
        for file in partition.files
    ]
    stage.turn(lambda: _store(stage, "public", moved, given))


def _read_state(stage: Stage, name: str) -> PartitionConsumerState:
    found = stage.connection.execute(
        "SELECT start_version, versions_to_check FROM kept WHERE reader = ?", (name,)
    ).fetchall()
    if not found:
        return FROM_BEGINNING
    return PartitionConsumerState(WritePointer(found[0][0]), tuple(map(WritePointer, json.loads(found[0][1]))))


def _store(stage: Stage, name: str, moved: PartitionConsumerState, given: Sequence[tuple[int, str]]) -> None:
    stage.connection.execute(
        "INSERT INTO kept VALUES (?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET start_version = excluded.start_version,"
        " versions_to_check = excluded.versions_to_check, snapshot = excluded.snapshot",
        (name, moved.start_version, json.dumps(moved.versions_to_check), moved.start_version, name == "public"),
    )
    for pointer, key in given:
        stage.connection.execute("INSERT INTO given VALUES (?, NULL, 0, ?, ?)", (name, pointer, key))


def looker(name: str) -> Actor:
    """A transaction that looks at the whole file set, twice: each time it sees what was there at its begin."""
    run_id = RunId(f"run_{name}")

    def body(stage: Stage) -> None:
        try:
            tx = begin(stage.catalog, run_id=run_id, epoch=1, effects=[AttachTransaction(run_id, 1)])
            for _ in range(2):
                stage.catalog.read(lambda db: _look(stage, db, tx))
            commit(stage.catalog, tx, [FinishRun(run_id, 1, "", {})])
        except Fenced:
            pass

    return Actor(name, body)


def _look(stage: Stage, db: Db, tx: Transaction) -> list[tuple[str, int]]:
    seen = sorted(
        (change.partition_key, change.write_pointer)
        for partition in read_partitions(db, LINES.dataset_id, tx)
        for change in partition.changes
    )
    rows = stage.connection.execute(
        "SELECT partition_key, write_pointer, commit_seq, superseded_seq FROM partition_change"
    ).fetchall()
    w = tx.write_pointer
    wanted = sorted((row[0], row[1]) for row in rows if row[2] < w and (row[3] is None or row[3] > w))
    if seen != wanted:
        raise Broken(f"tx {w} sees {seen}, and before its begin there was {wanted}")
    return seen


def fencer(name: str, cause: Cause = Cause.LOST, only: str = "") -> Actor:
    """A reaper: at any time, of any attempt under way, it says that its lease is over."""

    def body(stage: Stage) -> None:
        run_id, epoch = stage.pick(lambda: _find_live(stage, only))
        end_attempt(stage.catalog, run_id, epoch, AttemptEnd(cause, "its lease ran out", zombie=True))

    return Actor(name, body)


def killer(name: str, *, carried_out: bool = True, at_once: bool = False) -> Actor:
    """Person that ends a run, and the runner that carries out the kill if it lives to. `at_once` asks in one turn."""

    def body(stage: Stage) -> None:
        run_id, epoch = stage.pick(lambda: _find_unended(stage))
        asked = stage.turn(lambda: _ask_at_once(stage, run_id)) if at_once else ask_kill(stage.catalog, run_id)
        if asked == "STOPPING" and carried_out:
            end_attempt(stage.catalog, run_id, epoch, AttemptEnd(Cause.KILLED, "killed on request"))

    return Actor(name, body)


def _ask_at_once(stage: Stage, run_id: RunId) -> RunState:
    with stage.freely():
        return ask_kill(stage.catalog, run_id)


def _is_any_pending(stage: Stage) -> bool:
    now = int(stage.clock.now().timestamp() * 1000)
    return bool(
        stage.connection.execute("SELECT 1 FROM run WHERE state = 'PENDING' AND not_before <= ?", (now,)).fetchall()
    )


def _find_live(stage: Stage, only: str = "") -> list[tuple[RunId, int]]:
    return stage.connection.execute(
        "SELECT run_id, epoch FROM run WHERE state IN ('STARTING', 'RUNNING', 'STOPPING') AND run_id LIKE ?"
        " AND (program_id IS NOT NULL OR write_pointer IS NOT NULL OR triggered_by LIKE '%claim%') ORDER BY 1",
        (f"{only}%",),
    ).fetchall()


def _find_unended(stage: Stage) -> list[tuple[RunId, int]]:
    return stage.connection.execute(
        "SELECT run_id, epoch FROM run WHERE ended_at IS NULL AND program_id IS NOT NULL ORDER BY 1"
    ).fetchall()


# What they act on


def lake(
    *,
    writers: Sequence[str] = (),
    runs: Sequence[str] = (),
    earlier: Sequence[tuple[int, str]] = (),
    retries: int = 0,
    programs: Sequence[str] = (),
) -> Callable[[Stage], None]:
    """The file set `lines`, external runs for the writers, and for each of `runs` one that waits, of that program.

    `programs` are programs without a run.
    """

    def set_up(stage: Stage) -> None:
        def block(db: Db) -> None:
            declare(db, LINES.dataset)
            for name in writers:
                create_external(db, RunId(f"run_{name}"), owner="me", host="here", pid=1, lease=timedelta(minutes=1))
            for name in dict.fromkeys((*runs, *programs)):
                put_program(db, program(name, retries))
                ensure_consumer(db, LINES.dataset_id, f"default.shop.{name}")
            create_pending(
                db, [NewRun(RunId(f"run_{number}_{name}"), ProgramId(name)) for number, name in enumerate(runs)]
            )

        stage.catalog.write(block)
        for number, (hour, op) in enumerate(earlier):
            publish(stage, f"earlier{number}", (hour, op))

    return set_up


def program(name: str, retries: int = 0) -> Program:
    """A program that reads the file set."""
    return Program(
        ProgramId(name),
        Namespace("default"),
        "shop",
        name,
        ProgramKind.PYTHON,
        "/nowhere/app.py",
        reads=("default.lines",),
        retries=retries,
        backoff=timedelta(seconds=10),
    )


def publish(stage: Stage, name: str, *writes: tuple[int, str]) -> None:
    """Commit a transaction of another process, from begin to commit."""
    run_id = RunId(f"run_{name}")
    stage.catalog.write(
        lambda db: create_external(db, run_id, owner="me", host="here", pid=1, lease=timedelta(minutes=1))
    )
    write_once(stage, run_id, name, writes, ("commit",))


# How it ends


def cut_power(stage: Stage) -> None:
    """Fence all that was under way, as reapers do."""
    for run_id, epoch in stage.connection.execute(
        "SELECT run_id, epoch FROM run WHERE state IN ('STARTING', 'RUNNING', 'STOPPING')"
    ).fetchall():
        end_attempt(stage.catalog, run_id, epoch, AttemptEnd(Cause.LOST, "power", zombie=True))


def recover(
    *programs: str,
    readers: Sequence[str] = (),
    most: int = 10_000,
    ending: str = "commit",
    on_change: OnChange = OnChange.AGAIN,
) -> Callable[[Stage], None]:
    """Start again: process the waiting work, and start runs until nothing is left to take."""

    def do(stage: Stage) -> None:
        cut_power(stage)
        for _ in range(20):
            stage.clock.at += DAY
            while work(stage, most, (ending,), (), on_change):
                pass
            publish_due(stage.catalog, CONSUMERS)
            left = stage.connection.execute(
                "SELECT DISTINCT consumer.name FROM consumer LEFT JOIN consumer_work USING (consumer_id)"
                " WHERE state = 'new' OR EXISTS (SELECT 1 FROM partition_change AS c"
                " WHERE c.dataset_id = consumer.dataset_id AND c.commit_seq > start_version)"
            ).fetchall()
            waiting = stage.connection.execute("SELECT 1 FROM run WHERE state = 'PENDING'").fetchall()
            if not left and not waiting:
                break
            if waiting:
                continue  # for its next attempt
            new = [NewRun(RunId(stage.world.new_id("run")), ProgramId(name.rpartition(".")[2])) for (name,) in left]
            stage.catalog.write(lambda db, new=new: create_pending(db, new))
        for name in readers:
            if name == "public":
                consume_once(stage)
            else:
                run_id = RunId(stage.world.new_id("run"))
                stage.catalog.write(
                    lambda db, run_id=run_id: create_external(
                        db, run_id, owner="me", host="here", pid=1, lease=timedelta(minutes=1)
                    )
                )
                read_once(stage, name, run_id)

    return do


SOUND = promises.all_of(
    promises.transactions,
    promises.changes,
    promises.consumers,
    promises.drops_counted,
    promises.claims,
    promises.delivered,
    promises.seen_when_taken,
    promises.kept_states,
    promises.slots,
)


def _end(*readers: str) -> Callable[[Tables], None]:
    return promises.all_of(promises.at_rest, promises.everything_delivered(*readers))


def caller(
    writes: Sequence[Sequence[tuple[int, str]]],
    takes: int,
    fences: int = 0,
    writers_end: Sequence[str] = ("commit", "abort"),
    losses: int = 0,
    me: str = "me",
    sharing: int = 1,
) -> Callable[[str], Scenario]:
    """The consumer of the seed; `sharing` callers keep one state, and begin before they look at it."""
    names = [f"w{number}" for number in range(len(writes))]

    def make(name: str) -> Scenario:
        return Scenario(
            name,
            "a caller who keeps the state gets each change once, and by write pointer what it gets by commit (R19)",
            lake(writers=[*names, *(f"{me}{turn}" for turn in range(takes))]),
            lambda: [
                *(writer(one, *ops, endings=writers_end) for one, ops in zip(names, writes, strict=True)),
                *(reader(me, range(takes)[n::sharing]) for n in range(sharing)),
                *(fencer(f"reaper{n}", only="run_w") for n in range(fences)),
            ],
            promises.all_of(SOUND, promises.declared("lines")) if not takes else SOUND,
            recover(readers=[me]),
            _end(me),
            promises.never_undone,
            losses=losses,
            tables=TABLES,
        )

    return make


def looked_at(
    writes: Sequence[Sequence[tuple[int, str]]], earlier: Sequence[tuple[int, str]]
) -> Callable[[str], Scenario]:
    """A snapshot, among writers."""
    names = [f"w{number}" for number in range(len(writes))]

    def make(name: str) -> Scenario:
        return Scenario(
            name,
            "a transaction sees what had committed before its begin, whenever it looks",
            lake(writers=[*names, "me"], earlier=earlier),
            lambda: [
                *(writer(one, *ops, endings=ALWAYS) for one, ops in zip(names, writes, strict=True)),
                looker("me"),
            ],
            SOUND,
            recover(),
            promises.at_rest,
            promises.never_undone,
            tables=TABLES,
        )

    return make


def managed(
    writes: Sequence[Sequence[tuple[int, str]]],
    runs: Sequence[str],
    *,
    workers: int = 2,
    most: int = 10_000,
    endings: Sequence[str] = ("commit",),
    fences: int = 0,
    kills: int = 0,
    kills_carried_out: bool = True,
    retries: int = 0,
    earlier: Sequence[tuple[int, str]] = (),
    writers_end: Sequence[str] = ("commit", "abort"),
    losses: int = 0,
    most_filled: int = MOST_FILLED,
    adds: Sequence[tuple[int, str]] = (),
    on_change: OnChange = OnChange.AGAIN,
) -> Callable[[str], Scenario]:
    """Managed consumers, one for each program in `runs`."""
    names = [f"w{number}" for number in range(len(writes))]
    programs = tuple(dict.fromkeys(runs))

    def make(name: str) -> Scenario:
        return Scenario(
            name,
            "each change is in the input of exactly one committed run of each consumer, whoever dies",
            lake(writers=names, runs=runs, earlier=earlier, retries=retries),
            lambda: [
                *(writer(one, *ops, endings=writers_end) for one, ops in zip(names, writes, strict=True)),
                *(
                    worker(f"worker{n}", most=most, endings=endings, adds=adds, on_change=on_change)
                    for n in range(workers)
                ),
                *(fencer(f"reaper{n}") for n in range(fences)),
                *(
                    killer(f"killer{n}", carried_out=kills_carried_out, at_once=not kills_carried_out)
                    for n in range(kills)
                ),
            ],
            promises.all_of(
                SOUND,
                promises.declared("lines"),
                promises.failures(retries, failing=bool({"fail", "poison"} & set(endings))),
                _only_poison_discarded,
            ),
            recover(*programs, most=most, ending="poison" if "poison" in endings else "commit", on_change=on_change),
            _end(*(f"default.shop.{one}" for one in programs)),
            promises.never_undone,
            most_filled=most_filled,
            losses=losses,
            tables=TABLES,
        )

    return make


def _only_poison_discarded(tables: Tables) -> None:
    for work in tables["consumer_work"]:
        promises.must(work.state != "discarded" or work.partition_key == POISON, f"innocent, and given up: {work}")


POISON = LINES.keys.encode(LINES.keys.check({"hour": 1}))
"""Partition at which a failing program fails."""

TABLES = (
    "tx",
    "in_progress",
    "garbage",
    "partition_change",
    "consumer",
    "consumer_work",
    "run",
    "run_input",
    "slot",
    "given",
    "kept",
)
"""No messages: no schedule listens here."""

A, B = [(1, "append")], [(2, "append")]
OVER, NEW = [(1, "overwrite")], [(1, "create")]
DROP = [(1, "drop")]
BOTH = [(1, "append"), (2, "append")]

ALWAYS = ("commit",)

SCENARIOS = {
    "caller-small": caller([A, A], 2, writers_end=ALWAYS),
    "workers-small": managed([A], ["sum", "sum"]),
    "zombie-small": managed([], ["sum"], fences=1, earlier=A),
    "limits-small": managed([], ["sum", "sum"], most=1, earlier=BOTH, endings=("commit", "fail")),
    "overwrite-small": managed([OVER], ["sum"], workers=1, earlier=A, most=1),
    "dropped": managed([DROP, A], ["sum"], workers=1, earlier=A, most=1, writers_end=ALWAYS, on_change=OnChange.IGNORE),
    "conflicts": managed([A, OVER, OVER], [], workers=0, writers_end=ALWAYS),
    "creates": managed([NEW, NEW, OVER], [], workers=0, writers_end=ALWAYS),
    "conflicts-3": managed([A, OVER, OVER, NEW], [], workers=0, fences=1),
    "snapshot": looked_at([A, OVER], A),
    "public-small": caller([A, OVER], 2, writers_end=ALWAYS, me="public"),
    "kill-asked": managed([], ["sum"], workers=1, kills=1, kills_carried_out=False, fences=1),
    "poison": managed([], ["sum"], workers=1, endings=("poison",), earlier=[(3, "append"), *BOTH], retries=1),
    "poison-fenced": managed([], ["sum"], workers=2, endings=("poison",), earlier=BOTH, retries=1, fences=1),
    "shared": caller([A], 2, writers_end=ALWAYS, sharing=2),
    "filled-late": managed([A, B], ["sum"], workers=1, most_filled=1, writers_end=ALWAYS),
    "beside": managed([BOTH], ["sum", "sum"], earlier=A, most=1, writers_end=ALWAYS),
    "own": managed([], ["sum"], workers=1, earlier=A, adds=A),
    "filled": managed([A], ["sum", "sum"], workers=1, earlier=[*A, *B], most_filled=1, writers_end=ALWAYS),
    "public": caller([A, A, OVER], 2, me="public"),
    "lost-replies": managed([], ["sum"], workers=2, earlier=A, losses=1, endings=("commit", "fail")),
    "lost-writers": caller([A, OVER], 1, losses=1, writers_end=ALWAYS),
    "caller": caller([A, B], 2),
    "caller-3": caller([A, A, B], 3),
    "caller-fenced": caller([A, OVER], 2, fences=1),
    "workers": managed([A, B], ["sum", "sum"]),
    "workers-3-commit": managed([A, A, A], ["sum", "sum"], writers_end=ALWAYS),
    "groups-3-commit": managed([A, A, A], ["sum", "mean"], writers_end=ALWAYS),
    "workers-3": managed([A, A, A], ["sum", "sum"]),
    "groups": managed([A], ["sum", "mean"]),
    "groups-3": managed([A, A, A], ["sum", "mean"]),
    "zombie": managed([A], ["sum"], fences=2, earlier=A),
    "zombies": managed([A, B], ["sum", "sum"], fences=2),
    "limits": managed([BOTH], ["sum", "sum"], most=1, endings=("commit", "fail"), earlier=A),
    "overwrite": managed([A, OVER], ["sum", "sum"], most=1),
    "failing": managed([A], ["sum", "sum"], endings=("commit", "fail"), earlier=B, retries=1),
    "killed": managed([A], ["sum", "sum"], kills=1, fences=1),
    "put-back": managed([A], ["sum", "sum"], endings=("commit", "put back"), earlier=BOTH),
}
