"""Backups: all of a catalog in one file, as one moment showed it, which either database can be restored from.

The file is compressed JSON lines: a head, for each table its name and columns and then its rows, and at the end how
many lines there are and a hash over them. It is put in its place in one step: what lacks its end is no backup.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final, cast

from tidemill.catalog.db import Catalog, Table
from tidemill.catalog.migrate import read_version
from tidemill.catalog.named import Row, Stored
from tidemill.catalog.records import to_json
from tidemill.errors import UserError
from tidemill.json_specs import read_plain
from tidemill.storage.files import find_file, read_exactly
from tidemill.storage.locations import file_of, is_object_store
from tidemill.world import World

_FORMAT: Final = 1
_PLAIN: Final = re.compile(r"[a-z][a-z0-9_]*")
_GZIP: Final = 31  # zlib's word for a gzip head and tail around it


class BadBackup(UserError):
    """A file that is no backup, or not a whole one."""

    code = "bad_backup"
    hint = "name a whole file that `tidemill catalog backup` has made"

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"{path} is no backup that can be restored: {why}")


@dataclass(frozen=True, slots=True)
class Backup:
    """The head of a backup made at `at`, of the life `incarnation`, whose clock was at `clock`."""

    at: datetime
    schema_version: int
    dialect: str
    incarnation: str
    clock: int


@dataclass(frozen=True, slots=True)
class Written:
    """A backup that was written."""

    path: str
    bytes: int
    tables: int
    rows: int
    clock: int


def write_backup(catalog: Catalog, target: str | Path) -> Written:
    """Copy the catalog into the file `target`, which is replaced at the end; work goes on meanwhile.

    In a bucket (`s3:`) the name must be new: `FileExists`. Cost: all of the catalog is read once, in one read-only
    transaction.
    """
    counted = {"tables": 0, "rows": 0}
    # Read first: a clock that is behind its rows would be raised by the restore, one ahead does no harm.
    head = Backup(
        catalog.read(lambda db: db.now()),
        read_version(catalog),
        catalog.dialect,
        catalog.incarnation,
        catalog.write(lambda db: db.tick()),
    )

    def lines() -> Iterator[str]:
        yield to_json({"tidemill_backup": _FORMAT, **asdict(head)})
        for table in catalog.dump():
            counted["tables"] += 1
            catalog.world.mark("backup.in_the_middle")
            yield json.dumps({"table": table.name, "columns": table.columns})
            for row in table.rows:
                counted["rows"] += 1
                yield json.dumps([_packed(value) for value in row], ensure_ascii=False, separators=(",", ":"))

    size = _write(catalog.world, str(target), _compressed(_sealed(lines())))
    return Written(str(target), size, counted["tables"], counted["rows"], head.clock)


def _write(world: World, target: str, chunks: Iterator[bytes]) -> int:
    """Write a file on this machine or in a bucket, whole or not at all; its bytes."""
    if not is_object_store(target):
        world.disk.write_chunks(Path(target), chunks)
        return world.disk.size(Path(target))
    files, name = file_of(target, world)
    files.put_new(name, chunks)
    status = find_file(files, name)
    return 0 if status is None else status.bytes


def _read(world: World, path: str) -> Iterator[bytes]:
    """Read a file on this machine or in a bucket, piece by piece; `FileNotFoundError`."""
    if not is_object_store(path):
        yield from world.disk.read_chunks(Path(path))
        return
    files, name = file_of(path, world)
    status = find_file(files, name)
    if status is None:
        raise FileNotFoundError(path)
    yield from read_exactly(files, name, status.etag)


def _sealed(lines: Iterable[str]) -> Iterator[bytes]:
    """The lines, and a last one that tells whether all are there."""
    digest, count = hashlib.sha256(), 0
    for line in lines:
        content = line.encode() + b"\n"
        digest.update(content)
        count += 1
        yield content
    yield json.dumps({"lines": count, "sha256": digest.hexdigest()}).encode() + b"\n"


def _compressed(pieces: Iterable[bytes]) -> Iterator[bytes]:
    packer = zlib.compressobj(level=1, wbits=_GZIP)
    for piece in pieces:
        if packed := packer.compress(piece):
            yield packed
    yield packer.flush()


def _packed(value: Stored) -> object:
    return {"base64": base64.b64encode(value).decode()} if isinstance(value, bytes) else value


def _unpacked(value: object) -> Stored:
    if isinstance(value, dict):
        return base64.b64decode(value["base64"])
    return cast("Stored", value)


def check_backup(world: World, path: str | Path) -> Backup:
    """Read a backup from end to end, and give its head; `BadBackup` unless it is whole."""
    digest, count = hashlib.sha256(), 0
    head: Backup | None = None
    last: Any = None
    for line in _lines(world, path):
        if last is not None:
            digest.update(last + b"\n")
            count += 1
            head = head or _head(path, last)
        last = line
    try:
        end = json.loads(last or b"{}")
    except ValueError:
        end = {}
    if head is None or not isinstance(end, dict) or end != {"lines": count, "sha256": digest.hexdigest()}:
        raise BadBackup(str(path), "its end is missing, or it was changed; take another one")
    return head


def read_backup(world: World, path: str | Path) -> Iterator[Table]:
    """The tables of a backup that was checked, each to be read before the next is asked for."""
    lines = (json.loads(line) for line in _lines(world, path))
    next(lines)
    line = next(lines)
    while "table" in line:
        name, columns = str(line["table"]), tuple(map(str, line["columns"]))
        if not all(_PLAIN.fullmatch(text) for text in (name, *columns)):
            raise BadBackup(str(path), f"it names a table {name!r} with columns {columns}")
        rest: list[Any] = []
        yield Table(name, columns, _rows(lines, rest))
        line = rest[0]


def _rows(lines: Iterator[Any], rest: list[Any]) -> Iterator[Row]:
    for line in lines:
        if not isinstance(line, list):
            rest.append(line)
            return
        yield tuple(map(_unpacked, line))


def _head(path: str | Path, line: bytes) -> Backup:
    try:
        fields = json.loads(line)
        version = fields.pop("tidemill_backup")
    except (ValueError, KeyError, AttributeError, TypeError):
        raise BadBackup(str(path), "it does not begin like one; `tidemill catalog backup` makes them") from None
    if version != _FORMAT:
        raise BadBackup(str(path), f"it has the format {version}, this program knows {_FORMAT}: upgrade tidemill")
    return read_plain(Backup, fields)


def _lines(world: World, path: str | Path) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(wbits=_GZIP)
    left = b""
    try:
        for chunk in _read(world, str(path)):
            *whole, left = (left + unpacker.decompress(chunk)).split(b"\n")
            yield from whole
    except zlib.error:
        raise BadBackup(str(path), "it is damaged, or was not made by `tidemill catalog backup`") from None
    except IsADirectoryError:
        raise BadBackup(str(path), "it is a folder") from None
    except FileNotFoundError:
        raise BadBackup(str(path), "there is no such file") from None
    if left or not unpacker.eof:
        raise BadBackup(str(path), "its end is missing; take another one")
