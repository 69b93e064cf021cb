"""Benchmarks are run by hand and seldom: here they are only looked at."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree as ET

import psutil
import pytest

from benchmarks.page import IMAGES, KEPT, PAGE, merge, plots_of, render
from benchmarks.peers.environments import PeerMissing, PeerRounds, _call, made, measure_peer
from benchmarks.plots import plot
from benchmarks.slow_network import slowed
from benchmarks.table import Figure, rows_of, to_markdown
from tests.yardstick import patience
from tidemill.catalog.engine import open_catalog
from tidemill.catalog.transactions import list_transactions
from tidemill.server.pages.lists import LISTS
from tidemill.server.pages.routes import PAGES_OF_THINGS
from tidemill.world import World


def test_every_benchmark_can_be_loaded_and_is_in_the_table():
    """A benchmark that imports a moved name would be found only on the day when its figure is wanted."""
    from benchmarks.__main__ import ALL

    readme = (Path(__file__).resolve().parent.parent / "benchmarks" / "README.md").read_text(encoding="utf-8")

    assert [name for name in ALL if f"| {name} |" not in readme] == []


def test_b15_has_the_target_of_its_table():
    """A figure between two targets meets one and misses the other."""
    from benchmarks.b15 import AIM

    readme = (Path(__file__).resolve().parent.parent / "benchmarks" / "README.md").read_text(encoding="utf-8")
    least, _, wanted = AIM.partition(", ")

    assert readme.count(f"{least} requests/s, {wanted}") == 2


def test_b15_reads_each_page_of_the_server():
    """A page that is not timed grows slow behind a long past, and users are the first to see that."""
    from benchmarks.b15 import PAGES

    patterns = [page.path for page in LISTS] + [path for path, _, _ in PAGES_OF_THINGS]
    read = {path.partition("?")[0] for path in PAGES.values()}
    untimed = [
        pattern
        for pattern in patterns
        if not any(
            re.fullmatch(re.sub("{[^}]+}", lambda one: ".+" if ":" in one[0] else "[^/]+", pattern), one)
            for one in read
        )
    ]

    assert untimed == []


def test_the_bare_statements_of_b10_are_still_those_of_a_begin_and_a_commit(catalog_url):
    """They are put together by hand there, so that nothing of the product stands around them."""
    from benchmarks.b10 import BARE, OURS, made_pair

    catalog = open_catalog(catalog_url, World())
    for kind in (OURS, BARE):
        with made_pair(kind, catalog_url) as pair:
            pair(f"run_{kind}")

    rows = catalog.read(lambda db: list_transactions(db, limit=9, open_only=False))
    catalog.close()
    assert [(row.run_id, row.state) for row in rows] == [(f"run_{BARE}", "committed"), (f"run_{OURS}", "committed")]


OURS = Figure("B3", "due at once", "SQLite", [9_000.0, 10_000.0, 12_000.0], "runs/s", "≥ 10,000")
PEER = Figure("B3", "due at once", "SQLite", [900.0, 1_000.0], "runs/s", system="Peer 3")


def test_the_table_says_how_many_times_better_ours_is():
    """More is better for a rate, less for a duration: a ratio that is upside down praises the loser."""
    ours = Figure("B1", "first line", "SQLite", [40.0], "ms", "≤ 50")
    peer = Figure("B1", "first line", "SQLite", [960.0], "ms", system="Peer 3")

    table = to_markdown({"cores": "2"}, {"B1": {"fsync (ms)": 0.7}}, [OURS, PEER, ours, peer])

    assert "- cores: 2\n" in table
    assert "| B3 | due at once | Tidemill | SQLite | 10,000 | 9,000 – 12,000 of 3 | runs/s | ≥ 10,000 |  |" in table
    assert "| B3 | due at once | Peer 3 | SQLite | 950 | 900 – 1,000 of 2 | runs/s |  | 10.5 |" in table
    assert "| B1 | first line | Peer 3 | SQLite | 960 | 960 – 960 of 1 | ms |  | 24 |" in table
    assert "| Yardsticks before | fsync (ms) |" in table


def test_the_reason_of_a_gap_stays_in_its_cell():
    """Airflow's log has a bar in each line, which begins the next cell of a table."""
    gap = Figure("B2", "one message → 300 runs", "SQLite", (), "runs/s", gap="scheduler | locked")

    row = rows_of([gap])[-1]

    assert len(re.split(r"(?<!\\)\|", row)) == 11
    assert "| scheduler \\| locked |" in row


def test_a_benchmark_that_fails_keeps_its_figures_and_says_why_it_failed():
    """A run of half an hour goes on with the next benchmark."""
    from benchmarks.__main__ import measure

    def fail(_: str) -> Iterator[Figure]:
        yield OURS
        raise RuntimeError("it took too long")

    figures = measure("B3", "SQLite", "sqlite://", fail)

    assert figures[0] == OURS
    assert [figure.gap for figure in figures[1:]] == ["failed: RuntimeError('it took too long')"]


def test_a_peer_that_cannot_be_installed_is_a_gap_with_its_reason(monkeypatch, tmp_path):
    """A row that is left out looks like a forgotten peer."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    gap = Figure("B2", "one message → 300 runs", "SQLite", (), "runs/s")

    rounds = PeerRounds("APScheduler")
    rounds.add(lambda _: 1.0)
    figures = [*measure_peer("Airflow", lambda _: [OURS], [gap]), rounds.figure("B3", "due", "SQLite", "runs/s")]
    rows = to_markdown({}, {}, figures).splitlines()[3:5]

    assert [row.split(" | ")[2].split()[0] for row in rows] == ["Airflow", "APScheduler"]
    assert ["| not measured | not installed: " in row and "Not a directory" in row for row in rows] == [True, True]


LEAVES_PROCESSES = """
import subprocess
import time

