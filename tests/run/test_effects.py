"""Effects that a program without user code commits beside its outputs."""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.spawners import InProcess
from tests.taking import take_runs
from tidemill.run.processes.assignments import Assignment, DriverSetup
from tidemill.run.processes.driver import DriverProcess
from tidemill.run.records.bundles import AppCode
from tidemill.run.records.runs import RunState
from tidemill.world import World

APP = """
from tidemill.catalog.messages import Publish, Topic
from tidemill.names import EventKey
from tidemill.run.step.context import workspace_of

class Told:
    name = "shop"
    def find_program(self, name):
        return tell

app = Told()

def tell(run):
    workspace = workspace_of(run)
    seen = workspace.ask(lambda db, tx: tx.write_pointer)
    workspace.also(Publish(Topic.DATA, "told", EventKey("told:shop"), {"seen": seen}))
    if run.arguments:
        raise ValueError("after all")
"""


@pytest.mark.parametrize(("fails", "told"), [(False, 1), (True, 0)])
def test_what_a_program_does_beside_its_outputs_is_in_its_commit(works, tmp_path, fails, told):
    """A window program moves its state by it: with the run's end, or not at all."""
    app_file = tmp_path / "app.py"
    app_file.write_text(APP)
    program = works.program("tell", app_file=str(app_file))
    run_id = works.start(program, arguments={"fails": fails} if fails else {})
    (taken,) = works.catalog.write(
        lambda db: take_runs(db, most=1, owner="runner", host="here", lease=timedelta(seconds=60))
    )
    start = DriverSetup(works.catalog.url, AppCode(str(app_file), ""), str(tmp_path), str(tmp_path), False, False, {})

    driver = DriverProcess(World(spawner=InProcess()), works.catalog, start, "driver")
    driver.work(Assignment(taken.run_id, taken.epoch, str(tmp_path)))

    run = works.run(run_id)
    messages = works.sql("SELECT payload FROM message WHERE event_type = 'told'")
    assert run.state is (RunState.FAILED if fails else RunState.COMPLETED)
    assert len(messages) == told
    assert all(str(run.write_pointer) in str(payload) for (payload,) in messages)
