from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from tests.mutants.edit import Edit, In, Source, Sql, StaleEdit
from tests.mutants.every import MUTANTS
from tests.mutants.mutant import SOURCE

_JANITOR: Final = '''
SWEEPS: Final = 12

class Janitor:
    """Deletes garbage."""

    def sweep(self, rows: list[Row]) -> tuple[Call, ...]:
        """Delete `rows`."""
        if self.held and not self.stopped:  # a zombie waits
            self.world.mark(
                "janitor.held",
            )
        limits = {Kind.FILE: 1, Kind.FOLDER: 2}
        return (Call(SQL.fence, {"epoch": self.epoch}), Call(SQL.delete, {"rows": rows}))

def sweep(limit: int) -> None:
    for place in range(limit):
        print(place, limit)
'''
_SQL: Final = """-- name: delete_rows
-- A comment.
DELETE FROM row
 WHERE epoch = :epoch -- the fence
   AND name IN ({texts:names})

-- name: delete_all
DELETE FROM row
"""


@pytest.fixture
def package(tmp_path) -> Path:
    """A package of one module and its statements."""
    (tmp_path / "lake").mkdir()
    (tmp_path / "lake" / "janitor.py").write_text(_JANITOR)
    (tmp_path / "lake" / "janitor.sql").write_text(_SQL)
    return tmp_path


def _changed(package: Path, edit: Edit) -> str:
    source = Source(package)
    edit.apply(source)
    (text,) = source.changed.values()
    return text


@pytest.mark.parametrize(
    ("edit", "line"),
    [
        (In("SWEEPS").swap("12", "1"), "SWEEPS: Final = 1"),
        (In("Janitor.sweep").swap("self.held and not self.stopped", "False"), "if False:"),
        (In("Janitor.sweep").swap("if self.held and not self.stopped: ...", "if True: ..."), "if True:"),
        (In("Janitor.sweep").swap("self.world.mark('janitor.held')", "one()\ntwo()"), "two()"),
        (In("Janitor.sweep").swap("Call(SQL.delete, ...)", "Other(...)"), "Other({'rows': rows}))"),
        (In("Janitor.sweep").drop("SQL.fence"), "return (Call(SQL.delete, {'rows': rows}),)"),
        (In("Janitor.sweep").drop("Kind.FILE"), "limits = {Kind.FOLDER: 2}"),
        (In("Janitor.sweep").drop("self.stopped"), "if self.held:"),
        (In("Janitor.sweep").drop("world.mark", times=0), "return (Call(SQL.fence"),
        (In("Janitor.sweep").drop("self.world.mark('janitor.held')"), "pass"),
        (In("janitor.sweep").swap("limit", "9", times=2), "print(place, 9)"),
        (In("sweep").parameter("later: list[int]"), "def sweep(limit: int, later: list[int]) -> None:"),
        (Sql("delete_rows").swap("epoch = :epoch AND name", "name"), " WHERE name IN ({texts:names})"),
        (Sql("janitor.delete_all").drop("FROM row"), "DELETE"),
    ],
    ids=lambda value: "" if isinstance(value, str) else f"{type(value).__name__}-{value.name}",
)
def test_an_edit_changes_what_it_names(package, edit, line):
    """Comments, quotes and line breaks of the product are not those of the edit."""
    text = _changed(package, edit)

    assert line in text


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (In("Janitor.fly").drop("SQL.fence"), "0 definitions have the name Janitor.fly"),
        (In("Janitor.sweep").drop("SQL.insert"), "Janitor.sweep holds 0 times, not 1:\nSQL.insert"),
        (In("sweep").swap("limit", "9"), "sweep holds 2 times, not 1:\nlimit"),
        (Sql("insert").drop("row"), "0 definitions have the name the statement insert"),
        (Sql("delete_all").drop("ro"), "the statement delete_all holds 0 times, not 1:\nro"),
    ],
)
def test_an_edit_that_does_not_apply_names_place_and_text(package, edit, why):
    """The author of a change then finds the mutant to change by the message."""
    with pytest.raises(StaleEdit, match=re.escape(why)):
        _changed(package, edit)


def test_the_module_distinguishes_two_definitions_of_one_name(package):
    """Private functions of one name stand in many modules."""
    (package / "upkeep.py").write_text("def sweep(rows: int) -> None: print(rows)")
    with pytest.raises(StaleEdit, match="2 definitions have the name sweep"):
        _changed(package, In("sweep").swap("print", "list"))

    text = _changed(package, In("upkeep.sweep").swap("print", "list"))

    assert "list(rows)" in text


def test_a_function_that_moves_to_another_module_keeps_its_mutants(tmp_path):
    """Moves of functions would be dear otherwise."""
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "fenced_attempt_takes")
    ((file, text),) = mutant.texts(SOURCE).items()
    module = ast.parse((SOURCE / file).read_text())
    (moved,) = (node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "lock_open")
    module.body.remove(moved)
    (tmp_path / "old.py").write_text(ast.unparse(module))
    (tmp_path / "new.py").write_text(ast.unparse(moved))

    changed = mutant.texts(tmp_path)

    assert list(changed) == ["new.py"]
    assert "if False:" in changed["new.py"]
    assert "if False:" in text


@pytest.mark.long
def test_every_mutant_survives_new_files_a_new_format_and_new_comments(tmp_path):
    """Each file has another path, no comments and another layout; each mutant changes the same as before."""
    moved = {f"elsewhere/{file}": _laid_out(file, text) for file, text in _files(SOURCE)}
    for file, text in moved.items():
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text(text)

    changed = {mutant.name: mutant.texts(tmp_path) for mutant in MUTANTS}

    assert {name: {file: _laid_out(file, text) for file, text in texts.items()} for name, texts in changed.items()} == {
        mutant.name: {f"elsewhere/{file}": _laid_out(file, text) for file, text in mutant.texts(SOURCE).items()}
        for mutant in MUTANTS
    }


def _files(package: Path) -> list[tuple[str, str]]:
    return [*Source(package).files(".py"), *Source(package).files(".sql")]


def _laid_out(file: str, text: str) -> str:
    """Return `text` in another layout: without comments, each SQL statement in one line."""
    if file.endswith(".py"):
        return ast.unparse(ast.parse(text))
    statements = re.split(r"^-- name: (\w+)\s*$", text, flags=re.MULTILINE)[1:]
    bodies = (" ".join(re.sub(r"--[^\n]*", "", body).split()) for body in statements[1::2])
    return "\n".join(f"-- name: {name}\n{body}" for name, body in zip(statements[::2], bodies, strict=True))
