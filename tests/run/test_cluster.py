"""The end of applications on a cluster, asked of a page as Spark's masters have it."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

from tests.run.conftest import Works
from tests.stub_cluster import page_of_a_master
from tests.yardstick import patience
from tidemill.run.processes.cluster import end_application_of, end_submitted, note_submitted
from tidemill.run.records.runs import RunRecord

FIELD = '<input type="hidden" name="csrfToken" value="a&amp;b"/>'


def forms_sent(run: RunRecord, field: str, **facts: str) -> list[dict[str, list[str]]]:
    """Have the master of an attempt with these facts end it. Return the forms that the master's page has got."""
    with page_of_a_master(field) as (port, taken):
        conf = {"spark.master": "spark://127.0.0.1:7077", "spark.master.ui.port": str(port)}
        asking = end_application_of(replace(run, facts={**facts, "spark_conf": conf}))
        assert asking is not None
        asking.join()
    return taken


@pytest.mark.parametrize("field", [FIELD, ""], ids=["Spark 4.3", "before"])
def test_the_application_of_an_attempt_is_ended_by_the_form_of_the_page(works: Works, field):
    """Spark 4.3 answers 403 to a form without the token of its page: no application was ended."""
    run = works.under_way(works.program("load"))
    taken = forms_sent(run, field, spark="app-1")

    assert [(form["id"], form["terminate"]) for form in taken] == [(["app-1"], ["true"])]


def test_the_driver_of_an_attempt_on_the_cluster_is_ended_with_its_application(works: Works):
    """Its node may be beyond reach, and any other node asks the master."""
    run = works.under_way(works.program("load"))
    taken = forms_sent(run, FIELD, spark="app-1", spark_driver="driver-1")

    assert [(form["path"], form["id"]) for form in taken] == [
        (["/app/kill/"], ["app-1"]),
        (["/driver/kill/"], ["driver-1"]),
    ]


def test_the_master_is_not_asked_to_end_what_has_ended(works: Works, caplog: pytest.LogCaptureFixture):
    """A page without forms has no token, and refuses each form. The log had a false warning for each such end."""
    run = works.under_way(works.program("load"))
    taken = forms_sent(run, FIELD, spark="app-2")

    assert (taken, caplog.records) == ([], [])


def test_no_runner_waits_for_a_master_that_does_not_answer(works: Works, tmp_path: Path):
    """A runner that waited for each of many ends would renew no lease meanwhile."""
    answers = threading.Event()

    def states() -> dict[str, str]:
        answers.wait(patience(60))
        return {"driver-20260101000000-0001": "KILLED"}

    note_submitted(works.world.disk, tmp_path, "driver-20260101000000-0001")
    with page_of_a_master(states=states) as (port, _):
        conf = {"spark.master": "spark://127.0.0.1:7077", "spark.master.ui.port": str(port)}
        ending = end_submitted(works.world, tmp_path, conf)
        assert ending is not None
        waits = ending.is_alive()
        answers.set()
        ending.join()

    assert waits
