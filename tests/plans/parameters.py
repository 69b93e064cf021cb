"""Parameters of each statement, with which it finds or changes something in the filled catalog."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Final

from tidemill.catalog.named import GREATEST, Call, Param, Statement

_NOW: Final = int(time.time() * 1000)
_SNAPSHOT: Final = 600_050
"""Above every commit, below the open transactions."""
_OPEN: Final = 600_101
_ABORTED: Final = 1000
_LATE: Final = [2 * i + 1 for i in range(294_000, 294_010)]

_HOUR: Final = 3_600_000_000
_WAITS: Final = json.dumps([{"slot_time": 2 * i * _HOUR, "partition_key": f"k{i}"} for i in range(50)])
_BEING_PROCESSED: Final = [i for i in range(297_000, 297_200) if i % 2 == 1]
"""The files that run `live_1` holds."""
_LEAVING: Final = range(100, 200)
_WAITING: Final = range(299_000, 299_100)
_UNKNOWN: Final = range(300_000, 300_100)


def _list(*values: object) -> str:
    return json.dumps(values)


def _rows(rows: object) -> str:
    return json.dumps(rows)


def _changes(numbers: range | list[int]) -> str:
    return _rows([{"write_pointer": 2 * i + 1, "partition_key": f"k{i % 100_000}"} for i in numbers])


def _files(numbers: range | list[int], **more: object) -> str:
    return _rows(
        [{"dataset_id": "landing", "name": f"f{i}", "content_version": "v1", "place": i, **more} for i in numbers]
    )


_AGAIN: Final = _files([i for i in range(2000, 2100) if i % 997])
"""Processed files that stay in their inbox."""


def _deep(first: int) -> str:
    """Changes of `deep` that were replaced: from write pointer 1 on those that have expired, from 11 on others."""
    return _rows([{"write_pointer": w, "partition_key": f"k{w // 10 % 100}"} for w in range(first, first + 2000, 20)])


_CURRENT: Final = _rows(
    [{"write_pointer": 2 * i + 1, "partition_key": f"k{i % 100_000}", "shown": "k"} for i in range(299_000, 299_100)]
)
_COMPACTED: Final = _rows(
    [{"partition_key": f"k{i % 100_000}", "shown": "k", "base": 2 * i + 1} for i in range(299_000, 299_100)]
)
_RUNS: Final = {"created_before": _NOW * 2, "before": "~", "since": 0, "most": 100}
_BEFORE: Final = {"created_before": _NOW * 2, "before": "~"}
_MADE: Final = [
    {"partition_key": f"n{i}", "manifest": "bQ==", "files": 1, "bytes": 1, "row_count": 1} for i in range(100)
]
_KEYS: Final = [f"k{i}" for i in range(100)]
_WANTED: Final = _rows([{"partition_key": key, "shown": key, "name": "n", "pattern": '"n":'} for key in _KEYS])
_NEW_CHANGE: Final = {
    "op": "append",
    "delivers": 1,
    "late": "recompute",
    "location": "tx-1",
    "manifest": "bQ==",
    "files": 1,
    "bytes": 1,
    "row_count": 1,
    "metadata": None,
}
_NEW_FILES: Final = _files(_UNKNOWN, etag="e", bytes=1, modified_at=_NOW, status="NEW", error=None)
_OUTCOMES: Final = _files(
    _BEING_PROCESSED, status="SUCCESS", error=None, row_count=1, failures=0, retry_after=None, etag="e", checksum="c"
)
_SCHEDULES: Final = _list(*(f"schedule_{i}" for i in range(10, 110)))
_JOBS: Final = [f"job_{i}" for i in range(100)]
_FIRES: Final = [
    {"schedule_id": f"schedule_{i}", "generation": 1, "trigger_no": 1, "fire_time": 1000, "job_id": "j"}
    for i in range(100)
]
_TIMERS: Final = _rows(
    [
        {"schedule_id": f"schedule_{i}", "trigger_no": 1, "next_fire_at": _NOW, "behind": None, "counted_from": _NOW}
        for i in range(100)
    ]
)
_BOUNDARIES: Final = _rows(
    [
        {
            "schedule_id": f"schedule_{i}",
            "trigger_no": 1,
            "next_at": 2000,
            "last_at": 2000,
            "zone": "UTC",
            "behind": None,
        }
        for i in range(0, 10_000, 100)
    ]
)

_BY_NAME: Final = {"after_namespace": "default"}
_OF_HIVE: Final = {"metastore": "thrift://m:9083", "database": "default"}
_LAST: Final = "\U0010ffff"
_AMONG_SCHEDULES: Final[Mapping[str, Param]] = {
    **_BY_NAME,
    "after_app": "app_15",
    "after_name": "s10155",
    "until_namespace": _LAST,
    "until_app": _LAST,
    "until_name": _LAST,
}

_PARAMS: Final[Mapping[str, Param]] = {
    "after": "f2",
    "app": "app_1",
    "asked": "now",
    "attempts": 3,
    "at": _NOW,
    "backoff": 1000,
    "base_id": "",
    "begins": 0,
    "bound": _SNAPSHOT,
    "bundle": "bundle_1",
    "cause": "run_1",
    "by_whom": "somebody",
    "changes": _rows([{**_NEW_CHANGE, "partition_key": f"n{i}"} for i in range(100)]),
    "claims": _changes(_WAITING),
    "closed": _changes(_WAITING),
    "commit_seq": _SNAPSHOT,
    "complete": 1,
    "computed": 298_000 * _HOUR,
    "compacted": 1,
    "no_files": b"",
    "consumer_id": "wide",
    "content": b"zip",
    "consumers": _list("wide", "deep", "small_1"),
    "contents": _OUTCOMES,
    "content_version": "",
    "copies": _files(_WAITING, known_etag="e", etag="f"),
    "dataset": "default.wide",
    "discarded": _changes(range(297_200, 297_210)),
    "dataset_id": "wide",
    "dataset_ids": _list("wide", "landing", "small_1"),
    "declared": "declared",
    "definition": "{}",
    "delay": 1000,
    "delivers": 1,
    "digest": "bundle_1",
    "dropped": 1,
    "epoch": 1,
    "error": "it failed",
    "event_key": "partition:default.small_1",
    "event_keys": _list("partition:default.small_1", "partition:default.small_2"),
    "listened": _list("message:orders:", "message:orders:settled"),
    "event_type": "partitions",
    "expected": 1,
    "facts": "{}",
    "stages": "{}",
    "origin": "run_299000",
    "heir": "new_run",
    "hold_for": 1000,
    "faults": "{}",
    "holding": "closed",
    "node": "fetch",
    "nodes": _rows([{"workflow_id": "new_run", "node": f"n{i}", "run_id": f"new_{i}"} for i in range(100)]),
    "result": "{}",
    "resumed_by": "new_run",
    "workflow": "run_299000",
    "workflows": _rows([{"run_id": f"new_{i}", "spec": "{}"} for i in range(100)]),
    "failed": 1,
    "failures": 1,
    "files": _files(_BEING_PROCESSED),
    "unusable": "[]",
    "forget_after": 1000,
    "fires": _rows(_FIRES),
    "found": _NEW_FILES,
    "from_failures": 0,
    "from_time": 0,
    "from_end": 0,
    "gap": "skip",
    "gap_wait": 3_600_000,
    "idle_timeout": 1,
    "includes": 0,
    "high": 99_000 * _HOUR,
    "avoided": _list("bundle_2", "profile:big"),
    "heard_by": "",
    "id": "wide",
    "ids": _list("wide", "deep", "small_1", "landing"),
    "held": _rows([{"run_id": f"live_{i}", "epoch": 1} for i in range(200)]),
    "horizon": 599_800,
    "host": "host",
    "incarnation": "life0000",
    "interval": 1000,
    "job_id": "job_1",
    "job_ids": _list(*_JOBS),
    "jobs": _rows(
        [
            {"job_id": job, "revision": 0, "progress": "{}", "state": "PENDING_TRIGGER", "verdict": "waits"}
            for job in _JOBS
        ]
    ),
    "instances": 1,
    "keys": _list(*_KEYS),
    "kill_asked": 0,
    "kind": "spark",
    "last": "zzz",
    "last_move": 100,
    "lease": 60_000,
    "lease_until": None,
    "lower": "",
    "limit": 100,
    "limit_keys": _list(*(f"program:program_{i}" for i in range(20))),
    "limits": _rows([{"limit_key": f"new:{i}"} for i in range(100)]),
    "late": 1,
    "longest": 1,
    "marker": "f3",
    "missed": 1,
    "reconciled_at": 1,
    "reconciled_before": 0,
    "listed": _files([*_UNKNOWN, *_WAITING]),
    "location": "tx-1",
    "logical_time": _NOW,
    "log_location": "/logs",
    "low": 98_950 * _HOUR,
    "losses": 0,
    "max_ahead": 1,
    "members": _rows([{"slot_time": i * _HOUR, "member": "us"} for i in range(1000, 1100)]),
    "messages": _rows([{"job_id": job, "topic": "data", "seq": 599_000, "n": 0, "trigger_no": 9} for job in _JOBS]),
    "moment": _NOW - 1_000_000,
    "more": 1,
    "most": 100,
    "metadata": None,
    "n": 0,
    "name": "s1",
    "namespace": "default",
    "new_id": "anew",
    "newest": 0,
    "next_listing_at": 1000,
    "backfill_id": "backfill_0",
    "node_id": "node_1",
    "not_before": 1000,
    "now": _NOW,
    "core_time": 1_500,
    "open_for": 5000,
    "offered": _changes(_WAITING),
    "order_time": _NOW,
    "outcomes": _OUTCOMES,
    "owner": "runner_1",
    "owner_process": "boot 1:2:pid:[3]",
    "payload": "{}",
    "partition_key": "k1",
    "pid": 1,
    "pin_id": "pin",
    "place": 50,
    "process": "boot 1:2:pid:[3]",
    "program_id": "program_1",
    "program_ids": _list("program_1", "program_2"),
    "reason": "done",
    "retry_after": 1000,
    "returned": _rows([{"consumer_id": "wide", "partition_key": f"k{i % 100_000}"} for i in _BEING_PROCESSED]),
    "revision": 0,
    "row_lag": 0,
    "roles": "[]",
    "rolled_back_to": None,
    "run_id": "live_1",
    "run_ids": _list(*(f"run_{i}" for i in range(100))),
    "runs": _list(*(f"run_{i}" for i in range(100))),
    "schedule_id": "schedule_11",
    "schedule_ids": _SCHEDULES,
    "schedules": _rows([{"schedule_id": f"schedule_{i}"} for i in range(100)]),
    "schema": "a int",
    "schema_id": "s",
    "seen": 599_900,
    "seq": 599_900,
    "slots": _rows(
        [
            {"slot_time": i * _HOUR, "begins_at": i * _HOUR, "ends_at": (i + 1) * _HOUR, "next_time": (i + 1) * _HOUR}
            for i in range(298_950, 299_050)
        ]
    ),
    "since_seq": 599_000,
    "spec": "{}",
    "start_version": 599_600,
    "state": "RUNNING",
    "taken": _changes(_WAITING),
    "timers": _TIMERS,
    "empty": _BOUNDARIES,
    "moved": _BOUNDARIES,
    "passed": _BOUNDARIES,
    "rereads": 0,
    "rewound": _BOUNDARIES,
    "times": _list(*(2 * i * _HOUR for i in range(50))),
    "to_failures": 2,
    "topic": "data",
    "triggered_by": "{}",
    "until": None,
    "upper": "z",
    "upto": 1000 * _HOUR,
    "wait": 1000,
    "value": 299_500 * _HOUR,
    "version": _rows([{"manifest": "bQ==", "files": 1, "bytes": 1, "row_count": 1}]),
    "versions_to_check": _list(*_LATE),
    "wait_keys": _list("slots:program:program_1", "slots:program:program_2"),
    "waits": _rows([{"wait_key": "run:program_1", "job_id": job} for job in _JOBS]),
    "wanted": _WANTED,
    "windows": _rows([{"window_start": i * _HOUR, "window_end": (i + 1) * _HOUR} for i in range(1000, 1100)]),
    "with_spark": 0,
    "write_pointer": _SNAPSHOT,
}
"""By the parameter's name, for all statements that say nothing else below."""

