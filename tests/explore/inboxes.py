"""Scenarios of inboxes (R3): files that land and are written again, discoverers, and runs that claim, in all orders."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import cast
from unittest.mock import patch

from tests.explore import promises
from tests.explore.consumers import cut_power, fencer, killer, note_given, take_run
from tests.explore.promises import must
from tests.explore.search import Actor, Scenario, Tables
from tests.explore.stage import Stage
from tidemill.catalog.db import Db
from tidemill.catalog.transactions import begin, commit
from tidemill.errors import Conflict, Fenced
from tidemill.json_specs import write_plain
from tidemill.lake.backlog import publish_due
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.inbox import leaving
from tidemill.lake.inbox.discovery import discover
from tidemill.lake.inbox.file_checks import sort_out, succeeded, verify_claims
from tidemill.lake.inbox.file_claims import claim_files
from tidemill.lake.inbox.file_endings import INBOXES, CloseFiles, release_quarantined
from tidemill.lake.inbox.inbox import After, FileState, Inbox, InboxSpec, ensure_inbox
from tidemill.lake.inbox.leaving import empty_inboxes
from tidemill.names import DatasetId, Namespace, ProgramId, RunId
from tidemill.run.records.programs import Program, ProgramKind, put_program
from tidemill.run.records.runs import NewRun, create_pending
from tidemill.run.step.attempts import (
    AttachTransaction,
    AttemptEnd,
    Cause,
    FinishRun,
    end_attempt,
)
from tidemill.run.step.outside_claims import close_claim, get_latest_files, renew_claim
from tidemill.shapes.formats import FileFormat, RawFormat
from tidemill.storage.files import Capabilities, FileChanged, Files, FileStatus, Seen, Unusable
from tidemill.storage.locations import open_files
from tidemill.testing.clock import NOON
from tidemill.world import World

SPEC = InboxSpec(
    RawFormat(FileFormat.TEXT),
    attempts=20,
    retry_after=timedelta(seconds=10),
    max_files=1,
    reconcile_every=None,
    settle=timedelta(0),
)
RAW = Dataset(DatasetId("raw"), Namespace("default"), "raw", DatasetKind.INBOX, "file:///landing", write_plain(SPEC))
READER = "load"


class _Landing:
    """A folder that is a table: so that it goes back with the catalog. To look at it is a turn, if it may change."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage

    url = "file:///landing"
    capabilities = Capabilities(lists_from_name=True)

    def list_after(
        self, _prefix: str, after: str | None, _seen: Seen, _unusable: list[Unusable]
    ) -> Iterator[FileStatus]:
        return (file for file in self._list() if file.name > (after or ""))

    def check_location(self) -> None:
        """The location is always there."""

    def url_of(self, name: str) -> str:
        return f"{self.url}/{name}"

    def stat(self, name: str) -> FileStatus | None:
        return next((file for file in self._list() if file.name == name), None)

    def stat_many(self, names: Sequence[str]) -> list[FileStatus | None]:
        return list(map(self.stat, names))

    def settle(self, name: str) -> FileStatus | None:
        return self.stat(name)

    def delete(self, name: str, *, etag: str | None = None) -> None:
        self._stage.turn(lambda: self._delete(name, etag))

    def _delete(self, name: str, etag: str | None) -> None:
        query = (
            "SELECT landed.version, file.status FROM landed LEFT JOIN inbox_file AS file"
            " ON file.name = landed.name AND file.etag = CAST(landed.version AS TEXT)"
            " WHERE landed.version > 0 AND landed.name = ?"
        )
        for version, status in self._stage.connection.execute(query, (name,)).fetchall():
            if etag is not None and str(version) != etag:
                raise FileChanged(self.url, name, etag, str(version))
            must(status == "SUCCESS", f"{name} {version} is deleted, and is {status or 'not known'}")
            self._stage.connection.execute("UPDATE landed SET version = -version WHERE name = ?", (name,))

    def _list(self) -> list[FileStatus]:
        return self._stage.turn(self._look) if self._stage.files_change else self._look()

    def _look(self) -> list[FileStatus]:
        query = "SELECT name, version FROM landed WHERE version > 0 ORDER BY name"
        rows = self._stage.connection.execute(query).fetchall()
        return [FileStatus(name, 0, NOON + timedelta(minutes=version), str(version)) for name, version in rows]

    def read(self, _name: str, **_part: int) -> bytes:
        return b""


