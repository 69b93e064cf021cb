"""Computing windows so that one that fails holds up no other: a failing batch is halved until the window is known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from tidemill.errors import Conflict, Fenced, Unavailable, UserError
from tidemill.lake.window.window_plan import Window

MOST_FAILING: Final = 8
"""How many windows of one batch may fail before the rest is left to another run: finding each costs some jobs."""
_MOST_NAMED: Final = 5


class WindowFailed(UserError):
    """A window that cannot be computed."""

    code = "window_failed"

    def __init__(self, window: str, partitions: Sequence[str], reason: str) -> None:
        self.window = window
        self.partitions = tuple(partitions)
        self.reason = reason
        shown = ", ".join(partitions[:_MOST_NAMED]) + (" …" if len(partitions) > _MOST_NAMED else "")
        super().__init__(f"window {window} cannot be computed from {shown or 'no partition'}: {reason}")


class Tries:
    """What one run has computed, and what it could not.

    `write` computes and writes some windows, or raises and has written nothing; `blame` says what is wrong with one.
    """

    def __init__(
        self, write: Callable[[Sequence[Window]], None], blame: Callable[[Window, Exception], WindowFailed]
    ) -> None:
        self._write = write
        self._blame = blame
        self._most = 0
        self.done: list[Window] = []
        self.failed: dict[Window, WindowFailed] = {}

    def compute(self, windows: Sequence[Window]) -> int:
        """Compute `windows` in their order; how many of them were tried, all but for too many that fail."""
        self._most = len(self.failed) + MOST_FAILING
        return self._halve(windows) if windows else 0

    def _halve(self, windows: Sequence[Window]) -> int:
        try:
            self._write(windows)
        except (Conflict, Fenced, Unavailable):
            raise  # not the windows' doing
        except Exception as error:  # noqa: BLE001  # whatever Spark raises, or a function of the user's
            if len(windows) == 1:
                self.failed[windows[0]] = self._blame(windows[0], error)
                return 1
        else:
            self.done += windows
            return len(windows)
        half = len(windows) // 2
        tried = self._halve(windows[:half])
        if tried < half or len(self.failed) >= self._most:
            return tried
        return half + self._halve(windows[half:])
