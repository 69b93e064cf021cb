from __future__ import annotations

import contextlib
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemill.catalog.messages import Message
from tidemill.durations import parse_duration
from tidemill.epoch import from_micros, to_micros
from tidemill.errors import UserError
from tidemill.json_specs import BadJson, read_plain, read_text, write_plain, write_text
from tidemill.lake.window.window_plan import Grid, WindowShape
from tidemill.names import BadName, EventKey
from tidemill.run.step.periods import Periods
from tidemill.schedule import trigger_json  # noqa: F401  # declares the JSON of triggers
from tidemill.schedule.answers import NotBefore, Satisfied, Waiting
from tidemill.schedule.anytime import Anytime
from tidemill.schedule.data_triggers import MessageTrigger, NewData, NewFiles, NewPartitions, Refreshed, WatermarkPassed
from tidemill.schedule.expectation_triggers import Missing
from tidemill.schedule.standstill_triggers import WatermarkStands
from tidemill.schedule.time_triggers import Cron, Every
from tidemill.schedule.triggers import MOST_TIMES, AllOf, AnyOf, AtLeast, BadTrigger, Fed, Silence, Trigger
from tidemill.schedule.window_triggers import WindowsRecomputed
from tidemill.shapes.filters import Range
from tidemill.shapes.partition_time import Zone
from tidemill.sizes import BadSize

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def message(key: str, **payload: object) -> Message:
    """A message as a commit publishes it."""
    return Message("data", 7, 0, NOON, "test", EventKey(key), payload)


def feed(trigger: MessageTrigger, *messages: Message) -> Fed:
    """Return what the trigger was fed by the messages."""
    fed = Fed()
    for one in messages:
        fed = trigger.feed(fed, one)
    return fed


@dataclass
class Declared:
    """Data set as `app.inbox` and `app.fileset` return it."""

    qualified_name: str


def test_a_declared_data_set_and_its_name_are_one():
    """People write the object, JSON and REST the name: both must mean the same trigger."""
    assert NewFiles(Declared("default.raw")) == NewFiles("raw") == NewFiles("default.raw", 1)
    assert NewFiles("raw") != NewPartitions("raw")


def test_keys_are_counted_and_never_messages():
    """A commit of 1,200 partitions comes as three messages of the same seq, each with its own count."""
    trigger = NewPartitions("clicks", 5)
    key = "partition:default.clicks"

    one = trigger.check([feed(trigger, message(key, count=4))], NOON)
    both = trigger.check([feed(trigger, message(key, count=4), message(key, count=8))], NOON)

    assert one == Waiting("4/5 new partitions of default.clicks")
    assert both == Satisfied("12/5 new partitions of default.clicks")


@pytest.mark.parametrize(
    "trigger",
    [
        NewFiles("clicks", 100),
        NewPartitions("clicks", 100),
        NewData("clicks", rows=100),
        NewData("clicks", bytes="100 GB"),
    ],
)
def test_work_left_satisfies_at_once(trigger):
    """Work never sticks: three files left by a failed run would wait for 97 others that may never come."""
    fed = feed(trigger, message("backlog:default.clicks", consumer="shop.ingest"))

    assert isinstance(trigger.check([fed], NOON), Satisfied)
    assert EventKey("backlog:default.clicks") in trigger.event_keys


def _partitions(*partitions: tuple[str, int]) -> Message:
    """Make the message of a commit about partitions: kind and rows. Their bytes are a thousand times as many."""
    listed = [{"kind": kind, "rows": rows, "bytes": 1000 * rows} for kind, rows in partitions]
    return message("partition:default.clicks", count=len(partitions), partitions=listed)


@pytest.mark.parametrize(
    ("trigger", "why"),
    [
        (NewData("clicks", rows=100), "{}/100 new rows of default.clicks"),
        (NewData("clicks", bytes="100 KB"), "{} KB/100 KB new bytes of default.clicks"),
    ],
)
def test_new_data_adds_up_what_the_program_is_given(trigger, why):
    """Stories 10 and 11: enough are gigabytes, however many partitions they come in; a correction is read too."""
    some = feed(trigger, _partitions(("new", 10), ("overwritten", 20)), _partitions(("appended", 40)))
    enough = trigger.feed(some, _partitions(("new", 20), ("appended", 30)))

    assert trigger.check([some], NOON) == Waiting(why.format(70 if trigger.unit == "rows" else "70.0"))
    assert trigger.check([enough], NOON) == Satisfied(why.format(120))


