"""`/metrics` for Prometheus: the metrics of the catalog, and the ends of runs since the first scrape of a server."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from fastapi import Request, Response
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from tidemill.errors import NotFound
from tidemill.mill.metrics import HELP, Metric, Sample
from tidemill.mill.operation import Right
from tidemill.run.records.runs import RunState
from tidemill.server.guard import guarded

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

    from tidemill.mill.mill import Mill

RUNS_ENDED: Final = "tidemill_runs_ended"
RUNS_ENDED_HELP: Final = (
    "Runs that ended since the first scrape of this server, by program and state. Each server counts all runs."
)
_TOPIC: Final = "program"
_PART: Final = 1000
_ENDS: Final = tuple(state for state in RunState if state.ended)


class EndedRuns:
    """Counts the ends of runs by their messages, from its first count on. A count costs what is new.

    Each program has a count of zero before its first end: Prometheus sees no increase in a series that begins at one.
    """

    def __init__(self, mill: Mill) -> None:
        self._mill = mill
        self._position: str | None = None
        self._counts: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def count(self, programs: Iterable[str]) -> Counter[tuple[str, str]]:
        """Return the number of ends by program and state, of `programs` and of those that ended a run."""
        with self._lock:
            for program in programs:
                for state in _ENDS:
                    self._counts.setdefault((program, state), 0)
            more = True
            while more:
                more = self._read_on()
            return Counter(self._counts)

    def _read_on(self) -> bool:
        """Count a part of the new messages; return whether there are more."""
        topics = self._mill.topics
        if self._position is None:
            try:
                newest = topics.read(_TOPIC, limit=1)
            except NotFound:
                newest = None
            self._position = newest[0].position if newest else "0"
            return False
        page = topics.read(_TOPIC, after=self._position, limit=_PART)
        for message in page:
            self._position = message.position
            if message.event_type == "run_ended":
                self._counts[str(message.payload["program"]), str(message.payload["state"])] += 1
        return page.next is not None


class _Catalog(Collector):
    """The metrics of one scrape."""

    def __init__(self, samples: Iterable[Sample], ended: Counter[tuple[str, str]]) -> None:
        self._samples = samples
        self._ended = ended

    def collect(self) -> Iterator[Family]:
        families: dict[Metric, GaugeMetricFamily] = {}
        for one in self._samples:
            if one.metric not in families:
                families[one.metric] = GaugeMetricFamily(one.metric, HELP[one.metric], labels=list(one.labels))
            families[one.metric].add_metric(list(one.labels.values()), one.value)
        yield from families.values()
        ended = CounterMetricFamily(RUNS_ENDED, RUNS_ENDED_HELP, labels=["program", "state"])
        for labels, number in self._ended.items():
            ended.add_metric(list(labels), number)
        yield ended


@guarded(Right.READ, whole=True)
def metrics(request: Request) -> Response:
    """Return all metrics in the text form of Prometheus."""
    mill: Mill = request.state.mill
    registry = CollectorRegistry(auto_describe=False)
    found = mill.metrics()
    registry.register(_Catalog(found.samples, request.app.state.ended_runs.count(found.programs)))
    return Response(generate_latest(registry), media_type=CONTENT_TYPE_LATEST)
