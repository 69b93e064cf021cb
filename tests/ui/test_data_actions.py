"""Actions on data in a real browser: each test has a project of its own, so that none sees what another has changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.stage import Stage
from tests.ui.conftest import CHROMIUM, serving, signed_in
from tests.ui.data import lake
from tests.yardstick import patience

pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt-get install chromium"),
]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    """A project with data in each state, for one test."""
    with lake(tmp_path) as opened:
        yield opened


@pytest.fixture
def site(stage: Stage) -> Iterator[tuple[str, str]]:
    """The address of a server, and a link that signs in."""
    yield from serving(stage)


@pytest.fixture
def cookies(site, chromium):
    """The session of a browser."""
    return signed_in(site, chromium)


def press(page: Page, name: str) -> None:
    """Press the button of a preview, and agree in the dialog, which says the same as the preview."""
    preview = page.locator("#preview")
    says = preview.locator("p").first.inner_text()
    preview.get_by_role("button", name=name, exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text(says.replace("\n", " "))
    page.get_by_role("dialog").get_by_role("button", name=name, exact=True).click()


def expect_report(page: Page, words: str) -> None:
    """Expect that the page says that an action was done."""
    expect(page.locator(".said")).to_have_text(words, timeout=patience(10_000))


def test_partitions_are_dropped_by_a_form_after_a_look_at_the_numbers(visit, stage):
    """The form shows what goes; only then a button does it."""
    page = visit("/datasets/lines")

    page.get_by_label("Drop partitions").fill("carrier=AA")
    page.get_by_role("button", name="What would go?").click()
    expect(page.locator("#preview")).to_contain_text("This drops 1 partition of default.lines with 1 row in 1 file.")
    assert len(stage.mill.datasets.partitions("lines")) == 2
    press(page, "Drop 1 partition")

    expect_report(page, "1 partition dropped")
    assert [one.partition for one in stage.mill.datasets.partitions("lines")] == ["carrier=B<i>C"]


def test_a_partition_is_described_and_dropped(visit, stage):
    """Metadata are set by a form, and removed; then the partition goes."""
    page = visit("/datasets/days/day=2026-01-05")

    page.get_by_label("Name").fill("quality")
    page.get_by_label("Text, or nothing to remove it").fill("<b>checked</b>")
    page.get_by_role("button", name="Change metadata").click()
    press(page, "Describe")
    expect_report(page, "the metadata were changed")
    expect(page.get_by_role("main")).to_contain_text("quality <b>checked</b>", timeout=patience(10_000))
    page.get_by_role("link", name="Drop").click()
    press(page, "Drop 1 partition")

    expect_report(page, "day=2026-01-05 was dropped")
    expect(page.get_by_role("heading", level=1)).to_contain_text("dropped", timeout=patience(10_000))
    assert [one.partition for one in stage.mill.datasets.partitions("days")] == ["day=2026-01-01"]


def test_files_are_released_retried_and_processed_again(visit, stage):
    """Each way out of a state is a button beside the file, and for all files one above."""
    page = visit("/inboxes/raw")

    page.get_by_role("link", name="Retry b.csv").click()
    press(page, "Retry 1 file")
    expect_report(page, "1 file offered again")
    page.goto(page.url.partition("?")[0])
    page.get_by_role("link", name="Process again a.csv").click()
    press(page, "Process again 1 file")
    expect_report(page, "1 file will be processed again")
    page.goto(page.url.partition("?")[0])
    page.get_by_role("link", name="Release", exact=True).click()
    press(page, "Release 1 file")

    expect_report(page, "1 file released")
    assert "QUARANTINED" not in stage.mill.inboxes.show("raw").files
    assert stage.mill.inboxes.show("raw").files["NEW"] == 2
    page.goto(page.url.partition("?")[0])
    page.get_by_role("button", name="Look now").click()
    page.get_by_role("dialog").get_by_role("button", name="Look now").click()
    expect_report(page, "the folder was listed")


def test_a_file_is_ignored_and_taken_back(visit, stage):
    """A word of a person that holds, and is not lost: the file stays in the list, and a retry brings it back."""
    stage.sql("UPDATE inbox_file SET status = 'QUARANTINED' WHERE name = '<i>x.csv' RETURNING 1")
    page = visit("/inboxes/raw?state=QUARANTINED")

    page.get_by_role("link", name="Ignore <i>x.csv").click()
    press(page, "Ignore 1 file")
    expect_report(page, "1 file ignored")
    assert stage.mill.inboxes.show("raw").files["IGNORED"] == 1
    page.goto(page.url.partition("?")[0] + "?state=IGNORED")
    page.get_by_role("link", name="Retry <i>x.csv").click()
    press(page, "Retry 1 file")

    expect_report(page, "1 file offered again")
    assert "IGNORED" not in stage.mill.inboxes.show("raw").files


def test_a_snapshot_is_rolled_back(visit, stage):
    """The new version has the rows of the old one."""
    newest, _, oldest = (one.version for one in stage.mill.snapshots.versions("planes"))
    page = visit("/datasets/planes")

    page.get_by_role("link", name=f"Roll back to {oldest}").click()
    expect(page.locator("#preview")).to_contain_text(f"1 row, 2 rows fewer than version {newest} has.")
    press(page, f"Roll back to {oldest}")

    expect_report(page, f"version {oldest} is current again")
    current = stage.mill.snapshots.versions("planes")[0]
    assert (current.current, current.rows, current.rolled_back_to) == (True, 1, oldest)


def test_a_consumer_gets_partitions_again_and_is_reset(visit, stage):
    """Discarded partitions come again, and a reset says how many partitions come again."""
    page = visit("/consumers/flights/default.shop.sum_up")

    page.get_by_role("link", name="Requeue day=2026-01-01 hour=5").click()
    press(page, "Requeue 1 partition")
    expect_report(page, "1 partition offered again")
    page.goto(page.url.partition("?")[0])
    page.get_by_role("link", name="Requeue", exact=True).click()
    press(page, "Requeue 1 partition")
    expect_report(page, "1 partition offered again")
    assert stage.mill.consumers.show("flights", "sum_up").discarded == 0
    page.goto(page.url.partition("?")[0])
    page.get_by_label("Reset to").fill("now")
    page.get_by_role("button", name="What would come again?").click()
    press(page, "Reset")

    expect_report(page, "the consumer was reset to now")
    assert stage.mill.consumers.show("flights", "sum_up").waiting == 0


def test_a_watermark_is_advanced_and_rewound_and_windows_are_computed_again(visit, stage):
    """The strip moves with W."""
    page = visit("/watermarks/flights")
    expect(page.get_by_role("main")).to_contain_text("default.shop.seed: 1 failing window: a row is wrong")

    page.get_by_label("Advance to").fill("2026-01-03 00:00")
    page.get_by_role("button", name="What would be late?").click()
    press(page, "Advance")
    expect_report(page, "the watermark is 2026-01-03 00:00")
    assert stage.mill.watermarks.show("flights").watermark == "2026-01-03 00:00:00"
    page.goto(page.url.partition("?")[0])
    page.get_by_role("link", name="Compute again").first.click()
    press(page, "Compute again")
    expect_report(page, "the windows will be computed again")
    assert stage.mill.watermarks.show("flights").programs[0].computed is None
    page.goto(page.url.partition("?")[0])
    page.get_by_label("Rewind to").fill("2026-01-02 06:00")
    page.get_by_role("button", name="What would open again?").click()
    press(page, "Rewind")

    expect_report(page, "the watermark is 2026-01-02 06:00")
    assert stage.mill.watermarks.show("flights").watermark == "2026-01-02 06:00:00"


def test_a_page_follows_a_commit_with_its_plot(visit, stage):
    """A page that stays open shows the new partition, and draws its plot again."""
    page = visit("/datasets/empty?within=2026-02")
    expect(page.locator(".live")).to_have_text("live", timeout=patience(10_000))

    stage.publish("empty", "day=2026-02-03")

    expect(page.get_by_role("link", name=re.compile("^2026-02-03: there"))).to_be_visible(timeout=patience(10_000))


def test_the_rows_of_a_page_are_sorted_by_the_head_of_a_column(visit, stage):
    """Sizes are sorted as numbers, by mouse and keyboard, and stay in order after a commit."""
    page = visit("/datasets")
    table = page.get_by_role("region", name="Data sets")

    def names() -> list[str]:
        return table.locator("tbody tr td:first-child").all_inner_texts()

    by_name = names()
    head = table.get_by_role("columnheader", name="Partitions")
    page.get_by_role("button", name="Partitions").click()
    expect(head).to_have_attribute("aria-sort", "ascending")
    numbers = table.locator("tbody tr td:nth-child(4)").all_inner_texts()
    known = [int(one.replace(",", "")) for one in numbers if one != "–"]
    assert known == sorted(known)
    assert len(set(known)) > 2
    assert numbers[len(known) :] == ["–"] * (len(numbers) - len(known))

    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    assert names()[0] == "flights"
    number = table.locator("tbody tr", has_text="lines").locator("td").nth(3)
    before = int(number.inner_text())
    stage.publish("lines", "carrier=CC")
    expect(number).to_have_text(f"{before + 1}", timeout=patience(10_000))
    expect(head).to_have_attribute("aria-sort", "descending")
    assert names()[0] == "flights"
    page.get_by_role("button", name="Data set").click()
    assert names() == by_name
