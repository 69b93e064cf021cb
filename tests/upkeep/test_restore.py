"""A catalog that is lost and comes back from its backup, and what becomes of the life between (R17)."""

from __future__ import annotations

import dataclasses
import gzip
from datetime import timedelta

import pytest

from tests.run.conftest import rows_of
from tests.upkeep.conftest import EVERYTHING, House
from tidemill.catalog.engine import open_catalog
from tidemill.lake.janitor import sweep
from tidemill.run.external import open_transaction
from tidemill.run.outputs import Outputs
from tidemill.storage.files import open_files
from tidemill.upkeep.audit import audit
from tidemill.upkeep.backup import BadBackup, check_backup, write_backup
from tidemill.upkeep.fsck import fsck
from tidemill.upkeep.restore import CatalogInUse, adopt, restore
from tidemill.upkeep.storage import DirectoryKind
from tidemill.world import World


class Crash(BaseException):
    """The end of the process."""


def live_on(house: House, commits: int, aborts: int) -> None:
    """A life that the backup does not know."""
    for number in range(max(commits, aborts)):
        if number < commits:
            source, op = f"s{number % 40}", "overwrite" if number % 10 == 7 else "append"
            house.publish(source, f"{number}\n" * 2, op)
        if number < aborts:
            house.abort(f"a{number}")


@pytest.mark.proof
def test_what_was_committed_after_the_backup_is_adopted_and_nothing_else(house, tmp_path):
    """R17: no pointer comes twice, what was marked as committed comes back in its order, what was not does not."""
    for number in range(20):
        house.publish(f"s{number}", f"before {number}\n")
    first = house.consume()
    open_tx = house.begin()
    write_backup(house.catalog, tmp_path / "catalog.backup")
    house.catalog.apply([])
    live_on(house, commits=100, aborts=100)
    house.consume()
    content, used, directories = house.content(), set(house.pointers), house.directories()
    old = house.catalog.incarnation

    restored = restore(house.catalog, tmp_path / "catalog.backup", replace=True)
    found = fsck(house.catalog, [house.lines])
    adopted = adopt(house.catalog)
    again = adopt(house.catalog)
    delivered = house.consume()
    house.pointers.clear()
    live_on(house, commits=5, aborts=5)
    for _ in range(2):
        sweep(house.catalog)

    assert len(first) == 20
    assert (adopted.transactions, len(adopted.left)) == (100, 100)
    assert (again.transactions, len(again.left)) == (0, 100)
    assert found.unnamed == {DirectoryKind.ADOPTABLE: 100, DirectoryKind.QUARANTINED: 100}
    assert restored.ended_transactions == 1
    assert restored.clock > max(used)
    assert min(house.pointers) > restored.clock
    assert used.isdisjoint(house.pointers)
    assert open_tx.write_pointer in used
    assert house.catalog.incarnation != old
    assert max(house.directories().values()) == 1
    assert directories.keys() <= house.directories().keys()
    before = {source: texts[: len(content.get(source, []))] for source, texts in house.content().items()}
    assert {source: sorted(texts) for source, texts in content.items()} == {
        source: sorted(texts) for source, texts in before.items() if source in content
    } or house.content()
    assert not any(text.startswith("never") for texts in house.content().values() for text in texts)
    assert set(delivered) >= {text for texts in content.values() for text in texts if not text.startswith("before")}
    assert audit(house.catalog).findings == ()
