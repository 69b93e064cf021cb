"""Raw files are checked without Spark: each good or bad by itself, with the reason."""

from __future__ import annotations

import gzip
from dataclasses import replace

import pytest

from tidemill.app.app import App
from tidemill.json_specs import read_plain, write_plain
from tidemill.lake.inbox.inbox import InboxSpec
from tidemill.shapes import contents
from tidemill.shapes.contents import BadText, check_file, find_rows
from tidemill.shapes.formats import BadFormat, FileFormat, RawFormat, Unknown
from tidemill.storage.locations import open_files
from tidemill.world import World

CSV = RawFormat(FileFormat.CSV, "id INT, name STRING, qty DECIMAL(10,2)")
JSON = RawFormat(FileFormat.JSON)
TEXT = RawFormat(FileFormat.TEXT)
PARQUET = RawFormat(FileFormat.PARQUET)
HEADER = b"id,name,qty\n"


def check(tmp_path, content: bytes, raw: RawFormat = CSV, name: str = "file") -> str:
    """Return the fault of a file with this content. Empty if there is none."""
    files = open_files(tmp_path, World())
    files.put(name, content)
    return check_file(files, files.stat(name), raw) or ""


@pytest.mark.parametrize(
    ("content", "raw"),
    [
        (HEADER + b"1,a,2\n", CSV),
        (HEADER, CSV),
        (b"", CSV),
        (b"\xef\xbb\xbf" + HEADER + b"1,a,2\n", CSV),
        (b"id,name,qty\r\n1,a,2\r\n", CSV),
        (b'"id","name","qty"\n', CSV),
        (HEADER + "1,é,2\n".encode(), CSV),
        (HEADER + b"1,a,2", RawFormat(FileFormat.CSV, CSV.schema, line_end=False)),
        (b"1,a,2\n", RawFormat(FileFormat.CSV, CSV.schema, {"header": "false"})),
        (b"id;name;qty\n1;a;2\n", RawFormat(FileFormat.CSV, CSV.schema, {"sep": ";"})),
        (b"# made by x\nid,name,qty\n", RawFormat(FileFormat.CSV, CSV.schema, {"comment": "#"})),
        (b'{"id": 1}\n', JSON),
        (b"line\n", TEXT),
        (b"", PARQUET),
        (b"PAR1....PAR1", PARQUET),
    ],
)
def test_good_files_pass(tmp_path, content, raw):
    """Each refusal of a good file delays a user's data."""
    assert check(tmp_path, content, raw) == ""


@pytest.mark.parametrize(
    ("content", "raw", "why"),
    [
        (HEADER + b"1,a,2\n2,b,3", CSV, "no end"),  # the cut inside the last column that Spark reads as a number
        (HEADER[:-1], CSV, "no end"),
        (b"1,a,2\n2,b,3\n", CSV, "not the header"),
        (b"\n\n", CSV, "not the header"),
        (b"id,qty,name\n1,2,a\n", CSV, "another order"),
        (b"id,name\n1,a\n", CSV, "lacks the column qty"),
        (b"id,name,qty,x,y\n", CSV, "does not name the columns x, y"),
        (b"id,name,name,qty\n", CSV, "twice"),
        (b"id,name,qty,Name\n", replace(CSV, unknown=Unknown.IGNORE), "twice"),  # Spark reads none of the batch
        (b"id,name,qty,\n", replace(CSV, unknown=Unknown.IGNORE), "a column without a name"),  # nor here
        (b"ID,name,qty\n", CSV, "it lacks the column id of the schema; the schema does not name the column ID"),
        (HEADER + b"1,\xff,2\n", CSV, "not UTF-8"),
        (HEADER + "1,é".encode()[:-1] + b"\n", CSV, "not UTF-8"),
        (b'{"id": 1}\n{"id"', JSON, "no end"),
        (b'id\r\n1\r"2"\n', RawFormat(FileFormat.CSV, "id INT"), "end in CR LF and in LF"),
        (b"li", TEXT, "no end"),
        (b"line\n\xc3", RawFormat(FileFormat.TEXT, line_end=False), "not UTF-8"),
        (b"PAR1....PAR", PARQUET, "no whole Parquet"),
        (b"PAR1PAR1", PARQUET, "no whole Parquet"),
        (b"id,name", PARQUET, "no whole Parquet"),
    ],
)
def test_bad_files_are_reported_with_the_reason(tmp_path, content, raw, why):
    """Most of these Spark reads without a word, even under FAILFAST (tried)."""
    assert why in check(tmp_path, content, raw)


