"""Acceptors: code of the user that says of each partition a take has brought whether the run works on it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from tidemill.errors import UserError
from tidemill.lake.consumer.consumer import ConsumedPartition, describe
from tidemill.lake.consumer.take import Delivery
from tidemill.lake.fileset.fileset import Fileset, Partition


class Accept(StrEnum):
    """Answer of an acceptor for a partition."""

    ACCEPT = "accept"
    """The run works on it."""
    SKIP = "skip"
    """The partition is returned without a failure, and delivered again later."""
    STOP = "stop"
    """This partition and all later ones are returned without a failure, for the next run."""


Acceptor: TypeAlias = Callable[[ConsumedPartition], Accept]


class BadAnswer(UserError):
    """An acceptor that answered something else."""

    code = "bad_answer"
    hint = "return one of these values from the acceptor"

    def __init__(self, answer: object) -> None:
        self.answer = repr(answer)
        super().__init__(f"an acceptor answers Accept.ACCEPT, Accept.SKIP or Accept.STOP, not {answer!r}")


@dataclass(frozen=True, slots=True)
class Chosen:
    """Split of a take: partitions to process, skipped ones, and those left to the next run. Each list is in order."""

    accepted: list[Delivery]
    skipped: list[Delivery]
    left: list[Delivery]


def choose(fileset: Fileset, deliveries: Sequence[Delivery], acceptor: Callable[[ConsumedPartition], object]) -> Chosen:
    """Ask `acceptor` of one delivery after the other, in their order, until it says stop; raises what it raises."""
    chosen = Chosen([], [], [])
    for place, delivery in enumerate(deliveries):
        partition = Partition(delivery.partition_key, delivery.changes)
        match acceptor(describe(fileset, delivery.kind, partition)):
            case Accept.ACCEPT:
                chosen.accepted.append(delivery)
            case Accept.SKIP:
                chosen.skipped.append(delivery)
            case Accept.STOP:
                chosen.left.extend(deliveries[place:])
                break
            case answer:
                raise BadAnswer(answer)
    return chosen
