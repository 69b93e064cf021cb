"""The audit log: each change that a caller asks for has one row, written by the transaction of the change."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import date

import pytest

from tests.errors import raises_code
from tests.run.conftest import rows_of
from tidemill import Every, Mill, RunFailed, TidemillError, WebHook
from tidemill.catalog.messages import Publish, Topic
from tidemill.names import EventKey
from tidemill.roles.janitor import Janitor
from tidemill.run.processes.external import open_transaction
from tidemill.run.step import attempts
from tidemill.run.step.attempts import end_attempt
from tidemill.run.step.outputs import Dropped
from tidemill.schedule.subscriber import subscribe


@pytest.fixture
def deployed(mill):
    """The project with its app, whose changes Ann makes."""
    acting = mill.acting_as("ann@desk")
    acting.deploy()
    return acting


def actions(mill: Mill) -> list[tuple[str, str]]:
    """Return action and subject of each entry, sorted: ids of one millisecond are in no order."""
    return sorted((entry.action, entry.subject) for entry in mill.audit.log())


def announce_partition(mill: Mill) -> str:
    """Announce a new partition, and return the id of the job that waits for more."""
    key = EventKey("partition:default.clean")
    mill.project.catalog.apply([Publish(Topic.DATA, "partitions", key, {"count": 1})])
    subscribe(mill.project.catalog, mill.project.world)
    (job,) = mill.jobs.list()
    return job.job_id


def test_each_change_has_one_row_with_its_actor(deployed):
    """An operator has to find out afterwards what happened to a schedule, and by which person."""
    deployed.schedules.suspend("shop.on_orders")
    deployed.schedules.suspend("shop.on_orders")
    deployed.schedules.resume("shop.on_orders")
    deployed.schedules.resume("shop.on_orders")
    deployed.schedules.create("shop.often", "shop.report", trigger=Every("1h"))
    deployed.schedules.update("shop.often", priority=3)
    deployed.schedules.delete("shop.often")
    run_id = deployed.runs.start("shop.report").run_id
    deployed.runs.kill(run_id)
    deployed.runs.kill(run_id)
    retry_id = deployed.runs.retry(run_id).run_id
    deployed.topics.publish("own", key="door")
    deployed.consumers.reset("clean", "default.shop.report", "now")
    deployed.sql("CREATE TABLE drops (day DATE) PARTITIONED BY (day)")
    deployed.apps.delete("shop")

    assert actions(deployed) == sorted(
        [
            ("deploy", "default.shop"),
            ("schedule.suspend", "default.shop.on_orders"),
            ("schedule.resume", "default.shop.on_orders"),
            ("schedule.create", "default.shop.often"),
            ("schedule.update", "default.shop.often"),
            ("schedule.delete", "default.shop.often"),
            ("run.start", "default.shop.report"),
            ("run.kill", run_id),
            ("run.retry", run_id),
            ("topic.publish", "own"),
            ("consumer.reset", "default.clean default.shop.report"),
            ("sql", "default.drops"),
            ("app.delete", "default.shop"),
        ]
    )
    (newest,) = deployed.audit.log(subject=run_id, limit=1)
    (older,) = deployed.audit.log(subject=run_id, after=newest.audit_id)
    details = {entry.action: (entry.actor, entry.detail) for entry in (newest, older)}
    killed = {"before": {"state": "PENDING"}, "after": {"state": "KILLED"}}
    assert details == {"run.kill": ("ann@desk", killed), "run.retry": ("ann@desk", {"run_id": retry_id})}


def test_jobs_that_a_person_forces_or_drops_have_their_rows(deployed):
    """A run that nothing triggered needs a name beside it."""
    deployed.schedules.resume("shop.on_clean")
    forced = announce_partition(deployed)
    deployed.jobs.force(forced)
    dropped = announce_partition(deployed)
    deployed.jobs.drop(dropped)

    assert {("job.force", forced), ("job.drop", dropped)} <= set(actions(deployed))


def test_an_aborted_transaction_has_its_row(deployed):
    """The transaction of another room ends it, and takes the row along."""
    with pytest.raises(TidemillError), open_transaction(deployed.project.catalog, deployed.project.world, []) as tx:
        deployed.transactions.abort(tx.write_pointer)

    assert ("tx.abort", str(tx.write_pointer)) in actions(deployed)


def test_an_abort_that_a_commit_has_overtaken_has_no_row(deployed, monkeypatch):
    """A row without its change: the transaction has committed after the look of the caller that aborts it."""
    catalog, world = deployed.project.catalog, deployed.project.world
    with ExitStack() as ending:
        tx = ending.enter_context(open_transaction(catalog, world, []))

        def commit_first(*given: object) -> object:
            ending.close()
            return end_attempt(*given)

        monkeypatch.setattr("tidemill.run.step.attempts.end_attempt", commit_first)
        state = deployed.transactions.abort(tx.write_pointer).state

    assert state == "committed"
    assert "tx.abort" not in {action for action, _ in actions(deployed)}


def test_a_drop_that_finds_nothing_any_more_has_no_row(deployed, monkeypatch):
    """Two people drop the same partition: the row of the second would name what the first one dropped."""
    gone = Dropped("day=2026-01-01", {"day": date(2026, 1, 1)}, 1, 1, 1)
    monkeypatch.setattr("tidemill.run.processes.partitions.list_matching", lambda *_: [gone])

    assert deployed.datasets.drop("clean", {"day": date(2026, 1, 1)}) == []
    assert "dataset.drop" not in {action for action, _ in actions(deployed)}


def test_an_accepted_empty_folder_has_its_row_once(deployed, project):
    """A scan does what listing does by itself, but to accept an empty folder is the decision of a person."""
    folder = project / "landing" / "orders"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "a.csv").write_text("1,2.5\n", encoding="utf-8")
    deployed.inboxes.scan("orders")
    folder.rename(project / "landing" / "before")
    folder.mkdir()

    with raises_code("storage_unavailable"):
        deployed.inboxes.scan("orders", reconcile=True)
    assert "inbox.scan" not in {action for action, _ in actions(deployed)}
    for _ in range(2):
        deployed.inboxes.scan("orders", reconcile=True, accept_empty=True)

    assert actions(deployed).count(("inbox.scan", "default.orders")) == 1


def test_the_janitor_deletes_old_rows_alone(deployed):
    """The log would grow for as long as the catalog lives."""
    deployed.topics.publish("own", key="door")
    rows_of(deployed.project.catalog, "UPDATE audit SET at = 1 WHERE action = 'deploy' RETURNING 1")

    Janitor(deployed.project.catalog).step()

    assert actions(deployed) == [("topic.publish", "own")]


def test_arguments_are_not_in_the_audit_log(deployed):
    """Arguments may be secrets, and nothing deletes rows of the audit log."""
    deployed.runs.start("shop.load", {"limit": 71_077})
    deployed.schedules.update("shop.on_orders", arguments={"limit": 71_077})

    assert "71077" not in repr(deployed.audit.log())
    (changed,) = deployed.audit.log(subject="default.shop.on_orders")
    assert changed.detail == {"before": {"arguments": []}, "after": {"arguments": ["limit"]}}


def test_a_row_has_what_was_there_before(deployed):
    """A change that was a mistake can be taken back by its row alone."""
    deployed.schedules.suspend("shop.on_orders", mode="hold")
    deployed.schedules.suspend("shop.on_orders", mode="drop")
    deployed.schedules.resume("shop.on_orders")
    deployed.schedules.update("shop.on_orders", priority=3, description="late", arguments={"limit": 71_077})

    # Ids of one millisecond are in no order.
    entries = list(deployed.audit.log(subject="default.shop.on_orders"))
    states = [(one.detail["before"], one.detail["after"]) for one in entries if one.action != "schedule.update"]
    assert sorted((str(old["mode"]), str(new["mode"]), new["status"]) for old, new in states) == [
        ("None", "hold", "SUSPENDED"),
        ("drop", "None", "SCHEDULED"),
        ("hold", "drop", "SUSPENDED"),
    ]
    (changed,) = [one.detail for one in entries if one.action == "schedule.update"]
    assert changed["before"] == {"arguments": [], "description": "", "priority": 0}
    assert changed["after"] == {"arguments": ["limit"], "description": "late", "priority": 3}


def test_what_was_deleted_stands_whole_in_its_row(deployed):
    """A schedule or rule of ops stands in no app file: the row alone can bring it back."""
    deployed.schedules.create("shop.often", "shop.load", trigger=Every("1h"), arguments={"limit": 71_077})
    deployed.schedules.delete("shop.often")
    deployed.alerts.create("mine", RunFailed("shop.load", times=2), to=[WebHook("https://a.example/canary")])
    deployed.alerts.delete("mine")

    entries = list(deployed.audit.log())
    details = {one.action: one.detail for one in entries}
    made, gone = details["schedule.create"]["after"], details["schedule.delete"]["before"]
    assert made.items() <= gone.items()
    assert {name: made[name] for name in ("program", "status", "trigger", "arguments")} == {
        "program": "default.shop.load",
        "status": "SCHEDULED",
        "trigger": {"type": "every", "duration": "1h"},
        "arguments": ["limit"],
    }
    rule = {"type": "run_failed", "program": "default.shop.load", "times": 2}
    told = {"rule": rule, "to": ["WebHook a.example"], "repeat": None, "description": ""}
    assert (details["alert.create"]["before"], details["alert.create"]["after"]) == (None, told)
    assert (details["alert.delete"]["before"], details["alert.delete"]["after"]) == (told, None)
    assert "canary" not in repr(entries)
    assert "71077" not in repr(entries)


def test_a_deployment_tells_its_versions_and_how_much_it_has_changed(deployed, project):
    """A row answers with numbers; the history of the app has the details."""
    file = project / "app.py"
    file.write_text(f'{file.read_text()}\nmore = app.fileset("more", keys={{"day": "date"}})\n', encoding="utf-8")
    deployed.deploy()
    deployed.apps.rollback("shop")
    deployed.apps.delete("shop")

    entries = {}
    for one in deployed.audit.log(subject="default.shop"):
        entries.setdefault(one.action, []).append(one.detail)
    first, second = sorted(entries["deploy"], key=lambda one: one["after"]["version"])
    assert (first["before"], first["after"]) == (None, {"version": 1})
    assert (second["before"], second["after"]) == ({"version": 1}, {"version": 2})
    assert second["changes"] == {"add": {"data set": 1}, "change": {"app": 1}}
    (back,) = entries["app.rollback"]
    assert (back["before"], back["after"], back["to"]) == ({"version": 2}, {"version": 3}, 1)
    (gone,) = entries["app.delete"]
    assert (gone["before"]["version"], gone["after"]) == (3, None)


def test_a_kill_says_the_state_that_it_has_ended(deployed, monkeypatch):
    """The run went on between the look and the kill: the row has the state that the kill has found."""
    run_id = deployed.runs.start("shop.report").run_id
    catalog = deployed.project.catalog
    rows_of(catalog, "UPDATE run SET state = 'STARTING', epoch = 1 RETURNING 1")

    def look(*given: object) -> object:
        if given[-1] == "KILLED":  # behind the look, and before the block that asks
            rows_of(catalog, "UPDATE run SET state = 'RUNNING' RETURNING 1")
        return tell(*given)

    tell = attempts._noted
    monkeypatch.setattr(attempts, "_noted", look)
    deployed.runs.kill(run_id)

    (entry,) = [one for one in deployed.audit.log(subject=run_id) if one.action == "run.kill"]
    assert entry.detail == {"before": {"state": "RUNNING"}, "after": {"state": "STOPPING"}}


def test_two_suspends_at_one_moment_have_one_row(deployed):
    """The tick makes the second wait for the first: it finds the schedule suspended."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: deployed.schedules.suspend("shop.on_orders"), range(8)))

    assert actions(deployed).count(("schedule.suspend", "default.shop.on_orders")) == 1


