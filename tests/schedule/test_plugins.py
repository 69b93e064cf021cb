"""Plug-ins dock on the same JSON as our own triggers and constraints, and all keep the same contract."""

from __future__ import annotations

import importlib
import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.schedule.test_constraints import EXAMPLES
from tidemill.errors import Internal
from tidemill.json_specs import BadJson, read_plain, write_plain
from tidemill.names import DEFAULT_NAMESPACE
from tidemill.plugins import BadPlugin
from tidemill.run.records.programs import find_program_by_id
from tidemill.schedule.answers import Answer, NotBefore, Satisfied, Waiting
from tidemill.schedule.anytime import Anytime
from tidemill.schedule.changes import Delete, Resume, Suspend
from tidemill.schedule.changes import check_trigger as check_trigger_of
from tidemill.schedule.constraint_json import CONSTRAINTS
from tidemill.schedule.constraints import Constraint, Facts, Rate
from tidemill.schedule.data_triggers import NewData, NewFiles, NewPartitions, Refreshed, WatermarkPassed
from tidemill.schedule.expectation_triggers import Missing
from tidemill.schedule.probes import Probes
from tidemill.schedule.program_triggers import RunEnded
from tidemill.schedule.schedules import find_schedule
from tidemill.schedule.specs import BadSchedule, ScheduleSpec
from tidemill.schedule.standstill_triggers import WatermarkStands
from tidemill.schedule.time_triggers import Cron, Every
from tidemill.schedule.trigger_json import types_of
from tidemill.schedule.triggers import AllOf, AnyOf, AtLeast, Silence
from tidemill.schedule.waits import Probe
from tidemill.schedule.window_triggers import WindowsRecomputed
from tidemill.testing import check_constraint, check_trigger

_, PAGE = (Path(__file__).resolve().parents[2] / "docs" / "triggers.md").read_text("utf-8").split("of your own\n")
PACKAGE, CHECK = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
PROJECT = tomllib.loads(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)[0])["project"]["entry-points"]

