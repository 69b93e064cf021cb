"""Damaged published files: a run that reads such a file fails and names the partition, or reads the same rows.

`python -m tests.chaos.spark_damage [--flips 60] [--seed S]`. Its short form is tests/chaos/test_spark_damage.py.

Each damage is done in three ways. *Written*: as any program writes, so that the file has a new time. *In secret*: with
the old time restored. *Rotten*: in secret, and without Hadoop's checksum file, as on a disk that forgets, or after a
copy without hidden files. Each is done at three moments: before the run looks, between that look and Spark's read, and
between Spark's read and the commit. A read is `Run.read` with the driver's check.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from pyarrow import parquet

from tests.lake.conftest import Lake, make_lake
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import begin, commit
from tidemill.frames.spark import PINNED
from tidemill.frames.spark import read_partitions as read_frame
from tidemill.lake.fileset.fileset import WriteOp, find_schema, read_partitions
from tidemill.names import RunId
from tidemill.run.step.outputs import Outputs
from tidemill.run.step.reads import ReadChanges
from tidemill.shapes.manifest import DamagedFiles
from tidemill.world import World

CODECS = ("uncompressed", "snappy", "zstd", "gzip")
ROWS = 200
"""Rows of each of three partitions."""
HIT = 1
"""The hour whose partition is damaged."""


class How(StrEnum):
    """Way of a damage, by its signs outside the file."""

    WRITTEN = "written"
    SECRET = "in secret"
    ROTTEN = "rotten"


class When(StrEnum):
    """Moment of a damage in the run."""

    BEFORE = "before the run looks"
    PLANNED = "before Spark reads"
    READ = "before the commit"


class Outcome(StrEnum):
    """Outcome of a read."""

    NAMED = "named"
    UNNAMED = "not named"
    EQUAL = "equal rows"
    SILENT = "SILENT"


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is done to a file; `kind` is for the table."""

    kind: str
    do: Callable[[Path], object]

    def __str__(self) -> str:
        return self.kind


