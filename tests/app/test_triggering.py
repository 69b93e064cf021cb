"""Counting: a trigger counts the partitions that its schedule's program would be given (scheduler.md)."""

from __future__ import annotations

import pytest

import tidemill as tm
from tests.stage import staged

APP = """
import tidemill as tm

app = tm.App("shop")
lines = app.fileset("lines", keys={{"hour": "int"}}, format="text")


@app.python(reads=[{reads}])
def report(run):
    with open("said.txt", "a") as said:
        print(*(f"{{part.kind}} {{part.key['hour']}}" for part in run.input(lines).delivered), sep=", ", file=said)


app.schedule("report", report, trigger={trigger})
"""


@pytest.fixture
def stage(catalog_url, tmp_path, monkeypatch):
    """Make the project with these terms and this trigger."""
    monkeypatch.chdir(tmp_path)
    opened = []

    def make(reads="lines", trigger="tm.NewPartitions(lines)"):
        entered = staged(tmp_path, catalog_url, APP.format(reads=reads, trigger=trigger))
        opened.append(entered)
        return entered.__enter__()

    yield make
    for entered in opened:
        entered.__exit__(None, None, None)


def jobs(stage):
    """Return the reasons for which the open jobs wait."""
    return [job.why for job in stage.mill.jobs.list()]


def test_an_overwritten_partition_starts_the_program_that_is_given_it(stage):
    """A correction waited in its consumer until a new partition came, which may be never."""
    made = stage()
    made.publish("lines", "hour=1")
    made.play()
    made.publish("lines", "hour=1", op="overwrite")

    made.play()

    assert made.lines_of() == ["new 1", "overwritten 1"]


def test_overwritten_partitions_count_as_new_ones_do(stage):
    """Two of three: the third may be of any kind."""
    made = stage(trigger="tm.NewPartitions(lines, 3)")
    made.publish("lines", "hour=1", "hour=2", "hour=3")
    made.play()
    made.publish("lines", "hour=1", "hour=2", op="overwrite")
    made.schedule()
    waits = jobs(made)
    made.publish("lines", "hour=4")

    made.play()

    assert waits == ["2/3 new partitions of default.lines"]
    assert made.lines_of() == ["new 1, new 2, new 3", "overwritten 1, overwritten 2, new 4"]


def test_the_bytes_of_overwritten_partitions_count(stage):
    """The program reads them: a gigabyte of corrections is a gigabyte to do."""
    made = stage(trigger="tm.NewData(lines, rows=2)")
    made.publish("lines", "hour=1", "hour=2")
    made.play()
    made.publish("lines", "hour=1", "hour=2", op="overwrite")

    made.play()

    assert len(made.runs()) == 2


@pytest.mark.parametrize("on_change", ["ignore", "error"])
@pytest.mark.parametrize("op", ["append", "overwrite"])
def test_a_changed_partition_that_the_consumer_is_not_given_starts_no_run(stage, on_change, op):
    """A run that is given nothing tells its operator of work that there is not."""
    made = stage(reads=f"tm.Reads(lines, on_change='{on_change}')")
    made.publish("lines", "hour=1")
    made.play()
    made.publish("lines", "hour=1", op=op)
    made.play()
    alone = len(made.runs())
    made.publish("lines", "hour=2")

    made.play()

    assert alone == 1
    assert made.lines_of() == ["new 1", "new 2"]


@pytest.mark.parametrize("on_change", ["ignore", "error"])
def test_a_changed_partition_that_was_never_delivered_counts(stage, on_change):
    """A consumer that starts now is given an old partition when that changes: for the consumer it is the first time."""
    made = stage(reads=f"tm.Reads(lines, on_change='{on_change}')", trigger="tm.NewPartitions(lines, 9)")
    made.publish("lines", "hour=1")
    made.mill.consumers.reset("lines", "default.shop.report", to="now")
    made.schedule()
    made.mill.schedules.update("shop.report", trigger={"type": "new_partitions", "fileset": "lines", "n": 1})
    made.publish("lines", "hour=1", op="overwrite")

    made.play()

    assert made.lines_of() == ["overwritten 1"]


