"""Differences: the parts of an app that a deployment adds, changes and removes, field by field.

A deployment reads the rows of its app before its first change and after its last change, and compares the two. So a
plan, which is a deployment that is rolled back, names exactly what a deployment changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final, TypeAlias

from tidemill.catalog.db import Db
from tidemill.catalog.named import load_sql
from tidemill.names import Namespace, qualified
from tidemill.run.records.modules import DATA_FILES
from tidemill.run.records.programs import AppSpec
from tidemill.schedule.specs import Owner

if TYPE_CHECKING:
    from tidemill.app.difference_sql import Sql

SQL: Sql = load_sql(__file__)

_SHOWN_DIGITS: Final = 8


class Part(StrEnum):
    """Kinds of parts of an app."""

    APP = "app"
    DATASET = "data set"
    PROGRAM = "program"
    CONSUMER = "consumer"
    SCHEDULE = "schedule"
    ALERT = "alert"


class Act(StrEnum):
    """Acts of a deployment on one part."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


_SIGNS: Final[Mapping[Act, str]] = {Act.ADD: "+", Act.CHANGE: "~", Act.REMOVE: "-"}


@dataclass(frozen=True, slots=True)
class FieldChange:
    """Field of a part before and after a deployment. A value is JSON, and None where the part has no such field."""

    field: str
    old: object
    new: object

    def __str__(self) -> str:
        """Return a line for people."""
        return f"{self.field}: {_show(self.old)} -> {_show(self.new)}"


@dataclass(frozen=True, slots=True)
class PartChange:
    """Part of an app that a deployment adds, changes or removes.

    A consumer is named by its program and its data set. `fields` are those of a changed part. `owner` is the owner of
    a schedule, and empty for other parts.
    """

    act: Act
    part: Part
    name: str
    fields: tuple[FieldChange, ...] = ()
    owner: str = ""

    @property
    def title(self) -> str:
        """The act and the part, for people."""
        return f"{_SIGNS[self.act]} {self.part} {self.name}{' (of ops)' if self.owner == Owner.OPS else ''}"

    def __str__(self) -> str:
        """Return a line for people."""
        return f"{self.title}: {'; '.join(map(str, self.fields))}" if self.fields else self.title


@dataclass(frozen=True, slots=True)
class _StoredSchedule:
    """A schedule and its program."""

    namespace: Namespace
    app: str
    name: str
    spec: str
    owner: str
    program_namespace: Namespace
    program_app: str
    program: str


Parts: TypeAlias = Mapping[tuple[Part, str], Mapping[str, object]]
"""The parts of an app, each with its fields as JSON."""


def read_parts(db: Db, namespace: Namespace, app: str, spec: AppSpec | None, sums: Mapping[str, str]) -> Parts:
    """Read the parts of an app. `spec` is that of the app, None without a deployment; `sums` are those of its code.

    Cost: the parts of the app, and the consumers of all apps.
    """
    place = {"namespace": namespace, "app": app}
    parts: dict[tuple[Part, str], Mapping[str, object]] = {}
    if spec is not None:
        files = {f"file {name}": sum_[:_SHOWN_DIGITS] for name, sum_ in sums.items() if name != DATA_FILES}
        parts[Part.APP, app] = {"app file": spec.file, "project": spec.project, "code": spec.bundle, **files}
    for name, kind, location, text in db.records(SQL.list_datasets, tuple[str, str, str, str], **place):
        parts[Part.DATASET, name] = {"kind": kind, "location": location, **json.loads(text)}
    for name, kind, text, instances, windows, profile in db.records(
        SQL.list_programs, tuple[str, str, str, int | None, str | None, str | None], **place
    ):
        more = {"instances": instances, "windows": windows, "spark_profile": profile}
        given = {field: value for field, value in more.items() if value is not None}
        parts[Part.PROGRAM, name] = {"kind": kind, **json.loads(text), **given}
    prefix = f"{qualified(namespace, app)}."
    for name, of, dataset, text in db.records(SQL.list_consumers, tuple[str, Namespace, str, str], prefix=prefix):
        parts[Part.CONSUMER, f"{name.removeprefix(prefix)} of {qualified(of, dataset)}"] = json.loads(text)
    for row in db.records(SQL.list_schedules, _StoredSchedule, **place):
        name = row.name if (row.namespace, row.app) == (namespace, app) else qualified(row.namespace, row.app, row.name)
        program = qualified(row.program_namespace, row.program_app, row.program)
        parts[Part.SCHEDULE, name] = {"program": program, **json.loads(row.spec), "owner": row.owner}
    for name, text in db.records(SQL.list_alerts, tuple[str, str], **place):
        parts[Part.ALERT, name] = json.loads(text)
    return parts


def compare(before: Parts, after: Parts) -> tuple[PartChange, ...]:
    """Return what makes `after` of `before`, by kind of part and by name. Pure."""
    changes = []
    for key in sorted(before.keys() | after.keys(), key=_place):
        old, new = before.get(key), after.get(key)
        part, name = key
        owner = str((new or old or {}).get("owner", "")) if part is Part.SCHEDULE else ""
        if old is None or new is None:
            changes.append(PartChange(Act.ADD if old is None else Act.REMOVE, part, name, owner=owner))
        elif fields := tuple(_compare_fields(old, new)):
            changes.append(PartChange(Act.CHANGE, part, name, fields, owner))
    return tuple(changes)


def describe(app: str, version: int, changes: Sequence[PartChange]) -> list[str]:
    """Return lines for people: the deployment of an app, and a line for each change."""
    if not changes:
        return [f"{app}: nothing to do"]
    return [f"{app}: deployment {version}", *(f"  {change}" for change in changes)]


def _place(key: tuple[Part, str]) -> tuple[int, str]:
    part, name = key
    return list(Part).index(part), name


def _compare_fields(old: Mapping[str, object], new: Mapping[str, object]) -> Iterable[FieldChange]:
    for field in sorted(old.keys() | new.keys()):
        if old.get(field) != new.get(field):
            yield FieldChange(field, old.get(field), new.get(field))


def _show(value: object) -> str:
    return "-" if value is None else json.dumps(value, sort_keys=True)
