"""Choice of a program among its partitions: by a filter, by an acceptor, by returning them."""

from __future__ import annotations

import pytest

from tests.stage import staged

APP = """
from pathlib import Path
import tidemill as tm

HERE = Path(__file__).parent
app = tm.App("shop")
lines = app.fileset("lines", keys={{"hour": "int"}})


def say(text):
    with (HERE / "said.txt").open("a") as said:
        said.write(f"{{text}}\\n")


def accept(partition):
    hour = partition.key["hour"]
    say(f"asked {{hour}} {{partition.kind}} {{partition.rows}}")
    answers = (HERE / "answers").read_text().split()
    return {{"a": tm.Accept.ACCEPT, "s": tm.Accept.SKIP, "x": tm.Accept.STOP, "?": None}}[answers[hour]]


@app.python(reads=[{reads}], backoff="10s")
def report(run):
    taken = run.input(lines)
    say("got " + " ".join(str(p["hour"]) for p in taken.partitions))
    for hour in (HERE / "back").read_text().split() if (HERE / "back").exists() else []:
        taken.return_partitions({{"hour": int(hour)}})
        say("left " + " ".join(str(p["hour"]) for p in run.input(lines).partitions))


app.schedule("report", report, trigger=tm.NewPartitions(lines))
"""


@pytest.fixture
def stage(tmp_path, catalog_url):
    """The project, whose program has an acceptor."""
    with staged(tmp_path, catalog_url, APP.format(reads="tm.Reads(lines, accept=accept)")) as stage:
        yield stage


def answer(stage, answers):
    """Answer of the acceptor for each hour."""
    (stage.mill.project.config.folder / "answers").write_text(answers)


def got(stage):
    """Deliveries to the program, run by run."""
    return [line.removeprefix("got ") for line in stage.lines_of() if line.startswith("got")]


def test_an_acceptor_is_asked_of_each_and_what_it_skips_comes_again_later(stage):
    """A skip is no failure, and has a wait: a program that skips everything would start again and again."""
    answer(stage, "a s a")
    stage.publish("lines", "hour=0", "hour=1", "hour=2")
    runs = stage.play()
    (lag,) = stage.mill.consumers.lag()
    answer(stage, "a a a")
    stage.pass_time()
    later = stage.play()

    assert [line for line in stage.lines_of() if line.startswith("asked")][:3] == [
        "asked 0 new 1",
        "asked 1 new 1",
        "asked 2 new 1",
    ]
    assert got(stage) == ["0 2", "1"]
    assert lag.partitions == 1
    assert [run.state for run in (*runs, *later)] == ["COMPLETED"] * 2
    assert [run.failures for run in (*runs, *later)] == [0, 0]


def test_what_an_acceptor_stops_at_goes_to_the_next_run_at_once(stage):
    """With all behind it, which is not asked about; as long as there is progress nothing waits."""
    answer(stage, "a a x a")
    stage.publish("lines", *(f"hour={hour}" for hour in range(4)))
    stage.schedule()
    stage.work()
    answer(stage, "a a a a")
    stage.play()

    assert got(stage) == ["0 1", "2 3"]
    assert "asked 3 new 1" not in stage.lines_of()[:3]


@pytest.mark.parametrize("answers", ["s s", "x x"])
def test_a_run_that_accepts_nothing_ends_without_calling_the_program(stage, answers):
    """And does not start the next one at once, for ever."""
    answer(stage, answers)
    stage.publish("lines", "hour=0", "hour=1")

    (run,) = stage.play()

    assert (run.state, run.exit_reason) == ("COMPLETED", "no_input")
    assert got(stage) == []
    assert stage.mill.consumers.lag()[0].partitions == 2


def test_an_acceptor_that_answers_something_else_fails_its_run(stage):
    """None, say, for a function that forgot to return: taking that for yes or no would lose or repeat work."""
    answer(stage, "a ?")
    stage.publish("lines", "hour=0", "hour=1")

    (run,) = stage.play()

    assert run.state == "FAILED"
    assert "Accept.ACCEPT, Accept.SKIP or Accept.STOP, not None" in run.exit_reason
    assert got(stage) == []


def test_what_a_program_returns_is_not_completed_and_comes_later(stage):
    """The rest is; and it is not there any more for the program."""
    answer(stage, "a a a")
    (stage.mill.project.config.folder / "back").write_text("1")
    stage.publish("lines", "hour=0", "hour=1", "hour=2")
    stage.play()
    (stage.mill.project.config.folder / "back").write_text("")
    stage.pass_time()
    stage.play()

    assert [line for line in stage.lines_of() if not line.startswith("asked")] == ["got 0 1 2", "left 0 2", "got 1"]
    assert stage.mill.consumers.show("lines", "default.shop.report").work == ()


def test_returning_what_was_not_taken_is_an_error_that_names_it(stage):
    """Twice the same, for instance."""
    answer(stage, "a")
    (stage.mill.project.config.folder / "back").write_text("0 0")
    stage.publish("lines", "hour=0")

    (run,) = stage.play()

    assert run.state == "FAILED"
    assert "does not have hour=0 of default.lines" in run.exit_reason


def test_a_filter_passes_over_what_is_not_wanted_for_good(tmp_path, catalog_url):
    """Such partitions start no run. The next take leaves them out, and they are no backlog."""
    reads = 'tm.Reads(lines, where={"hour": tm.Range(2, 4)})'
    with staged(tmp_path, catalog_url, APP.format(reads=reads)) as stage:
        stage.publish("lines", "hour=0", "hour=1")
        alone = stage.play()
        stage.publish("lines", *(f"hour={hour}" for hour in range(2, 6)))
        stage.play()

        assert alone == []
        assert got(stage) == ["2 3"]
        assert stage.mill.consumers.lag()[0].partitions == 0
        assert stage.mill.catalog.audit().clean


@pytest.mark.parametrize(
    ("where", "told"),
    [('{"our": 1}', "did you mean 'hour'"), ('{"hour": "x"}', "hour"), ('{"hour": []}', "set without")],
)
def test_a_filter_that_fits_no_key_is_refused_at_deployment(tmp_path, catalog_url, where, told):
    """Such a filter would silently accept nothing."""
    with (
        pytest.raises(Exception, match=told),
        staged(tmp_path, catalog_url, APP.format(reads=f"tm.Reads(lines, where={where})")),
    ):
        pass
