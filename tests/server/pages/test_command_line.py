"""The command of a button: what a person would type for the same change."""

from __future__ import annotations

import pytest

from tidemill.server.pages.command_line import write_command


@pytest.mark.parametrize(
    ("method", "path", "body", "command"),
    [
        ("POST", "/v1/schedules/default.shop.nightly:suspend", "{}", "schedule suspend default.shop.nightly"),
        ("DELETE", "/v1/alerts/default.mine", "{}", "alert delete default.mine"),
        ("POST", "/v1/alerts/default.mine:silence", '{"duration": "1h"}', "alert silence default.mine --for 1h"),
        ("POST", "/v1/alerts/default.mine:silence", '{"subject": "a.b"}', "alert silence default.mine --subject a.b"),
        (
            "POST",
            "/v1/consumers/default.orders/default.shop.sift:drop",
            "{}",
            "consumer drop default.orders default.shop.sift",
        ),
        ("POST", "/v1/apps/default.shop:rollback", '{"to": 3}', "app rollback default.shop --to 3"),
        ("POST", "/v1/jobs/job%201:drop", "{}", "job drop 'job 1'"),
        (
            "POST",
            "/v1/runs",
            '{"program": "shop.load", "arguments": {"day": "2026-01-01", "n": 2}}',
            "run start shop.load --arg day=2026-01-01 --arg n=2",
        ),
        (
            "POST",
            "/v1/runs",
            '{"program": "a.b", "arguments": {"n": "2"}, "partitions": {"c": ["day=3 hour=3"]}, "quiet": true}',
            "run start a.b --arg 'n=\"2\"' --partitions 'c:day=3 hour=3' --quiet",
        ),
        ("POST", "/v1/runs", '{"program": "a.b", "files": {"r": ["x", "y"]}}', "run start a.b --files r:x --files r:y"),
        (
            "POST",
            "/v1/backfills",
            '{"program": "shop.load", "by": "runs", "runs": ["run_1", "run_2"], "concurrency": 2, "quiet": false}',
            "backfill start shop.load --by runs --run run_1 --run run_2 --concurrency 2",
        ),
        ("POST", "/v1/nothing:done", "{}", ""),
    ],
)
def test_a_request_has_the_command_that_does_the_same(method, path, body, command):
    """A person learns the command from the button, and puts it into a script."""
    assert write_command(method, path, body) == command
