"""The pages that start a run and plan a backfill: what the button will do, its command, and that it does so."""

from __future__ import annotations

import html
import json
import re

import pytest

from tests.server.pages.conftest import Client

PARTITIONS = "program=shop.sift&partitions=orders:day%3D2026-01-01+orders:day%3D2026-01-02&quiet=yes&args="


def press(browser: Client, page: str) -> tuple[str, dict]:
    """Press the button of the preview of a page; return the command beside it, and the answer."""
    text = browser.get(page).text
    preview = text.partition('id="preview"')[2].partition("</section>")[0]
    (path,), (body,) = re.findall(r'data-path="([^"]*)"', preview), re.findall(r'data-body="([^"]*)"', preview)
    (command,) = re.findall(r'data-command="([^"]*)"', preview)
    csrf = re.findall(r'name="csrf" content="([^"]*)"', text)[0]
    headers = {"x-csrf-token": csrf, "accept": "application/json", "origin": str(browser.base_url).rstrip("/")}
    answer = browser.post(path, json=json.loads(html.unescape(body)), headers=headers)
    assert answer.status_code == 200, answer.text
    return html.unescape(command), answer.json()


def test_a_run_is_started_with_chosen_input_from_its_page(stage, browser, read):
    """The desk repeats two days, without a terminal, and sees before what the run will work on."""
    page = f"/start-run?ask=start&{PARTITIONS}"
    words = read(page)
    command, made = press(browser, page)
    run = stage.mill.runs.show(made["run_id"])

    assert "It works on 2 partitions of orders, and takes nothing else. Quiet: no consumer gets" in words
    assert command == (
        "run start shop.sift --partitions orders:day=2026-01-01 --partitions orders:day=2026-01-02 --quiet"
    )
    assert {"chosen", "quiet"} <= set(run.triggered_by)
    assert [one.item for one in run.inputs] == ["day=2026-01-01", "day=2026-01-02"]
    assert "Start a run" in read("/runs")


def test_the_page_of_a_run_leads_to_another_run_with_its_arguments(stage, browser, read):
    """A text that looks like a number stays a text."""
    run_id = stage.mill.runs.start("shop.broken").run_id
    stage.sql(f"""UPDATE run SET arguments = '{{"when": "7"}}' WHERE run_id = '{run_id}' RETURNING 1""")
    (link,) = re.findall(r'href="(/start-run[^"]*)"', browser.get(f"/runs/{run_id}").text)

    assert """run start default.shop.broken --arg 'when="7"'""" in read(f"{html.unescape(link)}&ask=start")


def test_a_backfill_starts_after_its_plan_was_shown(stage, browser, read):
    """The backfill has the items that the plan has counted."""
    choice = "by=partitions&program=shop.sift&where=day%3E%3D2026-01-02&select=all&concurrency=2&priority=0"
    words = read(f"/plan-backfill?ask=plan&{choice}")
    command, made = press(browser, f"/plan-backfill?ask=plan&{choice}")
    shown = stage.mill.backfills.show(made["backfill_id"])
    page = browser.get(f"/backfills/{made['backfill_id']}").text

    assert "This makes 2 runs of default.shop.sift over" in words
    assert "2 at a time" in words
    assert "day=2026-01-02" in words
    assert command.startswith("backfill start shop.sift --by partitions --where 'day>=2026-01-02' --select all")
    assert (shown.items, shown.concurrency, shown.priority, shown.quiet) == (2, 2, 0, False)
    assert 'href="/plan-backfill?by=partitions&amp;program=default.shop.sift"' in page


@pytest.mark.parametrize(
    ("page", "words"),
    [
        ("/start-run?ask=start&program=shop.sift&partitions=day", "it has no data set before a colon"),
        ("/start-run?ask=start&program=shop.sift&args='a", "close the quotes"),
        ("/plan-backfill?ask=plan&program=shop.sift&concurrency=x", "write a whole number"),
        ("/plan-backfill?ask=plan&program=shop.none", "no program named 'default.shop.none'"),
        ("/plan-backfill?ask=plan&by=times&program=shop.broken&schedule=shop.nightly", "This cannot be done"),
        (
            "/plan-backfill?ask=plan&by=runs&program=shop.sift&since=2020-01-01&until=2020-01-02",
            "No item needs a run. The choice names nothing",
        ),
    ],
)
def test_what_cannot_be_done_has_its_reason_and_no_button(browser, read, page, words):
    """A form is filled in by hand."""
    assert words in read(page)
    assert 'data-path="/v1' not in browser.get(page).text.partition('id="preview"')[2].partition("</section>")[0]
