"""Vendored files: what they are, their licences, and that they stay small."""

from __future__ import annotations

import gzip
import json
from hashlib import sha256
from pathlib import Path

from tidemill.server.pages import routes

VENDOR = Path(routes.__file__).parent / "static" / "vendor"


def test_each_vendored_file_is_the_one_that_was_reviewed():
    """A changed copy of another's script would run in the browser of each user."""
    listed = json.loads((VENDOR / "VENDORED.json").read_text(encoding="utf-8"))["files"]
    texts = {one["text"] for one in listed.values()}

    assert {path.name for path in VENDOR.iterdir()} == {*listed, *texts, "VENDORED.json"}
    for name, one in listed.items():
        assert sha256((VENDOR / name).read_bytes()).hexdigest() == one["sha256"], name
        assert one["licence"] in {"MIT", "BSD-2-Clause", "0BSD"}
        assert "permission" in (VENDOR / one["text"]).read_text(encoding="utf-8").lower()


def test_vendored_files_are_small_together():
    """A page on a slow line must not wait for a library."""
    listed = json.loads((VENDOR / "VENDORED.json").read_text(encoding="utf-8"))

    size = sum(len(gzip.compress((VENDOR / name).read_bytes())) for name in listed["files"])

    assert size < listed["budget_gzip"] == 150_000