@dataclass(frozen=True)
class _PlayedInbox(Inbox):
    """An inbox whose files lie on the stage."""

    def files(self, _world: World) -> _Landing:  # type: ignore[override]
        return _Landing(Stage.on_stage)


INBOX = _PlayedInbox(RAW, SPEC)


def _open_files(location: str, world: World, root: str | None = None) -> Files:
    return cast("Files", _Landing(Stage.on_stage)) if location == RAW.location else open_files(location, world)


def lander(name: str, file: str) -> Actor:
    """Writer of a file, for the first time or again."""

    def body(stage: Stage) -> None:
        stage.turn(lambda: land(stage, file))

    return Actor(name, body)


def land(stage: Stage, file: str) -> None:
    """Let a new content of the file be there."""
    stage.connection.execute(
        "INSERT INTO landed VALUES (?, 1) ON CONFLICT DO UPDATE SET version = abs(version) + 1", (file,)
    )


def discoverer(name: str) -> Actor:
    """Lists the inbox and records what is new, once."""
    return Actor(name, lambda stage: discover(stage.catalog, INBOX) and None, group="discoverer")


def loader(name: str, endings: Sequence[str]) -> Actor:
    """A runner with its driver, for one attempt after the other."""

    def body(stage: Stage) -> None:
        stage.pick(lambda: ["take"] if _is_any_pending(stage) else [])
        load(stage, endings)

    return Actor(name, body, repeats=True, group="loader")


def load(stage: Stage, endings: Sequence[str] = ("commit",)) -> bool:
    """Do one attempt of a due run. Return whether there was a run."""
    catalog = stage.catalog
    if (taken := take_run(catalog)) is None:
        return False
    run, inputs = taken
    try:
        tx = begin(
            catalog,
            run_id=run.run_id,
            epoch=run.epoch,
            effects=[AttachTransaction(run.run_id, run.epoch), *inputs.begin(run, catalog.world)],
        )
        good, others = sort_out(stage.world, [INBOX], claim_files(catalog, tx, [INBOX]))
        for file in good:
            note_given(stage, READER, run.run_id, run.epoch, 0, f"{file.name} {file.etag}")
        ending = stage.pick(lambda: endings) if len(endings) > 1 else endings[0]
        if ending == "fail":
            end_attempt(catalog, run.run_id, run.epoch, AttemptEnd(Cause.FAILED, "it raised"))
            return True
        verify_claims(stage.world, [INBOX], good)
        closed = CloseFiles(run.run_id, run.epoch, (*others, *map(succeeded, good)))
        commit(catalog, tx, [closed, FinishRun(run.run_id, run.epoch, "", {}), *inputs.announce()])
    except Conflict as error:
        end_attempt(catalog, run.run_id, run.epoch, AttemptEnd(Cause.LOST, f"{error.code}: {error}"))
    except Fenced:
        pass
    return True


def claimer(name: str, *, renews: bool) -> Actor:
    """A workflow engine outside: claims a file, works, perhaps renews its claim, and closes it."""

    def body(stage: Stage) -> None:
        catalog = stage.catalog_of(name)
        try:
            claim = get_latest_files(catalog, INBOX, limit=1)
            for file in claim.files:
                note_given(stage, READER, claim.claim_id, 1, 0, f"{file.name} {file.etag}")
                if renews:
                    stage.turn(lambda: _renew(stage, claim.claim_id))
                close_claim(catalog, INBOX, claim.claim_id, None, FileState.SUCCESS)
        except (Conflict, Fenced):
            pass

    return Actor(name, body, group="claimer")


