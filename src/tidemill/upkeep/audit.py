"""The audit: whether everything that was committed was delivered, consumed and announced once, and nothing is left.

It reads the whole history, a window of a key at a time, and changes nothing; work may go on meanwhile. It looks at
what had committed when it began: rows written once are the same whenever they are read, and what may change between
two statements (claims, states of runs) is compared within one. Commits at or below the horizon of retention are not
compared: their runs and messages may be deleted.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.db import Catalog
from tidemill.catalog.named import Param, load_sql
from tidemill.lake.consumer.managed import Consumer, WorkState, list_consumers
from tidemill.lake.consumer.resets import list_resets
from tidemill.lake.consumer.take import Closing
from tidemill.lake.datasets import Dataset, DatasetKind, list_datasets
from tidemill.lake.fileset.fileset import Fileset
from tidemill.lake.fileset.totals import compare_totals
from tidemill.lake.snapshot.snapshot import SnapshotDataset
from tidemill.names import ConsumerId, EventKey, RunId, partition_event, snapshot_event
from tidemill.run.records.runs import find_runs
from tidemill.shapes.keys import KeyText
from tidemill.upkeep.audit_inboxes import InboxAudit, audit_inbox, compare_files
from tidemill.upkeep.audit_versions import SnapshotAudit, audit_versions
from tidemill.upkeep.balance import Balances
from tidemill.upkeep.completed import ENDED, check_completed, check_lone
from tidemill.upkeep.horizon import ALL_KEPT, read_horizon
from tidemill.upkeep.search import AuditFinding, FindingKind, Row, Search, Value

if TYPE_CHECKING:
    from tidemill.upkeep.audit_sql import Sql

SQL: Sql = load_sql(__file__)


_COMMITS: Final = 100  # each may have published 50,000 partitions
_END: Final = 1 << 62


@dataclass(frozen=True, slots=True)
class FilesetAudit:
    """A file set: committed changes, as delivered by write pointer, by commit sequence, and as announced."""

    dataset: str
    changes: int
    by_pointer: int
    by_commit: int
    announced: int


@dataclass(frozen=True, slots=True)
class ConsumerAudit:
    """A managed consumer: its working set by state, and what it has not taken yet.

    `overwritten` were replaced before a run took them; their replacements are delivered instead. `dropped` were dropped
    before a run processed them. `ignored` are what its terms pass over. `own` were added by its own runs, which do not
    want them.
    """

    dataset: str
    consumer: str
    completed: int
    new: int
    in_progress: int
    discarded: int
    overwritten: int
    dropped: int
    ignored: int
    own: int
    untaken: int


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of an audit: what was compared, up to which tick, and the findings.

    Nothing that committed at or before `horizon`, about at `horizon_at`, was compared with runs and messages: retention
    deletes it. None: nothing was ever deleted.
    """

    tick: int
    horizon: int
    horizon_at: datetime | None
    commits: int
    runs: int
    filesets: tuple[FilesetAudit, ...]
    consumers: tuple[ConsumerAudit, ...]
    inboxes: tuple[InboxAudit, ...]
    snapshots: tuple[SnapshotAudit, ...]
    findings: tuple[AuditFinding, ...]
    not_shown: int
    """Findings beyond the first `MOST_SHOWN`."""

    @property
    def clean(self) -> bool:
        """Return whether nothing was found."""
        return not self.findings


