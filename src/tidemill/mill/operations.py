"""The list of all operations, made from the methods that declare them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from inspect import Parameter
from typing import Final, get_type_hints

from tidemill.app.deploy import Deleted, Deployed
from tidemill.app.deployments import Deployment
from tidemill.mill.alerts import Alerts
from tidemill.mill.apps import Apps
from tidemill.mill.audit import AuditLog
from tidemill.mill.backfills import Backfills
from tidemill.mill.catalog import CatalogUpkeep
from tidemill.mill.consumers import Consumers
from tidemill.mill.datasets import Datasets, DatasetView
from tidemill.mill.deployment import AppPlan
from tidemill.mill.hooks import Hooks
from tidemill.mill.inboxes import Inboxes
from tidemill.mill.jobs import Jobs
from tidemill.mill.metrics import Metrics
from tidemill.mill.mill import Mill
from tidemill.mill.nodes import Nodes
from tidemill.mill.operation import Mark, Right, mark_of
from tidemill.mill.overview import Overview
from tidemill.mill.project import Noun
from tidemill.mill.runs import Runs
from tidemill.mill.schedules import Schedules
from tidemill.mill.snapshots import Snapshots
from tidemill.mill.statements import Done
from tidemill.mill.subscribers import Subscribers
from tidemill.mill.tokens import Tokens
from tidemill.mill.topics import Topics
from tidemill.mill.transactions import Transactions
from tidemill.mill.watermarks import Watermarks
from tidemill.mill.why import Explanation
from tidemill.run.processes.outside_writers import (
    CommittedTransaction,
    FailedTransaction,
    OutsideTransaction,
    PartitionTake,
)
from tidemill.run.processes.partitions import Adoption
from tidemill.run.step.outputs import Compacted, Dropped
from tidemill.run.step.outside_claims import FileClaim
from tidemill.run.step.outside_writes import OutsideChange, OutsideMessage, OutsideRead

NOUNS: Final = (
    Alerts,
    Apps,
    AuditLog,
    Backfills,
    CatalogUpkeep,
    Consumers,
    Datasets,
    Hooks,
    Inboxes,
    Jobs,
    Nodes,
    Runs,
    Schedules,
    Snapshots,
    Subscribers,
    Tokens,
    Topics,
    Transactions,
    Watermarks,
)
_NOUN_OF: Final = {noun.__name__: noun.noun for noun in NOUNS}
_ATTRIBUTES: Final = {
    _NOUN_OF[one.func.__annotations__["return"]]: name
    for name, one in vars(Mill).items()
    if isinstance(one, cached_property)
}
# Named in annotations by modules that import them late.
_LATE: Final = {
    one.__name__: one
    for one in (
        Adoption,
        AppPlan,
        CommittedTransaction,
        Compacted,
        DatasetView,
        Deleted,
        Deployed,
        Deployment,
        Done,
        Dropped,
        Explanation,
        FailedTransaction,
        FileClaim,
        Metrics,
        OutsideChange,
        OutsideMessage,
        OutsideTransaction,
        OutsideRead,
        Overview,
        PartitionTake,
    )
}


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation: `verb` of `noun`, which is empty for an operation on the project as a whole."""

    noun: str
    verb: str
    method: Callable[..., object]
    mark: Mark

    @property
    def attribute(self) -> str:
        """The attribute of `Mill` that has the method: `schedules`; empty for an operation on the project."""
        return _ATTRIBUTES[self.noun] if self.noun else ""

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The parameters, with their types."""
        hints = get_type_hints(self.method, localns=_LATE)
        given = list(inspect.signature(self.method).parameters.values())[1:]
        return {one.name: one.replace(annotation=hints[one.name]) for one in given}

    def bind(self, mill: Mill) -> Callable[..., object]:
        """Return the method of `mill`."""
        owner = getattr(mill, self.attribute) if self.noun else mill
        method: Callable[..., object] = getattr(owner, self.verb)
        return method

    @property
    def right(self) -> Right:
        """The right that a caller needs."""
        return self.mark.right

    @property
    def action(self) -> str:
        """The name of the operation in the audit log."""
        return f"{self.noun}.{self.verb}" if self.noun else self.verb

    @property
    def command(self) -> str:
        """The words of its command, without `tidemill`; empty if there is none."""
        if self.mark.no_command:
            return ""
        return self.mark.command or f"{self.noun} {self.verb.replace('_', '-')}".strip()

    @property
    def summary(self) -> str:
        """The first line of the docstring."""
        return (inspect.getdoc(self.method) or "").partition("\n")[0]

    @property
    def returns(self) -> object:
        """The type of its result."""
        return get_type_hints(self.method, localns=_LATE)["return"]


def _operations_of(noun: type[Noun | Mill], name: str) -> Iterator[Operation]:
    for verb, method in vars(noun).items():
        if mark := mark_of(method):
            yield Operation(name, verb, method, mark)


OPERATIONS: Final = (
    *_operations_of(Mill, ""),
    *(operation for noun in NOUNS for operation in _operations_of(noun, noun.noun)),
)
"""All operations, by noun and in the order of their methods."""