def test_a_refresh_satisfies_and_several_are_one_run():
    """A program that reads a snapshot wants its newest version: three refreshes while it waits are one reason."""
    trigger = Refreshed("users")
    refresh = message("snapshot:default.users", count=1)

    assert trigger.event_keys == (EventKey("snapshot:default.users"), EventKey("backlog:default.users"))
    assert isinstance(trigger.check([Fed()], NOON), Waiting)
    assert trigger.check([feed(trigger, refresh, refresh, refresh)], NOON) == Satisfied(
        "3/1 refreshes of default.users"
    )


def test_a_watermark_that_passes_several_periods_is_one_reason():
    """The watermark may move by a day at once: each run computes all closed windows."""
    hour = 3_600_000_000
    trigger = WatermarkPassed("clicks", every="1h")
    key = "watermark:default.clicks"

    first = feed(trigger, message(key, **{"from": None, "to": 10 * hour}))
    within = feed(trigger, message(key, **{"from": 10 * hour, "to": 11 * hour - 1}))
    several = feed(trigger, message(key, **{"from": 10 * hour, "to": 13 * hour}))

    assert isinstance(trigger.check([first], NOON), Satisfied)
    assert isinstance(trigger.check([within], NOON), Waiting)
    assert trigger.check([several], NOON) == Satisfied("3/1 new periods of 1h of default.clicks")
    assert isinstance(trigger.check([feed(trigger, message("backlog:default.clicks"))], NOON), Satisfied)


# Around clock changes: also one of half an hour, one over a whole day that never was, and one at midnight.
CHANGES = (
    ("UTC", 2021, 3, 28),
    ("Europe/Berlin", 2021, 3, 28),
    ("Europe/Berlin", 2021, 10, 31),
    ("Australia/Lord_Howe", 2021, 4, 4),
    ("Australia/Lord_Howe", 2021, 10, 3),
    ("Pacific/Apia", 2011, 12, 30),
    ("America/Havana", 2021, 11, 7),
    ("Asia/Kolkata", 1969, 12, 31),
)


@given(
    st.sampled_from(CHANGES),
    st.sampled_from(["15m", "1h", "90m", "7h", "1d", "2d"]),
    st.lists(st.integers(-240, 240), min_size=2, max_size=6, unique=True).map(sorted),
)
def test_each_end_of_a_window_is_one_boundary_whatever_the_moves_are(change, every, quarters):
    """A window of a day of Berlin would be computed one or two hours after its last partition came, or twice."""
    (zone, *day), size = change, parse_duration(every) // timedelta(microseconds=1)
    moments = [to_micros(datetime(*day, tzinfo=UTC)) + quarter * 900_000_000 for quarter in quarters]
    moves = [
        message("watermark:default.clicks", **{"from": before, "to": after, "zone": zone})
        for before, after in pairwise(moments)
    ]
    each, coalesce = (WatermarkPassed("clicks", every, mode) for mode in ("each", "coalesce"))

    queued = []
    for passed in filter(None, map(each.boundaries, moves)):
        periods, end = Periods.of(each.every, passed.zone), passed.first
        before = len(queued)
        while end <= passed.last:
            queued.append(end)
            end = periods.after(end)
        assert periods.count(passed.first, passed.last) == len(queued) - before
    fed = feed(coalesce, *moves)

    grid = Grid(WindowShape(size, size, 0), Zone(zone))
    closed = {grid.closes(window) for window in grid.touched(moments[0] - 3 * size, moments[-1] + 1)}
    wanted = [from_micros(at) for at in sorted(closed) if moments[0] < at <= moments[-1]]
    assert queued == wanted
    assert (list(fed.fires), fed.count) == (wanted, len(wanted))


def test_each_leaf_is_fed_by_itself():
    """Five partitions of one input are not one of each: the second input of a join may be empty."""
    trigger = NewPartitions("clicks") & NewPartitions("users", 2)

    assert isinstance(trigger.check([Fed(count=9), Fed(count=1)], NOON), Waiting)
    assert isinstance(trigger.check([Fed(count=1), Fed(count=2)], NOON), Satisfied)


