"""Hints that something has changed in local folders, from events of the file system (inotify and its like).

A hint names a folder that may have changed. The receiver lists the folder. So events may be lost, doubled, out of
order, or missing (too many watches, a network disk): the folder is then listed when a listing is due.
"""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, RLock
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from tidemill.mounts import file_systems_of, reports_all
from tidemill.storage.files import Files
from tidemill.storage.locations import local_folder

if TYPE_CHECKING:
    from watchdog.events import FileSystemEvent
    from watchdog.observers.api import BaseObserver, ObservedWatch

_K = TypeVar("_K", bound=Hashable)
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Watch(Generic[_K]):
    keys: set[_K]
    held: int
    """A descriptor of the folder. While it is open, no other folder can have the same inode."""
    watch: ObservedWatch


class FolderHints(Generic[_K]):
    """Watches folders, each for one key or more, and keeps the keys of those where files came; threads of its own.

    `find_file_systems` finds the kinds of the file systems that have a folder and what is in it.
    """

    def __init__(self, find_file_systems: Callable[[Path], Iterable[str]] = file_systems_of) -> None:
        self._find_file_systems = find_file_systems
        self.wake: Callable[[], None] = lambda: None
        """Called from a thread of its own when there is a hint."""
        self._observer: BaseObserver | None = None
        self._watches: dict[Path, _Watch[_K]] = {}
        self._folders: dict[_K, Path] = {}
        self._refused: set[Path] = set()
        self._hinted: set[_K] = set()
        self._lock = Lock()
        self._changing = RLock()
        """Held while folders begin or end to be watched. No event waits for it."""
        self._closed = False

    def watch(self, key: _K, files: Files) -> bool:
        """Watch these files, if a folder holds them, and return whether each change gives a hint.

        Call it before each listing. A folder that is missing, or was made again, is watched from the next call on. On a
        network file system only changes of this machine give hints.
        """
        with self._changing:
            folder = self._watched_folder(key, files)
        try:
            return folder is not None and all(map(reports_all, self._find_file_systems(folder)))
        except OSError:
            return False

    def unwatch(self, key: _K) -> None:
        """Give no more hints for a key."""
        with self._changing:
            folder = self._folders.pop(key, None)
            known = None if folder is None else self._watches.get(folder)
            with self._lock:
                self._hinted.discard(key)
                if known is not None:
                    known.keys.discard(key)
            if folder is not None and known is not None and not known.keys:
                self._end(folder)

    def take(self) -> set[_K]:
        """The keys of the folders where something came since the last call."""
        with self._lock:
            taken, self._hinted = self._hinted, set()
        return taken

    def close(self) -> None:
        """End the threads. Afterwards no folder is watched, and no waiter is woken."""
        with self._lock:
            self._closed = True
        with self._changing:
            if self._observer is not None:
                self._observer.stop()
                self._observer.join()
                self._observer = None
            while self._watches:
                os.close(self._watches.popitem()[1].held)

    def _watched_folder(self, key: _K, files: Files) -> Path | None:
        """Watch the folder of these files, if there is one, and return it."""
        folder = local_folder(files)
        if folder != self._folders.get(key):
            self.unwatch(key)
        if folder is None or self._closed:
            return None
        known = self._watches.get(folder)
        if known is None or not _is_same(folder, known.held):
            keys = set() if known is None else self._end(folder)
            with contextlib.suppress(OSError):  # no folder is there, or none that may be read
                self._begin(folder, keys, os.open(folder, os.O_RDONLY | os.O_DIRECTORY))  # noqa: TID251  # files are this room's business
            known = self._watches.get(folder)
        if known is None:
            return None
        with self._lock:
            known.keys.add(key)
        self._folders[key] = folder
        return folder

    def _begin(self, folder: Path, keys: set[_K], held: int) -> None:
        from watchdog.events import (
            DirCreatedEvent,
            DirMovedEvent,
            FileClosedEvent,
            FileCreatedEvent,
            FileMovedEvent,
            FileSystemEventHandler,
        )

        hints = self

        class _Handler(FileSystemEventHandler):
            def on_any_event(self, event: FileSystemEvent) -> None:  # noqa: ARG002  # what came is for the listing
                hints._hint(keys)  # a part of it

        # No events of reading: our own listings and checks would call for the next one.
        kinds = [FileCreatedEvent, FileClosedEvent, FileMovedEvent, DirCreatedEvent, DirMovedEvent]
        try:
            watch = self._started().schedule(_Handler(), str(folder), recursive=True, event_filter=kinds)
        except OSError as error:
            os.close(held)
            if folder not in self._refused:
                _log.warning("no events of %s, it is listed when its time comes: %s", folder, error)
            self._refused.add(folder)
            return
        self._watches[folder] = _Watch(keys, held, watch)

    def _end(self, folder: Path) -> set[_K]:
        """Watch a folder no more, and return the keys for which it was watched."""
        known = self._watches.pop(folder)
        with contextlib.suppress(KeyError, OSError):  # it went with its folder
            self._started().unschedule(known.watch)
        os.close(known.held)
        return known.keys

    def _hint(self, keys: set[_K]) -> None:
        with self._lock:
            self._hinted |= keys
            if not self._closed:
                self.wake()

    def _started(self) -> BaseObserver:
        if self._observer is None:
            from watchdog.observers import Observer

            self._observer = Observer()
            self._observer.start()
        return self._observer


def _is_same(folder: Path, held: int) -> bool:
    """Return whether the folder at this path is still the one of the descriptor."""
    try:
        return os.path.samestat(folder.stat(), os.fstat(held))
    except OSError:
        return False
