"""Raw files read with Spark, strictly: a file that is wrong anywhere fails, whatever the program asks for."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as sf

from tidemill.frames.raw_rows import read_files
from tidemill.frames.spark import count_of, counting
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.inbox.file_claims import ClaimedFile
from tidemill.lake.inbox.inbox import Inbox, InboxSpec, content_version
from tidemill.names import DEFAULT_NAMESPACE, DatasetId
from tidemill.shapes.contents import check_file
from tidemill.shapes.csv_scan import split_row
from tidemill.shapes.formats import FileFormat, RawFormat, blame
from tidemill.storage.locations import open_files
from tidemill.world import World

pytestmark = pytest.mark.spark

CSV = RawFormat(FileFormat.CSV, "id INT, name STRING, qty INT")
JSON = RawFormat(FileFormat.JSON, "id INT, name STRING, qty INT")
HEADER = "id,name,qty\n"
ACTIONS = {
    "collect": lambda frame: frame.collect(),
    "count": lambda frame: frame.count(),
    "one column": lambda frame: frame.select("name").collect(),
    "a filter": lambda frame: frame.where("id = 1").select("name").collect(),
    "a group": lambda frame: frame.groupBy("_metadata.file_name").count().collect(),
}


def read(spark, folder: Path, raw: RawFormat, contents: dict[str, str | bytes]) -> DataFrame:
    """Land these files in an inbox and read all of them."""
    return read_counted(spark, folder, raw, contents)[0]


def read_counted(spark, folder: Path, raw: RawFormat, contents: dict[str, str | bytes]):
    """The same, with what counts their rows."""
    return read_files(World(), spark, *land(folder, raw, contents))


def land(folder: Path, raw: RawFormat, contents: dict[str, str | bytes]) -> tuple[Inbox, list[ClaimedFile]]:
    """Write files into an inbox."""
    dataset = Dataset(DatasetId("ds"), DEFAULT_NAMESPACE, "raw", DatasetKind.INBOX, folder.absolute().as_uri(), {})
    inbox = Inbox(dataset, InboxSpec(raw))
    files = inbox.files(World())
    files.prepare()
    claimed = []
    for name, content in contents.items():
        files.put(name, content if isinstance(content, bytes) else content.encode())
        status = files.stat(name)
        claimed.append(
            ClaimedFile(
                dataset.dataset_id, name, content_version(status), status.etag, status.bytes, status.modified_at, 0
            )
        )
    return inbox, claimed


def rows_of(frame: DataFrame) -> list[tuple]:
    """All rows, in order."""
    return sorted(tuple(row) for row in frame.collect())


def test_good_files_are_read_whole_and_once(spark, tmp_path):
    """Empty ones, ones with a header only, packed ones, and a byte order mark are good."""
    contents = {
        "a.csv": HEADER + "1,a,10\n2,b,20\n",
        "sub/b.csv": HEADER + "3,c,30\n",
        "empty.csv": "",
        "header.csv": HEADER,
        "bom.csv": "\ufeff" + HEADER + "4,d,40\n",
        "crlf.csv": "id,name,qty\r\n5,e,50\r\n",
        "packed.csv.gz": gzip.compress((HEADER + "6,f,60\n").encode()),
    }

    frame = read(spark, tmp_path, CSV, contents)

    assert rows_of(frame) == [(n, "abcdef"[n - 1], n * 10) for n in range(1, 7)]
    assert frame.count() == 6
    per_file = dict(frame.groupBy("_metadata.file_name").count().collect())
    assert per_file == {"a.csv": 2, "b.csv": 1, "bom.csv": 1, "crlf.csv": 1, "packed.csv.gz": 1}


def test_no_rows_have_the_columns_too(spark, tmp_path):
    """A program need not know that all files were empty."""
    frame = read(spark, tmp_path, CSV, {"empty.csv": ""})

    assert frame.columns == ["id", "name", "qty"]
    assert frame.count() == 0


def test_odd_names_are_read_once_each(spark, tmp_path):
    """Spark takes some characters for patterns; switched off, it read all other files of the list twice (tried)."""
    names = ("plain", "a{b,c}*[d]?", "a*", "back\\slash", "a b", "a%20b", "a#b", "é", "k=1/x", "a'\"b", "-rf")
    folder = tmp_path / "in[box] {x}"

    frame = read(spark, folder, CSV, {name: f"{HEADER}{n},x,1\n" for n, name in enumerate(names)})

    assert [row[0] for row in rows_of(frame)] == list(range(len(names)))
    assert rows_of(read(spark, tmp_path, CSV, {"10:30": HEADER + "1,a,1\n"})) == [(1, "a", 1)]
    assert frame.columns == ["id", "name", "qty"]


WRONG = {
    "a cut line": (CSV, HEADER + "1,a,10\n2,b"),
    "a cut line with an end": (CSV, HEADER + "1,a,10\n2,b\n"),
    "too many columns": (CSV, HEADER + "1,a,10\n2,b,20,30\n"),
    "no number": (CSV, HEADER + "1,a,10\n2,b,x\n"),
    "missing, unless told what it looks like": (CSV, HEADER + "1,a,10\n2,b,NA\n"),
    "an open quote": (CSV, HEADER + '1,a,10\n2,"b,20\n3,c,30\n'),
    "no header": (CSV, "1,a,10\n2,b,20\n"),
    "swapped columns": (CSV, "id,qty,name\n1,10,a\n"),
    "torn gzip": (CSV, gzip.compress((HEADER + "".join(f"{n},a,{n * 7919}\n" for n in range(5000))).encode())[:9000]),
    "torn JSON": (JSON, '{"id": 1, "name": "a", "qty": 1}\n{"id": 2, "na\n'),
    "JSON with no number": (JSON, '{"id": 1, "name": "a", "qty": 1}\n{"id": 2, "name": "b", "qty": "x"}\n'),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_is_wrong_fails_every_action_and_names_the_file(spark, tmp_path, wrong):
    """Else a program that only counts publishes what it could not have read."""
    raw, content = WRONG[wrong]
    good = HEADER + "7,g,70\n" if raw is CSV else '{"id": 7, "name": "g", "qty": 7}\n'
    bad = "bad é file.csv.gz" if wrong == "torn gzip" else "bad é file"
    frame = read(spark, tmp_path, raw, {"good": good, bad: content, "good2": good})

    blamed = {}
    for name, action in ACTIONS.items():
        with pytest.raises(Exception, match="Encountered error while reading file") as caught:
            action(frame)
        blamed[name] = blame(str(caught.value), ["good", bad, "good2"], lambda file: str(tmp_path / file))

    assert blamed == dict.fromkeys(ACTIONS, bad)


def test_a_frame_can_be_used_more_than_once_in_a_query(spark, tmp_path):
    """Joins with itself and with another read; what makes it strict must not be in the way."""
    frame = read(spark, tmp_path, CSV, {"a": HEADER + "1,a,10\n2,b,20\n"})
    other = read(spark, tmp_path, CSV, {"a": HEADER + "1,a,10\n2,b,20\n"})

    assert frame.alias("x").join(frame.alias("y"), sf.col("x.id") == sf.col("y.id")).count() == 2
    assert frame.join(other, "id").union(other.join(frame, "id")).count() == 4
    assert frame.cache().count() == frame.count() == 2
    frame.unpersist()


def test_options_say_how_a_value_looks(spark, tmp_path):
    """`NA` for missing is in many files."""
    raw = RawFormat(FileFormat.CSV, CSV.schema, {"nullValue": "NA", "sep": ";"})

    frame = read(spark, tmp_path, raw, {"a": "id;name;qty\n1;a;NA\n"})

    assert rows_of(frame) == [(1, "a", None)]


@pytest.mark.parametrize("options", [{"escape": "\\"}, {"comment": "#"}, {"sep": "||"}, {"sep": "||", "escape": "\\"}])
def test_fields_are_split_as_spark_splits_them(spark, tmp_path, options):
    """The place of a bad row is found by its fields, and what passes the check of quotes has one reading."""
    raw = RawFormat(FileFormat.CSV, "a STRING, b STRING, c STRING", {"header": "false", **options})
    escape = options.get("escape", '"')
    texts = ("x", "x|y", " b ", f'{escape}"', f'a{escape}"b', "l\n#m", "#", "'", f"{escape * 2}", "||")
    cells = [f'"{text}"' for text in texts] + ["plain", " c", "d|e"]
    rows = [raw.separator.join(("1", one, other)) for one in cells for other in cells]
    files = open_files(tmp_path, World())
    files.put("a", "".join(f"{row}\n" for row in rows).encode())

    found = read(spark, tmp_path, raw, {"a": "".join(f"{row}\n" for row in rows)})

    assert check_file(files, files.stat("a"), raw) is None
    assert sorted(map(tuple, found.collect())) == sorted(tuple(split_row(row, raw)) for row in rows)


def test_text_and_parquet_are_read(spark, tmp_path):
    """Text keeps each line; Parquet that is cut, or whose pages changed, fails."""
    spark.range(1000).coalesce(1).write.parquet(str(tmp_path / "made"))
    content = next((tmp_path / "made").glob("*.parquet")).read_bytes()
    flipped = bytearray(content)
    flipped[200] ^= 1
    parquet = RawFormat(FileFormat.PARQUET)

    assert rows_of(read(spark, tmp_path, RawFormat(FileFormat.TEXT), {"t": "a,b\n\nc\n"})) == [("",), ("a,b",), ("c",)]
    assert read(spark, tmp_path, parquet, {"p": content}).agg({"id": "sum"}).first()[0] == 499500
    for bad in (content[:-20], bytes(flipped)):
        with pytest.raises(Exception, match=r"reading|read footer"):
            read(spark, tmp_path, parquet, {"p": bad}).agg({"id": "sum"}).collect()


@pytest.mark.parametrize("kind", [FileFormat.CSV, FileFormat.TEXT, FileFormat.JSON])
def test_rows_are_counted_as_they_are_read(spark, tmp_path, kind):
    """All rows count, whatever the program keeps of them, so that they can be balanced.

    Before the read there is no count.
    """
    raw, row = {
        FileFormat.CSV: (CSV, HEADER + "1,a,10\n2,b,20\n"),
        FileFormat.TEXT: (RawFormat(FileFormat.TEXT), "1\n2\n"),
        FileFormat.JSON: (JSON, '{"id": 1}\n{"id": 2}\n'),
    }[kind]
    frame, counted = read_counted(spark, tmp_path, raw, {"a": row, "b": row, "empty": ""})

    before = count_of(spark, counted)
    kept = frame.where(frame[frame.columns[0]] == "1")
    with counting(kept, [counted]):
        rows = kept.collect()

    assert (before, len(rows), count_of(spark, counted)) == (None, 2, 4)


ALL = "all of it"
IF_ANY = "SELECT * FROM range(1) WHERE EXISTS (SELECT * FROM {f})"


@pytest.mark.parametrize(
    ("first", "then", "rows"),
    [
        (None, lambda frame: frame, ALL),
        (None, lambda frame: frame.join(frame.groupBy("qty").count(), "qty", "left_anti"), ALL),
        (lambda frame: frame.isEmpty(), lambda frame: frame, None),
        (lambda frame: frame.take(3), lambda frame: frame, None),
        (None, lambda frame: frame.limit(3), None),
        (None, lambda frame: frame.mapInPandas(lambda frames: [next(frames)], frame.schema), None),
        (None, lambda frame: frame.join(frame.sparkSession.range(1).where("id > 1"), "id"), None),
        (None, lambda frame: frame.sparkSession.sql(IF_ANY, f=frame), None),
        (None, lambda frame: frame.sparkSession.range(5).join(frame, how="left_semi"), None),
    ],
)
def test_a_count_is_known_only_of_all_rows(spark, tmp_path, first, then, rows):
    """A read that stops early counts too few rows, and the run would seem to have made the others."""
    body = HEADER + "".join(f"{row},n,{row}\n" for row in range(5000))
    frame, counted = read_counted(spark, tmp_path, CSV, {"a": body, "b": body})

    if first:
        first(frame)
    written = then(frame)
    with counting(written, [counted]):
        written.write.format("noop").mode("overwrite").save()
    frame.isEmpty()

    assert count_of(spark, counted) == (10_000 if rows == ALL else rows)


def test_json_over_several_lines_is_read_object_by_object(spark, tmp_path):
    """A file is an object or an array of them; numbers in text stay as they are written."""
    raw = RawFormat(FileFormat.JSON, "id INT, name STRING, qty INT", {"multiLine": "true"})
    contents = {
        "one": '{"id": 1,\n "name": 1.10}\n',
        "array": '\ufeff[{"id": 2,\n "name": "b"},\n {"qty": 3, "id": 3, "name": "c"}]\n',
    }

    frame = read(spark, tmp_path, raw, contents)
    bad = read(spark, tmp_path / "bad", raw, {**contents, "bad": '[{"id": 4},\n {"id": "x"}]\n'})

    assert {tuple(row) for row in frame.collect()} == {(1, "1.10", None), (2, "b", None), (3, "c", 3)}
    with pytest.raises(Exception, match="bad/bad"):
        bad.collect()
