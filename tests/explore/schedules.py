"""Scenarios of the scheduler (R4): message → job → launch → run → commit, and timers, in all orders."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from tests.explore import promises
from tests.explore.consumers import LINES, SOUND, cut_power, fencer, killer, publish
from tests.explore.promises import must
from tests.explore.search import TABLES, Actor, Broken, Scenario, Tables
from tests.explore.stage import Stage
from tests.taking import take_runs
from tidemill.catalog.db import Db
from tidemill.catalog.messages import Publish, Topic
from tidemill.lake.backlog import publish_due
from tidemill.lake.consumer.backlog import CONSUMERS
from tidemill.lake.consumer.managed import ensure_consumer
from tidemill.lake.datasets import declare
from tidemill.names import EventKey, Namespace, ProgramId, RunId, ScheduleId
from tidemill.run.processes.assignments import Assignment, DriverSetup
from tidemill.run.processes.driver import DriverProcess
from tidemill.run.records.bundles import AppCode
from tidemill.run.records.programs import Program, ProgramKind, put_program
from tidemill.run.records.runs import NewRun, create_pending
from tidemill.schedule.changes import Add, Resume, Suspend, Update, announce_work, change_schedules
from tidemill.schedule.checker import NEXT_CHECK, check_due
from tidemill.schedule.constraints import Concurrency, Constraint, GroupConcurrency, Rate
from tidemill.schedule.data_triggers import DataTrigger, NewPartitions, WatermarkPassed
from tidemill.schedule.loop import Scheduler
from tidemill.schedule.program_triggers import RunEnded
from tidemill.schedule.specs import Misfire, ScheduleSpec, SuspendMode
from tidemill.schedule.subscriber import BACKLOG, has_messages, subscribe
from tidemill.schedule.time_triggers import Cron, Every
from tidemill.schedule.triggers import AllOf, AnyOf, Trigger
from tidemill.schedule.waits import Delay
from tidemill.testing.clock import NOON

APP_FILE = Path(__file__).with_name("app.py")
HOUR = timedelta(hours=1)

PARTITIONS = NewPartitions("lines")
TIMER = Every("1h")
CRON = Cron("0 * * * *")
EACH = WatermarkPassed("lines", every="1h", mode="each")
EITHER = AnyOf(WatermarkPassed("lines", every="1h"), WatermarkPassed("rows", every="1h"))
"""The trigger of a window program over two tables."""


# Actors


def arrival(name: str, *hours: int) -> Actor:
    """Commit of another process, in one turn. Without partitions it is two messages that announce some."""

    def body(stage: Stage) -> None:
        def do() -> None:
            with stage.freely():
                if hours:
                    publish(stage, name, *((hour, "append") for hour in hours))
                else:
                    stage.catalog.apply([_MESSAGE, _MESSAGE])

        stage.turn(do)

    return Actor(name, body)


_MESSAGE = Publish(Topic.DATA, "partitions", EventKey("partition:default.lines"), {"count": 1})


def tide(name: str, table: str, *hours: int) -> Actor:
    """A watermark that passes these hours since 1970, a move a turn."""

    def body(stage: Stage) -> None:
        for before, after in pairwise(hours):
            stage.turn(partial(_pass, stage, table, before, after))

    return Actor(name, body)


def _pass(stage: Stage, table: str, before: int, after: int) -> None:
    move = {"from": before * 3_600_000_000, "to": after * 3_600_000_000}
    with stage.freely():
        stage.catalog.apply([Publish(Topic.DATA, "watermark", EventKey(f"watermark:default.{table}"), move)])


def scheduler(name: str, batch: int | None = None, most_launches: int = 0) -> Actor:
    """Scheduler process, which remembers nothing between its steps. `batch` messages, or jobs, at a time."""

    def body(stage: Stage) -> None:
        if batch is None:
            _scheduler_of(stage, most_launches).step()
            return
        messages, jobs = stage.catalog.read(lambda db: (has_messages(db), _is_job_due(db)))
        if messages:
            subscribe(stage.catalog, stage.world, batch)
        elif jobs:
            check_due(stage.catalog, stage.world, batch)

    return Actor(name, body, repeats=True, group="scheduler")


def _scheduler_of(stage: Stage, most_launches: int) -> Scheduler:
    return Scheduler(stage.catalog, stage.world, lambda _launch: None, most_launches=most_launches)


def driver(name: str) -> Actor:
    """A runner that takes a run, and its driver, which works on that attempt."""

    def body(stage: Stage) -> None:
        stage.pick(lambda: ["take"] if _is_any_pending(stage) else [])
        drive(stage)

    return Actor(name, body, repeats=True, group="driver")


def drive(stage: Stage) -> bool:
    """Do one attempt. Return whether there was a run to take."""
    runs = stage.catalog.write(
        lambda db: take_runs(db, most=1, owner="runner", host="here", lease=timedelta(seconds=60))
    )
    for run in runs:
        start = DriverSetup("sqlite:///nowhere", AppCode(str(APP_FILE), ""), "/nowhere", "/nowhere", False, False, {})
        stage.pid = run.epoch
        process = DriverProcess(stage.world, stage.catalog, start, "driver")
        process.work(Assignment(run.run_id, run.epoch, "/nowhere"))
    return bool(runs)


def clock(name: str, step: timedelta) -> Actor:
    """Time passes, at any moment."""

    def body(stage: Stage) -> None:
        def move() -> None:
            stage.clock.at += step

        stage.turn(move)

    return Actor(name, body)


def hold(schedule_id: ScheduleId) -> Suspend:
    """Suspend and keep the jobs."""
    return Suspend(schedule_id, SuspendMode.HOLD)


def backlog(schedule_id: ScheduleId) -> Suspend:
    """Suspend and keep what comes meanwhile."""
    return Suspend(schedule_id, SuspendMode.BACKLOG)


def changer(name: str, *changes: Callable[[ScheduleId], object]) -> Actor:
    """Person that changes the last schedule, one change a turn."""

    def body(stage: Stage) -> None:
        for change in changes:

            def block(db: Db, change=change) -> None:
                announce_work(db, change_schedules(db, stage.world, db.tick(), [change(_schedules(stage)[-1])]))

            stage.catalog.write(block)

    return Actor(name, body)


def keeper(name: str) -> Actor:
    """Keeper that announces due work."""

    def body(stage: Stage) -> None:
        stage.pick(lambda: ["announce"] if _is_work_due(stage) else [])
        publish_due(stage.catalog, CONSUMERS)

    return Actor(name, body, repeats=True)


def _schedules(stage: Stage) -> list[ScheduleId]:
    return [ScheduleId(row[0]) for row in stage.connection.execute("SELECT schedule_id FROM schedule ORDER BY name")]


def _is_job_due(db: Db) -> bool:
    look = db.look(NEXT_CHECK)
    at = look.time(0)
    return at is not None and at <= look.now


def _is_any_pending(stage: Stage) -> bool:
    return bool(
        stage.connection.execute(
            "SELECT 1 FROM run WHERE state = 'PENDING' AND not_before <= tidemill_now() LIMIT 1"
        ).fetchall()
    )


def _is_work_due(stage: Stage) -> bool:
    return bool(
        stage.connection.execute(
            "SELECT 1 FROM consumer_work WHERE state = 'new' AND not_before BETWEEN 1 AND tidemill_now() LIMIT 1"
        ).fetchall()
    )


# What they act on


def shop(
    *specs: ScheduleSpec,
    programs: Sequence[str] = ("total",),
    runs: int = 0,
    of: Mapping[str, Sequence[ScheduleSpec]] = MappingProxyType({}),
) -> Callable[[Stage], None]:
    """The programs, their input, and a schedule of each spec for each; so many `runs` wait that a person wants.

    The programs in `of` have schedules of their own instead.
    """

    def set_up(stage: Stage) -> None:
        def block(db: Db) -> None:
            seq = db.tick()
            declare(db, LINES.dataset)
            adds = []
            for name in programs:
                program_id = put_program(
                    db,
                    Program(
                        ProgramId(name),
                        Namespace("default"),
                        "shop",
                        name,
                        ProgramKind.PYTHON,
                        str(APP_FILE),
                        reads=("default.lines",),
                        backoff=timedelta(seconds=10),
                    ),
                )
                ensure_consumer(db, LINES.dataset_id, f"default.shop.{name}")
                adds += [
                    Add(Namespace("default"), "shop", f"{name}{number}", program_id, spec)
                    for number, spec in enumerate(of.get(name, specs))
                ]
            announce_work(db, change_schedules(db, stage.world, seq, adds))
            create_pending(db, [NewRun(RunId(f"run_{number}"), ProgramId(programs[0])) for number in range(runs)])

        # Deployments lock what they make in an order of their own: as two transactions.
        stage.catalog.write(block)

    return set_up


# What must hold


def heard(tables: Tables) -> None:
    """Each message that a schedule has to hear is in just one of its jobs, or in the run that came of one.

    The others that came after its creation are counted.
    """
    passed = {(row.seq, row.n) for row in tables["subscriber"] if row.topic == "data"}
    position = max(passed, default=(0, 0))
    places = _places(tables)
    counted = {(row.schedule_id, row.topic): row.messages for row in tables["passed_while_suspended"]}
    for schedule in tables["schedule"]:
        if '"new_partitions"' not in schedule.spec:
            continue
        unheard = 0
        for message in tables["message"]:
            if message.topic != "data":
                continue
            times = places[schedule.schedule_id, "data", message.seq, message.n]
            what = f"message {message.seq}, {message.event_type}, was heard {times} times by {schedule.schedule_id}"
            payload = json.loads(message.payload)
            named, heard_by = payload.get("consumer"), payload.get("schedules")
            if heard_by is not None and schedule.schedule_id not in heard_by:
                must(times == 0, f"{what}, and is for {heard_by}")
                continue
            if named not in {None, f"default.shop.{schedule.program_id}"}:
                must(times == 0, f"{what}, and is for {named}")
            elif (message.seq, message.n) > position:
                must(times == 0, f"{what}, and nobody has read so far")
            elif message.seq >= schedule.since_seq and schedule.suspended_mode != "drop":
                must(times == 1, what)
            else:
                must(times <= 1, what)
                told = message.event_type != BACKLOG and message.seq > schedule.created_seq
                unheard += told and times == 0
        recorded = counted.get((schedule.schedule_id, "data"), 0)
        must(recorded == unheard, f"{schedule.schedule_id} passed {unheard} messages, and {recorded} are recorded")


def ends_heard(tables: Tables) -> None:
    """Each run of `total` that has completed is in just one of the jobs that follow it, or in the run of such a job."""
    position = max(((row.seq, row.n) for row in tables["subscriber"] if row.topic == "program"), default=(0, -1))
    places = _places(tables)
    for schedule in tables["schedule"]:
        if '"run_ended"' not in schedule.spec:
            continue
        for message in tables["message"]:
            if message.topic == "program":
                times = places[schedule.schedule_id, "program", message.seq, message.n]
                counts = message.event_key == "program:default.shop.total:COMPLETED"
                read = (message.seq, message.n) <= position
                what = f"{message.event_key} of {message.seq}"
                must(times == (counts and read), f"{schedule.schedule_id} heard {what} {times} times")


def moves_heard(tables: Tables) -> None:
    """Each move of either watermark that was read is in just one job, or in the run of such a job."""
    position = max(((row.seq, row.n) for row in tables["subscriber"] if row.topic == "data"), default=(0, -1))
    places = _places(tables)
    for schedule in tables["schedule"]:
        for message in tables["message"]:
            if message.event_type == "watermark":
                times = places[schedule.schedule_id, "data", message.seq, message.n]
                read = (message.seq, message.n) <= position
                must(times == read, f"{schedule.schedule_id} heard {message.event_key} of {message.seq} {times} times")


def all_ends_read(tables: Tables) -> None:
    """No end of a run is unread."""
    position = max(((row.seq, row.n) for row in tables["subscriber"] if row.topic == "program"), default=(0, -1))
    for message in tables["message"]:
        read = message.topic != "program" or (message.seq, message.n) <= position
        must(read, f"message {message.seq}, {message.n} on topic program is not read, and all rest at {position}")


def spaced(most: int, window: timedelta) -> Callable[[Tables], None]:
    """No window has more launches."""

    def judge(tables: Tables) -> None:
        times = sorted(run.created_at for run in tables["run"] if run.job_id is not None)
        for one, other in zip(times, times[most:], strict=False):
            must(other - one >= window / timedelta(milliseconds=1), f"{most + 1} launches from {one} to {other}")

    return judge


def delayed(tables: Tables) -> None:
    """No run begins earlier than an hour after its job, which had all that it needed from the begin."""
    begun = {ended.job_id: ended.created_at for ended in tables["job_history"]}
    for run in tables["run"]:
        if run.job_id in begun:
            must(run.created_at >= begun[run.job_id] + 3_600_000, f"{run.run_id} did not wait for an hour")


def _places(tables: Tables) -> Counter[tuple[str, str, int, int]]:
    """In how many jobs and runs of a schedule each message is."""
    jobs = {job.job_id: job.schedule_id for job in tables["job"]}
    places: Counter[tuple[str, str, int, int]] = Counter()
    for ref in tables["job_message"]:
        must(ref.job_id in jobs, f"a message belongs to {ref.job_id}, which is gone")
        places[jobs[ref.job_id], ref.topic, ref.seq, ref.n] += 1
    for ended in tables["job_history"]:
        if ended.run_id is None:
            for _, topic, seq, n in json.loads(ended.detail)["messages"]:
                places[ended.schedule_id, topic, seq, n] += 1
    for run in tables["run"]:
        for leaf in json.loads(run.triggered_by).get("triggers", ()):
            for topic, seq, n in leaf["messages"]:
                places[run.schedule_id, topic, seq, n] += 1
    return places


def all_read(tables: Tables) -> None:
    """No message is unread."""
    read = [(row.seq, row.n) for row in tables["subscriber"] if row.topic == "data"]
    position = max(read, default=(0, -1))
    for message in tables["message"]:
        passed = message.topic != "data" or (message.seq, message.n) <= position
        must(passed, f"message {message.seq}, {message.n}, is not read, and all rest at {position}")


def enough(tables: Tables) -> None:
    """The messages of a job that waits for more do not satisfy its trigger, and announce no backlog."""
    wanted = {row.schedule_id: json.loads(row.spec)["trigger"] for row in tables["schedule"]}
    held = {row.schedule_id for row in tables["schedule"] if row.suspended_mode}
    told = {(row.seq, row.n): row for row in tables["message"] if row.topic == "data"}
    for job in tables["job"]:
        trigger = wanted[job.schedule_id]
        if job.next_check_at is not None or trigger["type"] != "new_partitions" or job.schedule_id in held:
            continue
        heard_of = [told[row.seq, row.n] for row in tables["job_message"] if row.job_id == job.job_id]
        count = sum(json.loads(message.payload).get("count", 0) for message in heard_of)
        enough_at = trigger.get("n", 1)
        must(count < enough_at, f"{job.job_id} has {count} partitions, and waits for {enough_at}")
        left = any(message.event_type == "backlog" for message in heard_of)
        must(not left, f"{job.job_id} was told of work left, and waits for more")


def launched(tables: Tables) -> None:
    """A job becomes one run or none, and a run of a schedule has what caused it."""
    history = {ended.job_id: ended for ended in tables["job_history"]}
    opened = Counter(job.schedule_id for job in tables["job"])
    for schedule_id, jobs in opened.items():
        must(jobs == 1, f"{schedule_id} has {jobs} open jobs")
    schedules = {schedule.schedule_id: schedule for schedule in tables["schedule"]}
    for job in tables["job"]:
        must(job.job_id not in history, f"{job.job_id} is open and has ended")
        schedule = schedules[job.schedule_id]
        must(job.generation == schedule.generation, f"{job.job_id} is of an old generation")
        must(schedule.suspended_mode != "drop", f"{job.job_id} is open, and its schedule {schedule.status}")
        for ref in tables["job_message"]:
            late = ref.job_id != job.job_id or ref.seq >= schedule.since_seq
            must(late, f"{job.job_id} was fed with {ref.seq}, from before {schedule.since_seq}")
    runs = {run.run_id: run for run in tables["run"]}
    for run in runs.values():
        if run.job_id is not None:
            must(history.get(run.job_id) is not None, f"{run.run_id} exists and its job has not ended")
            must(history[run.job_id].run_id == run.run_id, f"{run.job_id} has two runs")
            causes = json.loads(run.triggered_by)["triggers"]
            told = any(leaf["messages"] or leaf["fires"] for leaf in causes)
            must(told, f"{run.run_id} was caused by nothing")
    for ended in history.values():
        if ended.run_id is not None:
            must(ended.run_id in runs, f"{ended.job_id} has no run, and says it has")
        must(
            (ended.run_id is None) == (ended.outcome not in {"launched", "forced"}), f"{ended.job_id}: {ended.outcome}"
        )
    for fire in tables["fire"]:
        must(
            fire.job_id in history or any(job.job_id == fire.job_id for job in tables["job"]),
            f"what was due at {fire.fire_time} is in no job",
        )


def never_forgotten(before: Tables, after: Tables) -> None:
    """Each message of a schedule stays in its job, or in the record of the job's end."""
    places = _places(after)
    for place, times in _places(before).items():
        must(places[place] >= times, f"a job had heard {place}, and no record says so")


