"""The Spark of a process that runs no program: its own, or the one that it has."""

from __future__ import annotations

import pytest

from tidemill.run.processes.session import spark_of_our_own
from tidemill.world import World


@pytest.mark.spark
def test_a_process_that_has_spark_keeps_it(spark, tmp_path):
    """A notebook that compares two versions goes on with its own session afterwards, as that was."""
    zone = spark.conf.get("spark.sql.session.timeZone")

    with spark_of_our_own(World(), tmp_path / "state", tmp_path / "cache", {}) as session:
        told = session.sparkContext.applicationId, session.conf.get("spark.sql.session.timeZone")

    assert told == (spark.sparkContext.applicationId, "UTC")
    assert session is not spark
    assert (spark.range(3).count(), spark.conf.get("spark.sql.session.timeZone")) == (3, zone)
    assert not (tmp_path / "state").exists()
