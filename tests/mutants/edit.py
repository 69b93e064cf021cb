"""Edits of the product that name a definition or an SQL statement, and not the file in which its text stands.

Python is compared as syntax trees, SQL without regard to white space and comments. An edit therefore survives a moved
function, a renamed file, a new format and a changed comment.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final, Protocol, TypeAlias, TypeVar

_TOKEN: Final = re.compile(r"'[^']*'|\w+|[^\w\s]")
_GAP: Final = r"(?:\s|--[^\n]*\n)"
_COLLECTIONS: Final = (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.BoolOp, ast.MatchOr)

_Hole: TypeAlias = "ast.expr | list[ast.stmt]"
_T = TypeVar("_T")


class StaleEdit(Exception):
    """Edit whose place or text is missing, or stands in the product too often: the edit has to follow the product."""


class Source:
    """Files of a package, with the changes of edits on top."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.changed: dict[str, str] = {}

    def files(self, suffix: str) -> Iterator[tuple[str, str]]:
        """Yield path and text of each file with this suffix, by path."""
        for file, text in _read(self.package, suffix):
            yield file, self.changed.get(file) or text


@cache
def _read(package: Path, suffix: str) -> Sequence[tuple[str, str]]:
    """Return path and text of each file, read once in the life of the process: each mutant looks through all files."""
    paths = sorted(package.rglob(f"*{suffix}"))
    return [(path.relative_to(package).as_posix(), path.read_text(encoding="utf-8")) for path in paths]


class Edit(Protocol):
    """Change of one file of a package."""

    def apply(self, source: Source) -> None:
        """Change `source`; raise `StaleEdit` if the text does not stand in the place as often as the edit says."""


@dataclass(frozen=True, slots=True)
class In:
    """Function, method, class or constant by its qualified name (`Janitor.sweep`), in any module.

    The last name of the module goes before it (`janitor.Janitor.sweep`) where several definitions have the same name.
    In a text, `...` stands for any expression, or for the whole body of a statement (`if failed: ...`). The new text
    keeps what each `...` stands for, in the same order.
    """

    name: str

    def swap(self, old: str, new: str, times: int = 1) -> Edit:
        """Put `new` in place of `old`, an expression or statements that the definition holds so many times."""
        return _Swap(self.name, old, new, times)

    def drop(self, old: str, times: int = 1) -> Edit:
        """Remove the smallest statement, or element of a list, tuple, dict, `and` or `or`, that holds `old`."""
        return _Drop(self.name, old, times)

    def parameter(self, new: str) -> Edit:
        """Give the function one more parameter, behind the others."""
        return _Parameter(self.name, new)


@dataclass(frozen=True, slots=True)
class Sql:
    """SQL statement by its name (`claim_work`), in any file.

    The name of the file goes before it (`take.claim_work`) where several statements have the same name.
    """

    name: str

    def swap(self, old: str, new: str, times: int = 1) -> Edit:
        """Put `new` in place of `old`, which the statement holds so many times."""
        return _SqlSwap(self.name, old, new, times)

    def drop(self, old: str, times: int = 1) -> Edit:
        """Remove `old`, which the statement holds so many times."""
        return _SqlSwap(self.name, old, "", times)


@dataclass(frozen=True, slots=True)
class _Swap:
    name: str
    old: str
    new: str
    times: int

    def apply(self, source: Source) -> None:
        file, module, definition = _find(source, self.name)
        old, new = ast.parse(self.old).body, ast.parse(self.new).body
        match old, new:
            case [ast.Expr(wanted)], [ast.Expr(given)]:
                found, given_nodes = list(_expressions(definition, wanted)), [given]
            case _:
                found, given_nodes = list(_statements(definition, old)), new
        _check_count(self.name, self.old, len(found), self.times)
        for spot in reversed(found):
            holes = iter(spot.holes)
            spot.put([filled for node in copy.deepcopy(given_nodes) for filled in _fill(node, holes)])
        source.changed[file] = ast.unparse(module) + "\n"


