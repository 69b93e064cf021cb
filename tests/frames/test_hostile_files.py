"""Hostile files of each format, and what comes out of them: their rows, unchanged, or a reason that names the fault."""

from __future__ import annotations

import gzip
from decimal import Decimal
from pathlib import Path

import pytest

from tests.frames.test_read_files import land, read
from tests.seed_of_the_day import TODAY
from tidemill.frames.bad_rows import find_bad_files, list_bad_rows
from tidemill.frames.raw_rows import RawFiles
from tidemill.frames.spark import spark_errors
from tidemill.shapes.contents import check_file
from tidemill.shapes.formats import FileFormat, RawFormat, blame, reason
from tidemill.storage.locations import open_files
from tidemill.world import World

pytestmark = pytest.mark.spark

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "inboxes.md").read_text(encoding="utf-8")
COLUMNS = "id INT, name STRING, qty INT"
CSV = RawFormat(FileFormat.CSV, COLUMNS)
JSON = RawFormat(FileFormat.JSON, COLUMNS)
TEXT = RawFormat(FileFormat.TEXT)
HEADER = "id,name,qty\n"
SHAPE = "it is no JSON object, or a value does not fit its column"
NESTED = "id INT, d STRUCT<a: INT, l: ARRAY<STRUCT<b: DECIMAL(10,2)>>>"
DEEP_JSON = RawFormat(FileFormat.JSON, NESTED)
WHOLE_JSON = RawFormat(FileFormat.JSON, COLUMNS, {"multiLine": "true"})
LONG = "x" * 25_000_000
NESTING = "[" * 20_000 + "]" * 20_000

