"""Times that a notebook declares to write."""

from __future__ import annotations

import pytest

from tidemill.errors import UserError
from tidemill.lake.window.watermark import list_holders
from tidemill.mill.mill import open_project

APP = """
import tidemill as tm

app = tm.App("shop")
clicks = app.fileset("clicks", keys={"day": "date", "hour": "int"},
                     watermark=tm.Watermark("ts", pattern="$day $hour:00:00", interval="1h", zone="Europe/Berlin"))
plain = app.fileset("plain", keys={"day": "date"})
"""


@pytest.fixture
def mill(catalog_url, tmp_path):
    """A project with a watermark."""
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{catalog_url}"\n', encoding="utf-8")
    with open_project(tmp_path, create=True) as opened:
        opened.deploy()
        yield opened


def declared(tmp_path):
    """The data sets as the app file declares them."""
    names: dict[str, object] = {}
    exec((tmp_path / "app.py").read_text(), names)
    return names["clicks"], names["plain"]


def test_a_transaction_says_which_times_it_writes(mill, tmp_path):
    """On the wall clock of the file set; the hour that happens twice is one hour of it."""
    clicks, _ = declared(tmp_path)
    dataset_id = mill.catalog.read(lambda db: mill._dataset(db, "clicks")).dataset_id

    with mill.transaction([clicks.span("2021-10-31 02:00", "2021-10-31 03:00")]):
        (holder,) = mill.catalog.read(lambda db: list_holders(db, dataset_id))

    assert (holder.ends - holder.begins) / 3_600_000_000 == 2
    assert mill.catalog.read(lambda db: list_holders(db, dataset_id)) == []


def test_a_span_that_cannot_be_is_refused(mill, tmp_path):
    """Before anything begins."""
    clicks, plain = declared(tmp_path)

    for span, told in (
        (plain.span("2021-10-31", None), "has no watermark"),
        (clicks.span("2021-10-31", "2021-10-30"), "is not after its start"),
        (clicks.span("tomorrow"), "is no time"),
        (clicks.span("2021-10-31T00:00Z"), "has a time zone"),
    ):
        with pytest.raises(UserError, match=told), mill.transaction([span]):
            pytest.fail("it was opened")
    assert mill.list_transactions() == []
