"""Door: finds the caller of each request, and makes the facade that acts for the caller.

A program sends its token as `Authorization: Bearer …`. A browser has a session in a cookie, which it got for a code. A
change by a session also needs the session's word against forged requests, which only our pages know.
"""

from __future__ import annotations

import hmac
import threading
from collections import OrderedDict
from datetime import timedelta
from http.cookies import CookieError, SimpleCookie
from typing import TYPE_CHECKING, Final

from tidemill.errors import Denied, Unavailable
from tidemill.mill.mill import Mill
from tidemill.mill.operation import Right
from tidemill.mill.tokens import Principal, TokenKind, Unauthorized, csrf_of, find_principal, note_use

if TYPE_CHECKING:
    from fastapi import Request

    from tidemill.catalog.db import Catalog
    from tidemill.world import World

SESSION: Final = "tidemill_session"
"""The cookie of a session."""
CSRF: Final = "x-csrf-token"
"""The header of the session's word against forged requests."""
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MOST_FAILURES: Final = 30
"""Failed sign-ins of one address in a minute; then it waits."""
_FAILURES_IN: Final = timedelta(minutes=1)
_MOST_ADDRESSES: Final = 10_000


class Forged(Denied):
    """A change by a session that did not come from one of our pages."""

    code = "forged_request"

    def __init__(self) -> None:
        super().__init__(f"the request lacks the word of its session: send it as the header {CSRF.title()}")


class TooManyFailures(Unavailable):
    """An address that failed to sign in too often."""

    code = "too_many_failures"

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(f"{address} failed to sign in {_MOST_FAILURES} times within a minute: wait a minute")


class Door:
    """Lets callers in to `mill`: finds the caller of each request, and its rights."""

    def __init__(self, mill: Mill, *, hosts: frozenset[str], secure: bool) -> None:
        self.mill = mill
        """The project, as the server itself sees it."""
        self.hosts = hosts
        """Names of hosts that requests may be for."""
        self.secure = secure
        """True if browsers come by TLS, so that cookies are for TLS alone."""
        self._failures: OrderedDict[str, list[timedelta]] = OrderedDict()
        self._lock = threading.Lock()

    @property
    def catalog(self) -> Catalog:
        """The catalog."""
        return self.mill.project.catalog

    @property
    def world(self) -> World:
        """The outside."""
        return self.mill.project.world

    def enter(self, request: Request, right: Right, *, whole: bool) -> Mill:
        """Return the facade for the caller of a request that needs `right`, when `whole` in all namespaces.

        `Unauthorized` for an unknown caller, `Forbidden`, `Forged`, `TooManyFailures`.
        """
        address = request.client.host if request.client else "unknown"
        try:
            principal, secret = self._find(request)
        except Unauthorized:
            self._note_failure(address)
            raise
        if principal.kind is TokenKind.SESSION:
            word = csrf_of(secret)
            request.state.csrf = word
            if request.method not in _SAFE and not hmac.compare_digest(request.headers.get(CSRF, ""), word):
                raise Forged
        request.state.principal = principal
        access = principal.access(right)
        access.check_operation(whole=whole)
        return self.mill.acting_as(f"{principal.name}@{address}", access)

    def _find(self, request: Request) -> tuple[Principal, str]:
        given = request.headers.get("authorization", "")
        scheme, _, secret = given.partition(" ")
        if given:
            if scheme.lower() != "bearer":
                raise Unauthorized("the header Authorization names another scheme than Bearer")
            principal = find_principal(self.catalog, secret.strip(), TokenKind.TOKEN)
            self._note_use(principal)
            return principal, secret
        secret = session_of(request)
        if not secret:
            raise Unauthorized("the request names no caller")
        return find_principal(self.catalog, secret, TokenKind.SESSION), secret

    def _note_use(self, principal: Principal) -> None:
        try:
            note_use(self.catalog, principal, self.world.clock.now())
        except Unavailable:
            return  # a look must work while the catalog cannot be written to

    def _note_failure(self, address: str) -> None:
        now = self.world.clock.monotonic()
        with self._lock:
            recent = [at for at in self._failures.pop(address, ()) if now - at < _FAILURES_IN]
            self._failures[address] = [*recent, now][-_MOST_FAILURES:]
            while len(self._failures) > _MOST_ADDRESSES:
                self._failures.popitem(last=False)
        if len(recent) >= _MOST_FAILURES:
            raise TooManyFailures(address)


def session_of(request: Request) -> str:
    """Return the secret in the cookie of a session; empty without one."""
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(SESSION)
    except CookieError:
        return ""
    return "" if found is None else found.value