def audit(catalog: Catalog, datasets: Sequence[Dataset] | None = None) -> Audit:
    """Look at these data sets, or all, and at what runs and transactions have left.

    Cost: the history, in windows of some thousand rows, each found by its key; nothing is locked but the clock, for
    one tick, so that all that committed before it is seen.
    """
    tick = int(catalog.write(lambda db: db.tick()))
    chosen = catalog.read(list_datasets) if datasets is None else list(datasets)
    horizon = catalog.read(read_horizon)
    search = Search(catalog, tick, horizon)
    filesets: dict[str, Fileset] = {d.dataset_id: Fileset.of(d) for d in chosen if d.kind is DatasetKind.FILESET}
    snapshots = {d.dataset_id: SnapshotDataset.of(d) for d in chosen if d.kind is DatasetKind.SNAPSHOT}
    inboxes = [d for d in chosen if d.kind is DatasetKind.INBOX]
    files = [audit_inbox(search, inbox) for inbox in inboxes]
    named = json.dumps(sorted(dataset.qualified_name for dataset in chosen))
    former = search.records(SQL.list_named, Dataset, datasets=named)
    announced = _audit_commits(
        search,
        {
            **{dataset.dataset_id: Fileset.of(dataset) for dataset in former if dataset.kind is DatasetKind.FILESET},
            **filesets,
            **{key: one.fileset for key, one in snapshots.items()},
        },
    )
    return Audit(
        tick=tick,
        horizon=horizon.seq,
        horizon_at=None if horizon is ALL_KEPT else horizon.at,
        commits=announced.commits,
        runs=_audit_runs(search, {dataset.dataset_id: dataset for dataset in chosen}),
        filesets=tuple(_audit_fileset(search, fileset, announced.partitions) for fileset in filesets.values()),
        consumers=tuple(
            _audit_consumer(search, filesets[consumer.dataset_id], consumer)
            for consumer in catalog.read(list_consumers)
            if consumer.dataset_id in filesets
        ),
        inboxes=tuple(
            compare_files(search, inbox, one, announced.files, announced.balances.of(inbox.qualified_name))
            for inbox, one in zip(inboxes, files, strict=True)
        ),
        snapshots=tuple(
            audit_versions(search, snapshot, announced.versions[snapshot.qualified_name])
            for snapshot in snapshots.values()
        ),
        findings=tuple(search.findings.shown),
        not_shown=search.findings.not_shown,
    )


class _Published(NamedTuple):
    """A change, with the commit that published it."""

    commit_seq: int
    dataset_id: str
    partition_key: KeyText
    delivers: int
    row_count: int | None
    write_pointer: int
    superseded_seq: int | None


class _Changed(NamedTuple):
    """A change, with when it had to be superseded; `mismatch` is the state of a transaction that did not commit so."""

    write_pointer: int
    partition_key: KeyText
    commit_seq: int
    superseded_seq: int | None
    delivers: int
    mismatch: str | None
    hidden_seq: int | None


class _State(NamedTuple):
    """The state of a consumer."""

    start_version: int
    versions_to_check: tuple[int, ...]


class _Work(NamedTuple):
    """A row of a working set, with its change and the run that holds or has completed it."""

    write_pointer: int
    partition_key: KeyText
    commit_seq: int
    state: WorkState
    run_id: str | None
    error: str | None
    change_run_id: str | None
    superseded_seq: int | None
    has_input: int | None
    run_state: str | None
    tx_state: str | None
    is_freed: int | None


@dataclass(slots=True)
class _Announced:
    """Count the announced partitions, files and versions, and the commits."""

    commits: int = 0
    partitions: Counter[str] = field(default_factory=Counter)
    versions: Counter[str] = field(default_factory=Counter)
    files: Counter[str] = field(default_factory=Counter)
    balances: Balances = field(default_factory=Balances)

    def read(
        self, search: Search, by_event: Mapping[EventKey, Fileset], after: Value, bound: Value
    ) -> Counter[tuple[object, str, str]]:
        """Count a window of messages, and give the partitions that they announce, as people read them."""
        told: Counter[tuple[object, str, str]] = Counter()
        for seq, event_type, event_key, text in search.ask(SQL.read_announced, after=after, bound=bound):
            payload = json.loads(str(text))
            if event_type == "files":
                self.files[str(event_key)] += payload["count"]
            elif (fileset := by_event.get(EventKey(str(event_key)))) is None:
                continue
            elif event_type == "refreshed":
                told[seq, fileset.qualified_name, f"version {payload['version']}"] += 1
                self.versions[fileset.qualified_name] += 1
            else:
                for partition in payload["partitions"]:
                    told[seq, fileset.qualified_name, f"partition {partition['key']}"] += 1
                self.partitions[str(event_key)] += len(payload["partitions"])
        return told