def test_partitions_that_a_consumer_passes_over_do_not_count(stage):
    """Partitions that `where` excludes are never delivered to the program."""
    made = stage(reads="tm.Reads(lines, where={'hour': tm.Range(6, 22)})", trigger="tm.NewPartitions(lines, 2)")
    made.publish("lines", "hour=1", "hour=2", "hour=7")
    made.schedule()
    waits = jobs(made)
    made.publish("lines", "hour=8")

    made.play()

    assert waits == ["1/2 new partitions of default.lines"]
    assert made.lines_of() == ["new 7, new 8"]


def test_only_partitions_of_the_chosen_keys_and_kinds_count(stage):
    """A report of the evening waits for the evening, and not for corrections of it."""
    made = stage(trigger="tm.NewPartitions(lines, 2, where={'hour': tm.Range(18, 24)}, kinds=['new', 'appended'])")
    made.publish("lines", "hour=1", "hour=18", "hour=2")
    made.publish("lines", "hour=18", op="overwrite")
    made.schedule()
    waits = jobs(made)
    made.publish("lines", "hour=23")

    made.play()

    assert waits == ["1/2 new partitions of default.lines"]
    assert made.lines_of() == ["new 1, new 2, overwritten 18, new 23"]


def test_a_choice_counts_partitions_in_each_message_of_a_large_commit(stage):
    """A commit of 1,001 partitions is announced by three messages, each of at most 500 keys."""
    made = stage(trigger="tm.NewPartitions(lines, 334, where={'hour': [*range(0, 1001, 3)]}, kinds=['new'])")
    made.publish("lines", *(f"hour={hour}" for hour in range(1001)))

    (run,) = made.play()

    messages = made.mill.topics.read("data").items
    announced = [one.payload for one in messages if one.event_type == "partitions"]
    assert [payload["count"] for payload in announced] == [500, 500, 1]
    assert announced[2]["partitions"][0]["key"] == "hour=1000"
    assert announced[2]["partitions"][0]["kind"] == "new"
    (feed,) = made.mill.runs.show(run.run_id).triggers
    assert feed.count == 334


def test_a_dropped_partition_has_counted(stage):
    """The trigger counts arrivals: a drop does not take one back."""
    made = stage(trigger="tm.NewPartitions(lines, 2, where={'hour': [1, 2]})")
    made.publish("lines", "hour=1", "hour=3")
    with made.transaction("lines") as tx:
        tx.fileset("default.lines").drop({"hour": 1})
    made.publish("lines", "hour=2")

    made.play()

    assert made.lines_of() == ["new 3, new 2"]


@pytest.mark.parametrize(
    ("reads", "choice", "why"),
    [
        ("lines", "where={'huor': 1}", "did you mean 'hour'"),
        ("lines", "where={'hour': 'x'}", "wants an integer"),
        ("lines", "where={'hour': tm.Range(5, 5)}", "nothing lies"),
        ("tm.Reads(lines, on_change='ignore')", "kinds=['overwritten']", "add 'new' to kinds"),
        ("tm.Reads(lines, on_change='error')", "kinds=['appended', 'overwritten']", "add 'new' to kinds"),
    ],
)
def test_a_choice_that_nothing_meets_is_refused(stage, tmp_path, reads, choice, why):
    """At deployment and by a command, with the cure; the deployment before stays."""
    made = stage(reads=reads)
    before = made.mill.schedules.list().items
    app = APP.format(reads=reads, trigger=f"tm.NewPartitions(lines, {choice})")
    (tmp_path / "app.py").write_text(app, encoding="utf-8")

    with pytest.raises(tm.UserError, match=why):
        made.mill.deploy()

    assert made.mill.schedules.list().items == before


def test_a_choice_is_refused_by_the_command_too(stage):
    """The JSON of a trigger knows no types: the keys of the file set do."""
    made = stage()
    form = {"type": "new_partitions", "fileset": "lines", "where": {"hour": "1"}}

    with pytest.raises(tm.UserError, match="wants an integer of 32 bits"):
        made.mill.schedules.create("shop.mine", "shop.report", trigger=form)


def test_a_program_that_is_given_more_takes_what_waits(stage, tmp_path):
    """The partition did not count when it came, under the old `where`, and no commit publishes it again."""
    made = stage(reads="tm.Reads(lines, where={'hour': tm.Range(6, 22)})")
    made.publish("lines", "hour=1")
    made.play()
    app = APP.format(reads="tm.Reads(lines, where={'hour': tm.Range(0, 22)})", trigger="tm.NewPartitions(lines)")
    (tmp_path / "app.py").write_text(app, encoding="utf-8")

    made.mill.deploy()
    made.play()
    made.mill.deploy()

    assert made.play() == []
    assert made.lines_of() == ["new 1"]


