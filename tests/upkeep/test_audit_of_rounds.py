"""An audit, and a look at the files, of what is left when all roles have worked; on both databases."""

from __future__ import annotations

from tests.acceptance.fail_points import opened_machine
from tests.acceptance.rounds import check, play
from tidemill.lake.datasets import DatasetKind, list_datasets
from tidemill.lake.fileset.fileset import Fileset
from tidemill.upkeep.audit import audit
from tidemill.upkeep.fsck import fsck


def test_nothing_is_found_after_rounds_with_bad_luck(catalog_url, memory_folder):
    """Programs that stumble, a driver that dies, a power cut, a kill: the same that the rounds' own check says."""
    with opened_machine(catalog_url, memory_folder / "project") as machine:
        for number in (1, 2):
            play(machine, number)
        check(machine, 2)

        found = audit(machine.catalog)
        datasets = machine.catalog.read(list_datasets)
        files = fsck(machine.catalog, [Fileset.of(one) for one in datasets if one.kind is DatasetKind.FILESET])

    assert found.findings == ()
    assert {one.dataset: one.changes for one in found.filesets}.items() >= {
        "default.lines": 4,
        "default.totals": 4,
    }.items()
    assert all(one.states == {"SUCCESS": one.announced} for one in found.inboxes)
    assert [(one.completed, one.untaken) for one in found.consumers if one.consumer.endswith("sum_up")] == [(4, 0)]
    assert found.runs > 8
    assert files.differences == ()
