"""A test kit: a project with a catalog in memory and a virtual clock, whose processes run in the test.

pytest finds the fixture `mill` (docs/testing.md). Each name is imported at its first use.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tidemill.testing.clock import VirtualClock as VirtualClock
    from tidemill.testing.conformance import check_constraint as check_constraint
    from tidemill.testing.conformance import check_trigger as check_trigger
    from tidemill.testing.mill import EndedRun as EndedRun
    from tidemill.testing.mill import Published as Published
    from tidemill.testing.mill import VirtualMill as VirtualMill

_HOMES = {
    "EndedRun": "mill",
    "Published": "mill",
    "VirtualClock": "clock",
    "VirtualMill": "mill",
    "check_constraint": "conformance",
    "check_trigger": "conformance",
}

__all__ = list(_HOMES)


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'tidemill.testing' has no attribute {name!r}")
    return getattr(importlib.import_module(f"tidemill.testing.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return list(_HOMES)
