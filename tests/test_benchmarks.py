"""Benchmarks are run by hand and seldom: here they are only looked at."""

from __future__ import annotations

import re
from pathlib import Path

from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import list_transactions
from tidemill.server.pages.lists import LISTS
from tidemill.server.pages.routes import PAGES_OF_THINGS
from tidemill.world import World


def test_every_benchmark_can_be_loaded_and_is_in_the_table():
    """A benchmark that imports a moved name would be found only on the day when its figure is wanted."""
    from benchmarks.__main__ import ALL

    readme = (Path(__file__).resolve().parent.parent / "benchmarks" / "README.md").read_text(encoding="utf-8")

    assert [name for name in ALL if f"| {name} |" not in readme] == []


def test_b15_has_the_target_of_its_table():
    """A figure between two targets meets one and misses the other."""
    from benchmarks.b15 import AIM

    readme = (Path(__file__).resolve().parent.parent / "benchmarks" / "README.md").read_text(encoding="utf-8")
    least, _, wanted = AIM.partition(", ")

    assert readme.count(f"{least} requests/s, {wanted}") == 2


def test_b15_reads_each_page_of_the_server():
    """A page that is not timed grows slow behind a long past, and users are the first to see that."""
    from benchmarks.b15 import PAGES

    patterns = [page.path for page in LISTS] + [path for path, _, _ in PAGES_OF_THINGS]
    read = {path.partition("?")[0] for path in PAGES.values()}
    untimed = [
        pattern
        for pattern in patterns
        if not any(
            re.fullmatch(re.sub("{[^}]+}", lambda one: ".+" if ":" in one[0] else "[^/]+", pattern), one)
            for one in read
        )
    ]

    assert untimed == []


def test_the_bare_statements_of_b10_are_still_those_of_a_begin_and_a_commit(catalog_url):
    """They are put together by hand there, so that nothing of the product stands around them."""
    from benchmarks.b10 import BARE, OURS, made_pair

    catalog = open_catalog(catalog_url, World())
    for kind in (OURS, BARE):
        with made_pair(kind, catalog_url) as pair:
            pair(f"run_{kind}")

    rows = catalog.read(lambda db: list_transactions(db, limit=9, open_only=False))
    catalog.close()
    assert [(row.run_id, row.state) for row in rows] == [(f"run_{BARE}", "committed"), (f"run_{OURS}", "committed")]
