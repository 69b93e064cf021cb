"""A program that runs after another one (seed 001, story 4), and the cost of ends that no schedule listens to."""

from __future__ import annotations

import pytest

from tidemill.catalog.messages import Publish, Topic
from tidemill.json_specs import read_plain, write_plain
from tidemill.names import BadName, EventKey
from tidemill.run.records.programs import find_program_by_id, retire_programs
from tidemill.run.records.runs import RunState
from tidemill.run.step.attempts import announce_end
from tidemill.schedule import trigger_json  # noqa: F401  # declares the JSON of triggers
from tidemill.schedule.changes import Delete, check_trigger
from tidemill.schedule.data_triggers import NewPartitions
from tidemill.schedule.program_triggers import RunEnded
from tidemill.schedule.specs import BadSchedule
from tidemill.schedule.triggers import BadTrigger, Trigger


def ended(shop, state: str = "COMPLETED", program: str = "ingest") -> int:
    """Commit the message of a run that has ended."""
    key = EventKey(f"program:default.shop.{program}:{state}")
    payload = {"program": f"default.shop.{program}", "run_id": "run_1", "state": state, "arguments": {}}
    return shop.catalog.apply([Publish(Topic.PROGRAM, "run_ended", key, payload)])


def test_b_runs_after_a_has_completed(shop):
    """By the message that the commit of the run itself publishes."""
    ingest, report = shop.program("ingest"), shop.program("report")
    shop.schedule(NewPartitions("clicks"), name="a", program=ingest)
    shop.schedule(RunEnded("shop.ingest"), name="b", program=report)
    shop.add()
    (first,) = shop.step()
    program = shop.catalog.read(lambda db: find_program_by_id(db, ingest))
    shop.catalog.apply([announce_end(shop.run(first), program, RunState.COMPLETED)])

    (second,) = shop.step()

    assert shop.run(second).program_id == report
    assert second.why == "1/1 runs of default.shop.ingest ended COMPLETED"


@pytest.mark.parametrize(
    ("trigger", "states", "launches"),
    [
        (RunEnded("shop.ingest"), ["FAILED", "KILLED"], 0),
        (RunEnded("shop.ingest", "FAILED"), ["COMPLETED", "FAILED"], 1),
        (RunEnded("shop.ingest", ["FAILED", "KILLED"]), ["FAILED", "COMPLETED", "KILLED"], 2),
        (RunEnded("shop.ingest", n=3), ["COMPLETED"] * 5, 1),
        (RunEnded("shop.ingest", n=3), ["COMPLETED"] * 6, 2),
    ],
)
def test_only_the_states_that_are_named_count(shop, trigger, states, launches):
    """B does not run if A has failed; a program that cleans up runs only then."""
    shop.program("ingest")
    shop.schedule(trigger, name="b", program=shop.program("report"))
    seen = []
    for state in states:
        ended(shop, state)
        seen += shop.step()

    assert len(seen) == launches


def test_data_and_the_end_of_its_run_are_one_step_of_the_scheduler(shop):
    """A commit often publishes both: two transactions for them would double the cost of each run."""
    shop.program("ingest")
    shop.schedule(NewPartitions("clicks") & RunEnded("shop.ingest"), name="b", program=shop.program("report"))
    blocks = []
    shop.at_mark = lambda name: blocks.append(name) if name == "subscriber.before_commit" else None
    key = EventKey("program:default.shop.ingest:COMPLETED")
    shop.catalog.apply(
        [
            Publish(Topic.DATA, "partitions", EventKey("partition:default.clicks"), {"count": 1}),
            Publish(Topic.PROGRAM, "run_ended", key, {}),
        ]
    )

    (launch,) = shop.step()

    assert blocks == ["subscriber.before_commit"]
    assert [len(one["messages"]) for one in shop.run(launch).triggered_by["triggers"]] == [1, 1]


def test_ends_of_runs_that_no_schedule_waits_for_cost_the_scheduler_nothing(shop):
    """Most sites trigger by data alone: then the topic of programs has no reader and no position."""
    shop.schedule(NewPartitions("clicks"))
    ended(shop)

    assert shop.step() == []
    assert shop.sql("SELECT topic FROM subscriber WHERE topic = 'program'") == []


