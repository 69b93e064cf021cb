"""Sources of arguments: the path of a `From`, which names a value of what started the run. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final, TypeAlias

from tidemill.errors import UserError
from tidemill.json_specs import renamed, sparse
from tidemill.names import qualified, split_qualified
from tidemill.run.records.programs import Value

_PARTITION_WORDS: Final = 3


class BadArgumentSource(UserError):
    """A source of an argument that cannot be."""

    code = "bad_argument_source"
    hint = "correct the source of the argument as the reason says"

    def __init__(self, path: str, why: str) -> None:
        self.path = path
        self.why = why
        super().__init__(f"source {path!r} of an argument is refused: {why}")


class MissingSource(UserError):
    """A source of an argument that nothing has fed, and that has no default."""

    code = "missing_source"

    def __init__(self, argument: str, path: str, why: str) -> None:
        self.argument = argument
        self.path = path
        super().__init__(
            f"argument {argument!r} has no value: {why}, and its source {path!r} has no default",
            "update the schedule with a default for it",
        )


@dataclass(frozen=True, slots=True)
class PartitionKey:
    """A field of the key of the last partition that fed the job."""

    dataset: str
    field: str


@dataclass(frozen=True, slots=True)
class LogicalTime:
    """The logical time of the run, as text in UTC."""


@dataclass(frozen=True, slots=True)
class RunField:
    """A field of the message of the last run that fed the job, or one of the run's arguments."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MessageField:
    """A field in the payload of the last message of a users' topic that fed the job."""

    fields: tuple[str, ...]


Source: TypeAlias = PartitionKey | LogicalTime | RunField | MessageField


@sparse
@dataclass(frozen=True, slots=True)
class From:
    """Value of an argument that comes from what started the run.

    `clicks.partition.day` is the field `day` of the last partition of `clicks` that fed the job. `run.arguments.day`,
    `run.run_id`, `run.program` and `run.state` are of the last run that fed the job. So are `run.values.rows`, a value
    that the run has put, and `run.values.fetch.rows`, a value of the node `fetch` of a workflow. `message.day` is the
    field `day` in the payload of the last message of a users' topic that fed the job. `logical_time` is the logical
    time of the new run. If the source has no value, the argument is `default`. Without a default, the job ends.
    """

    path: str
    default: Value | None = None

    def __post_init__(self) -> None:
        _parse(self.path)

    @property
    def source(self) -> Source:
        """The source that the path names."""
        return _parse(self.path)


renamed(From, path="from")


@lru_cache(maxsize=1024)
def _parse(path: str) -> Source:
    words = path.split(".") if isinstance(path, str) else []
    if words == ["logical_time"]:
        return LogicalTime()
    match words:
        case ["run", ("run_id" | "program" | "state") as field]:
            return RunField((field,))
        case ["run", "arguments", name] if name:
            return RunField(("arguments", name))
        case ["run", "values", *names] if names and all(names):
            return RunField(("values", ".".join(names)))
        case ["message", *fields] if fields and all(fields):
            return MessageField(tuple(fields))
    if len(words) >= _PARTITION_WORDS and words[-2] == "partition" and words[-1]:
        namespace, (name,) = split_qualified("data set", ".".join(words[:-2]), 1)
        return PartitionKey(qualified(namespace, name), words[-1])
    forms = "write it as 'clicks.partition.day', 'run.arguments.day', 'run.run_id', 'message.day' or 'logical_time'"
    raise BadArgumentSource(str(path), forms)
