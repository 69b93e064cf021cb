"""Histories of suspensions by chance: whatever the modes and their order, no data waits for ever after a resumption."""

from __future__ import annotations

import random

import pytest

from tests.stage import staged

APP = """
import tidemill as tm

app = tm.App("shop")
lines = app.fileset("lines", keys={"hour": "int"}, format="text")


@app.python(reads=[lines])
def load(run):
    pass


app.schedule("on_lines", load, trigger=tm.NewPartitions(lines))
"""


@pytest.mark.parametrize("seed", range(10))
def test_no_data_waits_for_ever_after_a_resumption(tmp_path, catalog_url, seed):
    """The program is given a partition of any moment: before a suspension, during each mode, and between the modes."""
    rng = random.Random(seed)
    modes = ["drop", "hold", "backlog", "", ""]
    acts = [*(rng.choice([*modes, "schedule"]) for _ in range(rng.randint(2, 5))), "hold"]
    acts.insert(rng.randrange(len(acts)), "publish")
    with staged(tmp_path, catalog_url, APP) as stage:
        for act in acts:
            match act:
                case "publish":
                    stage.publish("lines", "hour=1")
                case "schedule":
                    stage.schedule()
                case "":
                    stage.mill.schedules.resume("on_lines")
                case mode:
                    stage.mill.schedules.suspend("on_lines", mode=mode)
        stage.mill.schedules.resume("on_lines")
        while stage.schedule() or stage.work():
            pass

        (consumer,) = stage.mill.consumers.list()

    assert consumer.waiting == 0, acts
