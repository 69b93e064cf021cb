"""`tidemill up` as a child of the demo: it ends when its parent says `stop`, or dies."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from typing import Final

from tidemill.cli.main import main
from tidemill.processes import live_with_parent

STOP: Final = "stop"
UI: Final = "--ui"


def _obey(lines: Iterator[str], thread: int) -> None:
    for line in lines:
        if line == STOP:
            # To the main thread: it waits for nothing but a signal.
            signal.pthread_kill(thread, signal.SIGTERM)


if __name__ == "__main__":
    main_thread = threading.get_ident()
    threading.Thread(target=_obey, args=(live_with_parent(), main_thread), daemon=True).start()
    given = [word for word in sys.argv[1:] if word != UI]
    main([*given, "up", *([] if UI in sys.argv else ["--no-server"])])
