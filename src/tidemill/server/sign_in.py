"""Signing in and out: a browser turns the code of a link, or a token, into a session. No script is needed.

The form has a word made of a random cookie of the same browser: a page of another site cannot sign a browser in or out.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import parse_qs, urlencode

from fastapi import Body, Request, Response
from starlette.responses import HTMLResponse, RedirectResponse

from tidemill.mill.tokens import (
    SESSION_FOR,
    TokenKind,
    Unauthorized,
    csrf_of,
    end_session,
    find_principal,
    open_session,
    sign_in,
)
from tidemill.server.access import SESSION, Forged, address_of, is_word, session_of
from tidemill.server.guard import open_to_all
from tidemill.server.pages.render import render

if TYPE_CHECKING:
    from tidemill.server.access import Door

_log = logging.getLogger(__name__)

LOGIN: Final = "/login"
LOGOUT: Final = "/logout"
_FORM: Final = "application/x-www-form-urlencoded"
_Form = Annotated[bytes, Body(media_type=_FORM)]


@open_to_all
def show_login(request: Request, code: str = "", next: str = "/") -> Response:  # noqa: A002  # a name in the URL
    """Turn the code of a link into the session of a browser, once; without a code, ask for a token."""
    door: Door = request.app.state.door
    if not code:
        return _ask(request, next, "")
    try:
        secret = open_session(door.catalog, door.world, code, address_of(request))
    except Unauthorized:
        door.note_failure(request)
        raise
    return _signed_in(request, secret, "/")


@open_to_all
def login(request: Request, form: _Form = b"") -> Response:
    """Sign a browser in with the token of a form. A wrong one is asked for again."""
    door: Door = request.app.state.door
    fields = _read(form)
    if not is_word(fields.get("word", ""), door.seed_of(request)):
        raise Forged
    try:
        secret = sign_in(door.catalog, door.world, fields.get("token", "").strip(), address_of(request))
    except Unauthorized as error:
        door.note_failure(request)
        return _ask(request, fields.get("next", "/"), error.why, status=401)
    return _signed_in(request, secret, fields.get("next", "/"))


@open_to_all
def logout(request: Request, form: _Form = b"") -> Response:
    """End the session of a browser, in all servers at once."""
    door: Door = request.app.state.door
    secret = session_of(request)
    try:
        principal = find_principal(door.catalog, secret, TokenKind.SESSION)
    except Unauthorized:
        pass  # it has ended already
    else:
        if not is_word(_read(form).get("word", ""), secret):
            raise Forged
        end_session(door.catalog, door.world, principal, address_of(request))
        _note(request, "sign-out", principal.name)
    left = RedirectResponse(_prefix(request) + LOGIN, 303)
    door.delete_cookie(left, SESSION)
    return left


def redirect_to_login(request: Request) -> Response:
    """Return the answer for a browser without a session: the form, which leads to what the browser asked for."""
    asked = request.url.path.removeprefix(_prefix(request)) + (f"?{request.url.query}" if request.url.query else "")
    return RedirectResponse(f"{_prefix(request)}{LOGIN}?{urlencode({'next': asked})}", 303)


def _ask(request: Request, following: str, why: str, *, status: int = 200) -> HTMLResponse:
    door: Door = request.app.state.door
    seed = door.seed_of(request)
    values = {"title": "Sign in", "bare": True, "word": csrf_of(seed), "following": _own(following), "why": why}
    page = render(request, "login.html", status, **values)
    door.keep_seed(page, seed)
    return page


def _note(request: Request, event: str, name: str) -> None:
    fields = {"actor": f"{name}@{address_of(request)}", "request_id": request.state.request_id}
    _log.info("%s", fields["actor"], extra={"event": event, "subject": name, "fields": fields})


def _signed_in(request: Request, secret: str, following: str) -> Response:
    door: Door = request.app.state.door
    _note(request, "sign-in", find_principal(door.catalog, secret, TokenKind.SESSION).name)
    found = RedirectResponse(_prefix(request) + _own(following), 303)
    door.set_cookie(found, SESSION, secret, lives=SESSION_FOR)
    return found


def _own(place: str) -> str:
    """Return a place of this server; the first page for any other, such as `//host`."""
    plain = place.isascii() and place.isprintable() and "\\" not in place and place.startswith("/")
    return place if plain and not place.startswith("//") else "/"


def _prefix(request: Request) -> str:
    prefix: str = request.scope.get("root_path", "")
    return prefix


def _read(form: bytes) -> dict[str, str]:
    """Return the fields of a form, of a field that stands there twice the first; nothing of what is no form."""
    try:
        fields = parse_qs(form.decode(), max_num_fields=10)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}
