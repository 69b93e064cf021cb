"""Formats are declared so that they can be read strictly; an error of Spark names the file that it is about."""

from __future__ import annotations

import pytest

from tidemill.shapes.formats import BadFormat, FileFormat, RawFormat, blame, column_names, reason


@pytest.mark.parametrize(
    ("schema", "names"),
    [
        ("id INT, name STRING", ["id", "name"]),
        ("a: INT, b DECIMAL(10, 2),c MAP<STRING, ARRAY<INT>>", ["a", "b", "c"]),
        ("`a b` INT, `c,``d` STRING NOT NULL COMMENT 'x'", ["a b", "c,`d"]),
    ],
)
def test_names_are_read_from_a_schema(schema, names):
    """The header is compared with them, without Spark."""
    assert column_names(schema) == names


@pytest.mark.parametrize(
    ("file_format", "schema", "options", "why"),
    [
        (FileFormat.CSV, None, {}, "needs a schema"),
        (FileFormat.CSV, "id", {}, "is not `name TYPE"),
        (FileFormat.CSV, "id INT,", {}, "is not `name TYPE"),
        (FileFormat.CSV, "id INT", {"mode": "PERMISSIVE"}, "'mode' is not known"),
        (FileFormat.CSV, "id INT", {"seperator": ";"}, "not known"),
        (FileFormat.CSV, "id INT", {"nulValue": "NA"}, "did you mean 'nullValue'"),
        (FileFormat.TEXT, "value STRING", {}, "takes no schema"),
    ],
)
def test_a_format_that_cannot_be_read_strictly_is_refused(file_format, schema, options, why):
    """At the declaration, not when the first file has come."""
    with pytest.raises(BadFormat, match="files of format") as caught:
        RawFormat(file_format, schema, options)

    assert why in str(caught.value)


@pytest.mark.parametrize(
    ("shown", "path"),
    [
        ("file:///in/b.csv", "/in/b.csv"),
        ("file:/in/b.csv", "/in/b.csv"),
        ("file:///in/mal%20f%2520or.m%20d.csv", "/in/mal f%20or.m d.csv"),
        ("file:///in/é.csv", "/in/é.csv"),
        ("file:///in/b.csv. Data", "/in/b.csv. Data"),
        ("file:///in/10:30{a}.csv", "/in/10:30{a}.csv"),
        ("file:///in/10:30%7Ba%7D.csv", "/in/10:30{a}.csv"),
    ],
)
def test_the_file_that_an_error_names_is_recognised(shown, path):
    """As Spark 4.3 writes its path: partly escaped (tried)."""
    files = ["/in/a.csv", "/in/b.csv", "/in/b", "/b.csv", path]
    error = f"x: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file {shown}.  SQLSTATE: KD001\n\tat org"

    assert blame(error, files, lambda file: file) == path


def test_an_error_of_the_program_blames_no_file():
    """Then halves find it; and a file of another inbox is not ours to blame."""
    other = "Encountered error while reading file file:///other/b.csv.  SQLSTATE: KD001"

    assert blame("ValueError: /in/b.csv", ["/in/b.csv"], lambda file: file) is None
    assert blame(other, ["/in/b.csv"], lambda file: file) is None


def test_the_reason_is_the_innermost_cause_in_one_line():
    """A page of Java is no reason."""
    error = (
        "An error occurred while calling o1.count.\n"
        ": org.apache.spark.SparkException: [FAILED_READ_FILE] Encountered error\n\tat a.b.c(d)\n"
        "Caused by: org.apache.spark.SparkException: [MALFORMED_RECORD] Malformed records: [2,b,null].\n\tat x\n"
        'Caused by: java.lang.NumberFormatException: For input string: "x"\n\tat y\n'
    )

    assert reason(error) == 'For input string: "x"'
    assert reason("ValueError: boom\nmore") == "boom"
    assert reason("something else\nmore") == "something else"
