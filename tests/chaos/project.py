"""The project that the chaos works on: rows go through three programs by way of triggers, each row once.

Beside them a feed of minutes, over which windows are computed, and with which a snapshot is refreshed. A workflow
unpacks parcels, and a program remembers minutes, of the past too.

As the app file of a site it stands alone in a folder; without Spark, a file of a partition is a text with a row a line.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tests.chaos.minutes import WINDOWS, Counts
from tests.sql.plain import write_windows
from tidemill import App, Concurrency, Cron, NewFiles, NewPartitions, Node, Watermark, WatermarkPassed
from tidemill.run.records.programs import ProgramKind
from tidemill.sql.window_program import WindowProgram

HERE = Path(__file__).parent
BUCKETS = 4

app = App("chaos")
BRISK = {"format": "text", "settle": "0s", "list_every": "300ms", "attempts": 1000, "retry_after": "100ms"}
raw = app.inbox("raw", str(HERE / "landing"), after="archive", archive=str(HERE / "archive"), **BRISK)
lines = app.fileset("lines", keys={"writer": "int", "number": "int"}, location=str(HERE / "data/lines"))
pairs = app.fileset("pairs", keys={"writer": "int", "number": "int"}, location=str(HERE / "data/pairs"))
loaded = app.fileset("loaded", keys={"bucket": "int"}, location=str(HERE / "data/loaded"))
totals = app.fileset("totals", keys={"bucket": "int"}, location=str(HERE / "data/totals"))
final = app.fileset("final", keys={"bucket": "int"}, location=str(HERE / "data/final"))
ticks = app.fileset(
    "ticks",
    keys={"minute": "string"},
    location=str(HERE / "data/ticks"),
    watermark=Watermark("ts", interval="1 minute", pattern="$minute", formatter="yyyyMMddHHmm"),
)
parcels = app.inbox("parcels", str(HERE / "parcels"), max_files=10, **BRISK)
shelves = app.fileset("shelves", keys={"bucket": "int"}, location=str(HERE / "data/shelves"))
hours = app.fileset("hours", keys={"hour": "string"}, location=str(HERE / "data/hours"))
mirror = app.snapshot("mirror", max_versions=3, location=str(HERE / "data/mirror"))


class Stumble(Exception):
    """Error that a program raises now and then."""


@app.python(reads=[raw], writes=[loaded], retries=100, backoff="100ms")
def load(run):
    """Take landed files up."""
    _stumble(run)
    rows = [row for name in run.input(raw).files for row in (HERE / "landing" / name).read_text().splitlines()]
    run.output(loaded).append(_by_bucket(rows))


@app.python(reads=[lines], writes=[totals], retries=100, backoff="100ms")
def sum_up(run):
    """Take up what writers published."""
    _stumble(run)
    run.output(totals).append(_by_bucket(_rows(run, lines)))


@app.python(reads=[loaded, totals], writes=[final], retries=100, backoff="100ms")
def finish(run):
    """Bring both ways together."""
    _stumble(run)
    rows = [*_rows(run, loaded), *_rows(run, totals)]
    # Two write calls: half of the rows may stand in one of them when the driver dies.
    run.output(final).append(_by_bucket(rows[::2]))
    run.output(final).append(_by_bucket(rows[1::2]))


@app.python(writes=[mirror], retries=100, backoff="100ms")
def refresh(run):
    """Take the source over, as it is at this moment."""
    _stumble(run)
    run.output(mirror).replace({(): [f"as of {run.write_pointer}"]})


@app.python(reads=[parcels], retries=100, backoff="100ms")
def fetch(run):
    """Take parcels for a workflow."""
    _stumble(run)
    run.put("files", len(run.input(parcels).files))


@app.python(reads=[parcels], writes=[shelves], retries=100, backoff="100ms")
def shelve(run):
    """Publish what is in the parcels."""
    _stumble(run)
    run.output(shelves).append(_by_bucket(_rows_of_parcels(run)))


@app.python()
def inspect(run):
    """Fail for good, for every fourth workflow."""
    _fail_for_good(run, 4)


@app.python(reads=[parcels], retries=100, backoff="100ms")
def tick_off(run):
    """Read the same parcels at the end."""
    _stumble(run)
    if len(run.input(parcels).files) != run.values["fetch.files"]:
        msg = f"{run.id} has other parcels than its first node"
        raise AssertionError(msg)


@app.python(writes=[hours], retries=1, backoff="100ms")
def remember(run):
    """Publish a row for a minute."""
    _fail_for_good(run, 10)
    run.output(hours).append({(f"{run.logical_time:%Y-%m-%d %H}",): [f"{run.logical_time:%Y-%m-%dT%H:%M}"]})


unpack = app.workflow(
    "unpack",
    [
        Node(fetch),
        Node(shelve, after=[fetch]),
        Node(inspect, after=[fetch]),
        Node(tick_off, after=[shelve, inspect]),
    ],
    holds=[parcels],
    resume_within="8s",
)
app.schedule("unpack", unpack, trigger=NewFiles(parcels), constraints=[Concurrency(10)])
app.schedule("every_minute", remember, trigger=Cron("* * * * *"))
for name, (slide, size) in WINDOWS.items():
    app.fileset(f"by_{name}", keys={"begins": "string"}, location=str(HERE / f"data/by_{name}"))
    shape = write_windows("ticks", slide, size, "MINUTE")
    columns = "window_start, CAST(window_start AS STRING) AS begins, count(*) AS n"
    query = f"INSERT INTO by_{name} SELECT {columns} FROM TABLE({shape}) GROUP BY window_start"
    app.add_windows(WindowProgram(name, query, calculator=Counts), ProgramKind.PYTHON, retries=100)
    passed = WatermarkPassed(ticks, every="1m")
    app.schedule(name, name, trigger=passed, constraints=[Concurrency(3)])
app.schedule("refresh", refresh, trigger=NewPartitions(ticks), constraints=[Concurrency(2)])
for program, trigger in ((load, NewFiles(raw)), (sum_up, NewPartitions(lines))):
    app.schedule(program.__name__, program, trigger=trigger, constraints=[Concurrency(30)])
for name, source in (("finish_loaded", loaded), ("finish_totals", totals)):
    app.schedule(name, finish, trigger=NewPartitions(source), constraints=[Concurrency(30)])


def _rows(run, source) -> list[str]:
    where = HERE / "data" / source.name
    return [
        row
        for delivery in run.input(source).deliveries
        for name, _ in delivery.files
        for row in (where / name).read_text().splitlines()
    ]


def _rows_of_parcels(run) -> list[str]:
    return [row for name in run.input(parcels).files for row in (HERE / "parcels" / name).read_text().splitlines()]


def _by_bucket(rows: Iterable[str]) -> dict[tuple[int], list[str]]:
    found = defaultdict(list)
    for row in rows:
        found[(zlib.crc32(row.encode()) % BUCKETS,)].append(row)
    return found


def _fail_for_good(run, one_in: int) -> None:
    # A run that is retried by a person has another id.
    if zlib.crc32(run.id.encode()) % one_in == 0:
        raise Stumble(run.id)


def _stumble(run) -> None:
    # One run in fifty, in its first attempt: so no partition ever fails so often that it is given up.
    if run.attempt == 1 and zlib.crc32(run.id.encode()) % 50 == 0:
        raise Stumble(run.id)
