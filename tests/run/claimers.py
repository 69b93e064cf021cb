"""Claimers of one inbox, in threads: each notes its claimed and its closed files.

`python -m tests.run.claimers [FILES] [CATALOG_URL]` makes so many files (100,000), which two claimers process.
"""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path

from tests.lake.test_inbox import make_mill
from tidemill.catalog.db import Catalog
from tidemill.lake.inbox.inbox import FileState, Inbox
from tidemill.run.step.outside_claims import get_latest_files, update_file_status


def work_off(catalog: Catalog, inbox: Inbox, *, claimers: int, limit: int) -> tuple[list[str], list[BaseException]]:
    """Have `claimers` claim and close until nothing waits: the names they were given, and what was raised."""
    given: list[str] = []
    failed: list[BaseException] = []

    def work() -> None:
        try:
            while (claim := get_latest_files(catalog, inbox, limit=limit)).files:
                given.extend(file.name for file in claim.files)
                update_file_status(catalog, claim.claim_id, None, FileState.SUCCESS)
        except BaseException as error:  # noqa: BLE001  # the caller looks at it
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(claimers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return given, failed


def main() -> None:
    """Play it and print what came of it."""
    files = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        url = sys.argv[2] if len(sys.argv) > 2 else f"sqlite:///{folder}/catalog.db"
        mill = make_mill(url, Path(folder) / "raw")
        for number in range(files):
            (mill.folder / f"f{number:06}").write_text("x\n")
        began = time.monotonic()
        found = len(mill.discover())
        middle = time.monotonic()
        given, failed = work_off(mill.catalog, mill.inbox, claimers=2, limit=10_000)
        ended = time.monotonic()
        twice = sum(count > 1 for count in Counter(given).values())
        print(f"{found} found in {middle - began:.1f} s, {len(given)} given, {twice} twice in {ended - middle:.1f} s")
        print("errors:", failed)
        mill.catalog.close()


if __name__ == "__main__":
    main()
