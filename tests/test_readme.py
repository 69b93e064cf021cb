"""The README: its settings and commands. Its first five minutes are run by `make first-minutes`, from the wheel."""

from __future__ import annotations

from dataclasses import replace

from tests.first_minutes import blocks, install_commands
from tidemill.config import load_config
from tidemill.world import World


def test_the_readme_says_how_to_install_all_that_its_commands_need():
    """A fresh environment has neither Spark nor pytest nor DuckDB."""
    (install,) = [command for command in install_commands() if command.startswith("pip install")]

    assert install.split()[2:] == ['"tidemill[spark,testing]"', "duckdb"]


def test_the_configuration_shown_is_accepted(tmp_path):
    """A user copies the block as it stands."""
    (tmp_path / "tidemill.toml").write_text(blocks("toml")[0], encoding="utf-8")

    config = load_config(replace(World(), environ={}), tmp_path)

    assert (config.slots, config.spark.conf) == (4, {"spark.sql.shuffle.partitions": "8"})
