"""Listening: one server in a thread, on a socket that is bound before its address is printed."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from tidemill.config import ADDRESS_FILE
from tidemill.errors import Unavailable, UserError
from tidemill.mill.access import Role
from tidemill.mill.tokens import make_code
from tidemill.server.proxies import TrustedUsers

if TYPE_CHECKING:
    from tidemill.config import ServerSettings
    from tidemill.mill.mill import Mill

_making: Final = threading.Lock()
"""Held while an application is made: pydantic fails when two threads make models at once."""
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_NEXT_PORTS: Final = 20
_AT_ONCE: Final = 16
"""The most connections that are accepted before the first of them is seen, and may be closed."""
_WAITING: Final = 1024
"""The most connections that wait to be accepted."""
_TOKEN_FILE: Final = "token"  # noqa: S105  # a name, no secret


class Unprotected(UserError):
    """The server would be open to a network without TLS."""

    code = "unprotected_server"

    def __init__(self, host: str) -> None:
        self.host = host
        super().__init__(
            f"the server refuses to listen on {host!r} without TLS",
            "set server.tls_cert and server.tls_key, or server.behind_proxy = true if a proxy before it does TLS",
            before=": ",
        )


class BadCertificate(UserError):
    """The server has no certificate that it can show."""

    code = "bad_certificate"

    def __init__(self, certificate: str, key: str, why: str) -> None:
        self.certificate = certificate
        self.key = key
        self.why = why
        files = f"server.tls_cert = {certificate!r} and server.tls_key = {key!r}"
        super().__init__(
            f"{files} cannot be used: {why}",
            "name files in PEM form: the certificate with its chain, and its key without a password",
        )


class NoServer(Unavailable):
    """No server of the project was started on this machine."""

    code = "no_server"

    def __init__(self, folder: str) -> None:
        self.folder = folder
        super().__init__(f"no server was started for the project {folder}", "`tidemill up` starts one")


class PortTaken(Unavailable):
    """No port is free."""

    code = "port_taken"

    def __init__(self, host: str, port: int, why: str) -> None:
        self.host = host
        self.port = port
        self.why = why
        super().__init__(f"the server cannot listen on {host}:{port}: {why}", "choose another server.port")


class Listener:
    """The server of a project. `start` is quick: the application is made in the server's own thread."""

    def __init__(self, mill: Mill, *, with_link: bool = True) -> None:
        self._mill = mill
        self._with_link = with_link
        config = mill.project.config.server
        if config.host not in _LOOPBACK and not (config.tls_cert or config.behind_proxy):
            raise Unprotected(config.host)
        if config.tls_cert:
            _check_certificate(config.tls_cert, config.tls_key)
        TrustedUsers(config)  # a table that cannot be read is refused before anything is served
        self._socket = _bind(config.host, config.port)
        self._end: Callable[[], object] | None = None
        self._thread: threading.Thread | None = None
        self._stopped = threading.Event()

    @property
    def secure(self) -> bool:
        """True if browsers come by TLS."""
        config = self._mill.project.config.server
        return bool(config.tls_cert) or config.behind_proxy

    @property
    def url(self) -> str:
        """The address for browsers of this machine."""
        host, port = self._socket.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self._mill.project.config.server.tls_cert else 'http'}://{shown}:{port}"

    def start(self, failed: Callable[[BaseException], None] | None = None) -> str:
        """Serve in a thread, and return a link that signs a browser in once; empty if none is wanted.

        The file `server` in the state folder names the address, the file `token` has a token of the project's user.
        The thread calls `failed` with an error that ends the server before `stop`.
        """
        project = self._mill.project
        write_token(self._mill)
        project.world.disk.write_bytes(project.config.state / ADDRESS_FILE, f"{self.url}\n".encode())
        self._thread = threading.Thread(target=self._serve_until, args=[failed], name="server", daemon=True)
        self._thread.start()
        return make_link(self._mill, self.url) if self._with_link else ""

    def stop(self) -> None:
        """End the server, unless it has ended: requests under way get a moment, streams end."""
        self._stopped.set()
        if self._thread is not None:
            if self._end is not None:
                with suppress(RuntimeError):  # an error has ended its loop before
                    self._end()
            self._thread.join()
            self._thread = None
        self._socket.close()

    def _serve_until(self, failed: Callable[[BaseException], None] | None) -> None:
        try:
            self._serve()
        except BaseException as error:
            if failed is None:
                raise
            failed(error)

    def _serve(self) -> None:
        import uvicorn
        from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

        from tidemill.server.access import Door
        from tidemill.server.application import make_application
        from tidemill.server.connections import make_protocol, most_connections
        from tidemill.server.proxies import Peers, proxies_of

        config = self._mill.project.config.server
        door = Door(self._mill, hosts=_hosts(config), secure=self.secure)
        with _making:
            app = make_application(door)
        outer: Any = app
        if config.behind_proxy:
            outer = Peers(ProxyHeadersMiddleware(outer, [str(one) for one in proxies_of(config)]))
        stopped = self._stopped

        class Server(uvicorn.Server):
            """Waits for its end without a look every 100 ms, which cost 0.2 % of a core (measured)."""

            async def main_loop(server) -> None:  # noqa: N805  # `self` is the listener
                ended, loop = asyncio.Event(), asyncio.get_running_loop()
                self._end = partial(loop.call_soon_threadsafe, ended.set)
                self._socket.listen(_WAITING)
                if not stopped.is_set():
                    await ended.wait()
                app.state.watcher.stop()
                door.uses.stop()

        settings = uvicorn.Config(
            outer,
            log_config=None,
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            ws="none",
            lifespan="on",
            loop="asyncio",
            http=make_protocol(most_connections()),
            timeout_keep_alive=30,
            timeout_graceful_shutdown=3,
            backlog=_AT_ONCE,
            ssl_certfile=config.tls_cert or None,
            ssl_keyfile=config.tls_key or None,
            ssl_version=ssl.PROTOCOL_TLS_SERVER,
        )
        Server(settings).run(sockets=[self._socket])


