"""Worker programs: one run, many transactions, and as many of them alive as were declared."""

from __future__ import annotations

import threading

import pytest

import tidemill as tm
from tests.app.test_deploy import redeploy
from tests.errors import raises_code
from tests.run.conftest import rows_of
from tests.stage import staged
from tests.yardstick import patience
from tidemill import UserError

APP = """
from pathlib import Path
import tidemill as tm

HERE = Path(__file__).parent
app = tm.App("shop")
lines = app.fileset("lines", keys={"hour": "int"})
sums = app.fileset("sums", keys={"hour": "int"})


def say(text):
    with (HERE / "said.txt").open("a") as said:
        said.write(f"{text}\\n")


def poison(hours):
    bad = (HERE / "poison").read_text().split() if (HERE / "poison").exists() else []
    if set(bad) & set(map(str, hours)):
        raise ValueError(f"poison among {hours}")


@app.worker(reads=[tm.Reads(lines, max_partitions=2)], writes=[sums], backoff="10s", INSTANCES)
def look(run):
    while run.take(WAIT):
        hours = [partition["hour"] for partition in run.input(lines).partitions]
        say(f"{run.attempt}: {hours}")
        poison(hours)
        run.output(sums).append({f"hour={hour}": f"{hour}\\n" for hour in hours})
        ENDING
"""


def app(wait="'0s'", ending="run.commit()", instances="instances=1"):
    """The app file; the worker returns when nothing comes within `wait`."""
    return APP.replace("WAIT", wait).replace("ENDING", ending).replace("INSTANCES", instances)


@pytest.fixture
def stage(tmp_path, catalog_url):
    """The project with its worker."""
    with staged(tmp_path, catalog_url, app()) as stage:
        yield stage


def start(stage):
    """Make and take the missing run of a worker, as a runner does."""
    assert stage.balance_workers() == []
    (run,) = stage.take()
    return run


def work(stage, run):
    """Have a driver work on an attempt; how the run stands then."""
    stage.driver(run).work(stage.assignment(run))
    return stage.find(run.run_id)


def may_start_again(stage):
    """Let the time pass after which a worker is started again."""
    stage.pass_time("UPDATE worker SET not_before = 1 WHERE not_before > 0")


def published(stage):
    """The partitions of the worker's output."""
    return sorted(view.partition for view in stage.mill.datasets.partitions("sums"))


def test_each_take_and_commit_is_a_transaction_of_its_own_under_one_run(stage):
    """Each commit is visible at once, and not at the end of the run, which may be next year."""
    stage.publish("lines", "hour=1", "hour=2", "hour=3")
    run = work(stage, start(stage))

    own = rows_of(
        stage.mill.project.catalog, f"SELECT state FROM tx WHERE run_id = '{run.run_id}' ORDER BY write_pointer"
    )
    taken = rows_of(
        stage.mill.project.catalog, f"SELECT item FROM run_input WHERE run_id = '{run.run_id}' ORDER BY item"
    )
    assert stage.lines_of() == ["1: [1, 2]", "1: [3]"]
    assert own == [("committed",), ("committed",)]
    assert len(taken) == 3
    assert published(stage) == ["hour=1", "hour=2", "hour=3"]
    assert (run.state, run.exit_reason) == ("COMPLETED", "it returned after 2 commits")
    assert stage.mill.catalog.audit().clean


def test_as_many_are_kept_alive_as_are_declared(stage):
    """Any runner makes missing runs; two runners at one time make one.

    A worker that returns waits before its next call.
    """
    redeploy(stage.mill, app(instances="instances=2"))
    looks = [threading.Thread(target=stage.balance_workers) for _ in range(3)]
    for look in looks:
        look.start()
    for look in looks:
        look.join()
    first = [run.state for run in stage.runs()]
    runs = stage.work()
    stage.balance_workers()
    waiting = [run.state for run in stage.runs()]
    may_start_again(stage)
    stage.balance_workers()

    assert first == ["PENDING"] * 2
    assert [run.state for run in runs] == waiting == ["COMPLETED"] * 2
    assert [run.state for run in stage.runs()] == ["COMPLETED"] * 2 + ["PENDING"] * 2


