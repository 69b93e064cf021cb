"""Bundles: the code of a deployment, kept by its content, and unpacked once on each node that runs it.

A bundle up to `MOST_IN_CATALOG` bytes lies in the catalog, a larger one below the site's data. Every attempt loads the
bundle that its program had when the attempt was taken; an edit of the app file changes nothing until it is deployed.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import stat
import zipfile
import zlib
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final, cast

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import load_sql
from tidemill.catalog.transactions import LONGEST_LIFE
from tidemill.errors import Conflict, Unavailable, UserError
from tidemill.lake.places import prepare_locations
from tidemill.run.records.programs import Program, code_digest
from tidemill.storage.locations import file_of, open_files
from tidemill.world import Disk, World

if TYPE_CHECKING:
    from tidemill.run.records.bundles_sql import Sql

SQL: Sql = load_sql(__file__)

_log = logging.getLogger(__name__)

MOST_IN_CATALOG: Final = 1_000_000
MOST_BYTES: Final = 64_000_000
"""The most bytes of the files of a bundle."""
_MOST_FILES: Final = 10_000
_MOST_NAME: Final = 1_000
_MOST_PART: Final = 255
_SHOWN: Final = 60
_ENCRYPTED: Final = 1
_FOLDER: Final = "bundles"
_DIGITS: Final = 16
_UPLOAD_WITHIN: Final = timedelta(hours=1)
"""The time that a deployment may take before the file of its bundle is deleted, and its commit refused."""
_STAMP: Final = (1980, 1, 1, 0, 0, 0)
"""The time of each file in the zip: the same code gives the same bytes."""


class UploadAbandoned(Conflict):
    """A deployment took so long that the janitor has given up the file of its bundle."""

    code = "upload_abandoned"

    def __init__(self, location: str) -> None:
        self.location = location
        super().__init__(f"the bundle {location} was not deployed in time and is deleted", "deploy again")


class BundleDeleted(Conflict):
    """The janitor deletes the bundle to which a deployment was to return."""

    code = "bundle_deleted"

    def __init__(self, digest: str) -> None:
        self.digest = digest
        super().__init__(
            f"the code {digest} was deleted meanwhile, since no kept deployment names it", "deploy it again"
        )


class BadBundle(UserError):
    """A packed bundle that came from outside and cannot be taken."""

    code = "bad_bundle"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the bundle is refused: {why}", "pack it with `tidemill --server URL deploy`")


class CodeUnavailable(Unavailable):
    """The code of a program cannot be loaded on this node: a file or library is missing here, or the bundle is."""

    code = "code_unavailable"

    def __init__(self, digest: str, node: str, why: str) -> None:
        self.digest = digest
        self.node = node
        self.why = why
        super().__init__(
            f"the deployed code {digest} cannot be loaded on {node}: {why}",
            "check what is installed there with `tidemill doctor`, or deploy again",
        )


def hash_of(content: bytes) -> str:
    """Return the hash of a file of a bundle."""
    return hashlib.sha256(content).hexdigest()


def digest_of(sums: Mapping[str, str]) -> str:
    """Return the name of the content whose files have these hashes, in order of name."""
    return hashlib.sha256(json.dumps(dict(sums)).encode()).hexdigest()[:_DIGITS]


@dataclass(frozen=True)
class Bundle:
    """Files of a project by their names below the folder of the app file, with `/` between the parts."""

    files: Mapping[str, bytes]

    @cached_property
    def sums(self) -> dict[str, str]:
        """The hash of each file, in order of name."""
        return {name: hash_of(self.files[name]) for name in sorted(self.files)}

    @cached_property
    def digest(self) -> str:
        """Names the content."""
        return digest_of(self.sums)

    def to_zip(self) -> bytes:
        """The files as one archive, the same bytes for the same files."""
        target = io.BytesIO()
        with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in self.sums:
                archive.writestr(zipfile.ZipInfo(name, _STAMP), self.files[name], zipfile.ZIP_DEFLATED)
        return target.getvalue()

    @classmethod
    def receive(cls, content: bytes) -> Bundle:
        """The files of an archive that came from outside; `BadBundle`.

        Refused are names outside the folder, links, encrypted or repeated files, and more than a bundle may hold. Cost:
        at most the bytes that a bundle may hold, whatever the archive says of itself.
        """
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                entries = archive.infolist()
                if len(entries) > _MOST_FILES:
                    raise BadBundle(f"it has {len(entries)} files, of at most {_MOST_FILES}")
                files: dict[str, bytes] = {}
                left = MOST_BYTES
                for entry in entries:
                    _check_entry(entry, files)
                    with archive.open(entry) as file:
                        files[entry.filename] = file.read(left + 1)
                    left -= len(files[entry.filename])
                    if left < 0:
                        raise BadBundle(f"its files are larger than {MOST_BYTES} bytes")
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError, OSError) as error:
            raise BadBundle(f"it is no zip archive that can be read ({error})") from None
        folders = {str(above) for name in files for above in PurePosixPath(name).parents}
        if clash := folders & files.keys():
            raise BadBundle(f"{min(clash)!r} is a file and a folder")
        return cls(files)

    @classmethod
    def from_zip(cls, content: bytes) -> Bundle:
        """The inverse of `to_zip`; `BadZipFile` for what is damaged."""
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                return cls({name: archive.read(name) for name in archive.namelist()})
        except (zlib.error, EOFError, ValueError, RuntimeError) as error:
            # A wrong byte may also change the method, a flag (encrypted) or the compressed data itself.
            raise zipfile.BadZipFile(str(error)) from error


def _check_entry(entry: zipfile.ZipInfo, known: Collection[str]) -> None:
    """Raise `BadBundle` for an entry of an archive that is no file below the folder of the app file."""
    name = entry.orig_filename
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise BadBundle(f"{name!r} is compressed by another method than deflate")
    parts = name.split("/")
    if name in known:
        raise BadBundle(f"{name!r} is there twice")
    lengths = [len(part.encode(errors="replace")) for part in parts]
    if max(lengths) > _MOST_PART or sum(lengths) > _MOST_NAME:
        raise BadBundle(f"the name {name[:_SHOWN]!r} is too long")
    if {"", ".", ".."} & set(parts) or "\\" in name or not name.isprintable():
        raise BadBundle(f"{name!r} is no name of a file below the folder of the app file")
    if stat.S_IFMT(entry.external_attr >> 16) not in {0, stat.S_IFREG}:  # 0: the packer says nothing
        raise BadBundle(f"{name!r} is a link or another special file")
    if entry.flag_bits & _ENCRYPTED:
        raise BadBundle(f"{name!r} is encrypted")


@dataclass(frozen=True, slots=True)
class AppCode:
    """The code of an attempt on this node: the app file as it was deployed, and the folder of its unpacked bundle.

    `folder` is empty for a program without a bundle, whose app file is read where it lies.
    """

    app_file: str
    digest: str
    folder: str = ""


@dataclass(frozen=True, slots=True)
class StoredBundle:
    """A bundle on its way into the catalog; a large one already lies at `location`, which only its upload names yet."""

    bundle: Bundle
    content: bytes | None = field(repr=False)
    location: str | None


def store_bundle(catalog: Catalog, data: str, bundle: Bundle) -> StoredBundle:
    """Write a bundle that is too large for the catalog below `data`; to be called before `put_bundle`.

    The catalog knows of the file before the file is there: `sweep_bundles` deletes the file if the caller dies.
    """
    world = catalog.world
    content = bundle.to_zip()
    if len(content) <= MOST_IN_CATALOG:
        return StoredBundle(bundle, content, None)
    files = open_files(f"{data.rstrip('/')}/_{_FOLDER}", world)
    # A name of its own: a janitor may be deleting the file of the same bundle at this moment.
    name = f"{bundle.digest}-{world.token(8)}.zip"
    location = f"{files.url}/{name}"
    catalog.write(lambda db: db.run(SQL.begin_upload, location=location))
    prepare_locations(catalog, world, [files.url])
    files.put(name, content)
    return StoredBundle(bundle, None, location)


def put_bundle(db: Db, stored: StoredBundle) -> str:
    """Add a bundle to the catalog, in the caller's transaction, unless the catalog has it; give its digest.

    Raises `UploadAbandoned` when the janitor deletes the file of the bundle.
    """
    db.run(
        SQL.put_bundle,
        digest=stored.bundle.digest,
        files=json.dumps(stored.bundle.sums),
        bytes=sum(map(len, stored.bundle.files.values())),
        content=stored.content,
        location=stored.location,
    )
    _end_upload(db, stored)
    return stored.bundle.digest


def keep_bundle(db: Db, digest: str) -> None:
    """Check, in the transaction of a deployment, that the catalog still has the bundle; `BundleDeleted`.

    The transaction has taken its tick before: a janitor that deletes the bundle has marked it, or sees its new use.
    """
    if not is_kept(db, digest):
        raise BundleDeleted(digest)


def is_kept(db: Db, digest: str) -> bool:
    """Return whether the catalog has the bundle, and does not delete it. The caller has taken a tick before."""
    return db.one(SQL.find_kept, digest=digest) is not None


def _end_upload(db: Db, stored: StoredBundle) -> None:
    """Forget the upload of a file that a bundle names now; refuse when the upload was abandoned."""
    if stored.location is not None:
        db.run(SQL.end_upload, location=stored.location)
        if db.one(SQL.find_abandoned, location=stored.location) is not None:
            raise UploadAbandoned(stored.location)


def delete_unused(catalog: Catalog, stored: StoredBundle) -> None:
    """Delete the file of a stored bundle that the catalog did not take: a deployment was refused, or had it already.

    Where the file that the catalog names is gone (the catalog was restored), the new file takes its place.
    """
    if stored.location is None:
        return
    digest, new = stored.bundle.digest, stored.location
    row = catalog.read(lambda db: db.one(SQL.find_bundle, digest=digest))
    old = None if row is None else row[1]
    if old == new:
        return
    if old is not None and not _exists(catalog.world, str(old)):

        def mend(db: Db) -> bool:
            mended = db.run(SQL.replace_file, digest=digest, old=old, new=new)
            _end_upload(db, stored)
            return bool(mended)

        if catalog.write(mend):
            return
    _delete(catalog.world, new)
    catalog.write(lambda db: db.run(SQL.forget_upload, location=new))


def find_sums(db: Db, digest: str) -> dict[str, str]:
    """The hash of each file of a bundle, by name; empty when the catalog has no such bundle."""
    row = db.one(SQL.find_files, digest=digest)
    return {} if row is None else json.loads(str(row[0]))


def find_code(catalog: Catalog, state: Path, program: Program, digest: str) -> AppCode:
    """The code of an attempt of `program`: its bundle, unpacked below the state folder unless it is there already.

    Raises `CodeUnavailable`, `CatalogUnavailable`; `OSError` for a program without a bundle.
    """
    if not digest:
        return AppCode(program.app_file, code_digest(catalog.world.disk, Path(program.app_file)))
    return AppCode(program.app_file, digest, str(unpack(catalog, state, digest)))


def unpack(catalog: Catalog, state: Path, digest: str) -> Path:
    """Return the folder of a bundle below the state folder, unpacked unless it is there already.

    Raises `CodeUnavailable`, `CatalogUnavailable`.
    """
    folder = state / _FOLDER / digest
    if not catalog.world.disk.exists(folder):
        try:
            _unpack(catalog, digest, folder)
        except OSError as error:
            # A full disk of this node is the fault of neither the run nor its input.
            why = f"it cannot be unpacked into {folder}: {error}"
            raise CodeUnavailable(digest, catalog.world.spawner.host(), why) from error
    return folder


def read_unpacked(disk: Disk, folder: Path) -> Bundle:
    """Read the bundle that was unpacked into a folder."""
    files: dict[str, bytes] = {}
    folders = [folder]
    while folders:
        for path in disk.list_folder(folders.pop()):
            if path.is_dir():
                folders.append(path)
            elif "__pycache__" not in path.parts:
                files[path.relative_to(folder).as_posix()] = disk.read_bytes(path)
    return Bundle(files)


def sweep_bundles(catalog: Catalog) -> None:
    """Delete the bundles that no program, no kept deployment and no attempt under way names.

    Delete also the files of uploads that no deployment has ended within an hour: the commit of a later one is refused.

    Cost: a look at the bundles that there are.
    """
    world = catalog.world
    if catalog.read(lambda db: db.all(SQL.find_unnamed)):
        catalog.write(_mark_leaving)
        world.mark("bundles.leaving")
    for digest, location in catalog.read(lambda db: db.all(SQL.list_leaving)):
        if location is not None:
            _delete(world, str(location))
            world.mark("bundles.deleted")
        catalog.write(lambda db: db.run(SQL.delete_bundle, digest=digest, location=location or ""))  # noqa: B023
    _sweep_uploads(catalog)


def sweep_unpacked(catalog: Catalog, state: Path) -> None:
    """Delete what is unpacked below `state`, on this machine, of bundles that the catalog has no more.

    Cost: a look at the bundles that there are.
    """
    world = catalog.world
    # The folder is listed before the catalog: a bundle that is deployed and unpacked in between stays.
    unpacked = list(world.disk.list_folder(state / _FOLDER))
    kept = {str(row[0]) for row in catalog.read(lambda db: db.all(SQL.list_digests))}
    for path in unpacked:
        if _digest_of(path) not in kept:
            try:
                _remove(world, path)
            except OSError as error:
                # Another process that shares the folder may be deleting it. The next sweep looks again.
                _log.warning("%s is not deleted: %s", path, error)


def _sweep_uploads(catalog: Catalog) -> None:
    """Delete the files of uploads that no deployment has ended, again and again for a day: their writers may live."""
    if not catalog.read(lambda db: db.all(SQL.find_late_uploads, within=_UPLOAD_WITHIN)):
        return
    catalog.write(lambda db: db.run(SQL.abandon_uploads, within=_UPLOAD_WITHIN))
    catalog.world.mark("bundles.abandoned")
    for (location,) in catalog.read(lambda db: db.all(SQL.list_abandoned)):
        _delete(catalog.world, str(location))
    catalog.write(lambda db: db.run(SQL.forget_abandoned, known=LONGEST_LIFE))


def _mark_leaving(db: Db) -> None:
    # A deployment that names one of the bundles again has committed before this tick, or sees the mark after it.
    db.tick()
    db.run(SQL.mark_leaving)


def _digest_of(path: Path) -> str:
    """The digest of a folder of a bundle; of a hidden one, it comes before a token."""
    return path.name.removeprefix(".").partition(".")[0]


def _remove(world: World, path: Path) -> None:
    """Delete the folder of a bundle. A kill in between leaves a hidden folder, which no attempt takes for the whole."""
    hidden = path
    if not path.name.startswith("."):
        hidden = path.with_name(f".{path.name}.{world.token(8)}")
        world.disk.move(path, hidden)
        world.mark("bundles.hidden")
    world.disk.remove(hidden)


def _unpack(catalog: Catalog, digest: str, folder: Path) -> None:
    """Unpack a bundle into `folder` in one step: another process sees nothing of it, or all."""
    world, disk = catalog.world, catalog.world.disk
    node = world.spawner.host()
    row = catalog.read(lambda db: db.one(SQL.find_bundle, digest=digest))
    if row is None:
        raise CodeUnavailable(digest, node, "the catalog has no such bundle any more")
    try:
        bundle = Bundle.from_zip(_read(world, row[1]) if row[0] is None else cast("bytes", row[0]))
    except (zipfile.BadZipFile, FileNotFoundError, Unavailable) as error:
        raise CodeUnavailable(digest, node, f"its bundle cannot be read: {error}") from error
    if bundle.digest != digest:
        raise CodeUnavailable(digest, node, f"its bundle is damaged: the content has the digest {bundle.digest}")
    begun = f".{digest}."
    temporary = folder.with_name(f"{begun}{world.token(8)}")
    try:
        for name, content in bundle.files.items():
            disk.write_bytes(temporary / name, content)
        world.mark("bundles.unpacked")
        disk.move(temporary, folder)
    except OSError:
        if not disk.exists(folder):  # another process was first: its folder is as good
            raise
    for path in disk.list_folder(folder.parent):
        if path.name.startswith(begun):
            with suppress(OSError):  # another process may be deleting it, too
                disk.remove(path)


def _exists(world: World, location: str) -> bool:
    files, name = file_of(location, world)
    return files.stat(name) is not None


def _delete(world: World, location: str) -> None:
    files, name = file_of(location, world)
    files.delete(name)


def _read(world: World, location: object) -> bytes:
    files, name = file_of(str(location), world)
    return files.read(name)
