"""Values of workflows and conditions over them, as their errors name them."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest

from tests.errors import raises_code
from tidemill.catalog.messages import MOST_PAYLOAD_BYTES
from tidemill.run.records.programs import MOST_ARGUMENT_CHARACTERS
from tidemill.run.records.values import MOST_VALUES, Value, name_values, put_value
from tidemill.run.records.workflow_spec import (
    MOST_NODES,
    NodeOutcome,
    NodeSpec,
    NodeStand,
    Stand,
    When,
    WorkflowSpec,
    decide_course,
)


def test_a_condition_without_an_order_names_the_value_and_both_types():
    """The words of Python name neither the value nor its text."""
    nodes = (NodeSpec("fetch"), NodeSpec("load", after=("fetch",), when=(When("fetch.rows", "<", 5),)))
    done = {"fetch": NodeStand(NodeOutcome.COMPLETED, {"rows": "many"})}
    course = decide_course(WorkflowSpec(nodes, timedelta(0)), done, {})

    assert course.stands["load"] is Stand.FAILED
    assert course.reasons["load"].endswith(
        "fetch.rows < 5 compares a text with a number: fetch.rows is the text 'many', and 5 is a number"
    )


def test_a_kill_after_the_last_commit_has_no_effect_on_a_workflow_with_a_skipped_node():
    """The skipped node has no run: judged again under the kill, it made a workflow KILLED that had done all."""
    nodes = (
        NodeSpec("fetch"),
        NodeSpec("extra", after=("fetch",), when=(When("fetch.rows", ">", 1),)),
        NodeSpec("load", after=("fetch", "extra")),
    )
    done = {
        "fetch": NodeStand(NodeOutcome.COMPLETED, {"rows": 1}),
        "load": NodeStand(NodeOutcome.COMPLETED),
    }
    course = decide_course(WorkflowSpec(nodes, timedelta(0)), done, {}, killed=True)

    assert course.stands["extra"] is Stand.SKIPPED
    assert course.succeeded


def test_a_kill_starts_no_further_node():
    """Also not behind a skipped one."""
    nodes = (
        NodeSpec("fetch"),
        NodeSpec("extra", after=("fetch",), when=(When("fetch.rows", ">", 1),)),
        NodeSpec("load", after=("fetch", "extra")),
        NodeSpec("mail", after=("load",)),
    )
    done = {"fetch": NodeStand(NodeOutcome.COMPLETED, {"rows": 1})}
    course = decide_course(WorkflowSpec(nodes, timedelta(0)), done, {}, killed=True)

    assert (course.stands["load"], course.stands["mail"]) == (Stand.BLOCKED, Stand.BLOCKED)
    assert course.over
    assert not course.ready
    assert not course.succeeded


def test_the_largest_end_of_a_workflow_fits_a_message():
    """Else the last node could not commit, and the workflow would never end."""
    names = [f"{number:03}{'n' * 97}" for number in range(MOST_NODES)]
    values: dict[str, Value] = {}
    with raises_code("bad_value", "together have at most 3900 characters"):
        for number in range(MOST_VALUES):
            put_value(values, f"v{number}", 1, names[0])
    payload = json.dumps(name_values(dict.fromkeys(names, values)), separators=(",", ":"))

    assert len(payload) + MOST_ARGUMENT_CHARACTERS + 5_000 <= MOST_PAYLOAD_BYTES


@pytest.mark.parametrize("name", ["bad name", "", "a.b"])
def test_a_value_with_a_bad_name_is_refused_for_its_name(name):
    """A short text or a number in its place would be refused again."""
    with raises_code("bad_name", "value name"):
        put_value({}, name, 1)