@dataclass(frozen=True, slots=True)
class _Drop:
    name: str
    old: str
    times: int

    def apply(self, source: Source) -> None:
        file, module, definition = _find(source, self.name)
        match ast.parse(self.old).body:
            case [ast.Expr(wanted)]:
                found = list(_expressions(definition, wanted))
            case old:
                found = list(_statements(definition, old))
        _check_count(self.name, self.old, len(found), self.times)
        for spot in reversed(found):
            spot.removable().put([])
        source.changed[file] = ast.unparse(module) + "\n"


@dataclass(frozen=True, slots=True)
class _Parameter:
    name: str
    new: str

    def apply(self, source: Source) -> None:
        file, module, definition = _find(source, self.name)
        if not isinstance(definition, ast.FunctionDef):
            raise StaleEdit(f"{self.name} is no function")
        match ast.parse(f"def with_parameter({self.new}): ...").body:
            case [ast.FunctionDef(args=ast.arguments(args=[parameter]))]:
                definition.args.args.append(parameter)
        source.changed[file] = ast.unparse(module) + "\n"


@dataclass(frozen=True, slots=True)
class _SqlSwap:
    name: str
    old: str
    new: str
    times: int

    def apply(self, source: Source) -> None:
        file, _, name = self.name.rpartition(".")
        statement = re.compile(rf"^-- name: {name}\s*$.*?(?=^-- name: |\Z)", re.MULTILINE | re.DOTALL)
        texts = {path: text for path, text in source.files(".sql") if file in {"", Path(path).stem}}
        places = [(path, spans) for path, text in texts.items() if (spans := [*statement.finditer(text)])]
        path, bodies = _only(f"the statement {self.name}", places)
        text, wanted = texts[path], re.compile(_pattern(self.old))
        found = [match.span() for body in bodies for match in wanted.finditer(text, *body.span())]
        _check_count(f"the statement {self.name}", self.old, len(found), self.times)
        for begin, end in reversed(found):
            text = text[:begin] + self.new + text[end:]
        source.changed[path] = text


@dataclass(frozen=True, slots=True)
class _Spot:
    """Place in a tree: the field `name` of `owner`, or the elements from `first` to `last` if the field is a list."""

    owner: ast.AST
    name: str
    first: int | None
    last: int
    above: _Spot | None
    holes: Sequence[_Hole] = ()

    def put(self, nodes: Sequence[ast.AST]) -> None:
        """Replace the nodes."""
        if self.first is None:
            (node,) = nodes
            setattr(self.owner, self.name, node)
            return
        if isinstance(self.owner, ast.Dict) and not nodes:
            del self.owner.keys[self.first : self.last], self.owner.values[self.first : self.last]
            return
        owned = getattr(self.owner, self.name)
        owned[self.first : self.last] = nodes
        if not owned and not isinstance(self.owner, _COLLECTIONS):
            owned.append(ast.Pass())

    def removable(self) -> _Spot:
        """Return the smallest spot around this one that can be empty."""
        if self.first is not None and (
            isinstance(self.owner, _COLLECTIONS) or isinstance(getattr(self.owner, self.name)[self.first], ast.stmt)
        ):
            return self
        if self.above is None:
            raise StaleEdit("the definition itself cannot be dropped")
        return self.above.removable()


def _find(source: Source, name: str) -> tuple[str, ast.Module, ast.AST]:
    """Return the only definition of `name`, with its file and the module to change."""
    names = name.split(".")
    found: list[tuple[str, ast.Module, ast.AST]] = []
    for file, text in source.files(".py"):
        for inner in (names, names[1:] if file.endswith(f"{names[0]}.py") and Path(file).stem == names[0] else []):
            # Cheap questions first: 178 mutants look through 230 files.
            if not inner or any(one not in text for one in inner):
                continue
            if re.search(rf"^(?:(?:class|def) )?{inner[0]}\b", text, re.MULTILINE):
                module = ast.parse(text)
                found += [(file, module, one) for one in _definitions(module.body, inner)]
    return _only(name, found)


