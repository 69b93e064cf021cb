"""Fields that a schema does not name: refused, ignored, or kept as JSON; never dropped without a decision."""

from __future__ import annotations

import json

import pytest

from tests.lake.test_read_files import read
from tidemill.lake.formats import BadFormat, FileFormat, RawFormat, Unknown

pytestmark = pytest.mark.spark

COLUMNS = "id INT, name STRING"
TEXTS = {
    FileFormat.CSV: {
        "plain": "id,name\n1,a\n",
        "more": "zip,id,x y,name\n5,2,,b\n",
        "swapped": "name,id\nc,3\n",
    },
    FileFormat.JSON: {
        "plain": '{"id": 1, "name": "a"}\n',
        "more": '{"zip": "5", "id": 2, "name": "b", "deep": {"x": [1, null]}}\n',
        "swapped": '{"name": "c", "id": 3}\n',
    },
}
RESCUED = {
    FileFormat.CSV: {"zip": "5"},
    FileFormat.JSON: {"zip": "5", "deep": {"x": [1, None]}},
    FileFormat.PARQUET: {"zip": 5, "deep": {"x": [1]}},
    FileFormat.ORC: {"zip": 5, "deep": {"x": [1]}},
}


def contents_of(spark, folder, file_format):
    """Three files: one with the columns of the schema, one with more, one with the columns in another order."""
    if file_format in TEXTS:
        return TEXTS[file_format]
    made = {
        "plain": "1 AS id, 'a' AS name",
        "more": "5 AS zip, 2 AS id, named_struct('x', array(1)) AS deep, 'b' AS name",
        "swapped": "'c' AS name, 3 AS id",
    }
    contents = {}
    for name, columns in made.items():
        target = folder / "made" / name
        spark.sql(f"SELECT {columns}").coalesce(1).write.format(file_format).save(str(target))
        contents[name] = next(target.glob("part-*")).read_bytes()
    return contents


@pytest.mark.parametrize("file_format", [FileFormat.CSV, FileFormat.JSON, FileFormat.PARQUET, FileFormat.ORC])
def test_unknown_fields_are_ignored_or_rescued(spark, tmp_path, file_format):
    """Columns are found by name in files whose headers differ."""
    contents = contents_of(spark, tmp_path, file_format)
    ignored = read(spark, tmp_path, RawFormat(file_format, COLUMNS, unknown=Unknown.IGNORE), contents)
    rescued = read(spark, tmp_path, RawFormat(file_format, COLUMNS, unknown=Unknown.RESCUE), contents)
    none = read(spark, tmp_path, RawFormat(file_format, COLUMNS, unknown=Unknown.RESCUE), {"empty": b""})

    assert ignored.columns == ["id", "name"]
    assert sorted(map(tuple, ignored.collect())) == [(1, "a"), (2, "b"), (3, "c")]
    assert none.columns == rescued.columns == ["id", "name", "_rescued"]
    assert {row.id: row._rescued and json.loads(row._rescued) for row in rescued.collect()} == {
        1: None,
        2: RESCUED[file_format],
        3: None,
    }


def test_a_policy_without_names_is_refused():
    """Nothing is unknown where no schema says what is known, or where no file says what its fields are."""
    with pytest.raises(BadFormat, match="needs a schema"):
        RawFormat(FileFormat.JSON, unknown=Unknown.IGNORE)
    with pytest.raises(BadFormat, match="files that name their fields"):
        RawFormat(FileFormat.CSV, COLUMNS, {"header": "false"}, unknown=Unknown.RESCUE)
    with pytest.raises(BadFormat, match="_rescued"):
        RawFormat(FileFormat.JSON, "_rescued STRING", unknown=Unknown.RESCUE)
