"""Limits of requests, before any route sees them: hosts, sizes, times. A slow or huge request costs a socket, no more.

Pure ASGI, so that a streamed answer is not held back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final, TypeAlias

from fastapi import Request, Response

from tidemill.server.problems import RequestProblem, answer_error
from tidemill.sizes import exact_bytes
from tidemill.world import World

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Asgi: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

MOST_BYTES: Final = 8 * 2**20
"""The most bytes of a body."""
BODY_WITHIN: Final = 20.0
"""The most seconds until the whole body is there."""
_POLICY: Final = (
    b"default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; "
    b"connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (
        b"content-security-policy",
        _POLICY,
    ),
)
_JSON: Final = "application/json"


class ClientGone(Exception):  # no failure of ours
    """The client closed the connection before its request was whole."""


class RequestLimits:
    """Refuse what no route should see; give each request an id, and each answer the headers that browsers obey."""

    def __init__(
        self, inner: Asgi, *, world: World, hosts: frozenset[str], most_bytes: int = MOST_BYTES, prefix: str = ""
    ) -> None:
        self._inner = inner
        self._prefix = prefix
        self._world = world
        self._hosts = hosts
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        request_id = self._world.new_id("req")
        scope.setdefault("state", {})["request_id"] = request_id

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                present = {name for name, _ in message["headers"]}
                own = [*_HEADERS, (b"x-request-id", request_id.encode())]
                if not scope["path"].startswith("/static/"):
                    own.append((b"cache-control", b"no-store"))
                message["headers"] = [*message["headers"], *(one for one in own if one[0] not in present)]
            await send(message)

        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refuse(scope["path"], headers, request_id)
        if refusal is None and not headers.keys() & {"content-length", "transfer-encoding"}:
            await self._carry_out(scope, receive, answer)
            return
        try:
            body = b"" if refusal else await asyncio.wait_for(self._read(receive), BODY_WITHIN)
        except TimeoutError:
            refusal = RequestProblem(408, "slow_body", "the body did not come in time", "send it again").answer(
                request_id
            )
        except ClientGone:
            return
        else:
            refusal = refusal or self._too_large(len(body), request_id) or _not_utf8(scope["path"], body, request_id)
            if refusal is None:
                await self._carry_out(scope, _again(body, receive), answer)
                return
        refusal.headers["connection"] = "close"
        await refusal(scope, receive, answer)

    async def _carry_out(self, scope: Scope, receive: Receive, answer: Send) -> None:
        """Pass a request on. A defect gets its answer here: further out, it would lack the headers of all answers."""
        begun = False

        async def send(message: Message) -> None:
            nonlocal begun
            begun = True
            await answer(message)

        try:
            await self._inner(scope, receive, send)
        except Exception as error:
            if begun:
                raise
            # The page of the defect has links too. The scope out here lacks the prefix, which `AddPrefix` adds.
            asked = {**scope, "root_path": self._prefix, "path": self._prefix + scope["path"]}
            await answer_error(Request(asked), error)(scope, receive, answer)

    def _refuse(self, path: str, named: Mapping[str, str], request_id: str) -> Response | None:
        """Return the refusal of a request by its head alone; None for a request that may go on."""
        host = _host_of(named.get("host", ""))
        if host not in self._hosts:
            wrong = f"this server does not answer for the host {host!r}"
            return RequestProblem(421, "wrong_host", wrong, "add it to the setting server.names").answer(request_id)
        origin = named.get("origin")
        if origin is not None and _host_of(origin.partition("://")[2]) not in self._hosts:
            wrong = f"requests from pages of {origin!r} are refused"
            return RequestProblem(403, "wrong_origin", wrong, "add its host to the setting server.names").answer(
                request_id
            )
        length = named.get("content-length", "0")
        if length.isdecimal() and (refusal := self._too_large(int(length), request_id)):
            return refusal
        media = named.get("content-type", _JSON).partition(";")[0].strip().lower()
        has_body = length != "0" or "transfer-encoding" in named
        if has_body and path.startswith("/v1/") and media != _JSON:
            wrong, hint = f"the body is {media!r}, which no route reads", f"send the body as {_JSON}"
            return RequestProblem(415, "wrong_media_type", wrong, hint).answer(request_id)
        return None

    def _too_large(self, size: int, request_id: str) -> Response | None:
        if size <= self._most_bytes:
            return None
        wrong = f"the body is larger than {exact_bytes(self._most_bytes)}"
        return RequestProblem(413, "body_too_large", wrong, "send less in one request").answer(request_id)

    async def _read(self, receive: Receive) -> bytes:
        """Return the body, cut behind the limit. `ClientGone`."""
        parts, size = [], 0
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self._most_bytes or not message.get("more_body"):
                return b"".join(parts)


def _not_utf8(path: str, body: bytes, request_id: str) -> Response | None:
    """Return the refusal of a body in another encoding than that of JSON: a reader would guess the encoding."""
    if not path.startswith("/v1/"):
        return None
    try:
        body.decode()
    except UnicodeDecodeError as error:
        where = f"byte {error.start}"
    else:
        if (at := body.find(b"\0")) < 0:
            return None
        where = f"a NUL at byte {at}"
    return RequestProblem(400, "bad_encoding", f"the body is no UTF-8 text ({where})", "send JSON in UTF-8").answer(
        request_id
    )


def _again(body: bytes, receive: Receive) -> Receive:
    """Return a `receive` that gives the body once, and then what comes after it."""
    given = False

    async def once() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


def _host_of(text: str) -> str:
    """Return the host of `host:port`, without the brackets of IPv6."""
    if text.startswith("["):
        return text[1:].partition("]")[0].lower()
    return text.partition(":")[0].lower()
