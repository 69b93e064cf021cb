"""The README's first five minutes, as it stands there; from the wheel: `make first-minutes`."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.first_minutes import blocks, check, first_commands, install_commands, type_in
from tidemill.config import load_config
from tidemill.world import World


@pytest.mark.long
@pytest.mark.spark
def test_the_first_five_minutes_are_as_the_readme_shows(tmp_path):
    """A first page that does not run is the last page that is read."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    # An environment that is older than the plug-in's entry point does not know the fixture `mill`.
    env = {**os.environ, "PATH": path, "PYTEST_PLUGINS": "tidemill.testing.plugin"}

    printed = type_in(first_commands(), tmp_path, env)

    check(printed, tmp_path, env)


def test_the_readme_says_how_to_install_all_that_its_commands_need():
    """A fresh environment has neither Spark nor pytest nor DuckDB."""
    (install,) = [command for command in install_commands() if command.startswith("pip install")]

    assert install.split()[2:] == ['"tidemill[spark,testing]"', "duckdb"]


def test_the_configuration_shown_is_accepted(tmp_path):
    """A user copies the block as it stands."""
    (tmp_path / "tidemill.toml").write_text(blocks("toml")[0], encoding="utf-8")

    config = load_config(replace(World(), environ={}), tmp_path)

    assert (config.slots, config.spark.conf) == (4, {"spark.sql.shuffle.partitions": "8"})
