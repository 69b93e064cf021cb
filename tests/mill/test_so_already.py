"""A change that happens to be so already succeeds, with `changed` false, and leaves no row in the audit log."""

from __future__ import annotations

from contextlib import ExitStack, suppress

import pytest

import tidemill as tm
from tests.app.test_audited_operations import APP, PLAYS, Play, land
from tests.stage import Stage, staged
from tidemill import TidemillError
from tidemill.mill.operation import Right
from tidemill.mill.operations import OPERATIONS
from tidemill.run.processes.external import open_transaction

MADE_BEFORE = """
app.schedule("pairs", look, trigger=tm.NewPartitions(lines, 2))
"""
open_ones = ExitStack()


def wait(stage: Stage) -> str:
    """Have a job that waits for a second partition."""
    stage.publish("lines", "hour=1")
    stage.schedule()
    (job,) = [one for one in stage.mill.jobs.list() if one.schedule.endswith("pairs")]
    return job.job_id


def silence(stage: Stage) -> None:
    """Have a rule that is silent."""
    stage.mill.alerts.create("mine", tm.RunFailed())
    stage.mill.alerts.silence("mine", duration="1h")


def begin(stage: Stage) -> int:
    """Begin a transaction that no process of the test commits."""
    tx = open_ones.enter_context(open_transaction(stage.mill.project.catalog, stage.world, ["default.plain"]))
    return int(tx.write_pointer)


FLAGGED = {
    "alert.acknowledge": PLAYS["alert.acknowledge"],
    "alert.silence": Play("default.mine", silence, lambda mill, _: mill.alerts.silence("mine")),
    "alert.update": PLAYS["alert.update"],
    "app.deploy": PLAYS["app.deploy"],
    "backfill.cancel": PLAYS["backfill.cancel"],
    "backfill.pause": PLAYS["backfill.pause"],
    "backfill.resume": PLAYS["backfill.resume"],
    "deploy": Play("default.shop", lambda stage: stage.mill.apps.delete("shop"), lambda mill, _: mill.deploy()[0]),
    "job.drop": Play("", wait, lambda mill, job_id: mill.jobs.drop(job_id)),
    "job.force": Play("", wait, lambda mill, job_id: mill.jobs.force(job_id)),
    "node.drain": PLAYS["node.drain"],
    "run.kill": Play(
        "",
        lambda stage: stage.mill.runs.start("shop.look").run_id,
        lambda mill, run_id: mill.runs.kill(run_id),
    ),
    "schedule.resume": Play(
        "default.shop.look",
        lambda stage: stage.mill.schedules.suspend("shop.look"),
        lambda mill, _: mill.schedules.resume("shop.look"),
    ),
    "schedule.suspend": Play("default.shop.look", lambda _: None, lambda mill, _: mill.schedules.suspend("shop.look")),
    "schedule.update": Play(
        "default.shop.look", lambda _: None, lambda mill, _: mill.schedules.update("shop.look", priority=3)
    ),
    "token.revoke": PLAYS["token.revoke"],
    "tx.abort": Play("", begin, lambda mill, pointer: mill.transactions.abort(pointer)),
    "watermark.advance": PLAYS["watermark.advance"],
}
"""Changes of a state, which may be so already."""
COUNTED = {
    "consumer.requeue": "requeued",
    "dataset.add": "partitions",
    "dataset.adopt": "partitions",
    "dataset.compact": "the list of partitions is empty",
    "dataset.drop": "the list of partitions is empty",
    "dataset.expire": "the list of partitions is empty",
    "inbox.ignore": "ignored",
    "inbox.release": "released",
    "inbox.scan": "found",
    "schedule.resume_suspended": "the list of schedules is empty",
    "schedule.suspend_all": "the list of schedules is empty",
}
"""Changes of all that fits, whose records count it."""
MADE_EACH_TIME = {
    "app.rollback": "returns to the previous code each time",
    "backfill.start": "makes a backfill",
    "consumer.reset": "moves the position to a moment, and drops what waits",
    "dataset.describe": "commits a change of the partition",
    "hook.fire": "`again` says that the delivery had come before",
    "inbox.retry": "makes the next attempt due now",
    "run.replay": "makes a run",
    "run.retry": "makes a run",
    "run.start": "makes a run",
    "snapshot.rollback": "makes a version",
    "sql": "says of each statement what it did",
    "topic.publish": "makes a message",
    "watermark.reset": "has windows computed again",
    "catalog.adopt": "says how many files it adopted",
    "catalog.move": "works on a catalog beside the server",
    "catalog.restore": "works on a catalog beside the server",
    "inbox.get_latest_files": "makes a claim",
    "inbox.renew_claim": "moves the end of the claim",
}
REFUSED = {
    "alert.create": "there is a rule of that name",
    "alert.delete": "not found",
    "app.delete": "not found",
    "backfill.retry": "no item has failed",
    "consumer.drop": "not found",
    "inbox.reprocess": "no run has processed the file since",
    "inbox.release_claim": "the claim has ended",
    "inbox.update_file_status": "the claim does not hold the files",
    "schedule.create": "there is a schedule of that name",
    "schedule.create_many": "there is a schedule of that name",
    "schedule.delete": "not found",
    "schedule.delete_many": "not found",
    "snapshot.expire": "the version has expired",
    "token.create": "there is a token of that name",
    "topic.delete": "not found",
    "watermark.rewind": "the watermark is not ahead of that time",
}
"""A second one would be another thing, or the thing is not there: the caller has to know."""
UNKEPT = {
    "alert.retry": "begins the tries of a dead delivery again",
    "inbox.events": "looks at the files again",
    "subscriber.acknowledge": "moves the position, from the expected one only",
    "subscriber.create": "an equal subscriber stays as it is",
    "subscriber.delete": "not found",
    "subscriber.reset": "moves the position",
    "topic.create": "an equal topic stays as it is",
    "topic.update": "an equal time to live stays as it is",
    "tx.begin": "begins another transaction",
    "tx.commit": "the same commit again has the same answer",
    "consumer.take": "takes other partitions",
    "tx.fail": "the same failure again has the same answer",
    "tx.renew": "moves the end of the lease",
}
"""Changes for systems outside, whose own tests repeat them."""
NO_CHANGE = {"app.plan", "plan", "token.list", "catalog.backup", "consumer.consume_partitions"}


