"""Packing: which files of a project travel with its app file.

The app file, the modules beside it that it imports (also inside functions, and by way of other modules), and packages
as a whole, with the files in them that are no Python. What is found neither by reading the imports nor by loading the
app file stays behind. So does what lies beside the app file and is no module (settings, secrets), except the data files
that the app declares. A data file that is Python is a script: what it imports from its own folder travels too.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tidemill.errors import UserError
from tidemill.run.records.bundles import MOST_BYTES, Bundle
from tidemill.run.records.modules import DATA_FILES
from tidemill.sizes import format_bytes
from tidemill.world import Disk

_INIT: Final = "__init__.py"


class BundleTooLarge(UserError):
    """The code of an app, with all that its packages hold, is larger than a bundle may be."""

    code = "bundle_too_large"

    def __init__(self, app_file: Path, found: int, largest: str) -> None:
        self.app_file = str(app_file)
        self.bytes = found
        self.largest = largest
        super().__init__(
            f"the code of {app_file} is {format_bytes(found)} with the files of its packages and its data files, of "
            f"at most {format_bytes(MOST_BYTES)}",
            f"move data elsewhere, above all {largest}",
            before=": ",
        )


class MissingFiles(UserError):
    """An app declares data files that are not there."""

    code = "missing_files"

    def __init__(self, app_file: Path, pattern: str) -> None:
        self.app_file = str(app_file)
        self.pattern = pattern
        super().__init__(
            f"no file matches {pattern!r}, which {app_file} declares",
            f"correct the name, or add the file below {app_file.parent}",
            before=": ",
        )


def pack(
    disk: Disk, app_file: Path, loaded: Mapping[str, Path] = MappingProxyType({}), patterns: Iterable[str] = ()
) -> Bundle:
    """The code of `app_file`: what it imports from its folder, and the modules `loaded`, by name and path.

    With it come the data files that match one of `patterns`. Raises `BundleTooLarge`, `MissingFiles`; `OSError` for a
    file that cannot be read.
    """
    packing = _Packing(disk, app_file)
    packing.add_file(app_file.name, app_file)
    for name, path in loaded.items():
        packing.add_module(name, path)
    packing.add_data(patterns)
    while packing.unread:
        packing.follow(*packing.unread.popitem())
    if packing.bytes > MOST_BYTES:
        raise BundleTooLarge(app_file, packing.bytes, packing.largest[1])
    return Bundle(packing.files)


class _Packing:
    """The files of a bundle while it is packed; `unread` are those whose imports are still to be followed."""

    def __init__(self, disk: Disk, app_file: Path) -> None:
        self.disk = disk
        self.app_file = app_file
        self.root = app_file.parent
        self.files: dict[str, bytes] = {}
        self.unread: dict[str, bytes] = {}
        self.homes: dict[str, str] = {}
        """The folder of each script and of what it imports from there: Python looks there first, as in the root."""
        self.bytes = 0
        self.largest = (0, app_file.name)

    def add_file(self, name: str, path: Path) -> None:
        """Add one file under its name in the bundle."""
        if name not in self.files:
            size = self.disk.size(path)
            self.bytes += size
            self.largest = max(self.largest, (size, name))
            # Of what is too much only the size is wanted: data in a package may be larger than the memory.
            python = path.suffix == ".py"
            self.files[name] = self.disk.read_bytes(path) if python or self.bytes <= MOST_BYTES else b""
            if python:
                self.unread[name] = self.files[name]

    def add_module(self, name: str, path: Path) -> None:
        """Add the module of that name, or its package as a whole."""
        place = name.replace(".", "/")
        if path.name == _INIT:
            self.add_package(place, path.parent)
        else:
            self.add_file(f"{place}.py", path)

    def add_package(self, place: str, folder: Path, within: tuple[Path, ...] = ()) -> None:
        """Add all that lies in the folder of a package, but for what is hidden or compiled.

        A link to one of the folders that it lies `within` has no end, and is left out.
        """
        real = folder.resolve()
        if real in within:
            return
        for path in self.disk.list_folder(folder):
            if path.name.startswith(".") or path.name == "__pycache__":
                continue
            if path.is_dir():
                self.add_package(f"{place}/{path.name}", path, (*within, real))
            elif path.is_file():
                self.add_file(f"{place}/{path.name}", path)

    def add_data(self, patterns: Iterable[str]) -> None:
        """Add the data files that match one of `patterns`, and their list; `MissingFiles` for a pattern without one."""
        names: set[str] = set()
        for pattern in patterns:
            parts = pattern.split("/")
            found = list(_match(self.disk, self.root, [*parts, "*"] if parts[-1] == "**" else parts))
            if not found:
                raise MissingFiles(self.app_file, pattern)
            for path in found:
                name = path.relative_to(self.root).as_posix()
                names.add(name)
                if path.suffix == ".py" and "/" in name:
                    self.homes[name] = name.rpartition("/")[0]
                self.add_file(name, path)
        if names:
            self.files[DATA_FILES] = json.dumps(sorted(names)).encode()

    def follow(self, name: str, content: bytes) -> None:
        """Add what the module `name` imports from the folder of the app file."""
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError):
            return  # loading has refused a broken app file; a module that is imported late may never be imported
        home = self.homes.get(name)
        for imported in _imports(tree, tuple(name.split("/")[:-1])):
            self._add_imported(imported)
            if home is not None:
                self._add_imported((*home.split("/"), *imported), home)

    def _add_imported(self, imported: tuple[str, ...], home: str | None = None) -> None:
        """Add what a module imports under this name, as far as it lies below the root."""
        for count in range(1, len(imported) + 1):
            place = "/".join(imported[:count])
            path = self.root / place
            if self.disk.exists(path / _INIT):
                self.add_package(place, path)
            elif self.disk.exists(path.with_name(f"{path.name}.py")):
                if home is not None:
                    self.homes.setdefault(f"{place}.py", home)
                self.add_file(f"{place}.py", path.with_name(f"{path.name}.py"))
            elif not path.is_dir():
                break


def _match(disk: Disk, folder: Path, parts: Sequence[str], within: tuple[Path, ...] = ()) -> Iterator[Path]:
    """Yield the files below `folder` that match a pattern by its parts; `**` stands for any number of folders.

    Hidden files and folders match only a part that begins with a dot. A link to a folder that it lies `within` is left
    out.
    """
    first, *rest = parts
    real = folder.resolve()
    if real in within:
        return
    if first == "**":
        yield from _match(disk, folder, rest, within)
    for path in disk.list_folder(folder):
        if path.name.startswith(".") and not first.startswith("."):
            continue
        if first == "**":
            if path.is_dir():
                yield from _match(disk, path, parts, (*within, real))
        elif fnmatchcase(path.name, first):
            if rest and path.is_dir():
                yield from _match(disk, path, rest, (*within, real))
            elif not rest and path.is_file():
                yield path


def _imports(tree: ast.Module, package: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """The names that a module of `package` imports, wherever it does so; of `from a import b` also `a.b`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                for alias in names:
                    yield tuple(alias.name.split("."))
            case ast.ImportFrom(module=module, names=names, level=level):
                above = package[: len(package) - level + 1] if level else ()
                base = (*above, *(module.split(".") if module else ()))
                for alias in names:
                    yield (*base, alias.name)