def _audit_commits(search: Search, filesets: Mapping[str, Fileset]) -> _Announced:
    """Each commit is that of its run, and what it published was announced, once; the run's own count agrees."""
    announced = _Announced()
    by_event = {_event_of(fileset): fileset for fileset in filesets.values()}
    names = {fileset.qualified_name for fileset in filesets.values()}
    snapshots = {key for key, one in filesets.items() if one.dataset.kind is DatasetKind.SNAPSHOT}
    last: Value = search.horizon.seq
    for after, bound in search.windows(SQL.find_bound_of_commits, last, most=_COMMITS, pointer=search.tick):
        published: Counter[tuple[object, str, str]] = Counter()
        rows: Counter[tuple[object, str]] = Counter()
        changes = search.records(SQL.read_published, _Published, after=after, bound=bound)
        commits = search.ask(SQL.read_commits, after=after, bound=bound)
        quiet = _find_quiet(search, commits) if any(row.dataset_id in snapshots for row in changes) else frozenset()
        for row in changes:
            seq, dataset_id, key, delivers, row_count, write_pointer, superseded_seq = row
            if (fileset := filesets.get(dataset_id)) is None:
                continue
            rows[seq, fileset.qualified_name] += row_count or 0
            if dataset_id in snapshots:  # what was history from the first brought nothing to read
                told = superseded_seq != seq and seq not in quiet
                published[seq, fileset.qualified_name, f"version {write_pointer}"] += int(told)
            else:
                published[seq, fileset.qualified_name, f"partition {fileset.show(key)}"] += delivers
        _compare_messages(search, published, announced.read(search, by_event, after, bound))
        for commit in commits:
            _compare_run(search, commit, rows, names, announced.balances)
            announced.commits += 1
        last = bound
    # Behind the last commit of a transaction there are only files that were found, some of them after the tick.
    announced.read(search, {}, last, _END)
    return announced


def _find_quiet(search: Search, commits: Sequence[Row]) -> frozenset[Value]:
    """Return the commit sequences of quiet runs, whose versions are not announced."""
    by_run = {RunId(str(run_id)): seq for seq, _, run_id, *_ in commits}
    return frozenset(
        by_run[run.run_id] for run in search.catalog.read(lambda db: find_runs(db, [*by_run])) if run.quiet
    )


def _event_of(fileset: Fileset) -> EventKey:
    dataset = fileset.dataset
    event = snapshot_event if dataset.kind is DatasetKind.SNAPSHOT else partition_event
    return event(dataset.namespace, dataset.name)


def _compare_messages(
    search: Search, published: Counter[tuple[object, str, str]], told: Counter[tuple[object, str, str]]
) -> None:
    see = "publish to the topic by hand, or start what listens by `tidemill run start`"
    for seq, dataset, key in sorted(+published - told, key=str):
        search.report(FindingKind.LOST, dataset, f"{key} of commit {seq} was not announced", see)
    for seq, dataset, key in sorted(told - published, key=str):
        kind = FindingKind.DOUBLED if published[seq, dataset, key] else FindingKind.DIRTY
        what = "more than once" if kind is FindingKind.DOUBLED else "and is not in it"
        search.report(kind, dataset, f"{key} of commit {seq} was announced {what}", "report it as a bug")


def _compare_run(
    search: Search, commit: Row, rows: Mapping[tuple[object, str], int], known: set[str], balances: Balances
) -> None:
    seq, write_pointer, run_id, state, last, facts, is_worker = commit
    if state is None or is_worker:
        return  # of another life of the catalog, or without a record; or one of many
    if state != "COMPLETED" or last != write_pointer:
        what = f"transaction {write_pointer} of {run_id} has committed; the run is {state} with transaction {last}"
        search.report(FindingKind.BROKEN, str(run_id), what, f"look at `tidemill run show {run_id}`")
    said = json.loads(str(facts or "{}"))
    balances.add(str(run_id), said)
    for output in said.get("outputs", []):
        name = output["dataset"]
        if name in known and rows.get((seq, name), 0) != output["rows"]:
            what = f"{run_id} says that it wrote {output['rows']} rows, its manifests have {rows.get((seq, name), 0)}"
            search.report(FindingKind.BROKEN, name, what, f"compare `tidemill tx show {write_pointer}` with the files")


