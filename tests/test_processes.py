"""Real processes: their children end when they end."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from tests.yardstick import patience
from tidemill.processes import Child, LocalSpawner
from tidemill.secret_places import KnownSecrets

GREET = """
import os, sys
from tidemill.processes import live_with_parent
lines = live_with_parent()
print("ready", os.getpid(), flush=True)
"""

# A child of the child that left group and session, lives on its own and says that it still works.
STRAY = """
import subprocess, sys
pid = os.fork()
if pid == 0:
    os.setsid()
    if os.fork() == 0:
        while True:
            with open("stray", "a") as file:
                file.write(str(os.getpid()) + "\\n")
            time.sleep(0.01)
    os._exit(0)
os.waitpid(pid, 0)
"""


def until(claim: Callable[[], bool], seconds: float = 20.0) -> None:
    """Look until `claim` holds; the only wait of these tests, for what other processes do."""
    deadline = time.monotonic() + patience(seconds)
    while not claim():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """Return whether there is such a process, one that only waits to be collected aside."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in {"Z", "X"}


class Nursery:
    """Children in a folder of their own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.spawner = LocalSpawner()
        self.children: list[Child] = []

    def start(self, code: str) -> Child:
        """Start a child that lives with us and runs `code`."""
        child = self.spawner.start(
            [sys.executable, "-c", GREET + "import time\n" + code],
            tag=f"test_{self.folder.name}_{len(self.children)}",
            env=dict(os.environ),
            cwd=self.folder,
            stdout=self.folder / "out",
            stderr=self.folder / "err",
        )
        self.children.append(child)
        return child

    def out(self) -> str:
        """Return the output of the children."""
        path = self.folder / "out"
        return path.read_text() if path.exists() else ""

    def strays(self) -> set[int]:
        """Return the processes that reported work."""
        path = self.folder / "stray"
        return {int(pid) for pid in path.read_text().split()} if path.exists() else set()


@pytest.fixture
def nursery(tmp_path: Path) -> Iterator[Nursery]:
    """Children of this process, ended with the test."""
    nursery = Nursery(tmp_path)
    yield nursery
    for child in nursery.children:
        child.kill()


def test_a_child_reads_the_lines_its_parent_sends(nursery):
    """A warm driver gets its assignments so."""
    nursery.start("for line in lines: print('got', line, flush=True)").send_line('{"run": "é"}')

    until(lambda: "got" in nursery.out())

    assert 'got {"run": "é"}' in nursery.out()


def test_user_code_finds_standard_input_empty(nursery):
    """A program that reads its input, or starts a process that does, would take the runner's assignments."""
    child = nursery.start("print('read', repr(sys.stdin.read()), flush=True); os.system('cat'); print(next(lines))")
    child.send_line("an assignment")

    until(lambda: child.poll() is not None)

    assert "read ''" in nursery.out()
    assert "an assignment" in nursery.out()


def test_a_kill_reaches_what_left_the_group_and_the_session(nursery):
    """User code forks: the child would go on writing, and its open pipe kept a JVM alive (tried)."""
    child = nursery.start(STRAY + "time.sleep(60)")
    until(lambda: len(nursery.strays()) == 1)

    child.kill()

    assert child.poll() == -signal.SIGKILL
    assert not any(alive(pid) for pid in nursery.strays())


def test_a_kill_reaches_what_a_child_that_ended_left_behind(nursery):
    """A driver that was killed from outside is collected first; what it started is ended all the same."""
    child = nursery.start(STRAY + "sys.exit(3)")
    until(lambda: child.poll() == 3 and len(nursery.strays()) == 1)

    child.kill()

    assert not any(alive(pid) for pid in nursery.strays())


def test_a_kill_reaches_processes_that_keep_forking(nursery):
    """A single look at the process table misses processes that were forked during the look."""
    child = nursery.start(
        STRAY.replace("time.sleep(0.01)", "time.sleep(0.001)\n            if os.fork(): os._exit(0)") + "time.sleep(60)"
    )
    until(lambda: len(nursery.strays()) > 20)

    child.kill()

    seen = len(nursery.strays())
    time.sleep(0.1)
    assert len(nursery.strays()) == seen


def test_a_kill_waits_for_no_process_that_ends_while_it_is_looked_at(nursery):
    """Such a process was waited for for as long as a kill waits at all, though it was gone."""
    starts = "import subprocess\nfor _ in range(100): subprocess.Popen(['sleep', '60'])\n"
    for count in range(1, 11):
        child = nursery.start(starts + "print('all', flush=True)\ntime.sleep(60)")
        until(lambda: nursery.out().count("all") == count)  # noqa: B023  # asked in this round
        killing = threading.Thread(target=child.kill)

        killing.start()

        until(lambda: not killing.is_alive(), 10)  # noqa: B023