def test_the_first_listener_begins_where_it_is_made(shop):
    """The history of the topic is not read, and an end before the schedule starts nothing."""
    shop.program("ingest")
    for _ in range(3):
        ended(shop)
    schedule = shop.schedule(RunEnded("shop.ingest"), name="b", program=shop.program("report"))
    (position,) = shop.sql("SELECT seq FROM subscriber WHERE topic = 'program'")
    nothing = shop.step()
    shop.change(Delete(schedule.schedule_id))
    ended(shop)
    again = shop.schedule(RunEnded("shop.ingest"), name="b", program=shop.program("report"))
    (moved,) = shop.sql("SELECT seq FROM subscriber WHERE topic = 'program'")
    ended(shop)

    assert position == (schedule.since_seq - 1,)
    assert moved == (again.since_seq - 1,)
    assert nothing == []
    assert len(shop.step()) == 1


def test_a_second_listener_does_not_move_the_position_of_the_first(shop):
    """An end that the scheduler has not read yet must still start the program of the first."""
    shop.program("ingest")
    shop.schedule(RunEnded("shop.ingest"), name="b", program=shop.program("report"))
    ended(shop)
    shop.schedule(RunEnded("shop.ingest"), name="c", program=shop.program("other"))

    assert len(shop.step()) == 1


def test_programs_that_start_each_other_for_ever_are_refused(shop):
    """Nothing of the change is stored."""
    one, two, three = shop.program("one"), shop.program("two"), shop.program("three")
    shop.schedule(RunEnded("shop.one"), name="b", program=two)
    shop.schedule(RunEnded("shop.two") | RunEnded("shop.zero"), name="c", program=three)

    with pytest.raises(BadSchedule, match="for ever") as refused:
        shop.schedule(RunEnded("shop.three", n=2), name="a", program=one)
    with pytest.raises(BadSchedule, match=r"^schedule is refused: default.shop.one would start"):
        shop.schedule(RunEnded("shop.one", "FAILED"), name="a", program=one)
    with pytest.raises(BadSchedule, match="for ever"):
        shop.schedule(RunEnded("shop.one") & RunEnded("shop.two"), name="a", program=one)

    assert "default.shop.a (RunEnded(default.shop.three, n=2))" in str(refused.value)
    assert len(shop.sql("SELECT name FROM schedule")) == 2


def test_a_cycle_with_data_in_it_is_no_cycle(shop):
    """The chain ends when no data comes."""
    one, two = shop.program("one"), shop.program("two")
    shop.schedule(RunEnded("shop.one"), name="b", program=two)

    shop.schedule(RunEnded("shop.two") & NewPartitions("clicks"), name="a", program=one)
    shop.schedule(RunEnded("shop.two") & RunEnded("shop.load"), name="c", program=one)

    assert len(shop.sql("SELECT name FROM schedule")) == 3


def test_a_program_that_is_not_there_or_retired_is_refused(shop):
    """The schedule would wait for ever."""
    program_id = shop.program("ingest")
    program = shop.catalog.read(lambda db: find_program_by_id(db, program_id))

    def check(name: str) -> None:
        shop.catalog.read(lambda db: check_trigger(db, "b", program, RunEnded(name)))

    check("shop.ingest")
    with pytest.raises(Exception, match="ingest"):
        check("shop.ingst")
    shop.catalog.write(lambda db: retire_programs(db, "default", "shop", []))
    with pytest.raises(Exception, match="retired"):
        check("shop.ingest")


@pytest.mark.parametrize(
    "make",
    [
        lambda: RunEnded("shop.ingest", "DONE"),
        lambda: RunEnded("shop.ingest", []),
        lambda: RunEnded("shop.ingest", ["FAILED", "FAILED"]),
        lambda: RunEnded("shop.ingest", n=0),
        lambda: RunEnded("shop.ingest", n=True),
        lambda: RunEnded(len),
        lambda: RunEnded("ingest"),
    ],
)
def test_a_wrong_declaration_is_refused_when_it_is_made(make):
    """With the field and what is allowed."""
    with pytest.raises((BadTrigger, BadName)):
        make()


def test_the_json_of_the_trigger_is_read_back():
    """As the catalog keeps it, and as people write it."""
    trigger = RunEnded("shop.ingest", ["FAILED", "KILLED"], n=2)

    assert read_plain(Trigger, write_plain(trigger)) == trigger
    assert read_plain(Trigger, {"type": "run_ended", "program": "shop.ingest"}) == RunEnded("shop.ingest")
