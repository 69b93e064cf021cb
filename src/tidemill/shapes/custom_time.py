"""Custom extractors: functions of the project that read the time of a partition from its key, as `module:function`.

Only modules of projects are imported, those beside an app file. Some other module may have the name too. A process that
opens a project, or loads its code, says where such modules lie. In other processes no extractor can be loaded, and
partitions without a time wait for a process that loads it.

No function of a project runs inside a transaction of the catalog. A transaction that may need times runs by
`run_beside`: it has the times that were read before, and begins again if it lacks some.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from functools import reduce
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from typing import Final, TypeAlias, TypeVar

from tidemill.shapes.keys import KeyValue
from tidemill.shapes.time_formats import BadPartitionTime

CustomTime: TypeAlias = Callable[[Mapping[str, KeyValue]], datetime]
"""Returns the wall-clock time of a partition, without a zone, from the values of its key by their names."""

_A = TypeVar("_A")
_T = TypeVar("_T")
_Values: TypeAlias = tuple[tuple[str, KeyValue], ...] | None
"""The values of a key by their names; None for no key."""
_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_folders: Final[list[Path]] = []
"""The folders of projects, the latest last."""
_imported: Final[set[str]] = set()
"""The modules that were imported here first."""
_files: Final[dict[str, dict[str, object]]] = {}
"""The states of the files of such modules and of those within them, when they were imported."""


class _TimesMissing(Exception):
    """The end of a transaction that lacks times. It never leaves this module."""


@dataclass(slots=True)
class _TimesRead:
    """Times that extractors gave before a transaction, and those that the transaction lacks.

    An extractor has one entry without a key, which says whether the extractor can be loaded.
    """

    known: dict[tuple[str, _Values], datetime | BadPartitionTime | None] = field(default_factory=dict)
    missing: dict[tuple[str, _Values], None] = field(default_factory=dict)

    def find(self, name: str, values: _Values) -> datetime | None:
        asked = name, values
        if asked not in self.known:
            self.missing[asked] = None
            raise _bad(name, "it was not called yet")
        found = self.known[asked]
        if isinstance(found, BadPartitionTime):
            raise found
        return found

    def read_missing(self) -> None:
        for name in {name for name, _ in self.missing}:
            _reload_changed(name)
        for name, values in self.missing:
            try:
                _find_function(name)
                self.known[name, values] = None if values is None else _call(name, dict(values))
            except BadPartitionTime as error:
                self.known[name, values] = error
        self.missing.clear()


_beside: Final[ContextVar[_TimesRead | None]] = ContextVar("_beside", default=None)
"""The times that the present transaction has; None outside of one."""


def run_beside(run: Callable[[Callable[[_A], _T]], _T], block: Callable[[_A], _T]) -> _T:
    """Run `block` by `run`, a method of a catalog that begins a transaction, with no call of an extractor inside.

    A block that needs times which no extractor has given yet changes nothing. The extractors are called after its end,
    and the block begins again.
    """
    times = _TimesRead()

    def with_times(given: _A) -> _T:
        times.missing.clear()
        token = _beside.set(times)
        try:
            found = block(given)
        except Exception:
            if times.missing:  # the reason, perhaps
                raise _TimesMissing from None
            raise
        finally:
            _beside.reset(token)
        if times.missing:
            raise _TimesMissing
        return found

    while True:
        try:
            return run(with_times)
        except _TimesMissing:
            times.read_missing()


def import_from(folder: Path) -> None:
    """Take custom extractors from modules in this folder of a project too, from now on."""
    for place in (folder, folder.resolve()):
        if place not in _folders:
            _folders.append(place)


def forget_modules() -> None:
    """Have modules that were imported here first imported again: their files may have changed."""
    for name in [name for name in list(sys.modules) if name.partition(".")[0] in _imported]:
        sys.modules.pop(name, None)  # another thread may forget it too
    _imported.clear()
    _files.clear()


def check_name(name: str) -> str:
    """Return the name of an extractor; `BadPartitionTime` for what cannot be one."""
    if _NAME.fullmatch(name) is None:
        raise _bad(name, "name a function of a module of the project, as 'times:read_time'")
    return name


def name_of(function: CustomTime) -> str:
    """Return the name by which `load` finds a function again; `BadPartitionTime` if there is none."""
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    if _NAME.fullmatch(name) is None:
        raise _bad(name, "only a function with a name of its own, of a module of the project, is found again")
    return name


def load(name: str) -> CustomTime:
    """Import the module of an extractor, and return the function; `BadPartitionTime` says why this is impossible."""
    _reload_changed(name)
    return _find_function(name)


def check_loads(name: str) -> None:
    """Raise `BadPartitionTime` if an extractor cannot be loaded. Within a transaction nothing is imported."""
    times = _beside.get()
    if times is None:
        load(name)
    else:
        times.find(name, None)


def _find_function(name: str) -> CustomTime:
    module, _, path = name.partition(":")
    try:
        found: object = reduce(getattr, path.split("."), _import(name, module))
    except BadPartitionTime:
        raise
    except Exception as error:  # whatever a module of the user's raises
        raise _bad(name, f"it cannot be loaded: {_show(error)}") from error
    if not callable(found):
        raise _bad(name, f"{path} is no function")
    return found


def read_custom(name: str, values: Mapping[str, KeyValue]) -> datetime:
    """Return the time that an extractor gives for the values of a key; `BadPartitionTime` says why there is none."""
    times = _beside.get()
    if times is None:
        return _call(name, values)
    found = times.find(name, tuple(values.items()))
    assert found is not None, "an entry with values has a time"  # noqa: S101
    return found


def _call(name: str, values: Mapping[str, KeyValue]) -> datetime:
    function = _find_function(name)
    try:
        found: object = function(dict(values))
    except Exception as error:  # whatever a function of the user's raises
        raise _bad(name, f"it raises {_show(error)}") from error
    if not isinstance(found, datetime) or found.tzinfo is not None:
        raise _bad(name, f"it returns {found!r}: a datetime without a zone is wanted")
    return found


def _import(name: str, module: str) -> object:
    top = module.partition(".")[0]
    if not _is_of_project(_find(top)):
        spec = PathFinder.find_spec(top, [str(folder) for folder in reversed(_folders)])
        if spec is None or spec.loader is None:
            raise _bad(name, f"it cannot be loaded: there is no module {top!r} beside the app file of the project")
        if top in sys.modules:
            raise _bad(name, f"it cannot be loaded: a module that is installed has the name {top!r} too: rename yours")
        _imported.add(top)
        loaded = sys.modules[top] = importlib.util.module_from_spec(spec)
        try:
            spec.loader.exec_module(loaded)
        except BaseException:
            del sys.modules[top]
            raise
    elif top not in sys.modules:
        _imported.add(top)
    if module in sys.modules and top in _files:
        return sys.modules[module]
    found = importlib.import_module(module)
    _files[top] = _states_of(top)
    return found


def _states_of(top: str) -> dict[str, object]:
    """Return the time of change and the size of the file of each module of a project that is imported."""
    loaders = {name: getattr(one, "__loader__", None) for name, one in list(sys.modules.items())}
    found: dict[str, object] = {}
    for name, loader in loaders.items():
        if name.partition(".")[0] == top and isinstance(loader, SourceFileLoader):
            with suppress(OSError):  # deleted by now
                found[name] = loader.path_stats(loader.path)
    return found


def _reload_changed(name: str) -> None:
    """Forget the modules that were imported here first, if the files of the extractor's module have changed since.

    A process may live for months, and the project is deployed again meanwhile.
    """
    top = name.partition(":")[0].partition(".")[0]
    known = _files.get(top)
    if top in _imported and known is not None:
        states = _states_of(top)
        # A module that was imported later, as by a call, is no change.
        if any(states.get(module) != state for module, state in known.items()):
            forget_modules()


def _find(top: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(top)
    except ValueError:  # a module that was not imported, as __main__
        return None


def _is_of_project(spec: ModuleSpec | None) -> bool:
    if spec is None:
        return False
    places = [Path(place) for place in (spec.origin, *(spec.submodule_search_locations or ())) if place]
    return any(place.is_relative_to(folder) for place in places for folder in _folders)


def _show(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _bad(name: str, why: str) -> BadPartitionTime:
    return BadPartitionTime("extractor", name, why)
