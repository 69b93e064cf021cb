from __future__ import annotations

import pytest

from tidemill.names import (
    DEFAULT_NAMESPACE,
    BadName,
    Namespace,
    advise,
    backlog_event,
    check_name,
    file_event,
    nearest,
    partition_event,
    program_event,
    qualified,
    split_qualified,
)


@pytest.mark.parametrize("name", ["a", "clicks", "daily_report-2", "X" * 100])
def test_names_that_people_use_are_taken(name: str) -> None:
    """Letters, digits, `_` and `-`."""
    assert check_name("data set", name) == name


@pytest.mark.parametrize(
    "name", ["", "1st", "_a", "a.b", "a/b", "..", "a b", "é", "a\x00", "a\n", "a:b", "a'b", "a%2e", "X" * 101]
)
def test_names_that_would_not_be_safe_in_paths_and_addresses_are_refused(name: str) -> None:
    """They become directories, URLs and event keys: `..` would leave the location, NUL would cut it."""
    with pytest.raises(BadName) as refused:
        check_name("data set", name)

    assert refused.value.exit_code == 2
    assert repr(name) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "parts", "namespace", "names"),
    [
        ("clicks", 1, "default", ("clicks",)),
        ("web.clicks", 1, "web", ("clicks",)),
        ("shop.ingest", 2, "default", ("shop", "ingest")),
        ("web.shop.ingest", 2, "web", ("shop", "ingest")),
    ],
)
def test_a_dotted_name_may_leave_out_the_namespace(
    text: str, parts: int, namespace: str, names: tuple[str, ...]
) -> None:
    """A part that most users have only once need not be typed."""
    assert split_qualified("data set", text, parts) == (namespace, names)


@pytest.mark.parametrize("text", ["", ".", "a.", ".a", "a..b", "a.b.c", "a/b.c"])
def test_a_dotted_name_with_too_many_or_empty_parts_is_refused(text: str) -> None:
    """Also where one of the parts is none."""
    with pytest.raises(BadName):
        split_qualified("data set", text, 1)


def test_taking_apart_undoes_putting_together() -> None:
    """The same text everywhere: messages, logs, command line."""
    text = qualified(Namespace("web"), "shop", "ingest")

    assert text == "web.shop.ingest"
    assert split_qualified("program", text, 2) == ("web", ("shop", "ingest"))


def test_the_nearest_name_is_the_one_that_was_meant() -> None:
    """For messages; a far one would confuse."""
    known = ["clicks", "lines", "results"]

    assert nearest("click", known) == "clicks"
    assert nearest("zzz", known) is None
    assert nearest("clicks", []) is None


def test_advice_names_what_was_meant_or_says_what_else_there_is() -> None:
    """Every mistyped name gets the same phrase, and no phrase where there is nothing to say."""
    assert advise("clikcs", ["clicks", "users"], "there are two", before="; ") == "; did you mean 'clicks'?"
    assert advise("xyz", ["clicks", "users"], "there are two", before="; ") == "; there are two"
    assert advise("xyz", ["clicks", "users"], before="; ") == ""


def test_event_keys_tell_kinds_of_events_apart() -> None:
    """A trigger listens to one: two kinds with one key would start the wrong programs."""
    keys = [
        partition_event(DEFAULT_NAMESPACE, "clicks"),
        file_event(DEFAULT_NAMESPACE, "clicks"),
        backlog_event(DEFAULT_NAMESPACE, "clicks"),
        program_event(DEFAULT_NAMESPACE, "shop", "ingest", "COMPLETED"),
    ]

    assert keys == [
        "partition:default.clicks",
        "file:default.clicks",
        "backlog:default.clicks",
        "program:default.shop.ingest:COMPLETED",
    ]
