"""Importing the user's code: from an unpacked bundle, or from the files of a project.

A module of a bundle has the `__file__` that it was deployed from. So `Path(__file__).parent` is the project's folder in
a run as it is in a test, tracebacks name the file that the user edits, and their lines are those of the deployed text.
A bundle with data files is different: its modules have their `__file__` in the unpacked bundle, beside the data files
as they were deployed.

All of it is compiled from its text each time it is imported. Python would take an edit of the same length for what it
compiled before, if both were saved in one second: a deployment would then declare other code than it packs.
"""

from __future__ import annotations

import importlib.util
import linecache
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType
from typing import Final

from tidemill.shapes.custom_time import import_from

DATA_FILES: Final = ".tidemill-files"
"""The file of a bundle that lists the declared data files in it; only a bundle with data files has it."""

_folders: Final[set[Path]] = set()
"""The folders of app files that this process has imported, resolved."""


class _SourceLoader(SourceFileLoader):
    """Compiles a file of a project from its text, and neither reads nor writes byte code."""

    def get_code(self, fullname: str) -> CodeType:
        """Compile the text as it is now."""
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path)


class _Loader(SourceFileLoader):
    """Compiles a file of a bundle under the path that it was deployed from."""

    def __init__(self, name: str, path: Path, origin: Path) -> None:
        super().__init__(name, str(path))
        self.origin = str(origin)

    def get_data(self, path: str) -> bytes:
        """Read a file of the bundle, also by the path that it was deployed from, as `pkgutil.get_data` asks for it."""
        deployed, within = Path(self.origin).parent, Path(self.path).parent
        asked = Path(path)
        if asked.is_relative_to(deployed) and not asked.is_relative_to(within):
            packed = within / asked.relative_to(deployed)
            asked = packed if packed.is_file() else asked
        return super().get_data(str(asked))

    def get_code(self, fullname: str) -> CodeType:
        """Without a cache of byte code: a cached one names the path in the bundle."""
        content = self.get_data(self.get_filename(fullname))
        with suppress(SyntaxError, UnicodeDecodeError):  # what the compiler lets pass: a comment in another encoding
            text = importlib.util.decode_source(content)
            linecache.cache[self.origin] = (len(text), None, text.splitlines(keepends=True), self.origin)
        return self.source_to_code(content, self.origin)


class _Finder(MetaPathFinder):
    """Finds the modules of one bundle, before any of the same name elsewhere."""

    def __init__(self, folder: Path, origin: Path) -> None:
        self.folder = folder
        self.origin = origin

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's place in the bundle; None when the bundle has none of this name."""
        del path, target
        place = fullname.replace(".", "/")
        if (self.folder / place / "__init__.py").is_file():
            return self.spec(fullname, f"{place}/__init__.py", [str(self.origin / place)])
        if (self.folder / f"{place}.py").is_file():
            return self.spec(fullname, f"{place}.py", None)
        if (self.folder / place).is_dir():
            package = ModuleSpec(fullname, None, is_package=True)
            package.submodule_search_locations = [str(self.origin / place)]
            return package
        return None

    def spec(self, name: str, file: str, within: list[str] | None) -> ModuleSpec:
        """The spec of one file of the bundle."""
        origin = self.origin / file
        loader = _Loader(name, self.folder / file, origin)
        spec = importlib.util.spec_from_file_location(name, origin, loader=loader, submodule_search_locations=within)
        assert spec is not None, "a loader was given"  # noqa: S101
        return spec


def find_app(app_file: Path) -> ModuleSpec | None:
    """Import from the folder of `app_file` from now on, first of all; give the file's spec, None if it is no Python."""
    leave_bundles()
    folder = app_file.parent.resolve()
    import_from(folder)
    if str(folder) in sys.path:
        sys.path.remove(str(folder))
    sys.path.insert(0, str(folder))  # before those of other projects in this process
    if folder not in _folders:
        _folders.add(folder)
        # The list first: a thread that imports adds to the cache meanwhile.
        for known in [known for known in list(sys.path_importer_cache) if Path(known).is_relative_to(folder)]:
            del sys.path_importer_cache[known]
    if _find_in_project not in sys.path_hooks:
        sys.path_hooks.insert(0, _find_in_project)
    loader = _SourceLoader(app_file.stem, str(app_file)) if app_file.suffix in SOURCE_SUFFIXES else None
    return importlib.util.spec_from_file_location(app_file.stem, app_file, loader=loader)


def find_module(folder: Path, app_file: Path) -> ModuleSpec:
    """Import from the unpacked bundle in `folder` from now on, and from no other; give the spec of its app file."""
    origin = folder if (folder / DATA_FILES).is_file() else app_file.parent
    for finder in sys.meta_path:
        if isinstance(finder, _Finder) and (finder.folder, finder.origin) == (folder, origin):
            return finder.spec(app_file.stem, app_file.name, None)
    leave_bundles()
    import_from(origin)
    served = _Finder(folder, origin)
    sys.meta_path.insert(0, served)
    return served.spec(app_file.stem, app_file.name, None)


def leave_bundles() -> None:
    """Import from no bundle from now on, and forget the modules that came from one."""
    for finder in [finder for finder in sys.meta_path if isinstance(finder, _Finder)]:
        sys.meta_path.remove(finder)
    for name, module in sys.modules.copy().items():  # other threads import meanwhile
        if isinstance(getattr(module, "__loader__", None), _Loader):
            del sys.modules[name]


def is_of_project(path: Path, folder: Path) -> bool:
    """Tell if `path` belongs to the project in `folder`, and not to an environment that lies there or elsewhere."""
    if path.is_relative_to(sys.prefix) or path.is_relative_to(sys.base_prefix) or not path.is_relative_to(folder):
        return False
    parts = path.relative_to(folder).parts
    return "site-packages" not in parts and not any(part.startswith(".") for part in parts)


def _find_in_project(path: str) -> FileFinder:
    """Return the finder of modules in a folder of a project; `ImportError` leaves any other folder to Python."""
    place = Path(path)
    nearest = next((folder for folder in (place, *place.parents) if folder in _folders), None)
    if nearest is None or not is_of_project(place, nearest) or not place.is_dir():
        message = "no folder of a project"
        raise ImportError(message, path=path)
    return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (_SourceLoader, SOURCE_SUFFIXES))
