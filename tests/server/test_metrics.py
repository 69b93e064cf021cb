"""`/metrics`: what waits and runs, the ends of runs, and the dashboard that asks for them."""

from __future__ import annotations

import json
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

import tidemill as tm
from tests.manual_clock import ManualClock
from tests.server.busy import APP, make_busy
from tests.stage import staged
from tests.yardstick import patience
from tidemill.alerts.alerts import Watch
from tidemill.mill.metrics import HELP, Metric
from tidemill.server.counting import EndedRuns, FencedLeases
from tidemill.server.metrics import (
    CATALOG_BLOCKS,
    CATALOG_CONNECTIONS,
    CATALOG_WAITS,
    CATALOG_WAKEUPS,
    COUNTED,
    OF_PROCESS,
    RUN_COMMIT,
    RUN_CORES,
    RUN_DURATION,
    RUN_WAIT,
    RUNS_ENDED,
    _EndedTexts,
    _of_ends,
    _text,
)
from tools import reference

ROOT = Path(__file__).resolve().parents[2]
WAITING = """
import tidemill as tm

app = tm.App("shop")
orders = app.fileset("orders", keys={"day": "date"})


@app.python(reads=[orders])
def sift(run):
    pass


app.schedule("two", sift, trigger=tm.NewPartitions(orders, 2), constraints=[tm.Delay("1h")])
"""
REASONS = """
import tidemill as tm

app = tm.App("shop")
orders = app.fileset("orders", keys={"day": "date"})


@app.python()
def sift(run):
    pass


app.schedule("delayed", sift, trigger=tm.NewPartitions(orders, 1), constraints=[tm.Delay("1h")])
app.schedule("crowded", sift, trigger=tm.NewPartitions(orders, 1), constraints=[tm.Concurrency(1)])
app.schedule("two", sift, trigger=tm.NewPartitions(orders, 2))
"""
COMMITS = """
import tidemill as tm

app = tm.App("shop")
orders = app.fileset("orders", keys={"day": "date"})


@app.python(writes=[orders])
def load(run):
    pass


@app.python(reads=[orders])
def empty(run):
    pass


@app.python(retries=0)
def broken(run):
    raise ValueError("no")
"""
DECLARED = {"default.shop.load", "default.shop.sift", "default.shop.broken"}
DASHBOARD = ROOT / "examples" / "grafana" / "tidemill.json"


