"""docs/snapshots.md: its app deploys, its commands do what they say, and its table of guards is complete."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import tidemill as tm
from tests.stage import staged
from tidemill.cli.main import main
from tidemill.lake.snapshot.guards import Guard
from tidemill.run.processes.external import open_transaction

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "snapshots.md").read_text(encoding="utf-8")


@pytest.mark.spark
def test_the_page_does_what_it_says(sqlite_catalog_url, tmp_path, capsys, spark):
    """A reader types it as it stands; the database it names is not asked before the program runs."""
    app, commands = (re.search(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[1] for kind in ("python", "console"))
    (tmp_path / "app.py").write_text(app, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    with tm.open(tmp_path) as mill:
        mill.deploy()
        for names in ("(1, 'ann'), (2, 'ben')", "(1, 'anna'), (3, 'carl'), (4, 'dora')"):
            with open_transaction(mill.project.catalog, mill.project.world, ["default.users"]) as tx:
                tx.snapshot("default.users").replace(spark.sql(f"SELECT * FROM VALUES {names} AS t(id, name)"))
        newest, oldest = (str(one.version) for one in mill.snapshots.versions("users"))
    printed = []
    for line in commands.strip().splitlines():
        words = shlex.split(line.removeprefix("$ tidemill ").replace("OLDEST", oldest).replace("NEWEST", newest))
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(tmp_path), *words])
        assert not ended.value.code, line
        printed.append(capsys.readouterr().out)

    last, *_, first = json.loads(printed[4])
    assert "kept_for" in printed[0]
    assert "more_rows 1 " in " ".join(printed[1].split())
    assert [line.split() for line in printed[2].splitlines()] == [
        ["change", "key", "before", "after"],
        ["updated", "id=1", "name=ann", "name=anna"],
        ["deleted", "id=2", "name=ben", "-"],
        ["inserted", "id=3", "-", "name=carl"],
        ["inserted", "id=4", "-", "name=dora"],
        f"default.users from version {oldest} to {newest}: 2 inserted, 1 deleted, 1 updated".split(),
    ]
    assert f"with the 2 rows of version {oldest}" in printed[3]
    assert (last["current"], last["rolled_back_to"], str(first["version"])) == (True, int(oldest), oldest)
    assert printed[5] == f"version {oldest} of users expired\n"


@pytest.mark.spark
def test_a_diff_tells_programs_every_change_on_a_line(sqlite_catalog_url, tmp_path, capsys, spark):
    """With whole rows, also of a version without any, and by a key that the snapshot does not declare."""
    declared = "import tidemill as tm\napp = tm.App('shop')\napp.snapshot('codes', allow_empty=True)\n"
    (tmp_path / "app.py").write_text(declared, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    with tm.open(tmp_path) as mill:
        mill.deploy()
        for rows in (0, 2):
            with open_transaction(mill.project.catalog, mill.project.world, ["default.codes"]) as tx:
                tx.snapshot("default.codes").replace(
                    spark.sql(f"SELECT id AS code, NULL AS since_at FROM range({rows})")
                )
        new, old = (one.version for one in mill.snapshots.versions("codes"))

    with pytest.raises(SystemExit) as ended:
        main(
            [
                "--project",
                str(tmp_path),
                "snapshot",
                "diff",
                "codes",
                *map(str, (old, new)),
                "--key=code",
                "--json",
                "--limit=1",
            ]
        )
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    counts = {"inserted": 2, "deleted": 0, "updated": 0, "shown": 1}
    assert not ended.value.code
    assert lines == [
        {"change": "inserted", "key": {"code": 0}, "before": None, "after": {"code": 0, "since_at": None}},
        {"dataset": "default.codes", "old": old, "new": new, **counts},
    ]


@pytest.mark.spark
def test_the_program_that_reads_changes_gets_them(sqlite_catalog_url, tmp_path, spark, capfd):
    """First the program greets all users, then only the new user."""
    shop, _, mail = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    with staged(tmp_path, sqlite_catalog_url, spark=spark) as site:
        mill = site.mill
        for app in (shop, mail):
            mill.project.config.app.write_text(app, encoding="utf-8")
            mill.deploy()
        ended, said = [], []
        for names in ("(1, 'ann'), (2, 'ben')", "(1, 'anna'), (3, 'carl')"):
            with open_transaction(mill.project.catalog, mill.project.world, ["default.users"]) as tx:
                tx.snapshot("default.users").replace(spark.sql(f"SELECT * FROM VALUES {names} AS t(id, name)"))
            ended.append(site.outcome("mail.greet"))
            said.append(sorted(line for line in capfd.readouterr().out.splitlines() if "welcome" in line))

    assert ended == [("COMPLETED", "")] * 2
    assert said == [["welcome ann", "welcome ben"], ["welcome carl"]]


def test_the_app_that_reads_a_large_table_by_days_deploys(sqlite_catalog_url, tmp_path):
    """The app is a project of its own on the page."""
    sales = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[1]

    with staged(tmp_path, sqlite_catalog_url, sales) as site:
        programs = site.mill.apps.show("sales").programs

    assert programs == ("mirror_orders",)


def test_wrong_commands_are_refused_in_a_line(sqlite_catalog_url, tmp_path, capsys):
    """With what is wrong and the cure, and no traceback."""
    (tmp_path / "app.py").write_text(re.search(r"```python\n(.*?)```", PAGE, re.DOTALL)[1], encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    with tm.open(tmp_path) as mill:
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
        (
            "error: default.named is a data set of kind fileset, not a snapshot; name a data set of the wanted kind: "
            "`tidemill dataset list` shows the kinds  [not_a_snapshot]\n"
        ),
    )
    code, told = refused("snapshot rollback users 7")
    assert code == 4
    assert "no version named '7 of default.users'; `tidemill snapshot versions default.users` lists them" in told
    code, told = refused("snapshot diff users 7 8")
    assert code == 4
    assert "no version named '7 of default.users'" in told
    assert refused("snapshot diff users 7 7") == (
        2,
        (
            "error: versions of default.users cannot be compared: version 7 is named twice; compare two versions that "
            "have the same key, and the columns of the key  [not_comparable]\n"
        ),
    )
    assert refused("snapshot diff users 7 8 --limit=-1")[0] == 2


def test_every_guard_is_on_the_page():
    """Its name is what a person types to let it pass."""
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == [guard.value for guard in Guard]
