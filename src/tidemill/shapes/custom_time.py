"""Custom extractors: functions of the project that read the time of a partition from its key, as `module:function`.

Only modules of projects are imported, those beside an app file. Some other module may have the name too. A process that
opens a project, or loads its code, says where such modules lie. In other processes no extractor can be loaded, and
partitions without a time wait for a process that loads it.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import reduce
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Final, TypeAlias

from tidemill.shapes.keys import KeyValue
from tidemill.shapes.time_formats import BadPartitionTime

CustomTime: TypeAlias = Callable[[Mapping[str, KeyValue]], datetime]
"""Returns the wall-clock time of a partition, without a zone, from the values of its key by their names."""

_NAME: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_folders: Final[list[Path]] = []
"""The folders of projects, the latest last."""
_imported: Final[set[str]] = set()
"""The modules that were imported here first."""


def import_from(folder: Path) -> None:
    """Take custom extractors from modules in this folder of a project too, from now on."""
    for place in (folder, folder.resolve()):
        if place not in _folders:
            _folders.append(place)


def forget_modules() -> None:
    """Have modules that were imported here first imported again: their files may have changed."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _imported]:
        del sys.modules[name]
    _imported.clear()


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
    function = load(name)
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
    return importlib.import_module(module)


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