def resumed(stage, act):
    """Suspend the schedule, act, and resume it; the runs that come of it."""
    stage.mill.schedules.suspend("shop.report")
    act()
    stage.play()
    stage.mill.schedules.resume("shop.report")
    return stage.play()


def test_what_comes_while_a_schedule_is_suspended_is_taken_when_it_is_resumed(stage):
    """The data lay until something else arrived, however long that took."""
    made = stage(trigger="tm.NewPartitions(lines, 5)")

    runs = resumed(made, lambda: made.publish("lines", "hour=1"))

    assert [run.state for run in runs] == ["COMPLETED"]
    assert made.lines_of() == ["new 1"]


def test_a_resumption_with_nothing_to_do_starts_nothing(stage):
    """A resumption of all schedules must not start all programs."""
    made = stage()
    made.publish("lines", "hour=1")
    made.play()

    assert resumed(made, lambda: None) == []


def test_a_schedule_that_listens_already_announces_nothing(stage):
    """Resumed twice, by two operators: the job that waits for more must not start."""
    made = stage(trigger="tm.NewPartitions(lines, 5)")
    made.publish("lines", "hour=1")
    made.schedule()

    made.mill.schedules.resume("shop.report")

    assert made.play() == []
    assert jobs(made) == ["1/5 new partitions of default.lines"]


def test_a_schedule_that_is_made_takes_what_waits(stage):
    """A consumer that starts at the beginning has all partitions waiting, and no commit publishes them again."""
    made = stage(trigger="tm.Every('1h')")
    made.publish("lines", "hour=1")

    trigger = {"type": "new_partitions", "fileset": "lines", "n": 5}
    made.mill.schedules.create("shop.mine", "shop.report", trigger=trigger)
    made.play()

    assert made.lines_of() == ["new 1"]


def test_a_schedule_that_listens_for_data_from_now_on_takes_what_waits(stage):
    """The schedule had only time triggers: no message announced the data that came meanwhile."""
    made = stage(trigger="tm.Every('1h')")
    made.publish("lines", "hour=1")
    made.play()

    made.mill.schedules.update("shop.report", trigger={"type": "new_partitions", "fileset": "lines", "n": 5})
    made.play()

    assert made.lines_of() == ["new 1"]


def test_a_changed_schedule_counts_from_zero(stage):
    """Seed 001, scenarios 4 and 5: an update drops the pending job and what that had counted."""
    made = stage(trigger="tm.NewPartitions(lines, 5)")
    made.publish("lines", "hour=1")
    made.schedule()

    made.mill.schedules.update("shop.report", trigger={"type": "new_partitions", "fileset": "lines", "n": 2})
    made.publish("lines", "hour=2")
    alone = made.play()
    made.publish("lines", "hour=3")
    made.play()

    assert alone == []
    assert made.lines_of() == ["new 1, new 2, new 3"]


def test_a_consumer_that_starts_now_has_nothing_waiting(stage):
    """Earlier partitions are not announced."""
    made = stage(reads="tm.Reads(lines, start='now')", trigger="tm.Every('1h')")
    made.publish("lines", "hour=1")
    made.mill.consumers.reset("lines", "default.shop.report", to="now")
    trigger = {"type": "new_partitions", "fileset": "lines"}

    made.mill.schedules.create("shop.mine", "shop.report", trigger=trigger)

    assert made.play() == []


FILES = """
import tidemill as tm

app = tm.App("shop")
raw = app.inbox("raw", "landing", format="text")


@app.python(reads=[raw])
def report(run):
    pass


app.schedule("report", report, trigger=tm.NewFiles(raw, 5))
"""


def test_files_that_land_while_a_schedule_is_suspended_are_taken_when_it_is_resumed(catalog_url, tmp_path, monkeypatch):
    """An inbox has no consumers: its files are announced by themselves."""
    monkeypatch.chdir(tmp_path)
    with staged(tmp_path, catalog_url, FILES) as made:

        def land():
            (tmp_path / "landing" / "a.txt").write_text("1\n")
            made.mill.inboxes.scan("raw")

        runs = resumed(made, land)

        assert [run.state for run in runs] == ["COMPLETED"]