def write_token(mill: Mill) -> None:
    """Make a token for the user of this project at the first start; it lies in a file that only this user may read."""
    project = mill.project
    path = project.config.state / _TOKEN_FILE
    if not project.world.disk.exists(path):
        name = f"local-{project.world.token(6)}"
        secret = mill.tokens.create(name, role=Role.ADMIN).secret
        project.world.disk.write_bytes(path, f"{secret}\n".encode())  # for the user alone: mode 0600


def find_server(mill: Mill) -> str:
    """Return the address of the server of this project that was started last on this machine; `NoServer`."""
    project = mill.project
    try:
        return project.world.disk.read_bytes(project.config.state / ADDRESS_FILE).decode().strip()
    except FileNotFoundError:
        raise NoServer(str(project.config.folder)) from None


def make_link(mill: Mill, url: str) -> str:
    """Return a link that signs a browser in once, within ten minutes."""
    project = mill.project
    code = make_code(project.catalog, project.world, role=Role.ADMIN, by=project.actor)
    return f"{url}/login?code={code}"


def _check_certificate(certificate: str, key: str) -> None:
    """Raise `BadCertificate` where the server's thread would fail, after its address has been printed."""
    try:
        # OpenSSL would ask for a password on a terminal that may not be there.
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key or None, password=lambda: b"")
    except OSError as error:  # `ssl.SSLError` is one
        raise BadCertificate(certificate, key, error.strerror or str(error)) from None


def _hosts(config: ServerSettings) -> frozenset[str]:
    return frozenset({*_LOOPBACK, config.host.lower(), *config.names})


def _bind(host: str, port: int) -> socket.socket:
    """Return a listening socket: on the port, else on one of the next that is free, else on any."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    why = ""
    for candidate in (*range(port, min(port + _NEXT_PORTS, 65536)), 0):
        try:
            found = socket.create_server((host, candidate), family=family, backlog=_WAITING)
        except OSError as error:
            why = error.strerror or str(error)
        else:
            # Connections inherit it. Without it the body of an answer waits 40 ms behind its head (measured).
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return found
    raise PortTaken(host, port, why)