TWO = "id STRING, name STRING"
DIALECTS = {
    "escape": RawFormat(FileFormat.CSV, TWO, {"escape": "\\"}),
    "comment": RawFormat(FileFormat.CSV, TWO, {"comment": "#"}),
    "separator": RawFormat(FileFormat.CSV, TWO, {"sep": "||"}),
    "tab": RawFormat(FileFormat.CSV, TWO, {"sep": r"\t"}),
    "all": RawFormat(FileFormat.CSV, TWO, {"sep": "||", "escape": "\\", "comment": "#"}),
}


@pytest.mark.parametrize(
    ("dialect", "content", "why"),
    [
        ("escape", r'1,"a\"b"' + "\n", ""),
        ("escape", r'1,"a\\"' + "\n", ""),
        ("escape", '1,"a\nb\\"\nc"\n', ""),
        ("escape", r'1,"a""b"' + "\n", "line 2: a quote stands within a field"),
        ("escape", r"1,a\"b" + "\n", "line 2: a quote stands within a field"),
        ("escape", r'1,"a\"' + "\n2,b\n", "line 2: a quote is opened and never closed"),
        ("comment", '# it\'s 5" long\n1,"a\n# b"\n', ""),
        ("comment", '#"\n1,a"b\n', "line 3: a quote stands within a field"),
        ("separator", '1||"a|b"\n', ""),
        ("separator", '1||"a||b\n"||"c"\n', ""),
        ("separator", '1|"a|b"\n', "line 2: a quote stands within a field"),
        ("separator", '1||"a|b\n', "line 2: a quote is opened and never closed"),
        ("tab", '1\t"a\tb"\n', ""),
        ("tab", '1\t5"\n', "line 2: a quote stands within a field"),
        ("all", '#"\n1||"a\\"\n#"\n', ""),
        ("all", '#"\n1||"a\\"b\n', "line 3: a quote is opened and never closed"),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 1 << 20])
def test_quotes_are_checked_whatever_the_options_say(tmp_path, monkeypatch, dialect, content, why, size):
    """With an escape, comments or a separator of several characters no quote was checked."""
    monkeypatch.setattr(contents, "CHUNK_BYTES", size)
    raw = DIALECTS[dialect]

    found = check(tmp_path, (raw.separator.join(("id", "name")) + "\n" + content).encode(), raw)

    assert why in found if why else found == ""


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"sep": ';"'}, "holds a quote"),
        ({"sep": r"\x"}, "a backslash"),
        ({"escape": "ab"}, "escape is one character"),
        ({"timestampFormat": "yyyy-MM-dd HH:mm:ss.SSSSSSSSS"}, "more than six S"),
    ],
)
def test_options_that_no_reading_can_follow_are_refused(options, why):
    """Spark would lose digits, or end a field where the user did not mean to."""
    with pytest.raises(BadFormat, match=why):
        App("shop").inbox("orders", "landing", schema=TWO, options=options)


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("id lonng", "column id of the schema has the type 'lonng', which is not known; did you mean 'long'"),
        ("id INT, at TIMSTAMP NOT NULL", "column at .* did you mean 'timestamp'"),
        ("name text", "column name .* use one of Spark's DDL"),
        ("a ARRAY<STRUCT<x: INT, y: strng>>", "column a .* did you mean 'string'"),
        ("m map<strng, int>", "column m .* 'strng'"),
        ("id 'int'", "column id .* \"'int'\""),
    ],
)
def test_a_type_that_spark_does_not_have_is_refused(schema, why):
    """The app was deployed, and each of its runs failed until a person had read the log of one."""
    with pytest.raises(BadFormat, match=why):
        App("shop").inbox("orders", "landing", schema=schema)


