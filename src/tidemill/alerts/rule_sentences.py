"""Rules as people say them: the state that opens an alert, as the end of a sentence that begins with `when`."""

from __future__ import annotations

from typing import assert_never, cast

from tidemill.alerts.rules import (
    ALL_PROGRAMS,
    BackfillStopped,
    ConsumerLag,
    DiskLow,
    JobWaits,
    Late,
    NothingArrived,
    PartitionMisdated,
    Quarantined,
    Rule,
    RunFailed,
    RunSlow,
    RunTooLong,
    SchedulerBehind,
    TransactionTooLong,
    WatermarkHeld,
)
from tidemill.durations import format_duration

_AnyRule = (
    RunFailed
    | RunTooLong
    | RunSlow
    | BackfillStopped
    | JobWaits
    | Late
    | Quarantined
    | WatermarkHeld
    | PartitionMisdated
    | TransactionTooLong
    | NothingArrived
    | ConsumerLag
    | SchedulerBehind
    | DiskLow
)


def describe_rule(rule: Rule) -> str:  # noqa: PLR0911, PLR0912, C901  # one line for each rule
    """Return the state of a rule in words: `the last 2 runs of default.shop.load failed`."""
    match cast("_AnyRule", rule):
        case RunFailed(program=program, times=times):
            whose = "a program" if program == ALL_PROGRAMS else program
            return f"the last run of {whose} failed" if times == 1 else f"the last {times} runs of {whose} failed"
        case RunTooLong(program=program, longer_than=span):
            return f"an attempt of {program} is under way for longer than {format_duration(span)}"
        case RunSlow(program=program, factor=factor):
            return f"an attempt of {program} takes {factor:g} times as long as usual"
        case BackfillStopped(program=program):
            whose = "a program" if program == ALL_PROGRAMS else program
            return f"a backfill of {whose} has paused by itself, or has ended with failed items"
        case JobWaits(schedule=schedule, longer_than=span):
            return f"the job of {schedule} waits for its constraints for longer than {format_duration(span)}"
        case Late(dataset=dataset, by=span):
            late = f" by more than {format_duration(span)}" if span else ""
            return f"an expected arrival of {dataset} is late{late}"
        case Quarantined(inbox=inbox, files=files):
            return (
                f"{files} or more files of {inbox} are in quarantine"
                if files > 1
                else f"{inbox} has a file in quarantine"
            )
        case WatermarkHeld(fileset=fileset, longer_than=span):
            return f"the watermark of {fileset} does not move for longer than {format_duration(span)}"
        case PartitionMisdated(fileset=fileset):
            return f"a partition of {fileset} has no time, or a time too far ahead"
        case TransactionTooLong(longer_than=span):
            return f"a transaction is open for longer than {format_duration(span)}"
        case NothingArrived(dataset=dataset, longer_than=span):
            return f"nothing arrives in {dataset} for longer than {format_duration(span)}"
        case ConsumerLag(dataset=dataset, consumer=consumer, partitions=0, longer_than=span):
            return f"a partition of {dataset} waits for {consumer} for longer than {format_duration(span)}"
        case ConsumerLag(dataset=dataset, consumer=consumer, partitions=partitions):
            return f"{partitions} or more partitions of {dataset} wait for {consumer}"
        case SchedulerBehind(by=span):
            return f"the scheduler is behind by more than {format_duration(span)}"
        case DiskLow(free=free):
            return f"a machine of `tidemill up` has less than {free} left on its disk"
        case never:
            assert_never(never)
