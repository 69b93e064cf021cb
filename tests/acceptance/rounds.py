"""A round on the machine: its files, its bad luck without a fault of ours, and what has to hold at its end.

A round lands two files, publishes a partition from outside, and lets a schedule's time come. Without any fault of ours,
programs stumble, a driver dies, a node loses power, and a job waits too long. A user pauses a backfill, resumes it,
tries its failed items again, and cancels another one. In every second round a user kills a run and a workflow. In the
other rounds a user resumes a failed workflow.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.acceptance.machine import CANCELLED_FROM, Machine
from tidemill import Unavailable
from tidemill.catalog.transactions import Snapshot
from tidemill.lake import janitor
from tidemill.lake.datasets import find
from tidemill.lake.fileset.fileset import Fileset, read_partitions
from tidemill.lake.janitor import CLEAN_SWEEPS
from tidemill.names import DEFAULT_NAMESPACE, WritePointer
from tidemill.shapes.partition_time import from_wall, to_wall

MOST_TICKS = 240
CANCELLED_MONTHS = 2 * CANCELLED_FROM
DAY = 86_400_000_000
FIRST_DAY = to_wall(datetime(2013, 1, 1))  # noqa: DTZ001  # a wall-clock time
STILL_TO_DO = {
    "open transactions": "SELECT write_pointer, run_id FROM tx WHERE state = 'in_progress'",
    "declarations": "SELECT dataset_id, write_pointer FROM in_progress",
    "garbage": "SELECT location, reason, error FROM garbage WHERE attempts = 0 AND not_before <= {now}",
    "superseded": "SELECT c.write_pointer FROM partition_change AS c JOIN dataset AS d ON d.dataset_id = c.dataset_id"
    " WHERE d.name = 'scratch' AND c.superseded_seq IS NOT NULL AND c.expired_at IS NULL",
    "backfills": "SELECT backfill_id FROM backfill WHERE state NOT IN ('COMPLETED', 'CANCELLED')"
    " OR (state = 'COMPLETED' AND failed > 0)",
    "slots": "SELECT limit_key, run_id FROM slot",
    "runs": "SELECT run_id, state, exit_reason FROM run WHERE ended_at IS NULL",
    "files": "SELECT name, status, error FROM inbox_file WHERE status <> 'SUCCESS'",
    "files that leave": "SELECT name, error FROM inbox_file WHERE leave_at IS NOT NULL",
    "claims": "SELECT partition_key, state, error FROM consumer_work WHERE state <> 'completed'",
    "a worker's": "SELECT c.partition_key FROM consumer AS s JOIN partition_change AS c ON c.dataset_id = s.dataset_id"
    " WHERE s.name = 'default.shop.copy' AND c.delivers = 1 AND EXISTS (SELECT 1 FROM worker WHERE instances > 0)"
    " AND NOT EXISTS (SELECT 1 FROM consumer_work AS w"
    " WHERE w.consumer_id = s.consumer_id AND w.write_pointer = c.write_pointer AND w.partition_key = c.partition_key)",
    "jobs": "SELECT job_id, state, verdict FROM job",
    "waiting": "SELECT wait_key, job_id FROM job_waits",
    "job messages": "SELECT job_id, seq FROM job_message",
    "pins": "SELECT pin_id FROM reader_pin",
    "watermarks": "SELECT dataset_id FROM watermark WHERE target > coalesce(value, -1000000000000000000)",
    "messages": "SELECT m.seq, m.event_key FROM message AS m JOIN subscriber AS s ON s.topic = m.topic"
    " WHERE m.topic = 'data' AND (m.seq > s.seq OR (m.seq = s.seq AND m.n > s.n))",
}
CURRENT_SCRATCH = (
    "SELECT c.location FROM partition_change AS c JOIN dataset AS d ON d.dataset_id = c.dataset_id"
    " WHERE d.name = 'scratch' AND c.superseded_seq IS NULL"
)
HEARD_BY = {
    "default.shop.load": "file:default.raw",
    "default.shop.pick": "file:default.side",
    "default.shop.sum_up": "partition:default.lines",
    "default.shop.impatient": "partition:default.lines",
}


def play(machine: Machine, number: int) -> None:
    """Play a round, to the end of all that it causes."""
    machine.clock.sleep(timedelta(hours=1))
    machine.leave_an_upload(number)
    of_users = {"pause", "resume"} if number % 2 else {"pause", "kill", "kill a workflow"}
    machine.misfortunes = {"load", "sum_up"} | of_users
    machine.land(f"f{number}", f"{number}\n" * 3)
    machine.land(f"g{number}", f"{number}\n", "side")
    (machine.folder / "feed" / f"h{number}").write_text(f"{number}\n")
    machine.hide_what_is_done()
    stood = False
    for _ in range(MOST_TICKS):
        machine.tick()
        machine.move_the_landing(f"f{number}")
        machine.resume_workflows()
        machine.tend_backfills()
        stood |= machine.is_any_node_standing
        if not machine.is_deployed(number):
            machine.deploy(number)
        elif not machine.is_published(f"n{number}"):
            machine.note(f"n{number}", f"{number}\n" * 5)
        elif not machine.is_backfilled(number):
            machine.backfill(number)
        elif not machine.is_fetched(f"h{number}"):
            machine.fetch()
            continue
        if is_busy(machine) or machine.is_any_node_standing or not machine.is_landing_whole:
            continue
        if len(machine.sql(f"SELECT 1 FROM inbox_file WHERE name IN ('f{number}', 'g{number}')")) == 2:
            if stood:  # a zombie may have written after the janitor looked for the first time
                machine.clock.sleep(timedelta(hours=1))
                janitor.sweep(machine.catalog)
            return
    found = {what: rows for what, query in still_to_do(machine).items() if (rows := machine.sql(query))}
    pytest.fail(f"round {number} did not end: {found}\n{machine.last_faults()}")


def play_plainly(machine: Machine, number: int) -> None:
    """A short round without bad luck: a file lands and goes through, and a schedule's time comes; no worker works."""
    machine.sql("UPDATE worker SET instances = 0 RETURNING instances")
    machine.clock.sleep(timedelta(hours=1))
    for program in ("load", "sum_up"):
        (machine.folder / "stumbled" / f"{program}-f{number}").touch()
    machine.land(f"f{number}", f"{number}\n" * 3)
    for _ in range(MOST_TICKS):
        machine.tick()
        if machine.sql(f"SELECT 1 FROM inbox_file WHERE name = 'f{number}'") and not is_busy(machine):
            return
    found = {what: rows for what, query in still_to_do(machine).items() if (rows := machine.sql(query))}
    pytest.fail(f"round {number} did not end: {found}\n{machine.last_faults()}")


