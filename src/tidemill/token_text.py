"""Text of a token: 260 random bits behind what finds its row. The catalog keeps the SHA-256 of the text alone."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from tidemill.names import RunId

if TYPE_CHECKING:
    from tidemill.world import World

BEGINNING: Final = "tm_"
SECRET: Final = 52
"""Characters of 5 bits each: 260 random bits."""

_RUN: Final = f"{BEGINNING}run_"


def digest_of(secret: str) -> str:
    """Return what the catalog keeps of a token."""
    return hashlib.sha256(secret.encode()).hexdigest()


def make_run_token(world: World, run_id: RunId) -> str:
    """Return a new token of an attempt of a run. The id of the run in it finds its row."""
    return f"{BEGINNING}{run_id}_{world.token(SECRET)}"


def run_of_token(secret: str) -> RunId | None:
    """Return the run whose token this is by its form; None for any other token."""
    head, _, rest = secret.rpartition("_")
    whole = secret.startswith(_RUN) and len(rest) == SECRET and secret.isascii()
    return RunId(head.removeprefix(BEGINNING)) if whole else None
