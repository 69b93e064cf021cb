"""docs/server.md: its programs run against a server as they stand."""

from __future__ import annotations

import re
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.server.test_run_tokens import begin
from tests.stage import staged
from tidemill.config import LogFormat, ServerSettings, load_config
from tidemill.mill.access import Role
from tidemill.server.limits import BODY_WITHIN, MOST_BYTES
from tidemill.server.listen import Listener
from tidemill.server.proxies import TrustedUsers, is_trusted, proxies_of
from tidemill.world import World

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "server.md").read_text(encoding="utf-8")
RUN, CLIENT, REST, LIVE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
SETTINGS, PROXY, LOGS = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
APP = """
import tidemill as tm

app = tm.App("shop")
orders = app.fileset("orders", keys={"day": "date"})


@app.python(writes=[orders])
def load(run):
    pass
"""


def test_the_programs_list_runs_start_one_and_follow_a_topic(sqlite_catalog_url, tmp_path, monkeypatch, capsys):
    """A reader copies them."""
    with staged(tmp_path, sqlite_catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as stage:
        stage.publish("orders", "day=2026-01-01")
        earlier = stage.mill.runs.start("shop.load").run_id
        listener = Listener(stage.mill)
        listener.start()
        monkeypatch.setenv("TIDEMILL_URL", listener.url)
        monkeypatch.setenv("TIDEMILL_TOKEN", stage.mill.tokens.create("page", role="admin").secret)
        exec(CLIENT, {})
        assert capsys.readouterr().out.split() == [earlier, "PENDING"]
        names: dict[str, object] = {}
        exec(REST, names)
        printed = capsys.readouterr().out.split()
        follower = threading.Thread(target=exec, args=(LIVE, names))
        follower.start()
        day = 2
        while follower.is_alive() and day < 29:
            stage.publish("orders", f"day=2026-01-{day:02}")
            day += 1
            time.sleep(0.2)
        follower.join()
        listener.stop()

        assert printed[:2] == [earlier, "PENDING"]
        assert {earlier, printed[2]} <= {run.run_id for run in stage.mill.runs.list()}
        assert capsys.readouterr().out.strip() == "partition:default.orders"


def test_the_program_looks_at_its_own_run(sqlite_catalog_url, tmp_path, monkeypatch, capsys):
    """A program needs no token of a person."""
    with staged(tmp_path, sqlite_catalog_url, APP, environ={"TIDEMILL_SERVER_PORT": "0"}) as stage:
        listener = Listener(stage.mill)
        listener.start()
        run, token = begin(stage)
        monkeypatch.setenv("TIDEMILL_URL", listener.url)
        monkeypatch.setenv("TIDEMILL_TOKEN", token)
        names: dict[str, Any] = {}
        exec(RUN, names)
        names["look"](SimpleNamespace(id=run.run_id))
        listener.stop()

    assert capsys.readouterr().out.startswith("{'asked': 'by hand'")


def test_the_settings_are_settings(tmp_path):
    """A setting with a slip would be refused at the start."""
    (tmp_path / "tidemill.toml").write_text(SETTINGS, encoding="utf-8")

    server = load_config(World(environ={"HOME": str(tmp_path)}), tmp_path).server

    assert (server.host, server.names, server.tls_key) == (
        "0.0.0.0",
        frozenset({"tidemill.example.com"}),
        str(tmp_path / "tls/key.pem"),
    )


def test_the_settings_behind_a_proxy_and_of_logs_are_settings(tmp_path):
    """A user of the table has the role that the page gives."""
    (tmp_path / "tidemill.toml").write_text(LOGS + PROXY, encoding="utf-8")

    config = load_config(World(environ={"HOME": str(tmp_path)}), tmp_path)

    assert config.log_format is LogFormat.JSON
    assert is_trusted("10.1.2.3", proxies_of(config.server))
    assert is_trusted("127.0.0.1", proxies_of(config.server))
    assert not is_trusted("10.0.0.8", proxies_of(config.server))
    users = TrustedUsers(config.server)
    assert users.role_of("bob@example.com") == (Role.DEVELOPER, "sales")
    assert users.role_of("eve@example.com") == (Role.VIEWER, "*")


def test_the_limits_are_the_limits():
    """An operator plans by the table."""
    defaults = ServerSettings()

    assert f"| {defaults.most_requests:,} |" in PAGE
    assert f"`max_streams` | {defaults.most_streams} |" in PAGE
    assert MOST_BYTES == 8 * 2**20
    assert BODY_WITHIN == 20


def test_the_roles_are_the_roles():
    """The table is complete, in order."""
    assert re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE) == list(Role)
