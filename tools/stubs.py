"""Write `x_sql.pyi` beside each `x.sql`: the class `Sql`, by which type checkers know its statements and parameters.

`python -m tools.stubs` writes those that are not current; tests/catalog/test_stubs.py refuses what is not.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tidemill.catalog.named import Statement, load_sql

PACKAGE: Final = Path(__file__).resolve().parent.parent / "src" / "tidemill"


def sql_files() -> list[Path]:
    """Return the files of named statements; migrations, which have no module beside them, are none."""
    return [path for path in sorted(PACKAGE.rglob("*.sql")) if path.with_suffix(".py").exists()]


def stub_of(sql_file: Path) -> Path:
    """Return the place of the stub of `sql_file`."""
    return sql_file.with_name(f"{sql_file.stem}_sql.pyi")


def write_stub(sql_file: Path) -> str:
    """Return the stub of `sql_file` as ruff formats it."""
    methods = [_method(statement) for statement in load_sql(str(sql_file.with_suffix(".py")))]
    imports = ["from tidemill.catalog.stubs import statement"]
    if any("Param" in method for method in methods):
        imports.insert(0, "from tidemill.catalog.named import Param")
    head = f"# Statements of {sql_file.name}, written by `make stubs`.\n\n"
    return head + "\n".join(imports) + "\n\nclass Sql:\n" + "".join(methods)


def _method(statement: Statement[...]) -> str:
    name = statement.name.rpartition(".")[2]
    parameters = [f"{parameter}: Param" for parameter in sorted(statement.parameters)]
    arguments = ", ".join(["self", *(["*", *parameters] if parameters else [])])
    line = f"    def {name}({arguments}) -> None: ...\n"
    if len(line) > 121:
        own = f"        self, {', '.join(['*', *parameters])}\n"
        if len(own) > 121:
            own = "".join(f"        {one},\n" for one in ["self", "*", *parameters])
        line = f"    def {name}(\n{own}    ) -> None: ...\n"
    return f"    @statement\n{line}"


def main() -> None:
    """Write the stubs that are not current and name them."""
    for sql_file in sql_files():
        place, text = stub_of(sql_file), write_stub(sql_file)
        if not place.exists() or place.read_text(encoding="utf-8") != text:
            place.write_text(text, encoding="utf-8")
            print(place.relative_to(PACKAGE.parent))
    current = {stub_of(sql_file) for sql_file in sql_files()}
    for place in set(PACKAGE.rglob("*_sql.pyi")) - current:
        place.unlink()
        print(f"deleted {place.relative_to(PACKAGE.parent)}")


if __name__ == "__main__":
    main()
