"""Tries of windows: a failing batch is halved until the failing windows are known, so that they delay no others.

The cause is mostly a partition that several windows need. So once a window has failed, the windows that share
partitions with it wait until the others are computed. Not all of them need to be tried to be postponed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from tidemill.errors import Conflict, Fenced, Unavailable, UserError
from tidemill.lake.suspects import halve
from tidemill.lake.window.window_plan import Window
from tidemill.shapes.manifest import DamagedFiles
from tidemill.sql.aside import name_some

MOST_FAILING: Final = 8
"""After this many windows of one batch have failed alone, the rest is left. Finding each costs some jobs."""
_SAMPLES: Final = 4


class WindowFailed(UserError):
    """A window that cannot be computed."""

    code = "window_failed"
    hint = "correct the statement or the data of the window, and run again"

    def __init__(self, window: str, partitions: Sequence[str], reason: str) -> None:
        self.window = window
        self.partitions = tuple(partitions)
        self.reason = reason
        super().__init__(f"window {window} cannot be computed from {name_some(partitions) or 'no partition'}: {reason}")


def is_of_windows(error: Exception) -> bool:
    """Return whether windows failed by their own rows or query, and not by a lost race or a store that is away.

    Damaged files may be away for ever, and are so for these windows alone.
    """
    return isinstance(error, DamagedFiles) or not isinstance(error, Conflict | Fenced | Unavailable)


class Tries:
    """Windows that one run has computed, and windows that failed.

    `write` computes and writes some windows, or raises and has written nothing. `blame` returns the failure of one
    window. `suspect` returns the windows that need a partition of a failed window, each with its failure.
    """

    def __init__(
        self,
        write: Callable[[Sequence[Window]], None],
        blame: Callable[[Window, Exception], WindowFailed],
        suspect: Callable[[Window, WindowFailed, Sequence[Window]], Mapping[Window, WindowFailed]],
    ) -> None:
        self._write = write
        self._blame = blame
        self._suspect = suspect
        self.done: set[Window] = set()
        self.failed: dict[Window, WindowFailed] = {}
        self.untried: dict[Window, WindowFailed] = {}
        """Windows that share partitions with a failed window, and were not tried."""

    def compute(self, windows: Sequence[Window]) -> int:
        """Compute `windows` in their order; how many, from the first on, are done, failed or taken to fail.

        All of them, unless too many fail that share no partition.
        """
        most = len(self.failed) + MOST_FAILING
        suspects: dict[Window, WindowFailed] = {}
        left = self._search(windows, most, suspects)
        reached = windows.index(left[0]) if left else len(windows)
        # The furthest from the one that failed first: the partition that is the cause is the less likely among theirs.
        doubtful = [window for window in reversed(windows[:reached]) if window in suspects]
        for window in self._search(doubtful, most):
            self.untried[window] = suspects[window]
        return reached

    def _search(
        self, windows: Sequence[Window], most: int, suspects: dict[Window, WindowFailed] | None = None
    ) -> list[Window]:
        """Try `windows` until so many have failed; those that are left. `suspects` takes up what is not tried."""
        groups = [list(windows)]
        while (groups := [group for group in groups if group]) and len(self.failed) < most:
            first, *groups = groups
            error = self._try(first)
            if error is None:
                self.done.update(first)
            elif len(first) > 1:
                groups = [*halve(first), *groups]
            else:
                self.failed[first[0]] = failed = self._blame(first[0], error)
                if suspects is not None:
                    suspects |= self._suspect(first[0], failed, [window for group in groups for window in group])
                    groups = [[window for window in group if window not in suspects] for group in groups]
        return [window for group in groups for window in group]

    def find_sound(self, windows: Sequence[Window]) -> bool:
        """Return whether one of `windows` can be computed. A few of them are tried, each alone.

        Call this when all other windows have failed. If a window can be computed, the query is right and the failures
        are the windows' own.
        """
        step = -(-len(windows) // _SAMPLES) or 1
        return any(self._try([window]) is None for window in windows[::-step])

    def _try(self, windows: Sequence[Window]) -> Exception | None:
        try:
            self._write(windows)
        except Exception as error:  # whatever Spark raises, or a function of the user's
            if not is_of_windows(error):
                raise
            return error
        return None
