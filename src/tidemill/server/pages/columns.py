"""Columns of tables: how the fields of records are titled and shown, and to which page each leads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Column:
    """A column: the field of a record, its title, the way to show it, and the page that it leads to."""

    field: str
    label: str
    kind: str = "text"
    """`text`, `long`, `name`, `state`, `time`, `number`, `bytes` or `code`."""
    link: str = ""


ROWS: Final = Column("rows", "Rows", "number")
BYTES: Final = Column("bytes", "Bytes", "bytes")
FILES: Final = Column("files", "Files", "number")
COMMITTED: Final = Column("committed_at", "Committed", "time")
RUN: Final = Column("run_id", "Run", "text", "/runs/{run_id}")
BY_RUN: Final = Column("run_id", "By run", "text", "/runs/{run_id}")
PARTITION: Final = Column("partition", "Partition", "name")
PARTITION_PAGE: Final = Column("partition", "Partition", "name", "{page}")
"""The partition, with a link to its page. Rows have the link in `page`."""
CONSUMER: Final = Column("name", "Consumer", "name", "/consumers/{dataset}/{name}")
DATASET: Final = Column("dataset", "Data set", "name", "/datasets/{dataset}")
PROGRAM: Final = Column("program", "Program", "text", "/runs?program={program}")
"""The program, with a link to its runs: a program has no page of its own."""
STATE: Final = Column("state", "State", "state")
ERROR: Final = Column("error", "Error", "long")
WHY: Final = Column("why", "Why", "long")
LISTENERS: Final = (
    Column("name", "Schedule", "name", "/schedules/{name}"),
    Column("status", "State", "state"),
    Column("trigger", "Trigger", "long"),
)
"""Schedules that listen to a data set."""
READERS: Final = (
    CONSUMER,
    Column("waiting", "Left", "number"),
    BYTES,
    Column("oldest_at", "Oldest", "time"),
    Column("in_progress", "Taken", "number"),
    Column("discarded", "Discarded", "number"),
)
"""Consumers of a data set."""
