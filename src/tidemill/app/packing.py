"""Packing: which files of a project travel with its app file.

The app file, the modules beside it that it imports (also inside functions, and by way of other modules), and packages
as a whole, with the files in them that are no Python. What is found neither by reading the imports nor by loading the
app file stays behind; so does what lies beside the app file and is no module (data, settings, secrets).
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tidemill.errors import UserError
from tidemill.run.records.bundles import Bundle
from tidemill.sizes import format_bytes
from tidemill.world import Disk

MOST_BYTES: Final = 64_000_000
_INIT: Final = "__init__.py"


class BundleTooLarge(UserError):
    """The code of an app, with all that its packages hold, is larger than a bundle may be."""

    code = "bundle_too_large"

    def __init__(self, app_file: Path, found: int, largest: str) -> None:
        self.app_file = str(app_file)
        self.bytes = found
        self.largest = largest
        super().__init__(
            f"the code of {app_file} is {format_bytes(found)} with the files of its packages, of at most "
            f"{format_bytes(MOST_BYTES)}: move data out of the packages, above all {largest}"
        )


def pack(disk: Disk, app_file: Path, loaded: Mapping[str, Path] = MappingProxyType({})) -> Bundle:
    """The code of `app_file`: what it imports from its folder, and the modules `loaded`, by name and path.

    Raises `BundleTooLarge`; `OSError` for a file that cannot be read.
    """
    packing = _Packing(disk, app_file)
    packing.add_file(app_file.name, app_file)
    for name, path in loaded.items():
        packing.add_module(name, path)
    while packing.unread:
        packing.follow(*packing.unread.popitem())
    if packing.bytes > MOST_BYTES:
        raise BundleTooLarge(app_file, packing.bytes, packing.largest[1])
    return Bundle(packing.files)


class _Packing:
    """The files of a bundle while it is packed; `unread` are those whose imports are still to be followed."""

    def __init__(self, disk: Disk, app_file: Path) -> None:
        self.disk = disk
        self.root = app_file.parent
        self.files: dict[str, bytes] = {}
        self.unread: dict[str, bytes] = {}
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

    def follow(self, name: str, content: bytes) -> None:
        """Add what the module `name` imports from the folder of the app file."""
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError):
            return  # loading has refused a broken app file; a module that is imported late may never be imported
        for imported in _imports(tree, tuple(name.split("/")[:-1])):
            for count in range(1, len(imported) + 1):
                place = "/".join(imported[:count])
                path = self.root / place
                if self.disk.exists(path / _INIT):
                    self.add_package(place, path)
                elif self.disk.exists(path.with_name(f"{path.name}.py")):
                    self.add_file(f"{place}.py", path.with_name(f"{path.name}.py"))
                elif not path.is_dir():
                    break


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
