"""The JSON of an app declares the same as its app file, so that a server deploys the same."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tidemill as tm
from tests.app.test_audited_operations import APP as AUDITED
from tests.app.test_pages import APP as LISTED
from tests.server.busy import APP as BUSY
from tests.stage import staged
from tidemill.app.declaration import read_declaration, write_declaration
from tidemill.app.loading import load_declared, load_with_code

ROOT = Path(__file__).parents[2]
RICH = """
from datetime import UTC, date, datetime, timedelta

import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", format="json", schema="id long", bad_rows="reject", archive="done", after="archive")
far = app.fileset("far", keys={"day": "date", "at": "timestamp", "n": "long"}, location="elsewhere/far",
                  compact_every="1d", retention="90d", expect=tm.Arrivals(every="1d"))
users = app.snapshot("users", key=["id"], checks={"old": "age > 1"}, max_drop=0.25)
timed = app.fileset("timed", keys={"day": "date", "region": "string"}, watermark=tm.Watermark(
    "ts", pattern="$day 00:00:00", interval="1d", expected={"region": ["eu", "us"]}, row_lag="1h"))
counts = app.fileset("counts", keys={"day": "date"})

def judge(partition):
    return tm.Accept.ACCEPT

@app.python(
    reads=[tm.Reads(far, start=datetime(2026, 1, 1, tzinfo=UTC), max_partitions=5, max_bytes="1 GB", order="newest",
                    old_share=0.2, on_change="error", attempts=7, accept=judge,
                    where={"day": tm.Range(date(2026, 1, 1)), "n": {3, 1, 2},
                           "at": datetime(2026, 1, 2, tzinfo=UTC)}),
           tm.Changes(users, start="now")],
    writes=[counts], retries=3, backoff="90s", run_on_empty=True, deliver_own=False,
    arguments={"a": 1, "b": 1.0, "c": True, "d": "x", "e": str, "f": float})
def load(run):
    pass

@app.worker(reads=[counts], instances=2, arguments={"pause": 0.5})
def work(run):
    pass

app.pipeline("copy", source=raw, sink=far)
app.window_sql("windows", '''
    INSERT INTO counts SELECT window_start, window_end, count(*) AS n, to_date(window_start) AS day
      FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(ts), INTERVAL '1' DAY)) GROUP BY window_start, window_end''')
app.schedule("often", load, trigger=(tm.Every("5m") & tm.NewPartitions(far, 2)) | tm.RunEnded("default.shop.copy"),
             constraints=[tm.Concurrency(2), tm.TimeRange("22:00", "06:00", zone="Europe/Berlin")],
             arguments={"a": 3, "e": "y", "f": 1.5}, timeout="1h", on_timeout="force", priority=3, suspended=True)
app.schedule("late", load, trigger=tm.Missing(far), arguments={"e": "z", "f": 2.0})
app.alert("failed", tm.RunFailed(), repeat="2h", description="look")
"""
OTHERS = {"audited": AUDITED, "listed": LISTED, "busy": BUSY, "rich": RICH}


@pytest.mark.parametrize("name", OTHERS)
def test_the_json_of_an_app_declares_the_same(tmp_path, name):
    """A plan of the JSON finds nothing to do after a deployment of the app file, down to each field of each row."""
    with staged(tmp_path, f"sqlite:///{tmp_path}/catalog.db", OTHERS[name]) as stage:
        apps, bundle = load_with_code(stage.world.disk, stage.mill.project.config)
        sent = json.loads(json.dumps([write_declaration(app) for app in apps]))
        planned = stage.mill.apps.plan(sent, bundle.sums)

    assert [one.changes for one in planned] == [()] * len(apps)
    assert [write_declaration(read_declaration(one)) for one in sent] == sent


@pytest.mark.parametrize(
    "path", [*sorted(ROOT.glob("examples/consumers/*.py")), ROOT / "src/tidemill/demo/project/app.py"]
)
def test_the_json_of_our_examples_is_read_back(path):
    """Each of them can be deployed by way of a server."""
    for app in load_declared(path):
        plain = json.loads(json.dumps(write_declaration(app)))
        assert write_declaration(read_declaration(plain)) == plain


SLIPS = {
    "a name that leaves the catalog": (("name",), "../shop"),
    "a namespace that is no name": (("namespace",), "a b"),
    "a data set of another namespace": (("datasets", 0, "name"), "other.raw"),
    "a field that is not known": (("datasets", 0, "qualified_name"), "other.raw"),
    "a kind that is not known": (("datasets", 0, "type"), "table"),
    "two data sets of one name": (("datasets", 2, "name"), "raw"),
    "a program without a name": (("programs", 0, "name"), ""),
    "a kind of program that is not known": (("programs", 0, "kind"), "shell"),
    "a default of another type": (("programs", 1, "arguments", 0, "default"), "text"),
    "terms of what is not read": (("programs", 1, "terms", "default.raw"), {"type": "changes"}),
    "a filter that is no filter": (("programs", 1, "terms", "default.far", "where"), {"day": {"date": "soon"}}),
    "a schedule of no program": (("schedules", 0, "program"), "nothing"),
    "a schedule of a worker": (("schedules", 0, "program"), "work"),
    "a negative number of workers": (("programs", 2, "instances"), -1),
    "a window over what it does not name": (("programs", 4, "writes"), ["default.far"]),
    "a statement that is none": (("programs", 4, "windows"), "DROP TABLE x"),
    "a wrong trigger": (("schedules", 0, "spec", "trigger"), {"type": "cron", "expression": "x"}),
    "an alert without a rule": (("alerts", "failed"), {}),
    "programs that are no list": (("programs",), {"a": 1}),
}


@pytest.mark.parametrize("slip", SLIPS)
def test_json_that_no_app_file_could_declare_is_refused(tmp_path, slip):
    """With an error of the user, which the server answers with 422."""
    (tmp_path / "app.py").write_text(RICH)
    (app,) = load_declared(tmp_path / "app.py")
    plain = json.loads(json.dumps(write_declaration(app)))
    path, value = SLIPS[slip]
    spoiled = json.loads(json.dumps(plain))
    place = spoiled
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value

    read_declaration(plain)
    with pytest.raises(tm.UserError):
        read_declaration(spoiled)


def test_bad_rows_need_their_file_set(tmp_path):
    """The runs of such an inbox would fail at the first bad row."""
    (tmp_path / "app.py").write_text(RICH)
    (app,) = load_declared(tmp_path / "app.py")
    plain = json.loads(json.dumps(write_declaration(app)))
    plain["datasets"] = [one for one in plain["datasets"] if one["name"] != "raw_rejects"]

    with pytest.raises(tm.UserError, match="raw_rejects"):
        read_declaration(plain)
