"""Pipelines: a source, perhaps a transformation in SQL, and a sink, declared without code (the adapter of seed 002).

A pipeline is a program like any other: scheduled, retried, one transaction a run. What its source is decides what a run
reads: a database, a function and a snapshot are read whole; of an inbox, and of a file set that goes into a file set,
each run gets what is new.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, cast

from tidemill.errors import UserError
from tidemill.frames.jdbc import Jdbc
from tidemill.run.records.programs import Code
from tidemill.run.step.context import Run, workspace_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VIEW: Final = "source"
"""The name by which a transformation reads the source."""


class NoFrame(UserError):
    """A function that is a source gave something else than a data frame."""

    code = "no_frame"

    def __init__(self, pipeline: str, given: object) -> None:
        self.pipeline = pipeline
        super().__init__(
            f"the source of pipeline {pipeline} gave {type(given).__name__}",
            "it must give a data frame for (run, spark)",
            before=": ",
        )


class Reading(StrEnum):
    """Way in which a run reads a source that is a data set."""

    CONSUME = "consume"
    """The rows that are new for this pipeline: `run.input`."""
    WHOLE = "whole"
    """All there is: `run.read`."""


class Writing(StrEnum):
    """Act of a run on the sink."""

    REPLACE = "replace"
    APPEND = "append"
    OVERWRITE = "overwrite"


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The code of such a program; `source` is a data set's name (read as `reading` says), a database, a function."""

    name: str
    source: str | Jdbc | Code
    reading: Reading
    transform: str | None
    sink: str
    writing: Writing

    @property
    def __name__(self) -> str:
        """The program's, as of a function."""
        return self.name

    def __call__(self, run: Run, spark: SparkSession) -> None:
        """Read, transform, write; the frame is read while its source is held open."""
        with self._open(run, spark) as frame:
            rows = frame
            if self.transform is not None:
                frame.createOrReplaceTempView(VIEW)  # of this run's session alone
                rows = spark.sql(self.transform)
            output = run.output(self.sink)
            match self.writing:
                case Writing.REPLACE:
                    output.replace(rows)
                case Writing.APPEND:
                    output.append(rows)
                case Writing.OVERWRITE:
                    output.overwrite(rows)

    @contextmanager
    def _open(self, run: Run, spark: SparkSession) -> Iterator[DataFrame]:
        match self.source:
            case Jdbc():
                with self.source.open(workspace_of(run).world, spark) as frame:
                    yield frame
            case str():
                yield run.read(self.source) if self.reading is Reading.WHOLE else run.input(self.source).read()
            case _:
                given = self.source(run, spark)
                if not hasattr(given, "createOrReplaceTempView"):
                    raise NoFrame(self.name, given)
                yield cast("DataFrame", given)