TRIGGER_EXAMPLES = (
    NewFiles("raw", 3),
    NewPartitions("clicks"),
    NewPartitions("clicks", 12),
    NewPartitions("clicks", where={"country": ["de", "at"], "day": {"lower": "2026-01-01"}}, kinds=["new"]),
    NewData("clicks", bytes="10 GB"),
    NewData("clicks", rows=5),
    Refreshed("airlines"),
    WatermarkPassed("clicks", every="1h"),
    WatermarkStands("clicks", "6h"),
    WindowsRecomputed("shop.hourly", 3),
    Missing("clicks"),
    RunEnded("shop.ingest"),
    RunEnded("shop.ingest", ["FAILED", "KILLED"], n=2),
    Every("4h"),
    Cron("30 2 * * *", zone="Europe/Berlin"),
    Anytime("day", zone="Europe/Berlin"),
    Anytime("4h"),
    AllOf(NewFiles("raw"), NewPartitions("clicks")),
    AllOf(NewFiles("raw"), NewPartitions("clicks"), patience="2h"),
    AnyOf(Every("1h"), AllOf(NewFiles("raw"), NewPartitions("clicks"))),
    AtLeast(2, NewFiles("a"), NewFiles("b"), NewFiles("c")),
    Silence(NewFiles("raw"), "10m"),
)


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs a package with these entry points."""

    def do(groups: Mapping[str, Mapping[str, str]] = PROJECT) -> None:
        (tmp_path / "even_hours.py").write_text(PACKAGE, encoding="utf-8")
        info = tmp_path / "even_hours-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: even-hours\nVersion: 1.0\n", encoding="utf-8")
        lines = [f"[{group}]\n" + "\n".join(map(" = ".join, entries.items())) for group, entries in groups.items()]
        (info / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
        monkeypatch.syspath_prepend(tmp_path)

    return do


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_our_constraints_keep_the_contract_of_plug_ins(example):
    """The same checks as for the constraints of others."""
    check_constraint(type(example), [example])


@pytest.mark.parametrize("example", TRIGGER_EXAMPLES, ids=str)
def test_our_triggers_keep_the_contract_of_plug_ins(example):
    """The same checks as for the triggers of others."""
    check_trigger(type(example), [example])


def test_each_constraint_has_an_example():
    """A new kind is checked as well."""
    assert {type(example) for example in EXAMPLES} == set(CONSTRAINTS.values())


def test_a_constraint_of_another_package_is_read_and_written_as_ours(install):
    """A schedule with the plug-in is stored by one process, and read by another one."""
    install()

    constraint = read_plain(Constraint, {"type": "even_hours"})

    kind = importlib.import_module("even_hours").EvenHours
    assert constraint == kind()
    assert write_plain(ScheduleSpec(Every("1h"), (kind(),)))["constraints"] == [{"type": "even_hours"}]
    exec(CHECK, {"EvenHours": kind})


def test_a_schedule_waits_for_the_plug_ins_of_another_package(shop, install):
    """The classes and the probe of the page, in a catalog."""
    install()
    even = importlib.import_module("even_hours").EvenHours()
    shop.clock.move(datetime(2027, 3, 1, 13, 10, tzinfo=UTC) - shop.clock.now())
    shop.schedule(NewPartitions("clicks"), constraints=(even, Probe("queue_length", at_most=100)))
    shop.add()
    early = shop.step()
    (job,) = shop.jobs()
    shop.clock.move("50m")

    (launch,) = shop.step()

    assert early == []
    assert [answer["why"] for answer in job.verdict["constraints"]] == ["an odd hour", "probe queue_length 12"]
    assert launch.why.endswith("an even hour; probe queue_length 12")


def test_the_probe_of_another_package_is_looked_for_until_it_is_found(install, monkeypatch):
    """A look reads the disk, and each reading would need one: the function is kept, as its class is by a schedule."""
    probes = Probes(timeout=timedelta(minutes=5))
    noon = datetime(2027, 3, 1, 12, tzinfo=UTC)
    values = []
    for change in (lambda: None, install, monkeypatch.undo):
        change()
        probes.read(["queue_length"], noon)
        values.append(probes.known(["queue_length"], noon)["queue_length"].value)

    assert values == [None, 12, 12]


@pytest.fixture
def uninstalled(shop):
    """Two schedules with parts of another package, as the catalog has them after the package was uninstalled."""
    ready = shop.program("ready")
    spec = {"trigger": NewPartitions("clicks"), "constraints": (Rate(9, "1h"),)}
    for name in ("by_trigger", "by_constraint"):
        shop.schedule(**spec, name=name, program=shop.program(name))
    shop.schedule(NewPartitions("clicks"), name="whole", program=ready)
    before = dict(shop.sql("SELECT name, spec FROM schedule"))
    after = {
        "by_trigger": before["by_trigger"].replace('"new_partitions"', '"new_moons"'),
        "by_constraint": before["by_constraint"].replace('"rate"', '"even_moons"'),
    }

    def store(specs):
        for name, text in specs.items():
            shop.sql(f"UPDATE schedule SET spec = '{text}' WHERE name = '{name}'")
        ScheduleSpec.decode.cache_clear()

    store(after)
    yield lambda: store(before)
    ScheduleSpec.decode.cache_clear()


def test_a_package_that_is_not_installed_holds_up_its_own_schedules_only(shop, uninstalled):
    """Their jobs keep what they are fed, and start when the package is there again."""
    shop.add()
    first = [launch.schedule for launch in shop.step()]
    waiting = {job.verdict["trigger"]["answer"] for job in shop.jobs()}
    early = shop.step()
    uninstalled()
    shop.clock.move("1m")
    second = sorted(launch.schedule for launch in shop.step())

    assert (first, early) == (["default.shop.whole"], [])
    assert waiting == {"not_before", "satisfied"}
    assert second == ["default.shop.by_constraint", "default.shop.by_trigger"]


def test_a_schedule_of_a_package_that_is_not_installed_is_stored_unchanged_and_deleted(shop, uninstalled):
    """A suspension writes its row again. An update is refused: it would lose the keys that the trigger listens to."""
    before = shop.sql("SELECT name, spec FROM schedule ORDER BY name")
    schedule = shop.catalog.read(lambda db: find_schedule(db, DEFAULT_NAMESPACE, "shop", "by_trigger"))
    shop.change(Suspend(schedule.schedule_id), Resume(schedule.schedule_id))
    after = shop.sql("SELECT name, spec FROM schedule ORDER BY name")
    program = shop.catalog.read(lambda db: find_program_by_id(db, schedule.program_id))

    with pytest.raises(BadSchedule, match=r"new_moons \(not installed\): install its package first, or delete"):
        shop.catalog.read(lambda db: check_trigger_of(db, "default.shop.by_trigger", program, schedule.spec.trigger))
    shop.change(Delete(schedule.schedule_id))

    assert [(name, json.loads(text)) for name, text in after] == [(name, json.loads(text)) for name, text in before]
    assert types_of(schedule.spec.trigger) == {"new_moons"}
    assert [name for (name,) in shop.sql("SELECT name FROM schedule ORDER BY name")] == ["by_constraint", "whole"]


def test_a_kind_that_is_not_installed_is_refused_with_the_known_ones():
    """A schedule of another node's plug-in."""
    with pytest.raises(BadJson, match="rate"):
        read_plain(Constraint, {"type": "rat"})


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ({"broken": "no_such_module:Thing"}, "cannot be loaded"),
        ({"broken": "even_hours:queue_length"}, "is no Constraint"),
        ({"concurrency": "even_hours:EvenHours"}, "which another kind has"),
    ],
)
def test_a_broken_plug_in_is_named(install, entry, why):
    """The reader has to know which package to correct."""
    install({"tidemill.constraints": entry})

    with pytest.raises((BadPlugin, BadJson), match=why):
        read_plain(Constraint, {"type": "odd_hours"})


