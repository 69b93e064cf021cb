"""docs/retention.md: its settings are read, and its script and command run."""

from __future__ import annotations

import re
import shlex
import tomllib
from pathlib import Path

import pytest

import tidemill as tm
from tidemill.cli.main import main

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "retention.md").read_text(encoding="utf-8")
(SETTINGS,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
(COMMAND,) = re.findall(r"^\$ tidemill (.*)$", PAGE, re.MULTILINE)
(SCRIPT,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_settings_are_the_defaults(sqlite_catalog_url, tmp_path):
    """A reader copies them, to change one."""
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n{SETTINGS}', encoding="utf-8")
    (tmp_path / "app.py").write_text("import tidemill as tm\napp = tm.App('shop')\n", encoding="utf-8")
    wanted = {f"retention.{name}": value for name, value in tomllib.loads(SETTINGS)["retention"].items()}

    with tm.open(tmp_path) as mill:
        shown = mill.project.config.shown()

    assert {name: value for name, value in shown.items() if name.startswith("retention.")} == wanted


def test_the_script_of_topics_and_the_command_run(sqlite_catalog_url, tmp_path, monkeypatch, capsys):
    """The script is what a user begins with; after it the topic is deleted. The command is for a late reader."""
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    (tmp_path / "app.py").write_text("import tidemill as tm\napp = tm.App('shop')\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    with tm.open(tmp_path) as mill:
        mill.deploy()
        mill.topics.publish("gate", {"open": True})
        mill.subscribers.create("desk", "gate")

    exec(compile(SCRIPT, "retention.md", "exec"), {})
    printed = capsys.readouterr().out.splitlines()
    with pytest.raises(SystemExit, match="0"):
        main(shlex.split(COMMAND))
    with tm.open(tmp_path) as mill:
        waiting = mill.subscribers.show("desk").waiting

    assert waiting == 1
    assert printed[0].endswith("{'open': True}")
    assert printed[-1] == "1"