def test_nested_triggers_share_out_what_their_leaves_were_fed():
    """`trigger_no` is a leaf's place from the left, however deep: a slip would start programs on others' data."""
    trigger = (NewFiles("a") & NewFiles("b")) | (Every("4h") & NewFiles("c", 3))

    def satisfied(*counts: int, fired: bool = False) -> bool:
        fed = [Fed(count=counts[0]), Fed(count=counts[1]), Fed(fires=(NOON,) if fired else ()), Fed(count=counts[2])]
        return isinstance(trigger.check(fed, NOON), Satisfied)

    assert [write_plain(leaf)["type"] for leaf in trigger.leaves] == ["new_files", "new_files", "every", "new_files"]
    assert satisfied(1, 1, 0)
    assert satisfied(0, 0, 3, fired=True)
    assert not satisfied(1, 0, 3)
    assert not satisfied(0, 1, 2, fired=True)


def fed_at(count: int, *minutes: int) -> Fed:
    """Return a feed of that count, by messages so many minutes after noon."""
    fed = Fed(count=count)
    for minute in minutes:
        fed = fed.touched(NOON + timedelta(minutes=minute))
    return fed


def test_patience_ends_the_wait_for_the_other_inputs():
    """Seed 001, story 8: inputs without new data are not waited for longer than `patience`, from the first message."""
    trigger = AllOf(NewFiles("a"), NewFiles("b"), NewFiles("c"), patience="2h")
    fed = [Fed(), fed_at(1, 30, 100), fed_at(1, 10)]

    assert isinstance(trigger.check([Fed()] * 3, NOON), Waiting)
    before = trigger.check(fed, NOON + timedelta(minutes=129))
    assert isinstance(before, NotBefore)
    assert before.at == NOON + timedelta(minutes=130)
    assert isinstance(trigger.check(fed, before.at), Satisfied)
    assert isinstance(trigger.check([fed_at(1, 0)] * 3, NOON), Satisfied)


def test_a_patient_trigger_keeps_its_parts_together():
    """`patience` is about the parts that it names: another `&` must not add to them."""
    patient = AllOf(NewFiles("a"), NewFiles("b"), patience="2h")

    trigger = patient & NewFiles("c")

    assert trigger.triggers == (patient, NewFiles("c"))
    assert isinstance(trigger.check([fed_at(1, 0), Fed(), Fed()], NOON + timedelta(hours=3)), Waiting)
    assert isinstance(trigger.check([fed_at(1, 0), Fed(), fed_at(1, 0)], NOON + timedelta(hours=3)), Satisfied)


def test_at_least_counts_the_triggers_that_are_satisfied():
    """Two of three feeds are enough, whichever they are."""
    trigger = AtLeast(2, NewFiles("a"), NewFiles("b", 2), Silence(NewFiles("c"), "10m"))

    assert isinstance(trigger.check([fed_at(9, 0), fed_at(1, 0), Fed()], NOON), Waiting)
    assert isinstance(trigger.check([fed_at(1, 0), fed_at(2, 0), Fed()], NOON), Satisfied)
    assert trigger.check([fed_at(1, 0), Fed(), fed_at(1, 5)], NOON) == NotBefore(
        NOON + timedelta(minutes=15),
        "1/2 of 3 triggers: 0/2 new files of default.b or 1/1 new files of default.c, and not yet 10m without more",
    )


def test_each_arrival_begins_the_quiet_time_again():
    """Seed 001, story 9: data comes in parts over a time, and the program starts after the last of them."""
    trigger = Silence(NewFiles("a", 2), "10m")

    assert isinstance(trigger.check([fed_at(1, 0)], NOON + timedelta(hours=1)), Waiting)
    quiet = trigger.check([fed_at(5, 0, 7, 12)], NOON + timedelta(minutes=21))
    assert isinstance(quiet, NotBefore)
    assert quiet.at == NOON + timedelta(minutes=22)
    assert isinstance(trigger.check([fed_at(5, 0, 7, 12)], quiet.at), Satisfied)