def test_a_class_without_an_entry_point_is_refused_when_a_schedule_is_made():
    """Else no process could read the schedule."""
    with pytest.raises(BadSchedule, match=r"tidemill\.constraints"):
        ScheduleSpec(Every("1h"), (Lazy(),))


@dataclass(frozen=True)
class Lazy(Constraint):
    """A constraint with some mistakes, by its number."""

    mistake: int = 0

    def needs(self, program_id: str) -> tuple[str, ...]:
        return (f"active:{program_id}",)

    def check(self, facts: Facts, now: datetime) -> Answer:
        match self.mistake:
            case 1:
                return NotBefore(now, "now")
            case 2:
                return Waiting("for nothing")
            case 3:
                return Waiting("for another", ("slots:group:other",))
            case 4:
                return Satisfied(str(facts.count("slots:group:other")))
            case 5:
                return NotBefore(now.replace(tzinfo=None) + timedelta(days=1), "without a zone")
            case _:
                return Satisfied("")

    def __str__(self) -> str:
        return f"Lazy({self.mistake})"


@pytest.mark.parametrize("mistake", range(6))
def test_the_checks_find_each_mistake(monkeypatch, mistake):
    """Checks that find nothing in broken classes would prove nothing about sound ones."""
    monkeypatch.setattr("tidemill.testing.conformance.write_text", lambda example: str(example.mistake))
    monkeypatch.setattr("tidemill.testing.conformance.read_text", lambda _, text: Lazy(int(text)))
    monkeypatch.setattr("tidemill.testing.conformance.ScheduleSpec", lambda *_, **__: None)

    with pytest.raises((AssertionError, Internal)) as found:
        check_constraint(Lazy, [Lazy(mistake)])

    assert found.match("Lazy|slots:group:other")


def test_a_constraint_that_raises_holds_up_no_other_job(shop, monkeypatch, caplog):
    """An error of a plug-in means "not yet"; the other jobs of the batch go on."""
    monkeypatch.setattr(Rate, "check", _fail)
    shop.schedule(NewPartitions("clicks"), name="a", program=shop.program("a"), constraints=(Rate(1, per="1h"),))
    shop.schedule(NewPartitions("clicks"), name="b", program=shop.program("b"))
    shop.add()

    (launch,) = shop.step()

    (job,) = shop.jobs()
    assert launch.schedule == "default.shop.b"
    assert job.verdict["constraints"][0]["why"] == "Rate(1, per='1h') failed: ZeroDivisionError: division by zero"
    assert "Rate(1, per='1h') failed" in caplog.text


def _fail(*_: object) -> Answer:
    raise ZeroDivisionError("division by zero")


@pytest.mark.parametrize("method", ["check", "feed"])
def test_a_trigger_that_raises_holds_up_no_other_schedule(shop, monkeypatch, method):
    """Neither the scheduler, which one mistake in a package would end again after each start."""
    monkeypatch.setattr(NewData, method, _fail)
    shop.schedule(NewData("clicks", rows=1), name="a", program=shop.program("a"))
    shop.schedule(NewPartitions("clicks"), name="b", program=shop.program("b"))
    shop.publish("partition:default.clicks", partitions=[{"key": "", "rows": 1}])

    (launch,) = shop.step()

    assert launch.schedule == "default.shop.b"


@pytest.mark.parametrize("answer", [None, NotBefore(datetime(2020, 1, 1, tzinfo=UTC), "then"), "yes"])
@pytest.mark.parametrize("kind", [NewData, Rate])
def test_an_answer_that_breaks_the_contract_means_not_yet(shop, monkeypatch, kind, answer):
    """A time that has passed would have the job checked again without end."""
    monkeypatch.setattr(kind, "check", lambda *_: answer)
    shop.schedule(NewData("clicks", rows=1), constraints=(Rate(1, per="1h"),))
    shop.publish("partition:default.clicks", partitions=[{"key": "", "rows": 1}])

    assert shop.step() == []

    (job,) = shop.jobs()
    assert job.next_check_at == shop.clock.now() + timedelta(minutes=1)
