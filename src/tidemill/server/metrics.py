"""`/metrics` for Prometheus: the metrics of the catalog, what a server has counted, and its own process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from fastapi import Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tidemill.histograms import Shown
from tidemill.mill.metrics import HELP, Metric, Sample
from tidemill.mill.operation import Right
from tidemill.server.counting import EndedRuns, FencedLeases, ProgramEnds
from tidemill.server.guard import guarded

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

    from tidemill.catalog.db import Catalog
    from tidemill.mill.mill import Mill

RUNS_ENDED: Final = "tidemill_runs_ended"
RUN_WAIT: Final = "tidemill_run_wait_seconds"
RUN_DURATION: Final = "tidemill_run_duration_seconds"
RUN_COMMIT: Final = "tidemill_run_commit_seconds"
RUN_CORES: Final = "tidemill_run_core_seconds"
LEASES_FENCED: Final = "tidemill_leases_fenced"
COUNTED: Final[dict[str, tuple[str, str]]] = {
    RUNS_ENDED: (
        "counter",
        "Runs that ended since the first scrape of this server, by program and state. Each server counts all runs.",
    ),
    RUN_WAIT: (
        "histogram",
        "Time from a satisfied trigger to the first start of its run, of the runs that ended, by program.",
    ),
    RUN_DURATION: ("histogram", "Time from the first start of a run to its end, of the runs that ended, by program."),
    RUN_COMMIT: (
        "histogram",
        (
            "Time from the return of a program to the last statements of its commit: checks of files, waits for other "
            "commits, and the transaction without its end. By program; not of workers, nor of runs without input."
        ),
    ),
    RUN_CORES: (
        "counter",
        (
            "Core-seconds of the runs that ended since the first scrape of this server, by program: running time of "
            "Spark's tasks and CPU time of drivers. Those of a run are added at its end."
        ),
    ),
    LEASES_FENCED: (
        "counter",
        "Transactions that others ended since the first scrape of this server: of runs that were lost or killed.",
    ),
}
"""Metrics that a server counts from its first scrape on: kinds and meanings."""

CATALOG_BLOCKS: Final = "tidemill_catalog_block_seconds"
CATALOG_CONNECTIONS: Final = "tidemill_catalog_connections"
CATALOG_WAITS: Final = "tidemill_catalog_waits"
CATALOG_WAKEUPS: Final = "tidemill_catalog_wakeups"
OF_PROCESS: Final[dict[str, tuple[str, str]]] = {
    CATALOG_BLOCKS: (
        "histogram",
        "Duration of the blocks of this process on the catalog, waits included, by kind: read, write or commit.",
    ),
    CATALOG_CONNECTIONS: ("gauge", "Connections of this process to the catalog, by state: used or idle."),
    CATALOG_WAITS: (
        "counter",
        "Blocks of this process that waited: for a connection on PostgreSQL, for the lock of the database on SQLite.",
    ),
    CATALOG_WAKEUPS: ("counter", "Wake-ups of this process: by commits of any process, or by itself."),
}
"""Metrics of the process of a server, from its start on: kinds and meanings. All servers together are their sum."""


class _Families(Collector):
    """Families as a registry takes them."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = families

    def collect(self) -> Iterable[Family]:
        return self._families


def _text(*families: Family) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(families))
    return generate_latest(registry)


def _of_catalog(samples: Iterable[Sample], fenced: int, catalog: Catalog) -> Iterator[Family]:
    families: dict[Metric, GaugeMetricFamily] = {}
    for one in samples:
        if one.metric not in families:
            families[one.metric] = GaugeMetricFamily(one.metric, HELP[one.metric], labels=list(one.labels))
        families[one.metric].add_metric(list(one.labels.values()), one.value)
    yield from families.values()
    yield CounterMetricFamily(LEASES_FENCED, COUNTED[LEASES_FENCED][1], value=fenced)
    yield from _of_process(catalog)


