import re

import pytest

from tests.explore.scenarios import QUICK, SCENARIOS, SHORT
from tests.explore.search import Broken, Search, canonical
from tests.seed_of_the_day import TODAY
from tidemill.lake.consumer import take
from tidemill.schedule import subscriber

DAYS = 4
OF_TODAY = [name for number, name in enumerate(SHORT) if number % DAYS == TODAY % DAYS]
"""Four days play all; `make explore` plays all of them, and larger ones."""
LONGEST = {
    "timed-out-small", "lost-replies-2", "inbox-rewritten", "timer-hold", "inbox-small", "queue", "beside",
    "drivers", "timer", "messages", "suspended", "capped", "engines", "given",
    "windows-listed",
}  # fmt: skip
"""Scenarios of the short form that take three seconds or more: `make test-long` plays them."""


@pytest.mark.proof
@pytest.mark.share(*(name for name in OF_TODAY if name not in LONGEST))
@pytest.mark.parametrize("name", OF_TODAY)
def test_no_order_of_turns_breaks_a_promise(name):
    """R3, R4: consumers, inboxes and the scheduler in all orders; `python -m tests.explore` searches larger ones."""
    figures = Search(SCENARIOS[name](name), cut_every=8).run()

    assert figures.whole
    assert figures.ends > 0


def test_a_search_sees_the_same_each_time():
    """Nothing real gets in: else a state that was visited would not be the one that is met again."""
    figures = [Search(SCENARIOS["limit"]("limit")).run() for _ in range(2)]

    assert len({(one.states, one.turns, one.ends, one.deepest) for one in figures}) == 1


def test_a_forgotten_in_progress_list_is_found(monkeypatch):
    """A search that finds nothing in a broken product proves nothing about a sound one."""
    monkeypatch.setattr(take, "find_in_progress", lambda *_: [])

    with pytest.raises(Broken, match=r"forgets tx \d+, which is open|will never see") as broken:
        Search(SCENARIOS["workers-small"]("workers-small")).run()

    assert re.search(r"^ +\d+ w0: ", str(broken.value), re.MULTILINE)


def test_a_position_that_moves_before_the_jobs_is_found(monkeypatch):
    """If two transactions do the work of one, a process that dies between them loses the messages."""
    monkeypatch.setattr(subscriber, "_feed", lambda *_: {})

    with pytest.raises(Broken, match="was heard 0 times"):
        Search(SCENARIOS["message"]("message")).run()


def test_states_that_differ_only_in_their_numbers_are_one():
    """Else each history would be a state of its own: the clock never stands still."""
    assert canonical("tx 7000000003 after 7000000001") == canonical("tx 7000000009 after 7000000002")
    assert canonical("tx 7000000003 after 7000000001") != canonical("tx 7000000002 after 7000000009")


def test_the_quick_scenarios_are_in_the_short_form():
    """The product itself passes the scenarios with which mutants are hunted."""
    assert set(QUICK) <= set(SHORT)
