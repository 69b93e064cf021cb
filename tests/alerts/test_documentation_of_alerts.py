"""docs/alerts.md: its app deploys, its tables are what there is, its commands work, its receiver knows our sender."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

import tidemill as tm
from tests.stage import staged
from tidemill.alerts.rules import RULES, Rule
from tidemill.alerts.sending import sign
from tidemill.alerts.targets import TARGETS, Target
from tidemill.cli.main import main
from tidemill.json_specs import read_plain, write_plain

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "alerts.md").read_text(encoding="utf-8")
APP, RECEIVER = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
_RULES, _TARGETS = PAGE.split("## Alerts")
ALERT_ID = f"alert_{'0' * 26}"
FORM = re.compile(r"`(\{.*?\})` \|$", re.MULTILINE)


@pytest.mark.parametrize(
    ("forms", "kinds", "base"), [(_RULES, RULES, Rule), (_TARGETS, TARGETS, Target)], ids=["rules", "targets"]
)
def test_each_kind_has_its_form(forms, kinds, base):
    """A row that is missing, or a form that is refused, misleads a reader."""
    written = [json.loads(text) for text in FORM.findall(forms)]

    assert [one["type"] for one in written] == list(kinds)
    for one in written:
        assert read_plain(base, write_plain(read_plain(base, one))) == read_plain(base, one)


def test_the_app_deploys_and_its_commands_work(sqlite_catalog_url, tmp_path, capsys):
    """A reader copies them."""
    with staged(tmp_path, sqlite_catalog_url, APP) as stage:
        assert [one.name for one in stage.mill.alerts.rules()] == [
            "default.any_failed",
            "default.bad_files",
            "default.load_failed",
            "default.orders_late",
        ]
        stage.sql(
            "INSERT INTO alert (alert_id, rule_id, namespace, rule, subject, state, why, since, opened_at) "
            f"SELECT '{ALERT_ID}', rule_id, 'default', 'default.bad_files', 'x', 'OPEN', 'y', 1, 1 FROM alert_rule "
            "WHERE name = 'bad_files' RETURNING 1"
        )
        stage.sql(
            "INSERT INTO delivery (delivery_id, target, seq, n, about, event, body, state, made_at, ended_at) VALUES "
            "('DELIVERY_ID', '{\"type\": \"slack\", \"url\": \"env:SLACK\"}', 1, 0, 'x', 'opened', '{}', 'DEAD', 1, 1) "
            "RETURNING 1"
        )
        for command in COMMANDS:
            with pytest.raises(SystemExit) as ended:
                main(["--project", str(tmp_path), *shlex.split(command.replace("ALERT_ID", ALERT_ID))[1:]])
            assert not ended.value.code, (command, capsys.readouterr().err)
        assert isinstance(stage.mill.alerts.list(), tm.Page)


def test_the_receiver_of_the_page_knows_our_signature():
    """And refuses another body, another secret, and a copy of yesterday."""
    names: dict[str, object] = {}
    exec(RECEIVER, names)
    is_ours = names["is_ours"]
    header = sign("secret", 1000, "{}")

    assert is_ours("secret", header, "{}", 1010)
    assert not is_ours("secret", header, "{ }", 1010)
    assert not is_ours("other", header, "{}", 1010)
    assert not is_ours("secret", header, "{}", 99_000)
