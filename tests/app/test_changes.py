"""Change feeds: each version's changes are in the input of exactly one committed run, on both databases."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tidemill as tm
from tests.errors import raises_code
from tests.run.conftest import rows_of
from tests.stage import Stage, staged
from tidemill.cli.main import main

APP = """
import tidemill as tm
app = tm.App("shop")
users = app.snapshot("users", key=["id"], max_versions=1)

@app.python(reads=[tm.Changes(users)])
def follow(run):
    given = run.input(users)
    with open("said.txt", "a") as said:
        said.write(f"{given.since} {given.version}\\n")
    MORE

app.schedule("follow", follow, trigger=tm.Refreshed(users))
"""
FOLLOW = "default.shop.follow"


@contextlib.contextmanager
def site(folder, url, more: str = "pass", app: str = APP) -> Iterator[Stage]:
    """The project; what the program does beside telling what it was given."""
    with staged(folder, url, app.replace("MORE", more).replace('"said.txt"', repr(str(folder / "said.txt")))) as stage:
        yield stage


@pytest.fixture
def stage(catalog_url, tmp_path):
    """The project on each database."""
    with site(tmp_path, catalog_url) as opened:
        yield opened


def refresh(stage: Stage, text: str = "a\n") -> int:
    """A version; its number."""
    with stage.transaction("users") as tx:
        tx.snapshot("default.users").replace({"": text}, allow=["drop"])
    return tx.write_pointer


def start(stage: Stage) -> list[tuple[str, str]]:
    """Start the program, and work on what is pending: how those runs ended."""
    stage.mill.runs.start("shop.follow", {})
    return [(str(run.state), run.exit_reason or "") for run in stage.work()]


def test_a_refresh_while_the_schedule_is_suspended_is_followed_when_it_is_resumed(stage):
    """The next refresh may come in a month."""
    stage.mill.schedules.suspend("shop.follow")
    refresh(stage)
    stage.play()
    stage.mill.schedules.resume("shop.follow")
    runs = stage.play()
    stage.mill.schedules.suspend("shop.follow")
    stage.mill.schedules.resume("shop.follow")

    assert [run.state for run in runs] == ["COMPLETED"]
    assert stage.play() == []


def test_each_run_gets_what_changed_since_the_last_that_committed(stage):
    """First all, then from version to version; nothing is no reason to call the program."""
    none = start(stage)
    first = refresh(stage)
    start(stage)
    idle = start(stage)
    refresh(stage)
    third = refresh(stage)
    start(stage)

    assert none == idle == [("COMPLETED", "no_input")]
    assert stage.lines_of() == [f"None {first}", f"{first} {third}"]
    last = [run for run in stage.runs() if run.exit_reason == ""][-1]
    taken = stage.mill.runs.show(last.run_id).inputs
    assert [(one.dataset, one.item) for one in taken] == [
        ("default.users", f"version {version}") for version in (first, third)
    ]
    assert stage.mill.catalog.audit().clean


def test_a_roll_back_is_a_change(stage):
    """Data that was derived from the bad version has to be corrected too."""
    good = refresh(stage)
    bad = refresh(stage)
    start(stage)
    back = stage.mill.snapshots.rollback("users", good).version
    start(stage)

    assert stage.lines_of() == [f"None {bad}", f"{bad} {back}"]


def test_what_a_failed_run_was_given_comes_again(catalog_url, tmp_path):
    """The position moves with the commit, or not at all."""
    with site(tmp_path, catalog_url, "import os; 1 / os.path.exists('good')") as stage:
        first = refresh(stage)
        failed = start(stage)
        second = refresh(stage)
        start(stage)

        assert failed[0][0] == "FAILED"
        assert stage.lines_of() == [f"None {first}", f"None {second}"]


def test_changes_that_a_failed_run_was_launched_for_are_announced_again_later(catalog_url, tmp_path):
    """Its message is used up, and there may never be another refresh: work never sticks. Nor does it spin."""
    with site(tmp_path, catalog_url, f"import os; 1 / os.path.exists({str(tmp_path / 'good')!r})") as stage:
        version = refresh(stage)
        failed = stage.play()
        (postponed,) = rows_of(stage.mill.project.catalog, "SELECT not_before > tidemill_now() FROM consumer_work")
        (tmp_path / "good").touch()
        stage.pass_time()
        again = stage.play()
        stage.pass_time()

        assert [(str(run.state), run.exit_reason or "") for run in again] == [("COMPLETED", "")]
        assert [str(run.state) for run in failed] == ["FAILED"]
        assert postponed[0]
        assert stage.lines_of() == [f"None {version}"] * 2
        assert stage.play() == []
        assert rows_of(stage.mill.project.catalog, "SELECT count(*) FROM consumer_work") == [(0,)]
        assert stage.mill.catalog.audit().clean


@pytest.mark.parametrize(("reads", "ran"), [("tm.Changes(users)", ["COMPLETED"]), ("users", [])])
def test_changes_of_a_job_that_waited_too_long_are_announced(catalog_url, tmp_path, reads, ran):
    """The job's message is used up. A program that reads the whole snapshot misses nothing: the next refresh serves."""
    alone = APP.replace("tm.Refreshed(users))", 'tm.Refreshed(users), constraints=[tm.Concurrency(1)], timeout="1h")')
    alone = alone.replace("tm.Changes(users)", reads).replace(".since", "" if reads == "users" else ".since")
    with site(tmp_path, catalog_url, app=alone) as stage:
        blocker = stage.mill.runs.start("shop.follow", {}).run_id
        refresh(stage)
        stage.schedule()
        rows_of(stage.mill.project.catalog, "UPDATE job SET satisfied_at = 1, next_check_at = 1 RETURNING 1")
        stage.schedule()
        stage.mill.runs.kill(blocker)

        assert [str(run.state) for run in stage.play()] == ran
        assert "timed_out" in {job.outcome for job in stage.mill.jobs.history("shop.follow")}


