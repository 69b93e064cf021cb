"""Two nodes on one PostgreSQL, one of which lacks the code or the folder: no file suffers, and the other does all work.

The lacking node is a machine of its own for the kernel: it has another host name, and another folder is mounted in the
place of the landing folder.
"""

from __future__ import annotations

import itertools
import time

import pytest

import tidemill as tm
from tests.nodes import node_up
from tests.seed_of_the_day import TODAY
from tests.yardstick import patience

LACKS = ("code", "mount")
BATCH = 50
CASES = [
    pytest.param(LACKS[TODAY % len(LACKS)], 2 * BATCH, id="short"),
    *(pytest.param(lacks, 20 * BATCH, id=lacks, marks=pytest.mark.long) for lacks in LACKS),
]
"""`make test` plays one of the cases a day, with fewer files."""
APP = """
import only_here
import tidemill as tm
from pathlib import Path

app = tm.App("shop")
raw = app.inbox("raw", "landing", format="csv", schema="line string", settle="0s", max_files=20)


@app.python(reads=[raw])
def load(run):
    for name in run.input(raw).files:
        (Path(__file__).parent / "landing" / name).read_text()


app.schedule("on_raw", load, trigger=tm.NewFiles(raw))
"""


@pytest.mark.parametrize(("lacks", "files"), CASES)
def test_a_node_that_lacks_something_harms_nothing(lacks, files, postgres_catalog_url, tmp_path, monkeypatch):
    """Its runs failed, and good files were quarantined for it."""
    # Beside the project: what lies in its folder is deployed with it.
    project, modules = tmp_path / "project", tmp_path / "modules"
    landing = project / "landing"
    landing.mkdir(parents=True)
    modules.mkdir()
    (modules / "only_here.py").write_text("")
    (project / "app.py").write_text(APP)
    (project / "tidemill.toml").write_text(f'catalog = "{postgres_catalog_url}"\n[runner]\nslots = 2\n')
    monkeypatch.syspath_prepend(str(modules))
    (landing / "first.csv").write_text("line\nx\n")
    logs = {node: tmp_path / f"{node}.log" for node in ("whole", "lacking")}
    hidden = landing if lacks == "mount" else None
    refusal = "code_unavailable" if lacks == "code" else "storage_unavailable"

    with tm.open(project) as mill:
        mill.deploy()
        mill.inboxes.scan("raw")
        with (
            node_up(project, "whole", logs["whole"], modules=modules),
            node_up(project, "lacking", logs["lacking"], hidden=hidden, modules=None if lacks == "code" else modules),
        ):
            # The other node may be so fast that this one gets no run at first.
            for batch in itertools.count():
                said = logs["lacking"].read_text()
                if batch >= files // BATCH and refusal in said:
                    break
                assert batch < 10 * files // BATCH, said
                for number in range(BATCH):
                    # In one step: without `settle`, a file that is still written would be seen twice.
                    (project / "next").write_text("line\nx\n")
                    (project / "next").rename(landing / f"{batch}-{number}.csv")
                time.sleep(0.5)
            deadline = time.monotonic() + patience(180)
            while mill.inboxes.show("raw").files.get("SUCCESS") != batch * BATCH + 1:
                assert time.monotonic() < deadline, "\n".join(log.read_text()[-4000:] for log in logs.values())
                time.sleep(0.5)
        landed = list(tm.iterate(mill.inboxes.files, "raw"))
        runs = list(tm.iterate(mill.runs.list))
        logged = [run.log_location or "" for run in runs if run.state == "COMPLETED"]

    assert {(file.status, file.failures) for file in landed} == {("SUCCESS", 0)}
    assert {run.state for run in runs} <= {"COMPLETED", "PENDING"}
    assert [one for one in logged if "/.whole/" not in one] == []
