"""The balance: it has to see what is lost or doubled at each step, and to need no counter of runs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from tidemill.demo.balance import PublishedKeys, weigh
from tidemill.demo.flights import Feed, Row, read_archive
from tidemill.demo.landing import Landing, plan
from tidemill.world import Disk

TEN, ELEVEN = "2013-01-01T10:00:00Z", "2013-01-01T11:00:00Z"
ONE, TWO, THREE = (TEN, "UA", "1"), (TEN, "UA", "2"), (ELEVEN, "AA", "3")
WIND = (TEN, "EWR")


def landing(feed: Feed, name: str, *keys: tuple[str, ...]) -> Landing:
    """A file with a row for each of `keys`."""
    return Landing(feed, name, b"", tuple(Row(key, "") for key in keys))


LEDGER = [
    landing(Feed.FLIGHTS, "a", ONE, TWO),
    landing(Feed.FLIGHTS, "b", THREE),
    landing(Feed.WEATHER, "a", WIND),
]
GOOD = PublishedKeys(
    loaded={Feed.FLIGHTS: Counter([ONE, TWO, THREE]), Feed.WEATHER: Counter([WIND])},
    joined=Counter([ONE, TWO, THREE]),
    hourly=Counter({TEN: 2, ELEVEN: 1}),
    daily=Counter({"2013-01-01": 3}),
)


def loaded(*flights: tuple[str, ...]) -> PublishedKeys:
    """Everything made from exactly these flights."""
    hours = Counter(hour for hour, *_ in flights)
    by_feed = {**GOOD.loaded, Feed.FLIGHTS: Counter(flights)}
    return replace(
        GOOD, loaded=by_feed, joined=Counter(flights), hourly=hours, daily=Counter({"2013-01-01": len(flights)})
    )


def test_what_landed_once_and_is_there_once_balances():
    """The plain case."""
    balance = weigh(LEDGER, set(), GOOD)

    assert balance.good
    assert str(balance) == "balance  in=4 out=4 rejected=0 duplicates=0 lost=0 twice=0"


def test_a_row_that_landed_again_is_a_duplicate_and_published_once():
    """Under the same name or another: what lands twice must come out once."""
    balance = weigh([*LEDGER, landing(Feed.FLIGHTS, "a", TWO, ONE)], set(), GOOD)

    assert balance.good
    assert (balance.landed, balance.published, balance.duplicates) == (6, 4, 2)


def test_the_rows_of_a_refused_file_are_rejected_not_lost():
    """A corrupt file is refused as a whole: half of a file would be a guess."""
    balance = weigh([*LEDGER, landing(Feed.FLIGHTS, "cut", (TEN, "DL", "9"))], {(Feed.FLIGHTS, "cut")}, GOOD)

    assert balance.good
    assert (balance.landed, balance.rejected) == (5, 1)


def test_a_row_of_a_refused_file_that_is_published_all_the_same_does_not_balance():
    """Then the file was not refused, whatever its state says."""
    balance = weigh(LEDGER, {(Feed.FLIGHTS, "b")}, GOOD)

    assert not balance.good
    assert balance.twice == 1


def test_a_lost_row_counts_once_although_nothing_made_from_it_has_it():
    """The number is that of rows, not of places where they are missing."""
    balance = weigh(LEDGER, set(), loaded(ONE, TWO))

    assert (balance.good, balance.lost, balance.twice) == (False, 1, 0)


def test_a_row_published_twice_is_seen():
    """A retry that commits what the first attempt had committed."""
    balance = weigh(LEDGER, set(), loaded(ONE, ONE, TWO, THREE))

    assert (balance.good, balance.lost, balance.twice) == (False, 0, 1)


@pytest.mark.parametrize(
    ("broken", "lost", "twice"),
    [
        (replace(GOOD, joined=Counter([ONE, TWO]), hourly=Counter({TEN: 2}), daily=Counter({"2013-01-01": 2})), 1, 0),
        (replace(GOOD, hourly=Counter({TEN: 2}), daily=Counter({"2013-01-01": 2})), 1, 0),
        (replace(GOOD, daily=Counter({"2013-01-01": 2})), 1, 0),
        (replace(GOOD, daily=Counter({"2013-01-01": 5})), 0, 2),
        (replace(GOOD, hourly=Counter({TEN: 1, ELEVEN: 2})), 1, 1),
    ],
)
def test_each_step_down_to_the_reports_is_weighed(broken, lost, twice):
    """A partition that a consumer is never given, or is given twice, shows only here."""
    balance = weigh(LEDGER, set(), broken)

    assert (balance.good, balance.lost, balance.twice) == (False, lost, twice)


def test_the_demos_three_days_end_with_the_promised_line():
    """A demo that publishes each accepted row once ends with this line, and no other demo does."""
    ledger = [each for step in plan(read_archive(Disk(), days=3)) for each in step.landings]
    refused = {(Feed.FLIGHTS, "2013-01-01T18.csv")}
    rows = {f: {r.key for e in ledger if e.feed is f and (f, e.name) not in refused for r in e.rows} for f in Feed}
    flights = rows[Feed.FLIGHTS]
    published = PublishedKeys(
        loaded={feed: Counter(keys) for feed, keys in rows.items()},
        joined=Counter(flights),
        hourly=Counter(hour for hour, *_ in flights),
        daily=Counter(hour[:10] for hour, *_ in flights),
    )

    balance = weigh(ledger, refused, published)

    assert str(balance) == "balance  in=3002 out=2856 rejected=32 duplicates=114 lost=0 twice=0"
    assert balance.good