def _renew(stage: Stage, claim_id: RunId) -> None:
    with stage.freely():
        renew_claim(stage.catalog, claim_id)
    query = "SELECT state FROM run WHERE run_id = ?"
    ((state,),) = stage.connection.execute(query, (claim_id,)).fetchall()
    must(state == "RUNNING", f"{claim_id} was renewed, and is {state}")


def releaser(name: str) -> Actor:
    """Person that releases a file, whatever has happened to the file since the person looked."""

    def body(stage: Stage) -> None:
        stage.catalog.write(lambda db: release_quarantined(db, INBOX, ["a"]))

    return Actor(name, body)


def janitor(name: str) -> Actor:
    """Janitor that archives processed files."""
    return Actor(name, lambda stage: empty_inboxes(stage.catalog) and None, repeats=True, group="janitor")


def _is_any_pending(stage: Stage) -> bool:
    query = "SELECT 1 FROM run WHERE state = 'PENDING' AND not_before <= tidemill_now()"
    return bool(stage.connection.execute(query).fetchall())


def given_files(tables: Tables) -> None:
    """No content of a file is processed twice, and a run has recorded just what it was given."""
    epochs = {run.run_id: run.epoch for run in tables["run"] if run.state == "COMPLETED"}
    given = [row for row in tables["given"] if epochs.get(row.run_id) == row.epoch]
    contents = [row.partition_key for row in given]
    must(len(contents) == len(set(contents)), f"files were processed twice: {sorted(contents)}")
    for run_id in epochs:
        got = sorted(row.partition_key.split()[0] for row in given if row.run_id == run_id)
        recorded = sorted(row.item for row in tables["run_input"] if row.run_id == run_id)
        must(got == recorded, f"{run_id} was given {got} and recorded {recorded}")


def announced(tables: Tables) -> None:
    """Each recorded file was announced in the same commit."""
    told = sum(json.loads(row.payload)["count"] for row in tables["message"] if row.event_type == "files")
    must(told >= len(tables["inbox_file"]), f"{told} files were announced, {len(tables['inbox_file'])} are recorded")


def all_loaded(tables: Tables) -> None:
    """Each file in the folder was processed."""
    epochs = {run.run_id: run.epoch for run in tables["run"] if run.state == "COMPLETED"}
    given = {row.partition_key for row in tables["given"] if epochs.get(row.run_id) == row.epoch}
    for row in tables["landed"]:
        if row.version < 0:
            continue  # deleted, which was judged when it was done
        must(f"{row.name} {row.version}" in given, f"{row.name} was never processed as it is now ({row.version})")


def recover(stage: Stage) -> None:
    """Discover, and load until nothing is left."""
    cut_power(stage)
    for _ in range(20):
        stage.clock.at += timedelta(days=1)
        discover(stage.catalog, INBOX)
        while load(stage):
            pass
        publish_due(stage.catalog, INBOXES)
        left = stage.connection.execute("SELECT 1 FROM inbox_file WHERE status IN ('NEW', 'ERROR')").fetchall()
        if not left:
            return
        run = NewRun(RunId(stage.world.new_id("run")), ProgramId("load"))
        stage.catalog.write(lambda db, run=run: create_pending(db, [run]))


