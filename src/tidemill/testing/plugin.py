"""The pytest plug-in: fixtures that make a project for one test. Nothing of Tidemill is imported before a test asks."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tidemill as tm

if TYPE_CHECKING:
    from tidemill.testing.mill import VirtualMill


@pytest.fixture
def project_folder(request: pytest.FixtureRequest) -> Path:
    """The project under test: the nearest folder above the test file that holds `tidemill.toml` or `app.py`.

    Define a fixture of this name to test another project.
    """
    for folder in request.path.parents:
        if (folder / "tidemill.toml").exists() or (folder / "app.py").exists():
            return folder
    raise pytest.UsageError(f"no folder above {request.path} holds a tidemill.toml or an app.py")


@pytest.fixture
def mill(project_folder: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[VirtualMill]:
    """The project, deployed to a catalog in memory, with a virtual clock and a folder of the test's own."""
    if importlib.util.find_spec("greenlet") is None:
        raise pytest.UsageError('the fixture `mill` needs greenlet: run `pip install "tidemill[testing]"`')
    from tidemill.testing.mill import VirtualMill

    try:
        made = VirtualMill(project_folder, tmp_path / "mill", spark=lambda: request.getfixturevalue("spark"))
    except tm.TidemillError as error:
        # The message names the line of the app. A traceback would show only code of Tidemill.
        why = f"the project in {project_folder} cannot be deployed: {error} [{error.code}]"
        raise pytest.fail.Exception(why, pytrace=False) from None
    yield made
    made.close()


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """The Spark session of all tests; it starts when the first program needs it."""
    if importlib.util.find_spec("pyspark") is None:
        pytest.skip('PySpark is not installed: run `pip install "tidemill[spark]"`')
    from tidemill.testing.session import start_shared

    with start_shared(tmp_path_factory.mktemp("spark")) as session:
        yield session
