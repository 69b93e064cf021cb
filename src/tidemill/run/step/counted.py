"""Counting: of the partitions that a message announces, those that a program would be given.

Most consumers take all that is announced. The others are asked: those with a filter, those that do not want a changed
partition again, and those of programs that skip what they publish themselves.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tidemill.catalog.db import Db
from tidemill.catalog.messages import Message
from tidemill.lake.consumer.managed import Consumer, find_readers
from tidemill.lake.consumer.take import list_offered
from tidemill.lake.consumer.terms import OnChange
from tidemill.lake.datasets import find_by_id
from tidemill.lake.fileset.fileset import Fileset
from tidemill.names import ConsumerId, ProgramId, WritePointer
from tidemill.run.records.programs import Program


@dataclass(frozen=True, slots=True)
class Counting:
    """Count of the partitions that programs would get of announced ones, for one batch of messages.

    `choosy` has the consumers that leave some partitions out, by program and data set.
    """

    choosy: Mapping[tuple[ProgramId, str], tuple[Fileset, Consumer]]
    offered: dict[tuple[ConsumerId, WritePointer], frozenset[str]] = field(default_factory=dict)

    def narrow(self, db: Db, program_id: ProgramId, dataset: str, message: Message) -> Message | None:
        """Return `message` with the partitions that the program would be given; None when it would be given none."""
        announced, pointer = message.payload.get("partitions"), message.payload.get("write_pointer")
        found = self.choosy.get((program_id, dataset))
        if found is None or not isinstance(announced, list) or not isinstance(pointer, int):
            return message
        fileset, consumer = found
        place = consumer.consumer_id, WritePointer(pointer)
        if place not in self.offered:
            self.offered[place] = frozenset(fileset.show(key) for key in list_offered(db, consumer, place[1]))
        given = [one for one in announced if isinstance(one, dict) and one.get("key") in self.offered[place]]
        narrowed = {**message.payload, "count": len(given), "partitions": given}
        return replace(message, payload=narrowed) if given else None


def start_counting(db: Db, programs: Collection[Program], datasets: Collection[str]) -> Counting:
    """Find the consumers by which `programs` read the data sets. Cost: a look-up by name for each."""
    by_name = {program.qualified_name: program for program in programs}
    wanted = set(datasets)
    reading = [(dataset, name) for name, program in by_name.items() for dataset in wanted.intersection(program.reads)]
    choosy = {}
    for consumer in find_readers(db, reading) if reading else ():
        program = by_name[consumer.name]
        if not program.deliver_own or consumer.terms.where or consumer.terms.on_change is not OnChange.AGAIN:
            fileset = Fileset.of(find_by_id(db, consumer.dataset_id))
            choosy[program.program_id, fileset.qualified_name] = fileset, consumer
    return Counting(choosy)
