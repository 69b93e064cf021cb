"""A period of time as users give it: [since, until), as times or as text in ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime

from tidemill.errors import UserError


class BadPeriod(UserError):
    """A period that ends before it begins, or a time that cannot be read."""

    code = "bad_period"
    hint = "give the earlier time as `since`, and the later time as `until`"

    def __init__(self, since: str, until: str | None, why: str) -> None:
        self.since = since
        self.until = until
        self.why = why
        period = f"the period from {since}" if until is None else f"the period from {since} until {until}"
        super().__init__(f"{period} is refused: {why}", "write the time as 2026-01-31T06:00" if until is None else "")


def read_begin(since: datetime | str) -> datetime:
    """Return the begin of a period without an end. A time without a zone is in UTC. `BadPeriod`."""
    try:
        return _read(since)
    except (ValueError, OverflowError):
        raise BadPeriod(str(since), None, f"{since} is no time") from None


def read_period(since: datetime | str, until: datetime | str) -> tuple[datetime, datetime]:
    """Return the times of a period. A time without a zone is in UTC. `BadPeriod`."""
    try:
        begin, end = _read(since), _read(until)
    except (ValueError, OverflowError):
        raise BadPeriod(str(since), str(until), "give two times such as 2026-01-31T06:00") from None
    if end <= begin:
        raise BadPeriod(str(since), str(until), "give the earlier time first")
    return begin, end


def _read(given: datetime | str) -> datetime:
    time = given if isinstance(given, datetime) else datetime.fromisoformat(given)
    return time.replace(tzinfo=UTC) if time.tzinfo is None else time.astimezone(UTC)