# Name in the docs, format, content, and the rows or the beginning of the reason.
OF_TEXT = [
    ("byte order mark", CSV, "\ufeff" + HEADER + "1,a,10\n", [(1, "a", 10)]),
    ("byte order mark", CSV, '\ufeff"id",name,qty\n1,a,10\n', [(1, "a", 10)]),
    ("lines that end in CR LF", CSV, "id,name,qty\r\n1,a,10\r\n", [(1, "a", 10)]),
    ("lines that end in CR LF and in LF", CSV, HEADER + "1,a,10\r\n2,b,20\n", "its lines end in LF and in CR LF"),
    ("lines that end in CR LF and in LF", CSV, "id,name,qty\r\n1,a,10\n", "its lines end in CR LF and in LF"),
    ("end of line within quotes", CSV, HEADER + '1,"a\nb",10\n2,"c\r\nd",20\n', [(1, "a\nb", 10), (2, "c\r\nd", 20)]),
    ("end of line within quotes", CSV, 'id,name,qty\r\n1,"a\r\nb",10\r\n2,c,20\r\n', [(1, "a\r\nb", 10), (2, "c", 20)]),
    ("end of line within quotes", CSV, 'id,name,qty\r\n1,"a\nb",10\r\n', [(1, "a\nb", 10)]),
    ("ends of lines of two kinds within quotes", CSV, 'id,name,qty\r\n1,"a\nb",10\r\n2,"a\r\nb",1\r\n', "its quoted"),
    ("doubled quote", CSV, HEADER + '1,"a ""b"" c",10\n2,"""",20\n', [(1, 'a "b" c', 10), (2, '"', 20)]),
    ("quote that is never closed", CSV, HEADER + '1,a,10\n2,"b,20\n3,c,30\n', "line 3: a quote is opened and"),
    ("quote within a field", CSV, HEADER + '1,"a"b,10\n', "line 2: a quote stands within a field"),
    ("quote within a field", CSV, HEADER + '1,5" b,10\n2,6" c,20\n', "line 2: a quote stands within a field"),
    ("too few fields", CSV, HEADER + "1,a,10\n2,b\n", "Malformed CSV record: 2,b"),
    ("too many fields", CSV, HEADER + "1,a,10\n2,b,20,30\n", "Malformed CSV record: 2,b,20,30"),
    ("value of another type", CSV, HEADER + "1,a,x\n", 'For input string: "x"'),
    ("empty line", CSV, HEADER + "1,a,10\n\n2,b,20\n", [(1, "a", 10), (2, "b", 20)]),
    ("nothing between two commas, or two quotes", CSV, HEADER + '1,,10\n2,"",20\n', [(1, None, 10), (2, None, 20)]),
    ("very long line", CSV, f"{HEADER}1,{LONG},10\n", [(1, LONG, 10)]),
    ("NUL", CSV, HEADER + "1,a\0b,10\n", "it holds NUL characters"),
    ("UTF-16", CSV, (HEADER + "1,a,10\n").encode("utf-16"), "it is UTF-16"),
    ("UTF-16", CSV, (HEADER + "1,a,10\n").encode("utf-16-le"), "it holds NUL characters"),
    ("Latin-1", CSV, (HEADER + "1,é,10\n").encode("latin-1"), "it is not UTF-8"),
    ("no end of its last line", CSV, HEADER + "1,a,1", "its last line has no end"),
    ("gzip, cut", CSV, gzip.compress((HEADER + "1,a,10\n").encode())[:-9], "it cannot be unpacked"),
    ("empty", CSV, "", []),
    ("columns in another order", CSV, "id,qty,name\n1,10,a\n", "its columns are in another order"),
    ("column that the schema does not name", CSV, "id,name,qty,x\n1,a,10,5\n", "the schema does not name the column x"),
    ("column that it lacks", CSV, "id,name\n1,a\n", "it lacks the column qty"),
    ("byte order mark", JSON, '\ufeff{"id": 1}\n', [(1, None, None)]),
    ("lines that end in CR LF", JSON, '{"id": 1}\r\n{"id": 2}\r\n', [(1, None, None), (2, None, None)]),
    ("lines that end in CR LF and in LF", JSON, '{"id": 1}\r\n{"id": 2}\n', [(1, None, None), (2, None, None)]),
    ("empty line", JSON, '{"id": 1}\n\n  \n', [(1, None, None)]),
    ("end of line within quotes", JSON, '{"id": 1, "name": "a\nb"}\n', SHAPE),
    ("quote that is never closed", JSON, '{"id": 1, "name": "a}\n', SHAPE),
    ("quote within a field", JSON, '{"id": 1, "name": "a"b"}\n', SHAPE),
    ("too few fields", JSON, '{"id": 1, "name": "a"}\n{}\n', [(1, "a", None), (None, None, None)]),
    ("too many fields", JSON, '{"id": 1, "id": 2}\n', "it names a field twice"),
    ("too many fields", JSON, '{"id": 1}{"id": 2}\n', SHAPE),
    ("too many fields", JSON, '{"id": 1}, {"id": 2}\n', SHAPE),
    ("too many fields", JSON, '{"id": 1}} x\n', SHAPE),
    ("value of another type", JSON, '{"id": 1, "qty": "x"}\n', SHAPE),
    ("value of another type", JSON, '{"id": 1, "qty": 1.5}\n', SHAPE),
    ("value of another type", JSON, '{"id": 1, "qty": 5000000000}\n', SHAPE),
    ("value of another type", JSON, '[{"id": 1}, {"id": 2}]\n', SHAPE),
    ("value of another type", JSON, "null\n", SHAPE),
    ("value of a narrower type", RawFormat(FileFormat.JSON, "id DOUBLE"), '{"id": 1}\n', [(1.0,)]),
    ("columns in another order", JSON, '{"qty": 10, "id": 1}\n', [(1, None, 10)]),
    ("names in another case", JSON, '{"ID": 1}\n', "the schema does not name the field ID"),
    ("column that the schema does not name", JSON, '{"id": 1, "x": 5, "y": 6}\n', "the schema does not name the field"),
    ("file of something else", JSON, '{"a": 1}\n', "the schema does not name the field a"),
    ("column that it lacks", JSON, '{"id": 1}\n', [(1, None, None)]),
    ("very long line", JSON, '{"name": "' + LONG[:19_000_000] + '"}\n', [(None, LONG[:19_000_000], None)]),
    ("NUL", JSON, '{"id": 1}\0\n', "it holds NUL characters"),
    ("UTF-16", JSON, '{"id": 1}\n'.encode("utf-16"), "it is UTF-16"),
    ("Latin-1", JSON, '{"name": "é"}\n'.encode("latin-1"), "it is not UTF-8"),
    ("no end of its last line", JSON, '{"id": 1}', "its last line has no end"),
    ("gzip, cut", JSON, gzip.compress(b'{"id": 1}\n')[:-9], "it cannot be unpacked"),
    ("empty", JSON, "", []),
    ("nested fields", DEEP_JSON, '{"id": 1, "d": {"a": 2, "l": [{"b": 1.5}]}}\n', [(1, (2, [(Decimal("1.50"),)]))]),
    ("damage in nested fields", DEEP_JSON, '{"id": 1, "d": {"a": "x"}}\n', SHAPE),
    ("damage in nested fields", DEEP_JSON, '{"id": 1, "d": {"l": [{"b": 1}, {"b": "x"}]}}\n', SHAPE),
    ("damage in nested fields", DEEP_JSON, '{"id": 1, "d": 5}\n', SHAPE),
    ("damage in nested fields", DEEP_JSON, '{"d": {"c": 1}}\n', "the schema does not name the field d.c"),
    ("damage in nested fields", DEEP_JSON, '{"d": {"l": [{"c": 1}]}}\n', "the schema does not name the field d.l[].c"),
    ("values nested thousands deep", JSON, f'{{"id": {NESTING}}}\n', SHAPE),
    ("values nested thousands deep", JSON, f'{{"name": {NESTING}}}\n', SHAPE),
    ("values nested thousands deep", JSON, f'{{"x": {NESTING}}}\n', SHAPE),
    ("values nested thousands deep", JSON, f"{NESTING}\n", SHAPE),
    ("values nested thousands deep", DEEP_JSON, f'{{"d": {{"a": {NESTING}}}}}\n', SHAPE),
    ("values nested thousands deep", WHOLE_JSON, f'[{{"id": 1}}, {{"name": {NESTING}}}]\n', SHAPE),
    ("byte order mark", TEXT, "\ufeffa\n", [("a",)]),
    ("lines that end in CR LF", TEXT, "a\r\nb\n", [("a",), ("b",)]),
    ("empty line", TEXT, "a\n\n", [("",), ("a",)]),
    ("very long line", TEXT, LONG + "\n", [(LONG,)]),
    ("NUL", TEXT, "a\0b\n", "it holds NUL characters"),
    ("UTF-16", TEXT, "a\n".encode("utf-16"), "it is UTF-16"),
    ("Latin-1", TEXT, "é\n".encode("latin-1"), "it is not UTF-8"),
    ("no end of its last line", TEXT, "a\nb", "its last line has no end"),
    ("gzip, cut", TEXT, gzip.compress(b"a\nb\n")[:-9], "it cannot be unpacked"),
    ("empty", TEXT, "", []),
]  # fmt: skip

