"""The demo in a bucket while drivers are killed (tests/chaos/demo.py), or on a cluster: each has its days."""

from __future__ import annotations

import subprocess

import pytest

from tests.chaos.demo import BALANCED, campaign
from tests.command import TIDEMILL
from tests.s3_server import S3Server
from tests.seed_of_the_day import TODAY
from tests.yardstick import patience

BUCKET, CLUSTER = PLACES = ("in a bucket", "on a cluster")


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.parametrize("place", [PLACES[TODAY % len(PLACES)]])
def test_the_demo_has_the_same_balance_elsewhere(place: str, s3_server: S3Server):
    """A day of the demo. Of a bucket nothing is left; Spark works on two workers."""
    if place == BUCKET:
        figures = campaign(s3_server, kills=2, seed=TODAY)
        assert figures.breaches == [], f"TIDEMILL_SEED={TODAY} plays it again"
        assert figures.kills == 2
    else:
        command = [TIDEMILL, "demo", "--days", "1", "--cluster"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(300), check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert done.stdout.splitlines()[-1].endswith(BALANCED)
