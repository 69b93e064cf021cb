"""References: the things that a schedule names in its trigger, its constraints and its arguments."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.names import NamedThing, split_qualified
from tidemill.schedule.anytime import Anytime
from tidemill.schedule.argument_sources import From, PartitionKey
from tidemill.schedule.constraints import Concurrency, Constraint, GroupConcurrency, Rate
from tidemill.schedule.data_triggers import DatasetTrigger
from tidemill.schedule.expectation_triggers import Missing
from tidemill.schedule.program_triggers import RunEnded
from tidemill.schedule.specs import ScheduleSpec
from tidemill.schedule.standstill_triggers import WatermarkStands
from tidemill.schedule.time_triggers import Cron, Every
from tidemill.schedule.topic_triggers import Hook, MessageOn
from tidemill.schedule.triggers import Leaf
from tidemill.schedule.waits import Delay, Probe, SinceLastRun, TimeRange
from tidemill.schedule.window_triggers import WindowsRecomputed


def list_references(spec: ScheduleSpec) -> list[NamedThing]:
    """Return the things that a spec names.

    A topic, a group and a probe belong to no namespace. What a part of another package names is not known: such a part
    counts as a thing of no namespace too.
    """
    sources = (given.source for given in spec.arguments.values() if isinstance(given, From))
    return [
        *(one for leaf in spec.trigger.leaves for one in _of_leaf(leaf)),
        *(one for constraint in spec.constraints for one in _of_constraint(constraint)),
        *(_in_namespace("data set", source.dataset, 1) for source in sources if isinstance(source, PartitionKey)),
    ]


def _of_leaf(leaf: Leaf) -> Iterator[NamedThing]:
    match leaf:
        case DatasetTrigger() | Missing() | WatermarkStands():
            yield _in_namespace("data set", leaf.dataset, 1)
        case RunEnded() | WindowsRecomputed():
            yield _in_namespace("program", leaf.program, 2)
        case Hook():
            yield _in_namespace("hook", leaf.name, 1)
        case MessageOn():
            yield NamedThing("topic", leaf.topic, None)
        case Cron() | Every() | Anytime():
            pass
        case _:
            yield NamedThing("trigger", str(leaf), None)


def _of_constraint(constraint: Constraint) -> Iterator[NamedThing]:
    match constraint:
        case GroupConcurrency():
            yield NamedThing("group", constraint.group, None)
        case Probe():
            yield NamedThing("probe", constraint.name, None)
        case Concurrency() | Rate() | Delay() | SinceLastRun() | TimeRange():
            pass
        case _:
            yield NamedThing("constraint", str(constraint), None)


def _in_namespace(kind: str, name: str, parts: int) -> NamedThing:
    return NamedThing(kind, name, split_qualified(kind, name, parts)[0])
