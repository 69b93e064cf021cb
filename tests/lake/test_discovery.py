"""Discovery: what is new is found whenever it comes, at a cost that grows with what is new."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lake.arrivals import LAWS, StoredInbox, make_stored_inbox, play
from tests.lake.test_inbox import TEST_SQL, Mill, make_mill
from tests.manual_clock import ManualClock, backdoor_of
from tidemill.catalog.engine import open_catalog
from tidemill.epoch import EPOCH
from tidemill.errors import UserError
from tidemill.json_specs import read_plain, write_plain
from tidemill.lake.inbox.discovery import Memory, discover, read_lateness, read_listed
from tidemill.lake.inbox.file_checks import FileRewritten, sort_out, verify_claims
from tidemill.lake.inbox.inbox import InboxSpec, OnRewrite, exact_version
from tidemill.lake.inbox.lookback import Marker
from tidemill.shapes.formats import FileFormat, RawFormat
from tidemill.storage.files import FileStatus, Seen, second_of
from tidemill.testing.clock import NOON
from tidemill.world import World


@pytest.fixture
def mill(catalog_url: str, tmp_path: Path) -> Iterator[Mill]:
    """An empty inbox on each database."""
    made = make_mill(catalog_url, tmp_path / "raw")
    yield made
    made.catalog.close()


@pytest.fixture
def stored(catalog_url: str) -> Iterator[tuple[StoredInbox, ManualClock, World]]:
    """An inbox in a store that lists from a name, on each database, by a clock of the test's."""
    clock = ManualClock()
    catalog = open_catalog(catalog_url, World(clock=clock))
    with backdoor_of(catalog_url) as backdoor:
        clock.rule(backdoor, catalog.dialect)
        inbox = make_stored_inbox(catalog, lookback=timedelta(minutes=10), reconcile_every=timedelta(hours=1))
        yield inbox, clock, catalog
    catalog.close()


@pytest.mark.parametrize(("law", "share"), [("5 s", 0.047), ("30 s", 0.34), ("120 s", 0.70)])
def test_no_file_is_missed_that_the_plain_marker_of_the_seed_misses(law, share):
    """Each file that arrives after its name was passed is found.

    The shares are those of longer plays (`tests.lake.arrivals`).
    """
    outcome = play(LAWS[law], seconds=1800, lookback=timedelta(minutes=20), reconcile_every=timedelta(minutes=30))

    assert outcome.missed_by_marker / outcome.files == pytest.approx(share, rel=0.2)
    assert (outcome.missed, outcome.only_reconciled) == (0, 0)
    assert outcome.late == outcome.missed_by_marker


def test_what_comes_later_than_the_lookback_is_found_by_a_reconciliation_which_warns():
    """No user knows the longest delay: the lookback is for promptness, the reconciliation for completeness."""
    outcome = play(
        lambda chance: chance.expovariate(1 / 120),
        seconds=1800,
        lookback=timedelta(minutes=2),
        reconcile_every=timedelta(minutes=30),
    )

    assert outcome.missed == 0
    assert 0 < outcome.only_reconciled < outcome.late
    assert "lookback is 2m" in outcome.warnings[0]


def test_without_both_the_hole_is_open():
    """Without lookback and reconciliation files are missed. So both have a value, and the play can see a miss."""
    outcome = play(LAWS["30 s"], seconds=1800, lookback=timedelta(0), reconcile_every=None)

    assert outcome.missed == outcome.missed_by_marker > 0


def test_a_listing_begins_where_the_marker_stood_a_lookback_ago(stored):
    """Else each costs all there is: the store is asked for what may be new, and the files of the lookback."""
    inbox, clock, catalog = stored
    for hour in range(4):
        inbox.store.put(f"old-{hour}", clock)
        clock.move("10m")
    discover(catalog, inbox)
    for minute in range(30):
        inbox.store.put(f"z-{minute:02}", clock)
        clock.move("1m")
        discover(catalog, inbox)
    before = inbox.store.given

    found = discover(catalog, inbox)

    assert found.new == ()
    assert 9 <= inbox.store.given - before <= 12


