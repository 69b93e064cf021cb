"""Promises at the end of a simulated schedule, whatever faults it had.

The simulation knows the writes of each transaction and the deliveries to each program. The catalog knows which
transactions have committed. Together they say which data must be published, consumed, announced and waiting.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.sim import drops_truth, flows, monitored, past, windows_truth
from tests.sim.bucket import location_in
from tests.sim.committed import Committed, fold, plain, publish, refuse
from tests.sim.projects import RATE
from tidemill.catalog.transactions import Snapshot
from tidemill.lake import janitor
from tidemill.lake.consumer.consumer import FROM_BEGINNING, consume_partitions
from tidemill.lake.fileset.fileset import Partition, read_partitions
from tidemill.names import WritePointer
from tidemill.shapes.manifest import Manifest
from tidemill.upkeep.audit import audit

if TYPE_CHECKING:
    from tests.sim.simulation import Simulation

MOST_REJECTED = 20
"""Runs of one schedule that cannot be started, in the short time for which there is no Java."""
CONSUMERS = ("sum_up", "second", "tidy", "once", "both", "daily")
PUBLISHED = ("lines", "totals", "others", "firsts", "mixed", "ticks", "crates", "days", "weeks")
"""Data sets that are published only by calls of `put`."""
OUTPUTS = (*PUBLISHED, "hourly")
STILL_TO_DO = {
    "open transactions": "SELECT write_pointer, run_id FROM tx WHERE state = 'in_progress'",
    "declarations": "SELECT dataset_id, write_pointer FROM in_progress",
    "slots": "SELECT limit_key, run_id FROM slot",
    "runs": "SELECT run_id, state, exit_reason FROM run WHERE ended_at IS NULL",
    "files": "SELECT name, status, error FROM inbox_file WHERE status IN ('NEW', 'ERROR', 'IN_PROGRESS')",
    "leaving": "SELECT name, error FROM inbox_file WHERE leave_at IS NOT NULL",
    "claims": "SELECT partition_key, state, error FROM consumer_work WHERE state NOT IN ('completed', 'discarded')",
    "jobs": "SELECT job_id, state, verdict FROM job WHERE state <> 'PENDING_TRIGGER'"
    # A move within an hour starts no run: its message waits for the end of the hour.
    " OR EXISTS (SELECT 1 FROM job_message AS m JOIN message AS g ON g.topic = m.topic AND g.seq = m.seq AND g.n = m.n"
    " WHERE m.job_id = job.job_id AND NOT (g.event_type = 'watermark' AND json_extract(g.payload, '$.to') / 3600000000"
    " = coalesce(json_extract(g.payload, '$.from'), json_extract(g.payload, '$.since')) / 3600000000))",
    "waiting": "SELECT wait_key, job_id FROM job_waits",
    "pins": "SELECT pin_id FROM reader_pin",
    "messages": "SELECT m.seq, m.event_key FROM message AS m LEFT JOIN subscriber AS s ON s.topic = m.topic"
    " WHERE (m.topic = 'data' OR s.topic = 'program')"
    " AND (s.seq IS NULL OR m.seq > s.seq OR (m.seq = s.seq AND m.n > s.n))",
    **windows_truth.STILL_TO_DO,
    **flows.STILL_TO_DO,
    **past.STILL_TO_DO,
}
_BUSY = " UNION ALL ".join(f"SELECT 1 WHERE EXISTS ({query})" for query in STILL_TO_DO.values())


def still_to_do(simulation: Simulation) -> dict[str, list[Any]]:
    """Return the work that is not at rest."""
    found = {what: simulation.ground.sql(query) for what, query in STILL_TO_DO.items()}
    return {what: rows for what, rows in found.items() if rows} | _unlisted(simulation)


def read_tokens(folder: Path, partitions: Iterable[Partition]) -> dict[str, list[str]]:
    """Return the content of the files of `partitions`, by partition."""
    found: dict[str, list[str]] = {}
    for partition in partitions:
        tokens: list[str] = []
        for name, _ in partition.files:
            file = folder / name
            refuse(file.exists(), "lost", f"{folder.name}/{name} is committed and gone")
            tokens += file.read_text().splitlines()
        found[plain(partition.partition_key)] = tokens
    return found


def is_busy(simulation: Simulation) -> bool:
    """Return whether anything is not at rest; one question, since it is asked at each idle moment."""
    return bool(simulation.ground.sql(_BUSY)) or bool(_unlisted(simulation))


def is_suspended(simulation: Simulation) -> bool:
    """Return whether a schedule is still suspended."""
    return bool(simulation.ground.sql("SELECT 1 FROM schedule WHERE status = 'SUSPENDED' LIMIT 1"))


def _unlisted(simulation: Simulation) -> dict[str, list[Any]]:
    # A process may list before a file is written again, and commit after another process has found the new content. The
    # new content is then skipped until the next listing.
    known = {v for (v,) in simulation.ground.sql("SELECT content_version FROM inbox_file WHERE status <> 'SKIPPED'")}
    missing = [place for place, version in simulation.newest.items() if version not in known]
    return ({"not listed": missing} if missing else {}) | monitored.differences(simulation)


def check(simulation: Simulation) -> None:
    """Raise `Broken` for the first promise that does not hold."""
    committed = Committed(simulation)
    check_markers(simulation)
    _check_published(simulation, committed)
    _check_looks(simulation, committed)
    drops_truth.check(simulation, committed)
    _check_versions(simulation, committed)
    windows_truth.check(simulation, committed)
    monitored.check(simulation)
    flows.check(simulation, committed)
    past.check(simulation, committed)
    _check_files(simulation, committed)
    _check_archive(simulation)
    _check_consumers(simulation, committed)
    _check_runs(simulation)
    _check_attempts(simulation)
    _check_messages(simulation)
    _check_follower(simulation, committed)
    _check_audit(simulation)
    _check_storage(simulation, committed)


def _check_published(simulation: Simulation, committed: Committed) -> None:
    """Check that published data are the writes of the committed transactions, in order, and nothing else."""
    everything = Snapshot(WritePointer(2**62), simulation.ground.catalog.incarnation)
    for name in PUBLISHED:
        if name not in committed.datasets:
            continue
        dataset_id: Any = committed.datasets[name]
        wanted = publish(simulation, committed, name)
        for compacted in (False, True):
            partitions = simulation.ground.catalog.read(
                lambda db, one=dataset_id, merged=compacted: read_partitions(db, one, everything, compacted=merged)
            )
            found = read_tokens(simulation.folder / name, partitions)
            refuse(_same(found, wanted), "dirty", f"{name} holds {found}, committed was {wanted}")


def _check_looks(simulation: Simulation, committed: Committed) -> None:
    """Check that a look at a whole file set sees all commits before its begin, at any time."""
    for pointer, seen in simulation.looked:
        wanted = publish(simulation, committed, "lines", before=pointer)
        refuse(_same(seen, wanted), "dirty", f"{pointer} sees {seen} of lines, committed was {wanted}")


def _same(found: Mapping[str, list[str]], wanted: Mapping[str, list[str]]) -> bool:
    return found.keys() == wanted.keys() and all(sorted(found[key]) == sorted(wanted[key]) for key in found)


def _check_versions(simulation: Simulation, committed: Committed) -> None:
    """The last refresh is current, each was until a later one committed, and was announced if ever it was current.

    Which is later, the logical times of their runs say: a run that began when another had committed has at least that
    one's. Readers were given what was current at their begin.
    """
    if "copy" not in committed.datasets:
        return
    sql = simulation.ground.sql
    dataset_id = committed.datasets["copy"]
    sequences = {
        pointer: seq for pointer, seq, *_ in committed.rows if fold(simulation.intents.get(pointer, ()), "copy")
    }
    places = _order_refreshes(simulation, committed, sequences)
    wanted = {}
    for pointer, seq in sequences.items():
        later = [other for newer, other in sequences.items() if places[newer] > places[pointer]]
        wanted[pointer] = (seq, max(seq, min(later)) if later else None)
    rows = sql(
        f"SELECT write_pointer, commit_seq, superseded_seq FROM partition_change WHERE dataset_id = '{dataset_id}'"
    )
    found = {pointer: (seq, superseded) for pointer, seq, superseded in rows}
    refuse(found == wanted, "dirty", f"the versions are {found}, not {wanted}")
    told = Counter(
        json.loads(p)["version"] for (p,) in sql("SELECT payload FROM message WHERE event_type = 'refreshed'")
    )
    current = Counter(pointer for pointer, (seq, superseded) in wanted.items() if superseded != seq)
    refuse(told == current, "lost", f"announced were {told}, current were {current}")
    for pointer, version in simulation.viewed:
        visible = max((one for one, seq in sequences.items() if seq < pointer), key=places.__getitem__, default=None)
        refuse(version == visible, "dirty", f"{pointer} was given version {version}, current was {visible}")


def _order_refreshes(
    simulation: Simulation, committed: Committed, sequences: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    """By write pointer the order time of each refresh, and its write pointer."""
    runs = {pointer: run_id for pointer, _, run_id, _ in committed.rows}
    causes = dict(simulation.ground.sql("SELECT run_id, triggered_by FROM run"))
    times: dict[int, int] = {}
    # Whatever had committed when a run began has a lower write pointer than the run's first transaction.
    for pointer in sorted(sequences, key=lambda one: committed.first_attempts[runs[one]]):
        began = committed.first_attempts[runs[pointer]]
        before = [times[other] for other, seq in sequences.items() if seq < began]
        times[pointer] = max(json.loads(causes[runs[pointer]])["logical_time"], *before, 0)
    return {pointer: (time, pointer) for pointer, time in times.items()}


def _check_files(simulation: Simulation, committed: Committed) -> None:
    """Each version of a file that was taken is in one committed run, and its content is what that run published."""
    for inbox, program, output in (("raw", "load", "lines"), ("again", "both", "mixed")):
        counted: Counter[str] = Counter()
        for pointer, _, run_id, name in committed.rows:
            if name != program:
                continue
            versions = [version for _, _, version in committed.inputs_of(run_id, inbox)]
            counted.update(versions)
            unknown = [version for version in versions if version not in simulation.landed]
            refuse(not unknown, "dirty", f"{run_id} took what never landed: {unknown}")
            given = Counter(token for version in versions for token in simulation.landed[version][2])
            texts = fold(simulation.intents.get(pointer, ()), output)
            wrote = Counter(t for write in texts.values() for t in write.tokens if not t.endswith("+b"))
            refuse(given == wrote, "dirty", f"{run_id} took {given} of {inbox} and published {wrote}")
        doubled = {simulation.landed[v][1]: n for v, n in counted.items() if n > 1}
        refuse(not doubled, "doubled", f"files in several runs: {doubled}")
        status = {
            version: (state, failures, error)
            for version, state, failures, error in simulation.ground.sql(
                "SELECT content_version, status, failures, error FROM inbox_file"
                f" WHERE dataset_id = '{committed.datasets.get(inbox, '')}'"
            )
        }
        for version, (where, name, _) in simulation.landed.items():
            if where != inbox:
                continue
            state = status.get(version, ("never seen", 0, ""))
            refuse(
                (counted[version] == 1) == (state[0] == "SUCCESS"),
                "lost",
                f"{name} is {state}, in {counted[version]} runs",
            )
            if simulation.newest[inbox, name] == version:
                wanted = "QUARANTINED" if name.startswith("poison") else "SUCCESS"
                refuse(state[0] == wanted, "lost", f"the last version of {name} is {state}")


def _check_archive(simulation: Simulation) -> None:
    """Each processed file of a bucket is in the archive, as it landed, and no file that was not processed."""
    if not simulation.shape.stored:
        return
    sql = simulation.ground.sql
    processed = {version for (version,) in sql("SELECT content_version FROM inbox_file WHERE status = 'SUCCESS'")}
    landed = {version: (name, tokens) for version, (inbox, name, tokens) in simulation.landed.items() if inbox == "raw"}
    archived = [path.read_text().splitlines() for path in (simulation.folder / "archive").rglob("*") if path.is_file()]
    good = [tokens for version, (_, tokens) in landed.items() if version in processed]
    refuse(all(one in good for one in archived), "lost", f"archived are {archived}, processed were {good}")
    for version, (name, tokens) in landed.items():
        if simulation.newest["raw", name] != version:
            continue
        lies = (simulation.folder / "landing" / name).exists()
        refuse(lies != (version in processed), "orphaned", f"{name} lies there: {lies}")
        refuse(version not in processed or tokens in archived, "lost", f"{name} is processed, and not in the archive")


def _check_consumers(simulation: Simulation, committed: Committed) -> None:
    """Each committed change is in one committed run of each consumer; the catalog says of it what the program got."""
    programs = {name for (name,) in simulation.ground.sql("SELECT name FROM program")}
    names = {(pointer, key): plain(key) for pointer, key, *_ in committed.changes}
    for consumer in CONSUMERS:
        if consumer not in programs:
            continue
        delivered: Counter[tuple[int, str]] = Counter()
        own = set()
        for pointer, _, run_id, name in committed.rows:
            if name != consumer:
                continue
            own.add(pointer)
            recorded = Counter((taken, plain(key)) for taken, key, _ in committed.inputs_of(run_id, "lines"))
            given = Counter(simulation.taken.get(pointer, ()))
            refuse(recorded == given, "dirty", f"{run_id} got {given}, the catalog says {recorded}")
            delivered.update(recorded)
        doubled = {change: n for change, n in delivered.items() if n > 1}
        refuse(not doubled, "doubled", f"{consumer} got {doubled}")
        given_up = {
            (pointer, plain(key))
            for pointer, key in simulation.ground.sql(
                "SELECT w.write_pointer, w.partition_key FROM consumer_work AS w JOIN consumer AS c"
                f" ON c.consumer_id = w.consumer_id WHERE w.state = 'discarded' AND c.name LIKE '%.{consumer}'"
            )
        }
        poison = (
            {(p, key) for (p, _), key in names.items() if key == "p"} if simulation.shape.poison_partition else set()
        )
        wrong = given_up ^ (poison if consumer == "sum_up" else set())
        refuse(consumer == "once" or not wrong, "lost", f"{consumer} has given up {given_up}")
        for pointer, key, _, superseded, _ in committed.changes:
            change = (pointer, names[pointer, key])
            skipped = pointer in own or superseded is not None or change in given_up or consumer == "once"
            refuse(delivered[change] or skipped, "lost", f"{consumer} never got {change}")
            refuse(not (delivered[change] and pointer in own), "doubled", f"{consumer} got its own {change}")
        replaced = {(pointer, names[pointer, key]): superseded for pointer, key, _, superseded, _ in committed.changes}
        for _, _, run_id, name in committed.rows:
            for taken, key, _ in committed.inputs_of(run_id, "lines") if name == consumer else ():
                superseded = replaced.get((taken, plain(key)))
                late = superseded is not None and superseded < committed.first_attempts[run_id]
                refuse(not late, "doubled", f"{run_id} got {key} of {taken}, which had been replaced at {superseded}")


def _check_runs(simulation: Simulation) -> None:
    """Check that run and transaction end together, each end is announced once, and each time that came has its run."""
    sql = simulation.ground.sql
    odd = sql(
        "SELECT r.run_id, r.state, count(t.commit_seq) FROM run AS r LEFT JOIN tx AS t ON t.run_id = r.run_id"
        " AND t.state = 'committed' GROUP BY r.run_id, r.state"
        # The run of a workflow has no transaction.
        " HAVING count(t.commit_seq) <> CASE WHEN r.state = 'COMPLETED' AND r.kind <> 'workflow' THEN 1 ELSE 0 END"
    )
    refuse(not odd, "doubled", f"runs and their commits differ: {odd}")
    ends = sql("SELECT payload FROM message WHERE topic = 'program' AND event_type = 'run_ended'")
    told = Counter((end["run_id"], end["state"]) for end in (json.loads(text) for (text,) in ends))
    ended = Counter(
        sql("SELECT run_id, state FROM run WHERE kind <> 'external' AND coalesce(exit_reason, '') <> 'no_input'")
    )
    refuse(told == ended, "doubled", f"told ends and ends of runs differ: {told - ended} {ended - told}")
    launches = [
        at
        for (at,) in sql(
            "SELECT r.created_at FROM run AS r JOIN program AS p ON p.program_id = r.program_id WHERE p.name = 'after'"
            " ORDER BY r.created_at"
        )
    ]
    most, window = RATE[0], RATE[1] / timedelta(milliseconds=1)
    close = [one for one, other in zip(launches, launches[most:], strict=False) if other - one < window]
    refuse(not close, "limit", f"more than {most} launches of `after` within {window} ms from {close}")
    fires = Counter(sql("SELECT schedule_id, fire_time FROM fire WHERE job_id NOT IN (SELECT job_id FROM job)"))
    runs = Counter()
    # An hour that a watermark passes again, after a rewind, has another run: `windows_truth` looks at these.
    of_times = "SELECT schedule_id FROM schedule JOIN program USING (program_id) WHERE program.name <> 'gather'"
    for schedule_id, text in sql(f"SELECT schedule_id, triggered_by FROM run WHERE schedule_id IN ({of_times})"):
        for trigger in json.loads(text)["triggers"]:
            for fire in trigger["fires"]:
                runs[schedule_id, fire] += 1
    refuse(all(n == 1 for n in runs.values()), "doubled", f"a time has several runs: {runs}")
    dropped = {job_id for (job_id,) in sql("SELECT job_id FROM job_history WHERE run_id IS NULL")}
    for schedule_id, fire_time in fires:
        if (schedule_id, fire_time) not in runs:
            jobs = {j for (j,) in sql(f"SELECT job_id FROM fire WHERE fire_time = {fire_time}")}
            refuse(jobs & dropped, "lost", f"the time {fire_time} has no run")
    for pointer in simulation.committed_notebooks:
        state = sql(f"SELECT state FROM tx WHERE write_pointer = {pointer}")
        refuse(state == [("committed",)], "lost", f"a notebook that went well is {state}")
    for pointer in simulation.refused_notebooks:
        state = sql(f"SELECT state FROM tx WHERE write_pointer = {pointer}")
        refuse(state != [("committed",)], "dirty", f"a notebook that was refused is {state}")


def _check_attempts(simulation: Simulation) -> None:
    """A run fails when its program has failed once more often than it is tried again; five losses are a failure."""
    sql = simulation.ground.sql
    ends: dict[str, list[str]] = {}
    for run_id, reason in sql("SELECT run_id, coalesce(reason, '') FROM tx ORDER BY write_pointer"):
        ends.setdefault(run_id, []).append(reason.partition(":")[0])
    rejected: Counter[str] = Counter()
    rows = sql(
        "SELECT r.run_id, r.schedule_id, r.state, r.failures, r.epoch, p.spec"
        " FROM run AS r JOIN program AS p ON p.program_id = r.program_id WHERE r.kind = 'program'"
    )
    for run_id, schedule_id, state, failures, epoch, spec in rows:
        retries = json.loads(spec)["retries"]
        failed = ends.get(run_id, []).count("failed")
        refused = simulation.refused[run_id]
        what = f"{run_id} is {state} after {failures} failures of {retries + 1}: {ends.get(run_id)}, {refused} refused"
        uncounted = failed + refused + simulation.unloaded[run_id]
        refuse(failures <= failed + refused + max(0, epoch - uncounted) // 5, "retries", what)
        if state in {"FAILED", "REJECTED"}:
            refuse(failures == retries + 1, "retries", what)
        if state != "KILLED":
            lost = "".join("l" if end == "lost" else "." for end in ends.get(run_id, ()) if end in {"lost", "failed"})
            refuse(failures >= failed + sum(len(one) // 5 for one in lost.split(".")), "retries", what)
        if schedule_id is not None:  # else of a backfill, whose items are counted, or of a workflow
            rejected[schedule_id] += state == "REJECTED"
    refuse(max(rejected.values(), default=0) <= MOST_REJECTED, "spins", f"runs without Java: {rejected}")


def _check_messages(simulation: Simulation) -> None:
    """Check that each listening schedule got each message once: in a run, or in a job without one.

    A job that is still open has messages that start no run yet (`STILL_TO_DO`).

    A schedule gets no message about its own program's publications if the program skips them (`deliver_own=False`).
    """
    sql = simulation.ground.sql
    skipped = {
        (schedule_id, topic, seq, n)
        for schedule_id, topic, seq, n in sql(
            "SELECT s.schedule_id, m.topic, m.seq, m.n FROM message AS m"
            " JOIN run AS r ON r.run_id = json_extract(m.payload, '$.run')"
            " JOIN program AS p ON p.program_id = r.program_id JOIN schedule AS s ON s.program_id = p.program_id"
            " WHERE m.event_type = 'partitions' AND json_extract(p.spec, '$.deliver_own') = 0"
        )
    }
    sent: dict[str, set[tuple[Any, ...]]] = {}
    for event_key, event_type, topic, seq, n in sql("SELECT event_key, event_type, topic, seq, n FROM message"):
        # A move of which each hour has a run of its own is in none of them: `windows_truth` looks at their times.
        apart = event_type == "watermark" and simulation.shape.windowed and simulation.shape.windows.mode == "each"
        if event_type != "backlog" and not apart:
            sent.setdefault(event_key, set()).add((topic, seq, n))
    heard: dict[str, Counter[tuple[Any, ...]]] = {}
    for (text,) in sql("SELECT triggered_by FROM run WHERE schedule_id IS NOT NULL"):
        cause = json.loads(text)
        for trigger in cause["triggers"]:
            heard.setdefault(cause["schedule"], Counter()).update(tuple(place) for place in trigger["messages"])
    names = {
        schedule_id: f"default.{app}.{name}"
        for schedule_id, app, name in sql("SELECT schedule_id, app, name FROM schedule")
    }
    for schedule_id, detail in sql("SELECT schedule_id, detail FROM job_history WHERE run_id IS NULL"):
        places = [tuple(place[1:]) for place in json.loads(detail)["messages"]]
        heard.setdefault(names[schedule_id], Counter()).update(places)
    for schedule_id, *place in sql(
        "SELECT job.schedule_id, m.topic, m.seq, m.n FROM job_message AS m JOIN job ON job.job_id = m.job_id"
    ):
        heard.setdefault(names[schedule_id], Counter())[tuple(place)] += 1
    for event_key, schedule_id in sql("SELECT DISTINCT event_key, schedule_id FROM trigger_key"):
        places = sent.get(event_key, set())
        counted = heard.get(names[schedule_id], Counter())
        wrong = {place: counted[place] for place in places if counted[place] != ((schedule_id, *place) not in skipped)}
        # What came while a schedule was suspended was announced at the resumption, as work. And a program that wants
        # each partition once is not started for what it does not want: `drops_truth` looks at what it got.
        if simulation.suspended or names[schedule_id].endswith(".once"):
            wrong = {place: times for place, times in wrong.items() if times > 1}
        kind = "lost" if 0 in wrong.values() else "doubled"
        refuse(not wrong, kind, f"{names[schedule_id]} heard of {event_key}: {wrong}")


def _check_follower(simulation: Simulation, committed: Committed) -> None:
    """Check that the deliveries by write pointers are the commits between the consumer's looks (R19)."""
    if not simulation.follows:
        return
    state = simulation.followed[-1].state if simulation.followed else FROM_BEGINNING
    simulation.followed.append(consume_partitions(simulation.ground.catalog, simulation._lines(), state))
    root = location_in(simulation.shape.stored, simulation.folder, "lines")
    before = 0
    for result in simulation.followed:
        until = result.state.start_version
        wanted = Counter(
            (location, plain(key))
            for _, key, seq, superseded, location in committed.changes
            if before <= seq < until and not (superseded is not None and superseded < until)
        )
        got = Counter(
            (place, str(partition.key["name"]))
            for partition in result.partitions
            for place in {path.removeprefix(f"{root}/").partition("/")[0] for path in partition.files}
        )
        refuse(not wanted - got, "lost", f"by commit sequence {before}..{until}: {wanted - got} is missing")
        refuse(not got - wanted, "doubled", f"by commit sequence {before}..{until}: {got - wanted} is too much")
        before = until


