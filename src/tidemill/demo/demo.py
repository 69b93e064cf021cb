"""`tidemill demo`: land New York's flights and weather, let an app work on them as they arrive, weigh the result.

The app is the project beside this file, run by `tidemill up` in a process of its own. The lander is never more than
six hours of data ahead of the reports, so that the demo goes as fast as the machine does. Each day begins with a change
of the database of airlines and planes, of which the app keeps versions.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import timedelta
from pathlib import Path
from typing import Final

from tidemill.config import FILE_NAME, load_config
from tidemill.demo.balance import RowBalance, RowKey, weigh
from tidemill.demo.cluster import local_cluster
from tidemill.demo.crash import DriverKiller
from tidemill.demo.flights import Feed, read_archive
from tidemill.demo.landing import Lander, Landing, LandingStep, plan
from tidemill.demo.published import Reader, Report
from tidemill.demo.reference import DAYS, MIRRORED, Reference, read_tables
from tidemill.demo.reference import FILE_NAME as REFERENCE
from tidemill.demo.up import STOP, UI
from tidemill.demo.windows import WINDOWS, count_windows
from tidemill.errors import TidemillError
from tidemill.lake.inbox.inbox import FileState, InboxFile
from tidemill.mill.mill import Mill, open_project
from tidemill.narration import Narrator
from tidemill.processes import Child
from tidemill.roles.process_end import ProcessEnd, asked_by_signals
from tidemill.run.processes.java import find_java
from tidemill.server.listen import NoServer, find_server, make_link
from tidemill.storage.files import Files
from tidemill.storage.locations import open_files
from tidemill.world import World

_PROJECT: Final = Path(__file__).parent / "project"
_AHEAD: Final = 6
"""Six, and no more: 14Z is to be reported before it is written again at 20Z."""
_LOOK_EVERY: Final = timedelta(milliseconds=200)
_PATIENCE: Final = timedelta(minutes=3)
"""The time without progress after which the demo gives up: a start of Spark on a busy machine, and a retry."""
_END_WITHIN: Final = timedelta(seconds=20)
_OPEN: Final = (FileState.NEW, FileState.IN_PROGRESS, FileState.ERROR)
_MOST_FILES: Final = 100_000


class DemoFailed(TidemillError):
    """The demo did not end as it must; its project is left for a look."""

    code = "demo_failed"
    hint = "look at the project that is left, and report the message"

    def __init__(self, why: str, folder: Path) -> None:
        self.why = why
        self.folder = str(folder)
        super().__init__(f"the demo failed: {why}; its project is left in {folder}")


def run_demo(
    *,
    days: int,
    keep: bool,
    crash: bool,
    echo: Callable[[str], None],
    ui: bool = False,
    bucket: str = "",
    cluster: bool = False,
    world: World | None = None,
) -> None:
    """Run the whole demo: one line of `echo` an event, the last one the balance.

    With `crash` the driver is killed in the middle of a write. With `ui` the app serves the pages, and goes on after
    the last report until Ctrl-C. The project's folder is removed at the end, unless `keep` is set or the demo failed.
    With `bucket`, the URL of a bucket or of a folder in it, files land there and data is published there. With
    `cluster` Spark works on a master and two workers, which this process starts. Raises `DemoFailed` when the balance
    is wrong or nothing moves any more, `NoJava`, `NoFlights`, `BadDays`, `BadLocation`, `ClusterNotStarted`.
    """
    world = world or World()
    steps = plan(read_archive(world.disk, days))
    folder = world.disk.temporary_folder("tidemill-demo-")
    place = f"{bucket.rstrip('/')}/{world.new_id('demo')}" if bucket else ""
    for name, text in _project_in(place, world).items():
        world.disk.write_bytes(folder / name, text.encode())
    landing = open_files(f"{place or folder}/landing", world)
    for feed in Feed:
        if not place:
            world.disk.make_folder(folder / "landing" / feed)
    try:
        with ExitStack() as stack:
            mill = _open(stack, folder, world, cluster=cluster)
            pages = _Pages(mill, echo) if ui else None
            balance = _Demo(mill, steps, landing, crash=crash, echo=echo, pages=pages).run()
    except DemoFailed:
        raise
    except BaseException:
        world.disk.remove(folder)
        raise
    if keep:
        echo(f"the project stays in {folder}: look around with `tidemill --project {folder} run list`")
    elif balance.good:
        world.disk.remove(folder)
        if place:
            _delete(open_files(place, world))
    echo(str(balance))
    if not balance.good:
        raise DemoFailed("rows that landed and rows that are published do not balance", folder)


def _project_in(place: str, world: World) -> dict[str, str]:
    """Return the files of the project; with a place in a bucket, its landing and its data are there."""
    texts = {name: world.disk.read_bytes(_PROJECT / name).decode() for name in ("app.py", FILE_NAME)}
    if place:
        texts["app.py"] = texts["app.py"].replace('"landing/', f'"{place}/landing/')
        texts[FILE_NAME] = f'data = "{place}/data"\n\n{texts[FILE_NAME]}'
    return texts


def _open(stack: ExitStack, folder: Path, world: World, *, cluster: bool) -> Mill:
    """Open the project until the end of the stack, with a cluster that the project uses, if one is wanted."""
    cache = load_config(world, folder).cache
    find_java(world, cache)  # one message now, rather than one by each run
    if cluster:
        found = stack.enter_context(local_cluster(world, folder / "cluster", cache))
        text = world.disk.read_bytes(folder / FILE_NAME).decode().replace("[spark.conf]\n", found.settings())
        world.disk.write_bytes(folder / FILE_NAME, text.encode())
    return stack.enter_context(open_project(folder, create=True, world=world))


def _delete(files: Files) -> None:
    for folder in files.list_folders():
        while not files.delete_below(folder).is_whole:
            pass


class _Pages:
    """The pages of the demo, which its app serves."""

    def __init__(self, mill: Mill, echo: Callable[[str], None]) -> None:
        self._mill = mill
        self._echo = echo
        self._said = False

    def say(self) -> None:
        """Say the link, as soon as the app serves, once."""
        if not self._said:
            with suppress(NoServer):
                self._say(f"the project is in {self._mill.project.config.folder}; its pages")
                self._said = True

    def stay(self) -> None:
        """Say another link, since the first one may be used or old, and wait for the end."""
        ending = ProcessEnd()
        with asked_by_signals(ending):
            self._say("all is reported; look around, and end with Ctrl-C")
            ending.wait()

    def _say(self, words: str) -> None:
        self._echo(f"{words}: {make_link(self._mill, find_server(self._mill))}")


class _Demo:
    """Starts the app, lands files, watches what is published, and prints each step."""

    def __init__(
        self,
        mill: Mill,
        steps: list[LandingStep],
        landing: Files,
        *,
        crash: bool,
        echo: Callable[[str], None],
        pages: _Pages | None = None,
    ) -> None:
        self._mill = mill
        self._pages = pages
        self._world = mill.project.world
        self._folder = mill.project.config.folder
        self._steps = steps
        self._echo = echo
        self._narrator = Narrator(mill.project.world, echo, as_json=False)
        self._killer = DriverKiller(mill, self._narrator) if crash else None
        self._lander = Lander(landing)
        self._reader = Reader(mill)
        self._reference = Reference(self._folder / REFERENCE, read_tables(mill.project.world.disk))
        self._refreshing = False
        """True if the app may not have the newest change of the database yet."""
        self._seen: set[RowKey] = set()
        self._due: list[Counter[str]] = []
        """After each step, how many flights of each hour are to be reported some time."""
        self._told: dict[str, Report] = {}
        self._log_offset = 0
        self._moved_at = mill.project.world.clock.monotonic()

    def run(self) -> RowBalance:
        """Land everything and wait until all of it is reported; the balance."""
        child = self._start()
        try:
            while not self._step(child):
                if self._killer is not None and self._told and not self._killer.done:
                    self._killer.watch(_LOOK_EVERY)
                else:
                    self._world.clock.sleep(_LOOK_EVERY)
            if self._pages is not None:
                self._tell_log()
                self._pages.stay()
        finally:
            self._stop(child)
        self._tell_log()
        for report in self._reader.days():
            self._narrator.tell("report", report.when, report.sentence())
        self._tell_windows()
        self._tell_why()
        return self._weigh()

    def _step(self, child: Child) -> bool:
        """Tell what is new, and land what is due; whether all is done. Raises `DemoFailed`."""
        if self._pages is not None:
            self._pages.say()
        if self._tell_log():  # without a word of the app, nothing new is published
            self._tell_reports()
        if child.poll() is not None:
            raise DemoFailed(f"`tidemill up` ended with exit code {child.poll()}: {self._last_words()}", self._folder)
        while len(self._due) < len(self._steps) and self._keeps_up():
            self._land(self._steps[len(self._due)])
        if self._world.clock.monotonic() - self._moved_at > _PATIENCE:
            raise DemoFailed(f"nothing has moved for {_PATIENCE}; so far: {self._weigh()}", self._folder)
        if len(self._due) < len(self._steps) or (self._killer is not None and not self._killer.done):
            return False
        return self._is_worked_off()

    def _keeps_up(self) -> bool:
        """Return whether the data that landed six hours of data ago is reported; all data, if the next step waits."""
        landed = len(self._due)
        if not landed:
            return self._log_offset > 0
        if self._refreshing and not self._mirrored():
            return False
        self._refreshing = False
        waits = self._steps[landed].waits
        behind = landed - (1 if waits else _AHEAD)
        told = Counter({when: told.flights for when, told in self._told.items()})
        return behind < 0 or (self._due[behind] <= told and (not waits or self._windows_right()))

    def _mirrored(self) -> bool:
        """Return whether the app has the database's tables as they are now."""
        return all(self._reader.mirror(table) == self._reference.read(table) for table in MIRRORED)

    def _change_reference(self, day: int) -> None:
        self._narrator.tell("land", REFERENCE, self._reference.change(day))
        self._refreshing = True
        for table in MIRRORED:
            self._mill.runs.start(f"new_york.mirror_{table}")

    def _land(self, step: LandingStep) -> None:
        if step.day is not None and step.day < DAYS:
            self._change_reference(step.day)
        for landing in step.landings:
            self._lander.land(landing)
            self._narrator.tell("land", f"{landing.feed}/{landing.name}", _landed(landing))
            if landing.whole and landing.feed is Feed.FLIGHTS:
                self._seen |= {row.key for row in landing.rows}
        self._due.append(Counter(hour for hour, *_ in self._seen))
        self._moved_at = self._world.clock.monotonic()

    def _tell_reports(self) -> None:
        """Print the reports of hours that are new or have changed."""
        reports = {report.when: report for report in self._reader.hours()}
        for when, report in reports.items():
            if self._told.get(when) != report:
                self._narrator.tell("report", when, report.sentence())
                self._moved_at = self._world.clock.monotonic()
        self._told = reports

    def _tell_log(self) -> bool:
        """Print the new output of the app, and return whether there was any."""
        new = self._world.disk.read_from(self._folder / "up.log", self._log_offset)
        lines, end, _ = new.rpartition(b"\n")
        self._log_offset += len(lines) + len(end)
        for line in lines.decode().splitlines():
            self._echo(line)
        return bool(lines)

    def _last_words(self) -> str:
        errors = self._world.disk.read_bytes(self._folder / "up.err").decode(errors="replace").strip()
        return errors.rpartition("\n")[2] or "it printed no error"

    def _is_worked_off(self) -> bool:
        """Return whether inboxes have closed all landed files and no consumer has work left, in the order of work."""
        files = self._files()
        known = {(feed, file.name) for feed, file in files}
        landed = {(landing.feed, landing.name) for landing in self._lander.ledger if landing.rows}
        if not landed <= known or any(file.status in _OPEN for _, file in files):
            return False
        idle = not any(consumer.waiting or consumer.in_progress for consumer in self._mill.consumers.list())
        return idle and self._mirrored() and self._windows_right()

    def _windows_right(self) -> bool:
        hours = self._reader.loaded_hours()
        return all(self._reader.windows(one.dataset) == count_windows(hours, one.size) for one in WINDOWS)

    def _tell_windows(self) -> None:
        """Count windows, those that late files have had computed again, and versions."""
        said = [m.payload for m in self._mill.topics.read("data", limit=_MOST_FILES) if m.event_type == "windows"]
        for one in WINDOWS:
            number = len(self._reader.windows(one.dataset))
            again = sum(int(str(m["recomputed"])) for m in said if str(m["program"]).endswith(f".{one.program}"))
            self._narrator.tell("windows", one.dataset, f"{number} windows, {again} of them computed again")
        for name in MIRRORED:
            versions, rows = len(self._mill.snapshots.versions(name)), len(self._reader.mirror(name))
            self._narrator.tell("versions", name, f"{versions} versions, {rows:,} rows in the last")

    def _tell_why(self) -> None:
        """Ask why, as `tidemill why` does, of the files that were not loaded, and of a schedule."""
        files = [f"{landing.feed}_raw/{landing.name}" for landing in self._lander.ledger if not landing.whole]
        for thing in (*files, "new_york.compare"):
            found = self._mill.why(thing)
            self._narrator.tell("why", thing, f"{found.state}: {'; '.join(one.why for one in found.because)}")

    def _weigh(self) -> RowBalance:
        refused = {(feed, file.name) for feed, file in self._files() if file.status is FileState.QUARANTINED}
        return weigh(self._lander.ledger, refused, self._reader.read())

    def _files(self) -> list[tuple[Feed, InboxFile]]:
        return [(feed, file) for feed in Feed for file in self._mill.inboxes.files(f"{feed}_raw", limit=_MOST_FILES)]

    def _start(self) -> Child:
        world, log = self._world, self._folder / "up.log"
        world.disk.append(log, "")
        return world.spawner.start(
            [sys.executable, "-m", "tidemill.demo.up", "--project", str(self._folder), *([UI] if self._pages else [])],
            tag=world.new_id("demo"),
            # Its minute needs both cores; what another project has had made is not used either.
            env={**world.environ, "TIDEMILL_SPARK_CLASS_DATA": "false"},
            cwd=self._folder,
            stdout=log,
            stderr=self._folder / "up.err",
        )

    def _stop(self, child: Child) -> None:
        give_up_at = self._world.clock.monotonic() + _END_WITHIN
        child.send_line(STOP)
        while child.poll() is None and self._world.clock.monotonic() < give_up_at:
            self._world.clock.sleep(_LOOK_EVERY)
        child.kill()


def _landed(landing: Landing) -> str:
    rows = len(landing.rows)
    size = f"{rows} row{'' if rows == 1 else 's'}" if rows else f"{len(landing.content)} bytes"
    return f"{size}   {landing.note}".rstrip()
