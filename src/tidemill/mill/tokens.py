"""Tokens: the callers of the server, their roles, and the sessions of browsers.

A secret is 256 random bits behind a prefix that finds its row. The catalog has the SHA-256 of the secret alone. Each
request looks the row up, so that a revoked token is refused by all servers at once.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

from tidemill.catalog.audit_log import NoteChange
from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import load_sql
from tidemill.durations import parse_duration
from tidemill.errors import Conflict, Denied, NotFound, UserError
from tidemill.mill.access import ALL_NAMESPACES, Access, Role
from tidemill.mill.operation import Right, operation
from tidemill.mill.page import PAGE, Page, cut, one_more, read_key, write_key
from tidemill.mill.project import Noun
from tidemill.names import advise, check_name
from tidemill.token_text import BEGINNING, SECRET, digest_of
from tidemill.world import World

if TYPE_CHECKING:
    from tidemill.mill.tokens_sql import Sql

SQL: Sql = load_sql(__file__)

SESSION_FOR: Final = timedelta(days=14)
CODE_FOR: Final = timedelta(minutes=10)
_USED_EVERY: Final = timedelta(minutes=1)
_PREFIX: Final = 8


class TokenKind(StrEnum):
    """Uses of a secret."""

    TOKEN = "token"  # noqa: S105  # a word, no secret
    SESSION = "session"
    CODE = "code"
    USER = "user"
    """No secret: a proxy before the server has signed the user in."""
    RUN = "run"
    """A run's own token, whose digest is in the row of the run."""


class Unauthorized(Denied):
    """The request names no caller, or names it by a secret that is unknown, revoked or expired."""

    code = "unauthorized"

    def __init__(self, why: str) -> None:
        self.why = why
        super().__init__(
            why, "send `Authorization: Bearer TOKEN`, or open the link of `tidemill open` in a browser", before=": "
        )


class TokenExists(Conflict):
    """A token of that name is in use."""

    code = "token_exists"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(
            f"there is a token {name!r}",
            f"revoke it first (`tidemill token revoke {name}`), or take another name",
            before=": ",
        )


class BadRole(UserError):
    """A role that there is not."""

    code = "bad_role"

    def __init__(self, role: str) -> None:
        self.role = role
        known = ", ".join(Role)
        super().__init__(f"role {role!r} is refused", advise(role, list(Role), f"use one of {known}"))


@dataclass(frozen=True, slots=True)
class TokenView:
    """A token: its name, role, namespace (`*` for all), the first characters of its secret, and its times."""

    name: str
    prefix: str
    role: Role
    namespace: str
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    last_used_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class NewToken:
    """A new token. Its `secret` is shown once, and cannot be read again."""

    name: str
    role: Role
    namespace: str
    expires_at: datetime | None
    secret: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RevokedToken:
    """A token that was revoked; `changed` is false if that was so already."""

    name: str
    changed: bool


@dataclass(frozen=True, slots=True)
class Principal:
    """A caller of the server, as its secret says."""

    token_id: str
    kind: TokenKind
    name: str
    digest: str
    role: Role
    namespace: str
    last_used_at: datetime | None

    def access(self, right: Right) -> Access:
        """Return the access of this caller for an operation that needs `right`."""
        return Access(self.role, self.namespace, right)

    def may(self, right: Right, whole: bool) -> bool:  # noqa: FBT001  # a row of the table of rights
        """Return whether this caller has a right, when `whole` in all namespaces."""
        return self.role.grants(right) and not (whole and self.namespace != ALL_NAMESPACES)


