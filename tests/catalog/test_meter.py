"""The meter of a catalog: blocks by kind, connections, waits and wake-ups of one process."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from tests.yardstick import patience
from tidemill.catalog.db import Catalog
from tidemill.catalog.effects import Effect, Phase
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.meter import Meter
from tidemill.catalog.named import Call
from tidemill.world import SystemClock, World


class _Nothing(Effect):
    """Changes nothing: its commit is a tick of the clock."""

    phase = Phase.PUBLISH

    def writes(self) -> tuple[Call, ...]:
        return ()


class _SlowClock(SystemClock):
    """Clock that is two seconds later at each look."""

    def __init__(self) -> None:
        self._looks = 0

    def monotonic(self) -> timedelta:
        self._looks += 1
        return timedelta(seconds=2 * self._looks)


@pytest.fixture
def meter() -> Meter:
    """A meter without counts."""
    return Meter()


@pytest.fixture
def catalog(catalog_url: str, meter: Meter) -> Iterator[Catalog]:
    """A catalog with a meter."""
    opened = open_catalog(catalog_url, World(), meter=meter)
    yield opened
    opened.close()


def counted(meter: Meter) -> dict[str, float]:
    """Return the number of blocks by kind."""
    return {one.labels[0]: one.buckets[-1][1] for one in meter.blocks()}


def test_each_block_is_counted_once_by_its_kind_even_if_it_fails(catalog: Catalog, meter: Meter) -> None:
    """A catalog that refuses all blocks is not a quiet one."""
    before = counted(meter)
    catalog.read(lambda db: db.now())
    catalog.write(lambda db: db.now())
    with pytest.raises(ZeroDivisionError):
        catalog.write(lambda _: 1 // 0)
    catalog.apply([_Nothing()])
    after = counted(meter)

    assert {kind: after[kind] - before[kind] for kind in after} == {"read": 1, "write": 2, "commit": 1}


def test_a_duration_is_that_of_the_block(catalog: Catalog, meter: Meter) -> None:
    """Seconds, not milliseconds: a dashboard has no other source."""
    catalog.world = World(clock=_SlowClock())
    before = {one.labels[0]: one.sum for one in meter.blocks()}
    catalog.read(lambda _: None)
    after = {one.labels[0]: one for one in meter.blocks()}

    assert after["read"].sum - before["read"] > 1
    assert dict(after["read"].buckets)["5.0"] == counted(meter)["read"]
    assert dict(after["read"].buckets)["1.0"] == counted(meter)["read"] - 1


def test_connections_are_used_while_a_block_lasts(catalog: Catalog) -> None:
    """A pool whose connections are all used is the reason of each wait."""
    within = catalog.write(lambda db: (db.tick(), catalog.count_connections())[1])
    after = catalog.count_connections()

    assert (within.used, after.used) == (1, 0)
    assert after.idle >= 1


def test_a_block_that_waits_is_counted(catalog: Catalog) -> None:
    """On SQLite for the lock of the database, on PostgreSQL for one of 16 connections."""
    go, all_hold = threading.Event(), threading.Barrier(17)
    sqlite = catalog.url.startswith("sqlite")

    def hold() -> None:
        if not sqlite:
            all_hold.wait(patience(20))
        go.wait(patience(20))

    holding = threading.Event()

    def held_write() -> None:
        catalog.write(lambda _: (holding.set(), hold()))

    holders = [threading.Thread(target=held_write) for _ in range(1 if sqlite else 16)]
    for one in holders:
        one.start()
    holding.wait(patience(20))
    if not sqlite:
        all_hold.wait(patience(20))
    before = catalog.count_connections().waits
    waiting = threading.Thread(target=catalog.write, args=(lambda _: None,))
    waiting.start()
    give_up = threading.Event()
    timer = threading.Timer(patience(20), give_up.set)
    timer.start()
    while (now := catalog.count_connections().waits) == before and not give_up.is_set():
        pass
    go.set()
    for one in (*holders, waiting):
        one.join(patience(20))
    timer.cancel()

    assert now == before + 1


def test_a_wake_up_is_counted_and_a_time_out_is_none(catalog: Catalog, meter: Meter) -> None:
    """Wake-ups without end and without commits would be a loop that eats a core."""
    waiter = catalog.waiter()
    while waiter.wait(timedelta(milliseconds=50)):
        pass
    before = meter.wakeups()
    quiet = waiter.wait(timedelta(0))
    waiter.wake()
    woken = waiter.wait(timedelta(seconds=patience(10)))
    waiter.close()

    assert (quiet, woken) == (False, True)
    assert meter.wakeups() == before + 1


def test_a_catalog_without_a_meter_counts_nothing(catalog_url: str) -> None:
    """Commands and drivers do not pay for metrics that are never read."""
    catalog = open_catalog(catalog_url, World())
    catalog.read(lambda db: db.now())
    connections, waiter = catalog.count_connections(), catalog.waiter()
    meters = catalog.meter, waiter.meter
    waiter.close()
    catalog.close()

    assert meters == (None, None)
    assert (connections.used, connections.idle > 0) == (0, True)
