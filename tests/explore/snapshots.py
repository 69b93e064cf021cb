"""Scenarios of snapshots: refreshes that overtake one another, readers, roll-back and expiry, in all orders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from math import inf
from typing import Any

from tests.explore import promises
from tests.explore.consumers import cut_power, fencer
from tests.explore.promises import must
from tests.explore.search import Actor, Broken, Scenario, Tables
from tests.explore.stage import Stage
from tidemill.catalog.db import Db
from tidemill.catalog.transactions import begin, commit
from tidemill.errors import Conflict, Fenced, NotFound
from tidemill.json_specs import write_plain
from tidemill.lake.datasets import Dataset, DatasetKind, declare
from tidemill.lake.fileset.fileset import ColumnSchema, Unpin
from tidemill.lake.snapshot.refresh_order import OrderRefreshes, find_order
from tidemill.lake.snapshot.snapshot import (
    PinVersions,
    PublishVersion,
    SnapshotDataset,
    SnapshotSpec,
    VersionGone,
    find_current,
)
from tidemill.lake.snapshot.version_retention import Retention
from tidemill.lake.snapshot.versions import RollBack, expire_of, find_version, list_versions
from tidemill.names import DatasetId, Namespace, PinId, RunId
from tidemill.run.records.runs import create_external
from tidemill.run.step.attempts import AttachTransaction, AttemptEnd, Cause, FinishRun, end_attempt
from tidemill.shapes.manifest import DataFile, Manifest

SCHEMA = ColumnSchema('{"type":"struct","fields":[]}')


def users(retention: Retention) -> SnapshotDataset:
    """The snapshot, kept so."""
    spec = write_plain(SnapshotSpec(retention=retention))
    return SnapshotDataset.of(
        Dataset(DatasetId("users"), Namespace("default"), "users", DatasetKind.SNAPSHOT, "file:///lake/users", spec)
    )


def refresher(name: str, snapshot: SnapshotDataset, logical_time: int | None = None) -> Actor:
    """Program that mirrors the source once."""

    def body(stage: Stage) -> None:
        refresh(stage, RunId(f"run_{name}"), snapshot, logical_time)

    return Actor(name, body, group=f"refresher {logical_time}")


def refresh(stage: Stage, run_id: RunId, snapshot: SnapshotDataset, logical_time: int | None = None) -> None:
    """Begin, write, commit."""
    try:
        tx = begin(
            stage.catalog,
            run_id=run_id,
            epoch=1,
            writes=[snapshot.dataset_id],
            effects=[AttachTransaction(run_id, 1), OrderRefreshes([snapshot.fileset], logical_time)],
        )
        order = stage.catalog.read(lambda db: find_order(db, snapshot.dataset_id, tx))
        publish = PublishVersion(tx, snapshot, Manifest((DataFile("part.parquet", 10, 1, "e"),)), SCHEMA, order)
        commit(stage.catalog, tx, [publish, FinishRun(run_id, 1, "", {}), Unpin(run_id)])
    except Fenced:
        pass


def reader(name: str, snapshot: SnapshotDataset) -> Actor:
    """A run that pins at its begin, and looks twice: the same version, which has not gone."""
    run_id = RunId(f"run_{name}")

    def body(stage: Stage) -> None:
        try:
            pins = PinVersions(run_id, [(PinId(f"pin_{name}"), snapshot.dataset_id)])
            tx = begin(stage.catalog, run_id=run_id, epoch=1, effects=[AttachTransaction(run_id, 1), pins])
            seen = []
            for _ in range(2):
                try:
                    seen.append(stage.catalog.read(lambda db: find_current(db, snapshot, tx)).version)
                except VersionGone as error:
                    raise Broken(f"a version that {run_id} reads is gone: {error}") from None
            rows = stage.connection.execute(
                "SELECT order_time, write_pointer FROM partition_change WHERE commit_seq < ?", (tx.write_pointer,)
            ).fetchall()
            newest = max(_place(*row) for row in rows)[1]
            if set(seen) != {newest}:
                raise Broken(f"{run_id} sees versions {seen}, and {newest} was the newest at its begin")
            commit(stage.catalog, tx, [FinishRun(run_id, 1, "", {}), Unpin(run_id)])
        except Fenced:
            pass

    return Actor(name, body)


def person(name: str, snapshot: SnapshotDataset) -> Actor:
    """Person that rolls back to the oldest version."""
    run_id = RunId(f"run_{name}")

    def body(stage: Stage) -> None:
        try:
            tx = begin(
                stage.catalog,
                run_id=run_id,
                epoch=1,
                writes=[snapshot.dataset_id],
                effects=[AttachTransaction(run_id, 1), OrderRefreshes([snapshot.fileset])],
            )
            order = stage.catalog.read(lambda db: find_order(db, snapshot.dataset_id, tx))
            oldest = stage.catalog.read(lambda db: list_versions(db, snapshot))[-1].version
            found = stage.catalog.read(lambda db: find_version(db, snapshot, oldest))
            roll_back = RollBack(tx, snapshot, found, order)
            commit(stage.catalog, tx, [roll_back, FinishRun(run_id, 1, "", {}), Unpin(run_id)])
        except (Conflict, VersionGone, NotFound) as error:
            end_attempt(stage.catalog, run_id, 1, AttemptEnd(Cause.FAILED, error.code))
        except Fenced:
            pass

    return Actor(name, body)


def janitor(name: str, snapshot: SnapshotDataset) -> Actor:
    """Janitor that expires versions."""
    return Actor(name, lambda stage: expire_of(stage.catalog, snapshot, timedelta(days=7)) and None, group="janitor")


# What must hold


def one_is_current(tables: Tables) -> None:
    """The last in the order of refreshes is current; each other one was replaced by the next that is later."""
    rows = sorted(tables["partition_change"], key=lambda row: row.commit_seq)
    states = {tx.write_pointer: tx for tx in tables["tx"]}
    for row in rows:
        tx = states[row.write_pointer]
        must(tx.commit_seq == row.commit_seq, f"version {row.write_pointer} is visible, and {tx.state}")
        later = [one.commit_seq for one in rows if _place_of(one) > _place_of(row)]
        wanted = max(row.commit_seq, min(later)) if later else None
        what = f"version {row.write_pointer} is superseded at {row.superseded_seq}, not at {wanted}"
        must(row.superseded_seq == wanted, what)


def _place(order_time: int | None, version: int) -> tuple[float, int]:
    """Return the place of a version in the order of refreshes, by the columns as stored."""
    return (-inf if order_time is None else order_time), version


def _place_of(row: Any) -> tuple[float, int]:
    return _place(row.order_time, row.write_pointer)


def ordered(times: Mapping[str, int | None]) -> Callable[[Tables], None]:
    """A refresh comes after those that had committed before its begin; else runs go by their logical times."""

    def judge(tables: Tables) -> None:
        for row in tables["partition_change"]:
            what = f"version {row.write_pointer} has the order time {row.order_time}"
            own = times.get(row.run_id)
            must(row.logical_time == own, f"{what}, the logical time {row.logical_time}, and not {own}")
            others = [one for one in tables["partition_change"] if one.write_pointer != row.write_pointer]
            before = [one for one in others if one.commit_seq < row.write_pointer]
            began = [one for one in others if one.write_pointer < row.write_pointer]
            for one in before if own else began:
                must(_place_of(one) < _place_of(row), f"{what}, and comes before version {one.write_pointer}")
            if own:
                wanted = max([own, *(one.order_time for one in before if one.order_time)])
                must(row.order_time == wanted, f"{what}, and not {wanted}")

    return judge


def announced_once(tables: Tables) -> None:
    """Versions that became current were announced with their commit, once. Late versions were not announced."""
    told = sorted((row.seq, json.loads(row.payload)["version"]) for row in tables["message"])
    wanted = sorted(
        (row.commit_seq, row.write_pointer)
        for row in tables["partition_change"]
        if row.superseded_seq != row.commit_seq
    )
    must(told == wanted, f"announced were {told}, current became {wanted}")


def kept(retention: Retention) -> Callable[[Tables], None]:
    """A version that is current, among the newest, or seen by a reader has not expired."""

    def judge(tables: Tables) -> None:
        rows = tables["partition_change"]
        newest = [row.write_pointer for row in sorted(rows, key=_place_of, reverse=True)][: retention.min_versions]
        at = [pin.commit_seq for pin in tables["reader_pin"]]
        for row in rows:
            if row.expired_at is not None:
                what = f"version {row.write_pointer} is gone"
                must(row.superseded_seq is not None, f"{what}, and current")
                must(row.write_pointer not in newest, f"{what}, and among the newest {retention.min_versions}")
                seen = [pin for pin in at if row.commit_seq < pin <= row.superseded_seq]
                must(not seen, f"{what}, and a reader sees it since {seen}")

    return judge


def rolls_back_as_meant(before: Tables, after: Tables) -> None:
    """Not to a version that has gone, whose files may be deleted at any time; nor over what came meanwhile."""
    promises.never_undone(before, after)
    old = {row.write_pointer for row in before["partition_change"]}
    gone = {row.location for row in before["partition_change"] if row.expired_at is not None}
    for row in after["partition_change"]:
        if row.write_pointer in old:
            continue
        must(row.location not in gone, f"{row.location} has gone, and is current again")
        if any(row.location == one.location for one in before["partition_change"]):
            hidden = [one.write_pointer for one in before["partition_change"] if one.commit_seq > row.write_pointer]
            must(not hidden, f"the refreshes {hidden} came while somebody rolled back, and are hidden by it")


def refreshed(
    refreshers: int,
    *,
    logical_times: Sequence[int] = (),
    earlier: int = 1,
    readers: int = 0,
    people: int = 0,
    janitors: int = 0,
    fences: int = 0,
    losses: int = 0,
    retention: Retention | None = None,
) -> Callable[[str], Scenario]:
    """Scenario of one snapshot with so many versions. Refreshers beyond `logical_times` have no logical time."""
    kept_so = retention or Retention(None, 1, 1)
    snapshot = users(kept_so)
    times = {f"run_w{n}": time for n, time in enumerate(logical_times)}

    def actors() -> Sequence[Actor]:
        return [
            *(refresher(f"w{n}", snapshot, times.get(f"run_w{n}")) for n in range(refreshers)),
            *(reader(f"r{n}", snapshot) for n in range(readers)),
            *(person(f"p{n}", snapshot) for n in range(people)),
            *(janitor(f"j{n}", snapshot) for n in range(janitors)),
            *(fencer(f"f{n}") for n in range(fences)),
        ]

    def set_up(stage: Stage) -> None:
        names = [f"e{n}" for n in range(earlier)]
        names += [actor.name for actor in actors() if actor.name[0] in "wrp"]

        def block(db: Db) -> None:
            declare(db, snapshot.fileset.dataset)
            for name in names:
                create_external(db, RunId(f"run_{name}"), owner="me", host="here", pid=1, lease=timedelta(minutes=1))

        stage.catalog.write(block)
        for n in range(earlier):
            refresh(stage, RunId(f"run_e{n}"), snapshot)
        stage.clock.at += timedelta(hours=1)

    def recover(stage: Stage) -> None:
        cut_power(stage)
        stage.clock.at += timedelta(days=1)
        expire_of(stage.catalog, snapshot, timedelta(days=7))

    def at_rest(tables: Tables) -> None:
        promises.at_rest(tables)
        left = [row.write_pointer for row in tables["partition_change"] if row.expired_at is None]
        must(len(left) <= (kept_so.max_versions or kept_so.min_versions), f"versions are left: {left}")
        must(not tables["reader_pin"], "readers are left")

    def make(name: str) -> Scenario:
        return Scenario(
            name,
            "data never go back in time, a reader keeps its version, and just one version is current",
            set_up,
            actors,
            promises.all_of(promises.transactions, one_is_current, ordered(times), announced_once, kept(kept_so)),
            recover,
            at_rest,
            rolls_back_as_meant,
            losses=losses,
            tables=("tx", "in_progress", "garbage", "message", "partition_change", "run", "slot", "reader_pin"),
        )

    return make


SCENARIOS = {
    "refreshes": refreshed(2, fences=1),
    "logical-times": refreshed(3, logical_times=[20, 10]),
    "refreshes-lost-reply": refreshed(2, losses=1),
    "versions": refreshed(2, readers=1, janitors=1),
    "rolled-back": refreshed(1, people=1, janitors=1, earlier=2, retention=Retention(None, 1, 2)),
    "least-versions": refreshed(2, janitors=2, earlier=2, retention=Retention(timedelta(seconds=1), 2)),
    "versions-large": refreshed(3, readers=2, people=1, janitors=2, fences=1, earlier=2),
}