LEAVES = st.builds(NewFiles, st.just("a"), st.integers(1, 3))
TRIGGERS_WITH_TIMES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda parts: AllOf(*parts, patience="1h"), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: AllOf(*parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: AnyOf(*parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda parts: AtLeast((len(parts) + 1) // 2, *parts), st.lists(inner, min_size=1, max_size=3)),
        st.builds(lambda one: Silence(one, "10m"), inner),
    ),
    max_leaves=5,
)


@given(TRIGGERS_WITH_TIMES, st.data())
def test_a_trigger_is_never_satisfied_between_a_time_that_it_names_and_now(trigger, data):
    """The checker looks again at that time and not before: an earlier satisfaction would be noticed late."""
    feeds = st.builds(fed_at, st.integers(1, 3), st.integers(0, 90), st.integers(0, 90))
    fed = [data.draw(st.one_of(st.just(Fed()), feeds)) for _ in trigger.leaves]
    later = data.draw(st.integers(0, 200))
    now = NOON + timedelta(minutes=91)

    answer = trigger.check(fed, now)
    then = trigger.check(fed, now + timedelta(minutes=later))

    if isinstance(answer, Waiting):
        assert not isinstance(then, Satisfied)
    elif isinstance(answer, NotBefore):
        assert answer.at > now
        assert not isinstance(then, Satisfied) or now + timedelta(minutes=later) >= answer.at
    else:
        assert isinstance(then, Satisfied)


def test_a_chain_of_the_same_sign_is_one_trigger():
    """`a & b & c` is read as three inputs, and shown so."""
    a, b, c = NewFiles("a"), NewFiles("b"), NewFiles("c")

    assert a & b & c == AllOf(a, b, c)
    assert a | b | c == AnyOf(a, b, c)
    assert (a | b) & c == AllOf(AnyOf(a, b), c)


@pytest.mark.parametrize(
    ("elapsed", "expected"),
    [("0s", None), ("3h59m", None), ("4h", "4h"), ("7h", "4h"), ("8h", "8h"), ("1000h", "1000h")],
)
def test_every_is_due_at_multiples_of_its_duration(elapsed, expected):
    """After downtime it fires once, at the latest time that was due: nothing is skipped, nothing is run in a row."""
    every = Every("4h")
    hours = {text: timedelta(minutes=int(text[:-1]) * 60) for text in ["4h", "7h", "8h", "1000h"]}
    hours |= {"0s": timedelta(0), "3h59m": timedelta(hours=3, minutes=59)}

    due = every.last_fire(NOON, NOON + hours[elapsed])

    assert due == (None if expected is None else NOON + hours[expected])


@given(st.timedeltas(timedelta(seconds=1), timedelta(days=400)), st.timedeltas(timedelta(0), timedelta(days=4000)))
def test_the_next_fire_is_never_late(duration, elapsed):
    """A timer asked for at `next_fire` must find it due then, and not have been due before."""
    every = Every(duration - timedelta(microseconds=duration.microseconds))
    now = NOON + elapsed

    due = every.last_fire(NOON, now)

    assert (due is None) == (now < every.next_fire(NOON))
    assert due is None or due <= now < due + every.duration


@pytest.mark.parametrize(
    ("make", "error"),
    [
        (lambda: NewFiles("raw", 0), BadTrigger),
        (lambda: NewFiles("raw", True), BadTrigger),
        (lambda: NewFiles(5), BadTrigger),
        (lambda: NewPartitions("clicks", 1.0), BadTrigger),
        (lambda: NewPartitions("a/b"), BadName),
        (lambda: NewPartitions("clicks", where=["country=de"]), BadTrigger),
        (lambda: NewPartitions("clicks", where={"country": []}), BadTrigger),
        (lambda: NewPartitions("clicks", where={"country": None}), BadTrigger),
        (lambda: NewPartitions("clicks", where={"country": True}), BadTrigger),
        (lambda: NewPartitions("clicks", where={"day": datetime(2026, 1, 1)}), BadTrigger),  # noqa: DTZ001
        (lambda: NewPartitions("clicks", where={"day": {}}), BadTrigger),
        (lambda: NewPartitions("clicks", where={"day": {"lower": "2026-01-01", "uper": "2026-01-02"}}), BadTrigger),
        (lambda: NewPartitions("clicks", kinds=[]), BadTrigger),
        (lambda: NewPartitions("clicks", kinds="new"), BadTrigger),
        (lambda: NewPartitions("clicks", kinds=["dropped"]), BadTrigger),
        (lambda: NewPartitions("clicks", kinds=[5]), BadTrigger),
        (lambda: NewPartitions("a.b.c"), BadName),
        (lambda: NewFiles("../raw"), BadName),
        (lambda: Every(4), BadTrigger),
        (lambda: Every("0s"), BadTrigger),
        (lambda: Every("999ms"), BadTrigger),
        (lambda: NewFiles("raw", 2, bytes="1 MB"), BadTrigger),
        (lambda: NewFiles("raw", bytes="0 B"), BadTrigger),
        (lambda: AllOf(NewFiles("a"), NewFiles("b"), patience="0s"), BadTrigger),
        (lambda: AllOf(NewFiles("a"), patience=2), BadTrigger),
        (lambda: AtLeast(0, NewFiles("a")), BadTrigger),
        (lambda: AtLeast(2, NewFiles("a")), BadTrigger),
        (lambda: AtLeast(True, NewFiles("a")), BadTrigger),
        (lambda: AtLeast(1), BadTrigger),
        (lambda: Silence(NewFiles("a"), "0s"), BadTrigger),
        (lambda: Silence(Every("1h"), "10m"), BadTrigger),
        (lambda: Silence("a", "10m"), BadTrigger),
        (AllOf, BadTrigger),
        (AnyOf, BadTrigger),
        (lambda: AllOf(NewFiles("raw"), "every day"), BadTrigger),
        (lambda: NewData("clicks"), BadTrigger),
        (lambda: NewData("clicks", bytes="1 GB", rows=5), BadTrigger),
        (lambda: NewData("clicks", bytes="0 GB"), BadTrigger),
        (lambda: NewData("clicks", bytes="10"), BadSize),
        (lambda: NewData("clicks", rows=0), BadTrigger),
        (lambda: NewData("clicks", rows=True), BadTrigger),
        (lambda: Refreshed(5), BadTrigger),
        (lambda: WatermarkPassed("clicks", every="100ms"), BadTrigger),
        (lambda: WatermarkPassed("clicks", mode="eahc"), BadTrigger),
        (lambda: Cron(5), BadTrigger),
        (lambda: WatermarkStands(5, "6h"), BadTrigger),
        (lambda: WatermarkStands("clicks", "100ms"), BadTrigger),
        (lambda: WatermarkStands("clicks", 5), BadTrigger),
        (lambda: Missing(5), BadTrigger),
        (lambda: WindowsRecomputed(5), BadTrigger),
        (lambda: WindowsRecomputed("hourly"), BadName),
        (lambda: WindowsRecomputed("shop.hourly", 0), BadTrigger),
        (lambda: Anytime("fortnight"), BadTrigger),
        (lambda: Anytime("100ms"), BadTrigger),
        (lambda: Anytime(["day"]), BadTrigger),
        (lambda: Anytime("day", zone="Europe/Berlinn"), BadTrigger),
        (lambda: Anytime("day", zone=5), BadTrigger),
        (lambda: Anytime("4h", zone="Europe/Berlin"), BadTrigger),
        (lambda: Anytime("hour", zone="Europe/Berlin"), BadTrigger),
        (lambda: Cron("@daily", zone=None), BadTrigger),
    ],
)
def test_a_trigger_that_cannot_be_is_refused_when_it_is_made(make, error):
    """At deployment, with the reason: not at three in the morning by never firing."""
    with pytest.raises(error):
        make()


_names = st.sampled_from(["raw", "clicks", "other.users"])
_values = st.one_of(st.text(), st.integers(), st.dates(), st.datetimes(timezones=st.just(UTC)))
_wheres = st.dictionaries(
    st.text(),
    st.one_of(_values, st.lists(_values, min_size=1, max_size=3), st.builds(Range, _values, _values)),
    max_size=3,
)
_kinds = st.one_of(st.none(), st.sets(st.sampled_from(["new", "appended", "overwritten"]), min_size=1))
_leaves = st.one_of(
    st.builds(NewFiles, _names, st.integers(1, 10**6)),
    st.builds(NewPartitions, _names, st.integers(1, 10**6)),
    st.builds(NewPartitions, _names, where=_wheres, kinds=_kinds),
    st.builds(lambda name, size: NewData(name, bytes=f"{size} MB"), _names, st.integers(1, 10**6)),
    st.builds(lambda name, rows: NewData(name, rows=rows), _names, st.integers(1, 10**6)),
    st.builds(Refreshed, _names),
    st.builds(WatermarkStands, _names, st.sampled_from(["1h", "15m", "1d"])),
    st.builds(WindowsRecomputed, st.just("shop.hourly"), st.integers(1, 9)),
    st.builds(Missing, _names),
    st.builds(WatermarkPassed, _names, st.sampled_from(["1h", "15m", "1d"]), st.sampled_from(["coalesce", "each"])),
    st.builds(Every, st.integers(1000, 10**10).map(lambda ms: timedelta(milliseconds=ms))),
    st.builds(Anytime, st.sampled_from(["day", "week", "month"]), st.sampled_from(["UTC", "Europe/Berlin"])),
    st.builds(Anytime, st.sampled_from(["hour", "4h", "90m"])),
    st.builds(Cron, st.sampled_from(["30 2 * * *", "@daily"]), st.sampled_from(["UTC", "Europe/Berlin"])),
)
_triggers = st.recursive(
    _leaves,
    lambda inner: st.tuples(st.sampled_from([AllOf, AnyOf]), st.lists(inner, min_size=1, max_size=4)).map(
        lambda pair: pair[0](*pair[1])
    ),
    max_leaves=12,
)


@given(_triggers)
def test_what_is_written_is_read_back(trigger):
    """The store keeps JSON: a trigger that changed on the way would fire on something else."""
    assert read_text(Trigger, write_text(trigger)) == trigger


_json = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.sampled_from(["new_files", "every", "all_of", "raw", "4h"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(["type", "inbox", "n", "triggers", "duration", "version"]), inner, max_size=4),
    ),
)


