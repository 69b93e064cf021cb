"""First rows of committed files, for a person, without Spark."""

from __future__ import annotations

import gzip
import importlib.util
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import orc, parquet

from tests.errors import raises_code
from tests.lake.conftest import SCHEMA
from tidemill import NotFound
from tidemill.cli.main import main
from tidemill.frames.spark import PartitionWrites
from tidemill.lake.fileset.fileset import Fileset, WriteOp
from tidemill.lake.fileset.publish import PartitionWrite
from tidemill.run.processes.external import open_transaction, outputs_of
from tidemill.shapes.head import to_json
from tidemill.shapes.manifest import DataFile, Manifest, group_by_partition, list_written
from tidemill.storage.locations import open_files

DAY = date(2026, 1, 1)
ROWS = [{"id": 1, "name": "a, b"}, {"id": 2, "name": None}]
WRITERS = {
    "parquet": lambda path: parquet.write_table(pa.Table.from_pylist(ROWS), path),
    "orc": lambda path: orc.write_table(pa.Table.from_pylist(ROWS), path),
    "json": lambda path: path.write_text("".join(f"{json.dumps(row)}\n" for row in ROWS)),
    "csv": lambda path: path.write_text('id,name\n1,"a, b"\n2,\n'),
    "text": lambda path: path.write_text("one\ntwo\n"),
}
READ = {"csv": [{"id": "1", "name": "a, b"}, {"id": "2", "name": None}], "text": [{"value": "one"}, {"value": "two"}]}


class Shop:
    """A project with a file set for each format, and files that are published to them as they lie there."""

    def __init__(self, mill):
        self.mill = mill

    def publish(self, dataset: str, day: date, number: int = 1, write=None) -> Path:
        """Publish a file of two rows as the partition of `day`; the file."""
        fileset = Fileset.of(self.mill.project.catalog.read(lambda db: self.mill.project.dataset(db, dataset)))
        folder = Path(self.mill.datasets.show(dataset).location.removeprefix("file://")) / f"old/{day}"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"part-{number}"
        (write or WRITERS[dataset])(path)
        file = DataFile(path.name, path.stat().st_size, 2, "", "")
        key = fileset.keys.check({"day": day})
        published = PartitionWrite(key, WriteOp.APPEND, Manifest((file,)), location=f"old/{day}")
        with open_transaction(self.mill.project.catalog, self.mill.project.world, [fileset.qualified_name]) as tx:
            outputs_of(tx).register(fileset.qualified_name, [published], SCHEMA, base=SCHEMA)
        return path


@pytest.fixture
def shop(mill):
    """The project, deployed."""
    text = "import tidemill as tm\napp = tm.App('shop')\napp.inbox('raw', 'landing', format='text')\n"
    lines = ["app.snapshot('users')"]
    lines += [f"app.fileset('{name}', keys={{'day': 'date'}}, format='{name}')" for name in WRITERS]
    mill.project.config.app.write_text(text + "\n".join(lines))
    mill.deploy()
    return Shop(mill)


@pytest.mark.parametrize("file_format", list(WRITERS))
def test_the_first_rows_of_each_format_come_without_spark(shop, file_format):
    """With the values of the key, which are not in the files."""
    shop.publish(file_format, DAY)

    rows = shop.mill.datasets.head(file_format)

    assert rows == [row | {"day": "2026-01-01"} for row in READ.get(file_format, ROWS)]


def test_a_partition_and_a_number_of_rows_can_be_chosen(shop):
    """The command reads the chosen rows, and no further file."""
    shop.publish("json", DAY)
    shop.publish("json", date(2026, 1, 2))
    second = shop.publish("json", date(2026, 1, 2), number=2)
    second.unlink()

    assert shop.mill.datasets.head("json", limit=1) == [ROWS[0] | {"day": "2026-01-01"}]
    assert len(shop.mill.datasets.head("json", limit=3)) == 3
    assert [row["day"] for row in shop.mill.datasets.head("json", "day=2026-01-02", limit=2)] == ["2026-01-02"] * 2
    assert shop.mill.datasets.head("json", {"day": DAY}) == [row | {"day": "2026-01-01"} for row in ROWS]


