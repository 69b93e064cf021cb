"""What `Mill` tells about the catalog's objects: the same records for Python, command line and JSON.

Names are qualified (`default.clicks`). Fields ending in `_at` are epoch milliseconds; the command line shows them as
ISO 8601 in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidemill.names import RunId


@dataclass(frozen=True, slots=True)
class RunView:
    """A run; `facts` is what its last attempt reported: rows in and out, seconds, process."""

    run_id: RunId
    program: str | None
    state: str
    epoch: int
    failures: int
    losses: int
    priority: int
    arguments: Mapping[str, object]
    triggered_by: Mapping[str, object]
    write_pointer: int | None
    created_at: int
    started_at: int | None
    ended_at: int | None
    exit_reason: str | None
    log_location: str | None
    facts: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class InputView:
    """What a run took: a partition, or a file with its content version."""

    dataset: str
    write_pointer: int
    item: str
    content_version: str


@dataclass(frozen=True, slots=True)
class PublishedView:
    """What a transaction changed of one data set."""

    dataset: str
    partition: str
    op: str
    files: int
    bytes: int
    rows: int


@dataclass(frozen=True, slots=True)
class DatasetView:
    """A data set with its size: current partitions of a file set, known files of an inbox."""

    name: str
    kind: str
    app: str | None
    location: str
    spec: Mapping[str, object]
    schema: str | None
    partitions: int | None
    files: int
    bytes: int
    rows: int | None


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One current change of a partition; a partition has several after appends."""

    partition: str
    op: str
    write_pointer: int
    commit_seq: int
    files: int
    bytes: int
    rows: int
    run_id: RunId
    committed_at: int


@dataclass(frozen=True, slots=True)
class FileView:
    """A committed file of a file set: where it is, and the typed key values that are not stored in it."""

    path: str
    bytes: int
    rows: int
    partition: str
    key: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule; trigger and constraints as people write them."""

    name: str
    program: str
    status: str
    owner: str
    generation: int
    trigger: str
    constraints: str
    arguments: Mapping[str, object]
    description: str
    priority: int
    timeout: str
    next_fire_at: int | None


@dataclass(frozen=True, slots=True)
class JobView:
    """A job that waits; `why` says for what."""

    job_id: str
    schedule: str
    state: str
    created_at: int
    next_check_at: int | None
    priority: int
    why: str
    verdict: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class EndedJobView:
    """A job that has become a run, or was dropped."""

    job_id: str
    schedule: str
    outcome: str
    run_id: str | None
    created_at: int
    ended_at: int
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class ConsumerView:
    """A managed consumer of a file set: its state, and what waits for it.

    `waiting` counts what it has not taken yet; `in_progress` and `discarded` what it has.
    """

    dataset: str
    name: str
    waiting: int
    bytes: int
    oldest_at: int | None
    in_progress: int
    discarded: int
    start_version: int
    versions_to_check: tuple[int, ...]
