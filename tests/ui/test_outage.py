"""A page that is left open over an outage of the catalog says so, and comes back by itself."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from tests.postgres_server import find_binaries, mortal_server
from tests.server.busy import APP
from tests.stage import staged
from tests.ui.conftest import CHROMIUM, open_context
from tests.yardstick import patience
from tidemill.server.listen import Listener

pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt-get install chromium"),
    pytest.mark.skipif(find_binaries() is None, reason="needs PostgreSQL: apt-get install postgresql"),
]


def test_pages_say_that_the_catalog_is_away_and_come_back(tmp_path, chromium):
    """An old page is not taken for the present, and no person has to reload it after the outage."""
    with mortal_server() as server, staged(tmp_path, server.url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as stage:
        listener = Listener(stage.mill)
        link = listener.start()
        context = open_context(chromium)
        page, other = context.new_page(), context.new_page()
        page.goto(link)
        page.goto(listener.url + "/schedules/default.shop.nightly")
        expect(page.locator(".live")).to_have_text("live", timeout=patience(10_000))

        server.crash()
        expect(page.locator(".live")).to_have_text("the catalog is away; trying again", timeout=patience(30_000))
        answer = other.goto(listener.url + "/runs")
        assert answer.status == 503
        expect(other.get_by_role("heading", level=1)).to_be_visible()

        server.start()
        expect(page.locator(".live")).to_have_text("live", timeout=patience(30_000))
        expect(other.get_by_role("heading", level=1)).to_have_text("Runs", timeout=patience(30_000))
        stage.mill.schedules.suspend("shop.nightly")
        expect(page.get_by_role("heading", level=1)).to_contain_text("suspended", timeout=patience(30_000))
        context.close()
        listener.stop()
