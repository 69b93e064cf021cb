"""Choice of the input of a run, by the names that a caller uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from tidemill.catalog.db import Db
from tidemill.errors import UserError
from tidemill.lake.chosen import ChosenInput, choose
from tidemill.lake.datasets import Dataset, DatasetKind
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.inbox.inbox import Inbox
from tidemill.lake.window.windows import find_state
from tidemill.mill.project import Project
from tidemill.names import WritePointer
from tidemill.run.records.programs import Program
from tidemill.shapes.keys import KeyText

T = TypeVar("T")


class BadChoice(UserError):
    """An input that cannot be chosen for a run of this program."""

    code = "bad_choice"

    def __init__(self, program: str, why: str, cure: str) -> None:
        self.program = program
        self.why = why
        super().__init__(f"{program} {why}, so its input cannot be chosen in this way", cure)


def choose_input(
    db: Db,
    project: Project,
    program: str,
    partitions: Mapping[str, Sequence[Mapping[str, object] | str]] | None,
    files: Mapping[str, Sequence[str]] | None,
) -> ChosenInput:
    """Choose partitions of file sets and files of inboxes for a run of `program`; takes a tick.

    A key is a mapping by field, or a text as `dataset partitions` writes it. `BadChoice`, `BadKey`, `MissingInput`,
    `NotFound`. The caller makes the run in the same transaction.
    """
    pointer = WritePointer(db.tick())
    found = project.startable(db, program)
    check_choosable(db, found)
    if not partitions and not files:
        raise BadChoice(found.qualified_name, "was given nothing", "leave out `partitions` and `files`, or fill them")
    filesets = [(Fileset.of(one), keys) for one, keys in _find(db, project, found, DatasetKind.FILESET, partitions)]
    inboxes = [(Inbox.of(one), names) for one, names in _find(db, project, found, DatasetKind.INBOX, files)]
    wanted = [(fileset, [_read_key(fileset, key) for key in keys]) for fileset, keys in filesets]
    return choose(db, pointer, wanted, inboxes)


def check_choosable(db: Db, program: Program) -> None:
    """Raise `BadChoice` for a program whose input is not a list of partitions and files."""
    if find_state(db, program.program_id) is not None:
        raise BadChoice(
            program.qualified_name,
            "computes windows",
            "`tidemill watermark reset` has it compute windows again",
        )
    if program.workflow is not None:
        raise BadChoice(program.qualified_name, "is a workflow", "choose the input of a program of its own")


def _find(
    db: Db,
    project: Project,
    program: Program,
    kind: DatasetKind,
    chosen: Mapping[str, Sequence[T]] | None,
) -> list[tuple[Dataset, Sequence[T]]]:
    found: dict[str, tuple[Dataset, list[T]]] = {}
    for name, things in (chosen or {}).items():
        dataset = project.dataset(db, name)
        if dataset.qualified_name not in program.reads:
            reads = ", ".join(program.reads) or "nothing"
            raise BadChoice(
                program.qualified_name,
                f"does not read {dataset.qualified_name}",
                f"choose of what it reads: {reads}",
            )
        if dataset.kind is not kind:
            raise BadChoice(
                program.qualified_name,
                f"reads {dataset.qualified_name}, a data set of kind {dataset.kind}, not {kind}",
                "choose `partitions` of file sets and `files` of inboxes; a snapshot is read in its current version",
            )
        if not things:
            raise BadChoice(
                program.qualified_name,
                f"was given nothing of {dataset.qualified_name}",
                "name partitions or files, or leave out the data set: the run gets nothing of what is not named",
            )
        # clicks and default.clicks are one.
        found.setdefault(dataset.dataset_id, (dataset, []))[1].extend(things)
    return [*found.values()]


def _read_key(fileset: Fileset, key: object) -> KeyText:
    keys = fileset.keys
    if not isinstance(key, Mapping):
        return keys.encode(keys.read(str(key)))
    parsers = {field.name: field.parse for field in keys.fields}
    # JSON has no dates and times.
    typed = {
        name: parsers[name](value) if name in parsers and isinstance(value, str) else value
        for name, value in key.items()
    }
    return keys.encode(keys.check(typed))