def test_each_type_of_spark_is_taken():
    """A type that is refused here could not be used at all."""
    schema = (
        "a boolean, b TINYINT, c byte, d smallint, e short, f int, g integer, h bigint, i long, j float, k real, "
        "l double, m date, n time(6), o timestamp, p timestamp_ntz, q timestamp_ltz, r string COLLATE UTF8_LCASE, "
        "s binary, t decimal(10,2), u dec, v numeric, w void, x interval day to second, y variant, `z 1` int NOT NULL, "
        "aa struct<x: array<map<string, long>>, y int>, bb struct<>, cc int COMMENT 'none'"
    )

    assert "orders" in App("shop").inbox("orders", "landing", schema=schema, format="json").name


@pytest.mark.parametrize("file_format", ["text", "json"])
def test_an_inbox_without_a_schema_has_no_type_to_refuse(file_format):
    """Text takes no schema, and JSON needs none."""
    assert App("shop").inbox("orders", "landing", format=file_format).name == "orders"


def test_a_catalog_may_hold_what_a_declaration_may_not():
    """An inbox of an earlier version must not stop the listing of all others."""
    with pytest.raises(BadFormat, match="use STRING"):
        App("shop").inbox("orders", "landing", schema="id VARCHAR(3)")
    earlier = InboxSpec(RawFormat(FileFormat.CSV, "id VARCHAR(3)"))
    assert read_plain(InboxSpec, write_plain(earlier)) == earlier


def test_a_file_cut_at_any_byte_is_found(tmp_path):
    """Wherever a transfer broke off: only a cut between two lines leaves a file that is whole as it stands."""
    content = HEADER + b"1,abc,10.25\n22,d,7\n"

    found = [bool(check(tmp_path, content[:length])) for length in range(len(content) + 1)]

    assert [n for n, bad in enumerate(found) if not bad] == [0, 12, 24, 31]


def test_packed_files_are_looked_into(tmp_path):
    """Spark unpacks them by their name; cut ones give it no row that is wrong, but here the reason is clear."""
    packed = gzip.compress(HEADER + b"1,a,2\n") + gzip.compress(b"2,b,3\n")

    assert check(tmp_path, packed, name="x.csv.gz") == ""
    assert "cannot be unpacked" in check(tmp_path, packed[:-9], name="x.csv.gz")
    assert "no end" in check(tmp_path, gzip.compress(HEADER + b"1"), name="x.csv.gz")
    assert "cannot be unpacked" in check(tmp_path, HEADER, name="x.csv.gz")


def test_a_character_across_two_reads_is_whole(tmp_path, monkeypatch):
    """Files are read in parts; where a part ends is no boundary of characters or of the header."""
    for size in range(1, 9):
        monkeypatch.setattr(contents, "CHUNK_BYTES", size)
        assert check(tmp_path, HEADER + "1,éé日本,2\n".encode()) == ""


@pytest.mark.parametrize(
    ("content", "raw", "text", "line"),
    [
        (
            HEADER + b"1,a,2\n" + HEADER,
            CSV,
            "id,name,qty",
            3,
        ),  # two files made one: the header is no bad row, its copy is
        (b"\n" + HEADER + HEADER, CSV, "id,name,qty", 3),
        (HEADER, replace(CSV, options={"header": "false"}), "id,name,qty", 1),
        (b"\xef\xbb\xbfx\n{}\n", JSON, "x", 1),
    ],
)
def test_the_line_of_a_bad_row_is_found(tmp_path, content, raw, text, line):
    """Each place that is found becomes a reject, and counts in the balance."""
    files = open_files(tmp_path, World())
    files.put("file", content)

    assert find_rows(files, "file", len(content), raw, {text}) == [BadText(line, text, text)]
