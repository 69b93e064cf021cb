"""A project with a long past: 1,000 data sets, 10,000 schedules, 200,000 runs, 1,000,000 partitions of one file set.

Beside them: an inbox of 100,000 files, a snapshot of 50 versions, a file set with a watermark and a year of hours,
10,000 alerts, 10,000 backfills, one of 50,000 items, and a program that has read the large file set.

The app is deployed, one partition is published and one run is started. Their rows are then copied within the database,
since a million commits would take an hour.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final

from benchmarks.project import KEYS, publish
from tidemill.catalog.postgres import PostgresCatalog
from tidemill.catalog.sqlite import SqliteCatalog
from tidemill.lake.fileset.fileset import WriteOp
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.mill.mill import Mill
from tidemill.run.processes.external import open_transaction, outputs_of
from tidemill.shapes.keys import KeySchema
from tidemill.shapes.manifest import Manifest
from tidemill.testing.plain import write_plain

DATASETS: Final = 1_000
SCHEDULES: Final = 10_000
RUNS: Final = 200_000
PARTITIONS: Final = 1_000_000
FILES: Final = 100_000
ALERTS: Final = 10_000
BACKFILLS: Final = 10_000
ITEMS: Final = 50_000
VERSIONS: Final = 50
BIG: Final = "default.d0000"
"""The file set with all partitions."""
READER: Final = "default.bench.read"
"""The program that reads that file set, and the inbox."""
_COLUMNS: Final = {
    True: "SELECT name FROM pragma_table_info('{table}')",
    False: "SELECT column_name FROM information_schema.columns WHERE table_name = '{table}'",
}
_CLOCK: Final = 10 * PARTITIONS
"""Above the pointers of all that is copied."""
_FIRST: Final = 1_000_000
"""Keys of the same length, so that the text of a key is a prefix and the number."""


def app_of(share: int = 1) -> str:
    """Return the app with all its data sets and programs, and one part of `share` parts of its schedules."""
    return f"""
import tidemill as tm

app = tm.App("bench")
filesets = [app.fileset(f"d{{n:04}}", keys={{"n": "int"}}) for n in range({DATASETS})]
raw = app.inbox("raw", "landing", schema="id int")
planes = app.snapshot("planes", key=["id"], max_versions={VERSIONS})
times = tm.Watermark("ts", pattern="$day $hour:00:00", interval="1h", gap="wait")
hours = app.fileset("hours", keys={{"day": "date", "hour": "int"}}, watermark=times)
app.alert("failed", tm.RunFailed())


@app.python(reads=[filesets[0], raw])
def read(run):
    pass


def make(n):
    def load(run):
        pass

    load.__name__ = f"p{{n:04}}"
    return app.python(writes=[filesets[n]])(load)