def inbox(
    landing: Sequence[str],
    *,
    earlier: Sequence[str] = (),
    discoverers: int = 1,
    loaders: int = 1,
    claimers: int = 0,
    renews: bool = False,
    releasers: int = 0,
    janitors: int = 0,
    runs: int = 2,
    fences: int = 0,
    kills: int = 0,
    endings: Sequence[str] = ("commit",),
    retries: int = 0,
    losses: int = 0,
) -> Callable[[str], Scenario]:
    """Scenario of one inbox, and a program that takes one file a run. `earlier` files are there from the beginning."""

    def set_up(stage: Stage) -> None:
        def block(db: Db) -> None:
            spec = replace(SPEC, after=After.DELETE if janitors else After.KEEP)
            declare(db, replace(RAW, spec=write_plain(spec)))
            ensure_inbox(db, RAW.dataset_id)
            put_program(
                db,
                Program(
                    ProgramId("load"),
                    Namespace("default"),
                    "shop",
                    "load",
                    ProgramKind.PYTHON,
                    "/nowhere/app.py",
                    reads=("default.raw",),
                    retries=retries,
                ),
            )
            create_pending(db, [NewRun(RunId(f"run_{n}"), ProgramId("load")) for n in range(runs)])

        stage.catalog.write(block)
        stage.files_change = bool(landing)
        for file in earlier:
            land(stage, file)
        discover(stage.catalog, INBOX)

    def make(name: str) -> Scenario:
        return Scenario(
            name,
            "each content of a file is the input of at most one committed run, and the last one of just one",
            set_up,
            lambda: [
                *(lander(f"lander{n}", file) for n, file in enumerate(landing)),
                *(discoverer(f"discoverer{n}") for n in range(discoverers)),
                *(loader(f"loader{n}", endings) for n in range(loaders)),
                *(claimer(f"engine{n}", renews=renews) for n in range(claimers)),
                *(releaser(f"person{n}") for n in range(releasers)),
                *(janitor(f"janitor{n}") for n in range(janitors)),
                *(fencer(f"reaper{n}") for n in range(fences)),
                *(killer(f"killer{n}") for n in range(kills)),
            ],
            promises.all_of(promises.transactions, promises.claims, promises.slots, given_files, announced),
            recover,
            promises.all_of(promises.at_rest, all_loaded),
            promises.never_undone,
            losses=losses,
            # The janitor opens locations as they are recorded, and this one lies on the stage.
            played=lambda: patch.object(leaving, "open_files", _open_files),
            tables=(
                "tx",
                "in_progress",
                "garbage",
                "message",
                "inbox_file",
                "run",
                "run_input",
                "slot",
                "given",
                "landed",
            ),
        )

    return make


SCENARIOS = {
    "inbox-small": inbox([], earlier=["a", "b"], discoverers=0, loaders=2, fences=1),
    "inbox-claims": inbox([], earlier=["a", "b"], discoverers=0, loaders=2, fences=1, endings=("commit", "fail")),
    "inbox-lost-replies": inbox([], earlier=["a", "b"], discoverers=1, loaders=2, losses=1),
    "inbox-found": inbox(["a", "b"], discoverers=2, runs=1),
    "inbox-rewritten": inbox(["a"], earlier=["a"], discoverers=1, loaders=1, runs=1, fences=1),
    "inbox-rewritten-2": inbox(["a", "a"], earlier=["a"], discoverers=2, loaders=2, endings=("commit", "fail")),
    "inbox-late": inbox(["b", "a"], discoverers=2, loaders=0, runs=1),
    "inbox-engines": inbox([], earlier=["a", "b"], discoverers=0, loaders=0, claimers=2, runs=1, fences=1),
    "inbox-engine-beside": inbox([], earlier=["a", "b"], discoverers=0, loaders=1, claimers=1, runs=1, fences=1),
    "inbox-renewed": inbox([], earlier=["a"], discoverers=0, loaders=0, claimers=1, renews=True, runs=1, fences=1),
    "inbox-released": inbox([], earlier=["a"], discoverers=0, loaders=1, runs=1, releasers=1),
    "inbox-leaving": inbox(["a"], earlier=["a"], discoverers=1, loaders=1, runs=1, janitors=1),
    "inbox-killed": inbox(["a"], earlier=["a", "b"], discoverers=1, loaders=2, kills=1),
}
