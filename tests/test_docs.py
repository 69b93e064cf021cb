"""The statements of the pages hold."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    """A dead link on the first page is the first thing a new reader meets."""
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))

    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_each_page_is_found_from_the_readme():
    """A page that no page links to is read by its author alone."""
    found, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in found or page.suffix != ".md" or not page.is_file():
            continue
        found.add(page)
        targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text(encoding="utf-8"))
        waiting += [page.parent / target for target in targets]

    assert [str(page.relative_to(ROOT)) for page in PAGES if page not in found] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_make_targets_named_are_there(page):
    """A command from a page is typed as it stands."""
    targets = set(
        re.findall(r"^([a-z0-9-]+)[a-z0-9 -]*:(?!=)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    )
    named = set(re.findall(r"(?:`|^)make ([a-z0-9-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))

    assert named - targets == set()