class Tokens(Noun):
    """Operations on tokens."""

    noun = "token"

    @operation(Right.ADMIN, whole=True, no_key="its answer has a secret, which is kept nowhere")
    def create(
        self, name: str, *, role: str, namespace: str | None = None, expires: str | timedelta | None = None
    ) -> NewToken:
        """Create a token with a role, in one namespace or in all, and return its secret, which is shown once.

        `expires` is a duration; without it, the token lives until it is revoked. `BadRole`, `BadName`, `TokenExists`.
        """
        check_name("token", name)
        if role not in list(Role):
            raise BadRole(role)
        space = ALL_NAMESPACES if namespace is None else check_name("namespace", namespace)
        lives = None if expires is None else parse_duration(expires) if isinstance(expires, str) else expires

        def block(db: Db) -> NewToken:
            db.tick()
            if db.all(SQL.find_by_name, name=name):
                raise TokenExists(name)
            wanted = _Wanted(TokenKind.TOKEN, name, Role(role), space, lives)
            secret, expires_at = _insert(db, self._world, wanted, self._project.actor)
            record = {**_rights_of(wanted), "expires_at": expires_at and expires_at.isoformat()}
            self._note("create", name).between(None, record).write(db)
            return NewToken(name, wanted.role, space, expires_at, secret)

        return self._catalog.write(block)

    @operation(Right.ADMIN, whole=True, no_audit="changes nothing")
    def list(
        self, *, namespace: str | None = None, role: str | None = None, limit: int = PAGE, after: str = ""
    ) -> Page[TokenView]:
        """List tokens by name, with their last use; never their secrets.

        `namespace` leaves those whose only namespace that is; `*` stands for tokens of all namespaces. `role` leaves
        those with that role. `BadName`, `BadRole`. Cost: the tokens between those of the page.
        """
        name, token_id = read_key(after, ("", ""))
        if namespace not in {None, ALL_NAMESPACES}:
            check_name("namespace", namespace)
        if role is not None and role not in [*Role]:
            raise BadRole(role)
        rows = self._catalog.read(
            lambda db: db.records(
                SQL.list_tokens,
                _ListedToken,
                namespace=namespace or "",
                role=role or "",
                after_name=name,
                after_id=token_id,
                limit=one_more(limit),
            )
        )
        return cut(rows, limit, lambda row: write_key(row.name, row.token_id), _view)

    @operation(Right.ADMIN, whole=True, in_block=True)
    def revoke(self, name: str) -> RevokedToken:
        """Revoke a token: each server refuses it from now on. `NotFound`."""

        def block(db: Db) -> RevokedToken:
            db.tick()
            found = db.record(SQL.find_by_name, _TokenInUse, name=name)
            if found is None:
                if db.all(SQL.find_ended, name=name):
                    return RevokedToken(name, changed=False)
                raise NotFound("token", name, hint="`tidemill token list` lists them all")
            db.run(SQL.end_token, token_id=found.token_id)
            self._note("revoke", name).between(_rights_of(found), None).write(db)
            return RevokedToken(name, changed=True)

        return self._catalog.write(block)


@dataclass(frozen=True, slots=True)
class _Wanted:
    kind: TokenKind
    name: str
    role: Role
    namespace: str
    lives: timedelta | None


class _TokenInUse(NamedTuple):
    token_id: str
    role: Role
    namespace: str


@dataclass(frozen=True, slots=True)
class _ListedToken(TokenView):
    token_id: str


def find_principal(catalog: Catalog, secret: str, kind: TokenKind) -> Principal:
    """Return the caller whose secret that is; `Unauthorized`."""
    prefix = secret.removeprefix(BEGINNING)[:_PREFIX]
    whole = len(secret) == len(BEGINNING) + _PREFIX + SECRET and secret.isascii()
    found = catalog.read(lambda db: db.record(SQL.find_by_prefix, Principal, prefix=prefix)) if whole else None
    # In constant time: the time of an answer tells nothing of the digest.
    if found is None or found.kind is not kind or not hmac.compare_digest(found.digest, digest_of(secret)):
        raise Unauthorized(f"the {kind} is not known, was revoked, or has expired")
    return found


def find_live(db: Db, callers: Iterable[Principal]) -> dict[str, timedelta | None]:
    """Return the ids of the callers that are still let in, each with the time until its secret expires.

    Cost: one statement, a look-up for each. The user of a proxy has no secret that could end.
    """
    of_kind: dict[TokenKind, list[str]] = {}
    for one in callers:
        of_kind.setdefault(one.kind, []).append(one.token_id)
    users, attempts = of_kind.pop(TokenKind.USER, []), of_kind.pop(TokenKind.RUN, [])
    found = db.records(
        SQL.list_live,
        tuple[str, timedelta | None],
        token_ids=json.dumps([one for ids in of_kind.values() for one in ids]),
        runs=json.dumps([one.partition(".")[0] for one in attempts]),
    )
    return dict.fromkeys(users) | dict(found)