def _definitions(body: Iterable[ast.stmt], names: Sequence[str]) -> Iterator[ast.stmt]:
    for node in body:
        match node:
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
                within: Sequence[ast.stmt] = node.body
            case ast.Assign(targets=[ast.Name(name)]) | ast.AnnAssign(target=ast.Name(name)):
                within = ()
            case _:
                continue
        if name == names[0]:
            yield from _definitions(within, names[1:]) if names[1:] else [node]


def _walk(node: ast.AST, above: _Spot | None = None) -> Iterator[tuple[_Spot, ast.AST]]:
    """Yield each node below `node` with its spot, outer nodes first."""
    for name, value in ast.iter_fields(node):
        for place, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if isinstance(child, ast.AST):
                spot = _Spot(node, name, place, (place or 0) + 1, above)
                yield spot, child
                yield from _walk(child, spot)


def _expressions(definition: ast.AST, wanted: ast.expr) -> Iterator[_Spot]:
    for spot, node in _walk(definition):
        holes: list[_Hole] = []
        if _same(wanted, node, holes):
            yield _Spot(spot.owner, spot.name, spot.first, spot.last, spot.above, holes)


def _statements(definition: ast.AST, wanted: Sequence[ast.stmt]) -> Iterator[_Spot]:
    around: list[tuple[_Spot | None, ast.AST]] = [(None, definition), *_walk(definition)]
    for above, node in around:
        for name, value in ast.iter_fields(node):
            if isinstance(value, list):
                for first in range(len(value) - len(wanted) + 1):
                    holes: list[_Hole] = []
                    if _same_lists(wanted, value[first : first + len(wanted)], holes):
                        yield _Spot(node, name, first, first + len(wanted), above, holes)


def _same(wanted: object, node: object, holes: list[_Hole]) -> bool:
    match wanted:
        case ast.Constant(value=value) if value is ... and isinstance(node, ast.expr):
            holes.append(node)
            return True
        case ast.AST():
            return type(wanted) is type(node) and all(
                _same(value, getattr(node, name, None), holes) for name, value in ast.iter_fields(wanted)
            )
        case [ast.Expr(ast.Constant(value=value))] if value is ... and isinstance(node, list):
            holes.append(node)
            return True
        case list():
            return isinstance(node, list) and _same_lists(wanted, node, holes)
        case _:
            return type(wanted) is type(node) and wanted == node


def _same_lists(wanted: Sequence[object], nodes: Sequence[object], holes: list[_Hole]) -> bool:
    return len(wanted) == len(nodes) and all(_same(*pair, holes) for pair in zip(wanted, nodes, strict=True))


def _fill(node: ast.AST, holes: Iterator[_Hole]) -> list[ast.AST]:
    """Return `node` with `holes` in place of `...`."""
    match node:
        case ast.Expr(ast.Constant(value=value)) | ast.Constant(value=value) if value is ...:
            hole = next(holes)
            return [*hole] if isinstance(hole, list) else [hole]
    for name, value in ast.iter_fields(node):
        if isinstance(value, list):
            setattr(
                node, name, [new for one in value for new in (_fill(one, holes) if isinstance(one, ast.AST) else [one])]
            )
        elif isinstance(value, ast.AST):
            (new,) = _fill(value, holes)
            setattr(node, name, new)
    return [node]


def _pattern(text: str) -> str:
    """Return a regular expression for `text` with any white space and comments between the words."""
    pattern, before = "", ""
    for token in _TOKEN.findall(text):
        words = re.match(r"\w", token) and re.match(r"\w", before)
        pattern += f"{_GAP}{'+' if words else '*'}" if before else r"(?<!\w)" if re.match(r"\w", token) else ""
        pattern += re.escape(token)
        before = token
    return pattern + (r"(?!\w)" if re.match(r"\w", before) else "")


def _only(name: str, found: Sequence[_T]) -> _T:
    if len(found) != 1:
        raise StaleEdit(f"{len(found)} definitions have the name {name}, not one")
    return found[0]


def _check_count(name: str, text: str, found: int, times: int) -> None:
    if found != times:
        raise StaleEdit(f"{name} holds {found} times, not {times}:\n{text}")
