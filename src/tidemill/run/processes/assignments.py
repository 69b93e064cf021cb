"""The words between a launcher and its driver processes.

A driver reads one line with its setup, then one line for each attempt, and appends words to the file `status` in its
folder.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tidemill.names import RunId
from tidemill.run.records.bundles import AppCode
from tidemill.stores import StoreSettings

READY: Final = "ready"
DONE: Final = "done"
STATUS: Final = "status"
"""The file of these words."""
WORKS: Final = "works"
STOPPED: Final = "stopped"
SILENT: Final = "silent"
"""A near end writes one of these words when the state of its driver on the cluster changes. Nothing is heard of a
`silent` driver."""
LAST: Final = "last"
"""Another run does not get the driver: user code has left something running in it, or its Spark has ended.

The driver writes the word before the commit in the first case, and before the end of the attempt in the second."""


@dataclass(frozen=True, slots=True)
class DriverSetup:
    """The task of a driver. It comes by standard input, since a catalog's URL may hold a password."""

    catalog_url: str
    code: AppCode
    folder: str
    logs: str
    spark: bool
    warm: bool
    spark_settings: Mapping[str, str]
    stores: tuple[StoreSettings, ...] = ()
    profile: str = ""
    """The named Spark profile that the settings are of; empty for those of `[spark]`."""
    node: str = ""
    """The `Catalog.node` of the process that has started the driver."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """An attempt for a driver to work on; `logs` is its folder for what is printed.

    `url` is the address of the server that was started last on this machine; empty without one. `log_location` is the
    folder in which the node of the attempt has its logs, if that is not `logs`.
    """

    run_id: RunId
    epoch: int
    logs: str
    url: str = ""
    log_location: str = ""


def python_environ(environ: Mapping[str, str], modules: str) -> dict[str, str]:
    """Return the variables of a driver by which Python and Spark's Python workers import the modules of the app."""
    path = ":".join(filter(None, [modules, environ.get("PYTHONPATH", "")]))
    return {"PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