def is_due(principal: Principal, now: datetime) -> bool:
    """Return whether the use of a token is to be noted: once a minute, as each use would be a write."""
    return principal.last_used_at is None or now - principal.last_used_at >= _USED_EVERY


def note_use(catalog: Catalog, principal: Principal, now: datetime) -> None:
    """Note that a token was used."""
    catalog.write(lambda db: db.run(SQL.note_use, token_id=principal.token_id, last_used_at=now))


def make_code(catalog: Catalog, world: World, *, role: Role, by: str) -> str:
    """Return a code that a browser turns into a session once, within ten minutes."""
    wanted = _Wanted(TokenKind.CODE, by, role, ALL_NAMESPACES, CODE_FOR)

    def block(db: Db) -> str:
        NoteChange(world.new_id("audit"), by, "session.code", by, {}).between(None, _rights_of(wanted)).write(db)
        return _insert(db, world, wanted, by)[0]

    return catalog.write(block)


def open_session(catalog: Catalog, world: World, code: str, address: str) -> str:
    """Turn a code into the secret of a session; `Unauthorized` for a code that is not known or was used."""
    principal = find_principal(catalog, code, TokenKind.CODE)

    def block(db: Db) -> str:
        if db.run(SQL.end_token, token_id=principal.token_id) == 0:
            raise Unauthorized("the code was used before")
        return _insert_session(db, world, principal, None, address)

    return catalog.write(block)


def sign_in(catalog: Catalog, world: World, secret: str, address: str) -> str:
    """Return the secret of a new session with the rights of a token; the session ends with it. `Unauthorized`."""
    principal = find_principal(catalog, secret, TokenKind.TOKEN)
    return catalog.write(lambda db: _insert_session(db, world, principal, principal.token_id, address))


def end_session(catalog: Catalog, world: World, principal: Principal, address: str) -> None:
    """End a session in all servers: the browser has to sign in again."""

    def block(db: Db) -> None:
        if db.run(SQL.end_token, token_id=principal.token_id):
            _note_session(world, "end", principal, address).between(_rights_of(principal), None).write(db)

    catalog.write(block)


def csrf_of(secret: str) -> str:
    """Return what a page of the session sends along with each change: another site cannot know it."""
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


def _note_session(world: World, verb: str, principal: Principal, address: str) -> NoteChange:
    return NoteChange(
        world.new_id("audit"), f"{principal.name}@{address}", f"session.{verb}", principal.name, {"by": principal.kind}
    )


def _rights_of(row: Principal | _Wanted | _TokenInUse) -> dict[str, object]:
    return {"role": row.role, "namespace": row.namespace}


def _insert_session(db: Db, world: World, principal: Principal, opened_by: str | None, address: str) -> str:
    db.run(SQL.delete_expired)
    _note_session(world, "open", principal, address).between(None, _rights_of(principal)).write(db)
    wanted = _Wanted(TokenKind.SESSION, principal.name, principal.role, principal.namespace, SESSION_FOR)
    return _insert(db, world, wanted, principal.name, opened_by)[0]


def _insert(
    db: Db, world: World, wanted: _Wanted, by: str, opened_by: str | None = None
) -> tuple[str, datetime | None]:
    secret = f"{BEGINNING}{world.token(_PREFIX + SECRET)}"
    expires_at = None if wanted.lives is None else db.now() + wanted.lives
    db.run(
        SQL.insert_token,
        token_id=world.new_id("tok"),
        kind=wanted.kind,
        name=wanted.name,
        prefix=secret.removeprefix(BEGINNING)[:_PREFIX],
        digest=digest_of(secret),
        role=wanted.role,
        namespace=wanted.namespace,
        created_by=by,
        opened_by=opened_by,
        expires_at=expires_at,
    )
    return secret, expires_at


def _view(row: _ListedToken) -> TokenView:
    return TokenView(**{name: getattr(row, name) for name in TokenView.__dataclass_fields__})