GOOD = "1 AS id, 'a' AS name, 10 AS qty"
DEEP = "1 AS id, named_struct('a', 2, 'l', array(named_struct('{}', {}))) AS d"

# Name in the docs, schema, what the file holds, and the rows or the beginning of the reason.
OF_COLUMNS = [
    ("columns in another order", COLUMNS, "10 AS qty, 'a' AS name, 1 AS id", [(1, "a", 10)]),
    ("names in another case", COLUMNS, "1 AS ID, 'a' AS Name, 10 AS qty", [(1, "a", 10)]),
    ("column that it lacks", COLUMNS, "1 AS id, 'a' AS name", "it lacks the column qty"),
    ("column that the schema does not name", COLUMNS, GOOD + ", 5 AS x", "the schema does not name the column x"),
    ("file of something else", COLUMNS, "1 AS a, 2 AS b", "it lacks the columns id, name, qty of the schema; the"),
    ("value of another type", COLUMNS, "1 AS id, 'a' AS name, 'x' AS qty", "column qty is STRING in the file, and INT"),
    ("value of another type", COLUMNS, "1 AS id, 'a' AS name, 5000000000 AS qty", "column qty is BIGINT in the file"),
    ("value of another type", COLUMNS, "1 AS id, 'a' AS name, 1.5D AS qty", "column qty is DOUBLE in the file"),
    ("value of a narrower type", "id BIGINT, name STRING, qty DOUBLE", GOOD, [(1, "a", 10.0)]),
    ("nested fields", NESTED, DEEP.format("b", "1.5BD"), [(1, (2, [(Decimal("1.50"),)]))]),
    ("damage in nested fields", NESTED, DEEP.format("c", "1.5BD"), "it lacks the column d.l.[].b of the schema"),
    ("damage in nested fields", NESTED, DEEP.format("b", "1.555BD"), "column d.l.[].b is DECIMAL(4,3) in the file"),
    ("damage in nested fields", NESTED, "1 AS id, 5 AS d", "column d is INT in the file, and nested in the schema"),
]  # fmt: skip


def outcome(spark, folder: Path, raw: RawFormat, content: str | bytes) -> list[tuple] | str:
    """The rows of a file; or why it counts as bad, as it stands or when it is read, by its name."""
    files = open_files(folder, World())
    name = "bad.gz" if content[:2] == b"\x1f\x8b" else "bad"
    files.put(name, content if isinstance(content, bytes) else content.encode())
    why = check_file(files, files.stat(name), raw)
    if why is not None:
        return why
    try:
        return sorted(map(tuple, read(spark, folder, raw, {name: content}).collect()), key=repr)
    except spark_errors() as error:
        blamed = blame(str(error), [name], lambda file: str(folder / file))
        why = reason(str(error))
        return why.rpartition(".  ")[2] if blamed == name else f"no file is named: {error}"