def test_a_late_file_is_counted_and_one_that_only_reconciling_finds_is_reported(stored):
    """Users set the lookback by these figures. The catalog keeps them, whichever process lists."""
    inbox, clock, catalog = stored
    for minute in range(30):
        inbox.store.put(f"m-{minute:02}", clock)
        clock.move("1m")
        discover(catalog, inbox)
    inbox.store.put("m-25-late", clock)
    late = discover(catalog, inbox)
    inbox.store.put("m-03-late", clock)
    passed_over = discover(catalog, inbox)
    asked = discover(catalog, inbox, reconcile=True)

    assert (late.late, late.missed, late.warning(inbox)) == (1, 0, None)
    assert passed_over.new == ()
    assert [file.name for file in asked.new] == ["m-03-late"]
    assert (asked.late, asked.missed) == (1, 1)
    assert asked.warning(inbox).startswith("only a reconciliation found 1 files: they come 10m late, or more, and")
    assert catalog.read(lambda db: read_lateness(db, inbox.dataset_id)) == (2, 1, asked.longest)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_is_late_by_less_than_the_lookback_lies_behind_the_start(data):
    """Pure: names rise with time; a file named at `s` that arrives by `s + lookback` sorts behind every start."""
    lookback = timedelta(milliseconds=data.draw(st.integers(1, 400)))
    marker, now = Marker(), 0
    for _ in range(data.draw(st.integers(1, 40))):
        now += data.draw(st.integers(1, 30))
        listed = data.draw(st.integers(0, now))  # a name says when it was given
        at = EPOCH + timedelta(milliseconds=now)
        start = marker.start(at, lookback)
        for named in range(max(0, now - int(lookback / timedelta(milliseconds=1))), now + 1):
            assert start is None or f"{named:05}" >= start
        marker = marker.moved(at, f"{listed:05}", None, lookback)
        assert len(marker.positions) < 40


def test_what_has_not_changed_is_looked_up_once(mill, monkeypatch):
    """A million known files cost their listing alone: no look-up, no statement."""
    memory = Memory()
    mill.land("a", "b")
    discover(mill.catalog, mill.inbox, memory)
    mill.process()
    mill.land("b", content="again\n")
    mill.land("c")

    asked = []
    from tidemill.lake.inbox import discovery

    plain = discovery._find_unknown
    monkeypatch.setattr(discovery, "_find_unknown", lambda *given: asked.append(len(given[2])) or plain(*given))
    found = discover(mill.catalog, mill.inbox, memory)
    nothing = discover(mill.catalog, mill.inbox, memory)

    assert ([file.name for file in found.new], nothing.new) == (["b", "c"], ())
    assert asked == [2]


def test_what_another_replaced_is_found_again_by_a_process_that_remembers_it(mill):
    """A process that listed before and commits later skips a newer content. The next listing finds that content."""
    memory = Memory()
    mill.land("a", content="old\n")
    old = list(mill.inbox.files(mill.catalog.world).list_after("", None))
    mill.land("a", content="newer\n")
    discover(mill.catalog, mill.inbox, memory)
    from tidemill.lake.inbox import discovery

    unknown = (discovery._Unknown(file, discovery.content_version(file), discovery.FileState.NEW) for file in old)
    slow = discovery._RecordFound(mill.inbox, tuple(unknown))
    mill.catalog.apply([slow])
    found = discover(mill.catalog, mill.inbox, memory)

    assert [file.bytes for file in found.new] == [len("newer\n")]


def test_a_file_that_a_run_missed_for_a_moment_is_found_by_the_next_listing(mill):
    """A disk was away between two listings. Processes that remember a listing passed over the file for hours."""
    memory = Memory()
    mill.land("day=1/a")
    discover(mill.catalog, mill.inbox, memory)
    day = mill.folder / "day=1"
    day.rename(mill.folder.with_name("away"))
    processed = mill.process()
    mill.folder.with_name("away").rename(day)

    found = discover(mill.catalog, mill.inbox, memory)

    assert processed == []
    assert [file.name for file in found.new] == ["day=1/a"]


def test_a_file_is_left_to_its_writer_until_it_is_old_enough_whole_and_flagged(mill):
    """Three ways to say that a file is finished, of which none needs its name."""
    now = mill.catalog.read(lambda db: db.now()).timestamp()
    spec = replace(mill.inbox.spec, min_age=timedelta(minutes=5), done_flag="{stem}.done")
    inbox = replace(mill.inbox, spec=spec)
    mill.land("young.csv", "old.csv", "flagged.csv", "flagged.done", "young.done")
    os.utime(mill.folder / "young.csv", (now - 60, now - 60))
    memory = Memory()

    found = discover(mill.catalog, inbox, memory)
    (mill.folder / "old.done").touch()
    os.utime(mill.folder / "young.csv", (now - 600, now - 600))
    later = discover(mill.catalog, inbox, memory)

    assert [file.name for file in found.new] == ["flagged.csv"]
    assert dict(found.held_back) == {"young.csv": "younger than 5m", "old.csv": "old.done is not there yet"}
    assert [file.name for file in later.new] == ["old.csv", "young.csv"]


