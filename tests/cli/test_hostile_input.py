"""Bad values for each parameter of each command: an error with a code and the next step, never a traceback."""

from __future__ import annotations

from itertools import chain

import click
import pytest

from tests.app.conftest import APP
from tests.seed_of_the_day import TODAY
from tidemill.cli.main import cli, main

CLOCK = """
app.schedule("clock", report, trigger=tm.Cron("* * * * *"))
"""
BAD = [
    *("", "x" * 10_000, "a\0b", "a\nb", "..", "a/../b", "-1", "9" * 30, str(2**63), "9" * 5_000),
    *("0000-01-01", "99999-01-01", "9999-12-31T23:59:59.999999", "0001-01-01T00:00:00+14:00", "day=", "day<", "x=y"),
    *(
        "\udcff",
        '"\\ud800"',
        "[" * 3_000,
        "limit=" + "[" * 600 + "]" * 600,
        '{"type": "every", "duration": "2900000d"}',
    ),
    *("253402300799000/x", "99999999999999d", "\N{SUPERSCRIPT TWO}"),
]
OF_TODAY = BAD[TODAY % 2 :: 2]
"""Two days play all of them."""
DONE = {0, 2, 3, 4, 5, 6}
"""Exit codes of a command that did its work, or refused its input. With 1 a command has failed."""
GOOD = {
    "alert_id": "alert_1",
    "delivery_id": "delivery_1",
    "rule": '{"type": "run_failed"}',
    "claim_id": "run_1",
    "dataset": "clean",
    "error": "boom",
    "event_key": "door",
    "files": "a",
    "job_id": "job_1",
    "key": "day=2026-01-01",
    "name": "clean",
    "names": "shop.clock",
    "new": "2",
    "old": "1",
    "file": "a.csv",
    "partition": "day=2026-01-01",
    "position": "1.0",
    "program": "shop.load",
    "role": "viewer",
    "run_id": "run_1",
    "start": "now",
    "status": "SUCCESS",
    "text": "a",
    "to": "2026-01-01",
    "thing": "clean",
    "topic": "own",
    "version": "1",
    "backfill_id": "backfill_1",
    "trigger": '{"type": "every", "duration": "1h"}',
    "write_pointer": "1",
    "writes": "clean",
}
WITHOUT_FILE = {"name", "program", "trigger"}
"""Parameters that `schedule create` wants unless it is given a file."""
NAMES = {"app": "shop", "consumer": "report", "inbox": "orders", "schedule": "shop.clock"}


def commands(group: click.Group, *above: str):
    """Yield the words and the command of each command below `group` that takes a value and ends by itself."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from commands(command, *above, name)
        elif name != "up" and any(takes_value(one) for one in command.params):
            yield [*above, name], command


def takes_value(parameter: click.Parameter) -> bool:
    """Return whether a parameter is more than a flag."""
    return isinstance(parameter, click.Argument) or not parameter.is_flag


def written(words: list[str], parameter: click.Parameter, bad: click.Parameter, value: str) -> list[str]:
    """Return a parameter as it is typed: with the bad value, a good one if it is required, or not at all."""
    if parameter is not bad:
        wanted = words == ["schedule", "create"] and bad.name != "file" and parameter.name in WITHOUT_FILE
        if not (parameter.required or wanted):
            return []
        value = NAMES.get(words[0], "clean") if parameter.name == "name" else GOOD[parameter.name]
    return [value] if isinstance(parameter, click.Argument) else [f"{parameter.opts[0]}={value}"]


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A deployed project, which all commands share."""
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "app.py").write_text(APP + CLOCK, encoding="utf-8")
    with pytest.raises(SystemExit, match="0"):
        main(["--project", str(folder), "deploy"])
    return folder


@pytest.mark.parametrize(
    ("words", "command"), list(commands(cli)), ids=lambda one: " ".join(one) if isinstance(one, list) else ""
)
def test_no_value_of_a_parameter_gives_a_traceback(project, capsys, monkeypatch, tmp_path, words, command):
    """A traceback says neither what was wrong nor what to do, and a script finds no code in it."""
    monkeypatch.chdir(tmp_path)
    values = [one for one in command.params if takes_value(one)]
    options = [one for one in values if isinstance(one, click.Option)]
    arguments = [one for one in values if isinstance(one, click.Argument)]

    for bad in values:
        for value in OF_TODAY:
            before, after = (
                list(chain.from_iterable(written(words, one, bad, value) for one in some))
                for some in (options, arguments)
            )
            with pytest.raises(SystemExit) as ended:
                main(["--project", str(project), *words, *before, "--", *after])
            errors = capsys.readouterr().err

            assert (ended.value.code or 0) in DONE, (bad.name, value[:80], errors[:500])
            assert not ended.value.code or "rror" in errors, (bad.name, value[:80])