def in_turn(before: Tables, after: Tables) -> None:
    """A job that waits for a slot gets the slot before jobs with a later turn. A job that is held has no turn."""
    priorities = {row.schedule_id: json.loads(row.spec)["priority"] for row in after["schedule"]}
    known = {run.run_id for run in before["run"]}
    starting = {row.schedule_id for row in after["schedule"] if row.status == "SCHEDULED"}
    left = {job.job_id: job for job in after["job"] if job.schedule_id in starting}
    waiting = [left[row.job_id] for row in before["job_waits"] if row.job_id in left]
    for run in after["run"]:
        if run.run_id not in known and run.schedule_id is not None:
            for job in waiting:
                later = priorities[job.schedule_id] <= priorities[run.schedule_id]
                must(later, f"{run.run_id} has the slot for which {job.job_id} waits, with the better turn")


_PATIENCE = 86_400_000
"""A waiting job that is never woken is checked when the time-out of its schedule is over."""


def no_job_waits_for_a_free_slot(limit: int) -> Callable[[Tables], None]:
    """While a slot is free, one of the jobs that wait for the slot is due for a check."""

    def judge(tables: Tables) -> None:
        held = Counter(f"slots:{row.limit_key}" for row in tables["slot"])
        # A job that is held is due once more, and then leaves the queue.
        due = {
            job.job_id: job.next_check_at is not None
            and (job.satisfied_at is None or job.next_check_at < job.satisfied_at + _PATIENCE)
            for job in tables["job"]
        }
        waiting: dict[str, list[str]] = {}
        for row in tables["job_waits"]:
            waiting.setdefault(row.wait_key, []).append(row.job_id)
        for key, jobs in waiting.items():
            must(held[key] >= limit or any(due[job] for job in jobs), f"{jobs} wait for {key}, of which one is free")

    return judge


