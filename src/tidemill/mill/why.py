"""The question why: the thing that a name means, and the reasons for its state."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias
from urllib.parse import unquote

from tidemill.catalog.db import Db
from tidemill.errors import NotFound, UserError
from tidemill.lake.datasets import Dataset, DatasetKind, list_datasets
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.inbox.inbox import Inbox
from tidemill.lake.window.windows import find_state
from tidemill.mill.project import AmbiguousName, Project
from tidemill.mill.scheduled import find_named
from tidemill.mill.why_data import explain_dataset, explain_partition, explain_window
from tidemill.mill.why_files import Unlisted, explain_file, explain_unlisted, find_contents, find_unlisted
from tidemill.mill.why_work import Explained, explain_job_of, explain_message, explain_run_of, explain_schedule
from tidemill.names import BadName, DatasetId, JobId, RunId, nearest, one_of
from tidemill.reasons import Because
from tidemill.schedule.schedules import list_schedules
from tidemill.storage.locations import resolved

_MESSAGE: Final = re.compile(r"(?P<topic>[A-Za-z][A-Za-z0-9_-]*):(?P<seq>[0-9]{1,18})(?:\.(?P<n>[0-9]{1,18}))?")
_WINDOW: Final = re.compile(r"\[(?P<start>[^,\]]+),.*\)")
_MOST_STORES: Final = 50
"""Inboxes in whose folders a name without an inbox is looked for."""


class ThingKind(StrEnum):
    """Kinds of things that `why` explains. A name that fits several kinds means the first of them."""

    JOB = "job"
    RUN = "run"
    MESSAGE = "message"
    PARTITION = "partition"
    WINDOW = "window"
    FILE = "file"
    DATASET = "dataset"
    SCHEDULE = "schedule"


class BadThing(UserError):
    """A kind of thing that there is not."""

    code = "bad_thing"
    hint = "leave the kind out, or name one that is known"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(f"the kind of the thing {why}")


@dataclass(frozen=True, slots=True)
class Explanation:
    """A thing, its state, and the reasons for the state.

    `also` are other kinds of things that the name could mean.
    """

    thing: str
    kind: ThingKind
    state: str
    because: tuple[Because, ...]
    also: tuple[str, ...]


_Found: TypeAlias = Callable[[], Explained]
"""A thing that a name means, not explained yet."""


@dataclass(frozen=True, slots=True)
class _Unrecorded:
    """A name that the catalog does not know: it may be a file in one of these inboxes, else `error` is the answer."""

    files: tuple[Unlisted, ...]
    in_one_inbox: bool
    error: UserError


_BY_ID: Final = frozenset({ThingKind.JOB, ThingKind.RUN})
"""Kinds of things that have ids instead of names. Nothing else is looked for once such a thing is found."""


def explain(project: Project, thing: str, kind: str | None = None) -> Explanation:
    """Explain the thing that a name means; `NotFound` with the nearest name. One read of the catalog."""
    only = None if kind is None else one_of(ThingKind, kind, BadThing)

    def block(db: Db) -> Explanation | _Unrecorded:
        names = _Names(project, db)
        found, errors = _find(names, thing, only)
        if not found:
            error = _choose(errors, names.not_found(thing, only), only)
            if only not in {None, ThingKind.FILE} or isinstance(error, AmbiguousName):
                raise error
            return _Unrecorded(*names.look_for_file(thing), error)
        first = next(iter(found))
        also = tuple(one.value for one in found if one is not first)
        return _explanation(first, found[first](), also)

    answer = project.catalog.read(block)
    # The store is looked at after the catalog: a folder may take long to answer.
    return answer if isinstance(answer, Explanation) else _look_into_inboxes(project, answer)


def _explanation(kind: ThingKind, explained: Explained, also: tuple[str, ...] = ()) -> Explanation:
    return Explanation(explained.thing, kind, explained.state, explained.because, also)


def _find(names: _Names, thing: str, only: ThingKind | None) -> tuple[dict[ThingKind, _Found], list[UserError]]:
    """Return what the name means by kind, in the order of kinds, and the errors of other kinds."""
    found: dict[ThingKind, _Found] = {}
    errors: list[UserError] = []
    for kind in ThingKind if only is None else (only,):
        try:
            one = names.finders[kind](thing)
        except UserError as error:
            errors.append(error)
        else:
            if one is not None:
                found[kind] = one
                if kind in _BY_ID:
                    break
    return found, errors


def _choose(errors: list[UserError], otherwise: UserError, only: ThingKind | None) -> UserError:
    """Return the error that helps most: several things have the name, else part of the name is wrong."""
    if only is not None:
        return errors[0] if errors else otherwise
    helpful = [error for error in errors if not isinstance(error, NotFound | BadName)]
    ambiguous = [error for error in helpful if isinstance(error, AmbiguousName)]
    return (ambiguous or helpful or [otherwise])[0]


def _look_into_inboxes(project: Project, unrecorded: _Unrecorded) -> Explanation:
    error = unrecorded.error
    for file in unrecorded.files:
        try:
            explained = explain_unlisted(project.world, file, named=unrecorded.in_one_inbox)
        except UserError as missing:
            if unrecorded.in_one_inbox:
                error = missing
        else:
            return _explanation(ThingKind.FILE, explained)
    raise error


class _Names:
    """Finder of things by their names, in one read of the catalog."""

    def __init__(self, project: Project, db: Db) -> None:
        self._project = project
        self._db = db
        self.finders: Mapping[ThingKind, Callable[[str], _Found | None]] = {
            ThingKind.JOB: self._job,
            ThingKind.RUN: self._run,
            ThingKind.MESSAGE: self._message,
            ThingKind.PARTITION: self._partition,
            ThingKind.WINDOW: self._window,
            ThingKind.FILE: self._file,
            ThingKind.DATASET: self._dataset,
            ThingKind.SCHEDULE: self._schedule,
        }

    def not_found(self, thing: str, only: ThingKind | None) -> NotFound:
        """Return the error for a name that means nothing, with the nearest name."""
        sees = self._project.access.sees
        known = [dataset.name for dataset in list_datasets(self._db) if sees(dataset.namespace)]
        known += [f"{one.app}.{one.name}" for one in list_schedules(self._db) if sees(one.namespace)]
        hint = (
            "name a file (`INBOX/FILE`), a partition (`FILESET/day=2026-01-01`), a message (`data:123.0`), a window "
            "(`APP.PROGRAM/TIME`), a job, a run, a data set or a schedule"
        )
        return NotFound("thing" if only is None else only.value, thing, nearest(thing, known), hint=hint)

    def look_for_file(self, thing: str) -> tuple[tuple[Unlisted, ...], bool]:
        """Return the inboxes in which a name may be a file, and whether the name says in which inbox."""
        places, named = self._in_inboxes(thing)
        return tuple(find_unlisted(self._db, inbox, name) for inbox, name in places), named

    def _job(self, thing: str) -> _Found | None:
        if not thing.startswith("job_"):
            return None
        self._project.check_job(self._db, thing)
        return lambda: explain_job_of(self._db, JobId(thing))

    def _run(self, thing: str) -> _Found | None:
        if not thing.startswith("run_"):
            return None
        self._project.check_run(self._db, thing)
        return lambda: explain_run_of(self._db, RunId(thing))

    def _message(self, thing: str) -> _Found | None:
        match = _MESSAGE.fullmatch(thing)
        if match is None:
            return None
        self._project.check(None, "message", thing)  # messages are of no single namespace
        return lambda: explain_message(self._db, match["topic"], int(match["seq"]), int(match["n"] or 0))

    def _partition(self, thing: str) -> _Found | None:
        name, slash, path = thing.partition("/")
        if not slash or "=" not in path:
            return None
        dataset = self._project.dataset(self._db, name)
        if dataset.kind is not DatasetKind.FILESET:
            return None
        fileset = Fileset.of(dataset)
        keys = fileset.keys
        text = keys.encode(keys.read(path))
        return lambda: explain_partition(self._db, fileset, text, self._project.access)

    def _window(self, thing: str) -> _Found | None:
        name, slash, text = thing.partition("/")
        if not slash or (time := _time(text)) is None:
            return None
        program = self._project.program(self._db, name)
        state = find_state(self._db, program.program_id)
        return None if state is None else lambda: explain_window(self._db, state, program, time, self._project.access)

    def _file(self, thing: str) -> _Found | None:
        inboxes = {inbox.dataset_id: (inbox, name) for inbox, name in self._in_inboxes(thing)[0]}
        by_name: dict[str, dict[DatasetId, Inbox]] = {}
        for dataset_id, (inbox, name) in inboxes.items():
            by_name.setdefault(name, {})[dataset_id] = inbox
        known = [one for name, some in by_name.items() for one in find_contents(self._db, some, name)]
        if not known:
            return None
        places = sorted({one.dataset_id for one in known})
        if len(places) > 1:
            raise AmbiguousName("file", thing, [f"{inboxes[of][0].qualified_name}/{inboxes[of][1]}" for of in places])
        inbox = inboxes[places[0]][0]
        return lambda: explain_file(self._db, inbox, [one.file for one in known], self._project.access)

    def _dataset(self, thing: str) -> _Found | None:
        dataset = self._project.dataset(self._db, thing)
        return lambda: explain_dataset(self._db, dataset, self._project.access)

    def _schedule(self, thing: str) -> _Found | None:
        schedule = find_named(self._project, self._db, thing)
        return lambda: explain_schedule(self._db, schedule)

    def _in_inboxes(self, thing: str) -> tuple[list[tuple[Inbox, str]], bool]:
        """Return the inboxes in which a name may be a file, each with the name of the file there.

        The second value says whether the name begins with an inbox, or is a path in the folder of an inbox.
        """
        sees = self._project.access.sees
        datasets = [one for one in list_datasets(self._db) if one.kind is DatasetKind.INBOX and sees(one.namespace)]
        head, slash, rest = thing.partition("/")
        if slash and rest:
            if named := [one for one in datasets if head in {one.qualified_name, self._short(one)}]:
                return [(Inbox.of(one), rest) for one in named], True
            place = _resolved(thing if "://" in thing else str(self._project.config.folder / thing))
            within = [(one, f"{_resolved(one.location)}/") for one in datasets]
            if inside := [(Inbox.of(one), unquote(place[len(at) :])) for one, at in within if place.startswith(at)]:
                return inside, True
        return [(Inbox.of(one), thing) for one in datasets[:_MOST_STORES]], False

    def _short(self, dataset: Dataset) -> str:
        """Return the name of a data set as people write it in this project."""
        own = dataset.namespace == self._project.config.namespace
        return dataset.name if own else dataset.qualified_name


def _resolved(location: str) -> str:
    try:
        return resolved(location)
    except (UserError, OSError, ValueError):
        return location


def _time(text: str) -> datetime | None:
    """Read the time of a window, `2026-01-01 11:00`; or a window as `watermark show` prints it, `[start, end)`."""
    window = _WINDOW.fullmatch(text)
    try:
        time = datetime.fromisoformat(window["start"] if window else text)
    except ValueError:
        return None
    return None if time.tzinfo is not None else time
