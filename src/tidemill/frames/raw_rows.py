"""Rows of raw files, read with Spark: strictly, so that no value changes in silence, or with the bad rows apart.

A bad row is one that does not fit the columns: another number of fields, a value that is none of its type, JSON that
is none. Spark alone says which rows are bad; the line and the reason are found afterwards, for bad rows only
(`frames.bad_rows`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Final, cast

from tidemill.frames.exact_values import is_text_first, parse
from tidemill.frames.json_values import (
    convert,
    has_half_pair,
    needs_texts,
    reading_type,
    text_type,
    unmarked,
    with_texts,
)
from tidemill.frames.jvm import load_files
from tidemill.frames.schema import columns_as_struct, columns_in, quoted
from tidemill.frames.spark import STRICT, RowCount, escaped
from tidemill.frames.spark_way import find_way
from tidemill.lake.inbox.file_claims import ClaimedFile
from tidemill.lake.inbox.inbox import Inbox
from tidemill.shapes.column_types import ELEMENT, VALUE, Types, plain_type, types_in
from tidemill.shapes.contents import loses_returns, read_header
from tidemill.shapes.formats import READING, RESCUED, FileFormat, RawFormat, Unknown, columns_of
from tidemill.storage.files import Files
from tidemill.storage.locations import SPARK_PATHS, path_for_readers
from tidemill.world import World

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import ArrayType, DataType, StructField, StructType

FILE: Final = "tidemill file"
BAD: Final = "tidemill bad row"
WHY: Final = "tidemill why"
_END: Final = "tidemill end"
MISSHAPEN: Final = "it is no JSON object, or a value does not fit its column"
_SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class RawFiles:
    """Files of one inbox that are not empty, and the Spark session that reads them."""

    spark: SparkSession
    raw: RawFormat
    files: Files
    root: str
    """The location as Spark takes it."""
    claimed: Sequence[ClaimedFile]

    @classmethod
    def of(cls, world: World, spark: SparkSession, inbox: Inbox, claimed: Sequence[ClaimedFile]) -> RawFiles:
        """The files of `claimed` that have contents."""
        files, filled = inbox.files(world), [file for file in claimed if file.bytes > 0]
        way = find_way(world, spark, files)
        way.fetch(file.name for file in filled)
        return cls(spark, inbox.spec.format, files, way.root, filled)

    def paths(self, claimed: Sequence[ClaimedFile]) -> list[str]:
        """The paths of these files as Spark takes them."""
        return [escaped(f"{self.root}/{file.name}") for file in claimed]

    def path_of(self, file: ClaimedFile) -> str:
        """The path of one file as the column `FILE` has it."""
        return path_for_readers(self.files.url, file.name)


def read_files(
    world: World, spark: SparkSession, inbox: Inbox, files: Sequence[ClaimedFile], *, skip_bad: bool = False
) -> tuple[DataFrame, RowCount | None]:
    """Return the rows of these files of an inbox, each once, in no order, with a count of them.

    Strict: what is wrong with a file fails the job, and the error names the file (`formats.blame`). With `skip_bad`
    rows that do not fit the columns are left out instead. The count is known once a write of all that is made of the
    rows has filled it (`counting`); formats by columns have none, since a count would have filters look at what they
    can leave out.

    An action over all rows parses each column of each row, whatever it asks for. Spark's own FAILFAST does so only for
    the columns in use and the rows that a filter leaves: `count()` took a line with `x` for a number, a filter even a
    line cut short (tried). An empty file has no rows. `_metadata.file_path` is there, as for any file of Spark's,
    unless an inbox with another policy than `unknown="fail"` gets CSV files with different headers, or Parquet or ORC
    files with different columns.
    """
    source = RawFiles.of(world, spark, inbox, files)
    if not source.claimed:
        return spark.createDataFrame([], _schema_of_none(source.raw)), None
    frame = read_source(source, skip_bad=skip_bad)
    # Of formats by columns a column that is not in use is not read, and cannot be misread.
    return _counted(frame) if source.raw.is_text else (frame, None)


def read_source(source: RawFiles, *, skip_bad: bool = False) -> DataFrame:
    """Return the rows of files as `read_files` does, uncounted."""
    from pyspark.sql import functions as sf

    match source.raw.format:
        case FileFormat.PARQUET | FileFormat.ORC:
            return _read_columnar(source)
        case FileFormat.TEXT:
            return load_files(
                source.spark.read.format("text").options(**_options(source)), source.paths(source.claimed)
            )
        case _ if skip_bad:
            return classify(source).where(sf.col(quoted(BAD)).isNull()).drop(BAD, WHY, FILE)
        case FileFormat.CSV:
            return _read_csv(source, strict=True)
        case _:
            return _read_json(source, strict=True)


def classify(source: RawFiles) -> DataFrame:
    """All rows of CSV or JSON files; of bad ones with their text in `BAD` and maybe `WHY`; the path in `FILE`."""
    return (_read_csv if source.raw.format is FileFormat.CSV else _read_json)(source, strict=False)


def _counted(frame: DataFrame) -> tuple[DataFrame, RowCount]:
    from pyspark.sql import Observation
    from pyspark.sql import functions as sf

    # A count needs all columns parsed, and no filter below it. Each read has its own name for the observation, since
    # two frames in one query may not share a name.
    counted = RowCount(Observation())
    every = [sf.count(quoted(column)).alias(f"column {place}") for place, column in enumerate(frame.columns)]
    return frame.observe(counted.observation, sf.count(sf.lit(1)).alias("rows"), *every), counted


def _options(source: RawFiles) -> dict[str, str]:
    strict = {
        "mode": "FAILFAST",
        "ignoreCorruptFiles": "false",
        "ignoreMissingFiles": "false",
        "recursiveFileLookup": "false",
        # Without a schema the columns of all files: of one file alone, those that others have beside would be lost.
        "mergeSchema": "true",
    }
    if source.root.startswith("file:"):
        # Hadoop's checksums know no name with a colon (`10:30.csv`), and trust a `.crc` beside a file of others. S3A
        # fails with this setting.
        strict |= {
            "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
            "fs.file.impl.disable.cache": "true",
        }
    return {**strict, **STRICT, **parsing_options(source.raw)}


def parsing_options(raw: RawFormat) -> dict[str, str]:
    """Options of Spark's parser for one row, the inbox's own included."""
    parsing = {"encoding": "UTF-8"}
    if raw.format is FileFormat.CSV:
        parsing |= {"header": "true", "enforceSchema": "false", "columnPruning": "false"}
        # RFC 4180: ends of lines within quotes, and quotes within quotes doubled.
        parsing |= {"multiLine": "true", "escape": raw.quote}
    if raw.format is FileFormat.JSON:
        # NaN and Infinity are no JSON (RFC 8259).
        parsing |= {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
    return {**parsing, **raw.options}


def _schema_of_none(raw: RawFormat) -> StructType | str:
    """The columns of no files."""
    from pyspark.sql.types import StructType

    if raw.format is FileFormat.TEXT:
        return "value STRING"
    rescued = f", {RESCUED} STRING" if raw.unknown is Unknown.RESCUE else ""
    return f"{raw.schema}{rescued}" if raw.schema else StructType()


def _file() -> Column:
    """The path of a row's file, as the file system has it."""
    from pyspark.sql import functions as sf

    path = sf.col("_metadata.file_path")
    for pattern, place in SPARK_PATHS:
        path = sf.regexp_replace(path, pattern, place)
    return sf.url_decode(sf.replace(path, sf.lit("+"), sf.lit("%2B")))