def test_another_process_ends_a_tree_by_its_tag(nursery):
    """A runner in another process ends the drivers of one that hangs."""
    child = nursery.start(STRAY + "time.sleep(60)")
    until(lambda: len(nursery.strays()) == 1)

    ended = LocalSpawner().end_tagged(child.tag)

    assert ended >= 2
    assert not any(alive(pid) for pid in nursery.strays())
    until(lambda: child.poll() == -signal.SIGKILL)


def test_a_stopped_child_does_not_count_as_working(nursery):
    """The runner renews no lease for a stopped child, so a stopped child must not count as working."""
    child = nursery.start("time.sleep(60)")
    until(lambda: "ready" in nursery.out())
    before = child.stopped()

    os.kill(child.pid, signal.SIGSTOP)
    until(child.stopped)
    os.kill(child.pid, signal.SIGCONT)
    until(lambda: not child.stopped())

    assert not before


def test_a_kill_ends_a_stopped_child(nursery):
    """SIGKILL needs no running process; a polite signal would wait for ever."""
    child = nursery.start("time.sleep(60)")
    until(lambda: "ready" in nursery.out())
    os.kill(child.pid, signal.SIGSTOP)

    child.kill()

    assert child.poll() == -signal.SIGKILL


def test_sending_to_a_child_that_ended_says_so(nursery):
    """The runner then gives the run to another driver."""
    child = nursery.start("")
    until(lambda: child.poll() == 0)

    assert not child.send_line("anything")


def test_the_child_outlives_the_thread_that_asked_for_it(nursery):
    """The kernel's death signal comes when the *thread* that forked ends (tried): a runner's threads come and go."""
    asking = threading.Thread(target=lambda: nursery.start("for line in lines: print('got', line, flush=True)"))
    asking.start()
    asking.join()
    until(lambda: "ready" in nursery.out())

    nursery.children[0].send_line("still there")

    until(lambda: "got still there" in nursery.out())


PARENT = """
import os, sys, time
from pathlib import Path
from tidemill.processes import LocalSpawner
child = LocalSpawner().start([sys.executable, "-c", Path(sys.argv[1]).read_text()], tag=sys.argv[2],
    env=dict(os.environ), cwd=Path.cwd(), stdout=Path("out"), stderr=Path("err"))
print(child.pid, flush=True)
time.sleep(60)
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[Callable[[str], tuple[subprocess.Popen[bytes], int]]]:
    """A parent in a process of its own with a child; ends what is left."""
    parents = []

    def start(code: str) -> tuple[subprocess.Popen[bytes], int]:
        (tmp_path / "child.py").write_text(GREET + "import time\n" + code)
        argv = [sys.executable, "-c", PARENT, str(tmp_path / "child.py"), f"test_{tmp_path.name}"]
        parent = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE)
        parents.append(parent)
        return parent, int(parent.stdout.readline())

    yield start
    for parent in parents:
        parent.kill()
        parent.wait()
        parent.stdout.close()
    LocalSpawner().end_tagged(f"test_{tmp_path.name}")


def test_a_child_dies_with_its_parent(family, tmp_path):
    """A driver without a runner has no process that renews its lease or kills it."""
    parent, child = family("time.sleep(60)")
    until(lambda: (tmp_path / "out").exists() and "ready" in (tmp_path / "out").read_text())

    parent.kill()

    until(lambda: not alive(child))


def test_a_child_in_a_long_c_call_dies_with_its_parent(family, tmp_path):
    """A watchdog thread alone would wait for the interpreter."""
    parent, child = family("print('busy', flush=True); sum(range(10**11))")
    until(lambda: (tmp_path / "out").exists() and "busy" in (tmp_path / "out").read_text())

    parent.kill()

    until(lambda: not alive(child))


def test_a_child_that_comes_too_late_ends_itself(family, tmp_path):
    """Its parent died before it could ask for the death signal, which then never comes."""
    (tmp_path / "go").mkdir()
    parent, child = family("")
    parent.kill()
    parent.wait()
    until(lambda: not alive(child))
    late = (
        "import os, sys, time\n"
        "while os.getppid() == int(os.environ['TIDEMILL_PARENT'].split(':')[0]): time.sleep(0.005)\n" + GREET
    )
    (tmp_path / "late.py").write_text(late + "print('alive too long', flush=True)")
    argv = [sys.executable, "-c", PARENT, str(tmp_path / "late.py"), f"test_{tmp_path.name}"]
    (tmp_path / "out").unlink(missing_ok=True)
    other = subprocess.Popen(argv, cwd=tmp_path, stdout=subprocess.PIPE)
    orphan = int(other.stdout.readline())
    other.kill()
    other.wait()
    other.stdout.close()

    until(lambda: not alive(orphan))

    assert (tmp_path / "out").read_text() == ""


def test_orphans_are_found_when_their_parent_is_gone(family, tmp_path):
    """A process that left the session survives its parent's kill -9 until the next runner on this machine looks."""
    parent, child = family(STRAY + "time.sleep(60)")
    stray = tmp_path / "stray"
    until(lambda: stray.exists() and stray.read_text().strip() != "")
    pid = int(stray.read_text().split()[0])
    spawner = LocalSpawner()
    spawner.end_orphans()
    still = alive(pid)

    parent.kill()
    parent.wait()
    until(lambda: not alive(child))
    spawner.end_orphans()

    assert still
    assert not alive(pid)


