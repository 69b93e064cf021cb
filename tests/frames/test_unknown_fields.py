"""Fields that a schema does not name: refused, ignored, or kept as JSON; never dropped without a decision."""

from __future__ import annotations

import json

import pytest

from tests.frames.test_read_files import land, read
from tidemill.frames.added_columns import add_columns
from tidemill.frames.raw_rows import read_files
from tidemill.shapes.formats import BadFormat, FileFormat, RawFormat, Unknown
from tidemill.world import World

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


EVOLVED = {
    FileFormat.CSV: {"zip": "STRING", "x y": "STRING"},
    FileFormat.JSON: {"deep": "STRUCT<x: ARRAY<BIGINT>>", "zip": "STRING"},
    FileFormat.PARQUET: {"zip": "INT", "deep": "STRUCT<x: ARRAY<INT>>"},
    FileFormat.ORC: {"zip": "INT", "deep": "STRUCT<x: ARRAY<INT>>"},
}
ADDED = {
    FileFormat.CSV: ("5", None),
    FileFormat.JSON: (([1, None],), "5"),
    FileFormat.PARQUET: (5, ([1],)),
    FileFormat.ORC: (5, ([1],)),
}


def evolved(spark, folder, raw, contents):
    """The rows of files with the columns that these add; the columns; and the reasons of the files that do not fit."""
    inbox, claimed = land(folder, raw, contents)
    added = add_columns(World(), spark, inbox, claimed)
    files = [file for file in claimed if file not in added.refused]
    frame, _ = read_files(World(), spark, added.extend(inbox), files)
    return frame, added.types, {file.name: why for file, why in added.refused.items()}


@pytest.mark.parametrize("file_format", [FileFormat.CSV, FileFormat.JSON, FileFormat.PARQUET, FileFormat.ORC])
def test_unknown_fields_become_columns(spark, tmp_path, file_format):
    """Typed by the values of all files; NULL in files without the field."""
    contents = contents_of(spark, tmp_path, file_format)
    frame, types, refused = evolved(spark, tmp_path, RawFormat(file_format, COLUMNS, unknown=Unknown.EVOLVE), contents)

    assert types == EVOLVED[file_format]
    assert frame.columns == ["id", "name", *types]
    none = (None, None)
    assert sorted(map(tuple, frame.collect())) == [(1, "a", *none), (2, "b", *ADDED[file_format]), (3, "c", *none)]
    assert refused == {}


def test_types_of_files_widen_or_the_later_file_is_bad(spark, tmp_path):
    """INT and BIGINT have one type for both; STRING and BIGINT have none, nor has a name in another case."""
    contents = {}
    for name, columns in {
        "a": "1 AS id, 'a' AS name, 1 AS zip",
        "b": f"2 AS id, 'b' AS name, {1 << 40} AS zip",
        "c": "3 AS id, 'c' AS name, 'x' AS zip, 1 AS other",
        "d": "4 AS id, 'd' AS name, 1 AS Zip",
    }.items():
        target = tmp_path / "made" / name
        spark.sql(f"SELECT {columns}").coalesce(1).write.parquet(str(target))
        contents[name] = next(target.glob("part-*")).read_bytes()

    raw = RawFormat(FileFormat.PARQUET, COLUMNS, unknown=Unknown.EVOLVE)
    frame, types, refused = evolved(spark, tmp_path, raw, contents)

    assert types == {"zip": "BIGINT"}
    assert sorted(map(tuple, frame.collect())) == [(1, "a", 1), (2, "b", 1 << 40)]
    assert refused == {
        "c": "its column zip STRING does not fit the column zip BIGINT of other files",
        "d": "its column Zip INT does not fit the column zip BIGINT of other files",
    }


def test_values_of_several_types_in_json_become_text(spark, tmp_path):
    """As Spark infers them; a number is the text that the file has. Rows that are bad decide nothing."""
    rows = (
        '{"id": 1, "name": "a", "mixed": 1.10, "number": 1, "none": null}\n'
        '{"id": 2, "name": "b", "mixed": "x", "number": 2.5}\n'
    )
    raw = RawFormat(FileFormat.JSON, COLUMNS, unknown=Unknown.EVOLVE)

    frame, types, _ = evolved(spark, tmp_path / "good", raw, {"a": rows})
    twice, same, _ = evolved(
        spark,
        tmp_path / "bad",
        raw,
        {"a": rows, "b": '{"id": 3, "number": 3.5, "number": 2, "deep": {"a": 1, "a": 2}}\n'},
    )

    assert types == same == {"mixed": "STRING", "none": "STRING", "number": "DOUBLE"}
    assert sorted(map(tuple, frame.collect())) == [(1, "a", "1.10", None, 1.0), (2, "b", "x", None, 2.5)]
    with pytest.raises(Exception, match="it names a field twice"):
        twice.collect()


@pytest.mark.parametrize("row", ['{"id": 1, "deep": {}}', '{"id": 1, "ID": 2}', '{"id": 1, "zip": 1, "Zip": 2}'])
def test_a_field_of_json_that_cannot_be_a_column_makes_its_row_bad(spark, tmp_path, row):
    """An empty object has no type, and names that differ only in case are one column to Spark."""
    raw = RawFormat(FileFormat.JSON, COLUMNS, unknown=Unknown.EVOLVE)
    frame, _, _ = evolved(spark, tmp_path, raw, {"a": row + "\n"})

    with pytest.raises(Exception, match="the schema does not name the field"):
        frame.collect()
