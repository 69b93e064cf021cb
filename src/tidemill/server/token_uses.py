"""Uses of tokens: noted by a thread of its own, so that no request waits for a catalog that cannot be written to."""

from __future__ import annotations

import logging
import threading
from datetime import datetime
from typing import TYPE_CHECKING, Final

from tidemill.errors import TidemillError
from tidemill.mill.tokens import Principal, is_due, note_use

if TYPE_CHECKING:
    from tidemill.catalog.db import Catalog

_log = logging.getLogger(__name__)

_MOST_WAITING: Final = 1000
_LAST_MOMENT: Final = 2.0
"""Seconds for the last uses at the end of the server."""


class TokenUses:
    """Notes the last use of each token, at most once a minute. A use that cannot be noted is forgotten."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._waiting: dict[str, tuple[Principal, datetime]] = {}
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self._stopped = False

    def note(self, principal: Principal, now: datetime) -> None:
        """Have the use of a token noted soon."""
        if not is_due(principal, now):
            return
        with self._lock:
            if self._stopped or len(self._waiting) >= _MOST_WAITING:
                return
            self._waiting[principal.token_id] = (principal, now)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="uses of tokens", daemon=True)
                self._thread.start()
        self._woken.set()

    def stop(self) -> None:
        """End the thread, after the uses that wait; a catalog that is away holds up nothing."""
        with self._lock:
            self._stopped = True
        self._woken.set()
        if self._thread is not None:
            self._thread.join(_LAST_MOMENT)

    def _run(self) -> None:
        while True:
            self._woken.wait()
            self._woken.clear()
            with self._lock:
                waiting, self._waiting = self._waiting, {}
                stopped = self._stopped
            try:
                for principal, now in waiting.values():
                    note_use(self._catalog, principal, now)
            except TidemillError as error:
                _log.warning("the last use of tokens is not noted: %s", error)
            if stopped:
                return
