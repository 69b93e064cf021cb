"""`Reads`: the terms of a program's input, as they are declared and deployed."""

from __future__ import annotations

import pytest

import tidemill as tm
from tests.app.test_deploy import redeploy
from tidemill import UserError

APP = """
import tidemill as tm

app = tm.App("shop")
lines = app.fileset("lines", keys={{"hour": "int"}})
raw = app.inbox("raw", "landing", format="text")


@app.python(reads=[{reads}])
def report(run):
    pass
"""


def consumer(mill):
    """The consumer of the program, as people see it."""
    return mill.consumers.show("lines", "default.shop.report")


def test_terms_are_deployed_and_follow_the_app(mill):
    """The start counts once; how much is taken may change at any time."""
    redeploy(mill, APP.format(reads='tm.Reads(lines, start="now", max_partitions=3, order="newest", old_share=0.25)'))
    first = consumer(mill)
    redeploy(
        mill, APP.format(reads='tm.Reads(lines, start="beginning", max_bytes="1 KB", on_change="ignore", attempts=5)')
    )
    second = consumer(mill)
    redeploy(mill, APP.format(reads="lines"))

    assert first.terms == {"partitions": 3, "order": "newest", "old_percent": 25}
    assert first.start_version > 0
    assert second.terms == {"bytes": 1000, "on_change": "ignore", "attempts": 5}
    assert second.start_version == first.start_version
    assert consumer(mill).terms == {}


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"start": "begining"}, "did you mean 'beginning'"),
        ({"order": "newst"}, "did you mean 'newest'"),
        ({"on_change": "fail"}, "use one of again, ignore, error"),
        ({"max_partitions": 0}, "must allow something"),
        ({"attempts": 0}, "at least one attempt"),
        ({"max_bytes": "many"}, "many"),
        ({"old_share": 0.5, "order": "newest"}, "needs max_partitions or max_bytes"),
        ({"old_share": 0.5, "max_partitions": 4}, "goes with the newest first"),
        ({"old_share": 1.0, "order": "newest", "max_partitions": 4}, "less than 1"),
    ],
)
def test_terms_that_cannot_be_are_refused_where_they_stand(options, told):
    """With the line of the app file, before anything is deployed."""
    with pytest.raises(UserError, match=told):
        tm.Reads("lines", **options)


def test_only_file_sets_are_read_on_terms(mill):
    """An inbox has terms of its own, where it is declared."""
    with pytest.raises(UserError, match="kind inbox, not a file set"):
        redeploy(mill, APP.format(reads="tm.Reads(raw, max_partitions=2)"))
