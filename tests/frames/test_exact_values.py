"""Values of text formats against the declared type: read unchanged, or a bad row. No value changes in silence."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal

import pytest
from pyspark.sql import Row

from tests.frames.test_read_files import land, read
from tidemill.frames.bad_rows import find_bad_files, list_bad_rows
from tidemill.frames.raw_rows import BAD, RawFiles, classify
from tidemill.frames.spark import spark_errors
from tidemill.shapes.formats import FileFormat, RawFormat, blame, reason
from tidemill.world import World

pytestmark = pytest.mark.spark

BAD_ROW = "a bad row"
DAY = date(2021, 2, 3)
TEN = datetime(2021, 2, 3, 10, tzinfo=UTC)
TEN_NTZ = datetime(2021, 2, 3, 10)  # noqa: DTZ001  # a TIMESTAMP_NTZ has no zone
MICROS = TEN.replace(microsecond=123456)

DEEP = "STRUCT<a: DECIMAL(10,2), l: ARRAY<DATE>>"
UTC_TEXTS = {"timeZone": "UTC"}
# Declared type, text of the field, and the value, or that the row is bad.
OF_CSV = [
    ("DECIMAL(10,2)", "1.23", Decimal("1.23")),
    ("DECIMAL(10,2)", "-1.2300", Decimal("-1.23")),
    ("DECIMAL(10,2)", "+.5", Decimal("0.50")),
    ("DECIMAL(10,2)", "5.", Decimal("5.00")),
    ("DECIMAL(10,2)", "1e3", Decimal("1000.00")),
    ("DECIMAL(10,2)", "1500e-3", Decimal("1.50")),
    ("DECIMAL(10,2)", "0E-8", Decimal("0.00")),
    ("DECIMAL(10,2)", "1.239", BAD_ROW),
    ("DECIMAL(10,2)", "1.5e-2", BAD_ROW),
    ("DECIMAL(10,2)", "1.2300000000000000000000000000000000000001", BAD_ROW),
    ("DECIMAL(10,2)", "1e400", BAD_ROW),
    ("DECIMAL(10,2)", "1e-400", BAD_ROW),
    ("DECIMAL(10,2)", "123456789.00", BAD_ROW),
    ("DECIMAL(10,2)", "1,5", BAD_ROW),
    ("DECIMAL(10,2)", "1,234.50", BAD_ROW),
    ("DECIMAL(10,2)", " 1.5", BAD_ROW),
    ("DECIMAL(10,2)", "\uff11", BAD_ROW),
    ("DECIMAL(10,2)", "NaN", BAD_ROW),
    ("DECIMAL(10,2)", "1.5\n", BAD_ROW),
    ("DECIMAL(38,18)", "1.000000000000000001", Decimal("1.000000000000000001")),
    ("DECIMAL(38,18)", "1.0000000000000000001", BAD_ROW),
    ("DOUBLE", "1.5", 1.5),
    ("DOUBLE", "12345678901234567890", 12345678901234567890.0),
    ("DOUBLE", "NaN", "nan"),
    ("DOUBLE", "-Inf", -math.inf),
    ("DOUBLE", "Infinity", math.inf),
    ("DOUBLE", "1e400", BAD_ROW),
    ("DOUBLE", "1d", BAD_ROW),
    ("DOUBLE", "0x1p3", BAD_ROW),
    ("DOUBLE", " 1.5 ", BAD_ROW),
    ("DOUBLE", "1,5", BAD_ROW),
    ("FLOAT", "0.5", 0.5),
    ("FLOAT", "-1e39", BAD_ROW),
    ("INT", "+1", 1),
    ("INT", "007", 7),
    ("INT", "1.0", BAD_ROW),
    ("INT", "1e3", BAD_ROW),
    ("INT", " 1", BAD_ROW),
    ("INT", "2147483648", BAD_ROW),
    ("BIGINT", "9223372036854775807", 9223372036854775807),
    ("BIGINT", "9223372036854775808", BAD_ROW),
    ("BOOLEAN", "TRUE", True),
    ("BOOLEAN", "yes", BAD_ROW),
    ("BOOLEAN", "1", BAD_ROW),
    ("DATE", "2021-02-03", DAY),
    ("DATE", "2021-2-3", DAY),
    ("DATE", "2021-02-30", BAD_ROW),
    ("DATE", "2021-02", BAD_ROW),
    ("DATE", "2021", BAD_ROW),
    ("DATE", "2021-02-03 10:00:00", BAD_ROW),
    ("DATE", "2021-02-03 x", BAD_ROW),
    ("TIMESTAMP", "2021-02-03 10:00:00", TEN),
    ("TIMESTAMP", "2021-02-03T12:00:00+02:00", TEN),
    ("TIMESTAMP", "2021-02-03T10:00:00Z", TEN),
    ("TIMESTAMP", "2021-02-03 11:00:00 Europe/Berlin", TEN),
    ("TIMESTAMP", "2021-02-03", TEN.replace(hour=0)),
    ("TIMESTAMP", "2021-02-03T10:00:00.123456000Z", MICROS),
    ("TIMESTAMP", "2021-02-03T10:00:00.1234567", BAD_ROW),
    ("TIMESTAMP", "2021-02-03 25:00:00", BAD_ROW),
    ("TIMESTAMP", "10:30", BAD_ROW),
    ("TIMESTAMP", "2021", BAD_ROW),
    ("TIMESTAMP_NTZ", "2021-02-03T10:00:00", TEN_NTZ),
    ("TIMESTAMP_NTZ", "2021-02-03T10:00:00Z", BAD_ROW),
    ("TIMESTAMP_NTZ", "2021-02-03T10:00:00+02:00", BAD_ROW),
    ("TIMESTAMP_NTZ", "2021-02-03T10:00:00.1234567", BAD_ROW),
    ("STRING", "  a ", "  a "),
    ("DECIMAL(10,2) NOT NULL", "1.239", BAD_ROW),
]  # fmt: skip

# Declared type, JSON of the value, and the value, or that the row is bad.
OF_JSON = [
    ("DECIMAL(10,2)", "1.2300", Decimal("1.23")),
    ("DECIMAL(10,2)", "1e3", Decimal("1000.00")),
    ("DECIMAL(10,2)", "0E-8", Decimal("0.00")),
    ("DECIMAL(10,2)", '"1.50"', Decimal("1.50")),
    ("DECIMAL(10,2)", "1.239", BAD_ROW),
    ("DECIMAL(10,2)", "1.2300000000000000000000000000000000000001", BAD_ROW),
    ("DECIMAL(10,2)", '"1,5"', BAD_ROW),
    ("DECIMAL(10,2)", '"1.239"', BAD_ROW),
    ("DECIMAL(10,2)", "1e400", BAD_ROW),
    ("DECIMAL(10,2)", "123456789", BAD_ROW),
    ("DECIMAL(10,2)", "true", BAD_ROW),
    ("DECIMAL(38,18)", "1.0000000000000000001", BAD_ROW),
    ("DOUBLE", "1e3", 1000.0),
    ("DOUBLE", "12345678901234567890", 12345678901234567890.0),
    ("DOUBLE", "1e400", BAD_ROW),
    ("DOUBLE", "-1e400", BAD_ROW),
    ("DOUBLE", '"1.5"', BAD_ROW),
    ("DOUBLE", "NaN", BAD_ROW),
    ("DOUBLE", "Infinity", BAD_ROW),
    ("DOUBLE", '"NaN"', BAD_ROW),
    ("FLOAT", "1e39", BAD_ROW),
    ("INT", "1.0", BAD_ROW),
    ("INT", "1e3", BAD_ROW),
    ("INT", '"1"', BAD_ROW),
    ("INT", "2147483648", BAD_ROW),
    ("INT", "007", BAD_ROW),
    ("BIGINT", "9223372036854775808", BAD_ROW),
    ("BOOLEAN", "true", True),
    ("BOOLEAN", '"true"', BAD_ROW),
    ("BOOLEAN", "1", BAD_ROW),
    ("DATE", '"2021-2-3"', DAY),
    ("DATE", '"2021-02-30"', BAD_ROW),
    ("DATE", '"2021-02-03 x"', BAD_ROW),
    ("DATE", '"18000"', BAD_ROW),
    ("TIMESTAMP", '"2021-02-03T12:00:00+02:00"', TEN),
    ("TIMESTAMP", '"2021-02-03T10:00:00.1234567"', BAD_ROW),
    ("TIMESTAMP", '"10:30"', BAD_ROW),
    ("TIMESTAMP", "1612345678", BAD_ROW),
    ("TIMESTAMP_NTZ", '"2021-02-03T10:00:00Z"', BAD_ROW),
    ("STRING", '" a\\u0000\\ud83d\\ude00 "', " a\0😀 "),
    ("STRING", '"\\\\ud800"', "\\ud800"),
    ("STRING", '"\\ud800"', BAD_ROW),
    ("STRING", '"a\\udc00"', BAD_ROW),
    ("STRING", "5", "5"),
    ("STRING", "12345678901234567890", "12345678901234567890"),
    ("STRING", "1.10", "1.10"),
    ("STRING", "12345678901234567890.1234567890123", "12345678901234567890.1234567890123"),
    ("STRING", "1e400", "1e400"),
    ("STRING", '"1.10"', "1.10"),
    ("STRING", '{"b": 1.10, "a": "1.10 \\" x"}', '{"b":1.10,"a":"1.10 \\" x"}'),
    ("STRING", "[1e400, 2.50]", "[1e400,2.50]"),
    ("STRUCT<a: INT>", '{"a": 1, "a": 2}', BAD_ROW),
    (DEEP, '{"a": 1.5, "l": ["2021-02-03", null]}', (Decimal("1.50"), [DAY, None])),
    (DEEP, '{"a": 1.505}', BAD_ROW),
    (DEEP, '{"l": ["2021"]}', BAD_ROW),
    ("ARRAY<DOUBLE>", "[1.5, 1e400]", BAD_ROW),
    ("ARRAY<STRING>", '[1.10, "a", null]', ["1.10", "a", None]),
    ("MAP<STRING, DECIMAL(10,2)>", '{"a": 1.5, "b": null}', {"a": Decimal("1.50"), "b": None}),
    ("MAP<STRING, DECIMAL(10,2)>", '{"a": 1.505}', BAD_ROW),
    ("MAP<STRING, INT>", '{"a": 1, "a": 2}', BAD_ROW),
]  # fmt: skip


def outcomes(spark, folder, file_format, cases) -> list:
    """Read one row for each case, in which only the column of its type has a value; one Spark job for all."""
    types = sorted({declared for declared, *_ in cases})
    column = {declared: f"c{place}" for place, declared in enumerate(types)}
    schema = ", ".join(f"{name} {declared}" for declared, name in column.items())
    if file_format is FileFormat.CSV:
        cells = [[f'"{text}"' if declared == one else "" for one in types] for declared, text, _ in cases]
        lines = [",".join(column.values()), *map(",".join, cells)]
    else:
        lines = [f'{{"{column[declared]}": {text}}}' for declared, text, _ in cases]
    content = "".join(f"{line}\n" for line in lines)
    rows = classify(
        RawFiles.of(World(), spark, *land(folder, RawFormat(file_format, schema, UTC_TEXTS), {"all": content}))
    ).collect()
    assert len(rows) == len(cases)
    return [
        BAD_ROW if row[BAD] is not None else plain(row[column[declared]])
        for row, (declared, *_) in zip(rows, cases, strict=True)
    ]


def plain(value: object) -> object:
    """A value that can be compared: PySpark's TIMESTAMP is the local time of the process."""
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return tuple(value) if isinstance(value, Row) else value


