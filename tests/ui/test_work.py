"""Pages of work in a real browser: each action clicked, its answer seen in place, and the page follows."""

from __future__ import annotations

import re
import time
from contextlib import suppress
from datetime import date

import pytest
from playwright.sync_api import Page, expect

from tests.stage import Stage
from tests.ui.conftest import CHROMIUM
from tests.yardstick import patience
from tidemill import TidemillError
from tidemill.mill.jobs import JobView

pytestmark = [
    pytest.mark.browser,
    pytest.mark.long,
    pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium: apt-get install chromium"),
]


def click(page: Page, label: str, asked: str) -> None:
    """Click an action, and say yes to its question, which has these words."""
    page.locator("main").get_by_role("button", name=re.compile(f"^{label}")).first.click()
    dialog = page.locator("#ask")
    expect(dialog).to_contain_text(asked)
    dialog.get_by_role("button", name=re.compile(f"^{label}")).click()


def waiting_job(stage: Stage, day: int) -> JobView:
    """Return the job of a schedule, with a new partition: the tests come in any order, and some end the job."""
    stage.commit("orders", [{"n": 1, "day": date(2026, 2, day)}])
    stage.schedule()
    (job,) = stage.mill.jobs.list(schedule="shop.on_orders")
    return job


def expect_answer(page: Page, words: str) -> None:
    """Wait for the answer of an action, which stays while the page follows."""
    expect(page.locator(".said")).to_have_text(words, timeout=patience(10_000))


def test_a_schedule_starts_a_run_and_is_deleted(visit, stage):
    """A deleted thing has no page: its list is the next place."""
    stage.mill.schedules.create("shop.extra", "shop.sift", trigger={"type": "cron", "expression": "0 3 * * *"})
    page = visit("/schedules/default.shop.extra")

    click(page, "Start now", "This starts a run of default.shop.sift")
    expect_answer(page, "a run is pending")
    click(page, "Delete", "drops no job")
    page.wait_for_url(re.compile("/schedules$"))
    expect(page.locator("main")).not_to_contain_text("shop.extra")


def test_a_page_is_not_asked_for_while_its_thing_is_deleted(visit, stage):
    """The commit of the deletion is heard before its answer is: the page must not be asked for in between."""
    stage.mill.schedules.create("shop.late", "shop.sift", trigger={"type": "cron", "expression": "0 3 * * *"})
    page = visit("/schedules/default.shop.late")

    def answer_late(route):
        answer = route.fetch()
        time.sleep(2)
        route.fulfill(response=answer)

    page.route("**/v1/schedules/*", answer_late)
    click(page, "Delete", "drops no job")
    page.wait_for_url(re.compile("/schedules$"))


def test_a_job_is_dropped_and_another_started(visit, stage):
    """Work that waits is a person's to end."""
    job = waiting_job(stage, 1)
    page = visit(f"/jobs/{job.job_id}")

    click(page, "Drop", "What fed it starts no run")
    expect_answer(page, "the job is dropped")
    expect(page.get_by_role("heading", level=1)).to_contain_text("dropped", timeout=patience(10_000))

    job = waiting_job(stage, 2)
    page.goto(page.url.rpartition("/")[0] + f"/{job.job_id}")
    click(page, "Start now", "whatever the job waits for")
    expect_answer(page, "the job is a run")
    expect(page.get_by_role("link", name="Run", exact=True)).to_be_visible(timeout=patience(10_000))


def test_a_failed_run_is_retried_and_a_pending_one_killed(visit, stage):
    """The two acts of a night."""
    failed = next(one for one in stage.mill.runs.list(program="shop.broken") if one.state == "FAILED")
    page = visit(f"/runs/{failed.run_id}")

    click(page, "Retry", "with the same arguments")
    expect_answer(page, "a new run is pending")
    pending = next(one for one in stage.mill.runs.list(program="shop.broken") if one.state == "PENDING")
    page.goto(page.url.rpartition("/")[0] + f"/{pending.run_id}")
    expect(page.locator("main")).to_contain_text("waits")
    click(page, "Kill", "stays invisible")
    expect_answer(page, "the run is asked to end")
    expect(page.get_by_role("heading", level=1)).to_contain_text("killed", timeout=patience(10_000))


