"""The k-th operation of a round fails, k = 1, 2, … until a round passes: no operation is left out, marked or not.

An operation is a call of the catalog, a change or a reading of a file of the process itself, or of a data set. A fifth
of them a day; `make fail-points` plays all.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.fail_points import opened_machine, strike_each_operation
from tests.acceptance.machine import Ordinal
from tests.seed_of_the_day import TODAY

FEWEST = {Ordinal.FAILS: 100, Ordinal.DIES: 100, Ordinal.LOST_REPLY: 25}
"""Operations of a round, about: where there are much less, the round does not do what it should."""


@pytest.mark.proof
@pytest.mark.share("sqlite-it happens, and its reply is lost")
@pytest.mark.parametrize("ordinal", list(Ordinal))
def test_a_round_survives_a_fault_at_each_of_its_operations(catalog_url: str, memory_folder: Path, ordinal: Ordinal):
    """A file is published once, whichever operation fails, is the last of its process, or loses its reply."""
    with opened_machine(catalog_url, memory_folder / "project") as machine:
        passed = strike_each_operation(machine, ordinal, 1 + TODAY % 5, 5)

    assert passed > FEWEST[ordinal]
