"""The search for things by the beginning of their names, ids, files and partition keys.

Each kind of things is one statement, which reads a range of an index. Files and partitions are one for each data set.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Db
from tidemill.catalog.named import GREATEST, Param, Statement, load_sql, range_of
from tidemill.lake.datasets import Dataset, DatasetKind, list_datasets
from tidemill.lake.fileset.fileset import Fileset
from tidemill.mill.page import BadPage
from tidemill.mill.project import MOST_SHOWN, Project, program_names, schedule_names
from tidemill.mill.search_result import MOST_HITS, BadSearch, Hit, HitKind, SearchResult
from tidemill.names import JobId, Namespace, ProgramId, RunId, ScheduleId, hook_event, qualified, split_qualified
from tidemill.shapes.keys import KeyText
from tidemill.texts import printable

if TYPE_CHECKING:
    from tidemill.mill.search_sql import Sql

SQL: Sql = load_sql(__file__)

_MOST_LETTERS: Final = 1000
_MOST_DATASETS: Final = 100
"""Inboxes, and file sets, in which files and partitions are looked for."""
_MOST_ROWS: Final = 4
"""So many times the most hits are the most rows of one data set that are read, since a name may come several times."""
_HOOK: Final = "hook:"


class _Beginning(NamedTuple):
    """The beginning of a local name, after an app or a namespace. Both are empty if the text names none."""

    namespace: str
    app: str
    text: str


def search(project: Project, text: str, limit: int) -> SearchResult:
    """Find things by the beginning of their names; `BadSearch`, `BadPage`. One read of the catalog."""
    if not 1 <= limit <= MOST_HITS:
        raise BadPage("limit", str(limit), most=MOST_HITS)
    wanted = text.strip()
    if not wanted:
        raise BadSearch(text, "give the first letters of a name or id")
    if len(wanted) > _MOST_LETTERS or printable(wanted) != wanted:
        raise BadSearch(text, f"use a text of up to {_MOST_LETTERS} characters, without NUL")
    return project.catalog.read(lambda db: _Search(project, db, wanted, limit).result())


class _Search:
    """A search in one read of the catalog."""

    def __init__(self, project: Project, db: Db, text: str, limit: int) -> None:
        self._project = project
        self._db = db
        self._text = text
        self._limit = limit
        self._skipped = False

    def result(self) -> SearchResult:
        """Return what all kinds have found."""
        finders = (
            self._datasets,
            self._apps,
            self._programs,
            self._schedules,
            self._consumers,
            self._topics,
            self._subscribers,
            self._alert_rules,
            self._hooks,
            self._runs,
            self._jobs,
            self._transactions,
            self._files,
            self._partitions,
        )
        hits: list[Hit] = []
        more = False
        for find in finders:
            found = list(islice(dict.fromkeys(find()), self._limit + 1))
            more |= len(found) > self._limit
            hits += found[: self._limit]
        hits.sort(key=lambda hit: self._text not in {hit.name, hit.name.rpartition(".")[2], hit.name.partition(".")[2]})
        return SearchResult(self._text, tuple(hits), more or self._skipped)

    def _split(self, parts: int) -> _Beginning | None:
        """Divide the text into namespace, app and the beginning of a name that has `parts` parts in its namespace.

        None for a text that is no such name, and for a namespace that the caller may not read.
        """
        pieces = self._text.split(".")
        only = self._project.access.only or ""
        if len(pieces) == 1:
            return _Beginning(only, "", pieces[0])
        if len(pieces) == parts:
            namespace, app = Namespace(self._project.config.namespace), pieces[0]
        elif len(pieces) == parts + 1:
            namespace, app = Namespace(pieces[0]), pieces[1] if parts > 1 else ""
        else:
            return None
        return _Beginning(namespace, app, pieces[-1]) if self._project.access.sees(namespace) else None

    def _range(self, text: str, rows: int = 1) -> dict[str, Param]:
        """Return the parameters of a statement that reads what begins with `text`, `rows` rows for each hit."""
        return {**range_of(text), "limit": rows * self._limit + 1}

    def _datasets(self) -> Iterator[Hit]:
        if (wanted := self._split(1)) is None:
            return
        bounds, kinds = self._range(wanted.text), tuple[Namespace, str, DatasetKind]
        for namespace, name, kind in self._db.records(SQL.find_datasets, kinds, namespace=wanted.namespace, **bounds):
            noun = "inbox" if kind is DatasetKind.INBOX else "dataset"
            shown = qualified(namespace, name)
            yield Hit(HitKind.DATASET, shown, f"{noun} show {shown}")

    def _apps(self) -> Iterator[Hit]:
        if (wanted := self._split(1)) is None:
            return
        bounds, kinds = self._range(wanted.text), tuple[Namespace, str]
        for names in self._db.records(SQL.find_apps, kinds, namespace=wanted.namespace, **bounds):
            yield Hit(HitKind.APP, qualified(*names), f"app show {qualified(*names)}")

    def _programs(self) -> Iterator[Hit]:
        for shown in self._of_apps(SQL.find_programs, SQL.find_programs_of_app):
            yield Hit(HitKind.PROGRAM, shown, f"run list --program {shown}")

    def _schedules(self) -> Iterator[Hit]:
        for shown in self._of_apps(SQL.find_schedules, SQL.find_schedules_of_app):
            yield Hit(HitKind.SCHEDULE, shown, f"schedule show {shown}")

    def _of_apps(self, anywhere: Statement[...], of_app: Statement[...]) -> Iterator[str]:
        """Yield the names of what belongs to apps: of one app if the text names an app, else of all."""
        if (wanted := self._split(2)) is None:
            return
        bounds, kinds = self._range(wanted.text), tuple[Namespace, str, str]
        if wanted.app:
            found = self._db.records(of_app, kinds, namespace=wanted.namespace, app=wanted.app, **bounds)
        else:
            found = self._db.records(anywhere, kinds, namespace=wanted.namespace, **bounds)
        yield from (qualified(*names) for names in found)

    def _consumers(self) -> Iterator[Hit]:
        """Yield consumers by the beginning of their names, with or without the namespace, and those of programs."""
        only, names = self._project.access.only or "", tuple[Namespace, str, str]
        whole = f"{self._project.config.namespace}.{self._text}"
        programs = json.dumps(list(self._of_apps(SQL.find_programs, SQL.find_programs_of_app)))
        found = [
            *self._db.records(SQL.find_consumers, names, namespace=only, **self._range(self._text)),
            *self._db.records(SQL.find_consumers, names, namespace=only, **self._range(whole)),
            *self._db.records(SQL.find_consumers_of, names, namespace=only, programs=programs, limit=self._limit + 1),
        ]
        for namespace, dataset, name in found:
            of = qualified(namespace, dataset)
            yield Hit(HitKind.CONSUMER, f"{of}/{name}", f"consumer show {of} {quote(name)}")

    def _subscribers(self) -> Iterator[Hit]:
        """Yield subscribers: a topic is of no namespace, and so its subscribers are."""
        if self._project.access.only is not None:
            return
        for name in self._db.records(SQL.find_subscribers, str, **self._range(self._text)):
            yield Hit(HitKind.SUBSCRIBER, name, f"subscriber show {quote(name)}")

    def _alert_rules(self) -> Iterator[Hit]:
        if (wanted := self._split(1)) is None:
            return
        bounds, kinds = self._range(wanted.text), tuple[Namespace, str]
        for names in self._db.records(SQL.find_alert_rules, kinds, namespace=wanted.namespace, **bounds):
            yield Hit(HitKind.ALERT_RULE, qualified(*names), f"alert list --rule {qualified(*names)}")

    def _hooks(self) -> Iterator[Hit]:
        """Yield hooks to which a schedule listens. Cost: look-ups for the hooks of the namespace, else of all."""
        if (wanted := self._split(1)) is None:
            return
        begins = hook_event(Namespace(wanted.namespace), wanted.text) if wanted.namespace else _HOOK
        for key in self._db.records(SQL.find_hooks, str, **range_of(begins), limit=MOST_SHOWN):
            name = key.removeprefix(_HOOK)
            if name.partition(".")[2].startswith(wanted.text):
                yield Hit(HitKind.HOOK, name, "topic read hook")

    def _topics(self) -> Iterator[Hit]:
        for topic in self._db.records(SQL.find_topics, str, **self._range(self._text)):
            yield Hit(HitKind.TOPIC, topic, f"topic read {quote(topic)}")

    def _runs(self) -> Iterator[Hit]:
        if not self._text.startswith("run_"):
            return
        found = self._db.records(SQL.find_runs, tuple[RunId, ProgramId | None], **self._range(self._text))
        names = program_names(self._db, (program_id for _, program_id in found))
        for run_id, program_id in found:
            if self._sees("program", None if program_id is None else names.get(program_id)):
                yield Hit(HitKind.RUN, run_id, f"run show {run_id}")

    def _jobs(self) -> Iterator[Hit]:
        if not self._text.startswith("job_"):
            return
        found = self._db.records(SQL.find_jobs, tuple[JobId, ScheduleId], **self._range(self._text))
        names = schedule_names(self._db, (schedule_id for _, schedule_id in found))
        for job_id, schedule_id in found:
            if self._sees("schedule", names.get(schedule_id)):
                yield Hit(HitKind.JOB, job_id, f"job show {job_id}")

    def _transactions(self) -> Iterator[Hit]:
        """Yield the transaction of this write pointer, with or without commas."""
        number = self._text.replace(",", "")
        if not (number.isascii() and number.isdigit() and int(number) <= GREATEST):
            return
        only = self._project.access.only
        for pointer in self._db.records(SQL.find_transaction, int, write_pointer=int(number), namespace=only):
            yield Hit(HitKind.TRANSACTION, str(pointer), f"tx show {pointer}")

    def _sees(self, kind: str, owner: str | None) -> bool:
        """Return whether the caller may read what belongs to a program or schedule; None is of no namespace."""
        if owner is None:
            return self._project.access.only is None
        return self._project.access.sees(split_qualified(kind, owner, 2)[0])

    @cached_property
    def _readable(self) -> Sequence[Dataset]:
        """The data sets that the caller may read, by name."""
        only = self._project.access.only
        found = list_datasets(self._db, after=(only or "", ""), limit=MOST_SHOWN)
        return [one for one in found if self._project.access.sees(one.namespace)]

    def _some(self, datasets: Sequence[Dataset]) -> Sequence[Dataset]:
        """Return the first of `datasets`. If there are more, the answer says so."""
        self._skipped |= len(datasets) > _MOST_DATASETS
        return datasets[:_MOST_DATASETS]

    def _files(self) -> Iterator[Hit]:
        """Yield files of all inboxes, and of the inbox that the text names before a slash."""
        head, slash, rest = self._text.partition("/")
        inboxes = [one for one in self._readable if one.kind is DatasetKind.INBOX]
        named = [one for one in inboxes if slash and head in {one.name, one.qualified_name}]
        for inbox, text in [*((one, rest) for one in named), *((one, self._text) for one in self._some(inboxes))]:
            bounds = self._range(text, _MOST_ROWS)
            for name in dict.fromkeys(self._db.records(SQL.find_files, str, dataset_id=inbox.dataset_id, **bounds)):
                shown = f"{inbox.qualified_name}/{name}"
                yield Hit(HitKind.FILE, shown, f"why {quote(shown)}")

    def _partitions(self) -> Iterator[Hit]:
        """Yield partitions of all file sets whose keys fit, or of the file set that the text names before a slash."""
        head, slash, rest = self._text.partition("/")
        if "=" not in self._text:
            return
        filesets = [one for one in self._readable if one.kind is DatasetKind.FILESET]
        if slash and "=" not in head:
            filesets = [one for one in filesets if head in {one.name, one.qualified_name}]
        key = rest if slash and "=" not in head else self._text
        for fileset in map(Fileset.of, self._some(filesets)):
            if (begins := fileset.keys.begin(key)) is None:
                continue
            of, bounds = fileset.dataset_id, self._range(begins, _MOST_ROWS)
            found = self._db.records(SQL.find_partitions, KeyText, dataset_id=of, **bounds)
            for path in dict.fromkeys(fileset.keys.to_path(fileset.keys.decode(one)) for one in found):
                shown = f"{fileset.qualified_name}/{path}"
                yield Hit(HitKind.PARTITION, shown, f"why {quote(shown)}")
