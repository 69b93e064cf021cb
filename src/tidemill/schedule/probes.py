"""Probes: readings of numbers outside the catalog, for `Probe` constraints, made outside of transactions."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final, TypeAlias

from tidemill.config import is_standalone_master
from tidemill.plugins import BadPlugin, find_function
from tidemill.schedule.constraints import READING_AGE, ProbeReading

TIMEOUT: Final = timedelta(seconds=2)
"""Longest time that a check waits for all its probes together."""

Source: TypeAlias = Callable[[], object]


class Probes:
    """Readings by the names of the probes, each made by a function of this process or of a plug-in.

    A function that does not answer within `timeout` goes on in its thread, and is not called again before its end.
    The function of a plug-in is looked for until it is found, and then kept.
    """

    def __init__(self, sources: Mapping[str, Source] = MappingProxyType({}), *, timeout: timedelta = TIMEOUT) -> None:
        self._sources = dict(sources)
        self._timeout = timeout
        self._readings: dict[str, ProbeReading] = {}
        self._threads: dict[str, threading.Thread] = {}

    def known(self, names: Collection[str], now: datetime) -> dict[str, ProbeReading]:
        """Return the readings of `names` that are young enough at `now`, the catalog's time."""
        found = {name: self._readings[name] for name in names if name in self._readings}
        return {name: reading for name, reading in found.items() if abs(now - reading.at) < READING_AGE}

    def read(self, names: Collection[str], now: datetime) -> None:
        """Make new readings of `names`, all at once, as of `now`. Call it outside of transactions; never raises."""
        results: dict[str, ProbeReading] = {}
        started = []
        for name in sorted(names):
            if name not in self._threads or not self._threads[name].is_alive():
                self._threads[name] = threading.Thread(target=self._ask, args=(name, now, results), daemon=True)
                self._threads[name].start()
                started.append(self._threads[name])
        left = self._timeout.total_seconds()
        for thread in started:
            # All have begun together. When the time is over for one, it is over for the others.
            thread.join(left)
            left = 0.0 if thread.is_alive() else left
        for name in names:
            self._readings[name] = results.get(name) or ProbeReading(now, None, "it has not answered in time")

    def _ask(self, name: str, now: datetime, results: dict[str, ProbeReading]) -> None:
        try:
            source = self._sources.get(name) or find_function("tidemill.probes", name)
            if source is None:
                error = "no installed package has such a probe"
                results[name] = ProbeReading(now, None, error)
                return
            # To find it again is to read the entry points of all installed packages from the disk.
            self._sources[name] = source
            results[name] = _to_reading(source(), now)
        except BadPlugin as error:
            results[name] = ProbeReading(now, None, error.why)
        except Exception as error:  # noqa: BLE001  # code of others: an error means "not yet"
            results[name] = ProbeReading(now, None, f"{type(error).__name__}: {error}")


def read_spark_load(master: str, page_port: str) -> float:
    """Return the share of a standalone Spark master's cores that are in use, by the JSON of its page; 1 without cores.

    Raises `OSError`, or `ValueError` for another master or page.
    """
    # Only this probe needs it, and the import takes 20 ms.
    import json
    from urllib.parse import urlsplit
    from urllib.request import urlopen

    host = urlsplit(master).hostname if is_standalone_master(master) else None
    if host is None:
        raise ValueError(f"spark.master is {master}, and only a standalone master (spark://…) has a page")
    page = f"http://{host}:{page_port}/json/"
    with urlopen(page, timeout=TIMEOUT.total_seconds()) as answer:  # it begins with http
        found = json.load(answer)
    if not isinstance(found, dict) or not {"cores", "coresused"} <= set(found):
        raise ValueError(f"{page} is not the JSON of a Spark master")
    return int(found["coresused"]) / int(found["cores"]) if found["cores"] else 1.0


def _to_reading(value: object, now: datetime) -> ProbeReading:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return ProbeReading(now, None, f"it gave {value!r}, which is no number")
    return ProbeReading(now, float(value))
