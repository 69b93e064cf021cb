"""Pages of data in a real browser: clean in each scheme and width, every action clicked, plots that can be zoomed."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from tests.server.lake import APP, fill_lake
from tests.stage import Stage, staged
from tests.ui.conftest import CHROMIUM
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
    """A project with data in each state: files too, a partition that was given up, and a window program."""
    folder = tmp_path_factory.mktemp("lake")
    with staged(folder, f"sqlite:///{folder / 'c.db'}", APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        fill_lake(opened)
        opened.sql("UPDATE inbox_file SET status = 'QUARANTINED', run_id = NULL WHERE name LIKE '%bad%' RETURNING 1")
        opened.sql("UPDATE inbox_file SET status = 'SUCCESS', row_count = 7 WHERE name = 'a.csv' RETURNING 1")
        give_up(opened)
        yield opened


def give_up(stage: Stage) -> None:
    """Give up two partitions, and let windows be computed, stale and failing."""
    (consumer,) = stage.sql("SELECT consumer_id FROM consumer WHERE name = 'default.shop.sum_up'")
    stage.mill.consumers.peek("flights", "sum_up")
    for number in (5, 6):
        stage.sql(
            "INSERT INTO consumer_work "
            "(consumer_id, write_pointer, partition_key, commit_seq, state, failures, run_id, error) "
            f"SELECT '{consumer[0]}', write_pointer, partition_key, commit_seq, 'discarded', 3, 'run_1', '<b>no</b>' "
            f"FROM partition_change WHERE partition_key LIKE '2026-01-01!a{number}' AND true "
            "ON CONFLICT (consumer_id, write_pointer, partition_key) DO UPDATE SET state = 'discarded', failures = 3, "
            "run_id = 'run_1', error = excluded.error RETURNING 1"
        )
    (program,) = stage.sql("SELECT program_id FROM program WHERE name = 'seed'")
    (dataset,) = stage.sql("SELECT dataset_id FROM dataset WHERE name = 'flights'")
    hour, begin = 3_600_000_000, 1_767_225_600_000_000  # of 1 January 2026
    start, definition = begin + 4 * hour, '{"windows": [1, 2, 3]}'
    stage.sql(
        "INSERT INTO window_program (program_id, dataset_id, name, definition, late, computed, seen, revision) "
        f"VALUES ('{program[0]}', '{dataset[0]}', 'default.shop.seed', '{definition}', 'recompute', {start}, 1, 1) "
        "RETURNING 1"
    )
    for number in range(4):
        start = begin + number * hour
        stage.sql(
            "INSERT INTO window_result (program_id, window_end, window_start, write_pointer, stale) "
            f"VALUES ('{program[0]}', {start + hour}, {start}, 1, {number % 2}) RETURNING 1"
        )
    stage.sql(
        "INSERT INTO window_failure (program_id, window_end, window_start, reason, partitions, since, tried_at) "
        f"VALUES ('{program[0]}', {begin + 5 * hour}, {begin + 4 * hour}, 'a row is wrong', '[]', 1, 2) RETURNING 1"
    )


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1360, 390])
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
    page.mouse.move(box["x"] + box["width"] - 8, box["y"] + 40)
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