def test_a_stopped_parent_costs_no_child_its_life(family, tmp_path):
    """A laptop's sleep or a stopped runner kills nothing: safety is the fence."""
    parent, child = family("time.sleep(60)")
    until(lambda: (tmp_path / "out").exists() and "ready" in (tmp_path / "out").read_text())

    os.kill(parent.pid, signal.SIGSTOP)
    until(lambda: Path(f"/proc/{parent.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
    LocalSpawner().end_orphans()

    assert alive(child)


def test_the_tree_of_a_child_that_starts_children_of_its_own_is_ended(nursery):
    """`tidemill up` is a child of the demo, and its drivers are its children, with tags of their own."""
    nursery.start(
        "from tidemill.processes import LocalSpawner; from pathlib import Path\n"
        'code = \'import time; open("inner", "w").write("x"); time.sleep(60)\'\n'
        "here = Path.cwd()\n"
        "inner = LocalSpawner().start([sys.executable, '-c', code], tag='inner', env=dict(os.environ), cwd=here,"
        " stdout=here / 'out2', stderr=here / 'err2')\n"
        "print('inner', inner.pid, flush=True); time.sleep(60)"
    )
    until(lambda: (nursery.folder / "inner").exists() and "inner" in nursery.out())
    inner = int(nursery.out().split()[-1])

    LocalSpawner().end_tagged(nursery.children[0].tag)

    assert not alive(inner)


def test_one_process_is_killed_as_by_the_kernel(nursery):
    """The demo's crash: what runs out of memory."""
    child = nursery.start("time.sleep(60)")

    killed = nursery.spawner.kill_alone(child.pid)
    until(lambda: child.poll() == -signal.SIGKILL)

    assert killed
    assert not nursery.spawner.kill_alone(child.pid)


def test_a_short_program_answers_with_its_code_and_output():
    """The look for Java and the installation of one are such."""
    spawner = LocalSpawner()
    env = dict(os.environ)

    done = spawner.run(
        [sys.executable, "-c", "print('x'); raise SystemExit(4)"], env=env, timeout=timedelta(seconds=20)
    )
    missing = spawner.run(["/nonexistent/java"], env=env, timeout=timedelta(seconds=20))
    slow = spawner.run([sys.executable, "-c", "import time; time.sleep(9)"], env=env, timeout=timedelta(seconds=0.1))

    assert (done.exit_code, done.output) == (4, "x\n")
    assert missing.exit_code == 127
    assert slow.exit_code == -signal.SIGKILL


def test_what_is_passed_on_is_there_for_a_block_only(monkeypatch):
    """A notebook that has had Spark started for a comparison goes on with the Java of its own."""
    monkeypatch.setenv("TIDEMILL_HAD", "old")
    spawner = LocalSpawner()

    with spawner.passed_on({"TIDEMILL_HAD": "new", "TIDEMILL_HAD_NOT": "new"}):
        within = os.environ["TIDEMILL_HAD"], os.environ["TIDEMILL_HAD_NOT"]

    assert within == ("new", "new")
    assert (os.environ["TIDEMILL_HAD"], "TIDEMILL_HAD_NOT" in os.environ) == ("old", False)


def test_no_secret_is_printed(capsys):
    """By no way that Python has, and not in two parts, of which a line of a log may consist."""
    early = logging.StreamHandler()
    logging.getLogger("early").addHandler(early)
    with LocalSpawner().printed_through(KnownSecrets({"sword-fish": "env:PW", "sword": "file:/s"})):
        print("a sword, a", "sword-fish", end=" and ")
        sys.stdout.write("swo")
        sys.stdout.write("rd-")
        sys.stdout.writelines(["fish", "\n"])
        logging.getLogger("early").warning("log sword-fish")
        kept = sys.stderr
        print("ends with swor", file=sys.stderr, end="")
    print("d", file=kept, end="")
    printed = capsys.readouterr()

    assert printed.out == "a file:/s, a env:PW and env:PW\n"
    assert printed.err == "log env:PW\nends with sword"
    assert early.stream is sys.stderr


def test_what_cannot_become_a_secret_is_printed_at_once(capfdbinary):
    """The bar of a long copy ends no line for minutes. A binary write goes past the mask, in order."""
    with LocalSpawner().printed_through(KnownSecrets({"sword-fish": "env:PW"})):
        print("50 %", end="", flush=True)
        bar = capfdbinary.readouterr().out
        sys.stdout.buffer.write(b"sword-fish")
        sys.stdout.flush()
        raw = capfdbinary.readouterr().out

    assert (bar, raw) == (b"50 %", b"sword-fish")
