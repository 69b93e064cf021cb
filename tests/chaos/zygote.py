"""A parent that has imported everything and forks workers on demand: `python -m tests.chaos.zygote SITE`.

A Python process takes 0.4 s of a core to import the product; at twenty kills a second two cores would do nothing else.
So this one does it once, opens nothing, and forks: each worker has a session and a catalog of its own. It reads one
line of JSON for each worker, and prints one for each that was forked or has ended, with the mark that it had reached.
With its standard input it ends, and the kernel ends its workers.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import os
import select
import signal
import sys
import traceback

import tidemill.catalog.postgres
import tidemill.catalog.sqlite
import tidemill.catalog.wakeups  # noqa: F401  # the product imports them when it opens a catalog: a quarter of a second
from tests.chaos.site import STARTS, Kind, Site
from tests.chaos.stands import Stands
from tests.chaos.workers import Post, work

_PR_SET_PDEATHSIG = 1


class Zygote:
    """Process that forks others, and collects the ended ones."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.libc = ctypes.CDLL(None)
        self.stands = Stands(site.folder / "stands")
        self.slots: dict[int, int] = {}

    def serve(self) -> None:
        """Fork on request until the requests end."""
        reading, writing = os.pipe()
        os.set_blocking(writing, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        pending = b""
        while True:
            readable, _, _ = select.select([0, reading], [], [])
            if reading in readable:
                os.read(reading, 4096)
                self._collect()
            if 0 in readable:
                received = os.read(0, 65536)
                if not received:
                    return
                *lines, pending = (pending + received).split(b"\n")
                for line in lines:
                    self._fork(**json.loads(line))

    def _fork(self, slot: int, kind: str, incarnation: int) -> None:
        stand = functools.partial(self.stands.write, slot)
        stand(STARTS)
        parent = os.getpid()
        pid = os.fork()
        if pid:
            self.slots[pid] = slot
            _say(event="forked", slot=slot, pid=pid)
            return
        code = 1
        try:
            self.libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
            if os.getppid() != parent:
                os._exit(0)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.setsid()
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(os.open(self.site.complaints, os.O_WRONLY | os.O_APPEND | os.O_CREAT), 1)
            os.dup2(1, 2)
            work(Post(self.site, slot, Kind(kind), incarnation, stand))
            code = 0
        except BaseException:  # noqa: BLE001  # whatever it is: the forking process has to know
            text = f"--- {kind} {slot} ({incarnation})\n{traceback.format_exc()}"
            with self.site.complaints.open("a") as complaints:
                complaints.write(text)
        finally:
            os._exit(code)

    def _collect(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            slot = self.slots.pop(pid)
            code = os.waitstatus_to_exitcode(status)
            _say(event="ended", slot=slot, pid=pid, code=code, stood=self.stands.read(slot))


def _say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def main(site: str) -> None:
    """Serve, and die with the parent process."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != parent:
        return
    zygote = Zygote(Site.from_json(site))
    gc.collect()
    gc.freeze()  # what all workers share stays shared
    zygote.serve()
    for pid in list(zygote.slots):
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