from benchmarks.processes import ending_processes, exit_at_signals

exit_at_signals()
earlier = subprocess.Popen(["sleep", "600"])
with ending_processes():
    left = subprocess.check_output(["bash", "-c", "setsid sleep 600 >&2 & echo $!"], text=True)
    child = subprocess.Popen(["sleep", "600"])
    print(earlier.pid, child.pid, left, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_all_processes_that_a_benchmark_started(number):
    """Airflow's tasks have sessions of their own. Those that stay take the processor from all later figures."""
    with subprocess.Popen([sys.executable, "-c", LEAVES_PROCESSES], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        earlier, *started = map(int, program.stdout.readline().split())

        program.send_signal(number)
        exit_code = program.wait(patience(30))
        alive = [psutil.pid_exists(pid) for pid in (earlier, *started)]
        os.kill(earlier, signal.SIGKILL)

    assert exit_code == 128 + number
    assert alive == [True, False, False]


def test_the_reason_of_a_failed_installation_is_its_last_line():
    """The reason stands in one cell of the table."""
    with pytest.raises(PeerMissing, match=r"^not installed: no index$"):
        _call(sys.executable, "-c", "import sys; sys.exit('resolving\\nno index')")


def test_an_environment_is_made_once_for_each_lock_and_again_after_an_interruption(monkeypatch, tmp_path):
    """Airflow takes a minute to install, and a half of it fails in ways that look like its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    lock, filled = tmp_path / "peer.txt", []

    def install(folder, lock):
        filled.append((lock.read_text(), folder.exists()))
        folder.mkdir()
        if len(filled) == 1:
            raise KeyboardInterrupt

    for text in ("peer==1", "peer==1", "peer==1", "peer==2"):
        lock.write_text(text)
        try:
            made("peer", lock, install)
        except KeyboardInterrupt:
            assert len(filled) == 1

    assert filled == [("peer==1", False), ("peer==1", False), ("peer==2", False)]


def test_a_plot_has_a_bar_for_each_figure_and_the_reason_of_a_gap():
    """A longer bar is a larger number; a bar that is missing without a word reads as zero."""
    gap = Figure("B3", "due at once", "PostgreSQL", (), "runs/s", system="Peer 3", gap="not installed: <no index>")

    root = ET.fromstring(plot([OURS, PEER, gap]))
    bars = [float(one.get("width")) for one in root.iter("{http://www.w3.org/2000/svg}rect")][1:]
    texts = [one.text for one in root.iter("{http://www.w3.org/2000/svg}text")]

    assert bars == [pytest.approx(400), pytest.approx(38)]
    assert ["10,000" in texts, "950" in texts, "not measured: not installed: <no index>" in texts] == [True] * 3


def test_figures_that_differ_by_powers_of_ten_are_on_a_scale_of_powers():
    """Beside a peer that takes a hundred times as long our bar would be a hair."""
    slow = Figure("B1", "first line", "SQLite", [9_600.0], "ms", system="Peer 1")

    drawn = plot([Figure("B1", "first line", "SQLite", [40.0], "ms"), slow])

    assert "logarithmic scale" in drawn
    assert "logarithmic scale" not in plot([OURS, PEER])


def test_new_figures_replace_those_of_their_benchmark_on_the_page():
    """A benchmark that was not measured this time keeps its figures, with the machine that they are from."""
    old = {name: {"machine": {"date": "1"}, "yardsticks": {}, "figures": [PEER.fields()]} for name in ("B2", "B3")}
    result = {"machine": {"date": "2"}, "yardsticks": {"B3": {"load": 0.1}}, "figures": [OURS.fields()]}

    kept = merge(old, result)

    assert [kept[name]["machine"]["date"] for name in kept] == ["1", "2"]
    assert kept["B3"]["figures"] == [OURS.fields()]


def test_the_page_names_the_machine_of_each_benchmark_in_short_lines():
    """The page is read as all docs are: a sentence with all parts of the machine has too many words."""
    part = {"machine": {"date": "2", "cores": "2"}, "yardsticks": {}, "figures": [OURS.fields()]}

    page = render("<!-- figures of B3 -->\n<!-- end -->\n", {"B3": part})

    assert page.endswith("Measured on:\n\n- date: 2\n- cores: 2\n<!-- end -->\n")


def test_the_page_and_its_plots_are_made_from_the_kept_figures():
    """A figure that is typed by hand is right on the day it is typed."""
    kept = json.loads(KEPT.read_text(encoding="utf-8"))
    page = PAGE.read_text(encoding="utf-8")

    assert render(page, kept) == page
    assert {name: (IMAGES / name).read_text(encoding="utf-8") for name in plots_of(kept)} == plots_of(kept)


def test_the_slow_network_passes_all_bytes_both_ways():
    """Schedulers behind the proxy do the same work, only later."""
    listener = socket.create_server(("127.0.0.1", 0))

    def echo():
        connection, _ = listener.accept()
        with connection:
            while received := connection.recv(1 << 16):
                connection.sendall(received)

    threading.Thread(target=echo, daemon=True).start()
    sent = bytes(range(256)) * 1_000
    with slowed(f"postgresql://127.0.0.1:{listener.getsockname()[1]}/postgres", 1) as url:
        client = socket.create_connection(("127.0.0.1", int(url.split(":")[2].split("/")[0])))
        client.sendall(sent)
        client.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: client.recv(1 << 16), b""))
        client.close()
    listener.close()

    assert received == sent
