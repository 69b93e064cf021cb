"""Importing from an unpacked bundle: modules come from there, and `__file__` says where they were deployed from.

So `Path(__file__).parent` is the project's folder in a run as it is in a test, tracebacks name the file that the user
edits, and their lines are those of the deployed text.
"""

from __future__ import annotations

import importlib.util
import linecache
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType


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


def find_module(folder: Path, app_file: Path) -> ModuleSpec:
    """Import from the unpacked bundle in `folder` from now on, and from no other; give the spec of its app file."""
    for finder in sys.meta_path:
        if isinstance(finder, _Finder) and (finder.folder, finder.origin) == (folder, app_file.parent):
            return finder.spec(app_file.stem, app_file.name, None)
    leave_bundles()
    served = _Finder(folder, app_file.parent)
    sys.meta_path.insert(0, served)
    return served.spec(app_file.stem, app_file.name, None)


def leave_bundles() -> None:
    """Import from no bundle from now on, and forget the modules that came from one."""
    for finder in [finder for finder in sys.meta_path if isinstance(finder, _Finder)]:
        sys.meta_path.remove(finder)
    for name, module in list(sys.modules.items()):
        if isinstance(getattr(module, "__loader__", None), _Loader):
            del sys.modules[name]
