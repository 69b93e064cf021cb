"""An S3 server of the tests' own: moto, in a process of its own."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from urllib.parse import quote

import httpx

from tests.yardstick import patience
from tidemill.stores import StoreSettings
from tidemill.world import World

KEYS = {"AWS_ACCESS_KEY_ID": "an-id-for-tests", "AWS_SECRET_ACCESS_KEY": "a-secret-for-tests"}


@dataclass(frozen=True)
class S3Server:
    """A server that runs; its objects are in its memory."""

    url: str

    @property
    def world(self) -> World:
        """A world whose buckets are on this server."""
        settings = StoreSettings(name="tests", url="", endpoint=self.url, region="us-east-1", path_style=True)
        world = World()
        return replace(world, environ={**world.environ, **KEYS}, stores=(settings,))

    def make_bucket(self) -> str:
        """Make an empty bucket, and return its name."""
        name = f"bucket-{uuid.uuid4().hex}"
        httpx.put(f"{self.url}/{name}", timeout=patience(20)).raise_for_status()
        return name

    def put(self, url: str, content: bytes) -> None:
        """Write an object, given its `s3://BUCKET/NAME`."""
        httpx.put(f"{self.url}/{quote(url.removeprefix('s3://'))}", content=content).raise_for_status()

    def list(self, bucket: str) -> list[str]:
        """Return the names of all objects of a bucket."""
        answer = httpx.get(f"{self.url}/{bucket}", params={"list-type": "2"}, timeout=patience(20)).raise_for_status()
        return re.findall("<Key>(.*?)</Key>", answer.text)


@contextmanager
def running_s3_server() -> Iterator[S3Server]:
    """Start a server on a free port; end it after the block."""
    with running_process("moto.server", "-H", "127.0.0.1", "-p") as url:
        yield S3Server(url)


@contextmanager
def running_process(module: str, *arguments: str) -> Iterator[str]:
    """Run a module that serves on the port of its last argument; give its address, and end it after the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", module, *arguments, str(port)]
    url = f"http://127.0.0.1:{port}"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            give_up_at = time.monotonic() + patience(60)
            while not _answers(url):
                assert process.poll() is None
                assert time.monotonic() < give_up_at
                time.sleep(0.1)
            yield url
        finally:
            process.kill()


def _answers(url: str) -> bool:
    try:
        return httpx.get(url, timeout=patience(20)).is_success
    except httpx.TransportError:
        return False
