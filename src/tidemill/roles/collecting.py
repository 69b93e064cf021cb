"""The garbage collector of Python in a process that works for days: how often it looks, and at what."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NEW_OBJECTS: Final = 20_000
"""The new objects after which the collector looks; Python's default is 700. A batch of the scheduler makes 100,000."""


@contextmanager
def collecting_seldom() -> Iterator[None]:
    """Have the collector look seldom in a block, and not at the objects that are there already, such as modules.

    Batches of work make many objects and no circles, so that nearly all of them are gone without the collector. With
    the defaults it takes an eighth of a scheduler's processor time (B3, 29 November 2026). To freeze what is loaded is
    the method of Instagram (`gc.freeze`, Python issue 31558).
    """
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(max(_NEW_OBJECTS, usual[0]), *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()
