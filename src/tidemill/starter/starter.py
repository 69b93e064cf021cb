"""`tidemill init`: write a project that runs as it is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from tidemill.errors import Conflict
from tidemill.names import check_name
from tidemill.world import World

INBOX: Final = Path("data/inbox")
"""The folder of the project that its app watches."""

_PROJECT: Final = Path(__file__).parent / "project"
_FILES: Final = (Path("app.py"), Path("tests/test_app.py"), Path("tidemill.toml"))
_APP: Final = re.compile(r"(?<=\")shop(?=\")|(?<=\.)shop(?=\.)")
"""The app's name in these files."""


class ProjectExists(Conflict):
    """There is something already where the project is to be written."""

    code = "project_exists"

    def __init__(self, folder: str) -> None:
        self.folder = folder
        super().__init__(f"{folder} is not empty", "choose another name, or remove it", before=": ")


def write_project(world: World, folder: Path) -> list[Path]:
    """Write the project into `folder`, which is new or empty, and give its files; its last name names the app.

    `BadName` for one that cannot name an app, `ProjectExists`.
    """
    name = check_name("app", folder.name)
    if world.disk.exists(folder) and any(world.disk.list_folder(folder)):
        raise ProjectExists(str(folder))
    for file in _FILES:
        text = world.disk.read_bytes(_PROJECT / file).decode()
        world.disk.make_folder((folder / file).parent)
        world.disk.write_bytes(folder / file, _APP.sub(name, text).encode())
    world.disk.make_folder(folder / INBOX)
    return list(_FILES)