def is_busy(machine: Machine) -> bool:
    """Return whether anything is not at rest; one question, since it is asked after each tick."""
    return (
        machine.sql("SELECT 1 WHERE " + " OR ".join(f"EXISTS ({query})" for query in still_to_do(machine).values()))
        != []
    )


def still_to_do(machine: Machine) -> dict[str, str]:
    """The questions for what is not at rest."""
    now = int(machine.clock.now().timestamp() * 1000)
    return {what: query.format(now=now) for what, query in STILL_TO_DO.items()}


def check(machine: Machine, rounds: int, kinds: str = "fn") -> None:
    """Everything that landed is published once and consumed once; every message and every time was heard once.

    `kinds` are those of what came in each round: files, notes.
    """
    told = machine.last_faults()
    names = {f"{kind}{number}" for kind in kinds for number in range(1, rounds + 1)}
    files = {name for name in names if name.startswith("f")}

    assert published(machine, "lines") == {name: [machine.landed[name]] for name in names}, told
    assert published(machine, "totals") == {name: [f"{name} has {len(machine.landed[name])}\n"] for name in names}, told
    if "n" in kinds:
        # Of what was replaced at once nothing is left.
        scratch = machine.folder / "scratch"
        left = [(path.name,) for path in scratch.glob("tx-*")]
        assert left == machine.sql(CURRENT_SCRATCH), told
    assert consumed(machine, "raw") == dict.fromkeys(files, 1), told
    assert consumed(machine, "side") == dict.fromkeys(machine.landed.keys() - names, 1), told
    assert consumed(machine, "feed") == (
        dict.fromkeys((f"h{n}" for n in range(1, rounds + 1)), 1) if "n" in kinds else {}
    ), told
    assert left_behind(machine) == ({f"h{n}": f"{n}\n" for n in range(1, rounds + 1)} if "n" in kinds else {}), told
    assert consumed(machine, "lines", "sum_up") == dict.fromkeys(names, 1), told
    if "n" in kinds:
        assert published(machine, "copies") == {name: ["a copy\n"] for name in names}, told
        assert consumed(machine, "lines", "copy") == dict.fromkeys(names, 1), told
    assert announced(machine, "lines") == announced(machine, "totals") == dict.fromkeys(names, 1), told
    assert sum(payload["count"] for payload in payloads(machine, "file:default.raw")) == len(files), told
    assert announced_ends(machine) == ended_runs(machine), told
    for schedule, event_key in HEARD_BY.items():
        assert heard(machine, schedule, event_key) == dict.fromkeys(sent(machine, event_key), 1), told
    assert fires(machine) == strikes(machine), told
    assert versions(machine, "times") == announced_versions(machine, "times"), told
    assert len(fires(machine)) >= rounds, told
    assert watermark(machine) == rounds, told
    if "n" in kinds:
        months = remembered(machine)
        assert {month: n for month, n in months.items() if month < CANCELLED_MONTHS} == dict.fromkeys(
            range(2, 2 + 2 * rounds), 1
        ), told
        assert set(months.values()) == {1}, told
    breaks = [one["broken_since"] for one in payloads(machine, "missing:default.side")]
    assert breaks, told
    assert len(set(breaks)) == len(breaks), told
    assert published(machine, "days") == counted(machine, names), told