class _EndedTexts:
    """The lines about ended runs. They are kept by program: since the last scrape, most programs have ended no run.

    A thousand programs have 35,000 lines, which take 0.4 s to make.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[ProgramEnds, list[bytes]]] = {}
        self._heads = [_text(family) for family in _of_ends({})]

    def text(self, ends: Mapping[str, ProgramEnds]) -> bytes:
        """Return the families of all programs."""
        new = {program: one for program, one in ends.items() if self._kept.get(program, (None,))[0] is not one}
        texts = [list(_by_program(_text(family), len(new))) for family in _of_ends(new)]
        for place, (program, one) in enumerate(new.items()):
            self._kept[program] = one, [lines[place] for lines in texts]
        kept = [self._kept[program][1] for program in ends]
        return b"".join(b"".join((head, *parts)) for head, *parts in zip(self._heads, *kept, strict=True))


def _by_program(text: bytes, programs: int) -> Iterator[bytes]:
    """Cut the samples of a family into those of each program: all have as many lines, one program after the other."""
    lines = [line for line in text.splitlines(keepends=True) if not line.startswith(b"#")]
    size = len(lines) // max(programs, 1)
    return (b"".join(lines[place * size : (place + 1) * size]) for place in range(programs))


def _of_ends(ends: Mapping[str, ProgramEnds]) -> Iterator[Family]:
    ended = CounterMetricFamily(RUNS_ENDED, COUNTED[RUNS_ENDED][1], labels=["program", "state"])
    for program, one in ends.items():
        for state, number in one.numbers.items():
            ended.add_metric([program, state], number)
    yield ended
    cores = CounterMetricFamily(RUN_CORES, COUNTED[RUN_CORES][1], labels=["program"])
    for program, one in ends.items():
        cores.add_metric([program], one.core_seconds)
    yield cores
    yield _histogram(RUN_WAIT, "program", (one.wait for one in ends.values()))
    yield _histogram(RUN_DURATION, "program", (one.duration for one in ends.values()))
    yield _histogram(RUN_COMMIT, "program", (one.commit for one in ends.values()))


def _of_process(catalog: Catalog) -> Iterator[Family]:
    connections = catalog.count_connections()
    states = GaugeMetricFamily(CATALOG_CONNECTIONS, OF_PROCESS[CATALOG_CONNECTIONS][1], labels=["state"])
    states.add_metric(["used"], connections.used)
    states.add_metric(["idle"], connections.idle)
    yield states
    yield CounterMetricFamily(CATALOG_WAITS, OF_PROCESS[CATALOG_WAITS][1], value=connections.waits)
    if catalog.meter is not None:
        yield _histogram(CATALOG_BLOCKS, "kind", catalog.meter.blocks())
        wakeups = catalog.meter.wakeups()
        yield CounterMetricFamily(CATALOG_WAKEUPS, OF_PROCESS[CATALOG_WAKEUPS][1], value=wakeups)


def _histogram(name: str, label: str, shown: Iterable[Shown]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, (COUNTED | OF_PROCESS)[name][1], labels=[label])
    for one in shown:
        family.add_metric(one.labels, one.buckets, one.sum)
    return family


class Counts:
    """All that a server counts for its scrapes."""

    def __init__(self, mill: Mill) -> None:
        self.ended_runs = EndedRuns(mill)
        self.fenced_leases = FencedLeases(mill)
        self.ended_texts = _EndedTexts()


@guarded(Right.READ, whole=True)
def metrics(request: Request) -> Response:
    """Return all metrics in the text form of Prometheus."""
    mill: Mill = request.state.mill
    counts: Counts = request.app.state.counts
    found = mill.metrics()
    ends, fenced = counts.ended_runs.count(found.programs), counts.fenced_leases.count()
    text = _text(*_of_catalog(found.samples, fenced, mill.project.catalog)) + counts.ended_texts.text(ends)
    return Response(text, media_type=CONTENT_TYPE_LATEST)
