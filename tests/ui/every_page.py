"""Every page of a site: one of each kind that links lead to, light and dark, wide and narrow."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from tests.seed_of_the_day import TODAY

WIDE, NARROW = 1360, 390
_BY_DAY = (("light", WIDE), ("dark", NARROW), ("dark", WIDE), ("light", NARROW))
OF_TODAY = _BY_DAY[TODAY % len(_BY_DAY)]
"""Scheme and width of the day: four days play all four."""


def check_every_page(visit: Callable[..., Page]) -> list[str]:
    """Assert that axe finds nothing wrong on any page, and that none is wider than its window; return their paths."""
    paths = find_paths(visit("/"))
    scheme, width = OF_TODAY
    page = visit("/", color_scheme=scheme, viewport={"width": width, "height": 900})
    for path in paths:
        page.goto(_address(page, path))
        found = Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], (scheme, width, path)
        too_wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert too_wide <= 0, (scheme, width, path, too_wide)
    return paths


def find_paths(page: Page) -> list[str]:
    """Return one path of each kind of page, as links name them."""
    kinds: dict[str, str] = {}
    left = ["/"]
    while left:
        path = left.pop(0)
        kind = f"{path.split('/')[1]} {path.count('/')}"
        if kind in kinds:
            continue
        kinds[kind] = path
        page.goto(_address(page, path))
        hrefs = page.eval_on_selector_all("a[href^='/']", "all => all.map(one => one.getAttribute('href'))")
        left += [one.partition("?")[0] for one in hrefs]
    return list(kinds.values())


def _address(page: Page, path: str) -> str:
    parts = urlsplit(page.url)
    return f"{parts.scheme}://{parts.netloc}{path}"
