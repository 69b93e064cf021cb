"""docs/windows.md: its code deploys, its statements run."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

import tidemill as tm
from tests.first_minutes import type_in

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "windows.md").read_text(encoding="utf-8")


def blocks(language: str) -> str:
    """All code of the page in one language."""
    return "\n".join(re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL))


def test_what_the_page_shows_works(sqlite_catalog_url, tmp_path):
    """A page that is typed as it stands."""
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    (tmp_path / "app.py").write_text(blocks("python"), encoding="utf-8")
    with tm.open(tmp_path) as mill:
        (deployed,) = mill.deploy()
        mill.sql(blocks("sql"))

        views = mill.watermarks.list()

    assert deployed.programs == (
        "count_hours",
        "rank_customers",
        "find_sessions",
        "join_orders",
        "join_payments",
        "count_countries",
        "count_purchases",
        "count_shifts",
    )
    assert [(view.dataset, view.zone, view.programs) for view in views] == [
        ("default.bought", "UTC", ("default.clicks.join_orders", "default.clicks.join_payments")),
        (
            "default.clicks",
            "Europe/Berlin",
            (
                "default.clicks.count_countries",
                "default.clicks.count_hours",
                "default.clicks.find_sessions",
                "default.clicks.rank_customers",
            ),
        ),
        ("default.orders", "UTC", ()),
        ("default.payments", "UTC", ("default.clicks.join_orders", "default.clicks.join_payments")),
        ("default.purchases", "UTC", ("default.clicks.count_purchases",)),
        ("default.purchases_by_hour", "UTC", ("default.clicks.count_shifts",)),
        ("default.sales", "UTC", ("default.sql.sales_by_hour",)),
        ("default.visits", "UTC", ()),
        ("default.weekly", "UTC", ()),
    ]


@pytest.mark.long
@pytest.mark.spark
def test_the_ten_minutes_print_the_rows_that_the_page_shows(tmp_path):
    """A user of Flink types the first section as it stands. The window is out without a row of the next hour."""
    section = PAGE.split("\n## ")[1]
    typed = re.findall(r"^\$ (.*)$", section, re.MULTILINE)
    (statements,), (rows,) = (re.findall(rf"```{one}\n(.*?)```", section, re.DOTALL) for one in ("sql", "text"))
    (tmp_path / "sales.sql").write_text(statements, encoding="utf-8")

    printed = type_in(typed, tmp_path, {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"})

    assert printed.endswith(rows), printed
