"""Locations by their path or URL: which store opens one, and how other readers name it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from tidemill.storage.file_names import CONTROL, COPIES
from tidemill.storage.files import BadLocation, Files
from tidemill.storage.folder import LocalFiles
from tidemill.storage.s3 import SCHEME, open_bucket
from tidemill.world import World


def open_files(location: str | Path, world: World, root: str | None = None) -> Files:
    """Give the files of a folder, named by its path or a `file:` URL, or of a bucket (`s3:`). Touches nothing yet.

    `root` is the identity (`Files.check_location`) that the folder had when files were in it; None if not known.
    """
    if is_object_store(str(location)):
        return open_bucket(str(location), world)
    return LocalFiles(_folder(str(location)).absolute(), world, root)


def resolved(url: str) -> str:
    """The URL of the same location with all links in it resolved: what lies in one place begins with one URL."""
    if is_object_store(url):
        return url.rstrip("/")
    return _folder(url).resolve().as_uri()


def path_for_readers(location: str, name: str = "") -> str:
    """The path or URL by which other readers find a file of a location: in a folder the plain path, nothing encoded."""
    if is_object_store(location):
        return unquote(location.rstrip("/")) + (f"/{name}" if name else "")
    return str(_folder(location) / name)


def file_of(url: str, world: World) -> tuple[Files, str]:
    """Open the folder or prefix of a file of this path or URL, and return it with the name of the file in it."""
    location, _, name = url.rpartition("/")
    return open_files(location, world), name


def file_at(path: str, world: World) -> tuple[Files, str]:
    """Open the folder or prefix of a file of `path_for_readers`, and return it with the name of the file in it."""
    location, _, name = path.rpartition("/")
    return open_files(quote(location, safe="/:") if is_object_store(location) else location, world), name


SPARK_PATHS: Final = (("^file:/+", "/"), (f"^/.*?/{re.escape(COPIES)}/s3/", "s3://"), ("^s3a://", "s3://"))
"""Patterns, and what takes their place, that make a path of Spark one of `path_for_readers`, one after the other. They
are regular expressions of Java too."""


def path_for_spark(location: str, name: str = "") -> str:
    """The path of a location, or of a file in it, as Spark takes it."""
    # Hadoop takes a path as it stands: in a URL it would look for a folder with `%20` in its name.
    if is_object_store(location):
        return f"s3a{path_for_readers(location, name).removeprefix(SCHEME)}"
    return f"file://{path_for_readers(location, name)}"


def local_folder(files: Files) -> Path | None:
    """Return the folder in which these files lie on this machine; None for a store that is no folder.

    Only for a caller that can do nothing with another store: a watcher of events, a test that lands files.
    """
    return files.folder if isinstance(files, LocalFiles) else None


def is_object_store(location: str) -> bool:
    """Return whether a location lies in an object store, and not in a folder."""
    return location.startswith(f"{SCHEME}://")


def _folder(location: str) -> Path:
    scheme = urlsplit(location).scheme if "://" in location else ""
    if scheme not in {"", "file"}:
        raise BadLocation(location, f"has the scheme {scheme!r}: folders ('file') and buckets ('s3') can be opened")
    folder = unquote(urlsplit(location).path) if scheme else location
    if not folder or CONTROL.search(folder):
        raise BadLocation(location, "is empty or has control characters")
    return Path(folder)
