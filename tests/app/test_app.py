"""App files: their declarations, and the errors of mistakes, each at its place."""

from __future__ import annotations

import pytest

import tidemill as tm
from tests.errors import raises_code
from tidemill import NotFound, UserError
from tidemill.lake.inbox.inbox import InboxSpec
from tidemill.shapes.formats import FileFormat, RawFormat


@pytest.fixture
def app():
    """An empty app."""
    return tm.App("shop")


def test_a_data_set_is_declared_once(app):
    """Two declarations of one name would silently be one."""
    app.fileset("clean", keys={"day": "date"})

    with raises_code("bad_declaration", match="twice"):
        app.inbox("clean", "landing", format="text")


def test_a_program_is_found_by_its_name(app):
    """That is how a driver comes to its code."""

    @app.python()
    def count(run):
        return run

    assert app.find_program("count") is count
    with pytest.raises(NotFound, match="did you mean 'count'"):
        app.find_program("coutn")


def test_reading_and_writing_one_file_set_needs_a_word(app):
    """The program would trigger itself for ever (protocol: takes and claims)."""
    clean = app.fileset("clean", keys={"day": "date"})

    with raises_code("bad_declaration", match="deliver_own=False"):

        @app.spark(reads=[clean], writes=[clean])
        def compact(run, spark):
            return run, spark


@pytest.mark.parametrize("swapped", [True, False])
def test_a_data_set_is_named_once_in_reads(app, swapped):
    """Its terms would hold or not by the order of the two."""
    lines = app.fileset("lines", keys={"day": "date"})
    reads = [lines, tm.Reads(lines, max_partitions=1)]

    with raises_code("bad_declaration", match="program 'count' names default.lines twice in reads="):

        @app.python(reads=reads[::-1] if swapped else reads)
        def count(run):
            return run


def test_a_schedule_names_a_program_of_the_app(app):
    """A schedule for nothing would wait for ever without a word."""

    def stranger(run):
        return run

    with raises_code("bad_declaration", match="decorate it"):
        app.schedule("s", stranger, trigger=tm.Every("1h"))
    with pytest.raises(NotFound):
        app.schedule("s", "nothing", trigger=tm.Every("1h"))


@pytest.mark.parametrize("name", ["", "..", "a/b", "a.b", "a\0b", "1a", "ä", "a" * 101])
def test_names_that_are_no_names_are_refused(app, name):
    """Names end in paths, URLs and event keys."""
    with raises_code("bad_name"):
        app.fileset(name, keys={"day": "date"})
    with raises_code("bad_name"):
        tm.App(name)


@pytest.mark.parametrize(
    "wrong",
    [
        {"format": "cvs"},
        {"on_rewrite": "reproces"},
        {"max_bytes": "5"},
        {"retry_after": "5"},
        {"options": {"hedaer": "true"}},
        {"attempts": 0},
        {"max_files": 0},
        {"schema": "id"},
    ],
)
def test_a_wrong_option_of_an_inbox_is_refused_where_it_stands(app, wrong):
    """The line of the app file is known only there."""
    with pytest.raises(UserError):
        app.inbox("raw", "landing", **{"format": "csv", "schema": "id long", **wrong})


@pytest.mark.parametrize("keys", [{}, {"day": "dat"}, {"a b": "int"}, {"day": 1}])
def test_wrong_keys_are_refused_where_they_stand(app, keys):
    """Keys cannot be changed later: they are in the paths of all files."""
    with pytest.raises(UserError):
        app.fileset("clean", keys=keys)


def test_arguments_have_types_and_defaults(app):
    """They are checked before anything is started."""

    @app.python(arguments={"day": str, "limit": 5})
    def report(run):
        return run

    declared = {argument.name: (argument.type, argument.default) for argument in app.programs["report"].arguments}
    assert declared == {"day": ("string", None), "limit": ("int", 5)}
    with pytest.raises(UserError):
        app.python(arguments={"day": list})


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"schema": "id int", "max_rejects": "5%"}, "max_rejects does nothing without bad_rows='reject'"),
        ({"format": "parquet", "line_end": False}, "its files have no lines"),
    ],
)
def test_an_option_of_an_inbox_that_would_do_nothing_is_refused(app, options, why):
    """A user relies on each given option."""
    with pytest.raises(UserError, match=why):
        app.inbox("orders", "landing", **options)


def test_grace_is_refused_where_no_time_is_left_out(app):
    """Only `misfire="skip"` asks how old a time is."""

    @app.python()
    def clean(run): ...

    with pytest.raises(UserError, match="grace does nothing without misfire='skip'"):
        app.schedule("clean", clean, trigger=tm.Cron("0 * * * *"), grace="5m")


def test_one_run_at_a_time_unless_constraints_say_otherwise(app):
    """Most programs read what their last run has published."""

    @app.python()
    def clean(run): ...

    app.schedule("usual", clean, trigger=tm.Every("1h"))
    app.schedule("many", clean, trigger=tm.Every("1h"), constraints=[])

    assert app.schedules["usual"].spec.constraints == (tm.Concurrency(1),)
    assert app.schedules["many"].spec.constraints == ()


def test_an_option_that_is_left_out_has_the_default_of_the_specification(app):
    """Both places name defaults, so that a specification made in code means the same as one of an app."""
    inbox = app.inbox("orders", "landing", schema="id int")

    assert inbox.spec == InboxSpec(RawFormat(FileFormat.CSV, "id int"))


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"completeness": "success-file+delay(1h)"}, "no listing looks for that file"),
        ({"partition_order": "create-time"}, "partition_order= does nothing without monitor_every="),
        ({"start": "2021-03-19 10:00:00"}, "start= does nothing without monitor_every="),
        ({"success_file": "_DONE"}, "success_file= does nothing without monitor_every="),
    ],
)
def test_options_for_listings_are_refused_where_nothing_is_listed(app, options, why):
    """They would do nothing, and say nothing."""
    watermark = tm.Watermark("ts", interval="1d", **options)
    with raises_code("bad_watermark", match=why):
        app.fileset("clicks", keys={"day": "date"}, watermark=watermark)

    app.fileset("orders", keys={"day": "date"}, location="orders", monitor_every="1 min", watermark=watermark)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"format": "csv", "monitor_every": "1m"}, "needs columns='id bigint, …': files of csv do not say the types"),
        ({"columns": "id"}, "write 'id bigint, ts timestamp', not 'id'"),
        ({"columns": "id bigint, ID int"}, "id stands there twice, or is a key"),
        ({"columns": "id bigint, Day date"}, "Day stands there twice, or is a key"),
        ({"columns": "id bignit"}, "the type BIGNIT is not known: did you mean BIGINT"),
        ({"columns": "value string", "format": "text"}, "text has one column, value: leave columns out"),
        ({"columns": "a array<int>", "format": "csv"}, "csv cannot hold the type of a: use json"),
    ],
)
def test_columns_that_a_file_set_cannot_have_are_refused(app, options, why):
    """The declaration is refused: else the first listing, or the first rows, would be."""
    with raises_code("bad_declaration", match=why):
        app.fileset("clicks", keys={"day": "date"}, **options)

    nested = "id long, price decimal(10,2), at timestamp(3), tags array<string>, who struct<a: int, b: map<string,int>>"
    clicks = app.fileset("clicks", keys={"day": "date"}, columns=nested)
    assert [*clicks.storing.columns] == ["id", "price", "at", "tags", "who"]
