"""The page on inboxes, run from its top to its end; its Spark program by tests/run/test_spark_runs.py."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

import tidemill as tm
from tidemill.cli.main import main
from tidemill.roles.janitor import Janitor

PAGE = (Path(__file__).resolve().parent.parent / "docs" / "inboxes.md").read_text(encoding="utf-8")


def test_the_page_does_what_it_says(sqlite_catalog_url, tmp_path, capsys):
    """A reader types it as it stands."""
    blocks = re.findall(r"```(python|console)\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "app.py").write_text(blocks[0][1], encoding="utf-8")
    (tmp_path / "tidemill.toml").write_text(f'catalog = "{sqlite_catalog_url}"\n', encoding="utf-8")
    landing = tmp_path / "landing" / "orders"
    landing.mkdir(parents=True)
    for name in ("a.csv", "a.done", "b.csv", "b.done", "c.csv", "d.csv_current"):
        (landing / name).write_text("id,amount\n1,2.5\n")
        os.utime(landing / name, (1_700_000_000, 1_700_000_000))
    printed: list[str] = []
    with tm.open(tmp_path) as mill:
        mill.deploy()
        known = {"mill": mill}
        for language, text in blocks:
            if language == "python":
                exec(compile(text, "docs/inboxes.md", "exec"), known)  # our own page
                continue
            for line in text.strip().splitlines():
                claim = json.loads(printed[-1])["claim_id"] if " renew " in line else known.get("claim_id", "")
                known["claim_id"] = claim
                words = shlex.split(line.removeprefix("$ tidemill ").replace("CLAIM", str(claim)))
                with pytest.raises(SystemExit) as ended:
                    main(["--project", str(tmp_path), *words])
                assert not ended.value.code, line
                printed.append(re.sub(r"(?m)^file://.*\n", "", capsys.readouterr().out))
        Janitor(mill.project.catalog).empty_inboxes()

    assert json.loads(printed[0])["unusable"] == []
    scanned = json.loads(printed[1])
    assert scanned["found"] == ["a.csv", "b.csv"]
    assert scanned["held_back"] == [["c.csv", "c.done is not there yet"]]
    assert ["d.csv_current", "*_current"] in scanned["ignored"]
    assert json.loads(printed[2])["reconciled"] is True
    assert printed[5] == "1 files of default.orders retried\n"
    assert [file["name"] for file in json.loads(printed[6])["files"]] == ["b.csv"]
    assert printed[8].endswith("holds 0 files\n")
    assert printed[9] == "no such files in orders\n"
    assert [(file["name"], file["afterwards"]) for file in json.loads(printed[10])] == [
        ("a.csv", "archive"),
        ("b.csv", "archive"),
    ]
    assert sorted(path.name for path in (tmp_path / "archive" / "orders").iterdir()) == ["a.csv", "b.csv"]
    assert not (landing / "b.csv").exists()
