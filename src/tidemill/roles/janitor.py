"""The janitor's loops: what is old expires, what is unused is deleted, and processed files leave their inbox."""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, Final

from tidemill.catalog.audit_log import KEEP_AUDIT, delete_old_entries
from tidemill.catalog.db import Catalog
from tidemill.catalog.named import WakeKind
from tidemill.config import Config
from tidemill.lake import janitor
from tidemill.lake.fileset.expiry import KEEP_SUPERSEDED, expire_superseded
from tidemill.lake.hive_notes import write_notes
from tidemill.lake.inbox import leaving
from tidemill.lake.snapshot.versions import expire_versions
from tidemill.lake.window import watermark
from tidemill.run.processes.partitions import apply_retention
from tidemill.run.records.bundles import sweep_bundles, sweep_unpacked
from tidemill.run.records.logs import delete_old_logs
from tidemill.run.records.nodes import delete_old_nodes
from tidemill.upkeep.horizon import read_horizon
from tidemill.upkeep.retention import KEEP_HISTORY, Historian
from tidemill.upkeep.time_to_live import KEEP_MESSAGES

LEAVE_SOON: Final = timedelta(seconds=1)
"""The longest stay of a processed file in its inbox, unless many files leave."""
_SWEEP_EVERY: Final = timedelta(seconds=30)


class MachineJanitor:
    """Deletes on this machine what the catalog has no more: logs of deleted runs, and unpacked code.

    Each machine with runners needs one: a janitor elsewhere does not reach its folder `state`.
    """

    def __init__(self, catalog: Catalog, state: Path) -> None:
        self._catalog = catalog
        self._state = state
        self._seen: datetime | None = None

    def step(self) -> timedelta:
        """Delete what has gone from the catalog, and return the time until the next look."""
        sweep_unpacked(self._catalog, self._state)
        before = self._catalog.read(read_horizon).delete_at
        if before != self._seen:
            delete_old_logs(self._catalog, self._state / "logs", before)
            self._seen = before
        return _SWEEP_EVERY


class Janitor:
    """Expires what was replaced long ago, deletes what is unused, and archives or deletes processed files.

    Processed files leave in a step of its own, which runs in a loop of its own: the step may take long.
    """

    AWAITED: ClassVar = frozenset({WakeKind.MESSAGE, WakeKind.UNHEARD, WakeKind.RUN, WakeKind.COMPLETED, WakeKind.TIME})
    """The changes after which processed files may have to leave their inbox."""

    def __init__(
        self,
        catalog: Catalog,
        keep_superseded: timedelta = KEEP_SUPERSEDED,
        state: Path | None = None,
        *,
        keep_audit: timedelta = KEEP_AUDIT,
        keep_history: timedelta = KEEP_HISTORY,
        keep_messages: timedelta = KEEP_MESSAGES,
        logs: str = "",
    ) -> None:
        self._catalog = catalog
        self._keep_audit = keep_audit
        self._historian = Historian(catalog, keep_history, keep_messages, logs)
        self._keep_superseded = keep_superseded
        self._of_machine = None if state is None else MachineJanitor(catalog, state)

    @classmethod
    def of(cls, catalog: Catalog, config: Config) -> Janitor:
        """Make the janitor of a project, which keeps things for as long as the settings say."""
        return cls(
            catalog,
            config.keep_superseded,
            config.state,
            keep_audit=config.keep_audit,
            keep_history=config.keep_history,
            keep_messages=config.keep_messages,
            logs=config.logs,
        )

    def step(self) -> timedelta:
        """Sweep once, and return the time until the next sweep."""
        apply_retention(self._catalog, self._catalog.world)
        expire_superseded(self._catalog, self._keep_superseded)
        expire_versions(self._catalog, self._keep_superseded)
        watermark.expire_moves(self._catalog, self._keep_superseded)
        delete_old_entries(self._catalog, self._keep_audit)
        delete_old_nodes(self._catalog)
        janitor.sweep(self._catalog)
        sweep_bundles(self._catalog)
        if self._of_machine is not None:
            self._of_machine.step()
        # Late: nothing else waits for history that cannot be deleted, or for a metastore that does not answer.
        self._historian.step()
        write_notes(self._catalog)
        return _SWEEP_EVERY

    def empty_inboxes(self) -> timedelta:
        """Archive or delete some processed files, and return the time until the next step; zero while more wait."""
        return timedelta(0) if leaving.empty_inboxes(self._catalog) else _SWEEP_EVERY
