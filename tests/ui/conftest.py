"""A busy project, its server, and pages of a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Cookie, Page, expect, sync_playwright

from tests.server.busy import APP, make_busy
from tests.stage import Stage, staged
from tests.yardstick import patience
from tidemill.server.listen import Listener

CHROMIUM = Path("/usr/bin/chromium")


def serving(stage: Stage) -> Iterator[tuple[str, str]]:
    """Serve a project: the address, and a link that signs in."""
    listener = Listener(stage.mill)
    link = listener.start()
    yield listener.url, link
    listener.stop()


def open_context(chromium: Browser, **options: Any) -> BrowserContext:
    """Open a window of the browser; it waits longer for pages on a slow machine."""
    context = chromium.new_context(**options)
    context.set_default_timeout(patience(30_000))
    return context


def signed_in(site: tuple[str, str], chromium: Browser) -> list[Cookie]:
    """Sign in, and return the session of the browser."""
    context = open_context(chromium)
    context.new_page().goto(site[1])
    found = context.cookies()
    context.close()
    return found


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A busy project on SQLite."""
    folder = tmp_path_factory.mktemp("busy")
    with staged(folder, f"sqlite:///{folder / 'catalog.db'}", APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        yield make_busy(opened)


@pytest.fixture(scope="module")
def site(stage: Stage) -> Iterator[tuple[str, str]]:
    """The address of a server, and a link that signs in."""
    yield from serving(stage)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """A browser."""
    expect.set_options(timeout=patience(5_000))
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def cookies(site, chromium):
    """The session of a browser."""
    return signed_in(site, chromium)


@pytest.fixture
def visit(site, chromium, cookies):
    """Return a page of the browser that fails the test for what a person would see as broken."""
    contexts, wrong = [], []

    def note(text: str, *, refused: bool) -> None:
        # Browsers report an answer that refuses a request as an error; a test of a refusal expects that.
        if not (refused and re.search("status of (409|422)", text)):
            wrong.append(text)

    def opened(path: str, *, refused: bool = False, **options) -> Page:
        context = open_context(chromium, **options)
        context.add_cookies(cookies)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda one: note(one.text, refused=refused) if one.type in {"error", "warning"} else None)
        page.on("pageerror", lambda one: wrong.append(str(one)))
        host = urlsplit(site[0]).netloc
        page.on("request", lambda one: wrong.append(one.url) if urlsplit(one.url).netloc not in {host, ""} else None)
        page.add_init_script(
            "document.addEventListener('securitypolicyviolation', one => console.error('CSP', one.violatedDirective))"
        )
        page.goto(site[0] + path)
        return page

    yield opened
    for context in contexts:
        context.close()
    assert wrong == []