def _check_audit(simulation: Simulation) -> None:
    """Check that the product's own audit finds nothing either."""
    report = audit(simulation.ground.catalog)
    found = [f"{finding.kind} {finding.subject}: {finding.what}" for finding in report.findings]
    refuse(not found, "audit", "; ".join(found))


def _check_storage(simulation: Simulation, committed: Committed) -> None:
    """Once the janitor has been there, only what is committed lies in the folders, marked as such."""
    simulation.machine.stop()
    simulation.ground.clock.jump(timedelta(days=4))
    janitor.sweep(simulation.ground.catalog)
    rows = simulation.ground.sql(
        "SELECT dataset_id, location FROM partition_change UNION SELECT dataset_id, location FROM compaction"
    )
    merged = {location for (location,) in simulation.ground.sql("SELECT location FROM compaction")}
    places: Mapping[str, set[str]] = {dataset_id: set() for dataset_id in committed.datasets.values()}
    for dataset_id, location in rows:
        places[dataset_id].add(location)
    for name in OUTPUTS:
        folder = simulation.folder / name
        if name not in committed.datasets or not folder.exists():
            continue
        found = {path.name for path in folder.glob("tx-*")}
        wanted = places[committed.datasets[name]]
        refuse(found == wanted, "orphaned", f"{name} has {found - wanted} too much, {wanted - found} too little")
        named = {place: set() if place in merged else {"_committed", "_manifest.json"} for place in wanted}
        for location, manifest in simulation.ground.sql(
            f"SELECT location, manifest FROM partition_change WHERE dataset_id = '{committed.datasets[name]}' UNION ALL"
            f" SELECT location, manifest FROM compaction WHERE dataset_id = '{committed.datasets[name]}'"
        ):
            named[location] |= {file.name for file in Manifest.decode(manifest).files}
        for place, files in named.items():
            lying = {str(path.relative_to(folder / place)) for path in (folder / place).rglob("*") if path.is_file()}
            what = f"{name}/{place} has {lying - files} too much, {files - lying} too little"
            refuse(lying == files, "orphaned", what)


def check_markers(simulation: Simulation) -> None:
    """At any time: what is marked as committed has committed."""
    marked = {
        int(path.parent.name.split("-")[1])
        for name in OUTPUTS
        for path in (simulation.folder / name).glob("tx-*/_committed")
    }
    if marked:
        rows = simulation.ground.sql("SELECT write_pointer FROM tx WHERE state = 'committed'")
        wrong = marked - {pointer for (pointer,) in rows}
        refuse(not wrong, "dirty", f"marked as committed, and have not: {wrong}")