class Shelf:
    """A published file set with three partitions, of which one gets damaged and mended again and again."""

    def __init__(self, spark: Any, folder: Path, codec: str) -> None:
        self.spark = spark.newSession()
        self.spark.conf.set("spark.sql.parquet.compression.codec", codec)
        self.catalog = open_catalog(f"sqlite:///{folder / codec}.db", World())
        for name in (codec, f"{codec} other"):
            (folder / name).mkdir(parents=True)
        self.lake: Lake = make_lake(self.catalog, folder / codec)
        self.fileset = self.lake.lines
        self.publish(self.fileset.qualified_name, "text-")
        reader = self.lake.begin()
        self.parts = self.catalog.read(lambda db: read_partitions(db, self.fileset.dataset_id, reader))
        self.columns = self.catalog.read(lambda db: find_schema(db, self.fileset.dataset_id))
        root = Path(self.fileset.dataset.location.removeprefix("file://"))
        names = {self.lake.hour(part.partition_key): part.files[0][0] for part in self.parts}
        self.path, self.neighbour = root / names[HIT], root / names[HIT + 1]
        self.side_car = self.path.with_name(f".{self.path.name}.crc")
        self._content, self._stat, self._crc = self.path.read_bytes(), self.path.stat(), self.side_car.read_bytes()
        self.expected = self._look(self.read_frame(ReadChanges(self.catalog.world)))
        # Another content of the same size, as long as nothing is compressed.
        other = make_lake(self.catalog, folder / f"{codec} other", "other")
        self.publish("default.other", "TEXT-", other)
        (self.other,) = (folder / f"{codec} other").glob(f"*/*/hour={HIT}/*.parquet")

    def publish(self, name: str, text: str, lake: Lake | None = None) -> None:
        """Publish by the write path of a run."""
        fileset = (lake or self.lake).lines
        tx = begin(self.catalog, run_id=RunId(f"run_{name}"), epoch=1, writes=[fileset.dataset_id])
        rows = self.spark.range(0, 3 * ROWS, 1, 1).selectExpr(
            "id",
            f"concat('{text}', lpad(id, 4, '0')) AS text",
            "concat('kind ', id % 7) AS kind",
            "timestamp_millis(id * 1000) AS at",
            f"CAST(id DIV {ROWS} AS INT) AS hour",
        )
        outputs = Outputs(self.catalog, tx, {name: fileset})
        outputs.write(name, WriteOp.CREATE, rows)
        commit(self.catalog, tx, outputs.prepare())

    def close(self) -> None:
        """Close its catalog."""
        self.catalog.close()

    def read_frame(self, reads: ReadChanges) -> Any:
        """Read as `Run.read` does."""
        frame = read_frame(self.catalog.world, self.spark, self.fileset, self.parts, self.columns)
        reads.add(self.fileset, self.parts)
        return frame

    def _look(self, frame: Any) -> tuple[object, ...]:
        """All rows, and what Spark answers from statistics alone."""
        rows = sorted(tuple(row) for row in frame.collect())
        middle = frame.where(f"id >= {ROWS + ROWS // 2}").count()
        return rows, frame.count(), middle, frame.where("text IS NULL").count()

    def read(self, damage: Damage, how: How, when: When) -> Outcome:
        """Damage the file, read as a run does, and mend it."""
        reads = ReadChanges(self.catalog.world)
        try:
            if when is When.BEFORE:
                self._damage(damage, how)
            frame = self.read_frame(reads)
            if when is When.PLANNED:
                self._damage(damage, how)
            # What is seen before the commit does not depend on what Spark has read.
            seen = self.expected if when is When.READ else self._look(frame)
            if when is When.READ:
                self._damage(damage, how)
            reads.verify()
        except DamagedFiles as error:
            return self._named(error)
        except Exception as error:  # noqa: BLE001  # whatever Spark raises
            return self._named(reads.blame("".join(traceback.format_exception(error))))
        else:
            return Outcome.EQUAL if seen == self.expected else Outcome.SILENT
        finally:
            self._mend()

    def _named(self, damage: DamagedFiles | None) -> Outcome:
        right = damage is not None and damage.partition == f"hour={HIT}" and f"hour={HIT}" in str(damage)
        return Outcome.NAMED if right else Outcome.UNNAMED

    def _damage(self, damage: Damage, how: How) -> None:
        damage.do(self.path)
        if not self.path.exists():
            return
        if how is How.WRITTEN:
            while self.path.stat().st_mtime_ns == self._stat.st_mtime_ns:
                os.utime(self.path)
            return
        os.utime(self.path, ns=(self._stat.st_atime_ns, self._stat.st_mtime_ns))
        if how is How.ROTTEN:
            self.side_car.unlink(missing_ok=True)

    def _mend(self) -> None:
        if self.path.is_dir():
            self.path.rmdir()
        self.path.write_bytes(self._content)
        os.utime(self.path, ns=(self._stat.st_atime_ns, self._stat.st_mtime_ns))
        self.side_car.write_bytes(self._crc)

    def places(self) -> Mapping[str, Sequence[int]]:
        """The positions in the file, by what stands there."""
        content, size = self._content, len(self._content)
        footer = size - 8 - int.from_bytes(content[-8:-4], "little")
        found: dict[str, list[int]] = {"magic": [0, 1, 2, 3, *range(size - 4, size)]}
        found["length of the footer"] = list(range(size - 8, size - 4))
        found["footer"] = list(range(footer, size - 8))
        found["column name"] = [place for place in found["footer"] if content[place - 3 : place + 4].count(b"text")]
        found["statistics"] = [place for place in found["footer"] if b"text-" in content[place - 8 : place + 5]]
        for name in ("page header", "dictionary page", "data page"):
            found[name] = []
        for column in range(4):
            chunk = parquet.read_metadata(self.path).row_group(0).column(column)
            first = chunk.dictionary_page_offset or chunk.data_page_offset
            end = first + chunk.total_compressed_size
            found["data page"] += range((chunk.data_page_offset + end) // 2, end)
            found["page header"] += range(chunk.data_page_offset, chunk.data_page_offset + 15)
            if chunk.dictionary_page_offset:
                found["page header"] += range(first, first + 12)
                found["dictionary page"] += range(first + 20, chunk.data_page_offset)
        return {name: places for name, places in found.items() if places}

    def rewrites(self) -> Iterator[Damage]:
        """Yield damages of whole files, none of which can give equal rows."""
        size = len(self._content)
        if self.other.stat().st_size == size:
            yield Damage("other content, same size", lambda path: path.write_bytes(self.other.read_bytes()))
        yield Damage("a neighbour's content", lambda path: path.write_bytes(self.neighbour.read_bytes()))
        yield Damage("other size", lambda path: path.write_bytes(self._content + b"\0"))
        yield Damage("zeros", lambda path: path.write_bytes(bytes(size)))
        for left in (size - 1, size // 2, 0):
            yield Damage("cut", lambda path, left=left: os.truncate(path, left))
        yield Damage("gone", Path.unlink)
        yield Damage("a folder in its place", _make_folder)


def flip(place: int, bit: int) -> Damage:
    """Turn one bit."""

    def do(path: Path) -> None:
        with path.open("r+b") as file:
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 1 << bit]))

    return Damage(f"bit {bit} of byte {place}", do)


