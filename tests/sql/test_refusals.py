# ruff: noqa: E501  # statements on one line each, as a table
"""Refusals of statements: each says what is wrong, where, and what is allowed."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

import tidemill
from tidemill.errors import StatementPlace, UserError
from tidemill.mill.mill import Mill, open_project
from tidemill.storage.files import StorageUnavailable
from tidemill.world import World

OPTIONS = (
    "'streaming-source.enable'='true', 'partition.time-interval'='1h', "
    "'partition.time-extractor.timestamp-pattern'='$day $hour:00:00'"
)
TIMED = "ts timestamp, a bigint, WATERMARK FOR ts AS SOURCE_WATERMARK"
SETUP = f"""
CREATE TABLE clicks ({TIMED}) PARTITIONED BY (day date, hour int) WITH ({OPTIONS});
CREATE TABLE views ({TIMED}) PARTITIONED BY (day date, hour int) WITH ({OPTIONS}, 'partition.late-policy'='drop');
CREATE TABLE abroad ({TIMED}) PARTITIONED BY (day date, hour int) WITH ({OPTIONS}, 'window.time-zone'='Asia/Tokyo');
CREATE TABLE skips ({TIMED}) PARTITIONED BY (day date, hour int) WITH ({OPTIONS}, 'window.partial-first'='skip');
CREATE TABLE empties ({TIMED}) PARTITIONED BY (day date, hour int) WITH ({OPTIONS}, 'window.emit-empty'='true');
CREATE TABLE plain (ts timestamp, a bigint) PARTITIONED BY (day date);
CREATE TABLE o (a bigint) PARTITIONED BY (day date);
CREATE TABLE local (ts timestamp_ntz, a bigint, WATERMARK FOR ts AS SOURCE_WATERMARK)
  PARTITIONED BY (day date) WITH ('streaming-source.enable'='true', 'partition.time-interval'='1d');
CREATE TABLE counts (window_start timestamp_ntz, n bigint, d decimal(10,2)) PARTITIONED BY (day string);
CREATE TABLE timed (window_end timestamp_ntz, window_time timestamp, n bigint, WATERMARK FOR window_time AS SOURCE_WATERMARK)
  PARTITIONED BY (day date) WITH ('streaming-source.enable'='true', 'partition.time-interval'='1d');
CREATE TABLE started (window_start timestamp, n bigint, WATERMARK FOR window_start AS SOURCE_WATERMARK)
  PARTITIONED BY (day date) WITH ('streaming-source.enable'='true', 'partition.time-interval'='1d');
CREATE TABLE waits (window_time timestamp, n bigint, WATERMARK FOR window_time AS SOURCE_WATERMARK)
  PARTITIONED BY (day date)
  WITH ('streaming-source.enable'='true', 'partition.time-interval'='1d', 'partition.gap-policy'='wait');
CREATE TABLE drops (window_time timestamp, n bigint, WATERMARK FOR window_time AS SOURCE_WATERMARK)
  PARTITIONED BY (day date)
  WITH ('streaming-source.enable'='true', 'partition.time-interval'='1d', 'partition.late-policy'='drop');
INSERT INTO timed SELECT window_end, window_time, count(*) AS n, to_date(window_end) AS day
  FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR)) GROUP BY window_start, window_end, window_time;
