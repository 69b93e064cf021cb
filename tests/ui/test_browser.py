"""Pages in a real browser: every page light and dark, wide and narrow; keys, actions, and a server that restarts."""

from __future__ import annotations

import re
from dataclasses import replace
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.ui.conftest import CHROMIUM, open_context
from tests.ui.every_page import check_every_page
from tests.yardstick import patience
from tidemill.mill.mill import Mill
from tidemill.server.listen import Listener

pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt-get install chromium"),
]


def test_every_page_is_clean_in_each_scheme_and_width(visit):
    """A dark, narrow page is seldom looked at by hand: axe finds text without contrast and parts without names."""
    assert len(check_every_page(visit)) > 20


def test_an_action_asks_says_what_it_did_and_the_page_follows(visit, stage):
    """A person suspends a schedule and sees it suspended, without a reload."""
    page = visit("/schedules/default.shop.on_orders")

    page.get_by_role("button", name=re.compile("Suspend")).click()
    expect(page.get_by_role("dialog")).to_contain_text("starts no run until it is resumed")
    page.get_by_role("button", name="Leave it").click()
    assert stage.mill.schedules.show("shop.on_orders").status == "SCHEDULED"
    page.get_by_role("button", name=re.compile("Suspend")).click()
    page.get_by_role("dialog").get_by_role("button", name=re.compile("Suspend")).click()

    expect(page.get_by_role("heading", level=1)).to_contain_text("suspended", timeout=patience(10_000))
    assert stage.mill.schedules.show("shop.on_orders").status == "SUSPENDED"
    stage.mill.schedules.resume("shop.on_orders")
    expect(page.get_by_role("heading", level=1)).not_to_contain_text("suspended", timeout=patience(10_000))


def test_keys_lead_to_pages_and_to_the_search(visit):
    """The hands of an engineer on duty stay on the keyboard."""
    page = visit("/")

    page.keyboard.press("g")
    page.keyboard.press("r")
    page.wait_for_url(re.compile("/runs$"))
    page.keyboard.press("/")
    page.keyboard.type("orders")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/search"))
    expect(page.get_by_role("heading", level=1)).to_contain_text("orders")


def test_a_page_can_be_read_without_javascript(visit):
    """A locked-down browser still shows what is wrong."""
    page = visit("/", java_script_enabled=False)

    expect(page.get_by_role("main")).to_contain_text("in quarantine")


def test_a_page_left_open_says_that_the_server_is_away_and_comes_back(stage, chromium):
    """A person must not look at an old page and take it for the present."""
    listener = Listener(stage.mill)
    link, port = listener.start(), urlsplit(listener.url).port
    context = open_context(chromium)
    page = context.new_page()
    page.goto(link)
    expect(page.locator(".live")).to_have_text("live", timeout=patience(10_000))

    listener.stop()
    expect(page.locator(".live")).to_contain_text("away", timeout=patience(10_000))
    stage.mill.topics.publish("own", {"n": 1})
    settings = stage.mill.project.config
    same_port = Mill(replace(stage.mill.project, config=replace(settings, server=replace(settings.server, port=port))))
    again = Listener(same_port)
    again.start()
    expect(page.locator(".live")).to_have_text("live", timeout=patience(20_000))
    again.stop()
    context.close()


@pytest.mark.parametrize("scripts", [True, False])
def test_a_person_away_from_the_machine_signs_in_and_out(site, stage, chromium, scripts):
    """A locked-down browser signs in too: the form needs no script."""
    name = f"person-{scripts}"
    secret = stage.mill.tokens.create(name, role="viewer").secret
    context = open_context(chromium, java_script_enabled=scripts)
    page = context.new_page()
    page.goto(f"{site[0]}/runs?program=shop.broken")
    assert urlsplit(page.url).path == "/login"
    page.get_by_label("Token").fill("tm_wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_contain_text("not known")
    page.get_by_label("Token").fill(secret)
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"/runs\?program=shop.broken$"))
    expect(page.get_by_role("navigation")).to_contain_text(name)
    expect(page.get_by_role("navigation")).not_to_contain_text("Tokens")

    page.get_by_role("button", name="Sign out").click()

    page.wait_for_url(re.compile("/login$"))
    page.goto(f"{site[0]}/runs")
    assert urlsplit(page.url).path == "/login"
    context.close()


def test_the_form_of_sign_in_is_clean_in_each_scheme_and_width(site, chromium):
    """The first page that a person sees has to be readable for each of them."""
    for scheme in ("light", "dark"):
        for width in (1360, 400):
            context = open_context(chromium, color_scheme=scheme, viewport={"width": width, "height": 900})
            page = context.new_page()
            wrong: list[str] = []
            page.on("console", lambda one, wrong=wrong: wrong.append(one.text))
            page.goto(f"{site[0]}/login")
            found = Axe().run(page).response["violations"]
            too_wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
            context.close()

            assert [(one["id"], one["nodes"][0]["html"]) for one in found] == [], (scheme, width)
            assert (too_wide <= 0, wrong) == (True, [])
