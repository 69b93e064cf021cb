"""What the roles of a process do when something other than time calls them."""

from __future__ import annotations

import threading
from datetime import timedelta

from tests.lake.test_inbox import make_mill
from tidemill.narration import Narrator
from tidemill.roles import Discoverer
from tidemill.storage.hints import FolderHints

PATIENCE_S = 20


def test_an_event_of_the_file_system_has_its_folder_listed_at_once(catalog_url, tmp_path):
    """A folder of a million files is listed seldom, and a new one in it is found at once all the same."""
    mill = make_mill(catalog_url, tmp_path / "raw", list_every=timedelta(hours=1))
    told: list[str] = []
    hints: FolderHints = FolderHints()
    discoverer = Discoverer(mill.catalog, Narrator(mill.catalog.world, told.append, as_json=False), hints)
    woken = threading.Event()
    hints.wake = woken.set
    discoverer.step()

    mill.land("a")
    assert woken.wait(PATIENCE_S)
    while not told:  # of several events the first may come before the file
        discoverer.step()
    mill.land(".hidden")
    nap = discoverer.step()
    hints.close()
    mill.catalog.close()

    assert len(told) == 1
    assert "+1 file 5 B" in told[0]
    assert nap > timedelta(seconds=1)