_NEW_JOBS: Final = _rows(
    [
        {
            "job_id": f"new_{i}",
            "schedule_id": f"schedule_new_{i}",
            "generation": 1,
            "priority": 0,
            "progress": "{}",
            "outcome": "launched",
            "created_at": _NOW,
        }
        for i in range(100)
    ]
)
_NEW_RUNS: Final = _rows(
    [
        {
            "run_id": f"new_{i}",
            "program_id": "program_1",
            "job_id": f"new_{i}",
            "priority": 0,
            "arguments": "{}",
            "triggered_by": "{}",
        }
        for i in range(100)
    ]
)
_NEW_SCHEDULES: Final = _rows(
    [
        {
            "schedule_id": f"schedule_{i}",
            "namespace": "default",
            "app": "app_new",
            "name": f"new_{i}",
            "generation": 2,
            "since_seq": 1,
            "since_at": _NOW,
            "program_id": "program_1",
            "spec": "{}",
            "priority": 0,
            "owner": "app",
            "status": "SCHEDULED",
            "suspended_at": None,
            "suspended_mode": None,
        }
        for i in range(20_000, 20_100)
    ]
)

_LEFT_OUT: Final = _rows([{"dataset_id": "wide", "partition_key": f"k{i}"} for i in range(1, 30_000, 300)])
_OVERRIDES: Final[Mapping[str, Mapping[str, Param]]] = {
    "nodes.find_old_node": {"keep": _NOW - 1000},
    "nodes.delete_old_nodes": {"keep": _NOW - 1000},
    "nodes.list_nodes": {"after": "node_1"},
    "nodes.put_node": {"slots": 2},
    "transactions.declare_writes": {
        "declared": _rows([{"dataset_id": name, "from_time": None, "to_time": None} for name in ("small_1", "small_2")])
    },
    "windows.put_state": {"program_id": "program_new"},
    "windows.set_definition": {"definition": '{"query": "another"}'},
    "cascade.put_output": {"time_value": 1, "start_value": 1},
    "cascade.move_output": {"time_value": 1, "start_value": 1},
    "cascade.note_changes": {
        "dataset_id": "wide",
        "changes": _rows([{"begins": i, "ends": i + 1} for i in range(100)]),
    },
    "cascade.list_changes": {"dataset_id": "deep", "until": 599_960},
    "cascade.forget_outputs": {"program_ids": _list("program_1", "program_2")},
    "cascade.list_writers": {"dataset_id": "deep"},
    "watermark.insert_slots": {"follows": 1},
    "watermark.raise_target_following": {"dataset_id": "deep", "time_column": "window_time"},
    "windows.refuse_moved": {"name": "default.app.p1"},
    "windows.mark_stale": {"program_id": "program_2"},
    "windows.list_dirty": {"write_pointer": 600_000},
    "windows.list_touched": {"pointers": _list(*(2 * i + 1 for i in range(200_000, 200_020)))},
    "windows.publish_closed": {"ids": _list("program_1", "program_2"), "margin": _HOUR},
    "retries.clear_due": {"ids": _list("program_1", "program_2")},
    "retries.postpone": {"id": "program_1"},
    "retries.rearm": {"ids": _list("program_299")},
    "windows.announce_left": {"more": 0, "write_pointer": 599_990, "high": 200_000 * _HOUR},
    "retries.note_failures": {
        "failures": _rows(
            [{"window_start": i, "window_end": i + 1, "reason": "bad", "partitions": "[]"} for i in range(8)]
        )
    },
    "windows.list_late": {"until": 600_000},
    "windows.list_arrivals": {"until": 600_000},
    "outside_times.list_unread": {"dataset_id": "wide", "since": 599_900, "until": 600_000},
    "outside_times.put_times": {"times": _rows([{"partition_key": "[1]", "stretches": "[[1,2]]"}])},
    "outside_times.put_unread": {"unread": _rows([{"partition_key": "[1]"}]), "since": 599_990},
    "outside_times.put_released": {"released": _rows([{"partition_key": "[1]"}])},
    "outside_times.delete_times": {"dataset_id": "wide", "keys": _list(*(f"k{i}" for i in range(1, 60_000, 300)))},
    "outside_times.set_seen": {"until": 600_000},
    "windows.put_inputs": {"inputs": _rows([{"dataset_id": "small_1", "late": "recompute", "lag": 0}])},
    "windows.forget_inputs": {"kept": _list("small_1")},
    "windows.add_left_out": {
        "late": _rows(
            [{"dataset_id": "wide", "partition_key": f"k{i}", "slot_time": i, "late_rows": 1} for i in range(100)]
        )
    },
    "windows.list_late_counted": {"keys": _list(*(f"k{i}" for i in range(30_001, 60_000, 300)))},
    "windows.clear_outside": {"partitions": _LEFT_OUT},
    "windows.put_outside": {
        "outside": _rows(
            [{"dataset_id": "wide", "partition_key": f"k{i}", "slot_time": i, "outside_rows": 1} for i in range(100)]
        )
    },
    "windows.forget_without_rows": {"partitions": _LEFT_OUT},
    "windows.set_late": {"dataset_id": "small_1", "late": "drop"},
    "watermark.complete_slots": {"dataset_id": "small_1"},
    "watermark.insert_waits": {
        "dataset_id": "small_1",
        "waits": _rows([{"slot_time": 2 * i * _HOUR, "partition_key": f"n{i}", "marked": 1} for i in range(50)]),
    },
    "watermark.mark_waits": {"dataset_id": "small_1"},
    "watermark.forget_waits": {"dataset_id": "small_1", "found": _WAITS},
    "watermark.park_partitions": {
        "dataset_id": "small_1",
        "parked": _rows([{"partition_key": f"k{i}"} for i in range(50)]),
    },
    "watermark.forget_parked": {"dataset_id": "wide"},
    "watermark.delete_parked": {"dataset_id": "small_1"},
    "watermark.forget_members": {
        "dataset_id": "small_1",
        "found": _rows([{"slot_time": 2 * i * _HOUR, "member": "eu", "pattern": "eu!%"} for i in range(50)]),
    },
    "watermark.end_waits": {"dataset_id": "small_1"},
    "watermark.complete_waiting": {"dataset_id": "small_1", "expected": 0},
    "advice.find_uneven": {"dataset_id": "small_1", "length": _HOUR},
    "advice.count_appended": {"dataset_id": "small_1", "latest": 24},
    "holding.list_ahead": {"dataset_id": "wide", "limit": 100},
    "holding.find_first_parked": {"dataset_id": "small_1"},
    "holding.list_incomplete": {"dataset_id": "small_1", "low": 0, "ends": 0, "max_ahead": _HOUR, "limit": 20},
    "holding.list_missing": {"dataset_id": "small_1", "low": 0, "max_ahead": _HOUR, "limit": 20},
    "holding.list_waits": {"dataset_id": "small_1", "low": 0, "ends": 0, "limit": 20},
    "watermark.list_unmarked": {"dataset_id": "small_1"},
    "watermark.delete_waits": {"dataset_id": "small_1"},
    "watermark.first_beyond": {"low": 298_900 * _HOUR, "ends": 298_990 * _HOUR},
    "watermark.forget_slots_beyond": {"low": 298_900 * _HOUR, "ends": 298_990 * _HOUR},
    "watermark.forget_members_beyond": {"low": 298_990 * _HOUR},
    "watermark.lower_target": {"first": 1},
    "watermark.read_last_moves": {
        "datasets": _rows([{"namespace": "default", "name": f"small_{i}"} for i in range(9)])
    },
    "watermark.last_slot": {"dataset_id": "deep", "upto": 298_990 * _HOUR},
    "watermark.go_on": {"next_time": 1},
    "watermark.note_rewind": {"value": 1},
    "boundaries.cut": {
        "rewound": _rows(
            [{"schedule_id": f"schedule_{i}", "trigger_no": 1, "last_at": None} for i in range(0, 900, 100)]
        )
    },
    "watermark.raise_target_waiting": {"dataset_id": "deep"},
    "watermark.find_old_moves": {"keep": -1000},
    "watermark.forget_moves": {"dataset_id": "wide"},
    "watermark.move": {"dataset_id": "deep", "quiet": 0},
    "watermark.publish_move": {"dataset_id": "deep", "zone": "UTC"},
    "watermark.delete_slots": {"dataset_id": "small_1"},
    "watermark.delete_members": {"dataset_id": "small_1"},
    "watermark.read_keys": {"dataset_id": "deep"},
    "watermark.set_times": {
        "dataset_id": "deep",
        "times": _rows([{"partition_key": f"k{i}", "slot_time": i * _HOUR} for i in range(100)]),
    },
    "watermark.find_times": {"dataset_id": "wide"},
    "watermark.list_holders": {"dataset_id": "deep"},
    "watermark.list_parked": {"dataset_id": "wide"},
    "watermark.list_parking": {"namespace": "default"},
    "watermark.find_parked": {"dataset_id": "wide"},
    "watermark.list_incomplete": {"dataset_id": "small_1"},
    "watermark.list_holes": {"dataset_id": "small_1"},
    "transactions.insert_tx": {"epoch": 2},
    "transactions.lock_open": {"write_pointer": _OPEN},
    "transactions.refuse_second": {"epoch": 2},
    "transactions.refuse_unless_open": {"write_pointer": _OPEN},
    "transactions.commit_tx": {"write_pointer": _OPEN},
    "transactions.forget_declared": {"write_pointer": _OPEN},
    "transactions.end_tx": {"write_pointer": _OPEN, "state": "aborted"},
    "transactions.find_committed": {"write_pointer": 599_001},
    "transactions.find_tx": {"write_pointer": _OPEN},
    "transactions.leave_garbage": {"write_pointer": _ABORTED},
    "transactions.forget_ended": {"write_pointer": _ABORTED},
    "transactions.find_in_progress": {"write_pointer": 599_990},
    "janitor.postpone": {"location": "wide/tx-0"},
    "janitor.find_expired": {"dataset_id": "deep", "write_pointer": 1, "partition_key": "k0"},
    "janitor.find_sharing": {"location": "tx-599991", "partition_key": "k99995"},
    "janitor.find_living": {"location": "tx-599991"},
    "expiry.find_bound": {"dataset_id": "deep", "bound": 599_990, "most": 5},
    "expiry.list_superseded": {"dataset_id": "deep", "bound": 599_990},
    "expiry.find_claimed": {"horizon": 0},
    "expiry.mark_expired": {"dataset_id": "deep", "changes": _deep(11)},
    "expiry.insert_garbage": {"dataset_id": "deep", "changes": _deep(1)},
    "audit.list_backfills": {"horizon_at": 0},
    "audit.list_named": {"datasets": _list("default.small_1", "default.wide")},
    "expiry.supersede_all": {"dataset_id": "small_1"},
    "expiry.supersede_compactions": {"dataset_id": "deep"},
    "expiry.raise_horizon": {"dataset_id": "deep"},
    "expiry.mark_compactions": {"dataset_id": "deep", "changes": _deep(11)},
    "compaction.refuse_replaced": {"named": _CURRENT},
    "compaction.refuse_compacted": {"wanted": _COMPACTED},
    "compaction.mark_compacted": {"named": _CURRENT},
    "compaction.insert_compactions": {"write_pointer": _OPEN, "made": _rows(_MADE)},
    "janitor.forget": {"location": "wide/tx-0"},
    "janitor.find_publisher": {"write_pointer": _OPEN},
    "janitor.move_position": {"name": "janitor", "seq": 600_000},
    "janitor.find_committed": {"after": 599_900, "bound": 1 << 62},
    "janitor.read_position": {"name": "janitor"},
    "messages.add_position": {"name": "another"},
    "messages.lock_position": {"name": "scheduler"},
    "messages.find_position": {"name": "scheduler"},
    "messages.quarantine": {
        "name": "scheduler",
        "messages": _rows([{"seq": seq, "n": 0, "reason": "damaged"} for seq in range(100)]),
    },
    "messages.move_position": {"name": "scheduler"},
    "subscriber.find_unhandled": {"name": "scheduler", "topic": "data"},
    "subscriber.begin_stands": {
        "stands": _rows([{"schedule_id": f"sched_{i}", "trigger_no": 7, "next_fire_at": 5} for i in range(9)])
    },
    "subscriber.forget_topic": {"name": "scheduler"},
    "changes.begin_topics": {"topics": _rows([{"topic": "program"}]), "name": "scheduler"},
    "managed.put_consumer": {"consumer_id": "new", "name": "new"},
    "managed.find_consumer": {"name": "reader"},
    "managed.find_readers": {
        "wanted": _rows([{"namespace": "default", "dataset": name, "consumer": "reader"} for name in ("wide", "deep")])
    },
    "attempts.find_next_due": {"since": _NOW},
    "attempts.find_late": {"with_spark": 1},
    "attempts.take_late": {"with_spark": 1},
    "take.find_offered": {"dataset_id": "deep", "consumer_id": "new", "write_pointer": 300_001, "repeats": 0},
    "take.fill": {"consumer_id": "new", "start_version": 599_800},
    "take.claim": {"consumer_id": "wide"},
    "resets.deliver_chosen": {"new_id": "new", "chosen": _changes(range(297_200, 297_210))},
    "claims.discard": {"run_id": "alone"},
    "claims.refuse_other_epoch": {"epoch": 1},
    "claims.refuse_if_moved": {"claims": 100},
    "file_claims.refuse_if_moved": {"claims": len(_BEING_PROCESSED)},
    "backlog.note_unseen": {"id": "deep"},
    "claims.skip_own": {"dataset_id": "deep", "consumer": "reader", "write_pointer": 300_001},
    "starts.find_last_before": {"dataset_id": "deep"},
    "resets.list_resets_of": {"dataset_id": "wide", "name": "reader"},
    "resets.find_reset": {"consumer_id": "past_wide", "new_id": "wide"},
    "resets.refuse_if_claimed": {"consumer_id": "new"},
    "managed.count_lives": {"dataset_id": "wide", "name": "reader"},
    "apps.find_app": {"name": "app_1"},
    "deploy.find_app": {"name": "app_1"},
    "move.move_app": {"name": "app_1", "spec": "{}"},
    "move.move_program": {"program_id": "program_1", "spec": "{}"},
    "move.move_bundles": {"old": "file:///data/", "new": "file:///moved/"},
    "move.move_uploads": {"old": "file:///data/", "new": "file:///moved/"},
    "move.move_archives": {"old": "file:///", "new": "file:///moved/"},
    "move.move_archived": {"old": "file:///", "new": "file:///moved/"},
    "move.move_logs": {"old": "/", "new": "/moved/"},
    "deploy.delete_app": {"name": "app_1"},
    "audit_log.add_entry": {
        "audit_id": "audit_x",
        "actor": "ann@desk",
        "action": "run.kill",
        "subject": "run_1",
        "detail": "{}",
    },
    "triggers.read_fed": {
        "positions": _rows([{"topic": "data", "seq": 2 * i + 22, "n": 0} for i in range(1000, 1100)])
    },
    "calendar.list_by_time": {"most": 1001},
    "calendar.list_by_key": {"most": 1001, "lower": "k5", "upper": "k6"},
    "calendar.measure_by_time": {"most": 500},
    "calendar.measure_by_key": {"most": 500, "lower": "k5", "upper": "k6"},
    "calendar.next_key": {"lower": "k5"},
    "calendar.last_key": {"upper": "k6"},
    "calendar.list_slots": {"most": 1500},
    "partition_views.measure_days": {"most": 5000},
    "partition_views.list_takers": {"limit": 50},
    "partition_views.list_history": {"limit": 50},
    "arrivals.count_arrivals": {"dataset_id": "landing", "since": _NOW - 86_400_000, "step": 3_600_000, "most": 5000},
    "arrivals.list_completed": {"since": 0, "most": 200},
    "run_course.list_attempts": {"run_id": "live_1", "limit": 50},
    "run_course.list_published": {"seq": 600_000, "limit": 50},
    "overview.list_failing": {"namespace": None, "limit": 1001},
    "usual.list_run_spans": {"program_id": "program_7", "limit": 20},
    "usual.list_longest_waits": {
        "schedules": _rows([{"schedule_id": f"schedule_{i}"} for i in range(7, 57)]),
        "limit": 20,
    },
    "usual.list_ends": {"program_id": "program_7", "limit": 20},
    "overview.list_open_alerts": {"namespace": None, "limit": 51},
    "overview.list_broken": {"namespace": None, "limit": 1001},
    "overview.list_quarantines": {"namespace": None, "most": 101, "limit": 51},
    "overview.list_misdated": {"namespace": None, "limit": 51},
    "overview.find_first_quarantined": {"dataset_id": "landing"},
    "overview.list_satisfied": {"limit": 200},
    "overview.list_unsatisfied": {"limit": 200},
    "overview.list_waiting_in": {"namespace": "few", "limit": 400},
    "overview.count_jobs": {"limit": 1001},
    "overview.count_jobs_in": {"namespace": "few", "limit": 1001},
    "overview.count_feeds": {"namespace": None, "limit": 1001},
    "overview.count_arrivals": {
        "keys": _rows([{"event_key": f"partition:default.small_{i}"} for i in range(50)]),
        "hours": _rows(
            [
                {"hour": i, "begins_at": _NOW - (24 - i) * 3_600_000, "ends_at": _NOW - (23 - i) * 3_600_000}
                for i in range(24)
            ]
        ),
        "most": 201,
    },
    "overview.list_last_arrivals": {"keys": _rows([{"event_key": f"partition:default.small_{i}"} for i in range(50)])},
    "overview.count_waiting_files": {"dataset_id": "landing", "limit": 1001},
    "overview.count_waiting_partitions": {"dataset_id": "deep", "limit": 1001},
    "metrics.count_pending_runs": {"limit": 1001},
    "metrics.count_jobs": {"limit": 901},
    "metrics.list_waiting_jobs": {"state": "PENDING_CONSTRAINT", "limit": 200},
    "metrics.find_oldest_job": {"limit": 1001},
    "metrics.list_fenced": {"state": "aborted", "after": 300_000, "limit": 100},
    "metrics.count_files": {"dataset_id": "landing", "limit": 901},
    "metrics.count_garbage": {"limit": 1001},
    "metrics.count_quarantined_files": {"limit": 1001},
    "metrics.count_open_slots": {"dataset_id": "small_1", "limit": 1001},
    "metrics.find_oldest_holder": {"dataset_id": "small_1"},
    "metrics.count_parked": {"dataset_id": "small_1", "limit": 1001},
    "metrics.count_idle_inputs": {"program_id": "program_0"},
    "metrics.measure_waiting_partitions": {
        "program_id": "program_0",
        "computed": 297_000 * 3_600_000_000,
        "limit": 901,
    },
    "metrics.find_last_windows": {"event_key": "windows:default.app.p0"},
    "metrics.count_postponed": {"program_id": "program_0", "limit": 101},
    "metrics.count_left_out": {"program_id": "program_0", "limit": 101},
    "metrics.count_waiting_slots": {"program_id": "program_0", "computed": 297_000 * 3_600_000_000, "limit": 901},
    "metrics.count_alerts": {"limit": 1001},
    "metrics.count_waiting_deliveries": {"limit": 501},
    "metrics.count_dead_deliveries": {"limit": 501},
    "alerts.put_rule": {
        "rule_id": "new",
        "app": "app_3",
        "name": "new",
        "spec": "{}",
        "looks_after": "",
    },
    "alerts.delete_rule": {"rule_id": "rule_9000"},
    "alerts.find_rule": {"name": "n9000"},
    "alerts.find_rule_by_id": {"rule_id": "rule_9000"},
    "alerts.list_of_app": {"app": "app_3"},
    "alerts.list_rules": {"after_namespace": "default", "after_name": "n9", "limit": 100},
    "alerts.list_due": {"limit": 100},
    "alerts.note_look": {"rule_id": "rule_9000", "next_look_at": 5, "is_open": 1},
    "alerts.look_at_namespace": {"namespace": "few"},
    "alerts.silence_rule": {"rule_id": "rule_9000", "silent_until": 5},
    "alerts.silence_subjects": {"rule_id": "rule_9000", "silent_subjects": "{}"},
    "alerts.find_rules": {"rule_ids": _list(*(f"rule_{i}" for i in range(1000, 1100)))},
    "alerts.list_live": {"rule_ids": _list(*(f"rule_{i}" for i in range(9900, 10000)))},
    "alerts.count_live": {"rule_ids": _list(*(f"rule_{i}" for i in range(9900, 10000)))},
    "alerts.list_machines": {"rule_id": "rule_9950"},
    "alerts.renew_alert": {"alert_id": "alert_299950"},
    "alerts.find_alert": {"alert_id": "alert_299950"},
    "alerts.list_of_rule": {"rule_id": "rule_9950", "after": "\U0010ffff", "limit": 100},
    "alerts.list_live_of_rule": {"rule_id": "rule_9950", "after": "\U0010ffff", "limit": 100},
    "alerts.list_rules_of_app": {"namespace": "default", "app": "app_3", "after": "", "limit": 100},
    "alerts.list_newest_of": {"namespace": "few", "after": "\U0010ffff", "limit": 100},
    "alerts.list_newest_live_of": {"namespace": "few", "after": "\U0010ffff", "limit": 100},
    "alerts.name_namespaces": {"alert_ids": _list(*(f"alert_{i}" for i in range(1000, 1100)))},
    "alerts.list_newest": {"after": "alert_299950", "limit": 100},
    "alerts.list_newest_live": {"after": "\U0010ffff", "limit": 100},
    "alerts.open_alert": {
        "alert_id": "new",
        "rule_id": "rule_1",
        "rule": "default.n1",
        "subject": "new",
        "why": "why",
        "since": 1,
    },
    "alerts.note_notified": {"alert_id": "alert_299950", "why": "why"},
    "alerts.acknowledge_alert": {"alert_id": "alert_299950", "acknowledged_by": "me"},
    "alerts.resolve_alert": {"alert_id": "alert_299950"},
    "alerts.forget_old_alerts": {"keep": 86400000},
    "alerts.find_newest_end": {"topic": "data"},
    "conditions.list_programs": {"namespace": "default"},
    "conditions.find_program": {"app": "app_1", "name": "p1"},
    "conditions.list_failing": {"program_ids": _list(*(f"program_{i}" for i in range(100))), "others": 2},
    "conditions.list_stopped": {"namespace": "default"},
    "conditions.list_after_runs": {},
    "conditions.find_longest": {"program_id": "program_1"},
    "conditions.find_waiting_job": {"app": "app_0", "name": "s15000"},
    "conditions.find_dataset": {"name": "deep"},
    "conditions.count_quarantined": {"dataset_id": "landing", "limit": 100},
    "conditions.find_last_move": {"dataset_id": "deep"},
    "conditions.list_times": {"program_id": "program_1", "limit": 50},
    "conditions.find_last_arrival": {"dataset_id": "deep"},
    "conditions.measure_waiting": {
        "consumer_id": "consumer_1",
        "dataset_id": "deep",
        "start_version": 599_000,
        "versions_to_check": _list(1001, 2001),
        "limit": 100,
    },
    "outbox.put_delivery": {
        "delivery_id": "new",
        "target": "t1",
        "seq": 1,
        "about": "alert_1",
        "event": "opened",
        "body": "{}",
    },
    "outbox.list_due": {"limit": 20},
    "outbox.find_due": {"target": "t0"},
    "outbox.revive": {"delivery_id": "delivery_250"},
    "outbox.find_state": {"delivery_id": "delivery_250"},
    "outbox.find_about": {"delivery_id": "delivery_250"},
    "outbox.begin_try": {"delivery_id": "delivery_299001", "attempt": 0, "next_try_at": 5},
    "outbox.try_again": {"delivery_id": "delivery_299001", "attempt": 0, "error": "away", "next_try_at": 5},
    "outbox.end_delivery": {"delivery_id": "delivery_299001", "attempt": 0, "error": None, "state": "SENT"},
    "outbox.start_next": {"target": "t9"},
    "outbox.list_newest": {"after": "delivery_299950", "limit": 100},
    "outbox.list_newest_in_state": {"state": "DEAD", "after": "delivery_299950", "limit": 100},
    "outbox.list_newest_about": {"about": "alert_1", "state": "", "after": "delivery_299950", "limit": 100},
    "outbox.forget_old": {"keep": 86400000},
    "retention.store_deleted": {"deleted": "{}"},
    "retention.find_old_backfill": {"before": 2000},
    "retention.close_backfill": {"backfill_id": "backfill_20", "before": 2000},
    "retention.delete_items": {"backfill_id": "backfill_20", "most": 200},
    "retention.delete_backfill": {"backfill_id": "backfill_15000"},
    "backfill_records.insert_backfill": {
        "backfill_id": "another",
        "namespace": "default",
        "item_kind": "partitions",
        "takes_all": 0,
        "choice": "{}",
        "arguments": "{}",
        "concurrency": 1,
        "priority": -1,
        "quiet": 0,
        "actor": "ann@desk",
        "waiting": 100,
    },
    "backfill_records.insert_items": {
        "backfill_id": "another",
        "items": _rows([{"no": i, "item": f"k{i}"} for i in range(100)]),
    },
    "backfill_records.store_items": {
        "items": _rows(
            [
                {"backfill_id": "backfill_0", "no": i, "state": "DONE", "run_id": f"run_{i}", "why": ""}
                for i in range(996, 998)
            ]
        ),
    },
    "backfill_records.move_items": {"before": "FAILED", "after": "WAITING", "but": _list(1, 2)},
    "backfill_records.store_backfill": {
        "state": "RUNNING",
        "reason": "",
        "waiting": 1,
        "running": 1,
        "done": 1,
        "failed": 1,
        "dropped": 0,
        "over": 0,
    },
    "backfill_records.list_newest": _BEFORE,
    "backfill_records.list_of_program": {**_BEFORE, "state": ""},
    "backfill_records.list_of_namespace": {**_BEFORE, "namespace": "default", "state": ""},
    "backfill_records.list_in_state": {**_BEFORE, "state": "COMPLETED"},
    "backfill_records.list_next": {"after": -1},
    "backfill_records.list_due": {},
    "backfill_records.list_open_items": {"program_id": "program_1", "dataset_id": "wide"},
    "backfill_records.list_items": {"after": 100},
    "backfill_records.list_items_in_state": {"state": "FAILED", "after": 100},
    "backfill_plan.list_partitions": {"dataset_id": "wide", "lower": "k1", "after": "", "upper": "k2"},
    "backfill_plan.list_named": {"dataset_id": "wide", "keys": _list(*_KEYS)},
    "backfill_plan.list_with_input": {"runs": _list("run_1", "run_2")},
    "backfill_plan.list_open_times": {"schedule_id": "schedule_1", "since": 1},
    "backfill_plan.list_changed": {"dataset_id": "wide", "first": 1, "last": 200},
    "needs.list_course": {
        "dataset_id": "wide",
        "program_id": "program_1",
        "consumer_id": "wide",
        "keys": _list(*_KEYS),
    },
    "subscribers.insert_subscriber": {
        "name": "new",
        "topic": "data",
        "event_type": "",
        "key_prefix": "",
        "target": None,
        "seq": 1,
        "n": 0,
    },
    "subscribers.delete_subscriber": {"name": "n9000"},
    "subscribers.find_subscriber": {"name": "n9000"},
    "subscribers.list_subscribers": {"topic": "data", "after": "n9", "kind": "pull", "state": "current", "limit": 100},
    "subscribers.list_nearest": {"limit": 1000},
    "subscribers.move_by_hand": {"name": "n9000", "seq": 1, "n": 0},
    "subscribers.list_due": {"limit": 100},
    "subscribers.begin_push": {"name": "n5", "next_try_at": 5},
    "subscribers.record_push": {"name": "n5", "attempt": 0, "seq": 5, "n": 0, "next_try_at": 0},
    "subscribers.record_failure": {
        "name": "n5",
        "attempt": 0,
        "failures": 1,
        "refused_since": None,
        "error": "away",
        "next_try_at": 5,
    },
    "subscribers.bury": {
        "delivery_id": "buried",
        "target": "t1",
        "about": "subscriber n5",
        "event": "message",
        "body": "{}",
        "failures": 3,
        "error": "away",
    },
    "subscribers.find_newest": {"topic": "data"},
    "subscribers.count_behind": {"topic": "data", "seq": 1000, "n": 0, "limit": 1001},
    "difference.list_alerts": {"app": "app_3"},
    "once.find_request": {"caller": "tok_1", "request_key": "k299000"},
    "once.insert_request": {"caller": "tok_1", "request_key": "new", "digest": "d"},
    "once.take_over": {"caller": "tok_1", "request_key": "k299001", "attempt": 1},
    "keeping.keep_answer": {"caller": "tok_1", "request_key": "k299001", "attempt": 1, "answer": "{}"},
    "keeping.keep_part": {"caller": "tok_1", "request_key": "k299001", "attempt": 1, "part": "{}"},
    "keeping.refuse_if_taken_over": {"caller": "tok_1", "request_key": "k299001", "attempt": 1},
    "once.forget_request": {"caller": "tok_1", "request_key": "k299001", "attempt": 1},
    "once.forget_old_requests": {"keep": 86400000},
    "tokens.insert_token": {
        "token_id": "tok_x",
        "kind": "token",
        "name": "new",
        "prefix": "new",
        "digest": "d",
        "role": "viewer",
        "namespace": "*",
        "created_by": "me",
        "opened_by": None,
        "expires_at": None,
    },
    "tokens.find_by_prefix": {"prefix": "p299000"},
    "tokens.list_live": {
        "token_ids": _list(*(f"tok_{298_900 + i}" for i in range(100))),
        "runs": _list(*(f"live_{i}" for i in range(100))),
    },
    "run_tokens.find_attempt": {"run_id": "live_1"},
    "tokens.find_by_name": {"name": "n299000"},
    "tokens.find_ended": {"name": "n299500"},
    "tokens.list_tokens": {"after_name": "n299", "after_id": "", "namespace": "", "role": "viewer", "limit": 100},
    "tokens.end_token": {"token_id": "tok_299000"},
    "tokens.note_use": {"token_id": "tok_299000", "last_used_at": 5},
    "messages.find_expired": {"topic": "data"},
    "messages.seek": {"topic": "data", "seq": 300_001},
    "topics.find_newest_at": {"topic": "data"},
    "time_to_live.list_positions": {"topic": "data"},
    "time_to_live.list_oldest": {"topic": "data", "most": 100},
    "time_to_live.delete_messages": {"topic": "data", "seq": 222, "n": 0},
    "time_to_live.delete_quarantined": {"topic": "data", "seq": 2_000, "n": 0},
    "time_to_live.note_expired": {"topic": "data", "seq": 222, "n": 0},
    "topic_records.find_listener": {"topic": "own", "event_key": "partition:default.small_1"},
    "topic_records.create_topic": {"topic": "new", "time_to_live": 1000},
    "topic_records.keep_for": {"topic": "data", "time_to_live": 1000},
    "topic_records.find_topic": {"topic": "data"},
    "topic_records.note_deleted": {"topic": "data", "tick": 1},
    "topic_records.forget_deleted": {"topic": "gone", "tick": 7},
    "topic_records.delete_positions": {"topic": "data"},
    "retention.move_horizon": {"seq": 300_000, "at": _NOW, "moved_at": 5},
    "retention.list_old_runs": {
        "created_after": _NOW - 200_000_000,
        "after": "run_1",
        "before": _NOW - 1000,
        "seq": 500_000,
        "other_failures": 2,
        "timed": _list("program_7"),
        "other_times": 49,
        "most": 100,
    },
    "retention.delete_transactions": {"runs": _list(*(f"lost_{i}" for i in range(100, 200)))},
    "retention.list_past_transactions": {"run_id": "run_5", "after": 1, "before": _NOW, "seq": 500_000, "most": 100},
    "retention.delete_past_transactions": {"pointers": _list(*(100 * i + 100 for i in range(100, 200)))},
    "retention.find_past_input": {},
    "retention.delete_past_inputs": {"seq": 500_000, "most": 200},
    "retention.delete_inputs": {"runs": _list(*(f"run_{i}" for i in range(100, 200)))},
    "retention.delete_runs": {"runs": _list(*(f"run_{i}" for i in range(100, 200)))},
    "retention.list_old_jobs": {"after": "done_1", "before": _NOW, "most": 100},
    "retention.delete_jobs": {"jobs": _list(*(f"done_{i}" for i in range(100, 200)))},
    "retention.list_old_fires": {"after": 1, "before": _NOW, "most": 100},
    "retention.delete_fires": {"fires": _rows([{**one, "job_id": None} for one in _FIRES])},
    "retention.list_histories": {"seq": 500_000},
    "retention.list_positions": {"dataset_id": "deep"},
    "retention.list_old_changes": {"dataset_id": "deep", "after": 1500, "bound": 1800},
    "retention.find_bound": {"dataset_id": "deep", "after": 1500, "seq": 500_000, "most": 100},
    "retention.read_histories": {
        "dataset_id": "deep",
        "keys": _rows([{"partition_key": "k5"}, {"partition_key": "k6"}]),
        "seq": 500_000,
        "floor": 599_600,
        "is_dropped": 0,
        "others": 19,
    },
    "retention.delete_changes": {
        "dataset_id": "deep",
        "partition_key": "k2",
        "pointers": json.dumps([2 * i + 1 for i in range(10, 50_000, 500)]),
    },
    "retention.delete_ended_transactions": {"pointers": _list(*(100 * i + 100 for i in range(100, 200)))},
    "retention.list_compacted": {"seq": 500_000},
    "retention.list_old_compactions": {"dataset_id": "deep", "bound": 500_000, "most": 100},
    "retention.delete_compactions": {
        "dataset_id": "deep",
        "compactions": _rows([{"write_pointer": 20 * i + 1, "partition_key": f"k{2 * i}"} for i in range(50)]),
    },
    "retention.list_past_consumers": {"dataset_id": "deep"},
    "retention.delete_work": {
        "partition_key": "k5",
        "work": _rows([{"consumer_id": "wide", "write_pointer": 2 * i + 1} for i in range(5, 300_000, 100_000)]),
    },
    "audit_log.list_old_entries": {"most": 1000, "keep": -1000},
    "audit_log.delete_entries": {"audit_ids": _list(*(f"audit_{100_000_000 + i}" for i in range(100)))},
    "audit_log.find_entry": {"audit_id": "audit_100250000"},
    "audit_log.list_entries": {"before": "audit_100250000", "limit": 100},
    "audit_log.list_entries_by": {"before": "audit_100250000", "actor": "ann@desk", "limit": 100},
    "audit_log.list_entries_of_by": {
        "before": "audit_100250000",
        "subject": "run_1",
        "actor": "ann@desk",
        "limit": 100,
    },
    "audit_log.list_entries_of": {"before": "audit_100250000", "subject": "run_1", "limit": 100},
    "discards.find_unreported": {"most": 1000},
    "discards.refuse_if_reported": {"consumer": "reader", "discards": _changes(range(297_200, 297_210))},
    "discards.report": {"discards": _changes(range(297_200, 297_210))},
    "take.close": {"state": "completed"},
    "take.find_claimable": {"newest": 1},
    "managed.list_work": {"state": "new"},
    "datasets.insert_dataset": {"dataset_id": "new", "name": "new"},
    "datasets.find_by_name": {"name": "wide"},
    "deploy.put_app": {"name": "app_1", "version": 30_001},
    "deploy.number_programs": {"version": 30_001},
    "difference.list_consumers": {"prefix": "default.app_1."},
    "deployments.put_deployment": {
        "version": 30_001,
        "changes": "[]",
        "file": "app.py",
        "actor": "ann@desk",
        "declaration": "{}",
    },
    "deployments.find_declaration": {"version": 29_000},
    "deployments.forget_code": {"version": 29_991},
    "deployments.find_deployment": {"version": 29_000},
    "deployments.find_previous": {"version": 30_000, "bundle": "bundle_2"},
    "deployments.list_deployments": {"before": 29_000, "limit": 100},
    "versions.list_kept": {"dataset_id": "mirror"},
    "versions.list_readers": {"dataset_id": "mirror"},
    "versions.find_version": {"dataset_id": "mirror", "version": 599_901},
    "versions.refuse_expired": {"dataset_id": "mirror", "version": 599_901},
    "versions.refuse_refreshed": {"dataset_id": "mirror", "write_pointer": _SNAPSHOT},
    "changes.forget_all_unseen": {"feeds": '["wide"]'},
    "changes.forget_feeds": {"feeds": '["mirror"]'},
    "changes.find_unseen": {"dataset_id": "mirror", "position": 599_900},
    "changes.forget_unseen": {"consumer_id": "wide", "write_pointer": 599_950},
    "changes.refuse_if_feed_moved": {"consumer_id": "wide", "position": 599_600},
    "changes.move_feed": {"consumer_id": "wide", "position": 599_600},
    "snapshot.record_read": {"run_id": "new", "read": '[{"dataset_id": "mirror", "version": 599901}]'},
    "snapshot.pin_at_begin": {"dataset_id": "mirror"},
    "snapshot.find_visible": {"dataset_id": "mirror", "write_pointer": 599_900},
    "refresh_order.order_by_logical_time": {"snapshots": _list("mirror"), "run_began": 599_900},
    "refresh_order.order_by_begin": {"snapshots": _list("mirror")},
    "refresh_order.find_order": {"dataset_id": "mirror", "write_pointer": _OPEN},
    "snapshot.supersede_older": {"dataset_id": "mirror"},
    "snapshot.insert_version": {"dataset_id": "mirror", "write_pointer": _OPEN},
    "snapshot.publish_if_current": {"dataset_id": "mirror", "write_pointer": 599_991},
    "publish.insert_schema": {"schema_id": "new"},
    "publish.insert_changes": {"write_pointer": _OPEN},
    "publish.refuse_evolved": {"schema_id": "s"},
    "publish.refuse_existing": {"wanted": _rows([{"partition_key": f"n{i}", "shown": "n"} for i in range(100)])},
    "fileset.read_visible": {"dataset_id": "deep", "write_pointer": 599_900},
    "time_travel.find_commit_at": {"at": _NOW - 1_000_000},
    "discovery.select_unknown": {"dataset_id": "landing", "listed": _files([*_UNKNOWN, *_WAITING], etag="v1")},
    "discovery.compare_named": {"listed": _files(_WAITING, bytes=1000, modified_at=0, latest=_NOW * 2)},
    "discovery.select_twins": {"listed": _files(_WAITING, bytes=1000, modified_at=0, latest=_NOW * 2)},
    "discovery.note_unusable": {"dataset_id": "landing"},
    "discovery.note_root": {"dataset_id": "landing", "location": "/data/landing", "root": "1:2"},
    "discovery.read_listed": {"dataset_id": "landing"},
    "discovery.note_returned": {"dataset_id": "landing", "names": _list("f3", "f5")},
    "discovery.note_absent": {"dataset_id": "landing", "names": _list("f3", "f5")},
    "discovery.find_returned": {"dataset_id": "landing", "after": "f69999", "bound": "f7", "listed": _files([7])},
    "discovery.publish_found": {"dataset_id": "landing"},
    "discovery.insert_found": {"dataset_id": "landing"},
    "discovery.supersede_found": {
        "dataset_id": "landing",
        "found": _files(_WAITING).replace("v1", "v2"),
        "superseded": -1,
    },
    "file_claims.return_others": {"files": _files(_BEING_PROCESSED[1:])},
    "file_endings.quarantine": {"run_id": "alone_file"},
    "file_endings.return_files": {"run_id": "alone_file"},
    "file_endings.postpone": {"id": "landing"},
    "file_endings.retry_named": {"dataset_id": "landing", "names": _list(*(f"f{i}" for i in range(297_300, 297_400)))},
    "file_endings.retry_all": {"dataset_id": "landing"},
    "file_endings.ignore_quarantined": {"dataset_id": "landing", "names": _list(*(f"f{i}" for i in range(100)))},
    "file_endings.deliver_alone": {
        "dataset_id": "landing",
        "names": _list(*(f"f{i}" for i in range(100))),
        "status": "QUARANTINED",
    },
    "file_endings.guard_some": {"files": len(_BEING_PROCESSED)},
    "outside_writes.list_declared": {"write_pointer": _OPEN},
    "outside_claims.complete_claim": {"run_id": "live_5"},
    "outside_claims.find_closed": {"dataset_id": "landing", "run_id": "run_7", "names": _list("f70", "f71", "f79")},
    "discovery.note_superseded": {"dataset_id": "landing", "found": _files(_WAITING).replace("v1", "v2")},
    "discovery.read_marker": {"dataset_id": "landing"},
    "discovery.read_lateness": {"dataset_id": "landing"},
    "discovery.move_marker": {"dataset_id": "landing", "before": "", "positions": "[]"},
    "discovery.count_late": {"dataset_id": "landing"},
    "discovery.select_absent": {"dataset_id": "landing", "after": "f2970", "bound": "f29709", "limit": 10},
    "discovery.forget_absent": {"dataset_id": "landing", "names": _list(*(f"f{i}" for i in range(100)))},
    "hive_notes.find_note": {**_OF_HIVE, "table": "t7"},
    "hive_notes.put_note": {**_OF_HIVE, "table": "t8", "own": "{}", "earlier": "{}"},
    "hive_notes.delete_note": {**_OF_HIVE, "table": "t7", "seq": 7},
    "monitor.put_charge": {"dataset_id": "new"},
    "monitor.delete_charge": {"dataset_id": "landing"},
    "monitor.lock_charge": {"dataset_id": "landing"},
    "monitor.refuse_other_charge": {"dataset_id": "inbox_1500", "process": "node_7"},
    "monitor.find_newest": {"dataset_id": "deep"},
    "monitor.count_others": {"dataset_id": "deep", "since": 599_900, "own": _list(1)},
    "monitor.note_root": {"dataset_id": "landing", "location": "/data/landing", "root": "1:2"},
    "discovery.have_listed": {"dataset_id": "landing"},
    "discovery.find_listing": {"dataset_id": "landing"},
    "discovery.take_listing": {"dataset_id": "landing", "process": "node_7"},
    "discovery.hold_charge": {"process": "node_7"},
    "discovery.delete_ended_charges": {},
    "discovery.select_held": {"process": "node_7"},
    "discovery.select_listings": {},
    "discovery.select_due_listings": {"process": "node_7", "lead": 100, "held": _list("landing")},
    "discovery.select_next_listing": {"process": "node_7", "left": _list("landing")},
    "inbox.insert_marker": {"dataset_id": "landing", "afterwards": "delete", "archive": None},
    "chosen.find_partitions": {"keys": _list(*_KEYS)},
    "chosen.find_files": {"dataset_id": "landing", "names": _list(*(f"f{i}" for i in _LEAVING))},
    "chosen.record_input": {
        "items": _rows(
            [
                {"run_id": "new", "dataset_id": "wide", "write_pointer": i, "item": f"k{i}", "content_version": ""}
                for i in range(100)
            ]
        )
    },
    "chosen.read_changes": {"run_id": "pending_9"},
    "chosen.read_files": {"run_id": "pending_9", "dataset_id": "landing"},
    "chosen.read_items": {"run_id": "pending_9"},
    "chosen.find_of_worker": {"run_id": "pending_9"},
    "chosen.list_given": {"run_id": "pending_9"},
    "chosen.find_replaced": {"run_id": "pending_9"},
    "chosen.find_left": {"run_id": "pending_9"},
    "chosen.find_published": {"write_pointer": 598_001},
    "written.read_written": {"write_pointer": 598_001},
    "written.find_writers": {"keys": _list(*_KEYS)},
    "chosen.read_versions": {"run_id": "pending_9", "dataset_id": "mirror"},
    "leaving.note_left": {
        "files": _files(_LEAVING, afterwards="archived", archive="file:///archive", error=None, wait=None)
    },
    "file_claims.lock_owner": {"write_pointer": _OPEN},
    "file_claims.select_claimable": {"dataset_id": "landing"},
    "file_claims.claim": {"files": _files(_WAITING)},
    "file_endings.guard_claims": {"files": len(_BEING_PROCESSED)},
    "file_claims.restamp": {"epoch": 2},
    "reprocess.find_processed": {"dataset_id": "landing", "names": _list(*(f"f{i}" for i in range(100)))},
    "reprocess.guard_processed": {"files": _AGAIN, "wanted": len(json.loads(_AGAIN))},
    "reprocess.keep_record": {"files": _AGAIN, "by_whom": "ada"},
    "reprocess.deliver_again": {"files": _AGAIN},
    "reprocess.publish_again": {
        "files": _AGAIN,
        "event_key": "file:default.landing",
    },
    "file_endings.fail_blamed": {
        "blamed": json.dumps(
            [{"dataset_id": "landing", "name": f"f{n}", "error": "boom", "alone": 0} for n in _BEING_PROCESSED]
        ),
    },
    "inbox.list_files": {"dataset_id": "landing", "state": ""},
    "inbox.list_versions": {"dataset_id": "landing", "name": "f999", "state": ""},
    "inbox.count_files": {"dataset_id": "landing"},
    "totals.find_totals": {"dataset_ids": _list("deep", "small_1")},
    "totals.compare_totals": {"dataset_id": "deep"},
    "totals.add_written": {
        "added": _rows(
            [{"partition_key": f"k{i}", "files": 1, "bytes": 1, "row_count": 1} for i in range(99_950, 100_050)]
        )
    },
    "totals.replace_compacted": {"named": _CURRENT, "files": 1, "bytes": 1, "row_count": 1},
    "datasets.list_dropped": {"dataset_id": "small_0", "before_seq": 1 << 62, "before_key": ""},
    "datasets.list_current": {"dataset_id": "deep", "after_key": "k50", "after_seq": 0},
    "datasets.list_keys": {"lower": "k50", "upper": "k9"},
    "datasets.list_schemas": {"after": 0},
    "datasets.list_all": {**_BY_NAME, "after_name": "small_150"},
    "apps.list_apps": {**_BY_NAME, "after_name": "app_15", "until": _LAST},
    "watermark.list_watermarks": {**_BY_NAME, "after_name": "small_100", "before": GREATEST},
    "watermark.list_of_app": {"namespace": "default", "app": "app_15", "after_name": "small_1", "before": GREATEST},
    "schedules.list_by_name": {"name": "s100"},
    "schedules.list_schedules": {**_AMONG_SCHEDULES},
    "schedules.list_by_status": {**_AMONG_SCHEDULES, "status": "SCHEDULED"},
    "schedules.list_by_program": {**_AMONG_SCHEDULES, "program_id": "program_15", "status": "", "trigger_type": ""},
    "schedules.list_by_trigger_type": {**_AMONG_SCHEDULES, "trigger_type": "new_partitions", "status": ""},
    "facts.store_launches": {"limits": _rows([{"limit_key": "program:program_1", "launches": "{}"}])},
    "facts.read_launches": {"limit_keys": _list("program:program_1", "program:program_2")},
    "fires.list_timers": {"at": 1000, "limit": 100},
    "jobs.list_by_state": {"state": "PENDING_TRIGGER", "after": "job_1"},
    "jobs.list_in_namespace": {"namespace": "few", "state": "", "after": ""},
    "jobs.list_by_schedule": {"state": "", "after": ""},
    "changes.insert_start_windows": {
        "windows": _rows([{"schedule_id": f"new_{i}", "program_id": "program_1", "length": 1000} for i in range(100)])
    },
    "changes.insert_trigger_types": {
        "types": _rows(
            [
                {
                    "schedule_id": f"schedule_new_{i}",
                    "trigger_type": "cron",
                    "namespace": "default",
                    "app": "a",
                    "name": "s",
                }
                for i in range(100)
            ]
        )
    },
    "managed.list_consumers": {"dataset_id": "", "name": "", "after_name": "reader", "after_dataset": "small_150"},
    "transactions.list_newest": {"before": 300_000},
    "transactions.list_open": {"after": 600_120},
    "runs.list_newest": {"created_before": _NOW - 150_000_000, "before": "run_15", "since": 0},
    "runs.list_of_namespace": {**_RUNS, "namespace": "few"},
    "runs.list_ended_of_namespace": {**_RUNS, "namespace": "few", "state": "COMPLETED"},
    "runs.list_of_program": {"created_before": _NOW - 150_000_000, "before": "run_15", "since": 0},
    "runs.list_of_schedule": {**_RUNS, "program_id": None, "state": None},
    "runs.list_of_workflow": {**_RUNS, "program_id": None, "namespace": None, "state": None},
    "run_ends.lock_limits": {"runs": _list("live_1", "live_2")},
    "workflows.end_node": {"outcome": "COMPLETED"},
    "workflows.end_workflow": {"state": "FAILED"},
    "workflows.inherit_workflow": {"run_id": "new_run"},
    "workflows.inherit_nodes": {"run_id": "new_run"},
    "retention.delete_workflow_nodes": {"runs": _list(*(f"run_{i}" for i in range(200_100, 200_200)))},
    "retention.delete_workflows": {"runs": _list(*(f"run_{i}" for i in range(200_100, 200_200)))},
    "runs.list_ended_in": {**_RUNS, "state": "COMPLETED"},
    "runs.list_ended_of_program": {**_RUNS, "state": "COMPLETED"},
    "runs.list_pending": {**_RUNS, "program_id": None, "namespace": None},
    "runs.list_under_way": {**_RUNS, "program_id": None, "namespace": None, "state": "RUNNING"},
    "transactions.list_committed": {"before": 300_000},
    "transactions.list_failed": {"before": 300_000, "state": "aborted"},
    "datasets.list_of_kind": {
        **_BY_NAME,
        "kind": "fileset",
        "after_name": "small_150",
        "app": None,
        "of_namespace": None,
    },
    "datasets.list_of_app": {"after_name": "small_150", "of_namespace": "default"},
    "jobs.list_jobs": {"after": "job_15"},
    "jobs.list_ended": {"ended_before": _NOW, "before": "done_2"},
    "project.name_programs": {"ids": _list("program_1", "program_2")},
    "project.name_schedules": {"ids": _list("schedule_1", "schedule_2")},
    "topics.list_newest": {
        "after": "",
        "kind": "built_in",
        "text": "",
        "upto": "\U0010ffff",
        "built_in": _list("data", "program"),
    },
    "topics.find_newest": {"topic": "data"},
    "topics.has_topic": {"topic": "data"},
    "topics.list_positions": {"topics": _list("data")},
    "topics.list_outside": {"topic": "data", "limit": 100},
    "topics.count_quarantined": {"topics": _list("data")},
    "topics.list_quarantined": {"before_seq": 1000, "before_n": 0, "before_name": ""},
    "datasets.list_first_changes": {"dataset_id": "deep", "lower": "", "upper": "\U0010ffff", "limit": 20},
    "transactions.list_published": {"write_pointer": 300_001},
    "runs.list_inputs": {"run_id": "run_1"},
    "runs.count_claims": {"run_id": "run_1"},
    "audit.find_bound_of_changes": {"after": 599_000, "pointer": _SNAPSHOT},
    "audit.read_changes": {"after": 599_800, "bound": 599_900, "pointer": _SNAPSHOT},
    "audit.deliver_by_pointer": {"start_version": 599_800, "pointer": 599_900},
    "audit.find_late": {"start_version": 599_800, "pointer": 599_900},
    "audit.deliver_by_commit": {"after": 599_800, "pointer": 599_900},
    "audit.find_untaken": {"consumer_id": "deep", "after": 599_000, "bound": 599_100, "pointer": _SNAPSHOT},
    "audit.find_bound_of_work": {"after": 590_000, "pointer": _SNAPSHOT},
    "audit.read_work": {"after": 590_000, "bound": 590_200},
    "audit.count_untaken": {"start_version": 599_800, "pointer": _SNAPSHOT},
    "audit.find_bound_of_inputs": {"after": "run_2"},
    "audit.find_unheld_inputs": {"after": "run_2970", "bound": "run_29710"},
    "audit_inboxes.find_bound_of_files": {"dataset_id": "landing"},
    "audit_inboxes.find_last_file": {"dataset_id": "landing"},
    "audit_inboxes.read_files": {"dataset_id": "landing", "after": "f2970", "bound": "f29709", "horizon": 1},
    "audit.find_bound_of_commits": {"after": 599_000, "pointer": _SNAPSHOT},
    "audit.read_commits": {"after": 599_800, "bound": 599_900},
    "audit.read_published": {"after": 599_800, "bound": 599_900},
    "audit.read_announced": {"after": 599_800, "bound": 599_900},
    "audit_versions.find_bound_of_versions": {"dataset_id": "mirror", "after": 599_000, "pointer": _SNAPSHOT},
    "audit_versions.read_versions": {"dataset_id": "mirror", "after": 599_800, "bound": 599_900},
    "audit.find_bound_of_runs": {"after": "run_2"},
    "audit.read_runs": {"after": "run_2970", "bound": "run_29709"},
    "restore.set_clock": {"clock": 800_000},
    "restore.begin_life": {"incarnation": "life0001"},
    "storage.find_bound": {"after": 599_000},
    "storage.read_locations": {"after": 599_800, "bound": 599_900},
    "storage.read_manifests": {"after": 599_800, "bound": 599_900},
    "storage.find_transactions": {"pointers": _list(*_LATE)},
    "programs.find_program": {"name": "p1"},
    "bundles.put_bundle": {"digest": "new", "files": "{}", "bytes": 1, "location": None},
    "bundles.replace_file": {"old": "file:///data/bundle_1", "new": "file:///data/other"},
    "bundles.begin_upload": {"location": "file:///data/new"},
    "bundles.end_upload": {"location": "file:///data/bundle_5"},
    "bundles.find_abandoned": {"location": "file:///data/upload_1"},
    "bundles.forget_upload": {"location": "file:///data/upload_1"},
    "bundles.find_late_uploads": {"within": 1},
    "bundles.abandon_uploads": {"within": 1},
    "bundles.forget_abandoned": {"known": 1},
    "bundles.delete_bundle": {"digest": "bundle_29", "location": "file:///data/bundle_29"},
    "programs.put_program": {"name": "p1", "program_id": "new", "spark_profile": "big"},
    "workers.put_worker": {"program_id": "new"},
    "workers.find_next_start": {"since": _NOW},
    "workers.lock_worker": {"program_id": "worker_1"},
    "workers.list_runs": {"program_id": "worker_1"},
    "workers.forgive": {"program_id": "worker_1"},
    "workers.postpone_starts": {"program_id": "worker_1"},
    "attempts.register": {"run_id": "live_10", "token_digest": "d"},
    "attempts.refuse_unless_starting": {"run_id": "live_10"},
    "attempts.register_and_attach": {"run_id": "live_10", "token_digest": "d"},
    "attempts.refuse_if_moved": {"write_pointer": 600_101},
    "attempts.end_run": {"state": "FAILED"},
    "runs.insert_external": {"run_id": "new"},
    "runs.insert_runs": {"runs": _NEW_RUNS},
    "runs.insert_slots": {"slots": _rows([{"limit_key": "new", "run_id": f"new_{i}"} for i in range(100)])},
    "facts.list_last_successes": {"programs": _rows([{"program_id": f"program_{i}"} for i in range(20)])},
    "facts.list_starts": {
        "windows": _rows([{"program_id": f"program_{i}", "since": _NOW - 1_000_000} for i in range(20)])
    },
    "jobs.wake_behind": {"job_ids": _list(*(f"job_{i}" for i in range(15_000, 15_020))), "waits": "[]"},
    "jobs.insert_jobs": {"jobs": _NEW_JOBS},
    "jobs.insert_history": {"jobs": _NEW_JOBS},
    "schedules.read_boundaries": {"schedule_id": "schedule_100"},
    "expectations.list_declared": {"namespace": "default", "app": "app_3"},
    "expectations.put_expectation": {"dataset_id": "deep", "declared": "{}", "next_check_at": 1},
    "expectations.delete_expectation": {"dataset_id": "deep"},
    "expectations.note_arrival": {"dataset_id": "landing"},
    "expectations.find_some": {"dataset_ids": _list("deep", "small_1")},
    "expectations.find_next_check": {},
    "expectations.find_due": {"limit": 100},
    "expectations.note_checks": {"checks": _rows([{"dataset_id": "deep", "next_check_at": 1, "broken_since": None}])},
    "hooks.find_delivery": {"hook": "default.hook_1", "delivery": "delivery_1"},
    "hooks.insert_delivery": {"hook": "default.hook_1", "delivery": "new", "seq": 1, "n": 0},
    "hooks.forget_deliveries": {"known": 79_990_000},
    "schedules.list_passed": {"schedule_id": "schedule_100"},
    "schedules.list_suspended": {"since": 1000, "until": 2000},
    "subscriber.count_passed": {
        "passed": _rows(
            [
                {
                    "schedule_id": f"schedule_{i}",
                    "topic": "data",
                    "messages": 1,
                    "first_seq": 1,
                    "first_n": 0,
                    "last_seq": 1,
                    "last_n": 0,
                }
                for i in range(100)
            ]
        )
    },
    "boundaries.lock": {"schedule_ids": _list(*(f"schedule_{i}" for i in range(0, 10_000, 100)))},
    "changes.empty_boundaries": {"schedule_ids": _list(*(f"schedule_{i}" for i in range(0, 10_000, 100)))},
    "jobs.find_unfinished": {"job_ids": _list(*(f"{kind}_{i}" for kind in ("job", "running") for i in range(100)))},
    "jobs.find_ended": {"job_id": "done_1"},
    "jobs.delete_waits": {"job_ids": _list(*(f"job_{i}" for i in range(15_000, 15_100)))},
    "jobs.lock_limits": {
        "limit_keys": _list("program:program_1", "program:program_2"),
        "job_ids": _list(*(f"job_{i}" for i in range(15_000, 15_020))),
    },
    "jobs.wake_beside": {"job_ids": _list(*(f"job_{i}" for i in range(15_000, 15_020)))},
    "changes.insert_schedules": {"schedules": _NEW_SCHEDULES},
    "changes.update_schedules": {"schedules": _NEW_SCHEDULES.replace("schedule_20", "schedule_1")},
    "changes.insert_trigger_keys": {
        "keys": _rows([{"event_key": "new", "schedule_id": f"schedule_{i}", "trigger_no": 0} for i in range(100)])
    },
    "why_work.find_fed": {"seq": 32},
    "why_work.list_quarantines": {"seq": 30},
    "why_work.list_ended_since": {"since": 0},
    "why_data.find_contents": {"name": "f5"},
    "why_data.list_names_near": {"dataset_id": "landing", "name": "f5"},
    "why_data.find_oldest_waiting": {"dataset_id": "landing"},
    "why_data.count_waiting": {"dataset_id": "landing"},
    "why_data.find_any_file": {"dataset_id": "landing"},
    "why_data.list_changes": {"dataset_id": "deep"},
    "why_data.find_work": {"write_pointers": _list(3, 200_003)},
    "why_data.list_open_writers": {"dataset_id": "deep"},
    "why_data.find_result": {"window_start": 1000 * _HOUR, "window_end": 1001 * _HOUR},
    "why_data.find_failure": {"window_start": 1000 * _HOUR, "window_end": 1001 * _HOUR},
    "lineage_actual.list_inputs": {"run_id": "run_1"},
    "lineage_actual.list_outputs": {"run_id": "run_15"},
    "lineage_actual.list_readers": {"item": "k1", "write_pointer": 3},
    "lineage_actual.find_writer": {"item": "k1", "write_pointer": 3},
    "lineage_actual.list_current_changes": {"dataset_id": "deep", "item": "k1"},
    "lineage_actual.describe_changes": {
        "contents": _rows([{"dataset_id": "wide", "write_pointer": 2 * i + 1, "item": f"k{i}"} for i in range(100)])
    },
    "lineage_actual.describe_files": {
        "contents": _rows([{"dataset_id": "landing", "item": f"f{i}", "content_version": "v1"} for i in range(100)])
    },
    "lineage_declared.list_ids": {
        "after_namespace": "",
        "until_namespace": _LAST,
        "until_app": _LAST,
        "until_name": _LAST,
    },
    "lineage_declared.describe_datasets": {
        "wanted": _rows([{"namespace": "default", "name": name} for name in ("wide", "deep", "mirror", "landing")])
    },
    "search.find_datasets": {"text": "small_1", "upto": f"small_1{_LAST}"},
    "search.find_apps": {"text": "app_1", "upto": f"app_1{_LAST}"},
    "search.find_programs": {"text": "p1", "upto": f"p1{_LAST}"},
    "search.find_programs_of_app": {"text": "p1", "upto": f"p1{_LAST}"},
    "search.find_schedules": {"text": "s1", "upto": f"s1{_LAST}"},
    "search.find_schedules_of_app": {"text": "s1", "upto": f"s1{_LAST}"},
    "search.find_consumers": {"text": "default.", "upto": f"default.{_LAST}"},
    "search.find_consumers_of": {"programs": _list("default.app_1.p1")},
    "search.find_subscribers": {"text": "n19", "upto": f"n19{_LAST}"},
    "search.find_alert_rules": {"text": "n99", "upto": f"n99{_LAST}"},
    "search.find_hooks": {"text": "partition:default.small_1", "upto": f"partition:default.small_1{_LAST}"},
    "search.find_transaction": {"write_pointer": 3, "namespace": "few"},
    "search.find_topics": {"text": "da", "upto": f"da{_LAST}"},
    "search.find_runs": {"text": "run_1", "upto": f"run_1{_LAST}"},
    "search.find_jobs": {"text": "job_1", "upto": f"job_1{_LAST}"},
    "search.find_files": {"dataset_id": "landing", "text": "f1", "upto": f"f1{_LAST}"},
    "search.find_partitions": {"text": "k1", "upto": f"k1{_LAST}"},
}


def make_call(statement: Statement) -> Call:
    """`statement` with its parameters. A KeyError names a parameter that this module does not know yet."""
    known = _PARAMS | _OVERRIDES.get(statement.name, {})
    return statement(**({name: known[name] for name in statement.parameters}))


def unused_overrides(statements: Mapping[str, Statement]) -> list[str]:
    """Return the overrides of statements or parameters that no longer exist."""
    return [
        f"{name}: {parameter}"
        for name, params in _OVERRIDES.items()
        for parameter in params
        if name not in statements or parameter not in statements[name].parameters
    ]
