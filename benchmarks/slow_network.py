"""A TCP proxy that makes each round trip longer: `python -m benchmarks.slow_network PORT MILLISECONDS`.

Prints its own port, and works until its input ends. Bytes of the client wait before they go on to the server on PORT;
answers pass at once. So a round trip costs the delay once, however many statements it carries.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


@contextmanager
def slowed(url: str, milliseconds: float) -> Iterator[str]:
    """Yield the URL of the same server behind a proxy, in a process of its own."""
    parts = urlsplit(url)
    command = [sys.executable, "-m", "benchmarks.slow_network", str(parts.port), str(milliseconds)]
    proxy = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert proxy.stdout is not None
    port = proxy.stdout.readline().strip()
    try:
        yield url.replace(f":{parts.port}", f":{port}", 1)
    finally:
        proxy.communicate()


def _serve(port: int, delay: float) -> None:
    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_accept, args=(listener, port, delay), daemon=True).start()
    sys.stdin.read()


def _accept(listener: socket.socket, port: int, delay: float) -> None:
    while True:
        client, _ = listener.accept()
        server = socket.create_connection(("127.0.0.1", port))
        for one in (client, server):
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=_pass_on, args=(client, server, delay), daemon=True).start()
        threading.Thread(target=_pass_on, args=(server, client, 0.0), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket, delay: float) -> None:
    with suppress(OSError):
        while received := source.recv(1 << 16):
            if delay:
                time.sleep(delay)
            target.sendall(received)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    _serve(int(sys.argv[1]), float(sys.argv[2]) / 1000)