def test_what_is_too_much_is_given_to_be_killed_and_0_stops_all(stage):
    """And a worker that the app does not declare any more."""
    redeploy(stage.mill, app(instances="instances=2"))
    stage.balance_workers()
    redeploy(stage.mill, app(instances="instances=1"))
    one = stage.balance_workers()
    for run_id in one:
        stage.mill.runs.kill(run_id)
    redeploy(stage.mill, app().replace("@app.worker(", "@app.python(").replace(", instances=1", ""))
    rest = stage.balance_workers()

    assert (len(one), len(rest)) == (1, 1)
    assert set(one).isdisjoint(rest)


def test_a_worker_that_is_lost_goes_on_with_what_it_had_taken(stage):
    """Its claims belong to the run; the next attempt gets just these first, and then what came since."""
    redeploy(stage.mill, app(ending="raise SystemError('gone')"))
    stage.publish("lines", "hour=1", "hour=2")
    run = start(stage)
    driver = stage.driver(run)
    driver._end = lambda *_: None  # the process is gone before it can say anything
    driver.work(stage.assignment(run))
    stage.publish("lines", "hour=0")
    stage.end_attempt(run, "lost", "gone")
    redeploy(stage.mill, app())
    again = work(stage, start(stage))

    assert again.run_id == run.run_id
    assert stage.lines_of() == ["1: [1, 2]", "2: [1, 2]", "2: [0]"]
    assert published(stage) == ["hour=0", "hour=1", "hour=2"]
    assert stage.mill.catalog.audit().clean


def test_a_killed_worker_leaves_nothing_half_done_and_is_replaced(stage):
    """The partitions that the worker had taken go to the next one at once."""
    redeploy(stage.mill, app(ending="raise SystemError('gone')"))
    stage.publish("lines", "hour=1")
    run = start(stage)
    driver = stage.driver(run)
    driver._end = lambda *_: None
    driver.work(stage.assignment(run))
    stage.mill.runs.kill(run.run_id)
    stage.end_attempt(run, "killed", "killed on request")
    redeploy(stage.mill, app())
    other = work(stage, start(stage))

    assert stage.find(run.run_id).state == "KILLED"
    assert other.run_id != run.run_id
    assert published(stage) == ["hour=1"]
    assert stage.mill.catalog.audit().clean


def test_a_fenced_worker_commits_nothing(stage):
    """Another attempt has the worker's claims, so later work of this attempt must not count."""
    stage.publish("lines", "hour=1")
    run = start(stage)
    stage.at["worker.before_commit"] = lambda: stage.end_attempt(run, "lost", "its lease ran out", zombie=True)
    stage.driver(run).work(stage.assignment(run))
    stands = stage.find(run.run_id)
    again = work(stage, start(stage))

    assert (stands.state, stands.losses) == ("PENDING", 1)
    assert stage.lines_of() == ["1: [1]", "2: [1]"]
    assert (again.state, published(stage)) == ("COMPLETED", ["hour=1"])
    assert stage.mill.catalog.audit().clean


def test_runners_alone_start_the_runs_of_a_worker(stage):
    """With the retry of a failed run, one more would run than the app declares."""
    run = start(stage)
    stage.end_attempt(run, "killed", "by a test")

    for ask in (stage.mill.runs.retry, lambda _: stage.mill.runs.start("shop.look")):
        with raises_code("starts_by_itself"):
            ask(run.run_id)
    (why,) = stage.mill.why(run.run_id).because
    assert "runners start another run of default.shop.look by themselves" in why.unblock


