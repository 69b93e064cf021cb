"""Reads of file sets by one attempt, recorded so that the commit can check that the content was as published.

Spark reads when an action comes, after the files were checked; and a program may read for hours. So the files are
checked once more before the commit: a file that is the same before and after was the same meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from tidemill.lake.fileset.fileset import Change, Fileset, Partition, check_partitions
from tidemill.names import DatasetId
from tidemill.shapes.formats import blame, reason
from tidemill.shapes.manifest import DamagedFiles, DataFile
from tidemill.storage.files import Files, checksum
from tidemill.storage.locations import open_files, path_for_readers
from tidemill.world import World


class ReadChanges:
    """The changes of partitions that an attempt has read."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read: dict[tuple[DatasetId, str, str], tuple[Fileset, Change]] = {}

    def add(self, fileset: Fileset, partitions: Iterable[Partition]) -> None:
        """Remember that these were given to the program."""
        for partition in partitions:
            for change in (one for one in partition.changes if one.manifest.files):
                self._read[fileset.dataset_id, change.location, change.partition_key] = fileset, change

    def forget(self, dataset_ids: AbstractSet[DatasetId]) -> None:
        """Forget what was read of some file sets, of which nothing counts in the outputs of the attempt."""
        self._read = {place: one for place, one in self._read.items() if place[0] not in dataset_ids}

    def verify(self) -> None:
        """Raise `DamagedFiles` if a file is not what was published; call it when the program has read all it wants.

        Before the run's outputs are prepared, which removes what the run itself wrote, read and replaced. Cost: a stat
        a file.
        """
        read: dict[DatasetId, tuple[Fileset, list[Partition]]] = {}
        for fileset, change in self._read.values():
            _, partitions = read.setdefault(fileset.dataset_id, (fileset, []))
            partitions.append(Partition(change.partition_key, (change,)))
        for fileset, partitions in read.values():
            check_partitions(self._world, fileset, partitions)

    def blame(self, error: str) -> DamagedFiles | None:
        """The damage that a failure comes from, given the whole text of the error with its causes; None for none.

        A file that the error says it could not read is compared as a whole: a disk that forgets changes no etag.
        """
        read = [(fileset, change, file) for fileset, change in self._read.values() for file in change.manifest.files]
        named = blame(error, read, lambda one: path_for_readers(one[0].dataset.location, _name(one[1], one[2])))
        if named is not None and self._is_other(*named):
            fileset, change, file = named
            why = f"{_name(change, file)} cannot be read: {reason(error)}"
            return DamagedFiles(fileset.qualified_name, fileset.show(change.partition_key), [why])
        try:
            self.verify()
        except DamagedFiles as damage:
            return damage
        return None

    def _is_other(self, fileset: Fileset, change: Change, file: DataFile) -> bool:
        """Return whether a file exists with the right size and other content. True if the file has no checksum."""
        files, name = self._files(fileset), _name(change, file)
        status = files.stat(name)
        if status is None or status.bytes != file.bytes:
            return False  # `verify` says more about it than Spark does
        try:
            return not file.checksum or checksum(files, name, file.checksum) != file.checksum
        except FileNotFoundError:
            return False

    def _files(self, fileset: Fileset) -> Files:
        return open_files(fileset.dataset.location, self._world)


def _name(change: Change, file: DataFile) -> str:
    return f"{change.location}/{file.name}"