def test_changes_of_a_killed_run_are_announced_at_once(stage):
    """A person killed the run, and not the work."""
    version = refresh(stage)
    stage.schedule()
    (run,) = [run for run in stage.runs() if str(run.state) == "PENDING"]
    stage.mill.runs.kill(run.run_id)
    again = stage.play()

    assert [(str(run.state), run.exit_reason or "") for run in again] == [("COMPLETED", "")]
    assert stage.lines_of() == [f"None {version}"]


def test_of_two_runs_with_the_same_changes_one_commits(stage):
    """The other is no failure: it starts again, and has nothing left."""
    refresh(stage)

    def other() -> None:
        stage.mill.runs.start("shop.follow", {})
        stage.work()

    stage.at["driver.before_commit"] = other
    first = start(stage)
    again = stage.work()

    assert first[0][0] == "PENDING"
    assert [(str(run.state), run.exit_reason, run.failures) for run in again] == [("COMPLETED", "no_input", 0)]
    completed = [run for run in stage.runs() if run.exit_reason == ""]
    assert len(completed) == 1


def test_the_version_that_a_feed_has_seen_is_kept_for_it(stage):
    """However many versions come, without that one the changes could not be computed."""
    seen = refresh(stage)
    start(stage)
    skipped = refresh(stage)
    newest = refresh(stage)
    stage.sweep()

    kept = {one.version: one.kept_for for one in stage.mill.snapshots.versions("users")}
    assert kept == {seen: (f"changes for {FOLLOW}",), newest: ("current", "min_versions=1", "ttl=7d")}
    with raises_code("version_held", match=f"stays: changes for {FOLLOW}"):
        stage.mill.snapshots.expire("users", [seen])
    start(stage)
    stage.sweep()
    assert [one.version for one in stage.mill.snapshots.versions("users")] == [newest]
    assert skipped not in kept
    assert stage.lines_of()[-1] == f"{seen} {newest}"


