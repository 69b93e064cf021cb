"""Values of workflows and conditions over them, as their errors name them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.errors import raises_code
from tidemill.run.records.values import put_value
from tidemill.run.records.workflow_spec import (
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


@pytest.mark.parametrize("name", ["bad name", "", "a.b"])
def test_a_value_with_a_bad_name_is_refused_for_its_name(name):
    """A short text or a number in its place would be refused again."""
    with raises_code("bad_name", "value name"):
        put_value({}, name, 1)