@pytest.fixture
def stage(catalog_url, tmp_path):
    """Make a busy project."""
    with staged(tmp_path, catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        yield make_busy(opened)


def scraped(client) -> dict[str, dict[tuple[str, ...], float]]:
    """Return the samples of a scrape by metric and labels."""
    answer = client.get("/metrics")
    assert answer.status_code == 200
    return {
        family.name: {tuple(one.labels.values()): one.value for one in family.samples}
        for family in text_string_to_metric_families(answer.text)
    }


def test_a_scrape_has_what_waits_and_what_is_wrong(sign):
    """The numbers are those of the pages."""
    found = scraped(sign("viewer"))

    assert found[Metric.FILES_QUARANTINED] == {("default.raw",): 1}
    assert found[Metric.FILES] == {("default.raw", state): 0 for state in ("NEW", "ERROR", "IN_PROGRESS")}
    assert found[Metric.JOBS_WAITING] == {("PENDING_TRIGGER",): 1, ("PENDING_CONSTRAINT",): 0}
    assert found[Metric.RUNS_PENDING] == {(): 1}
    assert found[Metric.DATASET_LATE] == {("default.raw",): 0}
    assert found[Metric.PARTITIONS_WAITING]["default.orders",] == 0


def test_ends_of_runs_are_counted_once_from_the_first_scrape_on(sign, stage):
    """A counter that counts a run twice makes an alert; one that forgets a run hides a failure."""
    client = sign("viewer")
    assert set(scraped(client)[RUNS_ENDED].values()) == {0}, "an increase needs a number to increase from"
    for _ in range(2):
        stage.mill.runs.start("shop.broken")
    stage.play()

    first, again = scraped(client)[RUNS_ENDED], scraped(client)[RUNS_ENDED]

    assert first["default.shop.broken", "FAILED"] == 2
    assert first["default.shop.sift", "COMPLETED"] == 1
    assert first == again


def histogram_of(client, metric: str, label: str = "program") -> dict[str, dict[str, float]]:
    """Return the samples of a histogram by program: `sum`, `count`, and each bucket by its bound."""
    found: dict[str, dict[str, float]] = {}
    for family in text_string_to_metric_families(client.get("/metrics").text):
        for one in family.samples if family.name == metric else ():
            part = one.labels.get("le", one.name.rpartition("_")[2])
            found.setdefault(one.labels.get(label, ""), {})[part] = one.value
    return found


def test_runs_that_end_are_in_the_histograms_once(sign, stage):
    """A quantile of runs that are counted twice, or of runs before the first scrape, is of nothing that happened."""
    client = sign("viewer")
    for metric in (RUN_WAIT, RUN_DURATION, RUN_COMMIT):
        zero = histogram_of(client, metric)
        assert zero.keys() == DECLARED, "an increase needs a number to increase from"
        assert {one["count"] for one in zero.values()} == {0}
    run_id = stage.mill.runs.start("shop.broken").run_id
    stage.play()
    stage.sql(
        "UPDATE run SET created_at = 1000, started_at = 61500, ended_at = 62000, core_time = 2500 "
        f"WHERE run_id = '{run_id}' RETURNING 1"
    )

    first = histogram_of(client, RUN_WAIT)["default.shop.broken"], histogram_of(client, RUN_DURATION)
    again = histogram_of(client, RUN_WAIT)["default.shop.broken"], histogram_of(client, RUN_DURATION)

    wait, duration = first[0], first[1]["default.shop.broken"]
    assert (wait["sum"], wait["count"], wait["60.0"], wait["300.0"], wait["+Inf"]) == (60.5, 1, 0, 1, 1)
    assert (duration["sum"], duration["count"], duration["0.1"], duration["1.0"]) == (0.5, 1, 0, 1)
    assert again == first
    assert scraped(client)[RUN_CORES]["default.shop.broken",] == 2.5


class PassingClock(ManualClock):
    """A manual clock whose monotonic time passes with it."""

    def monotonic(self) -> timedelta:
        return self.elapsed


def test_a_commit_lasts_from_the_return_of_the_program_to_its_last_statement(catalog_url, tmp_path):
    """Slow checks and waits for others are seen apart from the program; no wrong clock counts."""
    clock = PassingClock()
    with staged(tmp_path, catalog_url, COMMITS, clock) as stage:
        counts = EndedRuns(stage.mill)
        counts.count([])

        def load(**steps: timedelta) -> None:
            for mark, lasts in steps.items():
                stage.at[f"driver.{mark}"] = partial(clock.pass_by, lasts)
            stage.mill.runs.start("shop.load")
            stage.play()

        load()
        counts.count(["default.shop.load", "default.shop.broken"])
        load(called=timedelta(seconds=100), before_commit=timedelta(seconds=3))
        load(called=timedelta(seconds=100))
        stage.mill.runs.start("shop.broken")
        stage.mill.runs.start("shop.empty")
        stage.play()
        found = {program: one.commit for program, one in counts.count([]).items()}

    assert dict(found["default.shop.load"].buckets) == {
        "0.01": 2, "0.05": 2, "0.1": 2, "0.5": 2, "1.0": 2, "5.0": 3, "30.0": 3, "300.0": 3, "+Inf": 3,
    }  # fmt: skip
    assert found["default.shop.load"].sum == 3
    assert found["default.shop.broken"].buckets[-1] == ("+Inf", 0)
    assert "default.shop.empty" not in found


def test_a_program_that_ends_before_it_was_ever_shown_starts_at_zero(sign, stage):
    """Prometheus sees no increase of a series that begins at one: of a program that was just deployed."""
    counts = EndedRuns(stage.mill)
    counts.count([])
    stage.mill.runs.start("shop.broken")
    stage.play()
    found = [counts.count(["default.shop.broken"])["default.shop.broken"] for _ in range(3)]

    assert [one.numbers["FAILED"] for one in found] == [0, 1, 1]
    assert [one.commit.buckets[-1] for one in found] == [("+Inf", 0)] * 3
    assert [one.duration.buckets[-1] for one in found] == [("+Inf", 0), ("+Inf", 1), ("+Inf", 1)]
    assert [(one.wait.labels, one.wait.buckets[-1][1]) for one in found] == [
        (("default.shop.broken",), number) for number in (0, 1, 1)
    ]
    assert found[2] is found[1], "its lines would be made again"


def test_kept_lines_are_those_that_would_be_made(stage):
    """A line of one program under the name of another would blame the wrong one."""
    counts, texts, same = EndedRuns(stage.mill), _EndedTexts(), []
    for program in ("", "shop.broken", "", "shop.sift", ""):
        if program:
            stage.mill.runs.start(program)
            stage.play()
        ends = counts.count(DECLARED)
        same.append(texts.text(ends) == b"".join(_text(family) for family in _of_ends(ends)))

    assert same == [True] * 5
    assert ends["default.shop.broken"].numbers["FAILED"] == 1


def test_a_scrape_has_the_blocks_connections_and_wake_ups_of_the_process(sign, stage):
    """A slow catalog and an empty pool are seen before a person complains."""
    client = sign("viewer")

    def counted() -> dict[str, float]:
        return {kind: one["count"] for kind, one in histogram_of(client, CATALOG_BLOCKS, "kind").items()}

    waiter = stage.mill.project.catalog.waiter()
    before, wakeups = counted(), scraped(client)[CATALOG_WAKEUPS][()]
    tx = stage.mill.transactions.begin(["orders"])
    stage.mill.transactions.abort(tx.write_pointer)
    woken = waiter.wait(timedelta(seconds=patience(10)))
    while waiter.wait(timedelta(0)):
        pass
    waiter.close()
    after, found = counted(), scraped(client)

    assert before.keys() == {"read", "write", "commit"}
    assert after["read"] > before["read"]
    assert after["commit"] > before["commit"]
    assert woken
    assert found[CATALOG_WAKEUPS][()] > wakeups
    assert found[CATALOG_CONNECTIONS]["idle",] >= 1
    assert found[CATALOG_CONNECTIONS]["used",] == 0
    assert found[CATALOG_WAITS][()] >= 0


def test_scrapes_at_once_count_each_run_once(sign, stage):
    """Two servers of Prometheus scrape at any time."""
    client = sign("viewer")
    scraped(client)
    for _ in range(3):
        stage.mill.runs.start("shop.broken")
    stage.play()

    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: histogram_of(client, RUN_DURATION), range(8)))

    assert {one["default.shop.broken"]["count"] for one in found} == {3}