def _audit_fileset(search: Search, fileset: Fileset, announced: Mapping[str, int]) -> FilesetAudit:
    """Rows are committed and superseded as they should be, and both ways of delivery give the same, step by step."""
    follower = _Follower(search, fileset)
    changes = 0
    dataset_id = fileset.dataset_id
    for after, bound in search.windows(SQL.find_bound_of_changes, 0, pointer=search.tick, dataset_id=dataset_id):
        window: dict[str, Param] = {"after": after, "bound": bound, "pointer": search.tick, "dataset_id": dataset_id}
        found = search.records(SQL.read_changes, _Changed, **window)
        for row in found:
            _check_change(search, fileset, row)
        changes += len(found)
        follower.step(int(bound or 0) + 1)
    follower.step(search.tick)
    _compare_totals(search, fileset)
    event = partition_event(fileset.dataset.namespace, fileset.dataset.name)
    return FilesetAudit(
        fileset.qualified_name, changes, follower.by_pointer, follower.by_commit, announced.get(event, 0)
    )


def _compare_totals(search: Search, fileset: Fileset) -> None:
    found = search.catalog.read(lambda db: compare_totals(db, fileset.dataset_id))
    if len(found) > 1:
        what = f"its totals are kept as {' and counted as '.join(map(str, found))}"
        search.report(FindingKind.BROKEN, fileset.qualified_name, what, "report it as a bug")


def _check_change(search: Search, fileset: Fileset, row: _Changed) -> None:
    write_pointer, key, commit_seq, superseded_seq, _, differs, expected = row
    where = f"partition {fileset.show(key)} of transaction {write_pointer}"
    if differs != "":
        what = f"{where} is visible from {commit_seq} on; its transaction is {differs or 'unknown'}"
        search.report(FindingKind.DIRTY, fileset.qualified_name, what, "overwrite the partition from its source")
    if commit_seq <= write_pointer:
        what = f"{where} has committed at {commit_seq}, before it began"
        search.report(FindingKind.BROKEN, fileset.qualified_name, what, "report it as a bug")
    if superseded_seq != expected and not _is_later(search, expected):
        what = f"{where} is superseded at {superseded_seq}, and should be at {expected}"
        search.report(FindingKind.BROKEN, fileset.qualified_name, what, "overwrite the partition from its source")


def _is_later(search: Search, seq: Value) -> bool:
    return isinstance(seq, int) and seq >= search.tick


class _Follower:
    """The seed's consumer from the beginning, beside a reader that goes by commit sequences (R19)."""

    def __init__(self, search: Search, fileset: Fileset) -> None:
        self.by_pointer = 0
        self.by_commit = 0
        self._search = search
        self._fileset = fileset
        self._start = 0
        self._late: list[int] = []

    def step(self, pointer: int) -> None:
        """Take what the snapshot with this pointer shows, both ways."""
        place: dict[str, Param] = {"dataset_id": self._fileset.dataset_id, "pointer": pointer}
        state: dict[str, Param] = {"start_version": self._start, "versions_to_check": json.dumps(self._late)}
        taken = Counter(self._search.ask(SQL.deliver_by_pointer, **place, **state))
        committed = Counter(self._search.ask(SQL.deliver_by_commit, after=self._start, **place))
        self._late = self._search.records(SQL.find_late, int, **place, **state)
        self._start = pointer
        self.by_pointer += taken.total()
        self.by_commit += committed.total()
        for missing, kind, what in (
            (committed - taken, FindingKind.LOST, "is not delivered by its write pointer"),
            (taken - committed, FindingKind.DOUBLED, "is delivered by its write pointer once more"),
        ):
            for write_pointer, key in missing:
                where = f"partition {self._fileset.show(KeyText(str(key)))} of transaction {write_pointer}"
                told = f"{where} {what} at {pointer}"
                self._search.report(kind, self._fileset.qualified_name, told, "check the database's indexes")


