"""Finding the apps that an app file declares."""

from __future__ import annotations

from pathlib import Path

from tidemill.app.app import App
from tidemill.run.programs import BrokenApp, load_apps


def load_declared(app_file: Path) -> list[App]:
    """The apps that `app_file` declares, in their order in the file; `BrokenApp` when it fails or declares none."""
    apps = [app for app in load_apps(app_file) if isinstance(app, App)]
    if not apps:
        raise BrokenApp(app_file, "it declares no app; write `app = tm.App(NAME)`")
    return apps
