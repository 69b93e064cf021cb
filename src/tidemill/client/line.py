"""The line to a server: requests with a token, repeated where that is safe, and the errors that answers name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from tidemill.errors import Conflict, Denied, NotFound, TidemillError, Unavailable, UserError

if TYPE_CHECKING:
    from httpx import Client, Response

    from tidemill.world import World

_TRIES: Final = 5
_FIRST_WAIT: Final = timedelta(milliseconds=200)
_TIMEOUT: Final = 60.0
"""Seconds for the answer to a request. The server answers within 30."""
_MOMENT: Final = 2.0
"""Seconds for the answer to the question whether a server of Tidemill is there at all."""
_BUSY: Final = frozenset({429, 503})
_LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})
_BASES: Final[Mapping[int, type[TidemillError]]] = {
    400: UserError,
    401: Denied,
    403: Denied,
    404: NotFound,
    409: Conflict,
    412: Conflict,
    413: UserError,
    415: UserError,
    422: UserError,
    429: Unavailable,
    503: Unavailable,
}
_OF_PROBLEMS: Final = frozenset({"type", "title", "status", "detail", "code", "request_id", "wrong", "hint"})


class BadServer(UserError):
    """An address of a server that cannot be used."""

    code = "bad_server"

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        self.why = why
        super().__init__(f"the server {url!r} is refused: {why}", "write it like http://127.0.0.1:8300")


class ServerUnavailable(Unavailable):
    """No server answers at the address."""

    code = "server_unavailable"

    def __init__(self, url: str, why: str) -> None:
        self.url = url
        self.why = why
        super().__init__(f"the server {url} does not answer: {why}", "`tidemill server` starts one")


class NoTidemill(UserError):
    """Something else than a server of Tidemill answers at the address."""

    code = "no_tidemill"

    def __init__(self, url: str, status: int) -> None:
        self.url = url
        self.status = status
        super().__init__(f"{url} answers with status {status}, not as a server of Tidemill does", "check the address")


class Line:
    """A line to the server at `url`, with the secret of a token."""

    def __init__(self, url: str, token: str, world: World) -> None:
        self.url = _check(url)
        """The address of the server."""
        self._world = world
        self._client = _open(self.url, token)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def ask(self, path: str, query: Mapping[str, Any]) -> Any:  # noqa: ANN401  # JSON
        """Return the answer to a read."""
        return self._send("GET", path, {"params": query}, repeated=True)

    def change(self, method: str, path: str, body: object, *, keyed: bool, generation: object = None) -> Any:  # noqa: ANN401  # JSON
        """Return the answer to a change; if `keyed`, it is made once, though the request may be sent again.

        With a `generation` the server refuses the change of a thing that another caller has changed since.
        """
        headers = {"idempotency-key": self._world.token(26)} if keyed else {}
        if generation == 0:
            headers["if-none-match"] = "*"
        elif generation is not None:
            headers["if-match"] = f'"{generation}"'
        return self._send(method, path, {"json": body, "headers": headers}, repeated=keyed)

    @contextmanager
    def stream(self, path: str, query: Mapping[str, Any], accept: str) -> Iterator[Iterator[str]]:
        """Open an answer of many lines, which may go on for long. It is not repeated."""
        from httpx import HTTPError

        try:
            headers = {"accept": accept}
            with self._client.stream("GET", path, params=query, headers=headers, timeout=None) as response:
                if not response.is_success:
                    response.read()
                    raise self._error(response)
                yield response.iter_lines()
        except HTTPError as error:
            raise ServerUnavailable(self.url, str(error) or type(error).__name__) from None

    def _send(self, method: str, path: str, parts: Mapping[str, Any], *, repeated: bool) -> Any:  # noqa: ANN401  # JSON
        from httpx import ConnectError, HTTPError, InvalidURL

        wait = _FIRST_WAIT
        for left in reversed(range(_TRIES)):
            error: TidemillError
            try:
                response = self._client.request(method, path, **parts)
            except (HTTPError, InvalidURL) as failed:
                error = ServerUnavailable(self.url, str(failed) or type(failed).__name__)
                # A server that was not reached has changed nothing.
                again = repeated or isinstance(failed, ConnectError)
            else:
                if response.is_success:
                    return self._read(response)
                error = self._error(response)
                again = repeated and response.status_code in _BUSY
            if not (again and left):
                raise error
            self._world.clock.sleep(self._world.between(wait / 2, wait))
            wait *= 2
        raise AssertionError

    def _read(self, response: Response) -> Any:  # noqa: ANN401  # JSON
        try:
            return response.json()
        except ValueError:
            raise NoTidemill(self.url, response.status_code) from None

    def _error(self, response: Response) -> TidemillError:
        try:
            problem = response.json()
            code, detail, wrong = (str(problem[name]) for name in ("code", "detail", "wrong"))
        except (ValueError, LookupError, TypeError):
            return NoTidemill(self.url, response.status_code)
        kind = _kinds().get(code) or _unknown(code, _BASES.get(response.status_code, TidemillError))
        error = kind.__new__(kind, detail)
        TidemillError.__init__(error, wrong)
        error.args = (detail,)
        error.hint = str(problem.get("hint", error.hint))
        vars(error).update({name: value for name, value in problem.items() if name not in _OF_PROBLEMS})
        return error


def ask_version(url: str) -> str:
    """Return the version of the server of Tidemill at an address of this machine; empty if something else is there."""
    import httpx

    try:
        # No secret is sent, so a certificate that no authority knows does no harm.
        answer = httpx.get(f"{url}/version", timeout=_MOMENT, trust_env=False, verify=False)  # noqa: S501
        version = answer.json()["version"]
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, LookupError, TypeError):
        return ""
    return version if answer.is_success and isinstance(version, str) else ""


def _open(url: str, token: str) -> Client:
    import ssl

    from httpx import Client

    headers = {"authorization": f"Bearer {token}"} if token else {}
    # To read the certificates of all authorities takes 25 ms, in vain for a server of this machine by HTTP.
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT) if url.startswith("http:") else True
    # No proxy and no password file of the environment: the token goes to the named server only.
    return Client(base_url=url, headers=headers, timeout=_TIMEOUT, trust_env=False, verify=trusted)


def _check(url: str) -> str:
    """Return the address; `BadServer` where the token would be sent without TLS."""
    from httpx import URL, InvalidURL

    try:
        parts = URL(url)
    except (InvalidURL, ValueError) as error:
        raise BadServer(url, str(error)) from None
    if parts.scheme not in ("http", "https") or not parts.host:
        raise BadServer(url, "it is no address of http or https")
    if parts.scheme == "http" and parts.host not in _LOOPBACK:
        raise BadServer(url, "without TLS the token could be read on the way; use https")
    return url.rstrip("/")


@cache
def _kinds() -> Mapping[str, type[TidemillError]]:
    found: dict[str, type[TidemillError]] = {}
    waiting: list[type[TidemillError]] = [TidemillError]
    while waiting:
        kind = waiting.pop()
        found[kind.code] = kind
        waiting += kind.__subclasses__()
    return found


def _unknown(code: str, base: type[TidemillError]) -> type[TidemillError]:
    """Return a class for a code that this version does not know, or whose class no module here has loaded."""
    return type("ServerError", (base,), {"code": code, "__doc__": "An error of the server."})


def parse_line(text: str) -> Any:  # noqa: ANN401  # JSON
    """Return the JSON of a line of a stream."""
    return json.loads(text)