@pytest.mark.parametrize(("file_format", "cases"), [(FileFormat.CSV, OF_CSV), (FileFormat.JSON, OF_JSON)])
def test_a_value_is_read_unchanged_or_its_row_is_bad(spark, tmp_path, file_format, cases):
    """Spark's parsers round, cut, complete and overflow in silence (tried, 4.3): 1.239, `1,5`, `10:30`, 1e400."""
    found = outcomes(spark, tmp_path, file_format, cases)

    expected = [
        value.astimezone().replace(tzinfo=None) if isinstance(value, datetime) and value.tzinfo else value
        for *_, value in cases
    ]
    differing = [(case, one) for case, one, wanted in zip(cases, found, expected, strict=True) if one != wanted]
    assert not differing, differing


@pytest.mark.parametrize(
    ("file_format", "content", "bad", "reason_of_both"),
    [
        (
            FileFormat.CSV,
            'id,price,n\n"1","1.5",1\n2,1.239,2\n3,"a",3\n"2",1.239,2\n5,1e400,x\n',
            [(3, "2,1.239,2"), (4, '3,"a",3'), (5, '"2",1.239,2'), (6, "5,1e400,x")],
            "price is no DECIMAL(10,2): 1.239",
        ),
        (
            FileFormat.JSON,
            '{"id": 1, "price": 1.5}\n{"id": 2, "price": 1.239}\n',
            [(2, '{"id": 2, "price": 1.239}')],
            "price is no DECIMAL(10,2)",
        ),
    ],
)
def test_a_value_that_would_change_is_named_with_its_line(spark, tmp_path, file_format, content, bad, reason_of_both):
    """A strict read fails and names the file; rows that are rejected have line, text and reason."""
    good = "id,price,n\n" if file_format is FileFormat.CSV else ""
    raw = RawFormat(file_format, "id INT, price DECIMAL(10,2), n INT")
    source = RawFiles.of(World(), spark, *land(tmp_path, raw, {"a": content, "good": good}))

    rows = list_bad_rows(source)
    (found,) = find_bad_files(source).values()
    with pytest.raises(spark_errors()) as caught:
        read(spark, tmp_path, raw, {"a": content}).select("id").collect()

    assert [(row.line, row.text) for row in next(iter(rows.values()))] == bad
    assert reason_of_both in str(found)
    assert blame(str(caught.value), ["a"], lambda name: str(tmp_path / name)) == "a"
    assert reason_of_both in reason(str(caught.value))


def test_a_decimal_is_written_as_its_locale_says(spark, tmp_path):
    """Spark takes 1.5 for 15 in German, where a point stands between thousands."""
    raw = RawFormat(FileFormat.CSV, "price DECIMAL(10,2)", {"locale": "de-DE", "sep": ";"})
    content = "price\n" + "".join(f"{text}\n" for text in ("1,5", "1.234,50", "1234", "1.5", "1,239", "1,2,3"))

    rows = classify(RawFiles.of(World(), spark, *land(tmp_path, raw, {"a": content}))).collect()

    found = [None if row[BAD] else row.price for row in rows]
    assert found == [Decimal("1.50"), Decimal("1234.50"), Decimal("1234.00"), None, None, None]