def _audit_consumer(search: Search, fileset: Fileset, consumer: Consumer) -> ConsumerAudit:
    """The working set has what the state says, and what is completed is the input of one committed run."""
    subject = f"{consumer.name} of {fileset.qualified_name}"
    place: dict[str, Param] = {"dataset_id": fileset.dataset_id, "consumer_id": consumer.consumer_id}
    state = consumer.state
    for after, bound in search.windows(
        SQL.find_bound_of_changes, 0, dataset_id=fileset.dataset_id, pointer=min(search.tick, state.start_version)
    ):
        for write_pointer, key in search.ask(
            SQL.find_untaken,
            after=after,
            bound=bound,
            pointer=search.tick,
            start_version=state.start_version,
            since_seq=max(consumer.since_seq, search.horizon.seq + 1),
            **place,
        ):
            if write_pointer not in state.versions_to_check:
                where = f"partition {fileset.show(KeyText(str(key)))} of transaction {write_pointer}"
                what = f"{where} was passed by, and is not in the working set"
                search.report(FindingKind.LOST, subject, what, "run its program on it by hand; report it as a bug")
    counts = _audit_work(search, fileset, subject, consumer.consumer_id, past=False)
    untaken = 0
    for start, versions in search.ask(SQL.read_state, consumer_id=consumer.consumer_id):  # none when it was just reset
        (untaken,) = search.records(
            SQL.count_untaken, int, pointer=search.tick, start_version=start, versions_to_check=versions, **place
        )
    for past in search.catalog.read(lambda db: list_resets(db, fileset.dataset_id, consumer.name)):
        _audit_work(search, fileset, f"{subject} before its reset", past.consumer_id, past=True)
    return ConsumerAudit(
        fileset.qualified_name,
        consumer.name,
        completed=counts[WorkState.COMPLETED],
        new=counts[WorkState.NEW],
        in_progress=counts[WorkState.IN_PROGRESS],
        discarded=counts[WorkState.DISCARDED],
        overwritten=counts["overwritten"],
        dropped=counts["dropped"],
        ignored=counts["ignored"],
        own=counts["own"],
        untaken=untaken,
    )


def _audit_work(search: Search, fileset: Fileset, subject: str, consumer_id: ConsumerId, *, past: bool) -> Counter[str]:
    """Look at each row of a working set, of a consumer or of one as it was before a reset, and count them."""
    counts: Counter[str] = Counter()
    lone: list[tuple[str, str]] = []
    place: dict[str, Param] = {"dataset_id": fileset.dataset_id, "consumer_id": consumer_id}
    for after, bound in search.windows(SQL.find_bound_of_work, 0, consumer_id=consumer_id, pointer=search.tick):
        rows = search.records(SQL.read_work, _Work, after=after, bound=bound, **place)
        state = _State(search.tick + 1, ())
        for found in [] if past else search.records(SQL.read_state, _State, consumer_id=consumer_id):
            state = found
        for row in rows:
            where = f"partition {fileset.show(row.partition_key)} of transaction {row.write_pointer}"
            counts[_check_work(search, subject, where, row, lone)] += 1
            early = row.write_pointer >= state.start_version or row.write_pointer in state.versions_to_check
            if early and row.run_id != row.change_run_id:
                what = f"{where} is in the working set, and the state will deliver it again"
                search.report(FindingKind.DOUBLED, subject, what, "stop the program; report it as a bug")
    check_lone(search, subject, lone)
    return counts


def _check_work(search: Search, subject: str, where: str, row: _Work, lone: list[tuple[str, str]]) -> str:
    """Return the state as which a row of a working set counts."""
    _, _, commit_seq, state, run_id, error, made_by, superseded_seq, is_input, run_state, tx_state, is_freed = row
    run = str(run_id)
    if made_by is None:
        search.report(FindingKind.DIRTY, subject, f"{where} is in the working set, and nowhere else", "report it")
    match state:
        case WorkState.COMPLETED if run_id == made_by:
            return "own"
        case WorkState.COMPLETED if is_input is None and error in {Closing.IGNORED, Closing.UNWANTED}:
            return "ignored"
        case WorkState.COMPLETED if is_input is None and error == Closing.DROPPED:
            return "dropped"
        case WorkState.COMPLETED if is_input is None and superseded_seq is not None and error is not None:
            return "overwritten"
        case WorkState.COMPLETED if commit_seq <= search.horizon.seq and (run_state is None or is_input is None):
            pass  # by a run that retention may have deleted, or as old input of a worker
        case WorkState.COMPLETED if is_freed and is_input:
            pass  # by one of the commits of a worker or workflow, which record what they complete
        case WorkState.COMPLETED:
            check_completed(search, subject, (where, run, is_input, run_state, tx_state), lone)
        case WorkState.IN_PROGRESS if run_state in ENDED:
            what = f"{where} is claimed by {run}, which is {run_state}"
            search.report(FindingKind.ORPHANED, subject, what, "report it; no run gets the partition until repaired")
        case _:
            pass
    return str(state)


