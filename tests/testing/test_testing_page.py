"""The page on testing: each of its tests passes on its app."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tidemill.testing import VirtualMill

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
APP, *TESTS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def examples() -> dict[str, object]:
    """The functions that a reader pastes, by name."""
    known: dict[str, object] = {}
    for text in TESTS:
        exec(compile(text, "docs/testing.md", "exec"), known)  # our own page
    return {name: code for name, code in known.items() if name.startswith("test_")}


@pytest.fixture
def project_folder(tmp_path):
    """A project with the page's app."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    return tmp_path


WITHOUT_SPARK = {"test_the_report_waits_for_two_days_or_six_hours"}


@pytest.mark.parametrize("name", sorted(WITHOUT_SPARK))
def test_what_needs_no_spark_passes(mill, name):
    """A reader types it as it stands."""
    examples()[name](mill)


@pytest.mark.spark
@pytest.mark.parametrize("name", sorted(examples().keys() - WITHOUT_SPARK))
def test_what_needs_spark_passes(mill, name):
    """A reader types it as it stands."""
    examples()[name](mill)


def test_the_page_names_each_call():
    """A call that no page names is not there."""
    public = {name for name in vars(VirtualMill) if not name.startswith("_")}

    assert {name for name in public if f"mill.{name}" not in PAGE} == {
        "close",
        "inboxes",
        "outputs",
        "is_idle",
        "now",
        "path_of",
    }
