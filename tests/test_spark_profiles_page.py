"""docs/spark-profiles.md: its settings and its app deploy as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import tidemill as tm

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "spark-profiles.md").read_text(encoding="utf-8")
(APP,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
(SETTINGS,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)


def test_the_app_of_the_page_deploys_with_its_settings(tmp_path):
    """A user copies both."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(SETTINGS, encoding="utf-8")

    with tm.open(tmp_path) as mill:
        mill.deploy()
        shown = mill.apps.show("shop")

    assert shown.spark_profiles == {"load": "big"}