def left_behind(machine: Machine) -> dict[str, str]:
    """Return the files of the archive. The folders that files leave must be empty."""
    for name in ("side", "feed"):
        assert list((machine.folder / name).iterdir()) == [], machine.last_faults()
    return {path.name: path.read_text() for path in (machine.folder / "archive").iterdir()}


def watermark(machine: Machine) -> int:
    """Return how many days of lines are complete.

    Each move was announced once, and goes on from the previous move. Old moves may be deleted.
    """
    moves = [(one["from"], one["to"]) for one in payloads(machine, "watermark:default.lines")]
    rows = machine.sql("SELECT previous, value FROM watermark_move ORDER BY commit_seq")
    moves.sort(key=lambda move: move[1])
    assert [to for _, to in moves[:-1]] == [before for before, _ in moves[1:]]
    assert rows
    assert moves[-len(rows) :] == rows
    return (int(str(rows[-1][1])) - FIRST_DAY) // DAY


def counted(machine: Machine, names: set[str]) -> dict[str, list[str]]:
    """Count the lines in each window of two days that the watermark has closed."""
    closed_to = FIRST_DAY + watermark(machine) * DAY
    found: Counter[int] = Counter()
    for name in names:
        begins = FIRST_DAY + (int(name[1:]) - 1) * DAY
        found[begins // (2 * DAY) * 2 * DAY] += machine.landed[name].count("\n")
    closed = {start: number for start, number in found.items() if start + 2 * DAY <= closed_to}
    return {f"{from_wall(start):%Y-%m-%d}": [f"{number} lines\n"] for start, number in closed.items()}


def published(machine: Machine, name: str) -> dict[str, list[str]]:
    """The content of each partition, one text a file; and the folder holds what is committed and nothing else."""
    fileset = find_fileset(machine, name)
    everything = Snapshot(WritePointer(2**62), machine.catalog.incarnation)
    partitions = machine.catalog.read(lambda db: read_partitions(db, fileset.dataset_id, everything))
    folder = machine.folder / name
    committed = {f"{change.location}/_committed" for partition in partitions for change in partition.changes}
    found = {str(path.relative_to(folder)) for path in folder.glob("tx-*/_committed")}
    assert found == committed, machine.last_faults()
    assert len(list(folder.glob("tx-*"))) == len(committed), machine.last_faults()
    return {
        str(fileset.keys.decode(partition.partition_key)[0]): [
            (folder / path).read_text() for path, _ in partition.files
        ]
        for partition in partitions
    }


def versions(machine: Machine, name: str) -> list[object]:
    """The versions of a snapshot by number: those kept are there whole, nothing else is, and the newest is current.

    At most two are kept, and those that a transaction saw which was open when the janitor came last.
    """
    rows = machine.sql(
        "SELECT c.write_pointer, c.location, c.superseded_seq, c.expired_at FROM partition_change AS c"
        f" JOIN dataset AS d ON d.dataset_id = c.dataset_id WHERE d.name = '{name}'"
        " ORDER BY coalesce(c.order_time, 0), c.write_pointer"
    )
    there = {path.parent.name for path in (machine.folder / name).glob("tx-*/_committed")}
    assert there >= {str(location) for _, location, _, expired in rows if expired is None}, machine.last_faults()
    assert {path.name for path in (machine.folder / name).glob("tx-*")} == there, machine.last_faults()
    assert there <= {str(location) for _, location, _, _ in rows}, machine.last_faults()
    assert [superseded for _, _, superseded, _ in rows].index(None) == len(rows) - 1, machine.last_faults()
    return sorted(version for version, _, _, _ in rows)


def announced_versions(machine: Machine, name: str) -> list[object]:
    """Return the versions of a snapshot that messages announced, oldest first."""
    return sorted(payload["version"] for payload in payloads(machine, f"snapshot:default.{name}"))


def find_fileset(machine: Machine, name: str) -> Fileset:
    """The file set of that name."""
    return Fileset.of(machine.catalog.read(lambda db: find(db, DEFAULT_NAMESPACE, name)))


def consumed(machine: Machine, name: str, program: str = "") -> Counter[str]:
    """Count the committed runs (of a program) that have each input.

    A worker's commits are of one run, and the nodes of a workflow read what the workflow completes.
    """
    rows = machine.sql(
        "SELECT i.item FROM run_input AS i JOIN run AS r ON r.run_id = i.run_id"
        " JOIN dataset AS d ON d.dataset_id = i.dataset_id LEFT JOIN program AS p ON p.program_id = r.program_id"
        f" WHERE d.name = '{name}' AND (r.state = 'COMPLETED' OR p.kind = 'worker') AND '{program}' IN ('', p.name)"
        " AND r.run_id NOT IN (SELECT run_id FROM workflow_node)"
    )
    return Counter(str(item) for (item,) in rows)


def payloads(machine: Machine, event_key: str) -> list[dict[str, Any]]:
    """The messages of one key."""
    rows = machine.sql(f"SELECT payload FROM message WHERE event_key = '{event_key}'")
    return [json.loads(str(text)) for (text,) in rows]


def announced(machine: Machine, name: str) -> Counter[str]:
    """Count the announcements of each partition."""
    return Counter(
        partition["key"].removeprefix("source=")
        for payload in payloads(machine, f"partition:default.{name}")
        for partition in payload["partitions"]
    )


def announced_ends(machine: Machine) -> Counter[tuple[str, str]]:
    """The ends of runs, as messages say."""
    rows = machine.sql("SELECT payload FROM message WHERE topic = 'program' AND event_type = 'run_ended'")
    ends = [json.loads(str(text)) for (text,) in rows]
    return Counter((end["run_id"], end["state"]) for end in ends)


def ended_runs(machine: Machine) -> Counter[tuple[str, str]]:
    """The ends of runs of programs that were called, as their records say."""
    rows = machine.sql(
        "SELECT run_id, state FROM run WHERE kind <> 'external' AND coalesce(exit_reason, '') <> 'no_input'"
    )
    return Counter((str(run_id), str(state)) for run_id, state in rows)


def sent(machine: Machine, event_key: str) -> set[tuple[object, ...]]:
    """The places of the messages of one key."""
    return set(machine.sql(f"SELECT topic, seq, n FROM message WHERE event_key = '{event_key}'"))


def heard(machine: Machine, schedule: str, event_key: str) -> Counter[tuple[object, ...]]:
    """Count each of these messages in the schedule's runs, and in its jobs that ended without a run."""
    runs = machine.sql("SELECT triggered_by FROM run WHERE schedule_id IS NOT NULL")
    causes = [json.loads(str(text)) for (text,) in runs]
    places = [
        tuple(place)
        for cause in causes
        if cause["schedule"] == schedule
        for trigger in cause["triggers"]
        for place in trigger["messages"]
    ]
    ended = machine.sql(
        "SELECT h.detail FROM job_history AS h JOIN schedule AS s ON s.schedule_id = h.schedule_id"
        f" WHERE h.run_id IS NULL AND s.name = '{schedule.rpartition('.')[2]}'"
    )
    places += [tuple(place[1:]) for (text,) in ended for place in json.loads(str(text))["messages"]]
    wanted = sent(machine, event_key)
    return Counter(place for place in places if place in wanted)


def fires(machine: Machine) -> list[object]:
    """The times that came."""
    return sorted(at for (at,) in machine.sql("SELECT fire_time FROM fire"))


def strikes(machine: Machine) -> list[object]:
    """The times for which a run of `strike` was completed."""
    rows = machine.sql(
        "SELECT r.triggered_by FROM run AS r JOIN program AS p ON p.program_id = r.program_id"
        " WHERE p.name = 'strike' AND r.state = 'COMPLETED'"
    )
    return sorted(json.loads(str(text))["logical_time"] for (text,) in rows)


def remembered(machine: Machine) -> Counter[int]:
    """Count the completed runs of each month since 1970, of which backfills made two at a round, and cancelled ones."""
    rows = machine.sql(
        "SELECT r.triggered_by FROM run AS r JOIN program AS p ON p.program_id = r.program_id"
        " WHERE p.name = 'remember' AND r.state = 'COMPLETED'"
    )
    times = [datetime.fromtimestamp(json.loads(str(text))["logical_time"] / 1000, tz=UTC) for (text,) in rows]
    return Counter(12 * (at.year - 1970) + at.month - 1 for at in times)


def forget_garbage(machine: Machine) -> None:
    """Let the days pass in which the janitor looks for zombies."""
    for _ in range(2 * CLEAN_SWEEPS):
        machine.clock.sleep(timedelta(days=4))
        swept = False
        while not swept:
            # PostgreSQL ends a session of the machine that rests for 100 ms, as on a busy computer.
            with suppress(Unavailable):
                janitor.sweep(machine.catalog)
                swept = True
