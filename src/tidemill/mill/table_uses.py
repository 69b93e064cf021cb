"""Uses of a table: the things that would miss the table if it were dropped."""

from __future__ import annotations

from collections.abc import Iterator

from tidemill.catalog.db import Db
from tidemill.lake.consumer.managed import list_consumers
from tidemill.lake.datasets import Dataset, list_writers
from tidemill.lake.window.windows import list_states
from tidemill.mill.project import Project
from tidemill.names import namespace_of_consumer
from tidemill.run.records.programs import find_programs, list_uses
from tidemill.schedule.references import list_references
from tidemill.schedule.schedules import list_schedules


def find_uses(db: Db, project: Project, dataset: Dataset) -> list[str]:
    """Return the uses of a data set in words, each with its name if the caller may see the thing.

    Programs that read or write the data set, schedules that name it, consumers of outside engines, and open
    transactions. Cost: all programs and schedules.
    """
    sees = project.access.sees_name
    shown = [f"{kind} {name}" if sees(name) else f"a {kind} of another namespace" for kind, name in _list(db, dataset)]
    shown += [
        f"consumer {one.name}"
        for one in list_consumers(db, dataset_id=dataset.dataset_id)
        if namespace_of_consumer(one.name) is None
    ]
    return shown + [f"the open transaction {pointer}" for pointer in list_writers(db, dataset)]


def _list(db: Db, dataset: Dataset) -> Iterator[tuple[str, str]]:
    name = dataset.qualified_name
    states = {one.program_id for one in list_states(db, dataset.dataset_id)}
    windows = {one.qualified_name for one in find_programs(db, states).values() if not one.retired}
    programs = {one.program for one in list_uses(db) if name in {*one.reads, *one.writes}}
    yield from (("program", one) for one in sorted(windows | programs))
    for schedule in list_schedules(db):
        if any((one.kind, one.name) == ("data set", name) for one in list_references(schedule.spec)):
            yield "schedule", schedule.qualified_name
