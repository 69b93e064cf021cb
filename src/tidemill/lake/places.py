"""The places of data sets and archives: a folder is made when it is declared, and never again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.catalog.db import Catalog, Db
from tidemill.lake.datasets import list_datasets
from tidemill.storage.locations import is_object_store, open_files
from tidemill.world import World


def prepare_locations(catalog: Catalog, world: World, locations: Iterable[str]) -> None:
    """Make the locations that are new to the catalog, and prove that each one can be written.

    A location that the catalog has is not made again, nor is a folder above one: where it is missing, a disk is not
    mounted, and files would come into the empty place of the mount. Raises `StorageUnavailable` then, and `BadLocation`
    for what cannot be written. Cost: a read of the data sets.
    """
    known = catalog.read(_read_known)
    for location in locations:
        files = open_files(location, world)
        for folder in _with_folders_above(files.url):
            if folder in known:
                open_files(folder, world).check_location()
                break
        files.prepare(again=files.url in known)


def _read_known(db: Db) -> set[str]:
    """Return the locations and archives of all data sets, and the folders above them."""
    places = {place for dataset in list_datasets(db) for place in (dataset.location, dataset.archive) if place}
    return {folder for place in places for folder in _with_folders_above(place)}


def _with_folders_above(url: str) -> Iterator[str]:
    """Give a URL, and those of the folders above it, but for the root of all; a bucket has no folders."""
    yield url
    while not is_object_store(url) and (url := url.rpartition("/")[0]).startswith("file:///"):
        yield url