def test_what_is_not_there_is_named(shop):
    """The error names a partition that was never published, a key that cannot be, or a file that was deleted."""
    path = shop.publish("text", DAY)

    with pytest.raises(NotFound, match="no partition named 'day=2026-02-01'; `tidemill dataset partitions text`"):
        shop.mill.datasets.head("text", "day=2026-02-01")
    with raises_code("bad_key"):
        shop.mill.datasets.head("text", "hour=1")
    path.unlink()
    with raises_code("damaged_files", match=r"day=2026-01-01 of default\.text is damaged"):
        shop.mill.datasets.head("text")


def test_of_a_snapshot_the_current_version_is_shown(shop):
    """A snapshot has no key, and its older versions are history."""

    def write_table(world, ids, fileset, directory, columns=None):
        del columns
        content = pa.BufferOutputStream()
        parquet.write_table(pa.Table.from_pylist([{"id": number} for number in ids]), content)
        files = open_files(fileset.dataset.location, world)
        files.put(f"{directory}/part-0.parquet", content.getvalue().to_pybytes())
        found = list_written(files, directory)
        counts = {status.name: len(ids) for status in found}
        return PartitionWrites(group_by_partition(fileset.keys, directory, found, counts), SCHEMA)

    for ids in ([1, 2], [3, 4]):
        with open_transaction(
            shop.mill.project.catalog, shop.mill.project.world, ["default.users"], writer=write_table
        ) as tx:
            tx.snapshot("default.users").replace(ids)

    assert shop.mill.datasets.head("users") == [{"id": 3}, {"id": 4}]
    assert shop.mill.datasets.head("users", limit=1) == [{"id": 3}]


def test_a_compressed_text_is_read_too(shop):
    """As the files of an adopted tree may be."""
    folder = Path(shop.mill.datasets.show("json").location.removeprefix("file://")) / "x"
    folder.mkdir(parents=True)
    (folder / "a.gz").write_bytes(gzip.compress(b'{"id": 7}\n'))
    fileset = Fileset.of(shop.mill.project.catalog.read(lambda db: shop.mill.project.dataset(db, "json")))
    file = DataFile("a.gz", (folder / "a.gz").stat().st_size, 1, "")
    with open_transaction(shop.mill.project.catalog, shop.mill.project.world, ["default.json"]) as tx:
        written = PartitionWrite(fileset.keys.check({"day": DAY}), WriteOp.CREATE, Manifest((file,)), location="x")
        outputs_of(tx).register("default.json", [written], SCHEMA, base=None)

    assert shop.mill.datasets.head("json") == [{"id": 7, "day": "2026-01-01"}]


def test_without_pyarrow_the_extra_is_named(shop, monkeypatch):
    """Text formats need no package."""
    shop.publish("parquet", DAY)
    shop.publish("csv", DAY)
    folder = str(shop.mill.project.config.folder)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)

    with pytest.raises(SystemExit) as ended:
        main(["--project", folder, "dataset", "head", "parquet"])

    assert ended.value.code == 5
    assert shop.mill.datasets.head("csv")


def test_the_command_shows_a_table_and_a_json_list(shop, capsys):
    """A column that is named like one of ours (`paid_at`) is a number, and no time."""
    shop.publish("json", DAY, write=lambda path: path.write_text('{"paid_at": 5, "tags": ["a"]}\n'))

    def call(*arguments):
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(shop.mill.project.config.folder), "dataset", "head", *arguments])
        return ended.value.code, capsys.readouterr().out

    assert call("json") == (0, "paid_at  tags  day\n5        a     2026-01-01\n")
    assert json.loads(call("json", "day=2026-01-01", "--json")[1]) == [
        {"paid_at": 5, "tags": ["a"], "day": "2026-01-01"}
    ]
    assert call("text") == (0, "text has no rows yet\n")
    assert call("raw")[0] == 2


def test_values_are_as_json_knows_them():
    """All types of the files have a form in JSON."""
    moment = datetime(2026, 1, 1, 12, tzinfo=UTC)

    row = {
        "at": moment,
        "local": moment.replace(tzinfo=None),
        "amount": Decimal("1.50"),
        "raw": b"\x01",
        "in": [{"d": DAY}],
    }

    assert to_json(row) == {
        "at": "2026-01-01T12:00:00Z",
        "local": "2026-01-01T12:00:00",
        "amount": "1.50",
        "raw": "01",
        "in": [{"d": "2026-01-01"}],
    }
