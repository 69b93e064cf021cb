"""The overview: what needs a person, and the state of each feed."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.server.busy import APP, make_busy
from tests.stage import Stage, staged
from tidemill.mill.access import Access, Role


@pytest.fixture
def stage(catalog_url, tmp_path):
    """Make a busy project."""
    with staged(tmp_path, catalog_url, APP) as opened:
        yield make_busy(opened)


def test_the_overview_names_failures_quarantine_feeds_and_waiting_jobs(stage):
    """Each need has its evidence, and the command of the next step."""
    found = stage.mill.overview()

    assert [(need.kind, need.thing) for need in found.needs] == [
        ("failed", "default.shop.broken"),
        ("quarantine", "default.raw"),
    ]
    assert found.needs[0].look.startswith("run show run_")
    assert "bad.csv" in found.needs[1].evidence
    feeds = {feed.name: feed for feed in found.feeds}
    assert feeds["default.orders"].state == "fresh"
    assert sum(feeds["default.orders"].arrivals) == 1
    assert feeds["default.orders"].filled_by == ("default.shop.load",)
    assert feeds["default.late"].state == "quiet"
    assert feeds["default.orders"].waiting == 0
    assert [job.schedule for job in found.waiting] == ["default.shop.on_orders"]


def test_a_feed_with_a_broken_expectation_is_late(stage):
    """A feed that stays away is a need, though nothing has failed."""
    stage.sql("UPDATE expectation SET arrived_at = 1000, since_at = 1000, broken_since = 5000 RETURNING 1")
    found = stage.mill.overview()

    assert [need.thing for need in found.needs if need.kind == "late"] == ["default.raw"]
    assert {feed.name: feed.state for feed in found.feeds}["default.raw"] == "late"


def test_a_success_ends_the_need(stage):
    """The newest run of a program counts."""
    stage.sql("UPDATE run SET state = 'COMPLETED' WHERE state = 'FAILED' RETURNING 1")

    assert [need.kind for need in stage.mill.overview().needs] == ["quarantine"]


def test_feeds_are_paged(stage):
    """A site has a thousand data sets."""
    first = stage.mill.overview(limit=2)
    rest = stage.mill.overview(limit=2, after=first.next)

    assert [feed.name for feed in (*first.feeds, *rest.feeds)] == ["default.late", "default.orders", "default.raw"]
    assert rest.next is None


def test_failures_in_a_row_are_counted_from_the_first_and_name_a_new_version(stage):
    """A person wants to know since when, and whether the last deployment broke it."""
    (first,) = stage.mill.runs.list(program="shop.broken")
    for _ in range(2):
        stage.mill.runs.start("shop.broken")
        stage.play()
    (need,) = [one for one in stage.mill.overview().needs if one.kind == "failed"]

    assert need.said == "default.shop.broken failed 3 times in a row"
    assert need.since == first.ended_at
    assert "since version" not in need.evidence

    stage.sql(f"UPDATE run SET state = 'COMPLETED', app_version = 7 WHERE run_id = '{first.run_id}' RETURNING 1")
    (need,) = [one for one in stage.mill.overview().needs if one.kind == "failed"]
    assert need.said == "default.shop.broken failed 2 times in a row"
    assert need.evidence.endswith("since version 1 of the app")


def test_a_job_that_waits_longer_than_the_last_jobs_is_a_need(stage):
    """Work that never starts fails nowhere: only its wait shows that something is wrong."""
    (job,) = stage.mill.overview().waiting
    assert (job.longest, job.unusual) == (None, False)
    schedule_id = stage.sql("SELECT schedule_id FROM job")[0][0]
    for number in range(5):
        stage.sql(
            "INSERT INTO job_history (job_id, schedule_id, generation, outcome, created_at, ended_at) "
            f"VALUES ('old_{number}', '{schedule_id}', 1, 'launched', {1000 * number}, {1000 * number + 60_000}) "
            "RETURNING 1"
        )
    assert [one.kind for one in stage.mill.overview().needs] == ["failed", "quarantine"]

    stage.sql("UPDATE job SET created_at = created_at - 121000 RETURNING 1")
    found = stage.mill.overview()

    assert found.waiting[0].longest == timedelta(minutes=1)
    (need,) = [one for one in found.needs if one.kind == "waits"]
    assert need.thing == "default.shop.on_orders"
    assert need.evidence.endswith("the last jobs waited at most 1m")
    assert need.look == f"why {job.job_id}"

    stage.mill.schedules.suspend("shop.on_orders", mode="hold")
    assert [one.kind for one in stage.mill.overview().needs] == ["failed", "quarantine"]


def test_a_feed_says_when_the_next_arrival_is_due(stage):
    """Freshness is a time against an expectation."""
    feeds = {feed.name: feed for feed in stage.mill.overview().feeds}

    assert feeds["default.raw"].due_at == feeds["default.raw"].last_arrival + timedelta(hours=1)
    assert feeds["default.late"].due_at is None


SERIES = "WITH RECURSIVE series(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM series WHERE i < {last})"


def _fill(stage: Stage, table: str, columns: str, values: str, number: int) -> None:
    """Insert `number` rows into a table, with `i` from 0 on."""
    series = SERIES.format(last=number - 1)
    stage.sql(f"INSERT INTO {table} ({columns}) {series} SELECT {values} FROM series RETURNING 1")


def _fill_jobs(stage: Stage, number: int, *, status: str = "SCHEDULED", namespace: str = "default") -> None:
    """Add schedules, each with a job that is older than all jobs of the project."""
    name = f"{namespace}_{status.lower()}_"
    suspended = "1, 'hold'" if status == "SUSPENDED" else "NULL, NULL"
    _fill(
        stage,
        "schedule",
        "schedule_id, namespace, app, name, generation, created_seq, since_seq, since_at, program_id, spec, owner, "
        "status, suspended_at, suspended_mode",
        f"'{name}' || i, '{namespace}', 'other', '{name}' || i, 1, 1, 1, 1, 'p', '{{}}', 'app', "
        f"'{status}', {suspended}",
        number,
    )
    _fill(
        stage,
        "job",
        "job_id, schedule_id, generation, state, created_at, progress",
        f"'job_00{name}' || i, '{name}' || i, 1, 'PENDING_TRIGGER', 1000, '{{}}'",
        number,
    )


def _fill_history(stage: Stage, schedule_id: str) -> None:
    """Let the last five jobs of a schedule have waited a minute each."""
    values = f"'{schedule_id}_old_' || i, '{schedule_id}', 1, 'launched', 1000 * i, 1000 * i + 60000"
    _fill(stage, "job_history", "job_id, schedule_id, generation, outcome, created_at, ended_at", values, 5)


@pytest.mark.parametrize("satisfied", [False, True])
def test_older_jobs_of_suspended_schedules_hide_no_job_that_waits_too_long(stage, satisfied):
    """A hundred held jobs are older than the stuck one."""
    (job,) = stage.mill.overview().waiting
    schedule_id = stage.sql("SELECT schedule_id FROM job")[0][0]
    _fill_history(stage, schedule_id)
    _fill_jobs(stage, 300, status="SUSPENDED")
    state = "state = 'PENDING_CONSTRAINT', satisfied_at = 5000" if satisfied else "revision = revision"
    stage.sql(f"UPDATE job SET {state}, created_at = 5000 WHERE job_id = '{job.job_id}' RETURNING 1")
    found = stage.mill.overview()

    assert [need.look for need in found.needs if need.kind == "waits"] == [f"why {job.job_id}"]
    assert found.waiting[0].job_id == job.job_id
    assert len(found.waiting) == 20
    assert found.totals.waiting == 301


def test_a_satisfied_job_is_a_need_beside_many_that_wait_for_their_trigger(stage):
    """Jobs whose trigger takes long are many and as usual; a job behind a constraint should have started."""
    (job,) = stage.mill.overview().waiting
    _fill_history(stage, stage.sql("SELECT schedule_id FROM job")[0][0])
    _fill_jobs(stage, 300)
    stage.sql(
        "UPDATE job SET state = 'PENDING_CONSTRAINT', satisfied_at = 5000, created_at = 5000 "
        f"WHERE job_id = '{job.job_id}' RETURNING 1"
    )

    assert [need.thing for need in stage.mill.overview().needs if need.kind == "waits"] == [job.schedule]


def test_totals_count_the_whole_project_up_to_a_thousand_and_one(stage):
    """A page shows 50 feeds of 5,000."""
    assert (stage.mill.overview().totals.feeds, stage.mill.overview().totals.waiting) == (3, 1)
    stage.sql("UPDATE expectation SET arrived_at = 1000, since_at = 1000, broken_since = 5000 RETURNING 1")
    _fill_jobs(stage, 1100)
    values = "'d' || i, 'default', 'd' || i, 'fileset', '/d' || i, '{}', 1"
    _fill(stage, "dataset", "dataset_id, namespace, name, kind, location, spec, created_at", values, 1100)
    totals = stage.mill.overview(limit=1).totals

    assert (totals.feeds, totals.unwell, totals.waiting) == (1001, 1, 1001)
    elsewhere = stage.mill.acting_as("ann", Access(Role.VIEWER, "elsewhere")).overview().totals
    assert (elsewhere.feeds, elsewhere.unwell, elsewhere.waiting) == (0, 0, 0)


def test_the_outputs_of_a_program_that_fails_are_unwell(stage):
    """A feed may be in time still, and yet its program fails."""
    program = stage.sql("SELECT program_id FROM program WHERE name = 'sift'")[0][0]
    stage.sql(
        f"UPDATE run SET program_id = '{program}', created_at = created_at + 1000 WHERE state = 'FAILED' RETURNING 1"
    )

    assert stage.mill.overview().totals.unwell == 1


def test_messages_of_other_feeds_hide_no_arrivals(stage):
    """A busy data set publishes thousands of messages between two of a quiet one."""
    columns = "topic, seq, n, at, event_type, event_key, payload"
    values = "'data', 900000 + i, 0, 1000, 'partitions', 'partition:default.busy', '{}'"
    _fill(stage, "message", columns, values, 6000)
    feeds = {feed.name: feed for feed in stage.mill.overview().feeds}

    assert sum(feeds["default.orders"].arrivals) == 1
    assert feeds["default.orders"].state == "fresh"


def test_the_arrivals_of_an_hour_are_counted_up_to_201(stage):
    """The cost of the page ends, however busy a feed is."""
    now = stage.mill.overview().at.timestamp()
    columns = "topic, seq, n, at, event_type, event_key, payload"
    for hours, number in ((2, 300), (30, 5)):
        at = int((now - 3600 * hours + 60) * 1000)
        values = f"'data', {900000 + hours * 1000} + i, 0, {at}, 'partitions', 'partition:default.late', '{{}}'"
        _fill(stage, "message", columns, values, number)
    (late,) = [feed for feed in stage.mill.overview().feeds if feed.name == "default.late"]

    assert late.arrivals == (*[0] * 22, 201, 0)
    assert late.state == "fresh"
    assert abs(late.last_arrival.timestamp() - (now - 7140)) < 1


def test_acknowledged_alerts_hide_no_open_ones(stage):
    """A person has seen fifty; the older one is new to all."""
    columns = "alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at"
    values = "'alert_' || (100 + i), 'r' || i, 'default', 'default.r', 's', {state}, 'why', 1, 1"
    open_first = values.format(state="CASE WHEN i = 0 THEN 'OPEN' ELSE 'ACKNOWLEDGED' END")
    _fill(stage, "alert", columns, open_first, 60)

    found = stage.mill.overview()
    assert [need.look for need in found.needs if need.kind == "alert"] == ["alert show alert_100"]
    assert not found.more_needs
    stage.sql("UPDATE alert SET state = 'OPEN' RETURNING 1")
    found = stage.mill.overview()
    assert sum(need.kind == "alert" for need in found.needs) == 50
    assert found.more_needs


def test_quarantined_files_of_one_inbox_hide_no_other_inbox(stage):
    """A thousand bad files in one feed, and one in another."""
    values = "'bad', 'default', 'bad', 'inbox', '/bad', '{}', 1"
    _fill(stage, "dataset", "dataset_id, namespace, name, kind, location, spec, created_at", values, 1)
    columns = "dataset_id, name, content_version, etag, bytes, modified_at, first_seen, seen_seq, status"
    _fill(stage, "inbox_file", columns, "'bad', 'f' || i, 'v', 'e', 1, 1, 1000 + i, i, 'QUARANTINED'", 1100)
    said = [need.said for need in stage.mill.overview().needs if need.kind == "quarantine"]

    assert said == [
        "default.bad has over 1,000 files in quarantine",
        "default.raw has 1 file in quarantine",
    ]


def test_things_of_another_namespace_hide_no_needs_of_a_caller(stage):
    """A caller of one namespace gets its own needs, however many others have."""
    caller = stage.mill.acting_as("ann", Access(Role.VIEWER, "default"))
    alert = "alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at"
    _fill(stage, "alert", alert, "'alert_x' || i, 'r' || i, 'other', 'other.r', 's', 'OPEN', 'why', 1, 1", 300)
    _fill(stage, "alert", alert, "'alert_0', 'own', 'default', 'default.r', 's', 'OPEN', 'why', 1, 1", 1)
    _fill_history(stage, stage.sql("SELECT schedule_id FROM job")[0][0])
    _fill_jobs(stage, 300, namespace="other")
    stage.sql("UPDATE job SET created_at = 5000 WHERE created_at > 5000 RETURNING 1")

    assert [need.kind for need in caller.overview().needs] == ["alert", "failed", "quarantine", "waits"]
    assert [job.schedule for job in caller.overview().waiting] == ["default.shop.on_orders"]
    assert caller.overview().totals.waiting == 1
    stranger = stage.mill.acting_as("bob", Access(Role.VIEWER, "other"))
    assert {need.kind for need in stranger.overview().needs} == {"alert"}
    assert all(job.schedule.startswith("other.") for job in stranger.overview().waiting)
