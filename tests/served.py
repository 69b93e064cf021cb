"""A server of a project for a test, and a token for it."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidemill import Mill
from tidemill.server.listen import Listener

NO_AUTHORITIES: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients by HTTP: each of them would read the certificates of all authorities, for 0.02 s."""


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
