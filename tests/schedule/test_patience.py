"""Triggers that wait for a time: the scheduler looks when the time comes, without another message."""

from __future__ import annotations

from tidemill.schedule.data_triggers import NewFiles, NewPartitions
from tidemill.schedule.triggers import AllOf, Silence


def test_a_patient_schedule_starts_after_the_wait_with_what_is_there(shop):
    """Seed 001, story 8: a join of two inputs of which one has nothing new."""
    shop.schedule(AllOf(NewFiles("raw"), NewPartitions("clicks"), patience="2h"))
    shop.add(partitions=3)
    at_once = shop.step()
    shop.clock.move("1h59m")
    early = shop.step()
    shop.clock.move("1m")

    (launch,) = shop.step()

    (fed,) = shop.run(launch).triggered_by["triggers"]
    assert at_once == early == []
    assert (fed["type"], fed["count"]) == ("new_partitions", 3)
    assert "2h have passed since the first" in launch.why


def test_the_patience_of_the_next_job_begins_with_its_own_first_message(shop):
    """A wait that had begun before a launch must not shorten the next one."""
    shop.schedule(AllOf(NewFiles("raw"), NewPartitions("clicks"), patience="2h"))
    shop.add()
    shop.clock.move("1h")
    shop.publish("file:default.raw")
    (both,) = shop.step()
    shop.end(both.run_id)
    shop.add()
    shop.step()
    shop.clock.move("1h59m")
    early = shop.step()
    shop.clock.move("1m")

    late = shop.step()

    assert early == []
    assert len(late) == 1


def test_a_delivery_in_parts_starts_one_run_after_the_last_part(shop):
    """Seed 001, story 9: only after all data has arrived."""
    shop.schedule(Silence(NewPartitions("clicks", 2), "10m"))
    launches = []
    for _ in range(5):
        shop.add()
        launches += shop.step()
        shop.clock.move("9m")
    launches += shop.step()
    shop.clock.move("1m")

    (launch,) = shop.step()

    assert launches == []
    assert shop.run(launch).triggered_by["triggers"][0]["count"] == 5


def test_files_are_counted_in_bytes(shop):
    """Seed 001, story 10: enough data, quantified in megabytes."""
    shop.schedule(NewFiles("raw", bytes="10 MB"))
    shop.publish("file:default.raw", 3, bytes=9_999_999)
    before = shop.step()
    shop.publish("file:default.raw", 1, bytes=1)

    (launch,) = shop.step()

    assert before == []
    assert launch.why == "10.0 MB/10.0 MB new bytes of files of default.raw"
