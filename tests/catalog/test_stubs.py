from __future__ import annotations

import re
from pathlib import Path

import pytest
from mypy import api

from tools.stubs import sql_files, stub_of, write_stub

WRONG = {
    "db.all(SQL.find_txx, write_pointer=1)": '"Sql" has no attribute "find_txx"',
    "db.one(SQL.find_tx, write_pointr=1)": 'Unexpected keyword argument "write_pointr"',
    "db.run(SQL.commit_tx)": 'Missing named argument "write_pointer"',
    "SQL.commit_tx(write_pointer=1, epoch=1)": 'Unexpected keyword argument "epoch"',
    "SQL.commit_tx(write_pointer=1.5)": 'incompatible type "float"',
}


@pytest.mark.parametrize("sql_file", sql_files(), ids=lambda path: path.stem)
def test_stubs_are_current(sql_file: Path) -> None:
    """A stale stub would accept a parameter that the statement no longer takes."""
    assert stub_of(sql_file).read_text(encoding="utf-8") == write_stub(sql_file), "run `make stubs`"


@pytest.mark.parametrize("sql_file", sql_files(), ids=lambda path: path.stem)
def test_every_module_names_the_type_of_its_statements(sql_file: Path) -> None:
    """Without the type, `load_sql` gives Any, and no checker sees a wrong name."""
    module = sql_file.with_suffix(".py").read_text(encoding="utf-8")

    assert re.search(r"^SQL: Sql = load_sql\(__file__\)$", module, re.MULTILINE)


def test_a_wrong_name_or_parameter_is_a_type_error(tmp_path: Path) -> None:
    """A slip in a call is found by mypy, and not by the first commit that makes it."""
    lines = [
        "from tidemill.catalog.db import Db",
        "from tidemill.catalog.transactions import SQL",
        "def f(db: Db) -> None:",
    ]
    lines += ["    db.one(SQL.find_tx, write_pointer=1)", *(f"    {line}" for line in WRONG)]
    (tmp_path / "slips.py").write_text("\n".join(lines))

    told, _, _ = api.run([str(tmp_path / "slips.py"), "--no-error-summary"])

    errors = [line for line in told.splitlines() if ": error: " in line]
    assert [expected in error for expected, error in zip(WRONG.values(), errors, strict=True)] == [True] * len(WRONG)