programs = [make(n) for n in range({DATASETS})]
for number in range({SCHEDULES // share}):
    m, n = divmod(number, {DATASETS})
    daily, arrived = tm.Cron("30 2 * * *"), tm.NewPartitions(filesets[(n + m) % {DATASETS}], 2)
    app.schedule(f"s{{n:04}}_{{m}}", programs[n], trigger=arrived if m else daily)
"""


def age(mill: Mill, share: int = 1) -> None:
    """Give the deployed app of this module its past, or one part of `share` parts of the past."""
    runs, schedules = RUNS // share, SCHEDULES // share
    publish(mill, BIG, _FIRST)
    _land(mill)
    mill.runs.start("bench.p0000")
    with _executing(mill) as execute:
        _copy(
            execute,
            "tx",
            runs,
            "WHERE state = 'committed'",
            {
                "write_pointer": "1000 + 2 * i",
                "commit_seq": "1001 + 2 * i",
                "run_id": "'run_00000000000000000000' || (100000 + i)",
            },
        )
        _copy(
            execute,
            "partition_change",
            PARTITIONS // share,
            f"WHERE dataset_id = (SELECT dataset_id FROM dataset WHERE name = '{BIG.partition('.')[2]}')",
            {
                "write_pointer": "1000 + 2 * i",
                "commit_seq": "1001 + 2 * i",
                "partition_key": f"'{_prefix()}' || ({_FIRST + 1} + i)",
                "location": "'tx-' || (1000 + 2 * i) || '-aged'",
                "run_id": f"'run_00000000000000000000' || (100000 + i % {runs})",
                "row_count": "100 + i % 900",
                "bytes": "1000 * (1 + i % 900)",
                "at": "at - (1000000 - i) * CAST(30000 AS BIGINT)",
            },
        )
        _copy(
            execute,
            "inbox_file",
            FILES // share,
            "WHERE name = 'first.csv'",
            {
                "name": "'f' || (1000000 + i) || '.csv'",
                "status": "CASE WHEN i % 1000 = 0 THEN 'QUARANTINED' ELSE 'SUCCESS' END",
                "first_seen": f"first_seen - ({FILES} - i) * CAST(30000 AS BIGINT)",
            },
        )
        ended = "i >= 10"
        execute(
            f"{_series(ALERTS // share)} INSERT INTO alert"
            " (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at, resolved_at)"
            " SELECT 'alert_' || (1000000 + i), rule_id, namespace, 'default.failed', 'default.bench.p' || i,"
            f" CASE WHEN {ended} THEN 'RESOLVED' ELSE 'OPEN' END, 'it failed', 1, 1, CASE WHEN {ended} THEN 2 END"
            " FROM alert_rule CROSS JOIN series"
        )
        execute(
            f"{_series(BACKFILLS // share)} INSERT INTO backfill"
            " (backfill_id, program_id, namespace, item_kind, takes_all, choice, arguments, state, concurrency,"
            " priority, quiet, actor, waiting, done, created_at, ended_at)"
            " SELECT 'backfill_' || (1000000 + i), program_id, namespace, 'times', 0, '{}', '{}', 'COMPLETED',"
            f" 1, -1, 0, 'ann', 0, CASE WHEN i = 0 THEN {ITEMS // share} ELSE 0 END, 1 + i, 2 + i"
            " FROM (SELECT program_id, namespace FROM program LIMIT 1) AS program CROSS JOIN series"
        )
        execute(
            f"{_series(ITEMS // share)} INSERT INTO backfill_item (backfill_id, no, item, state, run_id)"
            " SELECT 'backfill_1000000', i, '2026-01-01T00:00:00+00:00', 'DONE',"
            f" 'run_00000000000000000000' || (100000 + i % {runs}) FROM series"
        )
        where = f"dataset_id = (SELECT dataset_id FROM dataset WHERE name = '{BIG.partition('.')[2]}')"
        sums = "SELECT count(*), sum(files), sum(bytes), sum(row_count) FROM partition_change"
        execute(
            "UPDATE fileset_total SET (partitions, files, bytes, row_count) ="
            f" ({sums} WHERE {where} AND superseded_seq IS NULL) WHERE {where}"
        )
        of_program = f"(SELECT program_id FROM numbered_program WHERE number = i % {DATASETS})"
        of_schedule = f"(SELECT schedule_id FROM numbered_schedule WHERE number = i % {schedules})"
        for name, key in (("program", "program_id"), ("schedule", "schedule_id")):
            numbers = f"SELECT {key}, row_number() OVER (ORDER BY {key}) - 1 AS number FROM {name}"
            execute(f"CREATE TEMP TABLE numbered_{name} AS {numbers}")
            execute(f"CREATE INDEX numbered_{name}_number ON numbered_{name} (number)")
        created = "created_at - (200000 - i) * CAST(150000 AS BIGINT)"
        _copy(
            execute,
            "run",
            runs,
            "WHERE kind = 'program'",
            {
                "run_id": "'run_00000000000000000000' || (100000 + i)",
                "program_id": of_program,
                "schedule_id": of_schedule,
                "job_id": "'job_00000000000000000000' || (100000 + i)",
                "state": "CASE WHEN i % 50 = 0 THEN 'FAILED' ELSE 'COMPLETED' END",
                "exit_reason": "CASE WHEN i % 50 = 0 THEN 'ValueError: line 17' ELSE '' END",
                "epoch": "1",
                "created_at": created,
                "started_at": f"{created} + 500",
                "ended_at": f"{created} + 2000 + i % 5000",
                "write_pointer": "1000 + 2 * i",
                "first_write_pointer": "1000 + 2 * i",
            },
        )
        history = (
            "INSERT INTO job_history (job_id, schedule_id, generation, outcome, run_id, created_at, ended_at, detail)"
            " SELECT job_id, schedule_id, 1, 'launched', run_id, created_at, created_at + 100, NULL"
            " FROM run WHERE job_id IS NOT NULL"
        )
        execute(history)
        _copy(
            execute,
            "message",
            PARTITIONS // share,
            "WHERE topic = 'data' AND event_key LIKE 'partition:%'",
            {"seq": "1001 + 2 * i", "event_key": f"'partition:default.d' || substr('' || (10000 + i % {DATASETS}), 2)"},
        )
        # Nothing of this past is new for a scheduler, or for the janitor, which visits the folder of each commit.
        execute("DELETE FROM subscriber")
        for topic, name in (("data", "scheduler"), ("markers", "janitor"), ("markers", "strays")):
            execute(f"INSERT INTO subscriber (topic, name, seq, n) VALUES ('{topic}', '{name}', {_CLOCK - 1}, 0)")
    _fill(mill)


def _land(mill: Mill) -> None:
    landing = mill.project.config.folder / "landing"
    landing.mkdir(exist_ok=True)
    (landing / "first.csv").write_text("1\n")
    mill.inboxes.scan("raw")


def _fill(mill: Mill) -> None:
    """Publish hours and versions, and give the reader of the large file set what commits from now on."""
    days = KeySchema.of({"day": "date", "hour": "int"})
    keys = [days.check({"day": date(2025, 1, 1) + timedelta(n // 24), "hour": n % 24}) for n in range(24 * 365)]
    catalog, world = mill.project.catalog, mill.project.world
    with open_transaction(catalog, world, ["default.hours"]) as tx:
        writes = [PartitionWrite(key, WriteOp.APPEND, Manifest(())) for key in keys]
        outputs_of(tx).register("default.hours", writes, None, base=None)
    for version in range(VERSIONS):
        with open_transaction(catalog, world, ["default.planes"], writer=write_plain) as tx:
            tx.snapshot("default.planes").replace({"": f"{version}\n"})
    mill.consumers.reset(BIG, READER, to="now")


@dataclass(frozen=True)
class Execute:
    """Executes statements on the database of a catalog."""

    sqlite: bool
    run: Callable[[str], Any]

    def __call__(self, query: str) -> list[tuple[Any, ...]]:
        """Return the rows of a statement."""
        cursor = self.run(query)
        return cursor.fetchall() if self.sqlite or cursor.description else []


@contextmanager
def _executing(mill: Mill) -> Iterator[Execute]:
    """Statements in one transaction, after which the clock is above all ticks."""
    catalog = mill.project.catalog
    if isinstance(catalog, SqliteCatalog):
        connection = catalog._connection()
        connection.execute("BEGIN IMMEDIATE")
        yield Execute(True, connection.execute)
        connection.execute(f"UPDATE clock SET value = {_CLOCK}; COMMIT; ANALYZE")
    elif isinstance(catalog, PostgresCatalog):
        with catalog._pool.connection() as postgres:
            execute = Execute(False, postgres.execute)
            execute("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0")
            with postgres.transaction():
                yield execute
                execute(f"SELECT setval('tidemill_clock', {_CLOCK})")
            execute("VACUUM (ANALYZE)")


def _prefix() -> str:
    return KEYS.encode(KEYS.check({"n": _FIRST})).removesuffix(str(_FIRST))


def _copy(execute: Execute, table: str, rows: int, where: str, changed: Mapping[str, str]) -> None:
    """Insert copies of the first row that fits, with columns from expressions over `i`, 0 to `rows` - 1."""
    (row,) = execute(f"SELECT count(*) FROM {table} {where}")
    assert row[0] >= 1, table
    columns = [str(one[0]) for one in execute(_COLUMNS[execute.sqlite].format(table=table))]
    values = ", ".join(changed.get(one, one) for one in columns)
    execute(
        f"{_series(rows)}, template AS (SELECT * FROM {table} {where} LIMIT 1)"
        f" INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM template CROSS JOIN series"
    )


def _series(rows: int) -> str:
    return f"WITH RECURSIVE series(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM series WHERE i < {rows - 1})"