def test_a_change_that_is_refused_has_no_row(deployed):
    """A row without its change accuses a person of something that never happened."""
    before = actions(deployed)

    with raises_code("schedule_exists"):
        deployed.schedules.create("shop.on_orders", "shop.load", trigger=Every("1h"))

    assert actions(deployed) == before


def test_a_change_whose_row_cannot_be_written_does_not_happen(deployed):
    """No change may pass by the audit log."""
    deployed.project.catalog.run_script("ALTER TABLE audit RENAME TO elsewhere", unless=99)

    for change in (
        lambda: deployed.schedules.suspend("shop.on_orders"),
        lambda: deployed.runs.start("shop.report"),
        lambda: deployed.topics.publish("own", key="door"),
        lambda: deployed.apps.delete("shop"),
        lambda: deployed.consumers.reset("clean", "default.shop.report", "now"),
    ):
        with pytest.raises(Exception, match="audit"):
            change()

    assert {one.status for one in deployed.schedules.list() if one.name.endswith("on_orders")} == {"SCHEDULED"}
    assert list(deployed.runs.list()) == []
    assert [topic.topic for topic in deployed.topics.list() if topic.topic == "own"] == []
    assert [app.name for app in deployed.apps.list()] == ["default.shop"]
    assert deployed.consumers.show("clean", "default.shop.report").resets == ()


def test_changes_of_one_actor_are_found_alone(deployed):
    """A person asks what a colleague, or a token, has changed."""
    bob = deployed.acting_as("bob@desk")
    bob.schedules.suspend("shop.on_orders")
    deployed.schedules.resume("shop.on_orders")

    assert [one.action for one in deployed.audit.log(actor="bob@desk")] == ["schedule.suspend"]
    assert {one.actor for one in deployed.audit.log(actor="ann@desk")} == {"ann@desk"}
    of_both = deployed.audit.log(subject="default.shop.on_orders", actor="bob@desk")
    assert [one.action for one in of_both] == ["schedule.suspend"]
    assert list(deployed.audit.log(subject="default.shop.on_orders", actor="eve@desk")) == []
