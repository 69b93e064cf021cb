"""Promises that each page keeps: its command, its keys, tables that sort, lists that go on by a key, empty lists."""

from __future__ import annotations

import re
import shlex
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Page, expect

from tests.test_operations import COMMANDS
from tests.ui.conftest import CHROMIUM
from tests.ui.every_page import find_paths
from tests.yardstick import patience
from tidemill.server.pages.lists import LISTS

pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt-get install chromium"),
]
WITHOUT_COMMAND = {"/search"}
"""Pages before anything was asked."""
CALM = {
    "nothing runs": "the next run shows itself",
    "nothing yet": "a run that led to nothing has nothing to do",
    "the run published nothing": "so it is meant",
    "it published nothing": "so it is meant",
    "the run took nothing": "so it is meant",
    "the program wrote nothing": "so it is meant",
    "every message could be read": "all is well",
    "no transaction is open": "all is well",
    "no run holds a partition": "all is well",
    "no partition was discarded": "all is well",
    "no open transaction holds it": "all is well",
    "every slot below W is complete": "all is well",
    "ask a server on that machine": "the next step itself",
    "none": "a kind of thing that the app does not declare",
}
"""Empty places at which nothing is to be done, each with the reason."""


@pytest.fixture
def open_each(visit):
    """Yield each kind of page, opened: its path and the browser's page."""

    def opened():
        paths = find_paths(visit("/"))
        page = visit("/")
        site = page.url.rstrip("/")
        for path in paths:
            page.goto(site + path)
            yield path, page

    return opened


def test_each_page_has_the_command_that_shows_the_same(open_each):
    """A person copies the command into a terminal, and sees the same there."""
    wrong = []
    for path, page in open_each():
        copied = page.eval_on_selector_all("[data-copy]", "all => all.map(one => one.dataset.copy)")
        commands = [one.removeprefix("tidemill ") for one in copied if one.startswith("tidemill ")]
        words = [" ".join(shlex.split(one)[:2]) for one in commands]
        known = [one in COMMANDS or one.partition(" ")[0] in COMMANDS for one in words]
        if not all(known) or (not commands and path not in WITHOUT_COMMAND):
            wrong.append((path, words))

    assert wrong == []


def test_the_keys_work_on_each_page(open_each):
    """Hands that know the keys of one page know them of all."""
    for path, page in open_each():
        page.keyboard.press("?")
        expect(page.locator("#keys")).to_be_visible()
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        expect(page.locator(".search input")).to_be_focused()
        page.locator("main").focus()
        page.keyboard.press("g")
        page.keyboard.press("r")
        expect(page.get_by_role("heading", level=1), path).to_have_text("Runs", timeout=patience(10_000))


def test_each_table_is_sorted_by_its_headings_and_the_url_says_so(open_each):
    """A person sends the link, and a colleague sees the same order."""
    sorted_tables = 0
    for path, page in open_each():
        tables = page.locator("main .panel > table:has(thead):has(tbody tr:nth-child(2))")
        for number in range(tables.count()):
            heads = tables.nth(number).locator("thead th:has(.sort)")
            assert heads.count() > 0, (path, number)
            heads.first.locator("button").click()
            assert heads.first.get_attribute("aria-sort") == "ascending", path
            shown = rows_of(page, number)
            if not re.search(r"[:?&]sort=", page.url):
                raise AssertionError(path)
            page.reload()
            assert rows_of(page, number) == shown, path
            sorted_tables += 1

    assert sorted_tables >= 5


def rows_of(page: Page, number: int) -> list[str]:
    """Return the first cells of a table, from above."""
    tables = page.locator("main .panel > table:has(thead):has(tbody tr:nth-child(2))")
    cells = tables.nth(number).locator("tbody tr td:first-child")
    return cells.evaluate_all("all => all.map(one => one.querySelector('time')?.dateTime ?? one.textContent)")


def test_sorting_goes_by_value_and_back(visit):
    """Ten is more than nine, and a time is no text."""
    page = visit("/runs")
    column = page.locator("tbody tr td:nth-child(5) time")
    order = "all => all.map(one => one.dateTime)"

    page.get_by_role("button", name="Created", exact=True).click()
    up = column.evaluate_all(order)
    page.get_by_role("button", name="Created", exact=True).click()
    down = column.evaluate_all(order)

    assert up == sorted(up)
    assert down == sorted(up, reverse=True)
    assert len(set(up)) > 2
    assert page.url.endswith("sort=Runs%3ACreated%3Adown")


def test_lists_go_on_by_a_key_in_the_url(open_each):
    """A page number shows other rows when one is added before; a key does not."""
    for path, page in open_each():
        links = page.eval_on_selector_all(".pages a", "all => all.map(one => one.href)")
        keys = [set(parse_qs(urlsplit(one).query)) for one in links]
        assert all(one & {"after", "bad_after"} and not one & {"page", "offset"} for one in keys), path


def test_an_empty_place_says_what_to_do_next(open_each):
    """A newcomer sees an empty list, and knows how it gets its first row."""
    silent = set()
    for path, page in open_each():
        said = page.eval_on_selector_all(
            "main p.empty:not(:has(.state))", "all => all.map(one => one.textContent.trim())"
        )
        silent |= {(path, one) for one in said if not re.search("[;:]", one) and one not in CALM}

    assert silent == set()


@pytest.mark.parametrize("page", LISTS, ids=lambda page: page.path)
def test_an_empty_list_says_what_to_do_next(page):
    """The next step stands behind the state."""
    assert "; " in page.empty