"""
HOUR = "TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
SESSION = "TABLE(SESSION(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
UNITED = (
    "TABLE(TUMBLE((SELECT ts, a FROM clicks UNION ALL SELECT ts, a FROM views), DESCRIPTOR(ts), INTERVAL '1' HOUR))"
)
OF_DAY = "to_date(window_start) AS day"
BOTH = "l.window_start = r.window_start AND l.window_end = r.window_end"
JOIN = "FROM clicks l\n JOIN views r ON l.ts BETWEEN r.ts AND r.ts + INTERVAL '1' HOUR"
L, R = f"(SELECT * FROM {HOUR}) l", f"(SELECT * FROM {HOUR}) r"


def insert(query: str, table: str = "o") -> str:
    """Return an INSERT of two lines."""
    return f"INSERT INTO {table}\nSELECT {query}"


def into_counts(columns: str, day: str = "date_format(window_start, 'yyyy')") -> str:
    """Return an INSERT into `counts`."""
    return insert(f"window_start, {columns}, {day} AS day FROM {HOUR} GROUP BY window_start", "counts")


def of_day(rows: str) -> str:
    """Return an INSERT of the windows of rows, with the key of the output."""
    return insert(f"window_start, {OF_DAY} FROM {rows}")


REFUSED: Final = (
    # reading
    ("ALTER TABLE clicks\nSET ('a", "2:6 the quote ' has no end"),
    ("DESCRIBE clicks /* and", "1:22 the statement cannot be read: Error tokenizing 'DESCRIBE"),
    ("CREATE TABEL t (x int)", "1:12 TABLE is wanted, not 'TABEL': did you mean TABLE?"),
    ("ALTER TABLE clicks SETT ('a'='b')", "1:23 ADD or MODIFY or DROP or SET or RESET is wanted, not"),
    ("CREATE TABLE t (x 5)", "1:19 a type is wanted, not '5'"),
    ("ALTER TABLE clicks SET (a='b')", "1:25 an option in quotes is wanted, not 'a'"),
    ("CREATE TABLE t (x decimal(a)) PARTITIONED BY (d date)", "1:27 a number is wanted, not 'a'"),
    ("CREATE TABLE t (x int) PARTITIONED BY (d date", "1:45 ) is wanted after 'date', where the statement ends"),
    ("DROP TABLE a.b.c", "1:14 a table has a name, or a namespace and a name as in 'a.b': no third part"),
    ("CREATE TABLE `we ird` (x int) PARTITIONED BY (d date)", "1:21 a table is wanted, not 'we ird'"),
    ("DESCRIBE clicks now", "1:19 the end of the statement is wanted, not 'now'"),
    ("CREATE TABLE t (x ARRAY) PARTITIONED BY (d date)", "1:24 < is wanted, not ')'"),
    ("CREATE TABLE t (x MAP<int>) PARTITIONED BY (d date)", "1:26 , is wanted, not '>'"),
    ("CREATE TABLE t (ts TIMESTAMP WITH TIME ZONE) PARTITIONED BY (d date)", "1:38 LOCAL is wanted, not 'TIME'"),
    ("DELETE FROM clicks", "1:6 SELECT or WITH or INSERT or EXPLAIN or CREATE or"),
    ("EXPLAIN DROP TABLE o", "1:12 SELECT or WITH or INSERT is wanted, not 'DROP'"),
    ("DROP TABEL o", "1:10 TABLE or PROGRAM is wanted, not 'TABEL': did you"),
    ("SHOW TABLES IN 5", "1:16 a namespace is wanted, not '5'"),
    ("SHOW TABLES\nFROM defualt", "2:12 no namespace named 'defualt'; did you mean 'default'? there are default"),
    (
        "CREATE TABLE t (x int) PARTITIONED BY (d date)\nWITH ('path'='')",
        "2:12 table default.t: its path is empty: name",
    ),
    (
        "CREATE TABLE t (x int) PARTITIONED BY (d date)\nWITH ('path'='s4://x')",
        "2:12 location 's4://x' has the scheme 's4'",
    ),
    ("SET 'parallelism' = '3'", "1:17 there is no setting parallelism: write SET TIME ZONE '…', or the same as"),
    ("SET spark.sql.ansi.enabled = 'true'", "1:26 there is no setting spark.sql.ansi.enabled: write"),
    ("SET TIME ZONE LOCAL", "1:19 a time zone in quotes is wanted, not 'LOCAL'"),
    ("SET TIME ZONE\n'Europe/Berlim'", "2:15 there is no such zone; did you mean 'Europe/Berlin'?"),
    ("CREATE TABLE", "1:12 a table is wanted after 'TABLE', where the statement ends"),
    # tables
    ("CREATE TABLE t (x int,\nx date) PARTITIONED BY (d date)", "2:1 the column x stands there twice"),
    ("CREATE TABLE t (s STRUCT<a int, A int>) PARTITIONED BY (d date)", "1:33 the field A stands there twice"),
    ("CREATE TABLE t (x nit) PARTITIONED BY (d date)", "1:21 the type NIT is not known: did you mean INT?"),
    (
        "CREATE TABLE t (ts timestamp(9)) PARTITIONED BY (d date)",
        "1:31 TIMESTAMP(9) is finer than a microsecond: use 6 at most",
    ),
    ("CREATE TABLE t (ts timestamp)", "1:29 the table needs PARTITIONED BY (…): a watermark follows"),
    (
        "CREATE TABLE t (ts timestamp) PARTITIONED BY (dd)",
        "1:48 the key dd is no column: give its type: PARTITIONED BY",
    ),
    ("CREATE TABLE t (x double) PARTITIONED BY (x)", "1:43 the key x has the type double: use date, int, long,"),
    (
        "CREATE TABLE t (x int) PARTITIONED BY (d date)\nWITH ('a'='1', 'a'='2')",
        "2:19 the option 'a' stands there twice",
    ),
    (
        "CREATE TABLE t (ts timestamp, WATERMARK FOR t AS SOURCE_WATERMARK) PARTITIONED BY (d date)",
        "1:45 the watermark is for t, which is no column: did you mean",
    ),
    (
        "CREATE TABLE t (x int, WATERMARK FOR x AS SOURCE_WATERMARK) PARTITIONED BY (d date)",
        "1:38 the watermark is for x, of type integer: it must be",
    ),
    (
        "CREATE TABLE t (ts timestamp, WATERMARK FOR ts AS ts - 5) PARTITIONED BY (d date)",
        "1:49 SOURCE_WATERMARK is wanted: watermarks by an expression",
    ),
    (
        "CREATE TABLE t (ts timestamp, WATERMARK FOR ts AS SOURCE_WATERMARK, WATERMARK FOR ts AS SOURCE_WATERMARK)",
        "1:67 a table has one watermark",
    ),
    ("CREATE TABLE clicks (x int) PARTITIONED BY (d date)", "1:19 it exists already: write CREATE TABLE IF NOT EXISTS"),
    (
        "CREATE TABLE t (x int) PARTITIONED BY (d date) WITH (\n'partition.time-intervall'='1h')",
        "2:26 option 'partition.time-intervall'='1h' is refused: there",
    ),
    (
        "CREATE TABLE t (x int) PARTITIONED BY (d date) WITH (\n'partition.late-policy'='sometimes')",
        "2:23 option 'partition.late-policy'='sometimes' is refused:",
    ),
    (
        "CREATE TABLE t (x int) PARTITIONED BY (d date) WITH (\n'table.exec.source.idle-timeout'='soon')",
        "2:32 option 'watermark.idle-timeout'='soon' is refused: use a",
    ),
    (
        f"CREATE TABLE t ({TIMED}) PARTITIONED BY (d date) WITH ('streaming-source.enable'='true')",
        "1:14 option 'partition.time-interval'='' is refused: a",
    ),
    (
        "CREATE TABLE t (x int) PARTITIONED BY (d date) STORED AS parkett",
        "1:53 option 'format'='parkett' is refused: use one of parquet,",
    ),
    (
        "CREATE TABLE t (x int) PARTITIONED BY (d date) WITH (\n'connector'='kafka')",
        "2:11 option 'connector'='kafka' is refused: use one of",
    ),
    (
        "CREATE TABLE t (x int) PARTITIONED BY (d date) WITH ('partition.time-interval'='1h',\n'partition.completeness'='metastore')",
        "2:24 'partition.completeness' names the metastore, and the",
    ),
    (
        "ALTER TABLE clicks SET (\n'partition.completeness'='success-file')",
        "2:24 'partition.completeness' names success-file, and no listing looks for that file: commits bring the partitions. Use",
    ),
    (
        "CREATE TABLE t (ts timestamp(3), WATERMARK FOR ts AS SOURCE_WATERMARK) PARTITIONED BY (d date)\nWITH ('partition.time-zone'='Europe/Berlin')",
        "1:49 the watermark cannot be for ts: it is TIMESTAMP_NTZ,",
    ),
    (
        "ALTER TABLE local\nSET ('partition.time-zone'='Europe/Berlin')",
        "2:26 the watermark cannot be for ts: it is TIMESTAMP_NTZ,",
    ),
    (
        "CREATE TABLE t (format int) PARTITIONED BY (d date)\nWITH ('connector'='filesystem',\n'format'='avro')",
        "3:8 option 'format'='avro' is refused: use one of",
    ),
    (
        "CREATE TABLE t (path string) PARTITIONED BY (d date)\nWITH ('path'='s4://x')",
        "2:12 location 's4://x' has the scheme 's4'",
    ),
    (
        "ALTER TABLE plain ADD WATERMARK\nFOR plain AS SOURCE_WATERMARK",
        "2:9 the watermark cannot be for plain: there is no such column",
    ),
    ("CREATE TABLE t (x int) PARTITIONED BY (d date,\nD date)", "2:1 the key D stands there twice"),
    ("CREATE TABLE t (a int) PARTITIONED BY (A bigint)", "1:40 the key A is a column already: leave out its type here"),
    (
        "ALTER TABLE plain ADD WATERMARK FOR a AS SOURCE_WATERMARK",
        "1:37 the watermark cannot be for a: it is of type long;",
    ),
    (
        "ALTER TABLE plain ADD WATERMARK FOR day AS SOURCE_WATERMARK",
        "1:39 option 'watermark'='day' is refused: a key of the",
    ),
    (
        "ALTER TABLE clicks ADD WATERMARK FOR ts AS SOURCE_WATERMARK",
        "1:22 it has a watermark for ts already: write MODIFY WATERMARK",
    ),
    (
        "ALTER TABLE plain MODIFY WATERMARK FOR ts AS SOURCE_WATERMARK",
        "1:24 it has no watermark to modify: write ADD WATERMARK",
    ),
    ("ALTER TABLE plain DROP WATERMARK", "1:22 it has no watermark to drop"),
    ("ALTER TABLE plain\nRESET ('partition.time-interval')", "2:32 the option 'partition.time-interval' is not set"),
    ("ALTER TABLE clicks SET (\n'a'='b')", "2:3 option 'a'='b' is refused: there is no such option"),
    (
        "ALTER TABLE clicks SET ('partition.row-lag'='1h',\n'format'='csv')",
        "2:8 the option 'format' is of CREATE TABLE alone: create",
    ),
    ("ALTER TABLE clicks\nRESET ('partition.time-interval')", "2:32 option 'partition.time-interval'='' is refused: a"),
    (
        "ALTER TABLE timed SET (\n'partition.gap-policy'='wait')",
        "2:22 default.sql.timed writes it, and the watermark of",
    ),
    ("ALTER TABLE click DROP WATERMARK", "1:17 no data set named 'default.click'; did you mean"),
    ("DROP TABLE\ntimed", "2:5 it is used by program default.sql.timed"),
    ("DROP PROGRAM\nnothing", "2:7 no program named 'default.sql.nothing'; DROP PROGRAM is"),
    ("DESCRIBE clicks;\nDROP TABLE nothing", "2:18 no data set named 'default.nothing'; did you mean"),
    # a SELECT
    ("SELECT * FROM plain; SELECT a +", "1:31 Required keyword: 'expression' missing for <class"),
    ("SELECT a FROM\nrange(9)", "2:5 FROM must name tables of the catalog"),
    ("SELECT a FROM IDENTIFIER('parquet.`/etc`')", "1:24 FROM must name tables of the catalog"),
    ("SELECT a FROM plain VERSION AS OF 3", "1:19 TABLESAMPLE, VERSION and TIMESTAMP AS OF are not"),
    ("SELECT a FROM plain TABLESAMPLE (10 ROWS)", "1:19 TABLESAMPLE, VERSION and TIMESTAMP AS OF are not"),
    ("WITH x AS (SELECT 1 AS a) DELETE FROM x", "1:6 a query is SELECT … FROM …, or several with UNION ALL"),
    ("EXPLAIN\nSELECT a FROM plain, nothing", "2:28 no data set named 'default.nothing'; did you mean"),
    (
        "EXPLAIN SELECT window_start FROM TABLE(TUMBLE(TABLE plain, DESCRIPTOR(ts), INTERVAL '1' HOUR))",
        "1:57 default.plain has no watermark: declare",
    ),
    # the form of a query of windows
    (f"INSERT OVERWRITE TABLE o SELECT a FROM {HOUR}", "1:24 write INSERT INTO <file set> SELECT …: partitions follow"),
    ("INSERT INTO o VALUES (1, DATE'2021-03-19')", "1:13 a window program is one INSERT INTO <file set> SELECT …"),
    (insert("a FROM clicks"), "2:8 FROM must be a window function of a table:"),
    (insert("1 AS a"), "2:8 FROM must be a window function of a table:"),
    (
        f"INSERT INTO o WITH RECURSIVE x AS (SELECT * FROM {HOUR}) SELECT a FROM x",
        "1:30 WITH RECURSIVE is not supported: a window is computed",
    ),
    (
        f"INSERT INTO o WITH x(b) AS (SELECT a FROM {HOUR}) SELECT b FROM x",
        "1:20 name the columns of a query in its SELECT",
    ),
    (f"INSERT INTO o SELECT b FROM (SELECT a FROM {HOUR}) x(b)", "1:108 name the columns of a query in its SELECT"),
    (f"INSERT INTO o SELECT a FROM {HOUR} UNION ALL VALUES (1)", "1:110 FROM must be a window function of a table:"),
    ("INSERT INTO o SELECT a FROM VALUES (1) x", "1:37 FROM must be a window function of a table:"),
    (
        insert("a FROM TABLE(TUMBLE(TABLE a.b.c, DESCRIPTOR(ts), INTERVAL '1' HOUR))"),
        "2:34 a.b.c has too many parts: write <namespace>.<file set>",
    ),
    (insert(f"* FROM {L} JOIN {R} ON {BOTH}"), "2:8 the query gives two columns window_start: * has that of"),
    (insert(f"l.a FROM ({L} JOIN {R} ON {BOTH})"), "2:112 a join in parentheses is not supported: write the joins"),
    (
        insert(f"(SELECT max(a) FROM clicks) AS m FROM {HOUR}"),
        "2:18 queries within expressions come later, but for EXISTS and",
    ),
    (
        insert(f"window_start FROM {HOUR} w JOIN clicks c ON c.a = w.a"),
        "2:50 clicks is read by windows, and joined without: only a",
    ),
    (
        f"INSERT INTO o WITH x AS (SELECT a FROM\n plain) SELECT window_start FROM {HOUR}",
        "2:6 plain is read without windows: FROM must be",
    ),
    (insert(f"a FROM {HOUR}\nLIMIT 3"), "3:7 LIMIT would cut the windows that one run computes, not"),
    (insert(f"a FROM {HOUR}\nFETCH FIRST 3 ROWS ONLY"), "3:13 Spark has no FETCH FIRST: a SELECT takes LIMIT. Rank"),
    ("SELECT a FROM plain\nFETCH FIRST 3 ROWS ONLY", "2:13 Spark has no FETCH FIRST: write LIMIT"),
    (insert(f"TIMESTAMP'now' AS r FROM {HOUR}"), "2:21 CAST('now' AS TIMESTAMP) gives another value each time"),
    (insert(f"rand() AS r FROM {HOUR}"), "2:11 RAND() gives another value each time: a window is"),
    # window functions
    (
        insert("a FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MONTH))"),
        "2:65 the size of TUMBLE INTERVAL '1' MONTH is refused: use a",
    ),
    (
        insert("a FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), 5))"),
        "2:58 the size of TUMBLE must be an interval, as INTERVAL '1'",
    ),
    (
        insert("a FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts)))"),
        "2:26 TUMBLE lacks SIZE: TUMBLE(TABLE clicks, DESCRIPTOR(ts),",
    ),
    (
        insert("a FROM TABLE(TUMBLE(clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR))"),
        "2:33 the first argument of TUMBLE must be TABLE <name>, or a",
    ),
    (
        insert("a FROM TABLE(TUMBLE(TABLE clicks, ts, INTERVAL '1' HOUR))"),
        "2:43 the second argument must be DESCRIPTOR(<column>), not ts",
    ),
    (
        insert("a FROM TABLE(TUMBLE(TABLE clicks PARTITION BY a, DESCRIPTOR(ts), INTERVAL '1' HOUR))"),
        "2:54 TUMBLE has no PARTITION BY: name the columns in GROUP BY,",
    ),
    (
        insert("a FROM TABLE(SESSION(TABLE clicks PARTITION BY upper(a), DESCRIPTOR(ts), INTERVAL '1' HOUR))"),
        "2:59 PARTITION BY of SESSION names columns of its table,",
    ),
    (
        insert("a FROM TABLE(SESSION(TABLE clicks, DESCRIPTOR(ts), INTERVAL '0' HOUR))"),
        "2:27 the gap of SESSION must be longer than nothing",
    ),
    (
        insert("a FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '0' HOUR))"),
        "2:26 the size of TUMBLE must be longer than nothing",
    ),
    (
        insert("a FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '3654' DAY))"),
        "2:26 the size of TUMBLE must be no longer than ten years",
    ),
    (
        of_day("TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' MILLISECOND))"),
        "2:80 a partition of default.clicks would touch 3,600,001 windows, and the",
    ),
    (
        "EXPLAIN SELECT window_start, ts FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' SECOND, INTERVAL '9' DAY))",
        "1:59 a partition of default.clicks would touch 781,200 windows, and the",
    ),
    (
        insert("a FROM TABLE(HOP(TABLE clicks, DESCRIPTOR(ts), INTERVAL '2' HOUR, INTERVAL '1' HOUR))"),
        "2:23 the size of HOP must be a multiple of its slide, and the",
    ),
    (
        insert("a FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '2' HOUR))"),
        "2:26 the offset of TUMBLE must be shorter than its size",
    ),
    (
        insert("a FROM TABLE(TUMBLE(TABLE clicks, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' HOUR))"),
        "2:26 give all arguments of TUMBLE by name, or none:",
    ),
    (
        insert("a FROM TABLE(TUMBLE(DATA => TABLE clicks, TIMECOL => DESCRIPTOR(ts), SIZ => INTERVAL '1' HOUR))"),
        "2:26 TUMBLE has no argument SIZ: did you mean SIZE?",
    ),
    (
        insert(
            "a FROM TABLE(TUMBLE(DATA => TABLE clicks, TIMECOL => DESCRIPTOR(ts), SIZE => INTERVAL '1' HOUR,"
            " SIZE => INTERVAL '1' HOUR))"
        ),
        "2:26 TUMBLE has the argument SIZE twice: leave one out",
    ),
    (
        insert(
            "a FROM TABLE(TUMBLE(TABLE clicks, DESCRIPTOR(ts), INTERVAL '1' HOUR, INTERVAL '1' HOUR, INTERVAL '1' HOUR))"
        ),
        "2:26 TUMBLE has at most 4 arguments: TUMBLE(TABLE clicks,",
    ),
    (
        of_day(f"TABLE(TUMBLE((SELECT * FROM {HOUR}), DESCRIPTOR(window_time), INTERVAL '2' HOUR))"),
        "2:67 windows of windows come later: write the inner windows",
    ),
    (
        of_day("TABLE(TUMBLE((SELECT ts + INTERVAL '1' HOUR AS ts FROM clicks), DESCRIPTOR(ts), INTERVAL '2' HOUR))"),
        "2:67 DESCRIPTOR(ts) must be the time column of the table,",
    ),
    (
        insert(f"a FROM {HOUR} UNION ALL SELECT a FROM {HOUR.replace('1', '2')}"),
        "2:113 all windows of a program are of one kind and size:",
    ),
    (
        insert(f"a FROM {HOUR} UNION ALL SELECT a FROM {HOUR.replace('(ts', '(at')}"),
        "2:113 all windows of clicks are of one column: declare a",
    ),
    (
        insert(f"a FROM {SESSION} UNION ALL SELECT a FROM {SESSION}"),
        "2:115 a query has one SESSION: declare a program for each",
    ),
    (
        insert("a FROM TABLE(SESSION(TABLE clicks, DESCRIPTOR(window_time), INTERVAL '1' HOUR))"),
        "2:27 SESSION has a column window_time of its own: give that of",
    ),
    (
        f"INSERT INTO o WITH x AS (SELECT * FROM clicks) SELECT window_end FROM {SESSION.replace('clicks', 'x')}",
        "1:91 SESSION reads a table, or a query in its parentheses:",
    ),
    # names of columns
    (of_day(f"{HOUR}\nWHERE aa > 1"), "3:8 there is no column aa: did you mean a?"),
    (
        insert(f"window_start, sum(amount) AS a, {OF_DAY}\nFROM {HOUR} GROUP BY window_start", "default.o"),
        "2:31 there is no column amount: there are ts, a, day, hour, window_start, window_end, window_time",
    ),
    (
        of_day("TABLE(TUMBLE((SELECT ts, a AS b FROM clicks), DESCRIPTOR(ts), INTERVAL '1' HOUR)) ORDER BY a"),
        "2:147 there is no column a: there are ts, b, window_start, window_end",
    ),
    (
        f"INSERT INTO o SELECT l.window_start, to_date(l.window_start) AS day FROM {L}\nJOIN {R} ON {BOTH} AND l.a = r.b",
        "2:164 there is no column b: there are ts, a, day, hour",
    ),
    (
        insert(f"window_start, {OF_DAY} FROM {L} WHERE EXISTS (SELECT 1 FROM {R} WHERE {BOTH} AND r.aa = l.a)"),
        "2:320 there is no column aa: did you mean a?",
    ),
    (
        insert(f"l.ts, r.aaa, l.day {JOIN.replace('views', 'clicks')}"),
        "2:14 there is no column aaa: there are a, day, hour, ts",
    ),
    ("EXPLAIN SELECT window_strat FROM " + HOUR, "1:27 there is no column window_strat: did you mean window_start?"),
    (
        insert(
            "window_end, to_date(window_end) AS day FROM "
            "TABLE(SESSION((SELECT ts FROM clicks) PARTITION BY a, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
        ),
        "2:103 there is no column a: there are ts",
    ),
    (
        f"INSERT INTO o WITH s AS (SELECT * FROM {SESSION}) SELECT l.window_end FROM s l JOIN s r ON {BOTH}",
        "1:139 a join of SESSION windows is not supported: write the",
    ),
    # rows of several windows
    (
        of_day("TABLE(TUMBLE((SELECT max(ts) AS ts FROM clicks\nGROUP BY a), DESCRIPTOR(ts), INTERVAL '1' HOUR))"),
        "3:10 GROUP BY below the window function would see rows of",
    ),
    (
        of_day(
            "TABLE(TUMBLE((SELECT ts, sum(a)\nOVER (ORDER BY ts) AS a FROM clicks), DESCRIPTOR(ts), INTERVAL '1' HOUR))"
        ),
        "2:83 SUM(a) OVER (ORDER BY ts) below the window function would",
    ),
    (
        insert(f"a, count(*) AS n FROM {HOUR}\nGROUP BY a"),
        "3:10 each set of GROUP BY needs window_start or window_end:",
    ),
    (insert(f"count(*) AS n FROM {HOUR}"), "2:12 an aggregate needs GROUP BY window_start, window_end:"),
    (
        insert(f"row_number() OVER (PARTITION BY a ORDER BY ts) AS n FROM {HOUR}"),
        "2:17 ROW_NUMBER() OVER (PARTITION BY a ORDER BY ts) needs",
    ),
    (insert(f"DISTINCT a FROM {HOUR}"), "2:17 SELECT DISTINCT needs window_start or window_end among"),
    (
        insert(f"a FROM {HOUR} UNION ALL BY NAME SELECT a FROM {HOUR}"),
        "2:8 UNION BY NAME comes later: give both queries the columns",
    ),
    (
        insert(f"a FROM {HOUR} UNION ALL SELECT a FROM plain"),
        "2:8 both queries of UNION must be over windows, or both below them",
    ),
    (
        insert(f"a FROM {UNITED.replace('ts, a FROM v', 'ts + INTERVAL 1 HOUR AS ts, a FROM v')}"),
        "2:26 DESCRIPTOR(ts) must be the time column of each table, also of views, unchanged",
    ),
    (insert(f"a FROM {UNITED.replace('UNION ALL', 'UNION')}"), "2:37 UNION below the window function would compare"),
    (insert(f"a FROM {UNITED.replace('ts, a', '*')}"), "2:36 both queries of UNION must have the same columns: name"),
    (
        insert(f"a FROM {UNITED.replace('TUMBLE', 'SESSION')}"),
        "2:27 SESSION over UNION ALL of several tables comes later: have a program write",
    ),
    (
        insert("l.ts FROM (SELECT ts FROM clicks UNION ALL SELECT ts FROM views) l JOIN views r ON l.ts BETWEEN r.ts")
        + " - INTERVAL '1' HOUR AND r.ts",
        "2:84 an interval join is of two tables, and not of a UNION ALL of several: declare a program",
    ),
    (
        insert(f"a FROM {HOUR} UNION ALL SELECT a, ts FROM {HOUR}"),
        "2:8 both queries of UNION must have the same columns: name",
    ),
    (
        insert(f"a FROM {HOUR} UNION SELECT a FROM {HOUR}"),
        "2:8 UNION needs window_start, window_end in one place of both",
    ),
    # joins
    (insert(f"l.a FROM {L} JOIN {R} ON l.a = r.a"), "2:187 a join of windows needs ON l.window_start ="),
    (insert(f"l.a FROM {L}\nCROSS JOIN {R}"), "3:20 CROSS JOIN of windows is not supported: write [LEFT |"),
    (insert(f"l.a FROM {L} JOIN {L} ON {BOTH}"), "2:111 both sides of the join are named l: give each a name of"),
    (
        insert(f"l.a FROM plain r JOIN {L} ON l.a = r.a"),
        "2:38 a join is of windows: both sides must be window functions",
    ),
    (
        insert(f"* FROM {L} WHERE EXISTS (SELECT 1 FROM {R} WHERE l.a = r.a)"),
        "2:117 a query in EXISTS or IN needs WHERE l.window_start =",
    ),
    (
        insert(f"* FROM {L} WHERE EXISTS (SELECT 1 FROM {R} WHERE {BOTH} GROUP BY r.a)"),
        "2:117 a query in EXISTS or IN chooses rows of the window: no",
    ),
    (
        insert(f"* FROM {L} WHERE EXISTS (SELECT count(*) FROM {R} WHERE {BOTH})"),
        "2:121 a query in EXISTS or IN chooses rows of the window: no",
    ),
    (
        of_day(f"{HOUR} w\nJOIN plain p ON p.a = w.a"),
        "3:10 default.plain is no snapshot, and is joined without windows",
    ),
    (
        insert("o.ts FROM clicks o, views s WHERE o.ts BETWEEN s.ts AND s.ts + INTERVAL '1' HOUR"),
        "2:32 a join of two tables needs ON, and no comma: write what",
    ),
    (insert(f"w.a FROM {HOUR} w, users u"), "2:87 a join with the snapshot users needs ON or USING"),
    (
        insert(f"w.a FROM {HOUR} w\nRIGHT JOIN users u ON u.a = w.a"),
        "3:16 RIGHT JOIN with a snapshot: rows of a snapshot without a",
    ),
    (
        insert(f"l.ts {JOIN} JOIN plain x ON x.ts > l.ts + INTERVAL '1' HOUR"),
        "3:74 an interval join is of two tables: SELECT l.ts AS window_time",
    ),
    (
        insert(f"l.ts {JOIN} UNION ALL SELECT window_start FROM {HOUR}"),
        "3:111 a query is over window functions or over one interval",
    ),
    (
        insert(f"window_start FROM {HOUR} UNION ALL SELECT l.ts {JOIN}"),
        "3:11 a query is over window functions or over one interval",
    ),
    (
        of_day(f"TABLE(TUMBLE((SELECT l.ts {JOIN}), DESCRIPTOR(ts), INTERVAL '1' HOUR))"),
        "2:67 a query is over window functions or over one interval",
    ),
    (
        insert("l.ts FROM clicks l JOIN clicks r ON l.ts BETWEEN r.at AND r.at"),
        "2:37 the join compares two columns of clicks: both must be the",
    ),
    (
        insert("l.ts FROM clicks l JOIN views r ON l.a = r.a"),
        "2:43 a join is of windows, or of two tables whose times are",
    ),
    (
        insert(f"l.ts {JOIN} AND l.a BETWEEN r.a AND r.a"),
        "3:18 the join has bounds for several pairs of columns: leave",
    ),
    (insert(f"l.ts {JOIN.replace('1', '-1')}"), "3:18 no two times are within the bounds of the join: the lower"),
    (insert(f"count(*) AS n {JOIN} GROUP BY l.a"), "3:74 each set of GROUP BY needs l.ts: else rows of several"),
    (insert(f"max(l.ts) AS ts {JOIN}"), "2:10 an aggregate needs GROUP BY l.ts: else all windows are"),
    (
        insert(f"coalesce(r.ts, l.ts) AS ts {JOIN.replace('JOIN', 'FULL JOIN')}"),
        "2:15 a match lies in the window of its left row: write",
    ),
    (insert(f"l.a {JOIN}"), "2:8 SELECT l.ts unchanged: a run finds by it the rows of a"),
    # tables that do not fit
    (
        "INSERT INTO nothing\nSELECT window_start FROM " + HOUR,
        "1:19 there is no such table: CREATE it first, PARTITIONED BY",
    ),
    (f"INSERT INTO other.o\nSELECT a FROM {HOUR}", "1:17 write into a table of the configured namespace, default"),
    (insert(f"a FROM {HOUR.replace('clicks', 'click')}"), "2:38 no data set named 'default.click'; did you mean"),
    (of_day(HOUR.replace("clicks", "plain")), "2:79 default.plain has no watermark: declare"),
    (of_day(HOUR.replace("(ts)", "(at)")), "2:92 the watermark of default.clicks is for ts: DESCRIPTOR(at)"),
    (insert(f"a, window_start FROM {HOUR}"), "2:8 day of default.o is not among the columns of the query"),
    (insert(f"a, to_date(ts) AS day\nFROM {HOUR}"), "2:8 SELECT window_start or window_end unchanged: a run finds"),
    (
        of_day(HOUR).replace("INTO o", "INTO clicks").replace("SELECT", "SELECT 1 AS hour,"),
        "2:91 default.clicks cannot be its own source: write the",
    ),
    (
        of_day(f"{HOUR} UNION ALL SELECT window_start, {OF_DAY} FROM {HOUR.replace('clicks', 'default.clicks')}"),
        "2:209 two tables of the query are one, or differ in '.' and '_'",
    ),
    (
        of_day(f"{HOUR} UNION ALL SELECT window_start, {OF_DAY} FROM {HOUR.replace('clicks', 'views')}"),
        "2:207 the tables of a query have one late policy and one",
    ),
    (
        of_day(f"{HOUR} UNION ALL SELECT window_start, {OF_DAY} FROM {HOUR.replace('clicks', 'abroad')}"),
        "2:208 the windows of a query lie in one zone, not",
    ),
    (
        of_day(HOUR.replace("clicks", "empties")).replace(
            "SELECT window_start,", "SELECT window_start, hour(window_start) + count(*) AS a,"
        )
        + " GROUP BY window_start",
        "2:19 a is computed from rows and from the window at once, but",
    ),
    (
        insert(f"window_end, to_date(window_end) AS day FROM {SESSION.replace('clicks', 'views')}"),
        "2:76 SESSION needs late='recompute' or 'error' without",
    ),
    (
        insert(f"window_end, to_date(window_end) AS day FROM {SESSION.replace('clicks', 'skips')}"),
        "2:76 SESSION needs partial_first='emit' on default.skips: no",
    ),
    (
        insert(f"window_end, to_date(window_end) AS day FROM {SESSION.replace('1', '24')}"),
        "2:77 the gap of SESSION must be shorter than the longest",
    ),
    # columns of an INSERT and those of its output
    (
        into_counts("count(*) AS m,\n1.5 AS d"),
        "2:26 an INSERT takes its columns by name, and default.counts has no column m: there are window_start, n, d, day",
    ),
    (
        into_counts("count(*) AS n"),
        "2:19 the query does not give d of default.counts. An INSERT takes its columns by name: SELECT … AS d",
    ),
    (
        into_counts("CAST(count(*) AS string) AS n, 1.5 AS d"),
        "2:31 n of default.counts is BIGINT, and the query gives STRING, which does not fit into it: give BIGINT or a",
    ),
    (into_counts("max(ts) AS n, 1.5 AS d"), "2:24 n of default.counts is BIGINT, and the query gives TIMESTAMP, which"),
    (
        into_counts("count(*) AS n,\nsum(a) AS d"),
        "3:3 d of default.counts is DECIMAL(10,2), and the query gives BIGINT",
    ),
    (
        into_counts("count(*) AS n, 1.5 AS d", "to_date(window_start)"),
        "2:53 day of default.counts is STRING, and the query gives DATE, which does not fit into it: give STRING",
    ),
    # outputs whose watermark follows
    (
        f"INSERT INTO drops SELECT window_end, window_time, to_date(window_end) AS day FROM {SESSION}",
        "1:17 the watermark of default.drops is for window_time, so it",
    ),
    (
        "INSERT INTO drops SELECT l.ts, l.day FROM clicks l JOIN clicks r ON l.ts BETWEEN r.ts AND r.ts",
        "1:17 the watermark of default.drops is for window_time, so it",
    ),
    (
        f"INSERT INTO started SELECT window_start, {OF_DAY} FROM {HOUR.replace('clicks', 'abroad')}",
        "1:19 the watermark of default.started is for window_start, so",
    ),
    (
        f"INSERT INTO drops SELECT window_start, {OF_DAY} FROM {HOUR}",
        "1:17 the watermark of default.drops is for window_time, so it",
    ),
    (
        f"INSERT INTO drops SELECT window_start, window_time, {OF_DAY} FROM {HOUR.replace('clicks', 'abroad')}",
        "1:17 the watermark of default.drops is for window_time, so it",
    ),
    (
        f"INSERT INTO waits SELECT window_start, window_time, {OF_DAY} FROM {HOUR}",
        "1:17 the watermark of default.waits is for window_time, so it",
    ),
    (
        f"INSERT INTO drops SELECT window_start, window_time, {OF_DAY} FROM {HOUR}",
        "1:17 the watermark of default.drops is for window_time, so it",
    ),
)
"""Statements, with the line and the column of what is wrong, and the begin of the reason."""
ROOMS: Final = ("sql/*.py", "mill/statements.py", "mill/inserts.py")
OTHERS: Final[Mapping[str, str]] = {
    "bad(str(error), statement)": "sqlglot finds no such fault in a query that it can read",
    "bad('a table cannot be named": "sqlglot reads no such query so far",
    "bad('a query is SELECT … FROM": "sqlglot reads no such query within another so far",
    "BadStatement('there is no statement'": "an empty text has no statements",
    "BadStatement(f'one statement is wanted": "the statements of a text are read one by one",
    "ValueError(field)": "control flow of intervals",
    "BadInsert(qualified(namespace, statements.NAME)": "an app of the name sql: tests/sql/test_inserts.py",
    "BadTable(qualified(namespace, table), f'Hive": "tables of Hive: tests/sql/test_hive_tables.py",
    "BadTable(name, f'it is declared by app": "tables of apps: tests/sql/test_ddl.py",
    "BadTable(dataset.qualified_name, why)": "windows that are published: tests/sql/test_sessions.py",
    "BadTable(source.qualified_name, why)": "windows that are published: tests/sql/test_sessions.py",
    "BadStatement(f'Spark cannot compute": "by Spark: tests/sql/test_statements.py",
    "query.locate(BadTimeColumn": "columns that a commit brings: tests/sql/test_window_triggers.py",
    "next(iter(tries.failed": "a run",
    "error": "partitions that cannot be read: tests/sql/test_outside_rows.py",
    "NoWatermark(sources[0]": "a run",
    "LateData(": "a run",
    "_SpoiledCarry": "a run, which begins again",
}
"""Refusals that no statement of `REFUSED` meets, by the begin of what is raised, each with the reason."""


@pytest.fixture(scope="module")
def mill(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mill]:
    """A project with tables. A refused statement changes nothing, so one project serves all."""
    folder = tmp_path_factory.mktemp("refusals")
    (folder / "tidemill.toml").write_text(f'catalog = "sqlite:///{folder}/catalog.db"\n', encoding="utf-8")
    with open_project(folder, create=True) as opened:
        opened.sql(SETUP)
        yield opened


@pytest.mark.parametrize(("statement", "told"), REFUSED)
def test_a_refusal_says_what_is_wrong_and_where(mill, statement, told):
    """The place is that of a file with several statements, too: lines before a statement count."""
    with pytest.raises(UserError) as refused:
        mill.sql(f"DESCRIBE plain;\n{statement}")

    where, _, why = told.partition(" ")
    line, column = map(int, where.split(":"))
    assert refused.value.in_statement == StatementPlace(line + 1, column)
    assert str(refused.value).startswith(f"line {line + 1}, column {column}: ")
    assert why in str(refused.value)


def test_a_store_that_is_away_is_reported_with_its_place(tmp_path):
    """The statement is sound, but its path may be wrong."""
    keyless = replace(World(), environ={})
    with (
        open_project(tmp_path, create=True, world=keyless) as mill,
        pytest.raises(StorageUnavailable, match=r"^line 2, column 12: storage s3://nope/x .* there are no keys"),
    ):
        mill.sql("CREATE TABLE t (x int) PARTITIONED BY (d date)\nWITH ('path'='s3://nope/x')")


def test_each_refusal_of_a_statement_is_listed_here(mill):
    """A new refusal without a place, or without a reason that people can read, is seen."""
    met, before = set(), mill.datasets.list()
    for statement, _ in REFUSED:
        with pytest.raises(UserError) as refused:
            mill.sql(statement)
        met |= set(_places_of(refused.value))
    assert mill.datasets.list() == before

    missing = [text for lines, text in _list_raises() if met.isdisjoint(lines)]
    assert [one for one in missing if not one.startswith(tuple(OTHERS))] == []
    assert [one for one in OTHERS if not any(text.startswith(one) for text in missing)] == []


def _list_raises() -> Iterator[tuple[set[tuple[str, int]], str]]:
    """Yield the lines of each refusal in the modules that read statements, and what is raised."""
    root = Path(tidemill.__file__).parent
    for path in sorted(one for room in ROOMS for one in root.glob(room)):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Raise) and node.exc is not None:
                lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                yield {(str(path), line) for line in lines}, ast.unparse(node.exc)


def _places_of(error: BaseException | None) -> Iterator[tuple[str, int]]:
    """Yield the places in the code through which an error and its causes came."""
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            code = trace.tb_frame.f_code
            yield code.co_filename, trace.tb_lineno
            trace = trace.tb_next
        error = error.__cause__
