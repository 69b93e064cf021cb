"""Access: the namespaces in which a caller may do what it asks for.

The user of a process that can open the catalog may do all. A caller of the server has the role of its token, in one
namespace or in all. Names lead to a namespace (`Project.split`), and lists are cut to the namespaces that the caller
may read: what a caller may not read is for it as if it did not exist.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from tidemill.errors import Denied
from tidemill.mill.operation import Right
from tidemill.names import Namespace, namespace_of_consumer, namespace_of_event

ALL_NAMESPACES: Final = "*"


class Role(StrEnum):
    """Roles of a token. Each role includes the rights of those above it."""

    VIEWER = "viewer"
    OPERATOR = "operator"
    DEVELOPER = "developer"
    ADMIN = "admin"

    @property
    def right(self) -> Right:
        """The greatest right of the role."""
        return _RIGHTS[self]

    def grants(self, right: Right) -> bool:
        """Return whether the role includes `right`."""
        rights = list(Right)
        return rights.index(right) <= rights.index(self.right)


_RIGHTS: Final = {
    Role.VIEWER: Right.READ,
    Role.OPERATOR: Right.OPERATE,
    Role.DEVELOPER: Right.DEPLOY,
    Role.ADMIN: Right.ADMIN,
}


class Forbidden(Denied):
    """The caller has not the right that the operation needs."""

    code = "forbidden"

    def __init__(self, right: str, namespace: str) -> None:
        self.right = right
        self.namespace = namespace
        where = "in all namespaces" if namespace == ALL_NAMESPACES else f"in namespace {namespace}"
        super().__init__(
            f"the right {str(right)!r} {where} is missing", "use a token whose role includes it", before=": "
        )


@dataclass(frozen=True, slots=True)
class Access:
    """A role in one namespace, or in all of them (`*`), for an operation that needs `right`."""

    role: Role = Role.ADMIN
    namespace: str = ALL_NAMESPACES
    right: Right = Right.READ

    def check_operation(self, *, whole: bool) -> None:
        """Raise `Forbidden` unless the role includes the right, of a `whole` operation in all namespaces."""
        if not self.role.grants(self.right):
            raise Forbidden(self.right, self.namespace)
        if whole and self.namespace != ALL_NAMESPACES:
            raise Forbidden(self.right, ALL_NAMESPACES)

    def sees(self, namespace: Namespace | None) -> bool:
        """Return whether the caller may read what belongs to a namespace; None is what belongs to no single one."""
        return self.namespace in (ALL_NAMESPACES, namespace)

    def sees_name(self, qualified_name: str) -> bool:
        """Return whether the caller may read the thing of that name, which begins with its namespace."""
        return self.namespace in (ALL_NAMESPACES, qualified_name.partition(".")[0])

    def show(self, kind: str, qualified_name: str) -> str:
        """Return the name of a thing of that kind, or words in its place if the caller may not read the thing."""
        return qualified_name if self.sees_name(qualified_name) else f"a {kind} of another namespace"

    def sees_consumer(self, name: str) -> bool:
        """Return whether the caller may read of a consumer: that of a program has its name, and belongs to it."""
        namespace = namespace_of_consumer(name)
        return namespace is None or self.sees(namespace)

    def sees_event(self, event_key: str) -> bool:
        """Return whether the caller may read what a message is about. Topics of users belong to no namespace."""
        namespace = namespace_of_event(event_key)
        return namespace is None or self.sees(namespace)

    @property
    def only(self) -> str | None:
        """The only namespace that the caller may read; None for all of them."""
        return None if self.namespace == ALL_NAMESPACES else self.namespace


EVERYTHING: Final = Access()
"""The access of the user of a process that can open the catalog."""
