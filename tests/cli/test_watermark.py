"""`tidemill watermark`: what it shows, what it changes, and what it refuses with a line and a cure."""

from __future__ import annotations

import json

import pytest

from tests.sql.hours import open_plain
from tidemill.cli.main import main


@pytest.fixture
def plain(sqlite_catalog_url, tmp_path):
    """Two hours of clicks, computed; and a hole before a third."""
    opened = open_plain(tmp_path / "project", sqlite_catalog_url)
    for hour in (8, 9):
        opened.add(f"2021-03-19 {hour:02}:00", 1)
    opened.settle()
    opened.add("2021-03-19 11:00", 1)
    yield opened
    opened.mill.close()


@pytest.fixture
def tidemill(plain, capsys):
    """Run a verb of the noun; its exit code, and what it printed."""

    def run(*arguments: str) -> tuple[int, str]:
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(plain.mill.project.config.folder), "watermark", *arguments])
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out + printed.err

    return run


def test_list_and_show_tell_where_it_stands_and_what_is_computed(tidemill):
    """On the wall clock of the file set's zone; what is missing, and how far each window program has come."""
    code, table = tidemill("list")
    _, document = tidemill("list", "--json")
    (row,) = json.loads(document)
    _, document = tidemill("show", "clicks", "--json")
    shown = json.loads(document)
    _, text = tidemill("show", "clicks")

    assert code == 0
    assert "2021-03-19 12:00:00" in table
    assert (row["dataset"], row["watermark"]) == ("default.clicks", "2021-03-19 12:00:00")
    assert row["programs"] == ["default.shop.count_hours"]
    (program,) = shown["programs"]
    assert (program["computed"], program["postponed"]) == ("2021-03-19 10:00:00", [])
    assert "2021-03-19 10:00:00" in text
    assert "stale=False; window=[2021-03-19 08:00:00, 2021-03-19 09:00:00)" in text  # a record has commas of its own


def test_advance_moves_it_forward_only(tidemill, plain):
    """The record has the person's name, and a move back is refused."""
    code, text = tidemill("advance", "clicks", "2021-03-19 13:00", "--json")
    back, why = tidemill("advance", "clicks", "2021-03-19 12:30")
    causes = plain.sql("SELECT cause FROM watermark_move ORDER BY commit_seq DESC LIMIT 1")

    assert (code, json.loads(text)) == (
        0,
        {"dataset": "default.clicks", "watermark": "2021-03-19 13:00:00", "changed": True},
    )
    assert (back, "watermark rewind" in why) == (2, True)
    assert causes[0][0].startswith("by hand: ")


def test_rewind_moves_it_back(tidemill, plain):
    """The counterpart of advance is recorded, and names the programs whose windows are open again."""
    code, text = tidemill("rewind", "clicks", "2021-03-19 09:00")
    _, document = tidemill("show", "clicks", "--json")
    again, why = tidemill("rewind", "clicks", "2021-03-19 09:00")
    move = json.loads(document)["moves"][0]

    sentence = "the watermark of clicks is 2021-03-19 09:00:00; default.shop.count_hours computes later windows again"
    assert (code, text.strip()) == (0, sentence)
    assert (move["before"], move["after"]) == ("2021-03-19 12:00:00", "2021-03-19 09:00:00")
    assert move["cause"].startswith("by hand: ")
    assert (again, "watermark advance" in why) == (2, True)


def test_reset_has_windows_computed_again(tidemill, plain):
    """All of them, or those that end after a time; what is published stays until it is replaced."""
    code, text = tidemill("reset", "shop.count_hours", "--to", "2021-03-19 09:00", "--json")
    before = plain.results()
    plain.settle()
    whole, sentence = tidemill("reset", "shop.count_hours")
    plain.settle()

    said = "the next runs compute {} again; published windows stay until they are replaced"
    which = "the windows that end after 2021-03-19 09:00:00"
    record = {"program": "default.shop.count_hours", "computed": "2021-03-19 09:00:00"}
    assert (code, json.loads(text)) == (0, {**record, "consequence": said.format(which)})
    assert (whole, sentence.strip()) == (0, f"shop.count_hours: {said.format('all windows')}")
    assert before == {"08:00": 1, "09:00": 1}
    assert plain.results() == {"08:00": 1, "09:00": 1, "11:00": 1}


def test_reset_with_its_state_kept_says_what_that_means(tidemill, plain):
    """Nothing is computed again."""
    code, sentence = tidemill("reset", "shop.count_hours", "--keep-state")

    assert code == 0
    assert "shop.count_hours: the program has computed up to 2021-03-19 10:00:00, and keeps that" in sentence
    assert plain.sql("SELECT count(*) FROM window_result WHERE stale = 1") == [(0,)]


REFUSED = [
    (("show", "clickz"), "did you mean"),
    (("show", "hourly"), "watermark=tm.Watermark("),
    (("advance", "clicks", "noon"), "write it on the file set's wall clock"),
    (("advance", "clicks", "2021-03-19 13:00+01:00"), "write it on the file set's wall clock"),
    (("rewind", "clicks", "noon"), "write it on the file set's wall clock"),
    (("rewind", "hourly", "2021-03-19 13:00"), "watermark=tm.Watermark("),
    (("advance", "hourly", "2021-03-19 13:00"), "watermark=tm.Watermark("),
    (("reset", "shop.count_hour"), "did you mean"),
    (("reset", "shop.count_hours", "--to", "2021-03-19 09:00", "--keep-state"), "leave one of the two out"),
    (("reset", "shop.count_hours", "--to", "2021-03-19 13:00"), "it has computed up to 2021-03-19 10:00:00"),
]


def test_what_is_wrong_is_refused_with_a_cure(tidemill):
    """A user gets one line, exit code 2 or 4, and no traceback."""
    answers = [(*tidemill(*command), said) for command, said in REFUSED]

    assert [code for code, _, _ in answers if code not in {2, 4}] == []
    assert [text for _, text, said in answers if said not in text or "Traceback" in text] == []