def test_a_reset_gives_all_again_or_only_what_comes(stage, tmp_path, capsys):
    """By the verbs of consumers, which tell how far behind it is."""
    version = refresh(stage)
    (behind,) = stage.mill.consumers.lag(dataset="users")
    start(stage)
    (there,) = stage.mill.consumers.lag(dataset="users")
    stage.mill.consumers.reset("users", FOLLOW, "beginning")
    start(stage)
    stage.mill.consumers.reset("users", FOLLOW, "now")
    idle = start(stage)
    later = refresh(stage)
    start(stage)
    with pytest.raises(SystemExit):
        main(["--project", str(stage.mill.project.config.folder), "consumer", "lag", "--json"])

    assert (behind.partitions, there.partitions) == (1, 0)
    assert idle == [("COMPLETED", "no_input")]
    assert stage.lines_of() == [f"None {version}", f"None {version}", f"{version} {later}"]
    assert json.loads(capsys.readouterr().out)[0]["partitions"] == 0


def test_a_feed_is_not_peeked_at_as_if_nothing_waited(stage):
    """A feed has no partitions. Another verb shows its changes."""
    refresh(stage)

    with raises_code("not_peekable", match=r"`tidemill snapshot diff default.users SEEN NEWEST` what changed since"):
        stage.mill.consumers.peek("users", FOLLOW)


def test_a_reset_is_announced_at_once(stage):
    """To what it brings back: the schedule does not wait for a refresh, which may never come."""
    version = refresh(stage)
    stage.play()
    stage.mill.consumers.reset("users", FOLLOW, "beginning")
    again = stage.play()
    stage.mill.consumers.reset("users", FOLLOW, "now")

    assert [(str(run.state), run.exit_reason or "") for run in again] == [("COMPLETED", "")]
    assert stage.lines_of() == [f"None {version}"] * 2
    assert stage.play() == []


def test_a_reset_to_what_is_gone_fails_with_the_cure(stage):
    """Not with an empty difference, and not with all."""
    gone = refresh(stage)
    refresh(stage)
    stage.sweep()
    # As a reset to a time leaves it.
    rows_of(
        stage.mill.project.catalog,
        "UPDATE consumer SET start_version = (SELECT min(superseded_seq) FROM partition_change) RETURNING 1",
    )
    ((state, reason),) = start(stage)

    assert state == "FAILED"
    assert reason.startswith(f"base_gone: {FOLLOW} cannot get what changed in default.users since version {gone}, ")
    assert f"`tidemill consumer reset default.users {FOLLOW} --to beginning` gives it all rows" in reason


def test_a_program_that_no_longer_asks_for_changes_keeps_nothing(stage):
    """Else the version that it saw last would stay for ever."""
    seen = refresh(stage)
    start(stage)
    refresh(stage)
    text = (
        stage.mill.project.config.app.read_text(encoding="utf-8")
        .replace("tm.Changes(users)", "users")
        .replace(".since", "")
    )
    stage.mill.project.config.app.write_text(text, encoding="utf-8")
    with tm.open(stage.mill.project.config.folder) as mill:
        mill.deploy()

        assert list(mill.consumers.list(dataset="users")) == []
    assert seen not in {one.version for one in stage.mill.snapshots.versions("users") if one.kept_for}


def test_a_program_that_the_app_no_longer_has_keeps_nothing(catalog_url, tmp_path):
    """Neither its last version nor its waiting changes are kept: a new program of that name starts again."""
    with site(tmp_path, catalog_url, "1 / 0") as stage:
        seen = refresh(stage)
        stage.play()
        waiting = rows_of(stage.mill.project.catalog, "SELECT count(*) FROM consumer_work WHERE state = 'new'")
        refresh(stage)
        redeploy(stage, APP[: APP.index("@app.python")])

        assert waiting == [(1,)]
        assert list(stage.mill.consumers.list(dataset="users")) == []
        assert rows_of(stage.mill.project.catalog, "SELECT count(*) FROM consumer_work") == [(0,)]
        assert seen not in {one.version for one in stage.mill.snapshots.versions("users") if one.kept_for}
        assert stage.mill.catalog.audit().clean