@given(_json)
def test_json_is_a_trigger_or_refused_as_the_users_mistake(value):
    """A user always gets one clear line, never a KeyError."""
    with contextlib.suppress(UserError):
        assert isinstance(read_plain(Trigger, value), Trigger)


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        ({"type": "new_partition", "fileset": "clicks"}, "did you mean 'new_partitions'"),
        ({"type": "cron", "expresion": "@daily"}, "did you mean 'expression'"),
        ({"type": "cron", "expression": "@dayly"}, "did you mean '@daily'"),
        ({"type": "cron", "expression": "@daily", "zone": "Europe/Berlinn"}, "did you mean 'Europe/Berlin'"),
        ({"type": "new_files", "inbox": "raw", "n": "3"}, "n must be a whole number"),
        ({"type": "new_partitions", "fileset": "clicks", "kinds": ["nwe"]}, "did you mean 'new'"),
        ({"type": "every"}, "duration is missing"),
        ({"type": "all_of", "triggers": [{"type": "evry", "duration": "1h"}]}, "did you mean 'every'"),
    ],
)
def test_a_slip_is_answered_with_what_was_meant(value, advice):
    """A user that writes a trigger by hand looks at the message, not at our source."""
    with pytest.raises(UserError, match=advice):
        read_plain(Trigger, value)


