"""docs/consumers.md and the seed's four use cases: each example works as it stands."""

from __future__ import annotations

import re
import shlex
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from tests.app.test_worker import start, work
from tests.stage import staged
from tidemill.cli.main import main

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "consumers.md").read_text(encoding="utf-8")
EXAMPLES = ROOT / "examples" / "consumers"


@pytest.fixture
def example(request, tmp_path, sqlite_catalog_url):
    """An example of the page, deployed."""
    with staged(tmp_path, sqlite_catalog_url, EXAMPLES / request.param) as stage:
        yield stage


@pytest.mark.parametrize("example", ["continuously.py"], indirect=True)
def test_a_worker_looks_for_new_partitions_continuously(example):
    """First use case: what commits while it waits, it has at once."""
    example.publish("lines", "hour=1")
    run = start(example)
    working = threading.Thread(target=work, args=[example, run])
    working.start()
    for number, hours in enumerate((["hour=2", "hour=3"], ["hour=4"]), start=1):
        wait_for(example, 2 * number - 1)
        example.publish("lines", *hours)
    wait_for(example, 4)
    example.end_attempt(run, "killed", "enough")
    example.publish("lines", "hour=5")  # wakes the worker, which then finds that its attempt has ended
    working.join(30)

    assert not working.is_alive()
    assert example.lines_of("report.txt") == [f"hour {hour}: 1 rows in 1 files" for hour in (1, 2, 3, 4)]
    assert example.find(run.run_id).state == "KILLED"


def wait_for(stage, lines):
    """Until so many lines are reported; woken by commits, as the worker is."""
    waiter = stage.mill.project.catalog.waiter()
    while len(stage.lines_of("report.txt")) < lines:
        waiter.wait(timedelta(milliseconds=100))
    waiter.close()


@pytest.mark.parametrize("example", ["periodically.py"], indirect=True)
def test_a_periodic_run_consumes_all_new_partitions(example):
    """Second use case: each run all that came since the last one, and none when nothing came."""
    for hours in (["hour=1", "hour=2"], ["hour=3"], []):
        if hours:
            example.publish("lines", *hours)
        example.mill.runs.start("periodically.report")  # as its schedule does every hour
        example.play()

    (schedule,) = example.mill.schedules.list()
    assert schedule.status == "SCHEDULED"
    assert example.lines_of("report.txt") == ["hours 1, 2", "hours 3"]


@pytest.mark.parametrize("example", ["catch_up.py"], indirect=True)
def test_old_partitions_are_caught_up_with_while_new_ones_are_made(example):
    """Third use case: neither waits for the other."""
    example.publish("lines", *(f"hour={hour}" for hour in range(1, 6)))
    for hour in (6, 7):
        example.schedule()
        example.work()
        example.publish("lines", f"hour={hour}")
    example.play()

    said = example.lines_of("report.txt")
    assert len(said) > 2
    assert sorted(int(hour) for line in said for hour in line.removeprefix("hours ").split(", ")) == list(range(1, 8))
    assert "6" in said[1]
    assert "1" in said[0]


@pytest.mark.parametrize("example", ["each_partition.py"], indirect=True)
def test_every_new_partition_starts_a_run(example):
    """Fourth use case: one for each, also of those that commit together."""
    example.publish("lines", "hour=1", "hour=2", "hour=3")
    example.play()
    example.publish("lines", "hour=2")
    example.play()

    assert example.lines_of("report.txt") == ["hour 1, new", "hour 2, new", "hour 3, new", "hour 2, appended"]
    assert [run.state for run in example.runs() if run.exit_reason != "no_input"] == ["COMPLETED"] * 4


def test_the_page_does_as_it_says(tmp_path, sqlite_catalog_url, capsys):
    """Its app deploys, and its commands do what they are typed for."""
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (commands,) = re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL)
    with staged(tmp_path, sqlite_catalog_url, code) as stage:
        terms = stage.mill.consumers.show("lines", "default.shop.report").terms
    for command in commands.strip().splitlines():
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(tmp_path), *shlex.split(command.removeprefix("$ tidemill "))])
        assert (command, ended.value.code or 0) == (command, 0)

    assert terms["accepts"] is True
    assert "starts again from beginning" in capsys.readouterr().out


def test_the_page_links_every_example():
    """A reader finds an example only by a link."""
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(re.findall(r"consumers/(\w+\.py)\)", PAGE))