def test_a_fenced_transaction_is_counted_once_however_old(stage):
    """The oldest transaction is the likeliest to be fenced: a position in the list of transactions would miss it."""
    transactions = stage.mill.transactions

    def begin() -> int:
        return transactions.begin(["orders"]).write_pointer

    transactions.abort(begin())
    counts = FencedLeases(stage.mill)
    found = [counts.count()]
    old, new, third = begin(), begin(), begin()
    for several in ((), (new,), (), (old,), (), (third, begin())):
        for write_pointer in several:
            transactions.abort(write_pointer)
        found.append(counts.count())

    assert found == [0, 0, 1, 1, 2, 2, 4]


def test_the_oldest_job_waits_since_its_trigger_was_satisfied(catalog_url, tmp_path):
    """A job that waits for a rare trigger is not late: an alert on its age would fire as soon as it can start."""
    clock = ManualClock()
    with staged(tmp_path, catalog_url, WAITING, clock) as stage:
        stage.publish("orders", "day=2026-01-01")
        stage.schedule()
        clock.pass_by(timedelta(days=3))
        stage.publish("orders", "day=2026-01-02")
        stage.schedule()
        clock.pass_by(timedelta(minutes=1))

        found = {one.metric: one.value for one in stage.mill.metrics().samples}

    assert found[Metric.JOB_OLDEST] == 60


def test_jobs_are_counted_by_the_reasons_that_why_gives(catalog_url, tmp_path):
    """A count beside the answer of `tidemill why` sends a person to the wrong place."""
    clock = ManualClock()
    with staged(tmp_path, catalog_url, REASONS, clock) as stage:
        mill = stage.mill

        def counted() -> dict[str, float]:
            return {
                one.labels["reason"]: one.value
                for one in mill.metrics().samples
                if one.metric is Metric.JOBS_BY_REASON and one.value
            }

        def explained() -> Counter[str]:
            return Counter(
                code for one in mill.jobs.list() for code in {why.code for why in mill.jobs.show(one.job_id).because}
            )

        mill.runs.start("shop.sift")
        stage.publish("orders", "day=2026-01-01")
        stage.schedule()
        assert counted() == {"waits_for_delay": 1, "waits_for_slot": 1, "waits_for_partitions": 1} == explained()
        mill.schedules.suspend("shop.two", mode="hold")
        assert counted()["schedule_suspended"] == 1
        clock.pass_by(timedelta(hours=2))
        assert counted() == explained()
        assert counted()["waits_for_scheduler"] == 1


