"""Pages of data: the facts of each in numbers made by hand, the questions before each action, and hostile names."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from urllib.parse import quote

import pytest
from httpx import Client

from tests.server.lake import APP, fill_lake
from tests.stage import Stage, staged
from tests.yardstick import patience
from tidemill.cli.main import main
from tidemill.server.listen import Listener
from tidemill.server.pages.data_view import Plot, Series

TAGS = re.compile(r"<[^>]+>")


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """A project on SQLite, which the tests of this module read."""
    folder = tmp_path_factory.mktemp("lake")
    with staged(folder, f"sqlite:///{folder / 'c.db'}", APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as opened:
        fill_lake(opened)
        opened.sql("UPDATE inbox_file SET status = 'QUARANTINED', run_id = NULL WHERE name LIKE '%bad%' RETURNING 1")
        opened.sql("UPDATE inbox_file SET status = 'SUCCESS', row_count = 7 WHERE name = 'a.csv' RETURNING 1")
        yield opened


@pytest.fixture(scope="module")
def client(stage: Stage) -> Iterator[Client]:
    """A client of a real server."""
    listener = Listener(stage.mill)
    listener.start()
    try:
        with Client(base_url=listener.url, timeout=patience(10), headers={"accept": "text/html"}) as opened:
            yield opened
    finally:
        listener.stop()


@pytest.fixture(scope="module")
def read(stage: Stage, client: Client) -> Callable[..., str]:
    """Return the text of a page for a caller with a role."""
    secrets = {role: stage.mill.tokens.create(f"t-{role}", role=role).secret for role in ("admin", "viewer")}

    def page(path: str, role: str = "admin") -> str:
        answer = client.get(path, headers={"authorization": f"Bearer {secrets[role]}"})
        assert answer.status_code == 200, answer.text[-500:]
        return answer.text

    return page


def words(text: str) -> str:
    """Return what a person reads of a page, in one line."""
    return " ".join(unescape(TAGS.sub(" ", text)).split())


def test_a_file_set_says_what_is_late_missing_and_left(read):
    """The first screen answers: is the data set fresh, is an hour missing, is a reader behind."""
    text = read("/datasets/flights")

    assert "partitions 58 rows 324" in words(text)
    assert "missing 1 in this period late or rewritten 2 in this period consumers 1" in words(text)
    assert 'title="2026-01-02 08:00: missing"' in text
    assert 'title="2026-01-03 03:00: rewritten, 1 partition, 1 row, 22 B, 1 rewritten"' in text
    assert "2026-01-01 04:00: late" in text
    assert "shop.sum_up 59" in words(text)
    assert "hour int · key" in words(text)


@pytest.mark.parametrize("name", ["flights", "planes"])
def test_a_number_that_is_cut_says_so(read, stage, name):
    """A page lists the first 50 consumers of a data set, and a reader takes 50 for their number."""
    (identity,) = stage.sql(f"SELECT dataset_id FROM dataset WHERE name = '{name}'")
    was = stage.mill.consumers.list(dataset=name, limit=100)
    values = (
        f"('extra_{number:02}', '{identity[0]}', 'extra_{number:02}', 0, '[]', '{{}}', 0)" for number in range(51)
    )
    columns = "consumer_id, dataset_id, name, start_version, versions_to_check, spec, revision"
    stage.sql(f"INSERT INTO consumer ({columns}) VALUES {', '.join(values)} RETURNING 1")
    many = words(read(f"/datasets/{name}"))
    stage.sql(f"DELETE FROM consumer WHERE consumer_id >= 'extra_{49 - len(was)}' AND name LIKE 'extra_%' RETURNING 1")
    few = words(read(f"/datasets/{name}"))
    stage.sql("DELETE FROM consumer WHERE name LIKE 'extra_%' RETURNING 1")

    assert "consumers 50 or more" in many
    assert "consumers 49" in few
    assert "consumers 49 or more" not in few


def test_a_partition_with_more_runs_and_changes_than_its_record_has_says_so(read, stage, monkeypatch):
    """The record of a partition has the newest runs and changes, and a reader takes these for all."""
    path = f"/datasets/flights/{quote('day=2026-01-03 hour=3')}"
    assert "changes 2 read by 0 runs" in words(read(path))
    for place in ("mill.partition_views", "server.pages.partition_page"):
        monkeypatch.setattr(f"tidemill.{place}.MOST_LISTED", 1)

    assert "changes 1 or more read by 0 runs" in words(read(path))


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("?within=all", "2026 ! 58 partitions"),
        ("?within=2026", "Jan ! 58 partitions"),
        ("?within=2026-01", "January 2026"),
        ("?within=2026-01-02", "All years / 2026 / January / week 1 / 2026-01-02"),
        ("?within=2026-01&all=1", "day=2026-01-03 hour=14"),
        ("?as_of=1", "no file was there then"),
        ("?as_of=3", "day=2026-01-01/hour=23/part-0.txt"),
        ("?as_of=never", "nothing can be read as of 'never'"),
    ],
)
def test_a_link_says_which_part_of_a_file_set_is_shown(read, path, said):
    """A person sends a link, and another one sees the same period, moment or rows."""
    assert said in words(read(f"/datasets/flights{path}"))


def test_a_partition_links_what_made_it_and_what_it_went_into(read):
    """A cell of the calendar leads to the partition, and the partition to its runs."""
    (href,) = re.findall(r'href="([^"]*)" title="2026-01-03 03:00: rewritten', read("/datasets/flights"))
    text = read(f"{unescape(href)}?rows=20")
    lineage = words(read(f"/lineage?thing=default.flights/{unescape(href).rpartition('/')[2]}"))

    assert "day=2026-01-03 hour=3" in words(text)
    assert [words(row).split()[3] for row in re.findall(r"<tr><td><time.*?</tr>", text, re.DOTALL)] == [
        "overwrite",
        "append",
    ]
    assert "1 step upstream run_" in lineage
    assert "no metadata; the form below adds some" in words(text)


def test_an_inbox_shows_its_files_by_state_over_time(read):
    """The engineer on duty sees how many files are stuck, since when, and why."""
    text = read("/inboxes/raw")
    plot = json.loads(unescape(re.search(r'data-plot="([^"]*)"', text).group(1)))

    assert "4 all files 1 ✓ success 2 ! error 1 ◷ quarantined" in words(text).replace("✕ quarantined", "◷ quarantined")
    assert {one["label"]: sum(one["values"]) for one in plot["series"]} == {"success": 1, "error": 2, "quarantined": 1}
    assert len(plot["times"]) == 24
    assert (
        len(json.loads(unescape(re.search(r'data-plot="([^"]*)"', read("/inboxes/raw?hours=168")).group(1)))["times"])
        == 168
    )
    assert "line 3 column 2" in text
    assert words(read("/inboxes/raw?state=QUARANTINED")).count("bad.csv ✕ quarantined") == 1


def test_a_snapshot_shows_its_versions_on_a_line(read, stage):
    """The page names the current version, the earlier ones, and the command that compares two."""
    text, versions = read("/datasets/planes"), stage.mill.snapshots.versions("planes")
    newest, middle, oldest = (one.version for one in versions)

    assert f"current version {newest} rows 3" in words(text)
    assert text.count("<circle class=") == 3
    assert f"{oldest} ‖ kept" in words(text)
    assert f'href="?old={oldest}&amp;new={newest}#difference"' in text
    assert f"tidemill snapshot compare default.planes {middle} {newest}" in words(text)


def test_two_versions_of_a_snapshot_are_compared_in_numbers(read, stage):
    """Before a roll back, the page shows what would be lost; a command shows the rows."""
    newest, middle, oldest = (one.version for one in stage.mill.snapshots.versions("planes"))

    wider = words(read(f"/datasets/planes?old={oldest}&new={newest}"))
    back = words(read(f"/datasets/planes?old={middle}&new={oldest}"))
    same = words(read(f"/datasets/planes?old={oldest}&new={oldest}"))

    assert f"Version {newest} has 2 rows more than version {oldest}." in wider
    assert "rows 1 → 3 2 more size 2 B → 6 B 4 B more files added 1 files removed 1 files in both 0" in wider
    assert f"tidemill snapshot diff default.planes {oldest} {newest}" in wider
    assert f"Version {oldest} has 1 row fewer than version {middle}." in back
    assert f"Versions {oldest} and {oldest} have the same rows" in same
    assert "snapshot diff" not in same
    assert "77 of default.planes" in words(read(f"/datasets/planes?old=77&new={newest}"))
    assert "A version is a whole number" in words(read("/datasets/planes?old=x"))


def test_a_watermark_shows_its_slots_and_what_holds_it(read):
    """W waits for one hour, and the page names the hour."""
    text = read("/watermarks/flights")

    assert "held by 2026-01-02 08:00, which is missing" in words(text)
    assert text.count('class="cell') >= 59
    before, after = text.split("<b>W</b>", 1)
    assert before.count('role="img" title="2026-01') == 28
    assert after.index("2026-01-02 08:00: missing") < after.index("2026-01-02 09:00: there")


QUESTIONS = [
    (
        "/datasets/flights?ask=drop&where=day%3D2026-01-03",
        "This drops 15 partitions of default.flights with 15 rows in 15 files.",
    ),
    ("/datasets/flights?ask=drop&where=x%3D1", "is not a field of this key"),
    ("/datasets/flights?ask=drop&where=%22", "No closing quotation"),
    ("/datasets/flights?ask=drop&where=", "say which partitions"),
    (
        "/datasets/flights?ask=drop&where=day%3D2020-01-01",
        "No partition of default.flights is meant by day=2020-01-01.",
    ),
    ("/datasets/flights?ask=compact", "it has 58 files in 58 partitions"),
    (
        "/datasets/flights/day=2026-01-03%20hour=3?ask=drop",
        "This drops day=2026-01-03 hour=3 of default.flights with 1 row in 1 file.",
    ),
    (
        "/datasets/flights/day=2026-01-03%20hour=3?ask=describe&entry=a&value=b",
        "This sets a of day=2026-01-03 hour=3 to 'b'.",
    ),
    ("/datasets/flights/day=2026-01-03%20hour=3?ask=describe&entry=a", "This removes a from day=2026-01-03 hour=3."),
    ("/inboxes/raw?ask=release", "This releases the file bad.csv (23 B) from quarantine."),
    ("/inboxes/raw?ask=ignore", "This ignores the file bad.csv (23 B): no run gets it, and no alert counts it."),
    ("/inboxes/raw?ask=retry&state=IGNORED", "No such file of default.raw is ignored."),
    ("/inboxes/raw?ask=retry", "This tries 2 files (46 B) again at once"),
    ("/inboxes/raw?ask=retry&file=b.csv", "This tries the file b.csv (23 B) again at once"),
    ("/inboxes/raw?ask=reprocess&file=a.csv", "This delivers the file a.csv (7 rows, 23 B) again"),
    ("/inboxes/raw?ask=reprocess", "No such file of default.raw is success."),
    ("/inboxes/raw?ask=release&file=a.csv", "No such file of default.raw is quarantined."),
    ("/consumers/flights/sum_up?ask=reset&to=now", "This forgets the 59 partitions that are left"),
    ("/consumers/flights/sum_up?ask=reset&to=beginning&where=day%3D2026-01-01", "only partitions with day=2026-01-01"),
    ("/consumers/flights/sum_up?ask=requeue", "No partition was discarded."),
    ("/watermarks/flights?ask=advance&to=2026-01-03+00:00", "past 16 slots of those below, 1 of them not complete"),
    ("/watermarks/flights?ask=advance&to=x", "'x' is no time on the wall clock"),
    ("/watermarks/flights?ask=advance&to=2026-01-01+00:00", "stands at 2026-01-02 08:00:00 already"),
    ("/watermarks/flights?ask=rewind&to=2026-01-02+06:00", "back to 2026-01-02 06:00, over 2 slots of those below"),
    ("/watermarks/flights?ask=rewind&to=2026-02-01", "it has not passed 2026-02-01"),
    ("/watermarks/flights?ask=reset&program=x", "x is no window program over default.flights."),
    ("/datasets/planes?ask=rollback&version=1", "Version 1 of default.planes is current, or is not kept any more."),
]


@pytest.mark.parametrize(("path", "said"), QUESTIONS)
def test_an_action_first_says_what_it_will_do_in_numbers(read, path, said):
    """A dangerous action is understood before it is done, or refused with the reason."""
    assert said in words(read(path))


def test_a_roll_back_says_how_the_rows_change(read, stage):
    """A roll back in a hurry must not lose rows unseen: the older version has fewer."""
    newest, _, oldest = (one.version for one in stage.mill.snapshots.versions("planes"))

    said = words(read(f"/datasets/planes?ask=rollback&version={oldest}"))

    assert f"1 row, 2 rows fewer than version {newest} has." in said


def test_a_viewer_sees_what_an_action_would_do_and_no_button(read):
    """A role may look at numbers, and cannot press what the server would refuse."""
    path = "/datasets/flights?ask=drop&where=day%3D2026-01-03"

    assert 'data-path="/v1/datasets/default.flights:drop"' in read(path)
    assert "data-path" not in read(path, role="viewer")
    assert "it needs the right to deploy" in words(read(path, role="viewer"))


def test_hostile_names_are_text(read):
    """Names of files and keys come from outside, and go into text, links, titles and commands."""
    key = quote("carrier=B<i>C")
    pages = [
        read(path) for path in ("/datasets/lines", f"/datasets/lines/{key}", "/inboxes/raw", "/inboxes/raw?ask=retry")
    ]

    assert all("<i>" not in text.replace('<i aria-hidden="true">', "") for text in pages)
    assert all("<b>no" not in text for text in pages)
    assert all("B&lt;i&gt;C" in text for text in pages[:2])
    assert all("&lt;i&gt;x.csv" in text for text in pages[2:])
    assert "<script>" not in read("/datasets/lines?ask=drop&where=<script>alert(1)</script>")


@pytest.mark.parametrize(
    "path",
    [
        "/datasets/flights",
        "/datasets/flights?within=2026-01",
        "/datasets/flights?as_of=3",
        "/datasets/real?rows=20",
        "/datasets/flights/day=2026-01-03%20hour=3",
        "/datasets/planes",
        "/datasets/lines",
        "/inboxes/raw",
        "/inboxes/raw?state=ERROR&hours=168",
        "/consumers/flights/sum_up",
        "/watermarks/flights",
    ],
)
def test_each_command_of_a_page_works(read, stage, capsys, path):
    """A command is there to be copied: it must be one that the shell and Tidemill take."""
    text = read(path)
    commands = {unescape(one) for one in re.findall(r'data-copy="tidemill ([^"]*)"', text)}
    assert len(commands) >= 2
    for command in commands:
        if command.startswith("snapshot diff"):  # starts Spark
            continue
        with pytest.raises(SystemExit) as ended:
            main(["--project", str(stage.mill.project.config.folder), *shlex.split(command)])
        assert not ended.value.code, (command, capsys.readouterr().err)


def test_rows_are_shown_when_a_link_asks_for_them(read):
    """Only a link that asks for rows opens files, and their values are text."""
    text = read("/datasets/real?rows=20")

    assert "n text day" in words(text)
    assert text.count("&lt;i&gt;x&lt;/i&gt;") == 20
    assert "n text day" not in words(read("/datasets/real"))
    assert "[unreadable" in read("/datasets/flights?rows=20") or "not read" in read("/datasets/flights?rows=20")


def test_an_empty_list_says_what_to_do_next(read):
    """A newcomer sees a new file set, and knows how to fill it."""
    text = words(read("/datasets/empty"))

    assert "nothing was written yet; a run of a program that writes it does" in text
    assert "no columns yet; the first commit brings them" in text
    assert "no program reads it; declare one in the app: reads=[…]" in text


def test_a_plot_is_a_drawing_a_table_and_data():
    """Without a script, bars stand on each other, and a table has the numbers."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    times = [at, at + timedelta(hours=1)]
    plot = Plot(
        "Files", times, [Series("done", "✓", "ok", [1, 3]), Series("bad", "✕", "fail", [1, 0])], "files", "", "hour"
    )

    assert plot.bars == [
        {"x": 1, "y": 64, "height": 32, "shape": "ok"},
        {"x": 1, "y": 32, "height": 32, "shape": "fail"},
        {"x": 11, "y": 0, "height": 96, "shape": "ok"},
    ]
    assert plot.rows == [{"at": times[1], "values": [3, 0]}, {"at": times[0], "values": [1, 1]}]
    assert (plot.most, plot.total) == (3, 5)
    assert json.loads(plot.json)["times"] == [int(one.timestamp()) for one in times]
