"""Counting: of the partitions that a message announces, those that a program would be given.

Most consumers take all that is announced. The others are asked: those with a filter, those that do not want a changed
partition again, and those of programs that skip what they publish themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace

from tidemill.catalog.db import Db
from tidemill.catalog.messages import Message, Position
from tidemill.lake.consumer.managed import Consumer, find_readers
from tidemill.lake.consumer.take import list_offered
from tidemill.lake.consumer.terms import OnChange
from tidemill.lake.datasets import find_by_id
from tidemill.lake.fileset.fileset import Fileset
from tidemill.names import ConsumerId, ProgramId, WritePointer
from tidemill.run.records.declared import find_dataset
from tidemill.run.records.programs import Program
from tidemill.run.records.written_filters import WrittenWhere, read_filter
from tidemill.shapes.change_kind import ChangeKind
from tidemill.shapes.keys import BadKey, KeySchema, KeyText


@dataclass(frozen=True, slots=True)
class Counting:
    """Count of the partitions that programs would get of announced ones, for one batch of messages.

    `choosy` has the consumers that leave some partitions out, by program and data set. `keys` and `parsed` are of the
    triggers that choose by keys.
    """

    choosy: Mapping[tuple[ProgramId, str], tuple[Fileset, Consumer]]
    offered: dict[tuple[ConsumerId, WritePointer], frozenset[str]] = field(default_factory=dict)
    keys: dict[str, KeySchema] = field(default_factory=dict)
    parsed: dict[tuple[str, Position], dict[str, KeyText]] = field(default_factory=dict)

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
        return _keep(message, announced, lambda one: one.get("key") in self.offered[place])

    def choose(
        self, db: Db, dataset: str, where: WrittenWhere | None, kinds: Collection[str], message: Message
    ) -> Message | None:
        """Return `message` with the partitions that a trigger chooses of them; None when it chooses none.

        Errors: `BadKey`, `NotFound` if the file set has other keys than `where`, or is deleted.
        """
        announced = message.payload.get("partitions")
        if not (where or kinds) or not isinstance(announced, list):
            return message
        if where and dataset not in self.keys:
            self.keys[dataset] = Fileset.of(find_dataset(db, dataset)).keys
        wanted = read_filter(self.keys[dataset], where) if where else None
        texts = self._parse(message, announced, self.keys[dataset]) if where else {}

        def is_chosen(one: Mapping[str, object]) -> bool:
            return (not kinds or one.get("kind") in kinds) and (
                wanted is None or wanted.accepts(texts[str(one.get("key"))])
            )

        return _keep(message, announced, is_chosen)

    def _parse(self, message: Message, announced: list[object], keys: KeySchema) -> dict[str, KeyText]:
        """Return the stored keys of the announced partitions, by the text in the message. Parsed once a message."""
        place = message.topic, message.position
        if place not in self.parsed:
            shown = [str(one.get("key")) for one in announced if isinstance(one, dict)]
            self.parsed[place] = {one: keys.encode(keys.parse(one)) for one in shown}
        return self.parsed[place]


def _keep(message: Message, announced: list[object], wanted: Callable[[Mapping[str, object]], bool]) -> Message | None:
    given = [one for one in announced if isinstance(one, dict) and wanted(one)]
    narrowed = {**message.payload, "count": len(given), "partitions": given}
    return replace(message, payload=narrowed) if given else None


def find_flaw(db: Db, program: Program, dataset: str, where: WrittenWhere | None, kinds: Collection[str]) -> str | None:
    """Return why a trigger can never count what it chooses of a file set; None if it can. Errors: `NotFound`."""
    if where:
        try:
            read_filter(Fileset.of(find_dataset(db, dataset)).keys, where)
        except BadKey as error:
            return f"where does not fit the keys of {dataset}: {error}"
    if not kinds or ChangeKind.NEW in kinds:
        return None
    (consumer,) = find_readers(db, [(dataset, program.qualified_name)]) or (None,)
    if consumer is None or consumer.terms.on_change is OnChange.AGAIN:
        return None
    terms = f"{program.qualified_name} reads {dataset} with on_change='{consumer.terms.on_change}'"
    return f"{terms}, and is not given such changes; add 'new' to kinds, or read with on_change='again'"


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