def test_alerts_deliveries_subscribers_and_lag_are_counted(catalog_url, tmp_path):
    """A pager that is away is seen on the dashboard."""
    clock = ManualClock()
    with staged(tmp_path, catalog_url, WAITING, clock) as stage:
        mill = stage.mill
        mill.subscribers.create("erp", "data", start="beginning")
        mill.alerts.create("quiet", tm.NothingArrived("orders", "1h"), to=[tm.Slack("env:NONE")])
        clock.pass_by(timedelta(hours=2))
        Watch(mill.project.catalog, mill.project.world).look()
        stage.publish("orders", "day=2026-01-01", "day=2026-01-02")
        clock.pass_by(timedelta(minutes=1))
        stage.sql(
            "INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at, ended_at) "
            "VALUES ('d', '{}', 1, 0, 'x', 'opened', '{}', 'DEAD', 1, 1) RETURNING 1"
        )
        found = {(one.metric, *one.labels.values()): one.value for one in mill.metrics().samples}

    assert found[Metric.ALERTS_OPEN, "default.quiet"] == 1
    assert (found[Metric.DELIVERIES_WAITING,], found[Metric.DELIVERIES_DEAD,]) == (1, 1)
    assert found[Metric.SUBSCRIBER_WAITING, "erp"] == 1
    reader = ("default.orders", "default.shop.sift")
    assert (found[Metric.CONSUMER_WAITING, *reader], found[Metric.CONSUMER_OLDEST, *reader]) == (2, 60)


def test_a_token_of_one_namespace_may_not_scrape(sign):
    """The labels are names of all namespaces."""
    assert sign("admin", "default").get("/metrics").status_code == 403


def test_the_page_of_metrics_is_current():
    """An alert on a metric that was renamed never fires."""
    assert reference.METRICS.read_text(encoding="utf-8") == reference.write_metrics(), "run `make reference`"
    assert set(HELP) == set(Metric)
    assert not COUNTED.keys() & OF_PROCESS.keys()


def test_each_query_of_the_dashboard_asks_for_a_metric_and_its_labels(sign, stage):
    """A panel without data looks like a quiet system."""
    client = sign("viewer")
    scraped(client)
    stage.mill.runs.start("shop.broken")
    stage.play()
    stage.sweep()
    text = client.get("/metrics").text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    queries = [target["expr"] for one in json.loads(DASHBOARD.read_text())["panels"] for target in one["targets"]]
    asked = set()
    for query in queries:
        (name,) = re.findall(r"tidemill_\w+", query)
        family_name = name.removesuffix("_total").removesuffix("_bucket")
        asked.add(family_name)
        if family_name in OF_PROCESS:
            assert "sum" in query.partition(name)[0], f"{query}: each server has its own numbers"
        else:
            assert "max" in query.partition(name)[0], f"{query}: each server has all numbers; a sum doubles them"
        grouped = re.findall(r"by \(([^)]*)\)", query)
        labels = [*re.findall(r"\w+", " ".join(grouped)), *re.findall(r"\{(\w+)=", query)]
        family = families.get(family_name)
        if family is None:
            none = {
                Metric.RUNS_LIVE,
                Metric.BACKFILL_ITEMS,
                Metric.LAST_ARRIVAL,
                Metric.ALERTS_OPEN,
                Metric.SUBSCRIBER_WAITING,
            }
            of_time = ("tidemill_watermark_", "tidemill_window")
            assert name in none or name.startswith(of_time), query  # nothing of the kind is there
            continue
        samples = [one for one in family.samples if not name.endswith("_bucket") or one.name == name]
        assert all(label in one.labels for label in labels for one in samples), query

    assert asked == {*Metric, *COUNTED, *OF_PROCESS}
