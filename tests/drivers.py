"""Options of launchers in tests: each run has a process of its own, and nothing waits warm."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from tidemill.run.processes.local_launcher import DriverOptions, ProfileOptions


def cold_drivers(
    catalog_url: str, folder: Path, cache: Path, settings: Mapping[str, str] = MappingProxyType({}), *, plain: int = 0
) -> DriverOptions:
    """Return options without warm drivers; `plain` drivers without Spark are kept."""
    return DriverOptions(catalog_url, folder, cache, {"": ProfileOptions(settings, warm=0)}, plain=plain)
