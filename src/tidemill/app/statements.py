"""The app of statements: window programs that `INSERT INTO … SELECT …` has declared, without an app file of the user.

The app has a bundle like any other, whose app file is written here. So each node can load the programs, deployments of
other apps leave them alone, and `tidemill app history`, `rollback` and `delete` know them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import PurePath
from typing import TYPE_CHECKING, Final

from tidemill.app.app import App
from tidemill.names import Namespace
from tidemill.run.records.bundles import Bundle
from tidemill.schedule.data_triggers import WatermarkPassed
from tidemill.schedule.triggers import AnyOf

if TYPE_CHECKING:
    from tidemill.sql.window_program import WindowProgram

NAME: Final = "sql"
"""The name of the app in its namespace."""
FILE: Final = "tidemill_statements.py"
"""The app file in its bundle. No such file lies in the project."""


def is_of_statements(file: str) -> bool:
    """Return whether an app with this app file is that of statements."""
    return PurePath(file).name == FILE


def put_program(app: App, code: WindowProgram, moving: Sequence[str], every: timedelta) -> None:
    """Declare a window program, in the place of the program of its name, and a schedule that starts it.

    A run starts when the watermark of a table of `moving` has passed the end of a period `every`. Without such a table
    there is no schedule: runs are started by hand.
    """
    name = code.__name__
    app.programs.pop(name, None)
    app.schedules.pop(name, None)
    app.window_sql(name, code.statement)
    # As it was read: a refusal names the place in the file of statements.
    app.programs[name] = replace(app.programs[name], code=code, windows=code)
    passed = [WatermarkPassed(source, every=every) for source in moving]
    if passed:
        app.schedule(name, name, trigger=passed[0] if len(passed) == 1 else AnyOf(*passed))


def drop_program(app: App, name: str) -> None:
    """Declare a program no more. Its side tables stay in the catalog."""
    _, *sides = app.programs.pop(name).writes
    app.schedules.pop(name, None)
    for side in sides:
        app.datasets.pop(side.rpartition(".")[2])


def write_bundle(app: App) -> Bundle:
    """Return the code of the app: an app file that declares its programs."""
    lines = ["import tidemill as tm", f"app = tm.App({app.name!r}, namespace={str(app.namespace)!r})"]
    for name, program in app.programs.items():
        assert program.windows is not None, "statements declare window programs alone"  # noqa: S101
        lines.append(f"app.window_sql({name!r}, {program.windows.statement!r})")
    return Bundle({FILE: "\n".join([*lines, ""]).encode()})


def make_app(namespace: Namespace) -> App:
    """Return the app of a namespace without programs."""
    return App(NAME, namespace=namespace)