def test_a_flag_that_is_a_link_or_too_long_a_name_holds_up_no_other_file(mill, tmp_path):
    """Such a name ended `tidemill up` at each start, and an inbox with a name of more than 250 bytes stood still."""
    (tmp_path / "elsewhere").touch()
    mill.land("a.csv", "b.csv", "b.csv.done", "n" * 252, "z.csv", "z.csv.done")
    (mill.folder / "a.csv.done").symlink_to(tmp_path / "elsewhere")
    inbox = replace(mill.inbox, spec=replace(mill.inbox.spec, done_flag="{name}.done"))

    found = discover(mill.catalog, inbox)

    assert [file.name for file in found.new] == ["b.csv", "z.csv"]
    held_back = dict(found.held_back)
    assert held_back["a.csv"] == "a.csv.done is not there yet"
    assert held_back["n" * 252].startswith("its done-flag would have a name of 257 bytes")


def test_a_processed_file_that_becomes_a_link_ends_nothing(mill, tmp_path):
    """A reconciliation looks at each name that it did not list."""
    (tmp_path / "elsewhere").touch()
    mill.land("a", "b")
    mill.discover()
    mill.process()
    (mill.folder / "a").unlink()
    (mill.folder / "a").symlink_to(tmp_path / "elsewhere")

    found = discover(mill.catalog, mill.inbox, reconcile=True)

    assert [(one.name, one.why) for one in found.unusable] == [("a", "it is a link")]


def test_what_can_never_be_processed_is_named_and_counted(mill):
    """A user does not look for a file that no message names. The other files are processed."""
    mill.land("good", ".hidden\n")
    (mill.folder / "line\nend").touch()
    (mill.folder / os.fsdecode(b"bad\xff")).touch()
    (mill.folder / os.fsdecode(b"worse\xfe")).touch()
    os.mkfifo(mill.folder / "pipe")
    memory = Memory()

    first = discover(mill.catalog, mill.inbox, memory)
    kept = mill.catalog.read(lambda db: read_listed(db, mill.inbox.dataset_id))
    (mill.folder / "pipe").unlink()
    discover(mill.catalog, mill.inbox, memory)
    later = mill.catalog.read(lambda db: read_listed(db, mill.inbox.dataset_id))

    assert [file.name for file in first.new] == ["good"]
    assert sorted(one.name for one in first.unusable) == ["bad\\xff", "line\\x0aend", "pipe", "worse\\xfe"]
    not_utf8, control = ("it is not UTF-8", 2, "bad\\xff"), ("it has control characters", 1, "line\\x0aend")
    assert kept[1] == (control, ("it is a pipe", 1, "pipe"), not_utf8)
    assert later[1] == (control, not_utf8)


@pytest.mark.parametrize("name", ["a#1", "d#2/a", "100%", "a%20b"])
def test_a_name_with_a_sign_of_urls_is_processed(mill, name):
    """Such a file was ignored without a message."""
    mill.land(name)

    assert mill.discover() == [name]
    assert mill.process() == [name]


def copy_inbox(mill: Mill, seconds: int = 0) -> None:
    """Move all files to another place and copy them back with their times, as `cp -a` does, or to whole seconds."""
    kept = mill.folder.with_name("moved")
    mill.folder.rename(kept)
    mill.folder.mkdir()
    for path in kept.iterdir():
        copy = mill.folder / path.name
        copy.write_bytes(path.read_bytes())
        at = path.stat().st_mtime_ns
        os.utime(copy, ns=(at, at - at % (seconds * 10**9) if seconds else at))


@pytest.mark.parametrize("seconds", [0, 1])
def test_a_copy_of_the_inbox_is_not_processed_again(mill, seconds):
    """Another disk, a restore, rsync: other inodes, and a time that may have lost its fraction."""
    mill.land("a", "b", content="one\n")
    mill.discover()
    mill.process()
    mill.land("waiting")
    mill.discover()
    copy_inbox(mill, seconds)

    found = discover(mill.catalog, mill.inbox)
    again = discover(mill.catalog, mill.inbox)

    assert (found.new, again.new) == ((), ())
    assert mill.process() == ["waiting"]
    assert {one.name: one.status for one in mill.list()} == dict.fromkeys(("a", "b", "waiting"), "SUCCESS")


