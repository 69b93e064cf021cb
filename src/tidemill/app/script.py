"""Scripts: PySpark files that know nothing of Tidemill, each executed as a program."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Final

from tidemill.app.declared import BadDeclaration
from tidemill.run.records.programs import Argument, Value
from tidemill.run.step.context import Run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATH: Final = "PYTHONPATH"


@dataclass(frozen=True, slots=True)
class Script:
    """The code of the program `name`: the file `path` below `folder`, executed as `spark-submit` executes it.

    `argv` are the words of its command line; `$name` stands for an argument of the run.
    """

    name: str
    path: str
    argv: tuple[str, ...]
    folder: Callable[[], Path]
    """Return the folder of the app file, as it was deployed."""

    @property
    def __name__(self) -> str:
        """The program's, as of a function."""
        return self.name

    def __call__(self, run: Run, spark: SparkSession) -> None:
        """Execute the file as `__main__`. An exit with code 0 is success."""
        file = self.folder() / self.path
        words = {name: _word(value) for name, value in run.arguments.items()}
        argv = [str(file), *(Template(word).substitute(words) for word in self.argv)]
        with _as_main(file, argv), _given_out(spark), _known_to_workers(spark, str(file.parent)):
            try:
                runpy.run_path(str(file), run_name="__main__")
            except SystemExit as end:
                if end.code not in {None, 0}:
                    raise


def check_argv(program: str, argv: Sequence[str], arguments: Sequence[Argument]) -> tuple[str, ...]:
    """Return the words of a command line; `BadDeclaration` if a word names an argument that is not declared."""
    if isinstance(argv, str):
        raise BadDeclaration(program, f"has argv={argv!r}: write a list of words, argv={argv.split()!r}")
    for word in argv:
        try:
            Template(word).substitute({one.name: "" for one in arguments})
        except KeyError as error:
            why = f"has the word {word!r}, and no argument {error}: declare it in arguments=, or write $$ for a dollar"
            raise BadDeclaration(program, why) from None
        except ValueError:
            why = f"has the word {word!r} with a single $: write $name for an argument, $$ for a dollar"
            raise BadDeclaration(program, why) from None
    return tuple(argv)


def _word(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


@contextmanager
def _as_main(file: Path, argv: list[str]) -> Iterator[None]:
    """For a block: have the command line and the import path of a file that Python executes.

    Modules beside the file are forgotten at the end: another script may have others of these names.
    """
    folder, known = str(file.parent), set(sys.modules)
    before = sys.argv
    sys.argv = argv
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.argv = before
        if folder in sys.path:
            sys.path.remove(folder)
        for name in sys.modules.keys() - known:
            place = getattr(sys.modules[name], "__file__", None)
            if place and Path(place).is_relative_to(folder):
                del sys.modules[name]


@contextmanager
def _given_out(spark: SparkSession) -> Iterator[None]:
    """For a block: let `SparkSession.builder.getOrCreate()` give this session, which `stop()` does not stop.

    Scripts end by `spark.stop()`. A driver whose Spark is stopped would start another for the next run.
    """
    home = type(spark)
    before = home._instantiatedSession  # noqa: SLF001  # PySpark keeps the session of the process there
    home._instantiatedSession = spark  # noqa: SLF001  # as above
    vars(spark)["stop"] = lambda: None
    try:
        yield
    finally:
        vars(spark).pop("stop", None)
        home._instantiatedSession = before  # noqa: SLF001  # as above


@contextmanager
def _known_to_workers(spark: SparkSession, folder: str) -> Iterator[None]:
    """For a block: let Python workers of this machine import the modules beside a script, for functions of a column.

    Spark keeps workers apart by their environment. So a worker that has imported a module beside another script, or an
    earlier version of the module, serves no function of this one.
    """
    environment: dict[str, str] = spark.sparkContext.environment
    before = environment.get(_PATH)
    environment[_PATH] = folder if before is None else os.pathsep.join([folder, before])
    try:
        yield
    finally:
        del environment[_PATH]
        if before is not None:
            environment[_PATH] = before