def at_most(limit: int, limits: str) -> Callable[[Tables], None]:
    """Never more runs than the limit, of the limits that begin so; a run has its slots until it ends."""

    def judge(tables: Tables) -> None:
        for key, held in Counter(row.limit_key for row in tables["slot"]).items():
            must(held <= limit or not key.startswith(limits), f"{held} runs hold a slot of {key}, of {limit}")
        slots = {row.run_id for row in tables["slot"] if row.limit_key.startswith(limits)}
        for run in tables["run"]:
            has_slot, active = run.run_id in slots, run.state in {"PENDING", "STARTING", "RUNNING", "STOPPING"}
            must(has_slot == active, f"{run.run_id} is {run.state}, and has {'a' if has_slot else 'no'} slot")

    return judge


_FIRST_DUE = int((NOON + HOUR).timestamp() * 1000)


def fired(tables: Tables) -> None:
    """Each logical time of a timer comes once, at least one duration after the previous launch."""
    times = sorted(
        (json.loads(run.triggered_by)["logical_time"], run.created_at)
        for run in tables["run"]
        if run.job_id is not None and json.loads(run.triggered_by)["logical_time"] is not None
    )
    for (one, launched_at), (other, _) in pairwise(times):
        must(other >= launched_at + 3_600_000, f"due at {other}, launched before at {launched_at} for {one}")
    for logical, created in times:
        must(logical <= created, f"launched at {created} for {logical}: too early")
        must(logical >= _FIRST_DUE, f"due at {logical}, earlier than it can be")


