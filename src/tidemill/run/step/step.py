"""Step of an attempt: one transaction, from begin to commit: begin, take, write, verify, commit.

Drivers, workers and transactions of external callers use the same steps. Nothing is visible until the commit, so a
process may be killed between any two steps.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from tidemill.catalog.db import Catalog
from tidemill.catalog.effects import Effect
from tidemill.catalog.transactions import EndTransaction, Transaction, TxState, begin, commit
from tidemill.lake.fileset.fileset import Fileset, Unpin
from tidemill.lake.snapshot.guards import Guard
from tidemill.lake.snapshot.refresh_order import OrderRefreshes
from tidemill.names import CommitSeq, DatasetId
from tidemill.run.records.programs import Code
from tidemill.run.records.runs import RunRecord
from tidemill.run.step.attempts import AttachTransaction, Registration
from tidemill.run.step.inputs import Inputs
from tidemill.run.step.outputs import Outputs, Writer
from tidemill.run.step.workspace import Workspace
from tidemill.shapes.partition_time import Instant

NOTHING: Final = Inputs()


@dataclass(slots=True)
class Step:
    """An open transaction of an attempt; `who` (driver, worker, external) names the marks of its begin and commit."""

    who: str
    catalog: Catalog
    record: RunRecord
    tx: Transaction
    outputs: Outputs
    inputs: Inputs = NOTHING
    workspace: Workspace = field(init=False)

    def __post_init__(self) -> None:
        """Begin with nothing read."""
        self.workspace = Workspace(self.catalog, self.record, self.tx, self.outputs)

    @classmethod
    def begin(  # noqa: PLR0913  # options by keyword, each with a default
        cls,
        who: str,
        catalog: Catalog,
        record: RunRecord,
        outputs: Mapping[str, Fileset],
        writer: Writer,
        *,
        inputs: Inputs = NOTHING,
        allowed: Collection[Guard] = (),
        spans: Mapping[DatasetId, tuple[Instant, Instant]] | None = None,
        announced: Sequence[Effect] = (),
        registration: Registration | None = None,
    ) -> Step:
        """Begin a transaction: it pins what it reads as a whole, and claims of earlier attempts follow it.

        `outputs` are what it may publish to, by qualified name; `allowed` and `spans` as for `Outputs`.
        `announced` comes with the begin, and so does the `registration` of a process that has not registered yet.
        """
        effects: list[Effect] = [
            AttachTransaction(record.run_id, record.epoch, registration),
            OrderRefreshes(outputs.values(), record.logical_time, record.first_write_pointer),
            *inputs.begin(record, catalog.world),
            *announced,
        ]
        tx = begin(
            catalog,
            run_id=record.run_id,
            epoch=record.epoch,
            writes=[fileset.dataset_id for fileset in outputs.values()],
            spans=spans or {},
            effects=effects,
            first=registration is not None,
        )
        catalog.world.mark(f"{who}.begun")
        written = Outputs(catalog, tx, outputs, writer, allowed, spans, quiet=record.quiet, sandbox=record.is_sandbox)
        return cls(who, catalog, record, tx, written, inputs)

    def take(self) -> None:
        """Take of all inputs what they have to give; what an earlier attempt holds still, if it holds anything."""
        self.inputs.take(self.catalog, self.tx)

    def accept(self, acceptors: Mapping[str, Code]) -> None:
        """Ask the acceptors, which are user code, and return what they do not want; the inputs have the rest then."""
        self.inputs.accept(self.catalog, self.tx, acceptors)

    def verify(self) -> None:
        """Raise if the files that were read are not what was claimed or published, after the program has read them."""
        self.inputs.verify(self.catalog.world)
        self.workspace.reads.verify()

    def prepare(self) -> list[Effect]:
        """Return what the commit does to outputs and claims. Raises what a look at the files finds wrong."""
        self.verify()
        return [*self.outputs.prepare(), *self.inputs.complete(self.tx)]

    def discard(self, end: Sequence[Effect]) -> None:
        """End the transaction without publishing anything, and the attempt with it: `end` completes the run."""
        self.catalog.world.mark("sandbox.before_discard")
        ended = EndTransaction(self.tx.write_pointer, TxState.ABORTED, "sandbox: nothing is published")
        self.catalog.apply([ended, *end, Unpin(self.tx.run_id)])
        self.catalog.world.mark("sandbox.discarded")

    def describe(self) -> dict[str, object]:
        """Return what was read and written, after `prepare`, as the facts of the attempt."""
        taken = self.inputs.taken
        rows = self.workspace.count_rows_read()
        facts: dict[str, object] = {
            "inputs": self.inputs.count(),
            "outputs": self.outputs.facts(),
            "read": [{"dataset": name, "rows": n, **taken[name].describe_reading()} for name, n in rows.items()],
            "duplicates": self.workspace.count_duplicates(),
            "files": [closed for one in taken.values() for closed in one.describe_closed()],
        }
        some = {"compactions": self.outputs.compactions(), "values": self.workspace.values}
        return facts | {name: value for name, value in some.items() if value}

    def commit(self, prepared: Sequence[Effect], end: Sequence[Effect]) -> CommitSeq:
        """Commit what was `prepared`, the effects of the workspace and the `end` of the attempt, and announce the rest.

        Return the commit sequence. The marker beside the files is written after the commit, and by a janitor if this
        process dies before.
        """
        self.catalog.world.mark(f"{self.who}.before_commit")
        seq = commit(self.catalog, self.tx, [*prepared, *self.workspace.effects, *end, *self.inputs.announce()])
        self.catalog.world.mark(f"{self.who}.committed")
        self.outputs.mark(seq)
        return seq