def test_the_original_of_a_copy_that_lost_its_fraction_is_not_processed_again(mill):
    """A disk that keeps whole seconds stood in for the real one, which is back with its own times."""
    mill.land("b", "a", content="one\n")
    mill.discover()
    mill.process()
    first = mill.folder.with_name("first")
    shutil.copytree(mill.folder, first)
    copy_inbox(mill, 1)
    mill.discover()
    shutil.rmtree(mill.folder)
    first.rename(mill.folder)

    found = discover(mill.catalog, mill.inbox)

    assert found.new == ()


def test_a_file_that_was_copied_after_it_was_found_is_processed(mill):
    """Such a file was closed as rewritten, and came again as another file."""
    mill.land("a", content="one\n")
    mill.discover()
    copy_inbox(mill)

    assert mill.process() == ["a"]
    assert discover(mill.catalog, mill.inbox).new == ()


def test_rows_of_an_earlier_version_are_not_processed_again(mill):
    """The content version of such rows held the inode, and no process had read their content."""
    mill.land("a", "b", content="one\n")
    mill.discover()
    mill.process()
    statuses = {file.name: file for file in mill.inbox.files(mill.catalog.world).list_after("", None)}
    for name, status in statuses.items():
        old = {"name": name, "old": exact_version(status)}
        mill.catalog.write(lambda db, old=old: db.run(TEST_SQL.as_an_earlier_version_left_it, **old))

    unmoved = discover(mill.catalog, mill.inbox)
    copy_inbox(mill)
    copied = discover(mill.catalog, mill.inbox)
    once_more = discover(mill.catalog, mill.inbox)

    assert (unmoved.new, copied.new, once_more.new) == ((), (), ())
    assert [row.content_version for row in mill.list()] == [exact_version(statuses[name]) for name in "ab"]


@pytest.mark.parametrize("on_rewrite", OnRewrite)
def test_another_content_of_the_same_size_and_time_is_found_by_its_checksum(mill, on_rewrite):
    """Two writes within a step of the clock, or a tool that sets the time."""
    inbox = replace(mill.inbox, spec=replace(mill.inbox.spec, on_rewrite=on_rewrite))
    mill.land("a", content="one\n")
    mill.discover()
    mill.process()
    at = (mill.folder / "a").stat().st_mtime_ns
    mill.land("a", content="two\n")
    os.utime(mill.folder / "a", ns=(at, at))

    found = discover(mill.catalog, inbox)
    again = discover(mill.catalog, inbox)

    state = {"reprocess": "NEW", "ignore": "SKIPPED", "error": "QUARANTINED"}[on_rewrite]
    assert [file.name for file in found.new] == ["a"] * (state == "NEW")
    assert again.new == ()
    assert sorted(row.status for row in mill.list()) == sorted(["SUCCESS", state])


def test_a_copy_is_decided_only_when_no_run_holds_the_file(mill):
    """The commit compares the etag that the claim has: it must not be changed under it."""
    mill.land("a", content="one\n")
    mill.discover()
    tx = mill.begin()
    claimed = mill.claim(tx)
    copy_inbox(mill)
    meanwhile = discover(mill.catalog, mill.inbox)
    good, _ = sort_out(mill.catalog.world, [mill.inbox], claimed)
    at = (mill.folder / "a").stat().st_mtime_ns
    mill.land("a", content="two\n")
    os.utime(mill.folder / "a", ns=(at, at))

    assert (meanwhile.new, [file.name for file in good]) == ((), ["a"])
    with pytest.raises(FileRewritten):
        verify_claims(mill.catalog.world, [mill.inbox], good)


class _Here(ManualClock):
    """A monotonic clock that the test moves."""

    here = timedelta(0)

    def monotonic(self) -> timedelta:
        return self.here


def test_a_file_that_grows_is_left_alone_until_it_has_settled(catalog_url, tmp_path):
    """By our own eyes and clock: what the writer's machine says of times counts for nothing."""
    made = make_mill(catalog_url, tmp_path / "raw", settle=timedelta(seconds=10))
    clock = _Here()
    made.catalog.world = replace(made.catalog.world, clock=clock)
    memory, given_out, written = Memory(), [], 0
    for seconds, size in ((0, 1), (8, 2), (8, 2), (1, 2), (2, 2)):
        clock.here += timedelta(seconds=seconds)
        if written != size:
            made.land("a", content="x" * size)
            written = size
        given_out.append([file.name for file in discover(made.catalog, made.inbox, memory).new])
    made.catalog.close()

    assert given_out == [[], [], [], [], ["a"]]


