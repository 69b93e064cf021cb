"""Storm on one database, from the empty catalog to the verdict."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import psycopg

from tests.chaos.person import tidy_up
from tests.chaos.site import Kind, Site
from tests.chaos.storm import AT_WORK, Figures, Storm
from tests.chaos.verdict import Judge, Verdict
from tests.manual_clock import backdoor_of
from tests.postgres_server import MortalServer, mortal_server
from tests.yardstick import patience

_SETTLES_WITHIN = patience(120)
_DOWN = (0.2, 2.0)
_RESUMES_WITHIN = 60.0
_RUNS_WITHIN = 15.0
"""The wait for a completed run. Most attempts are killed, whatever the server does."""


@dataclass
class Outcome:
    """Outcome of a storm: its faults and its findings."""

    database: str
    seeds: tuple[int, ...]
    figures: Figures
    verdict: Verdict
    settled_after: float
    crashes: list[Resume] = field(default_factory=list)
    folder: Path | None = None
    """Folder of the storm, kept if the verdict has findings."""


@dataclass(frozen=True, slots=True)
class Resume:
    """Times from the server's next answer to the first commit, and to the first completed run."""

    transaction: float | None
    run: float | None


class Crasher(threading.Thread):
    """Crashes a server again and again, and sees how soon work goes on.

    One thread that lives as long as the server is needed: the kernel ends the server with the thread that started it.
    """

    def __init__(
        self, server: MortalServer, url: str, seed: int, times: int, seconds: float, tell: Callable[[str], None]
    ) -> None:
        super().__init__(name="crasher", daemon=True)
        self.server = server
        self.url = url
        self.times = times
        self.every = seconds / (times + 1)
        self.resumes: list[Resume] = []
        self._tell = tell
        self.over = threading.Event()
        self.done = threading.Event()
        self.error: BaseException | None = None
        self._random = random.Random(seed)

    def run(self) -> None:
        """Crash so many times, then keep the server alive until `over`."""
        try:
            for _ in range(self.times):
                began = time.monotonic()
                time.sleep(self._random.uniform(0.5, 1) * self.every * 0.6)
                self.server.crash()
                time.sleep(self._random.uniform(*_DOWN))
                self.server.start()
                self.resumes.append(self._watch())
                self._tell(f"crash {len(self.resumes)}: {self.resumes[-1]}")
                time.sleep(max(0.0, began + self.every - time.monotonic()))
        except BaseException as error:  # noqa: BLE001  # reported by the campaign
            self.error = error
        self.done.set()
        self.over.wait()

    def _watch(self) -> Resume:
        back = time.monotonic()
        committed = "SELECT count(*) FROM tx WHERE state = 'committed'"
        completed = "SELECT count(*) FROM run WHERE kind = 'program' AND state = 'COMPLETED'"
        seen: dict[str, float] = {}
        with psycopg.connect(self.url, autocommit=True) as connection:
            first = {query: connection.execute(query).fetchone() for query in (committed, completed)}
            limits = {committed: _RESUMES_WITHIN, completed: _RUNS_WITHIN}
            while any(query not in seen and time.monotonic() < back + limits[query] for query in limits):
                for query in first.keys() - seen.keys():
                    if connection.execute(query).fetchone() != first[query]:
                        seen[query] = time.monotonic() - back
                time.sleep(0.02)
        return Resume(seen.get(committed), seen.get(completed))


def run_campaign(
    database: str,
    *,
    seconds: float,
    seeds: Sequence[int],
    lease: timedelta = timedelta(seconds=5),
    crashes: int = 0,
    report: Callable[[str], None] = print,
    folder: Path | None = None,
) -> Outcome:
    """Rage for so long on a new site, by the faults of each seed in turn; let it come to rest; judge.

    `crashes` are of PostgreSQL's server, under that load. The site is kept if anything was found.
    """
    root = Path(tempfile.mkdtemp(prefix="tidemill-chaos-", dir=folder))
    with contextlib.ExitStack() as stack:
        url, server = stack.enter_context(_database(database, root))
        site = Site(root / "site", url, lease)
        site.set_up()
        crasher = None
        if crashes and server is not None:
            crasher = Crasher(server, url, seeds[0], crashes, seconds, report)
            stack.callback(_join, crasher)
            crasher.start()
        storm = stack.enter_context(Storm(site))
        for seed in seeds:
            over = crasher.done.is_set if crasher is not None and seed == seeds[-1] else lambda: True
            # If nearly every transaction is cut off, no figure shows how soon the processes recover from the server's
            # crash.
            at_work = 0.0 if crasher is not None else AT_WORK
            storm.rage(
                seconds / len(seeds), seed, lambda line: report(f"{database}: {line}"), over=over, at_work=at_work
            )
        if crasher is not None and crasher.error is not None:
            raise crasher.error
        outcome = _settle_and_judge(site, storm, report)
        outcome.seeds = tuple(seeds)
        outcome.database = database
        outcome.crashes = crasher.resumes if crasher else []
    if outcome.verdict.holds:
        shutil.rmtree(root)
    else:
        outcome.folder = root
    return outcome


def _settle_and_judge(site: Site, storm: Storm, report: Callable[[str], None]) -> Outcome:
    with backdoor_of(site.catalog_url) as sql, site.open_mill() as mill:
        catalog = mill.project.catalog
        judge = Judge(site, catalog, sql)
        storm.calm()
        storm.close(Kind.WRITER, Kind.TICKER, Kind.LANDER, Kind.PERSON)
        began = time.monotonic()

        def rests() -> bool:
            tidy_up(mill)
            return not judge.unquiet()

        settled = storm.wait_until(rests, _SETTLES_WITHIN)
        settled_after = time.monotonic() - began
        if not settled:
            judge.verdict.stuck.append(f"after {settled_after:.0f} s there is still {judge.unquiet()}")
        storm.end()
        verdict = judge.judge()
        verdict.broke += storm.figures.broke
        if not verdict.holds:
            judge.keep(site.folder)
            found = {kind: len(found) for kind, found in verdict.findings.items() if found}
            report(f"FOUND {found}: see {site.folder}")
            text = "\n".join(f"{kind}: {one}" for kind, found in verdict.findings.items() for one in found)
            (site.folder / "findings.txt").write_text(text + "\n")
    return Outcome("", (), storm.figures, verdict, settled_after)


@contextlib.contextmanager
def _database(database: str, root: Path) -> Iterator[tuple[str, MortalServer | None]]:
    if database == "sqlite":
        yield f"sqlite:///{root / 'catalog.db'}", None
        return
    # Each killed process leaves a session that ends when the server notices.
    with mortal_server(durable=True, connections=400) as server:
        schema = f"chaos_{uuid.uuid4().hex[:8]}"
        with psycopg.connect(server.url, autocommit=True) as connection:
            connection.execute(f"CREATE SCHEMA {schema}")
        yield f"{server.url}?options=-csearch_path%3D{schema}", server


def _join(crasher: Crasher) -> None:
    crasher.over.set()
    crasher.join(30)