def test_the_log_of_a_run_follows_and_is_searched(visit, stage, tmp_path):
    """A person sees the next line without a reload, and finds one among many."""
    run = stage.mill.runs.list(program="shop.load", limit=1)[0]
    folder = tmp_path / "1"
    folder.mkdir()
    (folder / "stdout").write_text("first\nsecond <b>line</b>\n", encoding="utf-8")
    was = f"SELECT state FROM run WHERE run_id = '{run.run_id}'"
    ((state,),) = stage.sql(was)
    stage.sql(
        f"UPDATE run SET log_location = '{folder}', state = 'RUNNING', ended_at = NULL, exit_reason = NULL "
        f"WHERE run_id = '{run.run_id}' RETURNING 1"
    )
    page = visit(f"/runs/{run.run_id}")
    log = page.locator("#log")
    expect(log).to_contain_text("second <b>line</b>")
    with (folder / "stdout").open("a", encoding="utf-8") as file:
        file.write("third: an error\n")
    expect(log.locator(".bad")).to_have_text("third: an error\n", timeout=patience(10_000))

    page.get_by_label("Find in the log").fill("second")
    expect(page.locator("#log > span:visible")).to_have_count(1)
    expect(page.locator("#log-found")).to_have_text("1 lines")
    stage.sql(f"UPDATE run SET state = '{state}', ended_at = created_at WHERE run_id = '{run.run_id}' RETURNING 1")


def test_flow_narrows_by_a_click_and_leads_to_the_page(visit):
    """From the whole to one thing, and to its page."""
    page = visit("/flow")

    page.locator("svg.flow a", has=page.get_by_text("orders", exact=True)).first.click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Flow around orders")
    expect(page.locator("svg.flow .chosen")).to_have_count(1)
    page.get_by_role("link", name="Open orders").click()
    page.wait_for_url(re.compile("/datasets/default.orders$"))


def test_a_token_is_made_shown_once_and_revoked(visit, stage):
    """The secret is on the page until the page is left, and nowhere else."""
    page = visit("/tokens")
    page.get_by_label("Name", exact=True).fill("robot")
    page.get_by_label(re.compile("^Role")).select_option("operator")
    page.get_by_role("button", name="Create a token").click()

    expect_answer(page, "the token is made")
    secret = page.locator("#secret code").text_content()
    assert secret.startswith("tm_")
    assert next(one for one in stage.mill.tokens.list() if one.name == "robot").role == "operator"
    page.reload()
    assert secret not in page.content()
    expect(page.locator("#secret")).to_be_hidden()
    page.locator("tr", has_text="robot").get_by_role("button", name="Revoke").click()
    page.locator("#ask").get_by_role("button", name="Revoke").click()
    expect_answer(page, "robot is revoked")
    expect(page.locator("tr", has_text="robot")).to_contain_text("revoked", timeout=patience(10_000))


def test_a_refused_form_says_why_in_place(visit):
    """A name that is taken, a duration that is none: the words of the error are the answer."""
    page = visit("/tokens", refused=True)
    page.get_by_label("Name", exact=True).fill("robot-2")
    page.get_by_label("Expires after").fill("soon")
    with page.expect_response(re.compile("/v1/tokens")):
        page.get_by_role("button", name="Create a token").click()

    expect(page.locator(".said.bad")).to_contain_text("soon", timeout=patience(10_000))


def test_a_refused_action_says_the_next_step(visit, stage):
    """The step of a class of errors stands beside its message in the answer; the page showed the message alone."""
    job = waiting_job(stage, 3)
    page = visit(f"/jobs/{job.job_id}", refused=True)
    page.get_by_role("button", name="Start now").click()
    stage.mill.jobs.drop(job.job_id)
    page.locator("#ask").get_by_role("button", name="Start now").click()

    expect(page.locator(".said.bad")).to_contain_text("has ended already", timeout=patience(10_000))
    expect(page.locator(".said.bad")).to_contain_text("look at what the job became")


def test_an_app_is_rolled_back(visit, stage):
    """The previous version is one click away, on the night of a bad deployment."""
    path = stage.mill.project.config.app
    path.write_text(path.read_text(encoding="utf-8").replace("30 2 * * *", "40 2 * * *"), encoding="utf-8")
    stage.mill.deploy()
    page = visit("/apps/default.shop")

    click(page, "Roll back to version 1", "as a new version")
    expect_answer(page, "version 1 is deployed again")
    expect(page.get_by_role("heading", level=1)).to_contain_text("version 3", timeout=patience(10_000))


def test_a_rule_is_silenced_and_speaks_again(visit, stage):
    """Known trouble must not ring all night."""
    stage.mill.alerts.create("noisy", {"type": "quarantined", "inbox": "default.raw"})
    page = visit("/alert-rules")

    click(page, "Silence for 1 h", "for an hour")
    expect_answer(page, "the rule is silent")
    click(page, "End the silence", "What is open is sent now")
    expect_answer(page, "the silence has ended")
    # The questions of a page are those of its last look: the page follows the change.
    expect(page.get_by_role("button", name="Silence for 1 h")).to_be_visible(timeout=patience(10_000))
    click(page, "Delete", "resolves 0 alerts and ends 0 silences")
    expect_answer(page, "the rule is deleted")


