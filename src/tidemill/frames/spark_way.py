"""The way of Spark to the files of a location: directly, or by copies of a bucket's files on this machine.

Spark reads and writes `s3a://` where its JVM has Hadoop's S3A, which PySpark comes without. Else a Spark on this
machine works on copies in a folder of its own. The same code of Spark reads and writes them, so plans, pruned columns
and errors are the same. A Spark on other machines cannot see copies, and needs S3A.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urlsplit

from tidemill.config import SHARED, is_local_master
from tidemill.errors import NotOnThisNode
from tidemill.frames.jvm import jvm_of
from tidemill.shapes.manifest import list_written
from tidemill.storage.file_names import COPIES
from tidemill.storage.files import FileChanged, Files, FileStatus, StorageUnavailable, find_file, for_each
from tidemill.storage.locations import is_object_store, open_files, path_for_readers, path_for_spark
from tidemill.storage.s3 import settings_for_hadoop
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SENT_AT_ONCE: Final = 4
"""Files that are sent at one time: each may need 64 MiB of memory."""
_TRIES: Final = 3
"""A file that is written again while it is copied is copied again, so many times."""
_S3A: Final[dict[str, bool]] = {}
"""True for each application of Spark with a JVM that has the class for `s3a://`."""
_GIVEN: Final[dict[tuple[str, str], dict[str, str]]] = {}
"""The settings of S3A that an application of Spark has for a bucket."""
_FETCHING: Final = Lock()
"""Threads of one program may read the same files: a copy is made by one of them."""
_ETAGS: Final[dict[Path, dict[str, str]]] = {}
"""The etag of each original of which there is a copy, by the folder of the copies."""


class NoWayToBucket(NotOnThisNode):
    """A Spark on other machines is to read or write a bucket, and its JVM has no S3A."""

    code = "bucket_out_of_reach"

    def __init__(self, location: str, master: str, hadoop: str) -> None:
        self.location = location
        self.master = master
        super().__init__(
            f"Spark on {master} cannot reach {location}: its JVM has no class for s3a://",
            f'add `"spark.jars.packages" = "org.apache.hadoop:hadoop-aws:{hadoop}"` to [spark.conf]',
        )


class FolderNotShared(NotOnThisNode):
    """A Spark on other machines is to read or write a folder that they may not have."""

    code = "folder_not_shared"

    def __init__(self, location: str, master: str) -> None:
        self.location = location
        self.master = master
        super().__init__(
            f"Spark on {master} may not have the folder {location} on all its nodes",
            "use a bucket; or, if all nodes have the folder under the same path, set shared = true beside the master "
            "in tidemill.toml",
        )


class SparkWay(Protocol):
    """The way of one Spark session to the files of one location."""

    @property
    def root(self) -> str:
        """The location as Spark takes it."""

    @property
    def files(self) -> Files:
        """The files that Spark reads and writes."""

    def prepare(self) -> None:
        """Have a place into which Spark can write. `BadLocation`, `StorageUnavailable`."""

    def fetch(self, names: Iterable[str]) -> None:
        """Have these files where Spark reads them. One that is missing is missing there too."""

    def store(self, directory: str, written: Sequence[FileStatus]) -> list[FileStatus]:
        """Have what Spark has written below `directory` in the location, and return it as it is there."""


def find_way(world: World, spark: SparkSession, files: Files) -> SparkWay:
    """Return the way of a session to these files. `NotOnThisNode` where there is none, `BadLocation`."""
    context = spark.sparkContext
    if not is_object_store(files.url):
        if not is_local_master(str(context.master)) and context.getConf().get(SHARED) != "true":
            raise FolderNotShared(files.url, str(context.master))
        return _Directly(path_for_spark(files.url), files)
    if _has_s3a(spark):
        _give_settings(spark, files.url, settings_for_hadoop(files.url, world))
        return _Directly(path_for_spark(files.url), files)
    if not is_local_master(str(context.master)):
        hadoop = jvm_of(spark).org.apache.hadoop.util.VersionInfo.getVersion()
        raise NoWayToBucket(files.url, str(context.master), hadoop)
    folder = _copies() / path_for_readers(files.url).replace("://", "/")
    return _ByCopies(files, open_files(folder, world), _ETAGS.setdefault(folder, {}))


def _give_settings(spark: SparkSession, location: str, settings: dict[str, str]) -> None:
    """Have S3A reach a bucket by these settings, from the next read or write on.

    Not by the configuration of Spark, which starts its JVM with the values as arguments. Hadoop keeps a client for each
    bucket: new keys need a new client.
    """
    bucket = urlsplit(location).netloc
    known = _GIVEN.get((spark.sparkContext.applicationId, bucket), {})
    if known == settings:
        return
    jvm, hadoop = jvm_of(spark), spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  # PySpark has no other way
    for name in known.keys() - settings.keys():
        hadoop.unset(name)
    for name, value in settings.items():
        hadoop.set(name, value)
    if known:
        jvm.org.apache.hadoop.fs.FileSystem.get(jvm.java.net.URI(f"s3a://{bucket}/"), hadoop).close()
    _GIVEN[spark.sparkContext.applicationId, bucket] = settings


def forget_copies(world: World) -> None:
    """Delete all copies of this process; no data frame reads them any more."""
    if _ETAGS:
        world.disk.remove(_copies())
        _ETAGS.clear()


def _copies() -> Path:
    from pyspark import SparkFiles

    # Spark deletes this folder when it stops.
    return Path(SparkFiles.getRootDirectory()) / COPIES


@dataclass(frozen=True, slots=True)
class _Directly:
    root: str
    files: Files

    def prepare(self) -> None:
        """See `SparkWay.prepare`. Of a bucket the write itself says what is wrong.

        A folder was made when it was declared. To make it here would put files into the empty place of a mount that is
        away, where no other node finds them.
        """
        if not is_object_store(self.files.url):
            self.files.check_location()

    def fetch(self, names: Iterable[str]) -> None:
        """See `SparkWay.fetch`."""

    def store(self, directory: str, written: Sequence[FileStatus]) -> list[FileStatus]:
        """See `SparkWay.store`."""
        del directory
        return list(written)


@dataclass(frozen=True, slots=True)
class _ByCopies:
    origin: Files
    files: Files
    """The copies."""
    etags: dict[str, str] = field(repr=False)
    """The etag of each original of which there is a copy."""

    @property
    def root(self) -> str:
        """See `SparkWay.root`."""
        return path_for_spark(self.files.url)

    def prepare(self) -> None:
        """See `SparkWay.prepare`."""
        self.files.prepare()

    def fetch(self, names: Iterable[str]) -> None:
        """See `SparkWay.fetch`."""
        self.files.prepare()
        with _FETCHING:
            for_each(self.origin, self._fetch, list(dict.fromkeys(names)))

    def _fetch(self, name: str) -> None:
        for _ in range(_TRIES):
            status = find_file(self.origin, name)
            if status is not None and self.etags.get(name) == status.etag:
                return
            self.etags.pop(name, None)
            self.files.delete(name)
            if status is None:
                return
            try:
                self.files.copy_from(self.origin, name, status.etag, name)
            except FileChanged:
                continue
            self.etags[name] = status.etag
            return
        raise StorageUnavailable(self.origin.url, name, "it is written again and again")

    def store(self, directory: str, written: Sequence[FileStatus]) -> list[FileStatus]:
        """See `SparkWay.store`."""
        with ThreadPoolExecutor(_SENT_AT_ONCE) as pool:
            for _ in pool.map(lambda one: self.origin.copy_from(self.files, one.name, one.etag, one.name), written):
                pass
        stored = list_written(self.origin, directory)
        self.etags.update((one.name, one.etag) for one in stored)
        return stored


def _has_s3a(spark: SparkSession) -> bool:
    """Return whether the JVM has the class for `s3a://`: asked once."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    application = spark.sparkContext.applicationId
    if application not in _S3A:
        hadoop = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001  # PySpark has no other way
        try:
            jvm_of(spark).org.apache.hadoop.fs.FileSystem.getFileSystemClass("s3a", hadoop)
            _S3A[application] = True
        except Py4JJavaError:
            _S3A[application] = False
    return _S3A[application]
