"""Places of secrets: settings and options name the place, and the secret itself is read when it is needed."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tidemill.errors import NotOnThisNode, UserError
from tidemill.world import World

_KINDS: Final = ("env", "file")
_LEAST_HIDDEN: Final = 4
"""The least characters of a secret that is hidden in texts: a shorter one stands in many words by chance."""


class BadSecretPlace(UserError):
    """A text that is no place of a secret."""

    code = "bad_secret_place"

    def __init__(self, what: str, place: str) -> None:
        self.what = what
        # It may be the secret itself.
        super().__init__(f"{what} is refused", "name the place of the secret, as env:NAME or file:PATH", before=": ")
        del place


class NoSecret(NotOnThisNode):
    """A place that holds no secret on this machine, or one that this process may not read."""

    code = "no_secret"

    def __init__(self, place: str) -> None:
        self.place = place
        super().__init__(
            f"there is no secret at {place}", "set the variable, or write the file, for this process", before=": "
        )


def check_place(what: str, place: str) -> str:
    """Return `place` if it is `env:NAME` or `file:PATH`; `BadSecretPlace`."""
    kind, _, name = place.partition(":")
    if kind not in _KINDS or not name:
        raise BadSecretPlace(what, place)
    return place


@dataclass(frozen=True, slots=True)
class Secret:
    """Place of a secret, `env:NAME` or `file:PATH`, as the value or default of an argument of a program.

    The catalog, logs and pages have the place. A program finds the secret in `run.arguments`: the driver reads the
    secret on its machine. Runs wait for a node that has the secret. `BadSecretPlace`.
    """

    place: str

    def __post_init__(self) -> None:
        """Refuse the secret itself."""
        check_place("a secret", self.place)


def read_secret(world: World, what: str, place: str) -> str:
    """Return the secret at `place`. `BadSecretPlace`, `NoSecret`."""
    kind, _, name = check_place(what, place).partition(":")
    if kind == "env" and name in world.environ:
        return world.environ[name]
    if kind == "file":
        with suppress(OSError):
            return world.disk.read_bytes(Path(name)).decode(errors="replace").strip()
    raise NoSecret(place)


class KnownSecrets:
    """The secrets of an attempt with their places, which stand in all texts in the stead of the secrets.

    A secret is also found as `repr` or JSON writes it. A secret that a program has changed, as by a hash, is not found.
    """

    def __init__(self, places: Mapping[str, str] = MappingProxyType({})) -> None:
        """`places` are by the secrets."""
        self._places = {
            form: place
            for secret, place in places.items()
            if len(secret) >= _LEAST_HIDDEN
            for form in (secret, repr(secret)[1:-1], json.dumps(secret)[1:-1])
        }
        longest_first = sorted(self._places, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first))) if longest_first else None

    def __bool__(self) -> bool:
        """Return whether there is a secret to hide."""
        return self._pattern is not None

    def hide(self, text: str) -> str:
        """Return `text` with the place of each secret in its stead."""
        return text if self._pattern is None else self._pattern.sub(lambda found: self._places[found[0]], text)

    def find_begun(self, text: str) -> int:
        """Return the position from which the end of `text` may be the begin of a secret; its length without one."""
        if self._pattern is None:
            return len(text)
        inside = {at for found in self._pattern.finditer(text) for at in range(found.start() + 1, found.end())}
        longest = max(map(len, self._places))
        for at in range(max(0, len(text) - longest + 1), len(text)):
            rest = text[at:]
            if at not in inside and any(form.startswith(rest) and form != rest for form in self._places):
                return at
        return len(text)
