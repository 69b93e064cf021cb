"""A server of a project for a test, and a token for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidemill import Mill
from tidemill.server.listen import Listener


@contextmanager
def serving(mill: Mill, role: str = "admin") -> Iterator[tuple[str, str]]:
    """Serve a project, whose `server.port` is 0; the address, and the secret of a token called `client`."""
    listener = Listener(mill, with_link=False)
    secret = mill.tokens.create("client", role=role).secret
    listener.start()
    try:
        yield listener.url, secret
    finally:
        listener.stop()