@pytest.fixture
def stage(catalog_url, tmp_path):
    """A project with a schedule whose job waits."""
    with staged(tmp_path, catalog_url, f"{APP}{MADE_BEFORE}") as made:
        yield made
        with suppress(TidemillError):  # the transaction was aborted
            open_ones.close()


def test_each_change_says_what_a_repetition_does():
    """An operation that is added without a decision is found here."""
    changes = {one.action for one in OPERATIONS if one.right is not Right.READ} - NO_CHANGE

    assert changes == {*FLAGGED, *COUNTED, *MADE_EACH_TIME, *REFUSED, *UNKEPT}
    assert len(changes) == sum(map(len, (FLAGGED, COUNTED, MADE_EACH_TIME, REFUSED, UNKEPT)))


def test_each_record_of_a_state_has_the_flag():
    """Clients find it under one name."""
    for one in OPERATIONS:
        if one.action in FLAGGED:
            record = Stage if one.action == "deploy" else one.returns
            assert record is Stage or "changed" in record.__dataclass_fields__, one.action


@pytest.mark.parametrize("action", FLAGGED)
def test_a_repeated_change_changes_nothing(stage, action):
    """200 with `"changed": false`, by REST; and one row of audit for the first, none for the second."""
    play = FLAGGED[action]
    prepared = play.prepare(stage)
    before = len(stage.mill.audit.log())
    first = play.act(stage.mill, prepared)
    between = len(stage.mill.audit.log())
    second = play.act(stage.mill, prepared)

    assert (first.changed, second.changed) == (True, False)
    assert between == before + 1
    # Each deployment has its row, also one that finds nothing to do: its code may be of another machine.
    assert len(stage.mill.audit.log()) == between + (action in {"deploy", "app.deploy"})


@pytest.mark.parametrize("action", sorted(COUNTED.keys() & PLAYS.keys()))
def test_a_repeated_change_of_all_that_fits_counts_nothing(stage, action):
    """The second answer is an empty list, or a count of 0."""
    play = PLAYS[action]
    prepared = play.prepare(stage)
    if action == "consumer.requeue":
        stage.mill.consumers.requeue("lines", "default.shop.look")
        again = stage.mill.consumers.requeue("lines", "default.shop.look")
    else:
        play.act(stage.mill, prepared)
        again = play.act(stage.mill, prepared)
    counted = again if isinstance(again, list | tuple) else getattr(again, COUNTED[action])

    assert not counted


@pytest.mark.parametrize("action", ["job.drop", "job.force"])
def test_a_job_that_ended_in_another_way_is_a_conflict(stage, action):
    """A dropped job has no run to show, and a launched one cannot be dropped."""
    job_id = wait(stage)
    other = "job.force" if action == "job.drop" else "job.drop"
    FLAGGED[other].act(stage.mill, job_id)

    with pytest.raises(TidemillError) as refused:
        FLAGGED[action].act(stage.mill, job_id)
    assert refused.value.code == "job_ended"


def test_a_committed_transaction_and_a_watermark_beyond_stay(stage):
    """`changed` is false, or the error says why; never a change."""
    stage.publish("days", "day=2020-01-01")
    newest = stage.mill.transactions.list()[0].write_pointer
    land(stage, "NEW")

    assert (stage.mill.transactions.abort(newest).state, stage.mill.transactions.abort(newest).changed) == (
        "committed",
        False,
    )
    stage.mill.watermarks.advance("days", "2020-01-05 00:00")
    with pytest.raises(TidemillError) as refused:
        stage.mill.watermarks.advance("days", "2020-01-04 00:00")
    assert refused.value.code == "watermark_passed"