def _audit_runs(search: Search, chosen: Mapping[str, Dataset]) -> int:
    """Runs, their transactions and their inputs agree, and none that has ended holds anything."""
    runs = 0
    ((last_run, last_input),) = search.ask(SQL.find_last_runs)
    for after, bound in search.windows(SQL.find_bound_of_runs, "", last=last_run):
        rows = search.ask(SQL.read_runs, after=after, bound=bound)
        runs += len(rows)
        odd = [row for row in rows if row[2] is not None and (row[1] == "COMPLETED") != (row[3] == "committed")]
        ids = [RunId(str(row[0])) for row in odd]
        sandboxes = {run.run_id for run in search.catalog.read(partial(find_runs, runs=ids)) if run.is_sandbox}
        for run_id, state, write_pointer, tx_state in odd:
            if run_id in sandboxes and tx_state == "aborted":
                continue
            what = f"{run_id} is {state}, its transaction {write_pointer} is {tx_state or 'unknown'}"
            search.report(FindingKind.BROKEN, str(run_id), what, f"look at `tidemill run show {run_id}`")
    for after, bound in search.windows(SQL.find_bound_of_inputs, "", last=last_input):
        unheld = search.ask(SQL.find_unheld_inputs, after=after, bound=bound)
        named = sorted({RunId(str(row[0])) for row in unheld})
        # A run with chosen input works on what other runs have completed, or no run at all. What a node reads, its
        # workflow completes.
        found = search.catalog.read(partial(find_runs, runs=named))
        given = {run.run_id for run in found if run.is_chosen or run.workflow is not None}
        for run_id, dataset_id, write_pointer, item, version in unheld:
            if run_id not in given and (dataset := chosen.get(str(dataset_id))) is not None:
                what = f"{item} ({version or write_pointer}) is in the input of {run_id}; another run has completed it"
                next_step = f"compare `tidemill run show {run_id}` with the runs of the same program"
                search.report(FindingKind.DOUBLED, dataset.qualified_name, what, next_step)
    _audit_left(search)
    _audit_backfills(search)
    for run_id, state in search.ask(SQL.list_idle_workflows):
        what = f"workflow {run_id} is {state}, and none of its nodes is under way"
        search.report(FindingKind.BROKEN, str(run_id), what, "report it as a bug")
    return runs


def _audit_left(search: Search) -> None:
    mend = "report it as a bug"
    for write_pointer, run_id, state in search.ask(SQL.list_open):
        if state in {*ENDED, "PENDING", "in another attempt"}:
            what = f"transaction {write_pointer} is open, its run {run_id} is {state}"
            search.report(FindingKind.ORPHANED, str(run_id), what, f"`tidemill tx abort {write_pointer}`")
    for dataset_id, write_pointer, state in search.ask(SQL.list_declarations):
        if state != "in_progress":
            what = f"transaction {write_pointer} is {state or 'unknown'}, and is declared to write {dataset_id}"
            search.report(FindingKind.ORPHANED, str(write_pointer), what, mend)
    for statement, held in ((SQL.list_slots, "a slot of"), (SQL.list_pins, "pin")):
        for name, run_id, state in search.ask(statement):
            if run_id is not None and (state is None or state in ENDED):
                what = f"{held} {name} is held by {run_id}, which is {state or 'unknown'}"
                search.report(FindingKind.ORPHANED, str(run_id), what, mend)
    for location, write_pointer, state in search.ask(SQL.list_garbage):
        if state in {"committed", "in_progress"}:
            what = f"{location} is to be deleted, and transaction {write_pointer} is {state}"
            search.report(FindingKind.BROKEN, str(write_pointer), what, mend)


def _audit_backfills(search: Search) -> None:
    """The counts of a backfill are those of its items, and no item has two completed runs."""
    mend = "report it as a bug"
    for backfill_id, counts, found, completed, done in search.ask(SQL.list_backfills, horizon_at=search.horizon.at):
        if counts != found:
            what = f"its items are kept as {counts} and counted as {found} (waiting, running, done, failed, dropped)"
            search.report(FindingKind.BROKEN, str(backfill_id), what, mend)
        if int(str(completed)) > int(str(done)):
            what = f"it has {completed} completed runs for {done} items"
            search.report(FindingKind.DOUBLED, str(backfill_id), what, mend)