def test_a_rule_is_made_changed_and_deleted_by_forms(visit, stage):
    """A person at 3 in the morning knows no JSON: the page asks in words, and says what the rule will do."""
    page = visit("/alert-rules")
    page.get_by_role("link", name="runs fail", exact=True).click()
    page.get_by_label("Name of the rule").fill("night")
    page.get_by_label("Program, or nothing for all").fill("shop.broken")
    page.get_by_label("Runs one after the other").fill("2")
    page.get_by_label("Notify (optional)").fill("https://ops.example.com/hook")
    page.get_by_role("button", name="What would it do?").click()
    expect(page.locator("#preview")).to_contain_text(
        "This opens an alert when the last 2 runs of default.shop.broken failed. It notifies WebHook ops.example.com."
    )
    click(page, "Make the rule", "the last 2 runs")
    expect_answer(page, "night is watched")
    made = next(one for one in stage.mill.alerts.rules() if one.name == "default.night")
    assert (made.rule["times"], made.to) == (2, ("WebHook ops.example.com",))

    page.goto(page.url.partition("?")[0])
    page.get_by_role("link", name="Change default.night").click()
    expect(page.get_by_label("Runs one after the other")).to_have_value("2")
    page.get_by_label("Runs one after the other").fill("3")
    page.get_by_role("button", name="What would it do?").click()
    expect(page.locator("#preview")).to_contain_text("Its targets stay: WebHook ops.example.com.")
    click(page, "Change the rule", "the last 3 runs")
    page.wait_for_url(re.compile("/alert-rules$"))
    expect(page.locator("tr", has_text="night")).to_contain_text("the last 3 runs of shop.broken failed")

    page.locator("tr", has_text="night").get_by_role("button", name="Delete").click()
    page.locator("#ask").get_by_role("button", name="Delete").click()
    expect_answer(page, "the rule is deleted")


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("new=late&ask=create&name=x&dataset=", "dataset"),
        ("new=run_failed&ask=create&name=x&times=many", "times must be a whole number"),
        ("new=disk_low&ask=create&name=x&free=much", "much"),
        ("new=run_failed&ask=create&name=x&to=ops", "'ops' is no target of this form"),
    ],
)
def test_a_rule_that_cannot_be_meant_is_refused_in_words(visit, query, says):
    """The form says what is wrong, before anything is made."""
    page = visit(f"/alert-rules?{query}")

    expect(page.locator("#preview")).to_contain_text("This cannot be done")
    expect(page.locator("#preview")).to_contain_text(says)
    expect(page.locator("#preview button:not([data-copy])")).to_have_count(0)


def test_a_transaction_of_an_outside_writer_shows_its_owner_and_is_aborted(visit, stage):
    """A writer that hangs holds up others: the page says whose it is, since when, and for how long."""
    begun = stage.mill.transactions.begin(["late"], owner="nightly-flink", lease="30m")
    page = visit("/transactions")
    row = page.get_by_role("region", name=re.compile("Open")).locator("tr", has_text="nightly-flink")
    expect(row).to_contain_text("nightly-flink, outside")
    expect(row).to_contain_text("late")

    page.goto(page.url.rpartition("/")[0] + f"/transactions/{begun.write_pointer}")
    expect(page.locator("p.sub")).to_contain_text(
        re.compile("by nightly-flink, outside; its lease ends in (29|30) min")
    )
    click(page, "Abort", "of nightly-flink, outside")
    expect_answer(page, "the transaction is aborted")


def test_a_transaction_is_aborted(visit, stage):
    """A writer outside that hangs holds up others."""
    with suppress(TidemillError), stage.transaction("late"):
        opened = stage.mill.transactions.list(open_only=True)[0]
        page = visit(f"/transactions/{opened.write_pointer}")
        click(page, "Abort", "What it has written stays invisible")
        expect_answer(page, "the transaction is aborted")
        expect(page.get_by_role("heading", level=1)).to_contain_text("invalid", timeout=patience(10_000))


def test_filters_are_choices_and_the_url_says_what_is_shown(visit):
    """A link to a filtered list can be sent to a colleague."""
    page = visit("/schedules")

    page.get_by_label("State").select_option("suspended")
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url(re.compile("status=suspended"))
    expect(page.locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="Show all").click()
    expect(page.locator("tbody tr")).to_have_count(3)


def test_help_names_the_keys(visit):
    """A person on duty reads no manual at 3 in the morning."""
    page = visit("/")

    page.keyboard.press("?")
    expect(page.get_by_role("dialog")).to_contain_text("schedules")
    page.keyboard.press("Escape")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="To the content")).to_be_focused()


@pytest.mark.parametrize("path", ["/", "/flow", "/schedules/default.shop.on_raw", "/apps/default.shop", "/audit"])
def test_pages_of_work_can_be_read_without_javascript(visit, path):
    """A locked-down browser still shows all facts, and no control that would do nothing."""
    page = visit(path, java_script_enabled=False)

    expect(page.get_by_role("heading", level=1)).to_be_visible()
    expect(page.locator("main")).to_contain_text(re.compile("ago|nothing|shop"))
    assert page.locator(".needs-script:visible").count() == 0