def documented(name: str, file_format: str, found: list[tuple] | str) -> bool:
    """Return whether the table of the page says of such a file that it is read, or refused."""
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {name} |")]
    titles = [cell.strip() for cell in PAGE[: PAGE.index(row)].rpartition("| file |")[2].split("\n", 1)[0].split("|")]
    cell = row.split("|")[2:][titles.index(file_format)].strip()
    return cell.startswith("refused") == isinstance(found, str) and cell != ""


OF_TODAY = range(TODAY % 3, len(OF_TEXT), 3)
"""Three days play all."""


@pytest.mark.parametrize(("name", "raw", "content", "expected"), [OF_TEXT[n] for n in OF_TODAY], ids=OF_TODAY)
def test_no_value_of_a_hostile_text_changes_in_silence(spark, tmp_path, name, raw, content, expected):
    """Under Spark's own defaults three of five such CSV files gave wrong rows and counted as processed."""
    found = outcome(spark, tmp_path, raw, content)

    assert found == expected if isinstance(expected, list) else expected in found
    assert documented(name, raw.format.value, found)


@pytest.mark.parametrize("file_format", [FileFormat.PARQUET, FileFormat.ORC])
@pytest.mark.parametrize(("name", "schema", "made", "expected"), OF_COLUMNS, ids=range(len(OF_COLUMNS)))
def test_no_value_of_hostile_columns_changes_in_silence(spark, tmp_path, file_format, name, schema, made, expected):
    """A misnamed column was NULL in every row; ORC makes NULL of a number that is too large (tried)."""
    spark.sql(f"SELECT {made}").coalesce(1).write.format(file_format).save(str(tmp_path / "made"))
    content = next((tmp_path / "made").glob("part-*")).read_bytes()

    found = outcome(spark, tmp_path, RawFormat(file_format, schema), content)

    assert found == expected if isinstance(expected, list) else expected in found
    assert documented(name, file_format.value, found)


@pytest.mark.parametrize("file_format", [FileFormat.PARQUET, FileFormat.ORC])
def test_columns_of_all_files_are_read_where_no_schema_says_which(spark, tmp_path, file_format):
    """From one file alone, the columns that only other files have would be lost."""
    contents = {}
    for name, made in (("one", "1 AS id, 2 AS x"), ("two", "3 AS id, 4 AS y")):
        spark.sql(f"SELECT {made}").coalesce(1).write.format(file_format).save(str(tmp_path / "made" / name))
        contents[name] = next((tmp_path / "made" / name).glob("part-*")).read_bytes()

    frame = read(spark, tmp_path, RawFormat(file_format), contents)

    assert {row.id: (row.x, row.y) for row in frame.collect()} == {1: (2, None), 3: (None, 4)}


def test_the_reason_of_a_row_that_is_nested_thousands_deep_is_found(spark, tmp_path):
    """Python's parser ends with a RecursionError there, which failed the check of all files."""
    inbox, claimed = land(tmp_path, JSON, {"deep": f'{{"id": {NESTING}}}\n', "good": '{"id": 1}\n'})
    source = RawFiles.of(World(), spark, inbox, claimed)

    found = {file.name: bad.first.why for file, bad in find_bad_files(source).items()}
    rows = {file.name: [row.why for row in bad] for file, bad in list_bad_rows(source).items()}

    assert found == {"deep": "it is no JSON that can be read: it is nested too deep"}
    assert rows == {"deep": [found["deep"]]}


@pytest.mark.parametrize("file_format", [FileFormat.PARQUET, FileFormat.ORC])
def test_all_damaged_files_of_a_batch_are_found_at_once(spark, tmp_path, file_format):
    """Their footers are whole: only reading finds what is wrong within, and Spark names one file of a job."""
    spark.range(5000).selectExpr("id", "cast(id * 7919 AS STRING) AS name").coalesce(1).write.format(file_format).save(
        str(tmp_path / "made")
    )
    content = next((tmp_path / "made").glob("part-*")).read_bytes()
    broken = bytearray(content)
    third = len(content) // 3
    broken[third : 2 * third] = bytes(third)
    raw = RawFormat(file_format, "id BIGINT, name STRING")
    inbox, claimed = land(tmp_path, raw, {"one": bytes(broken), "good": content, "two": bytes(broken)})
    files = inbox.files(World())

    looks = [check_file(files, files.stat(file.name), raw) for file in claimed]
    found = find_bad_files(RawFiles.of(World(), spark, inbox, claimed))

    assert looks == [None, None, None]
    assert sorted(file.name for file in found) == ["one", "two"]
    assert all(bad.why for bad in found.values())
