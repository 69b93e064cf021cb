"""Pages of data in a real browser: clean in each scheme and width, plots that can be zoomed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tests.stage import Stage
from tests.ui.conftest import CHROMIUM
from tests.ui.data import lake
from tests.ui.every_page import OF_TODAY
from tests.yardstick import patience

pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt-get install chromium"),
]
PARTITION = "/datasets/flights/day=2026-01-03%20hour=3"
PAGES = [
    "/datasets/flights",
    "/datasets/flights?within=all",
    "/datasets/flights?within=2026",
    "/datasets/flights?within=2026-01",
    "/datasets/flights?within=2026-01-02&ask=drop&where=day%3D2026-01-02",
    "/datasets/flights?as_of=3",
    "/datasets/real?rows=20",
    "/datasets/days",
    "/datasets/lines",
    "/datasets/empty",
    f"{PARTITION}?ask=drop",
    "/lineage",
    "/lineage?thing=flights&direction=downstream",
    "/lineage?thing=default.real/day%3D2026-01-01",
    "/lineage?thing=default.raw/a.csv&depth=1",
    "/datasets/planes",
    "/datasets/planes?ask=rollback&version=20",
    "/datasets/planes?old=18&new=22",
    "/inboxes/raw",
    "/inboxes/raw?state=QUARANTINED&ask=ignore",
    "/inboxes/raw?state=ERROR&hours=168&ask=retry",
    "/consumers/flights/sum_up?ask=reset&to=beginning",
    "/consumers/flights/sum_up?ask=requeue",
    "/watermarks/flights?ask=advance&to=2026-01-03+00:00",
]


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A project with data in each state, which these tests only look at."""
    with lake(tmp_path_factory.mktemp("lake")) as opened:
        yield opened


@pytest.mark.parametrize(("scheme", "width"), [OF_TODAY])
def test_every_page_of_data_is_clean(visit, site, scheme, width):
    """Axe finds text without contrast and parts without names; a narrow page has no part that is too wide."""
    page = visit("/", color_scheme=scheme, viewport={"width": width, "height": 900})
    for path in PAGES:
        page.goto(site[0] + path)
        found = Axe().run(page).response["violations"]
        assert [(one["id"], one["nodes"][0]["html"], one["nodes"][0]["failureSummary"]) for one in found] == [], path
        too_wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
        assert too_wide <= 0, (path, too_wide)


def test_the_answer_is_in_the_first_screen(visit):
    """An engineer on duty has ten seconds, and does not scroll."""
    firsts = {
        "/datasets/flights": ".grid",
        "/inboxes/raw": "figure.plot",
        "/watermarks/flights": ".slots",
        "/datasets/planes": ".versions",
        "/consumers/flights/sum_up": "dl.facts",
    }
    for path, part in firsts.items():
        page = visit(path, viewport={"width": 1360, "height": 900})
        box = page.locator(part).first.bounding_box()
        assert box is not None
        assert box["y"] + min(box["height"], 200) <= 900, path


def test_a_plot_is_drawn_and_can_be_zoomed(visit):
    """A drag over some hours shows these hours only; a double click shows all again."""
    page = visit("/inboxes/raw", viewport={"width": 1360, "height": 900})
    expect(page.locator(".plot.drawn canvas")).to_be_visible(timeout=patience(10_000))
    assert page.locator(".plot .still").is_hidden()
    labels = page.locator(".plot .u-legend .u-label").all_inner_texts()
    assert labels[0] == "hour"
    assert {"success", "error", "quarantined"} <= set(labels)

    box = page.locator(".u-over").bounding_box()
    # The last hour, or one before it if the project was made in an earlier hour than the page.
    for back in range(8, round(box["width"] / 6), 8):
        page.mouse.move(box["x"] + box["width"] - back, box["y"] + 40)
        if re.search(r"success\s*1", page.locator(".plot .u-legend").inner_text()):
            break
    expect(page.locator(".plot .u-legend")).to_contain_text(re.compile(r"success\s*1"))
    page.mouse.move(box["x"] + 20, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 200, box["y"] + 40)
    expect(page.locator(".u-select")).to_be_visible()
    page.mouse.up()


def test_plots_are_drawings_and_tables_without_a_script(visit):
    """A locked-down browser still shows the hours."""
    page = visit("/inboxes/raw", java_script_enabled=False)

    expect(page.locator(".plot .still")).to_be_visible()
    expect(page.locator(".plot details")).to_contain_text("quarantined")


def test_a_calendar_is_walked_by_keyboard_from_years_to_a_partition(visit):
    """Each level leads to the next, without a mouse."""
    page = visit("/datasets/flights?within=all")

    for name, period in (
        ("2026", "2026$"),
        (re.compile("^Jan"), "2026-01$"),
        (re.compile("^2026-01-03:"), "2026-01-03$"),
    ):
        page.get_by_role("main").get_by_role("link", name=name).first.focus()
        page.keyboard.press("Enter")
        page.wait_for_url(re.compile(f"within={period}"))
    page.get_by_role("link", name=re.compile("^2026-01-03 03:00: rewritten")).focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("/datasets/default.flights/day"))
    expect(page.get_by_role("heading", level=1)).to_have_text("day=2026-01-03 hour=3")


def test_the_files_of_another_time_are_shown_by_a_form(visit):
    """Time travel is a link that can be sent."""
    page = visit("/datasets/flights")

    page.get_by_label("As of a commit or time").fill("3")
    page.get_by_role("button", name="See the files of then").click()

    page.wait_for_url(re.compile("as_of=3"))
    expect(page.get_by_role("main")).to_contain_text("Files as of 3")


def test_compaction_is_offered_with_its_numbers(visit):
    """Compaction starts Spark in the server: the page says so before."""
    page = visit("/datasets/flights?ask=compact")

    page.locator("#preview").get_by_role("button", name="Compact", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("The server starts Spark for it.")
    page.get_by_role("button", name="Leave it").click()
    expect(page.get_by_role("dialog")).to_be_hidden()


def test_two_versions_of_a_snapshot_are_compared(visit, stage):
    """From the time line to the difference by the keyboard, and to any two versions by the form."""
    newest, middle, oldest = (one.version for one in stage.mill.snapshots.versions("planes")[:3])
    page = visit("/datasets/planes")

    page.locator(f"svg.versions a[aria-label^='version {oldest}:']").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#difference")).to_contain_text(f"Version {newest} has")
    page.get_by_label("To version").select_option(str(middle))
    page.get_by_role("button", name="Compare", exact=True).click()

    page.wait_for_url(re.compile(f"old={oldest}&new={middle}"))
    expect(page.locator("#difference")).to_contain_text(f"Version {middle} has")
