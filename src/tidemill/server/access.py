"""Door: finds the caller of each request, and makes the facade that acts for the caller.

A program sends its token as `Authorization: Bearer …`, and the program of a run may send the run's own. A browser has a
session in a cookie, which it got for a code or a token, or comes through a proxy that names its user. A change by a
browser also needs a word against forged requests, which only our pages know: it is made of the session, or of a random
cookie.
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
from tidemill.mill.run_tokens import RunPrincipal, find_run_principal
from tidemill.mill.tokens import Principal, TokenKind, Unauthorized, csrf_of, find_principal
from tidemill.server.proxies import TrustedUsers
from tidemill.server.rates import Rates, Streams
from tidemill.server.token_uses import TokenUses

if TYPE_CHECKING:
    from fastapi import Request, Response

    from tidemill.catalog.db import Catalog
    from tidemill.world import World

SESSION: Final = "tidemill_session"
"""The cookie of a session."""
CSRF: Final = "x-csrf-token"
"""The header of a browser's word against forged requests."""
SEED: Final = "tidemill_seed"
"""The cookie that the word is made of, for a browser without a session."""
_SEED: Final = 52
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_MOST_FAILURES: Final = 30
"""Failed sign-ins of one address in a minute; then it waits."""
_FAILURES_IN: Final = timedelta(minutes=1)
_MOST_ADDRESSES: Final = 10_000


class Forged(Denied):
    """A change by a browser that did not come from one of our pages."""

    code = "forged_request"

    def __init__(self) -> None:
        super().__init__(
            "the request lacks the word of its browser", f"send it as the header {CSRF.title()}", before=": "
        )


class TooManyFailures(Unavailable):
    """An address that failed to sign in too often."""

    code = "too_many_failures"
    retry_after = 60

    def __init__(self, address: str) -> None:
        self.address = address
        super().__init__(
            f"{address} failed to sign in {_MOST_FAILURES} times within a minute", "wait a minute", before=": "
        )


class Door:
    """Lets callers in to `mill`: finds the caller of each request, and its rights."""

    def __init__(self, mill: Mill, *, hosts: frozenset[str], secure: bool) -> None:
        self.mill = mill
        """The project, as the server itself sees it."""
        self.hosts = hosts
        """Names of hosts that requests may be for."""
        self.secure = secure
        """True if browsers come by TLS, so that cookies are for TLS alone."""
        settings = mill.project.config.server
        self.cookie_path = settings.prefix or "/"
        """The path of cookies: a browser sends them to no other server of the same host."""
        self.users = TrustedUsers(settings)
        self.rates = Rates(mill.project.world, settings.most_requests)
        self.streams = Streams(settings.most_streams)
        self.uses = TokenUses(self.catalog)
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

    def enter(self, request: Request, right: Right, *, whole: bool, own: bool = False) -> Mill:
        """Return the facade for the caller of a request that needs `right`, when `whole` in all namespaces.

        An `own` route is for a run's own token too. `Unauthorized` for an unknown caller, `UnknownUser`, `Forbidden`,
        `OutOfReach`, `Forged`, `TooManyRequests`, `TooManyFailures`.
        """
        try:
            principal, secret = self._find(request)
        except Unauthorized:
            # A request without a secret is no guess: a browser sends one before each sign-in.
            if request.headers.get("authorization") or session_of(request):
                self.note_failure(request)
            raise
        self.rates.take(principal.token_id)
        if principal.kind in {TokenKind.SESSION, TokenKind.USER}:
            self._check_word(request, secret)
        request.state.principal = principal
        if isinstance(principal, RunPrincipal):
            access = principal.reach(self.mill.project, right, request.path_params, own=own)
        else:
            access = principal.access(right)
        access.check_operation(whole=whole)
        return self.mill.acting_as(f"{principal.name}@{address_of(request)}", access)

    def seed_of(self, request: Request) -> str:
        """Return what the word of a browser without a session is made of; a new seed for a browser that has none."""
        return _cookie(request, SEED) or self.world.token(_SEED)

    def keep_seed(self, response: Response, seed: str) -> None:
        """Have the browser keep a seed."""
        self.set_cookie(response, SEED, seed)

    def set_cookie(self, response: Response, name: str, value: str, *, lives: timedelta | None = None) -> None:
        """Have the browser keep a cookie: for `lives`, else until the browser is closed."""
        seconds = None if lives is None else int(lives.total_seconds())
        response.set_cookie(
            name, value, seconds, path=self.cookie_path, httponly=True, samesite="strict", secure=self.secure
        )

    def delete_cookie(self, response: Response, name: str) -> None:
        """Have the browser forget a cookie."""
        response.delete_cookie(name, self.cookie_path, httponly=True, samesite="strict", secure=self.secure)

    def note_failure(self, request: Request) -> None:
        """Count a failed sign-in of an address. `TooManyFailures`."""
        address, now = address_of(request), self.world.clock.monotonic()
        with self._lock:
            recent = [at for at in self._failures.pop(address, ()) if now - at < _FAILURES_IN]
            self._failures[address] = [*recent, now][-_MOST_FAILURES:]
            while len(self._failures) > _MOST_ADDRESSES:
                self._failures.popitem(last=False)
        if len(recent) >= _MOST_FAILURES:
            raise TooManyFailures(address)

    def _find(self, request: Request) -> tuple[Principal, str]:
        """Return the caller, and for a browser the secret that its word is made of."""
        given = request.headers.get("authorization", "")
        scheme, _, secret = given.partition(" ")
        if given:
            if scheme.lower() != "bearer":
                raise Unauthorized("the header Authorization names another scheme than Bearer")
            run = find_run_principal(self.catalog, secret.strip())
            if run is not None:
                return run, ""
            principal = find_principal(self.catalog, secret.strip(), TokenKind.TOKEN)
            self.uses.note(principal, self.world.clock.now())
            return principal, ""
        user = self.users.find(request)
        if user is not None:
            return user, _cookie(request, SEED)
        secret = session_of(request)
        if not secret:
            raise Unauthorized("the request names no caller")
        return find_principal(self.catalog, secret, TokenKind.SESSION), secret

    def _check_word(self, request: Request, secret: str) -> None:
        """Raise `Forged` for a change without the word of its browser, and note the word for the page."""
        if request.method in _SAFE:
            if not secret:
                secret = request.state.new_seed = self.seed_of(request)
            request.state.csrf = csrf_of(secret)
        elif not secret or not is_word(request.headers.get(CSRF, ""), secret):
            raise Forged


def address_of(request: Request) -> str:
    """Return the address that a request comes from."""
    return request.client.host if request.client else "unknown"


def is_word(given: str, secret: str) -> bool:
    """Return whether a text is the word that is made of a secret. In constant time."""
    return hmac.compare_digest(given.encode(), csrf_of(secret).encode())


def session_of(request: Request) -> str:
    """Return the secret in the cookie of a session; empty without one."""
    return _cookie(request, SESSION)


def _cookie(request: Request, name: str) -> str:
    try:
        found = SimpleCookie(request.headers.get("cookie", "")).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value
