"""Tidemill runs your PySpark programs when the data has arrived, and makes every run one transaction.

What it consumed, what it published and what it announced commit together, or not at all. All public names stand here;
everything else is ours to change. Each is imported at its first use: `tidemill --help` needs none of them.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.alerts.rules import BackfillStopped as BackfillStopped
    from tidemill.alerts.rules import ConsumerLag as ConsumerLag
    from tidemill.alerts.rules import DiskLow as DiskLow
    from tidemill.alerts.rules import JobWaits as JobWaits
    from tidemill.alerts.rules import Late as Late
    from tidemill.alerts.rules import NothingArrived as NothingArrived
    from tidemill.alerts.rules import PartitionMisdated as PartitionMisdated
    from tidemill.alerts.rules import Quarantined as Quarantined
    from tidemill.alerts.rules import RunFailed as RunFailed
    from tidemill.alerts.rules import RunSlow as RunSlow
    from tidemill.alerts.rules import RunTooLong as RunTooLong
    from tidemill.alerts.rules import SchedulerBehind as SchedulerBehind
    from tidemill.alerts.rules import TransactionTooLong as TransactionTooLong
    from tidemill.alerts.rules import WatermarkHeld as WatermarkHeld
    from tidemill.alerts.targets import Command as Command
    from tidemill.alerts.targets import Email as Email
    from tidemill.alerts.targets import Slack as Slack
    from tidemill.alerts.targets import WebHook as WebHook
    from tidemill.app.app import App as App
    from tidemill.app.declared import DeclaredFileset as Fileset  # noqa: F401
    from tidemill.app.declared import DeclaredInbox as Inbox  # noqa: F401
    from tidemill.app.declared import DeclaredSnapshot as Snapshot  # noqa: F401
    from tidemill.app.reads import Changes as Changes
    from tidemill.app.reads import Reads as Reads
    from tidemill.app.watermark import Watermark as Watermark
    from tidemill.app.workflow import DeclaredNode as Node  # noqa: F401
    from tidemill.client.connect import connect as connect
    from tidemill.errors import Conflict as Conflict
    from tidemill.errors import Fenced as Fenced
    from tidemill.errors import NotFound as NotFound
    from tidemill.errors import TidemillError as TidemillError
    from tidemill.errors import Unavailable as Unavailable
    from tidemill.errors import UserError as UserError
    from tidemill.frames.checks import Expect as Expect
    from tidemill.frames.checks import NotNull as NotNull
    from tidemill.frames.checks import Rows as Rows
    from tidemill.frames.checks import Unique as Unique
    from tidemill.frames.jdbc import Jdbc as Jdbc
    from tidemill.lake.consumer.consumer import ConsumedPartition as ConsumedPartition
    from tidemill.lake.consumer.consumer import PartitionConsumer as PartitionConsumer
    from tidemill.lake.consumer.consumer import PartitionConsumerResult as PartitionConsumerResult
    from tidemill.lake.consumer.consumer import PartitionConsumerState as PartitionConsumerState
    from tidemill.mill.mill import Mill as Mill
    from tidemill.mill.mill import open_mill as open  # noqa: A004, F401  # read as `tm.open`
    from tidemill.mill.page import Page as Page
    from tidemill.mill.page import iterate as iterate
    from tidemill.mill.why import Explanation as Explanation
    from tidemill.reasons import Because as Because
    from tidemill.reasons import Reason as Reason
    from tidemill.run.records.workflow_spec import NodeValue as NodeValue
    from tidemill.run.records.workflow_spec import When as When
    from tidemill.run.step.acceptors import Accept as Accept
    from tidemill.run.step.context import NoRun as NoRun
    from tidemill.run.step.context import Run as Run
    from tidemill.run.step.context import current_run as current_run
    from tidemill.run.step.partition_input import DiscardedPartition as DiscardedPartition
    from tidemill.schedule.anytime import Anytime as Anytime
    from tidemill.schedule.argument_sources import From as From
    from tidemill.schedule.constraints import Concurrency as Concurrency
    from tidemill.schedule.constraints import GroupConcurrency as GroupConcurrency
    from tidemill.schedule.constraints import Rate as Rate
    from tidemill.schedule.data_triggers import NewData as NewData
    from tidemill.schedule.data_triggers import NewFiles as NewFiles
    from tidemill.schedule.data_triggers import NewPartitions as NewPartitions
    from tidemill.schedule.data_triggers import Refreshed as Refreshed
    from tidemill.schedule.data_triggers import WatermarkPassed as WatermarkPassed
    from tidemill.schedule.expectation_triggers import Missing as Missing
    from tidemill.schedule.program_triggers import RunEnded as RunEnded
    from tidemill.schedule.standstill_triggers import WatermarkStands as WatermarkStands
    from tidemill.schedule.time_triggers import Cron as Cron
    from tidemill.schedule.time_triggers import Every as Every
    from tidemill.schedule.topic_triggers import Hook as Hook
    from tidemill.schedule.topic_triggers import MessageOn as MessageOn
    from tidemill.schedule.triggers import AllOf as AllOf
    from tidemill.schedule.triggers import AnyOf as AnyOf
    from tidemill.schedule.triggers import AtLeast as AtLeast
    from tidemill.schedule.triggers import Silence as Silence
    from tidemill.schedule.waits import Delay as Delay
    from tidemill.schedule.waits import Probe as Probe
    from tidemill.schedule.waits import SinceLastRun as SinceLastRun
    from tidemill.schedule.waits import TimeRange as TimeRange
    from tidemill.schedule.window_triggers import WindowsRecomputed as WindowsRecomputed
    from tidemill.secret_places import Secret as Secret
    from tidemill.shapes.expectation import Arrivals as Arrivals
    from tidemill.shapes.filters import Range as Range

# The module of each name, and the name in that module if it differs.
_HOMES = {
    "Accept": "run.step.acceptors",
    "AllOf": "schedule.triggers",
    "AnyOf": "schedule.triggers",
    "Anytime": "schedule.anytime",
    "App": "app.app",
    "Arrivals": "shapes.expectation",
    "AtLeast": "schedule.triggers",
    "BackfillStopped": "alerts.rules",
    "Because": "reasons",
    "Changes": "app.reads",
    "Command": "alerts.targets",
    "Concurrency": "schedule.constraints",
    "Conflict": "errors",
    "ConsumedPartition": "lake.consumer.consumer",
    "ConsumerLag": "alerts.rules",
    "Cron": "schedule.time_triggers",
    "Delay": "schedule.waits",
    "DiscardedPartition": "run.step.partition_input",
    "DiskLow": "alerts.rules",
    "Email": "alerts.targets",
    "Every": "schedule.time_triggers",
    "Expect": "frames.checks",
    "Explanation": "mill.why",
    "Fenced": "errors",
    "Fileset": "app.declared:DeclaredFileset",
    "From": "schedule.argument_sources",
    "GroupConcurrency": "schedule.constraints",
    "Hook": "schedule.topic_triggers",
    "Inbox": "app.declared:DeclaredInbox",
    "Jdbc": "frames.jdbc",
    "JobWaits": "alerts.rules",
    "Late": "alerts.rules",
    "MessageOn": "schedule.topic_triggers",
    "Mill": "mill.mill",
    "Missing": "schedule.expectation_triggers",
    "NewData": "schedule.data_triggers",
    "NewFiles": "schedule.data_triggers",
    "NewPartitions": "schedule.data_triggers",
    "NoRun": "run.step.context",
    "Node": "app.workflow:DeclaredNode",
    "NodeValue": "run.records.workflow_spec",
    "NotFound": "errors",
    "NotNull": "frames.checks",
    "NothingArrived": "alerts.rules",
    "Page": "mill.page",
    "PartitionConsumer": "lake.consumer.consumer",
    "PartitionConsumerResult": "lake.consumer.consumer",
    "PartitionConsumerState": "lake.consumer.consumer",
    "PartitionMisdated": "alerts.rules",
    "Probe": "schedule.waits",
    "Quarantined": "alerts.rules",
    "Range": "shapes.filters",
    "Rate": "schedule.constraints",
    "Reads": "app.reads",
    "Reason": "reasons",
    "Refreshed": "schedule.data_triggers",
    "Rows": "frames.checks",
    "Run": "run.step.context",
    "RunEnded": "schedule.program_triggers",
    "RunFailed": "alerts.rules",
    "RunSlow": "alerts.rules",
    "RunTooLong": "alerts.rules",
    "SchedulerBehind": "alerts.rules",
    "Secret": "secret_places",
    "Silence": "schedule.triggers",
    "SinceLastRun": "schedule.waits",
    "Slack": "alerts.targets",
    "Snapshot": "app.declared:DeclaredSnapshot",
    "TidemillError": "errors",
    "TimeRange": "schedule.waits",
    "TransactionTooLong": "alerts.rules",
    "Unavailable": "errors",
    "Unique": "frames.checks",
    "UserError": "errors",
    "Watermark": "app.watermark",
    "WatermarkHeld": "alerts.rules",
    "WatermarkPassed": "schedule.data_triggers",
    "WatermarkStands": "schedule.standstill_triggers",
    "WebHook": "alerts.targets",
    "When": "run.records.workflow_spec",
    "WindowsRecomputed": "schedule.window_triggers",
    "connect": "client.connect",
    "current_run": "run.step.context",
    "iterate": "mill.page",
    "open": "mill.mill:open_mill",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'tidemill' has no attribute {name!r}")
    home, _, inner = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f"tidemill.{home}"), inner or name)


def __dir__() -> list[str]:
    return list(_HOMES)