def test_an_unknown_field_or_type_of_value_is_refused():
    """A newer form may mean something else: guessing would fire wrongly."""
    good = write_plain(NewFiles("raw", 3))

    assert read_plain(Trigger, good) == NewFiles("raw", 3)
    for bad in ({**good, "version": 2}, {**good, "type": "refreshed"}, {**good, "n": "3"}):
        with pytest.raises(BadJson):
            read_plain(Trigger, bad)


@pytest.mark.parametrize(
    ("declare", "named"),
    [
        (Every, "Every is refused: duration"),
        (lambda wait: AllOf(Every("1h"), Every("2h"), patience=wait), "AllOf is refused: patience"),
        (lambda wait: Silence(NewFiles("raw"), wait), "Silence is refused: duration"),
        (lambda wait: WatermarkPassed("clicks", wait), "WatermarkPassed is refused: every"),
        (lambda wait: WatermarkStands("clicks", wait), "WatermarkStands is refused: duration"),
    ],
)
@pytest.mark.parametrize("wait", ["four hours", "-1h", 4, "10ms"])
def test_a_wrong_duration_names_the_trigger_and_its_argument(declare, named, wait):
    """A line of an app file may have several triggers, and several durations."""
    with pytest.raises(BadTrigger, match=f"trigger {named}"):
        declare(wait)


def test_a_job_keeps_the_latest_times_alone():
    """A job that waits for data is stored again at each time of its cron: the cost must not grow with its age."""
    fed = Fed(fires=(NOON,) * MOST_TIMES, count=MOST_TIMES)

    after = fed.fired(NOON + timedelta(minutes=1))

    assert (len(after.fires), after.count) == (MOST_TIMES, MOST_TIMES + 1)
    assert after.fired_at == NOON + timedelta(minutes=1)
