"""Proxies: the machines before the server whose word on a caller counts: its address, and the user they signed in.

Any program can send the headers of a proxy. They count only on connections from this machine or from the addresses of
the setting `server.proxies`, and only with `server.behind_proxy`.
"""

from __future__ import annotations

from collections.abc import Collection, MutableMapping
from ipaddress import IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, Any, Final

from tidemill.config import BadConfig, Network, ServerSettings
from tidemill.errors import Denied
from tidemill.mill.access import ALL_NAMESPACES, Role
from tidemill.mill.tokens import Principal, TokenKind, Unauthorized
from tidemill.names import BadName, check_name

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from fastapi import Request

_LOOPBACK: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
_ANY: Final = "*"
_IN: Final = " in "


class UnknownUser(Denied):
    """A user that the proxy has signed in, and that has no role here."""

    code = "unknown_user"

    def __init__(self, user: str) -> None:
        self.user = user
        super().__init__(
            f"the user {user!r} has no role here", "give one in tidemill.toml, in the table [server.users]", before=": "
        )


class TrustedUsers:
    """Users that a proxy may name in a header, with their roles. Raises `BadConfig`."""

    def __init__(self, settings: ServerSettings) -> None:
        self._header = settings.trust_header
        self._networks = proxies_of(settings)
        self._roles = {user: _role_of(user, text) for user, text in settings.users.items()}
        if self._header and not settings.behind_proxy:
            raise BadConfig(
                "server.trust_header", self._header, "it needs behind_proxy = true, and a proxy that sets it"
            )
        if self._header and not self._roles:
            raise BadConfig("server.trust_header", self._header, "it needs the table [server.users] with their roles")

    def find(self, request: Request) -> Principal | None:
        """Return the user that a proxy names; None without one, or from elsewhere. `Unauthorized`, `UnknownUser`."""
        if not self._header or not is_trusted(request.scope["state"].get("peer", ""), self._networks):
            return None
        named = request.headers.getlist(self._header)
        if len(named) > 1:  # a proxy that adds its header to that of its caller
            raise Unauthorized(f"the header {self._header} stands there {len(named)} times: the proxy must replace it")
        user = named[0].strip() if named else ""
        if not user:
            return None
        role, namespace = self.role_of(user)
        return Principal(f"user:{user}", TokenKind.USER, user, "", role, namespace, None)

    def role_of(self, user: str) -> tuple[Role, str]:
        """Return the role of a user, and the namespace of the role. `UnknownUser`."""
        found = self._roles.get(user) or self._roles.get(_ANY)
        if found is None:
            raise UnknownUser(user)
        return found


class Peers:
    """ASGI: notes the address of each connection, before the headers of a proxy change it."""

    def __init__(self, inner: Callable[[Any, Any, Any], Awaitable[None]]) -> None:
        self._inner = inner

    async def __call__(self, scope: MutableMapping[str, Any], receive: object, send: object) -> None:
        if scope["type"] == "http" and scope.get("client"):
            scope.setdefault("state", {})["peer"] = scope["client"][0]
        await self._inner(scope, receive, send)


def proxies_of(settings: ServerSettings) -> tuple[Network, ...]:
    """Return the networks whose word counts; none without a proxy."""
    return (*_LOOPBACK, *settings.proxies) if settings.behind_proxy else ()


def is_trusted(peer: str, networks: Collection[Network]) -> bool:
    """Return whether an address is in one of the networks."""
    try:
        address = ip_address(peer)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return any(address in one for one in networks)


def _role_of(user: str, text: str) -> tuple[Role, str]:
    role, within, namespace = text.partition(_IN)
    try:
        return Role(role.strip()), check_name("namespace", namespace.strip()) if within else ALL_NAMESPACES
    except (ValueError, BadName):
        why = f"use a role ({', '.join(Role)}), or a role in a namespace such as 'viewer in shop', not {text!r}"
        raise BadConfig(f"server.users.{user}", "tidemill.toml", why) from None