def test_a_worker_that_fails_is_started_later_and_later_and_its_poison_is_discarded(stage):
    """The rest flows meanwhile; what it commits shows that it is well again."""
    (stage.mill.project.config.folder / "poison").write_text("2")
    stage.publish("lines", *(f"hour={hour}" for hour in range(1, 5)))
    waits = []
    for _ in range(12):
        run = work(stage, start(stage))
        ((failures, wait),) = rows_of(stage.mill.project.catalog, "SELECT failures, not_before FROM worker")
        waits.append((failures, wait > 0))
        may_start_again(stage)
        stage.pass_time()
        if run.state == "COMPLETED" and not stage.mill.consumers.lag(dataset="lines")[0].partitions:
            break

    held = stage.mill.consumers.show("lines", "default.shop.look").work
    assert [(work.partition, work.state) for work in held] == [("hour=2", "discarded")]
    assert published(stage) == ["hour=1", "hour=3", "hour=4"]
    assert all(later for _, later in waits)
    assert waits[0] == (1, True)


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ("pass", "what was taken last is not committed"),
        ("run.commit(); run.commit()", "nothing is taken"),
    ],
)
def test_takes_and_commits_out_of_order_are_errors_that_say_so(stage, ending, told):
    """A take that is never committed would silently be returned, again and again."""
    redeploy(stage.mill, app(ending=ending))
    stage.publish("lines", "hour=1")

    run = work(stage, start(stage))

    assert run.state == "FAILED"
    assert told in run.exit_reason


def test_a_conflict_at_the_commit_is_nobodys_failure(stage):
    """The next attempt works on the new state, with the same input; the program's retries are not used up."""
    redeploy(stage.mill, app().replace(".append({", ".overwrite({"))
    stage.publish("lines", "hour=1")
    run = start(stage)
    stage.at["worker.before_commit"] = lambda: stage.publish("sums", "hour=1", op="overwrite")
    stands = work(stage, run)
    again = work(stage, start(stage))

    assert (stands.state, stands.failures, stands.losses) == ("PENDING", 0, 1)
    assert (again.run_id, again.state) == (run.run_id, "COMPLETED")
    assert stage.lines_of() == ["1: [1]", "2: [1]"]


def test_a_worker_waits_until_a_commit(stage):
    """The commit wakes the worker, and the worker asks the catalog only then."""
    redeploy(stage.mill, app(wait="'1h'", ending="run.commit(); break"))
    run = start(stage)
    waits = threading.Event()
    waiter = stage.mill.project.catalog.waiter
    stage.mill.project.catalog.waiter = lambda changes: waits.set() or waiter(changes)
    working = threading.Thread(target=work, args=[stage, run])
    working.start()
    waits.wait(patience(30))
    stage.publish("lines", "hour=7")
    working.join(30)

    assert not working.is_alive()
    assert stage.lines_of() == ["1: [7]"]
    assert stage.find(run.run_id).state == "COMPLETED"


def test_what_a_worker_cannot_be_is_refused_where_it_is_declared(mill):
    """A schedule for it would start one more; no caller gives it arguments; an inbox needs a run."""
    shop = tm.App("other")
    lines = shop.fileset("lines", keys={"hour": "int"})

    @shop.worker(reads=[lines])
    def look(run):
        return run

    with raises_code("bad_declaration", match="needs no schedule"):
        shop.schedule("s", look, trigger=tm.Every("1h"))
    with raises_code("bad_declaration", match="instances"):
        shop.worker(reads=[lines], instances=-1)
    with raises_code("bad_declaration", match="no caller passes it"):
        shop.worker(reads=[lines], arguments={"n": int})(lambda_named("other"))
    text = 'import tidemill as tm\napp = tm.App("shop")\nraw = app.inbox("raw", "landing", format="text")\n'
    text += "@app.worker(reads=[raw])\ndef look(run): pass\n"
    with pytest.raises(UserError, match="a worker reads file sets"):
        redeploy(mill, text)


def lambda_named(name):
    """A function of that name."""

    def code(run):
        return run

    code.__name__ = name
    return code


def test_the_run_of_a_former_worker_is_not_repeated(stage):
    """Retention deletes the input of a worker in parts: a replay could be given the half of it."""
    stage.publish("lines", "hour=1")
    run = work(stage, start(stage))
    plain = "@app.python(reads=[tm.Reads(lines, max_partitions=2)], writes=[sums])"
    head, _, rest = app().partition("@app.worker")
    stage.declare(head + plain + rest[rest.index("\n") :])

    with raises_code("missing_input", "all that a worker has taken"):
        stage.mill.runs.replay(run.run_id)