def _read_csv(source: RawFiles, *, strict: bool) -> DataFrame:
    """Rows of CSV; files with other columns in their headers are read apart."""
    raw = source.raw
    groups: dict[tuple[str, ...], list[ClaimedFile]] = defaultdict(list)
    for file in source.claimed:
        by_name = raw.has_header and raw.unknown is not Unknown.FAIL
        groups[tuple(read_header(source.files, file.name, file.bytes, raw)) if by_name else ()].append(file)
    frames = [_read_csv_of(source, files, header, strict=strict) for header, files in groups.items()]
    return reduce(lambda one, other: one.unionByName(other), frames)


def _read_csv_of(source: RawFiles, files: Sequence[ClaimedFile], header: Sequence[str], *, strict: bool) -> DataFrame:
    from pyspark.sql import functions as sf

    raw = source.raw
    declared = dict(columns_of(raw.schema or ""))
    unknown = [name for name in header if name not in declared]
    columns = [(name, declared.get(name, "STRING")) for name in header or declared]
    # What Spark's parser could change is read as text.
    kinds = {name: kind for name, text in columns if is_text_first(kind := plain_type(text), raw)}
    schema = ", ".join(f"{quoted(name)} {'STRING' if name in kinds else text}" for name, text in columns)
    options = _options(source)
    if not strict:
        schema += f", {quoted(BAD)} STRING"
        options |= {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    frame = load_files(source.spark.read.format("csv").schema(schema).options(**options), source.paths(files))
    broken = [source.path_of(file) for file in files if loses_returns(source.files, file.name, file.bytes, raw)]
    values = {name: parse(sf.col(quoted(name)), kind, raw) for name, kind in kinds.items()}
    whys = {name: _misfit(name, declared[name], values[name]) for name in kinds}
    missing = [name for name in declared if header and name not in header]
    kept = [
        sf.lit(None).cast(type_text).alias(name)
        if name in missing
        else _strictly(name, values[name], whys[name] if strict else None)
        if name in kinds
        else _with_returns(name, type_text, broken)
        for name, type_text in declared.items()
    ]
    if raw.unknown is Unknown.RESCUE:
        rest = sf.to_json(sf.struct(*[sf.col(quoted(name)) for name in unknown])) if unknown else sf.lit(None)
        kept.append(sf.nullif(rest.cast("string"), sf.lit("{}")).alias(RESCUED))
    if not strict:
        malformed = sf.col(quoted(BAD))
        misfits = sf.nullif(sf.concat_ws("; ", *whys.values()), sf.lit(""))
        why = sf.when(malformed.isNull(), misfits)
        cells = [sf.when(why.isNotNull(), sf.col(quoted(name))).alias(name) for name, why in whys.items()]
        text = sf.to_json(sf.struct(*cells)) if cells else sf.lit(None)
        kept += [sf.when(why.isNotNull(), text).otherwise(malformed).alias(BAD), why.alias(WHY), _file().alias(FILE)]
    changed = broken or kinds or not strict or raw.unknown is Unknown.RESCUE or list(header or declared) != [*declared]
    return frame.select(*kept) if changed else frame


def _misfit(name: str, declared: str, value: Column) -> Column:
    """The reason if the text of a column is not exactly a value of its type; null otherwise."""
    from pyspark.sql import functions as sf

    text = sf.col(quoted(name))
    why = sf.concat(sf.lit(f"{name} is no {declared}: "), sf.substring(text, 1, _SHOWN))
    return sf.when(text.isNotNull() & value.isNull(), why)


def _strictly(name: str, value: Column, why: Column | None) -> Column:
    """A value; with `why` an error that names the file and the reason where there is none."""
    from pyspark.sql import functions as sf

    if why is None:
        return value.alias(name)
    error = sf.concat(sf.lit(READING), sf.col("_metadata.file_path"), sf.lit(".  "), why)
    return sf.coalesce(value, sf.when(sf.col(quoted(name)).isNotNull(), sf.raise_error(error))).alias(name)


def _with_returns(name: str, type_text: str, broken: Sequence[str]) -> Column:
    """A column with CR LF where the parser gave LF, in the files of these paths."""
    from pyspark.sql import functions as sf

    column = sf.col(quoted(name))
    if not broken or not type_text.lower().startswith(("string", "varchar", "char")):
        return column
    restored = sf.replace(column, sf.lit("\n"), sf.lit("\r\n"))
    return sf.when(_file().isin(list(broken)), restored).otherwise(column).alias(name)


def _read_json(source: RawFiles, *, strict: bool) -> DataFrame:
    """Rows of JSON; the text of a row is parsed within an object of ours, which shows what Spark passes over.

    Spark's own reader takes the first value of a line and leaves the rest (`{"id": 1}{"id": 2}`), and it drops fields
    that the schema does not name (tried).
    """
    from pyspark.sql import functions as sf
    from pyspark.sql.types import IntegerType, StringType, StructType

    raw = source.raw
    schema = _struct(raw.schema) if raw.schema else _infer(source, source.paths(source.claimed))
    whole = raw.is_on("multiLine")
    frame, text = read_texts(source)
    rows = _items(text) if whole else sf.concat(sf.lit("["), text, sf.lit("]"))
    document = sf.concat(sf.lit('{"rows":'), rows, sf.lit(f',"{_END}":1}}'))
    read_rows = _array_of(reading_type(schema, raw))
    shape = StructType().add("rows", read_rows).add(_END, IntegerType()).add(BAD, StringType())
    options = parsing_options(raw) | {"multiLine": "false", "mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    parsed = sf.from_json(document, shape, options)
    path = sf.col("_metadata.file_path").alias("path")
    frame = frame.where(text.rlike(r"\S")).select(text.alias("text"), parsed.alias("parsed"), path, _file().alias(FILE))
    bad = sf.col("parsed").isNull() | sf.col(f"parsed.{quoted(BAD)}").isNotNull()
    bad |= sf.col("parsed.rows").isNull() | sf.col(f"parsed.{quoted(_END)}").isNull()
    if whole:
        texts = sf.transform(
            sf.from_json(with_texts(_items(sf.col("text"))), "ARRAY<STRING>", {"mode": "PERMISSIVE"}), unmarked
        )
        each = sf.explode_outer(sf.arrays_zip(sf.col("parsed.rows").alias("row"), texts.alias("text"))).alias("each")
        bad |= has_half_pair(sf.col("text"))
        frame = frame.select(bad.alias("bad"), each, path, FILE, sf.col("text").alias("all"))
        row, text = sf.col("each.row"), sf.when(sf.col("bad"), sf.col("all")).otherwise(sf.col("each.text"))
        bad = sf.col("bad")
    else:
        row, text = sf.get("parsed.rows", sf.lit(0)), sf.col("text")
        bad |= sf.size("parsed.rows") != 1
    types = types_in(raw.schema) if raw.schema else None
    kept = [sf.col("row.*")]
    if raw.unknown is Unknown.RESCUE and types is not None:
        kept.append(_rescued(sf.col("text"), types).alias(RESCUED))
    why = _why(bad | row.isNull(), text, types, raw)
    frame = frame.select(row.alias("row"), why.alias(WHY), text.alias("text"), "path", FILE)
    frame = frame.withColumn("texts", _texts_of_numbers(sf.col("text"), schema, options))
    texts_of = None if text_type(schema) is None else sf.col("texts")
    values = _values(sf.col("row"), texts_of, schema, raw)
    frame = frame.select("row", values.alias("values"), "texts", WHY, "text", "path", FILE)
    why = sf.coalesce(sf.col(quoted(WHY)), _misfits(sf.col("row"), sf.col("values"), texts_of, schema, raw))
    frame = frame.select(sf.col("values").alias("row"), why.alias(WHY), "text", "path", FILE)
    if not strict:
        failed = sf.when(sf.col(quoted(WHY)).isNotNull(), sf.col("text")).alias(BAD)
        good = sf.when(sf.col(quoted(WHY)).isNull(), sf.col("row"))
        return frame.select(good.alias("row"), "text", failed, WHY, FILE).select(*kept, BAD, WHY, FILE)
    error = sf.concat(sf.lit(READING), "path", sf.lit(".  "), WHY, sf.lit(": "), sf.substring("text", 1, _SHOWN))
    checked = sf.when(sf.col(quoted(WHY)).isNull(), sf.col("row")).otherwise(sf.raise_error(error))
    return frame.select(checked.alias("row"), "text").select(*kept)


def _items(text: Column) -> Column:
    """The text of a JSON array: that of a whole file, or of one with the file's object."""
    from pyspark.sql import functions as sf

    return sf.when(text.rlike(r"^\s*\["), text).otherwise(sf.concat(sf.lit("["), text, sf.lit("]")))


def read_texts(source: RawFiles) -> tuple[DataFrame, Column]:
    """Return the lines of JSON files, or with `multiLine` their whole texts, and the column that has them."""
    from pyspark.sql import functions as sf

    whole = source.raw.is_on("multiLine")
    lines = source.spark.read.format("text").options(**_options(replace(source, raw=RawFormat(FileFormat.TEXT))))
    frame = load_files(lines.option("wholetext", str(whole).lower()), source.paths(source.claimed))
    return frame, sf.regexp_replace("value", "^\ufeff", "") if whole else sf.col("value")


def _texts_of_numbers(text: Column, schema: StructType, options: Mapping[str, str]) -> Column:
    """The values of a row of JSON with numbers as they are written; null where Spark changes none of them."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    kind = text_type(schema)
    if kind is None:
        return sf.lit(None)
    shape = StructType().add("rows", _array_of(kind))
    document = sf.concat(sf.lit('{"rows":['), with_texts(text), sf.lit("]}"))
    plain = {name: value for name, value in options.items() if name != "columnNameOfCorruptRecord"}
    return sf.when(needs_texts(text, schema), sf.get(sf.from_json(document, shape, plain)["rows"], sf.lit(0)))


def _values(row: Column, texts: Column | None, schema: StructType, raw: RawFormat) -> Column:
    """The values of a row of JSON, as a struct; null where a value is not exactly what the text says."""
    from pyspark.sql import functions as sf

    values = [
        convert(row.getField(field.name), _text_of(texts, field), field.dataType, raw)[0].alias(field.name)
        for field in schema.fields
    ]
    return sf.struct(*values)


def _misfits(row: Column, values: Column, texts: Column | None, schema: StructType, raw: RawFormat) -> Column:
    """The reason why a value of a row of JSON is not exactly what the text says; null where each is."""
    from pyspark.sql import functions as sf

    declared = dict(columns_of(raw.schema or ""))
    whys = []
    for field in schema.fields:
        given = row.getField(field.name)
        _, fails = convert(given, _text_of(texts, field), field.dataType, raw)
        if fails is None:
            continue
        if not isinstance(types_in(f"c {field.dataType.simpleString()}")["c"], str):
            found = fails
        else:
            # Not `fails`, which would parse the text once more.
            found = given.isNotNull() & values.getField(field.name).isNull()
        wanted = declared.get(field.name, field.dataType.simpleString().upper())
        whys.append(sf.when(found, f"{field.name} is no {wanted}"))
    return sf.nullif(sf.concat_ws("; ", *whys), sf.lit(""))


def _text_of(texts: Column | None, field: StructField) -> Column | None:
    return None if texts is None or text_type(field.dataType) is None else texts.getField(field.name)


def _array_of(schema: DataType) -> ArrayType:
    from pyspark.sql.types import ArrayType

    return ArrayType(schema)


def _struct(schema: str) -> StructType:
    from pyspark.sql.types import StructType

    columns = StructType.fromDDL(schema)
    assert isinstance(columns, StructType)  # noqa: S101  # the inbox's declaration has names
    return columns


def _infer(source: RawFiles, paths: Sequence[str]) -> StructType:
    """The columns that all of the JSON files have together."""
    from pyspark.sql.types import StructType

    options = _options(source) | {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": BAD}
    found = load_files(source.spark.read.format("json").options(**options), paths).schema
    return StructType([column for column in found.fields if column.name != BAD])


def _why(misshapen: Column, text: Column, types: Types | None, raw: RawFormat) -> Column:
    """The reason why a row of JSON is bad; null for a good one."""
    from pyspark.sql import functions as sf

    keys = _keys(text, raw)
    why = sf.when(misshapen | keys.isNull(), MISSHAPEN)
    why = why.when(sf.size(keys) > sf.size(sf.array_distinct(keys)), "it names a field twice")
    why = why.when(has_half_pair(text), "it holds half of a surrogate pair")
    if types is None:
        return why
    twice = _nested_fields(text, types, "", _named_twice)
    unknown = _nested_fields(text, types, "", _not_named)
    if raw.unknown is Unknown.FAIL:
        own = _not_named(keys, types)
        unknown = own if unknown is None else sf.concat(own, unknown)
    found = [("it names twice the field ", twice)]
    if raw.unknown is not Unknown.IGNORE:
        found.append(("the schema does not name the field ", unknown))
    for said, names in found:
        if names is not None:
            why = why.when(sf.size(names) > 0, sf.concat(sf.lit(said), sf.array_join(names, ", ")))
    return why


def _keys(text: Column, raw: RawFormat) -> Column:
    """The names of the fields of a JSON object; null where it is none."""
    from pyspark.sql import functions as sf

    if not raw.is_on("allowNonNumericNumbers"):
        return sf.json_object_keys(text)
    return sf.map_keys(sf.from_json(text, "MAP<STRING, STRING>", {"allowNonNumericNumbers": "true"}))


def _not_named(keys: Column, types: Types) -> Column:
    from pyspark.sql import functions as sf

    return sf.array_except(keys, sf.array(*map(sf.lit, types)))


def _named_twice(keys: Column, types: Types) -> Column:
    from pyspark.sql import functions as sf

    del types
    return sf.filter(sf.array_distinct(keys), lambda one: sf.size(sf.array_remove(keys, one)) < sf.size(keys) - 1)


def _nested_fields(text: Column, types: Types, below: str, fault: Callable[[Column, Types], Column]) -> Column | None:
    """The paths of faulty fields within the columns of a JSON object; None where it has no nested column."""
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StringType, StructType

    found = []
    for name, inner in types.items():
        if not isinstance(inner, str):
            value = sf.from_json(text, StructType().add(name, StringType())).getField(name)
            deeper = _fields_within(value, inner, f"{below}{name}", fault)
            found += [] if deeper is None else [deeper]
    return sf.concat(*found) if found else None


def _fields_within(text: Column, types: Types, path: str, fault: Callable[[Column, Types], Column]) -> Column | None:
    """Return the fields inside a value that is a struct, or an array or map of structs."""
    from pyspark.sql import functions as sf

    if set(types) not in ({ELEMENT}, {VALUE}):
        own = sf.transform(fault(sf.json_object_keys(text), types), lambda name: sf.concat(sf.lit(f"{path}."), name))
        own = sf.coalesce(own, sf.array().cast("array<string>"))
        deeper = _nested_fields(text, types, f"{path}.", fault)
        return own if deeper is None else sf.concat(own, deeper)
    ((kind, inner),) = types.items()
    twice: Column | None = None
    if kind == VALUE and fault is _named_twice:
        names = sf.coalesce(_named_twice(sf.json_object_keys(text), types), sf.array().cast("array<string>"))
        twice = sf.transform(names, lambda name: sf.concat(sf.lit(f"{path}."), name))
    if isinstance(inner, str) or not (_has_struct(inner) or fault is _named_twice):
        return twice
    values = sf.from_json(text, "ARRAY<STRING>" if kind == ELEMENT else "MAP<STRING, STRING>")
    values = values if kind == ELEMENT else sf.map_values(values)
    if _fields_within(text, inner, path, fault) is None:
        return twice
    each = sf.transform(values, lambda value: cast("Column", _fields_within(value, inner, f"{path}{kind}", fault)))
    found = sf.coalesce(sf.array_distinct(sf.flatten(each)), sf.array().cast("array<string>"))
    return found if twice is None else sf.concat(twice, found)


def _has_struct(types: Types) -> bool:
    """Return whether a nested type contains a struct."""
    return any(
        name not in {ELEMENT, VALUE} or (not isinstance(inner, str) and _has_struct(inner))
        for name, inner in types.items()
    )


def _rescued(text: Column, types: Types) -> Column:
    """The fields of a JSON object that `types` does not name, as JSON."""
    from pyspark.sql import functions as sf

    fields = sf.from_json(text, "MAP<STRING, VARIANT>")
    others = sf.map_filter(fields, lambda name, _: ~name.isin(list(types)))
    return sf.when(sf.size(others) > 0, sf.to_json(others))


def _read_columnar(source: RawFiles) -> DataFrame:
    """Rows of Parquet or ORC; to rescue columns, files with other columns are read apart."""
    raw = source.raw
    if raw.schema is None or raw.unknown is not Unknown.RESCUE:
        return _read_columns(source, source.claimed, raw.schema)
    groups: dict[str, list[ClaimedFile]] = defaultdict(list)
    fields: dict[str, Sequence[StructField]] = {}
    declared = {name.lower() for name, _ in columns_of(raw.schema)}
    for file in source.claimed:
        columns = columns_in(source.files, file.name, raw.format)
        others = [one for one in columns_as_struct(columns).fields if one.name.lower() not in declared]
        text = repr(others)
        groups[text].append(file)
        fields[text] = others
    frames = [_rescue_columns(source, files, raw.schema, fields[text]) for text, files in groups.items()]
    return reduce(lambda one, other: one.unionByName(other), frames)


def _rescue_columns(
    source: RawFiles, files: Sequence[ClaimedFile], schema: str, others: Sequence[StructField]
) -> DataFrame:
    from pyspark.sql import functions as sf
    from pyspark.sql.types import StructType

    declared = _struct(schema)
    frame = _read_columns(source, files, StructType([*declared.fields, *others]))
    rest = sf.to_json(sf.struct(*[sf.col(quoted(one.name)) for one in others])) if others else sf.lit(None)
    known = [sf.col(quoted(one.name)) for one in declared.fields]
    return frame.select(*known, sf.nullif(rest.cast("string"), sf.lit("{}")).alias(RESCUED))


def _read_columns(source: RawFiles, files: Sequence[ClaimedFile], schema: StructType | str | None) -> DataFrame:
    reader = source.spark.read.format(source.raw.format).options(**_options(source))
    return load_files(reader if schema is None else reader.schema(schema), source.paths(files))