def touch(path: Path) -> None:
    """A new time, and nothing else."""
    os.utime(path)


def copy(path: Path) -> None:
    """The same content in another file, with its time: as after a move to another disk."""
    spare = path.with_name("spare")
    shutil.copy2(path, spare)
    spare.replace(path)


HARMLESS = (Damage("new time only", touch), Damage("copied", copy))


def _make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def flips(shelf: Shelf, chance: random.Random, most: int) -> Iterator[tuple[str, Damage]]:
    """`most` flips for each kind of place."""
    for name, places in shelf.places().items():
        for _ in range(most):
            yield name, flip(chance.choice(places), chance.randrange(8))


def check_all(shelf: Shelf, chance: random.Random, most: int) -> Iterator[tuple[str, str, How, When, Outcome]]:
    """Every damage in every way at every moment; `most` flips a kind of place where Spark has to read."""
    size = len(shelf.path.read_bytes())
    for place in range(size):
        damage = flip(place, chance.randrange(8))
        yield "any byte", str(damage), How.WRITTEN, When.BEFORE, shelf.read(damage, How.WRITTEN, When.BEFORE)
    for when in When:
        for damage in shelf.rewrites():
            yield damage.kind, str(damage), How.WRITTEN, when, shelf.read(damage, How.WRITTEN, when)
        for damage in HARMLESS:
            yield damage.kind, str(damage), How.WRITTEN, when, shelf.read(damage, How.WRITTEN, when)
    for name, damage in flips(shelf, chance, most):
        for how, when in ((How.WRITTEN, When.PLANNED), (How.SECRET, When.BEFORE), (How.ROTTEN, When.BEFORE)):
            yield name, str(damage), how, when, shelf.read(damage, how, when)


def is_wrong(kind: str, how: How, outcome: Outcome) -> bool:
    """Return whether a promise is broken: what was written is named in any case, what has rotted never misread."""
    if kind in {damage.kind for damage in HARMLESS}:
        return outcome is not Outcome.EQUAL
    if how is How.WRITTEN:
        return outcome is not Outcome.NAMED
    return outcome not in {Outcome.NAMED, Outcome.EQUAL}


def main() -> int:
    """Damage files of each codec and print what was seen; 1 if a promise was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.spark_damage", description=__doc__.splitlines()[0])
    parser.add_argument("--flips", type=int, default=60, help="of each kind of place, for each codec")
    parser.add_argument("--seed", default=date.today().isoformat(), help="default: today")  # noqa: DTZ011
    asked = parser.parse_args()
    import pyspark

    os.environ["PYSPARK_PYTHON"] = sys.executable
    quiet = {"spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.driver.host": "127.0.0.1"}
    session = pyspark.sql.SparkSession.builder.master("local[2]").config(map={**PINNED, **quiet}).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    seen: Counter[tuple[str, How, When, Outcome]] = Counter()
    wrong = []
    begun = said = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="tidemill-chaos-") as name:
        for codec in CODECS:
            shelf = Shelf(session, Path(name), codec)
            for kind, damage, how, when, outcome in check_all(shelf, random.Random(asked.seed + codec), asked.flips):
                seen[kind, how, when, outcome] += 1
                if is_wrong(kind, how, outcome):
                    wrong.append(f"{codec}: {kind} ({damage}) {how} {when}: {outcome}")
                    print(f"WRONG {wrong[-1]}", flush=True)
                if time.monotonic() - said > 5:
                    said = time.monotonic()
                    print(f"{said - begun:5.0f} s  {codec}: {seen.total()} damages", flush=True)
            shelf.close()
    session.stop()

    version = f"Spark {pyspark.__version__}, Python {sys.version.split()[0]}"
    print(f"\n{datetime.now(UTC):%Y-%m-%d}, seed {asked.seed}, {time.monotonic() - begun:.0f} s, {version}")
    print(f"{'':60}" + "".join(f"{outcome:>12}" for outcome in Outcome))
    for row in dict.fromkeys(key[:3] for key in seen):
        title = f"{row[0]}, {row[1]}, {row[2]}"
        print(f"{title:60}" + "".join(f"{seen[*row, outcome]:>12}" for outcome in Outcome))
    print(f"{seen.total()} damages, {len(wrong)} promises broken")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
