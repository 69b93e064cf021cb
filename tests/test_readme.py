"""The README's first five minutes, as it stands there."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.yardstick import patience

README = (Path(__file__).resolve().parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language):
    """The contents of the fenced blocks of one language, in order."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


@pytest.mark.spark
def test_the_first_five_minutes_are_as_the_readme_shows(tmp_path):
    """A first page that does not run is the last page that is read."""
    folder = tmp_path
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    commands = [line.removeprefix("$ ") for block in blocks("console") for line in block.strip().splitlines()]

    def run(command):
        nonlocal folder
        if command.startswith("cd "):
            folder /= command.removeprefix("cd ")
            return ""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=folder,
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            check=False,
            timeout=patience(240),
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    told = "".join(map(run, commands))

    assert "day=2026-01-01" in told
    assert (folder / "app.py").read_text(encoding="utf-8") == blocks("python")[0]
    published = json.loads(run("tidemill dataset partitions revenue --json"))
    files = json.loads(run("tidemill inbox files orders --json"))
    assert [(partition["partition"], partition["rows"]) for partition in published] == [("day=2026-01-01", 1)]
    assert {file["name"]: file["status"] for file in files} == {"1.csv": "SUCCESS", "2.csv": "ERROR"}


def test_the_configuration_shown_is_accepted(tmp_path):
    """A setting that the README names and the program refuses would be a bad joke."""
    from dataclasses import replace

    from tidemill.config import load_config
    from tidemill.world import World

    (tmp_path / "tidemill.toml").write_text(blocks("toml")[0], encoding="utf-8")

    config = load_config(replace(World(), environ={}), tmp_path)

    assert (config.slots, config.spark_conf) == (4, {"spark.sql.shuffle.partitions": "8"})
