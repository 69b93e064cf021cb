"""The wall between what users call and what Tidemill itself calls: the members of `Run`, `Worker`, transactions."""

from __future__ import annotations

import inspect
from typing import get_args

import pytest

from tidemill.run.processes.external import ExternalTransaction
from tidemill.run.processes.worker import Worker
from tidemill.run.step.context import Run
from tidemill.run.step.inputs import Input

MEMBERS = {
    Run: {
        "arguments": "Mapping[str, Value]",
        "attempt": "int",
        "compact": "list[Compacted]",
        "deduplicate": "DataFrame",
        "diff": "DataFrame",
        "id": "RunId",
        "input": "Input",
        "logical_time": "datetime | None",
        "logical_times": "tuple[datetime, ...]",
        "output": "Output",
        "publish": "None",
        "put": "None",
        "read": "DataFrame",
        "spark": "SparkSession",
        "triggered_by": "Mapping[str, object]",
        "triggers": "tuple[TriggerFeed, ...]",
        "values": "Mapping[str, Value]",
        "write_pointer": "int",
    },
    Worker: {
        "arguments": "Mapping[str, Value]",
        "attempt": "int",
        "commit": "None",
        "id": "RunId",
        "input": "Input",
        "output": "Output",
        "publish": "None",
        "read": "DataFrame",
        "spark": "SparkSession",
        "take": "bool",
        "write_pointer": "int",
    },
    ExternalTransaction: {
        "compact": "list[Compacted]",
        "diff": "DataFrame",
        "fileset": "Output",
        "publish": "None",
        "read_version": "DataFrame",
        "roll_back": "None",
        "run_id": "RunId",
        "snapshot": "Output",
        "write_pointer": "int",
    },
}


@pytest.mark.parametrize("users", MEMBERS, ids=lambda users: users.__name__)
def test_users_see_these_members_and_no_more(users):
    """A member that users see stays for good: one that only Tidemill needs belongs to `Workspace` or `Step`."""
    found = {name: member for name, member in inspect.getmembers(users) if not name.startswith("_")}
    calls = {name: member.fget if isinstance(member, property) else member for name, member in found.items()}

    assert {name: call.__annotations__["return"] for name, call in calls.items()} == MEMBERS[users]
    assert [name for name in _assigned(users) if not name.startswith("_")] == []


def test_users_are_given_these_kinds_of_input():
    """`Run.input` names them by one word, and users tell them apart by `isinstance`."""
    assert [kind.__name__ for kind in get_args(Input)] == [
        "PartitionInput",
        "FileInput",
        "SnapshotInput",
        "ChangesInput",
    ]


def _assigned(users: type) -> list[str]:
    """The attributes that the constructor sets."""
    return [word[5:] for word in inspect.getsource(users.__init__).split() if word.startswith("self.")]
