"""The demo in a bucket while its drivers are killed: nothing is lost or doubled, and nothing is left in the bucket.

`python -m tests.chaos.demo --kills 50 [--seed S]` (`make demo-s3-crash`): rounds of `tidemill demo --s3` follow each
other. In each a driver is killed every few seconds, wherever it is: it starts Spark, reads, writes, or commits. Its
short form is tests/chaos/test_demo.py.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

import psutil

from tests.command import TIDEMILL
from tests.s3_server import KEYS, S3Server, running_s3_server

KILL_AFTER = (2.0, 10.0)
"""Seconds between two kills: most runs come to their end, and some do not."""
DRIVER = "tidemill.run.processes.driver"
BALANCED = "lost=0 twice=0"


@dataclass
class Figures:
    """Result of a campaign."""

    rounds: int = 0
    kills: int = 0
    seconds: float = 0.0
    breaches: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = f"{self.kills} kills in {self.rounds} rounds of the demo, {self.seconds:.0f} s"
        return "\n".join([f"{told}; {len(self.breaches)} breaches", *self.breaches])


def campaign(server: S3Server, *, kills: int, seed: int) -> Figures:
    """Play rounds of the demo until so many drivers were killed."""
    figures, dice, begun = Figures(), random.Random(seed), time.monotonic()
    while figures.kills < kills and not figures.breaches:
        _play(server, figures, kills, dice)
        figures.rounds += 1
        print(f"{figures.kills}/{kills} kills, {figures.rounds} rounds, {len(figures.breaches)} breaches", flush=True)
    figures.seconds = time.monotonic() - begun
    return figures


def _play(server: S3Server, figures: Figures, kills: int, dice: random.Random) -> None:
    bucket = server.make_bucket()
    environ = {**os.environ, "AWS_ENDPOINT_URL": server.url, "AWS_REGION": "us-east-1", **KEYS}
    command = [TIDEMILL, "demo", "--days", "1", "--s3", f"s3://{bucket}/demo"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as demo:
        said: list[str] = []
        assert demo.stdout is not None
        reading = threading.Thread(target=said.extend, args=(demo.stdout,))
        reading.start()
        while demo.poll() is None:
            with suppress(subprocess.TimeoutExpired):
                demo.wait(dice.uniform(*KILL_AFTER))
            if figures.kills < kills:
                figures.kills += _strike(demo.pid, dice)
        reading.join()
    last = said[-1].strip() if said else ""
    if demo.returncode or not last.endswith(BALANCED):
        figures.breaches.append(f"the demo ended with {demo.returncode}: {''.join(said[-30:])}")
    figures.breaches += [f"left in the bucket: {name}" for name in server.list(bucket)]


def _strike(demo: int, dice: random.Random) -> bool:
    """Kill a driver of the demo; False if there is none at the moment."""
    try:
        drivers = [child for child in psutil.Process(demo).children(recursive=True) if _is_driver(child)]
        if drivers:
            dice.choice(drivers).kill()
    except psutil.NoSuchProcess:
        return False
    return bool(drivers)


def _is_driver(process: psutil.Process) -> bool:
    try:
        return DRIVER in process.cmdline()
    except psutil.NoSuchProcess:  # also of a process that has ended and that its parent has not asked for
        return False


def _main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    with running_s3_server() as server:
        figures = campaign(server, kills=options.kills, seed=options.seed)
    sys.stdout.write(f"{figures}\n")
    return 1 if figures.breaches else 0


if __name__ == "__main__":
    sys.exit(_main())
