"""docs/snapshots.md: its app deploys, its commands do what they say, and its table of guards is complete."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.acceptance.machine import write_texts
from tidemill.cli.main import main
from tidemill.lake.snapshot.guards import Guard
from tidemill.mill.mill import open_project
from tidemill.run.external import open_transaction

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "snapshots.md").read_text(encoding="utf-8")


def test_the_page_does_what_it_says(sqlite_catalog_url, tmp_path, capsys):
    """A reader types it as it stands; the database it names is not asked before the program runs."""
    app, commands = (re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[1] for kind in ("python", "console"))
    (tmp_path / "app.py").write_text(app, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    with open_project(tmp_path, create=True) as mill:
        mill.deploy()
        for text in ("a\n", "a\nb\n"):
            with open_transaction(mill.catalog, mill.world, ["default.users"], writer=write_texts) as tx:
                tx.snapshot("default.users").replace({"": text})
        oldest = str(mill.list_versions("users")[-1].version)
    printed = []
    for line in commands.strip().splitlines():
        words = shlex.split(line.removeprefix("$ tidemill ").replace("OLDEST", oldest))
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(tmp_path), *words])
        assert not ended.value.code, line
        printed.append(capsys.readouterr().out)

    newest, *_, first = json.loads(printed[2])
    assert "kept_for" in printed[0]
    assert f"with the 1 rows of version {oldest}" in printed[1]
    assert (newest["current"], newest["rolled_back_to"], str(first["version"])) == (True, int(oldest), oldest)
    assert printed[3] == f"let go version {oldest} of users\n"


def test_wrong_commands_are_refused_in_a_line(sqlite_catalog_url, tmp_path, capsys):
    """With what is wrong and the cure, and no traceback."""
    (tmp_path / "app.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    with open_project(tmp_path, create=True) as mill:
        mill.deploy()

    def refused(command: str) -> tuple[object, str]:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(tmp_path), *shlex.split(command)])
        return ended.value.code, capsys.readouterr().err

    code, told = refused("snapshot versions user")
    assert code == 4
    assert told.startswith("error: no data set named 'default.user'; did you mean 'default.users'?")
    assert refused("snapshot versions named") == (
        2,
        "error: default.named is a data set of kind fileset, not a snapshot  [not_a_snapshot]\n",
    )
    code, told = refused("snapshot rollback users 7")
    assert code == 4
    assert "no version named '7 of default.users'; `tidemill snapshot versions default.users` shows" in told


def test_every_guard_is_on_the_page():
    """Its name is what a person types to let it pass."""
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [guard.value for guard in Guard]