def fired_by_cron(*, each: bool) -> Callable[[Tables], None]:
    """No time of a Cron comes twice, and none before its time. Under `each`, every run has one time."""

    def judge(tables: Tables) -> None:
        fires = _fires_of_runs(tables)
        must(len(set(fires)) == len(fires), f"a time is in two runs: {fires}")
        for run in tables["run"]:
            times = json.loads(run.triggered_by).get("logical_times", [])
            must(not times or times[-1] <= run.created_at, f"launched at {run.created_at} for {times}: too early")
            must(not each or len(times) == 1, f"{times} are in one run")

    return judge


def nothing_missed(tables: Tables) -> None:
    """Each hour that a Cron's timer has passed is in a run."""
    (timer,) = tables["timer"]
    wanted = list(range(_FIRST_DUE, timer.next_fire_at, 3_600_000))
    must(_fires_of_runs(tables) == wanted, f"{_fires_of_runs(tables)} are in runs, of {wanted}")
    must(bool(wanted), "no hour has come")
    must(timer.behind is None, f"the timer waits for {timer.behind}, which is gone")


def one_at_a_time(tables: Tables) -> None:
    """No time has a run while the run of another time goes on, nor after an hour without one."""
    going = [
        run.run_id
        for run in tables["run"]
        if run.state in {"PENDING", "STARTING", "RUNNING", "STOPPING"}
        and json.loads(run.triggered_by).get("logical_times")
    ]
    must(len(going) <= 1, f"{going} go on at once, each for a time of its own")
    fires = _fires_of_runs(tables)
    must(fires == list(range(min(fires, default=0), max(fires, default=-1) + 1, 3_600_000)), f"out of order: {fires}")


