"""Output of the command line, without a command."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

from tidemill.mill.plain import to_plain


def test_a_time_is_shown_in_utc_and_a_number_of_a_user_stays_a_number() -> None:
    """The type of a value decides: an argument called `start_at` may be any number."""
    noon = datetime(2026, 1, 2, 12, 0, 0, 5999, tzinfo=timezone(timedelta(hours=1)))
    record = {"created_at": noon, "ended_at": None, "arguments": {"start_at": 5, "times": (noon,)}}

    assert to_plain(record) == {
        "created_at": "2026-01-02T11:00:00.005Z",
        "ended_at": None,
        "arguments": {"start_at": 5, "times": ["2026-01-02T11:00:00.005Z"]},
    }
