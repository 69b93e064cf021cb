"""Plug-ins: classes and functions of installed packages, which these packages declare as entry points."""

from __future__ import annotations

from collections.abc import Callable

from tidemill.errors import UserError


class BadPlugin(UserError):
    """An entry point that cannot be loaded, or is of another kind than its group."""

    code = "bad_plugin"

    def __init__(self, group: str, name: str, why: str) -> None:
        self.group = group
        self.name = name
        self.why = why
        super().__init__(f"plug-in {name!r} of {group} is refused: {why}", "correct its package, or uninstall it")


def load_kinds(group: str, base: type) -> dict[str, type]:
    """Load the classes of a group of entry points, by name. Cost: a look at all installed packages. `BadPlugin`."""
    kinds: dict[str, type] = {}
    for name, found in _load_all(group).items():
        if not isinstance(found, type) or not issubclass(found, base):
            raise BadPlugin(group, name, f"{found!r} is no {base.__name__}")
        kinds[name] = found
    return kinds


def find_function(group: str, name: str) -> Callable[[], object] | None:
    """Load the function of one entry point; None without that entry point. `BadPlugin`."""
    found = _load_all(group, name).get(name)
    if found is not None and not callable(found):
        raise BadPlugin(group, name, f"{found!r} is no function")
    return found


def _load_all(group: str, *names: str) -> dict[str, object]:
    # Most commands need no plug-in, and the import takes 10 ms.
    from importlib.metadata import entry_points

    loaded: dict[str, object] = {}
    for entry in entry_points(group=group):
        if names and entry.name not in names:
            continue
        try:
            loaded[entry.name] = entry.load()
        except Exception as error:  # noqa: BLE001  # code of others: whatever it raises
            raise BadPlugin(group, entry.name, f"{entry.value} cannot be loaded ({error})") from None
    return loaded
