"""`/metrics` for Prometheus: the metrics of the catalog, what a server has counted, and its own process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from fastapi import Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector

from tidemill.histograms import Shown
from tidemill.mill.metrics import HELP, Metric, Sample
from tidemill.mill.operation import Right
from tidemill.server.counting import EndedRuns, Ends, FencedLeases
from tidemill.server.guard import guarded

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

    from tidemill.catalog.db import Catalog
    from tidemill.mill.mill import Mill

RUNS_ENDED: Final = "tidemill_runs_ended"
RUN_WAIT: Final = "tidemill_run_wait_seconds"
RUN_DURATION: Final = "tidemill_run_duration_seconds"
RUN_COMMIT: Final = "tidemill_run_commit_seconds"
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


class _Scrape(Collector):
    """The metrics of one scrape."""

    def __init__(self, samples: Iterable[Sample], ends: Ends, fenced: int, catalog: Catalog) -> None:
        self._samples = samples
        self._ends = ends
        self._fenced = fenced
        self._catalog = catalog

    def collect(self) -> Iterator[Family]:
        families: dict[Metric, GaugeMetricFamily] = {}
        for one in self._samples:
            if one.metric not in families:
                families[one.metric] = GaugeMetricFamily(one.metric, HELP[one.metric], labels=list(one.labels))
            families[one.metric].add_metric(list(one.labels.values()), one.value)
        yield from families.values()
        ended = CounterMetricFamily(RUNS_ENDED, COUNTED[RUNS_ENDED][1], labels=["program", "state"])
        for labels, number in self._ends.numbers.items():
            ended.add_metric(list(labels), number)
        yield ended
        yield _histogram(RUN_WAIT, "program", self._ends.waits)
        yield _histogram(RUN_DURATION, "program", self._ends.durations)
        yield _histogram(RUN_COMMIT, "program", self._ends.commits)
        yield CounterMetricFamily(LEASES_FENCED, COUNTED[LEASES_FENCED][1], value=self._fenced)
        yield from _of_process(self._catalog)


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


@guarded(Right.READ, whole=True)
def metrics(request: Request) -> Response:
    """Return all metrics in the text form of Prometheus."""
    mill: Mill = request.state.mill
    counts: Counts = request.app.state.counts
    registry = CollectorRegistry(auto_describe=False)
    found = mill.metrics()
    ends, fenced = counts.ended_runs.count(found.programs), counts.fenced_leases.count()
    registry.register(_Scrape(found.samples, ends, fenced, mill.project.catalog))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