def test_a_closed_file_is_forgotten_when_its_name_has_been_gone_for_long(mill):
    """The state of an inbox whose files are moved away must not grow for ever. What waits, or is there, stays."""
    inbox = replace(mill.inbox, spec=replace(mill.inbox.spec, forget_after=timedelta(0)))
    mill.land("a", "b", "c")
    mill.discover()
    mill.process()
    mill.land("d")
    mill.discover()
    (mill.folder / "a").unlink()
    (mill.folder / "d").unlink()

    usual = discover(mill.catalog, inbox)
    kept = discover(mill.catalog, mill.inbox, reconcile=True)
    found = discover(mill.catalog, inbox, reconcile=True)

    assert (usual.forgotten, kept.forgotten, found.forgotten) == (0, 0, 1)
    assert mill.states() == {"b": "SUCCESS", "c": "SUCCESS", "d": "NEW"}


def test_a_folder_that_was_away_is_reported_and_not_processed_again(mill):
    """A reconciliation forgot its files, which came back as new ones."""
    mill.land("2024/a", "2024/sub/b", "2025/c")
    mill.discover()
    mill.process()
    (mill.folder / "2024").rename(mill.folder.with_name("away"))

    missed = discover(mill.catalog, mill.inbox, reconcile=True)
    again = discover(mill.catalog, mill.inbox, reconcile=True)
    (mill.folder.with_name("away")).rename(mill.folder / "2024")
    back = discover(mill.catalog, mill.inbox, reconcile=True)
    absent = mill.catalog.read(lambda db: db.all(TEST_SQL.list_absent))

    assert (missed.away, again.away, back.away) == ((("2024/", 2),), (), ())
    assert (missed.forgotten, back.new, absent) == (0, (), [])


def test_what_has_come_back_begins_to_be_missed_again(mill):
    """Only a name that was missing all the time is forgotten."""
    inbox = replace(mill.inbox, spec=replace(mill.inbox.spec, forget_after=timedelta(hours=1)))
    mill.land("a", "b")
    mill.discover()
    mill.process()
    hidden = mill.folder.with_name("hidden")
    forgotten = []
    for step in ("go", "age", "return", "age", "go", "stay"):
        if step == "age":
            mill.catalog.write(lambda db: db.run(TEST_SQL.let_absence_age))
        elif step == "return":
            hidden.rename(mill.folder / "a")
        elif step == "go":
            (mill.folder / "a").rename(hidden)
        if step != "age":
            forgotten.append(discover(mill.catalog, inbox, reconcile=True).forgotten)
    mill.catalog.write(lambda db: db.run(TEST_SQL.let_absence_age))

    assert forgotten == [0, 0, 0, 0]
    assert discover(mill.catalog, inbox, reconcile=True).forgotten == 1


def test_an_empty_listing_forgets_nothing(mill):
    """So does a disk look that is not mounted; forgotten, all its files would come again."""
    mill.land("a")
    mill.discover()
    mill.process()
    (mill.folder / "a").unlink()

    assert discover(mill.catalog, mill.inbox, reconcile=True).forgotten == 0
    assert mill.states() == {"a": "SUCCESS"}


def test_a_row_of_an_earlier_version_has_the_defaults_of_what_it_does_not_know():
    """Deployed before these options were: they begin to work at the upgrade."""
    spec = InboxSpec(RawFormat(FileFormat.TEXT), max_files=7)
    old = {name: value for name, value in write_plain(spec).items() if name not in {"lookback", "done_flag", "settle"}}

    assert read_plain(InboxSpec, old) == spec


@pytest.mark.parametrize(
    "options", [{"done_flag": "{name}"}, {"done_flag": "x/{name}"}, {"reconcile_every": timedelta(0)}]
)
def test_options_that_cannot_work_are_refused(options):
    """At the declaration, with the cure."""
    with pytest.raises(UserError, match="as '"):
        InboxSpec(RawFormat(FileFormat.TEXT), **options)


def test_a_name_is_seen_by_its_content_and_forgotten_when_it_goes():
    """A missing file is new when it comes back: another process may have changed the file meanwhile."""
    chance = random.Random(7)
    seen, known = Seen(), set()
    for _ in range(50):
        listing = {(f"f{chance.randrange(9)}", str(chance.randrange(3))) for _ in range(6)}
        met = {(name, etag) for name, etag in listing if seen.meets(name, etag, second_of(NOON))}
        assert met == listing & known
        for name, etag in listing - met:
            seen.remember(FileStatus(name, 1, NOON, etag))
        seen.turn()
        known = listing
