"""A period of time as users give it: [since, until), as times or as text in ISO 8601."""

from __future__ import annotations

from datetime import UTC, datetime

from tidemill.errors import UserError


class BadPeriod(UserError):
    """A period that ends before it begins, or a time that cannot be read."""

    code = "bad_period"
    hint = "give the earlier time as `since`, and the later time as `until`"

    def __init__(self, since: str, until: str, why: str) -> None:
        self.since = since
        self.until = until
        self.why = why
        super().__init__(f"the period from {since} until {until} is refused: {why}")


def read_period(since: datetime | str, until: datetime | str) -> tuple[datetime, datetime]:
    """Return the times of a period. A time without a zone is in UTC. `BadPeriod`."""
    try:
        begin, end = (one if isinstance(one, datetime) else datetime.fromisoformat(one) for one in (since, until))
        begin, end = (one.replace(tzinfo=UTC) if one.tzinfo is None else one.astimezone(UTC) for one in (begin, end))
    except (ValueError, OverflowError):
        raise BadPeriod(str(since), str(until), "give two times such as 2026-01-31T06:00") from None
    if end <= begin:
        raise BadPeriod(str(since), str(until), "give the earlier time first")
    return begin, end
