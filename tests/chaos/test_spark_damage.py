"""Damaged files of a published partition: found at reading, and the partition named.

The short form of `python -m tests.chaos.spark_damage`.
"""

from __future__ import annotations

import random

import pytest

from tests.chaos.spark_damage import CODECS, HARMLESS, How, Outcome, Shelf, When, flip, flips, is_wrong
from tests.seed_of_the_day import TODAY

pytestmark = [pytest.mark.spark, pytest.mark.proof]

SEED = str(TODAY)


@pytest.fixture(scope="module", params=CODECS[:2])
def shelf(spark, tmp_path_factory, request):
    """A published file set, which each damage leaves as it was."""
    shelf = Shelf(spark, tmp_path_factory.mktemp("shelf"), request.param)
    yield shelf
    shelf.close()


@pytest.mark.share("uncompressed")
def test_any_flipped_bit_is_found_before_spark_starts(shelf):
    """A flipped byte in uncompressed Parquet reads silently wrong; in a footer no checksum of Parquet's sees it."""
    chance = random.Random(SEED)
    places = [place for found in shelf.places().values() for place in chance.choices(found, k=20)]

    seen = {place: shelf.read(flip(place, chance.randrange(8)), How.WRITTEN, When.BEFORE) for place in places}

    assert set(seen.values()) == {Outcome.NAMED}, f"see it again with TIDEMILL_SEED={SEED}: {seen}"


@pytest.mark.share("uncompressed-before Spark reads")
@pytest.mark.parametrize("when", When)
def test_a_file_that_is_written_again_cut_or_gone_is_found_whenever_it_happens(shelf, when):
    """Spark reads when an action comes: long after the files were looked at, and long before the commit."""
    seen = {damage: shelf.read(damage, How.WRITTEN, when) for damage in shelf.rewrites()}

    assert set(seen.values()) == {Outcome.NAMED}, seen


@pytest.mark.share("uncompressed")
def test_a_file_that_was_copied_or_touched_is_read(shelf):
    """A folder may move to another disk: only the content counts."""
    assert {shelf.read(damage, How.WRITTEN, When.BEFORE) for damage in HARMLESS} == {Outcome.EQUAL}


@pytest.mark.share("uncompressed-in secret", "uncompressed-rotten")
@pytest.mark.parametrize("how", [How.SECRET, How.ROTTEN])
def test_what_a_disk_forgets_is_named_or_not_missed(shelf, how):
    """No time tells of it: Parquet's and Hadoop's checksums do."""
    chance = random.Random(SEED)
    seen = {(kind, str(one)): shelf.read(one, how, When.BEFORE) for kind, one in flips(shelf, chance, 1)}

    assert not [place for place, outcome in seen.items() if is_wrong("", how, outcome)], (SEED, seen)
