"""Kinds of changes of partitions."""

from __future__ import annotations

from enum import StrEnum


class ChangeKind(StrEnum):
    """Kind of a change, as a consumer of the file set sees it."""

    NEW = "new"
    APPENDED = "appended"
    OVERWRITTEN = "overwritten"