def each_passed(tables: Tables) -> None:
    """Each hour that the watermark has passed is in one run, alone."""
    told = sorted(json.loads(run.triggered_by).get("logical_times", []) for run in tables["run"])
    moves = [json.loads(row.payload) for row in tables["message"] if row.event_type == "watermark"]
    passed = [range(move["from"] // 3_600_000_000 + 1, move["to"] // 3_600_000_000 + 1) for move in moves]
    wanted = [[hour * 3_600_000] for hours in passed for hour in hours]
    must([times for times in told if times] == wanted, f"runs were told {told}, of {wanted}")
    must(not tables["boundary"], f"{tables['boundary']} waits for ever")


def _fires_of_runs(tables: Tables) -> list[int]:
    return sorted(at for run in tables["run"] for at in json.loads(run.triggered_by).get("logical_times", []))


# How it ends


def recover(*, resumed: bool, last: bool, hours: int, most_launches: int = 0) -> Callable[[Stage], None]:
    """Start everybody again, until nothing moves, after a resumption; `last` brings two more partitions."""

    def resume(db: Db, stage: Stage) -> None:
        announce_work(db, change_schedules(db, stage.world, db.tick(), list(map(Resume, _schedules(stage)))))

    def do(stage: Stage) -> None:
        cut_power(stage)
        if resumed:
            stage.catalog.write(lambda db: resume(db, stage))
        if last:
            _rest(stage, most_launches)
            publish(stage, "last", (8, "append"), (9, "append"))
        _rest(stage, most_launches)
        for _ in range(hours):
            stage.clock.at += HOUR  # what is due then must come
            _rest(stage, most_launches)

    return do


def _rest(stage: Stage, most_launches: int) -> None:
    process = _scheduler_of(stage, most_launches)
    for _ in range(50):
        moved = False
        while process.step() == timedelta(0):
            moved = True
        while drive(stage):
            moved = True
        moved = bool(publish_due(stage.catalog, CONSUMERS)) or moved
        waits = stage.connection.execute(
            "SELECT min(at) FROM (SELECT min(not_before) AS at FROM run WHERE state = 'PENDING' UNION ALL"
            " SELECT min(not_before) FROM consumer_work WHERE state = 'new' AND not_before > 0)"
        ).fetchall()[0][0]
        if not moved and waits is None:
            return
        if not moved:
            at = int(stage.clock.at.timestamp() * 1000)
            stage.clock.at += timedelta(milliseconds=max(waits - at, 1))
    raise Broken("it does not come to rest")


def _no_open_job(tables: Tables) -> None:
    for job in tables["job"]:
        raise Broken(f"a job waits for ever: {job}")


def _at_each_turn(before: Tables, after: Tables) -> None:
    promises.never_undone(before, after)
    never_forgotten(before, after)
    in_turn(before, after)


def _wants_several(trigger: Trigger) -> bool:
    """Return whether one message may rightly wait for another."""
    return isinstance(trigger, NewPartitions) and trigger.n > 1


def pipeline(
    trigger: Trigger = PARTITIONS,
    *,
    arrivals: int = 1,
    schedulers: int = 2,
    drivers: int = 1,
    schedules: int = 1,
    limit: int | None = 1,
    fences: int = 0,
    kills: int = 0,
    hours: int = 0,
    endings: Sequence[str] = ("commit",),
    changes: Sequence[Callable[[ScheduleId], object]] = (),
    timeout: timedelta = timedelta(hours=24),
    losses: int = 0,
    hours_of: Sequence[Sequence[int]] = ((1,), (2,), (3,)),
    batch: int | None = None,
    programs: Sequence[str] = ("total",),
    runs: int = 0,
    group: bool = False,
    at_once: bool = False,
    misfire: Misfire = Misfire.ONCE,
    passes: Sequence[int] = (),
    of_rows: Sequence[int] = (),
    more: Sequence[Constraint] = (),
    most_launches: int = 0,
    follow: bool = False,
    judged: Sequence[Callable[[Tables], None]] = (),
    seconds: int = 0,
) -> Callable[[str], Scenario]:
    """Programs with schedules that listen to their input, the last with the first turn; `changes` happen to that one.

    With `group` the limit is that of a group of all programs.
    `at_once` are the kills asked for in one turn; `passes` the hours that a watermark stands at, one after the other,
    and `of_rows` those of the watermark of another table.
    With `follow`, `mean` starts after runs of `total`. `more` are further constraints, and `judged` what they promise.
    """
    constraint = GroupConcurrency("crm", limit) if group and limit else Concurrency(limit or 1)
    constraints = (*((constraint,) if limit else ()), *more)
    specs = [
        ScheduleSpec(trigger, constraints, timeout=timeout, priority=number, misfire=misfire)
        for number in range(schedules)
    ]
    timed = not isinstance(trigger, DataTrigger) and trigger is not EITHER
    of = {"mean": [ScheduleSpec(RunEnded("default.shop.total"), constraints)]} if follow else {}

    def make(name: str) -> Scenario:
        def set_up(stage: Stage) -> None:
            stage.endings = tuple(endings)
            shop(*specs, programs=programs, runs=runs, of=of)(stage)

        # One that waits for both may have heard of one only.
        never_open = [] if isinstance(trigger, AllOf) else [_no_open_job]
        if isinstance(trigger, Cron):
            never_open.append(nothing_missed)
        if trigger is EACH:
            never_open.append(each_passed)
        judges = [SOUND, heard, enough, launched, *judged]
        if limit and timeout > HOUR:
            judges.append(at_most(limit, "group:crm" if group else "program:"))
            if not hours:
                judges.append(no_job_waits_for_a_free_slot(limit))
        if isinstance(trigger, Cron):
            judges.append(fired_by_cron(each=misfire is Misfire.ALL))
        elif timed:
            judges.append(fired)
        if trigger is EACH or misfire is Misfire.ALL:
            judges.append(one_at_a_time)
        return Scenario(
            name,
            "each message is heard once, each launch is one run, no limit is passed, and nothing waits for ever",
            set_up,
            lambda: [
                *(arrival(f"arrival{n}", *hours_of[n]) for n in range(arrivals)),
                *(scheduler(f"scheduler{n}", batch, most_launches) for n in range(schedulers)),
                *(driver(f"driver{n}") for n in range(drivers)),
                *([keeper("keeper")] if hours else []),
                *(fencer(f"reaper{n}") for n in range(fences)),
                *(killer(f"killer{n}", at_once=at_once) for n in range(kills)),
                *(clock(f"hour{n}", HOUR) for n in range(hours)),
                *(clock(f"second{n}", timedelta(seconds=1)) for n in range(seconds)),
                *([changer("person", *changes)] if changes else []),
                *([tide("tide", "lines", *passes)] if passes else []),
                *([tide("other tide", "rows", *of_rows)] if of_rows else []),
            ],
            promises.all_of(*judges),
            recover(
                resumed=bool(changes),
                # An update counts from zero: what a dropped job had counted comes with the next partitions.
                last=_wants_several(trigger) or bool(set(changes) - {Suspend, Resume, hold, backlog}),
                hours=3 if more or most_launches else int(timed),
                most_launches=most_launches,
            ),
            promises.all_of(
                all_read,
                promises.at_rest,
                promises.everything_delivered(*(f"default.shop.{one}" for one in programs)),
                *([all_ends_read] if follow else []),
                *never_open,
            ),
            _at_each_turn,
            losses=losses,
            tables=tuple(
                table
                for table in TABLES
                if table not in {"inbox_file", "kept", "landed"} and (table != "slot_limit" or most_launches)
            ),
        )

    return make


NEW_SPEC = ScheduleSpec(PARTITIONS, (Concurrency(1),), description="changed")

SCENARIOS = {
    "message": pipeline(),
    "messages": pipeline(arrivals=2),
    "drivers": pipeline(arrivals=2, schedulers=1, drivers=2, limit=None),
    "limit": pipeline(arrivals=1, schedulers=2, schedules=2),
    "grouped": pipeline(group=True, schedulers=2, drivers=2, programs=("total", "mean")),
    "grouped-fenced": pipeline(group=True, schedulers=1, drivers=1, fences=1, programs=("total", "mean")),
    "fenced": pipeline(schedulers=1, drivers=2, fences=1),
    "kill": pipeline(schedulers=1, drivers=1, kills=1, arrivals=2),
    "retry": pipeline(schedulers=1, drivers=1, endings=("commit", "fail"), hours=1),
    "suspended": pipeline(changes=(Suspend, Resume), drivers=1),
    "suspended-hold": pipeline(changes=(hold, Resume), drivers=0),
    "suspended-backlog": pipeline(changes=(backlog, Resume), drivers=0),
    "timer-hold": pipeline(TIMER, arrivals=0, hours=2, changes=(hold, Resume), schedulers=1, limit=None),
    "held": pipeline(arrivals=2, hours_of=((1,), (1,)), schedulers=1, drivers=2, limit=None),
    "kill-small": pipeline(schedulers=1, drivers=1, kills=1, at_once=True),
    "others": pipeline(schedulers=1, drivers=0, kills=1, at_once=True, programs=("total", "mean")),
    "queue": pipeline(
        arrivals=2, schedulers=1, drivers=0, kills=1, at_once=True, batch=1, schedules=2, runs=1, changes=(Suspend,)
    ),
    "queue-hold": pipeline(
        arrivals=2, schedulers=1, drivers=0, kills=1, at_once=True, schedules=2, runs=1, changes=(hold,)
    ),
    "batches": pipeline(hours_of=((),), batch=1, drivers=0),
    "counted": pipeline(NewPartitions("lines", n=2), hours_of=((1, 2),), schedulers=1, endings=("commit", "fail")),
    "counted-left": pipeline(
        NewPartitions("lines", n=2), hours_of=((1, 2),), schedulers=1, drivers=0, kills=1, at_once=True
    ),
    "counted-2": pipeline(NewPartitions("lines", n=2), arrivals=2, schedulers=1),
    "timed-out-small": pipeline(
        arrivals=2, schedulers=1, hours=1, timeout=timedelta(minutes=30), endings=("commit",), fences=0
    ),
    "lost-reply": pipeline(schedulers=1, drivers=2, losses=1),
    "lost-replies-2": pipeline(schedulers=2, drivers=2, losses=2),
    "updated": pipeline(changes=(lambda schedule_id: Update(schedule_id, NEW_SPEC),), drivers=1),
    "timed-out": pipeline(arrivals=2, schedulers=1, drivers=1, hours=1, timeout=timedelta(minutes=30)),
    "timer": pipeline(TIMER, arrivals=0, hours=2, limit=None),
    "timer-limited": pipeline(TIMER, arrivals=0, hours=2, schedulers=2, fences=1),
    "timer-suspended": pipeline(TIMER, arrivals=0, hours=2, changes=(Suspend, Resume), limit=None),
    "cron": pipeline(CRON, arrivals=0, hours=2, drivers=0, limit=None),
    "cron-all": pipeline(CRON, arrivals=0, hours=2, drivers=0, limit=None, misfire=Misfire.ALL),
    "each": pipeline(EACH, arrivals=0, passes=(0, 2, 3), limit=None),
    "each-small": pipeline(EACH, arrivals=0, passes=(0, 2, 3), schedulers=1, limit=None),
    "each-killed": pipeline(EACH, arrivals=0, passes=(0, 2), schedulers=1, kills=1, at_once=True, limit=None),
    "either": pipeline(
        EITHER, arrivals=0, passes=(0, 1), of_rows=(0, 1), schedulers=1, drivers=0, limit=None, judged=(moves_heard,)
    ),
    "either-driven": pipeline(
        EITHER, arrivals=0, passes=(0, 1), of_rows=(0, 1), schedulers=1, limit=None, judged=(moves_heard,)
    ),
    "both": pipeline(AllOf(PARTITIONS, TIMER), hours=1, schedulers=2),
    "chain": pipeline(follow=True, programs=("total", "mean"), limit=None, judged=(ends_heard,)),
    "chain-lost-reply": pipeline(
        follow=True, programs=("total", "mean"), limit=None, judged=(ends_heard,), schedulers=1, losses=1
    ),
    "rated": pipeline(arrivals=2, drivers=0, hours=1, limit=None, more=(Rate(1, per=HOUR),), judged=(spaced(1, HOUR),)),
    "rated-at-once": pipeline(drivers=0, schedules=2, limit=None, more=(Rate(1, per=HOUR),), judged=(spaced(1, HOUR),)),
    "delayed": pipeline(drivers=0, hours=2, limit=None, more=(Delay("1h"),), judged=(delayed,)),
    "capped": pipeline(
        arrivals=2,
        drivers=0,
        seconds=1,
        limit=None,
        most_launches=1,
        judged=(spaced(1, timedelta(seconds=1)),),
    ),
}
