"""Jobs whose tasks fail publish what undisturbed ones do; one that fails for good publishes nothing.

The short form of `python -m tests.chaos.spark_tasks`, in one process, where Spark copies no slow tasks.
"""

from __future__ import annotations

import pytest

from tests.chaos.spark_tasks import TASKS, Works, disturbed
from tests.seed_of_the_day import TODAY

pytestmark = [pytest.mark.spark, pytest.mark.proof]

SEED = str(TODAY)


@pytest.fixture
def works(spark, memory_folder):
    """File set that an undisturbed job has published to."""
    works = Works(spark, memory_folder)
    works.publish(works.frame())
    yield works
    works.close()


@pytest.mark.share("2")
@pytest.mark.parametrize("seed", ["2", SEED])
def test_tasks_that_fail_before_while_and_after_they_write_change_nothing(works, seed):
    """A directory had 1,250 rows of 1,000, with a task that died after it had closed its file (tried)."""
    expected = works.published()

    works.publish(works.frame(disturbed(seed, works.notes)))
    seen = works.count()

    assert works.published() == expected, f"see it again with TIDEMILL_SEED={seed}"
    assert works.strays() == []
    assert seen["attempts"] == TASKS + seen["failed"]
    assert seen["failed"] > 0 or seed == SEED


@pytest.mark.long
def test_a_job_that_fails_for_good_leaves_nothing_of_it(works):
    """Neither to readers, nor as files in the directory of what the same run publishes afterwards."""
    expected = works.published()

    hopeless = works.frame(disturbed("1", works.notes, hopeless=True))
    works.publish(hopeless, works.frame())
    left = works.strays()
    works.publish(hopeless)

    assert left == []
    assert works.published() == expected