def test_a_run_of_a_program_that_the_app_no_longer_has_commits_no_changes(stage):
    """The feed of these changes has been deleted: declared again, the program gets all changes."""
    refresh(stage)
    text = stage.mill.project.config.app.read_text(encoding="utf-8")
    stage.at["driver.before_commit"] = lambda: redeploy(stage, text[: text.index("@app.python")])
    ((state, _),) = start(stage)
    (failed,) = stage.work()
    redeploy(stage, text)
    last = refresh(stage)
    start(stage)

    assert state == "PENDING"
    assert (str(failed.state), failed.exit_reason is not None) == ("FAILED", True)
    assert stage.lines_of()[-1] == f"None {last}"
    assert stage.mill.catalog.audit().clean


def test_another_app_keeps_its_feeds(stage):
    """A deployment speaks for its own app."""
    refresh(stage)
    start(stage)
    redeploy(stage, "import tidemill as tm\napp = tm.App('other')\n")

    assert [consumer.name for consumer in stage.mill.consumers.list(dataset="users")] == [FOLLOW]


def redeploy(stage: Stage, app: str) -> None:
    """Deploy another text of the app file."""
    stage.mill.project.config.app.write_text(app, encoding="utf-8")
    with tm.open(stage.mill.project.config.folder) as mill:
        mill.deploy()


@pytest.mark.parametrize(
    ("kind", "reads", "why"),
    [
        ("python", "tm.Changes(plain)", "it has no key that identifies its rows: declare it with key=…"),
        ("python", "tm.Changes(lines)", "that is a data set of kind fileset, no snapshot"),
        ("worker", "tm.Changes(plain)", "a worker does not get: make it a program, and start it by Refreshed('plain')"),
    ],
)
def test_changes_of_what_has_none_are_refused_at_deployment(sqlite_catalog_url, tmp_path, kind, reads, why):
    """Before the first run finds out."""
    app = f"""
import tidemill as tm
app = tm.App("shop")
plain = app.snapshot("plain")
lines = app.fileset("lines", keys={{"hour": "int"}})
@app.{kind}(reads=[{reads}])
def follow(run): ...
"""
    with raises_code("bad_declaration") as refused, staged(tmp_path, sqlite_catalog_url, app):
        pass

    assert why.removesuffix("…") in str(refused.value)


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(["refresh", "late", "run", "reset", "expire", "race"]), max_size=10))
def test_the_inputs_of_committed_runs_are_one_chain_of_versions(tmp_path_factory, deeds):
    """Each run begins at the version where the previous one ended, and the last run ends at the current version."""
    folder = tmp_path_factory.mktemp("chain")
    with site(folder, f"sqlite:///{folder}/catalog.db") as stage:
        for deed in [*deeds, "run"]:
            match deed:
                case "refresh":
                    refresh(stage)
                case "late":  # one that began earlier ends last, and never becomes current
                    with stage.transaction("users") as tx:
                        refresh(stage)
                        tx.snapshot("default.users").replace({"": "late\n"}, allow=["drop"])
                case "run":
                    start(stage)
                case "reset":
                    stage.mill.consumers.reset("users", FOLLOW, "beginning")
                case "expire":
                    stage.sweep()
                case "race":
                    stage.at["driver.before_commit"] = lambda: (refresh(stage), start(stage))
                    start(stage)
                    stage.at.clear()
                    stage.work()
        given = [input_of(run) for run in stage.runs() if run.state == "COMPLETED" and run.exit_reason == ""]
        current = [one.version for one in stage.mill.snapshots.versions("users") if one.current]

        assert all(since in {None, last} for (_, last), (since, _) in itertools.pairwise(given))
        assert sum(since is None for since, _ in given) <= 1 + deeds.count("reset")
        assert ([given[-1][1]] if given else []) == current
        assert stage.mill.catalog.audit().clean


def input_of(run) -> tuple[int | None, int]:
    """From where to where a run got the changes, by its record."""
    (fact,) = run.facts["inputs"]
    return fact["since"], fact["version"]
