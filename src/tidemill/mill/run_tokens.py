"""A run's own token: what the process of an attempt is to the server, and the few things that it reaches.

The token lives while its attempt is under way: no row has to be ended. A kill, a fence, a commit or a later attempt is
its end, in all servers.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tidemill.catalog.db import Catalog, Db
from tidemill.catalog.named import load_sql
from tidemill.errors import Denied, UserError
from tidemill.mill.access import Access, Role
from tidemill.mill.operation import Right
from tidemill.mill.project import Project
from tidemill.mill.tokens import Principal, TokenKind, Unauthorized
from tidemill.names import Namespace, ProgramId, RunId, qualified
from tidemill.run.records.programs import Program, find_program_by_id
from tidemill.token_text import digest_of, run_of_token

if TYPE_CHECKING:
    from tidemill.mill.run_tokens_sql import Sql

SQL: Sql = load_sql(__file__)

_UNKNOWN: Final = "the token of a run is not known, or its attempt has ended"


class OutOfReach(Denied):
    """A run's own token asked for something that is not the run's."""

    code = "out_of_reach"

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        super().__init__(
            f"the token of {run_id} reaches the run alone, its transaction, and the inputs and outputs of its program",
            "use a token of your own (`tidemill token create`)",
            before=": ",
        )


@dataclass(frozen=True, slots=True)
class _Attempt:
    """Row of an attempt that is under way."""

    run_id: RunId
    epoch: int
    token_digest: str
    program_id: ProgramId
    write_pointer: int | None


@dataclass(frozen=True, slots=True)
class RunPrincipal(Principal):
    """A run as a caller of the server: an attempt that is under way, by its own token."""

    run_id: RunId
    write_pointer: int | None
    """The transaction of the attempt; None before its begin."""
    consumer: str
    """The name of the program, and of its consumers."""
    datasets: frozenset[str]
    """The inputs and outputs of the program."""

    def reach(self, project: Project, right: Right, path: Mapping[str, str], *, own: bool) -> Access:
        """Return the access of the run to what the path of a request names; `OutOfReach`.

        `own` says that the route is for runs. Each name in the path must be of a thing of the run.
        """
        names = dict(path)
        dataset = names.pop("dataset", None) or names.pop("name", None)
        namespace = self.namespace if dataset is None else self._find_dataset(project, dataset)
        known = {"run_id": str(self.run_id), "write_pointer": str(self.write_pointer or ""), "name": self.consumer}
        if not (own and path) or namespace is None or any(known.get(one) != value for one, value in names.items()):
            raise OutOfReach(self.run_id)
        return Access(self.role, namespace, right)

    def _find_dataset(self, project: Project, name: str) -> Namespace | None:
        """Return the namespace of an input or output of that name; None for any other name."""
        try:
            namespace, (local,) = project.split("data set", name, 1)
        except UserError:
            return None
        return namespace if qualified(namespace, local) in self.datasets else None


def find_run_principal(catalog: Catalog, secret: str) -> RunPrincipal | None:
    """Return the run whose own token that is; None for a token of another form. `Unauthorized`."""
    run_id = run_of_token(secret)
    if run_id is None:
        return None

    def block(db: Db) -> tuple[_Attempt, Program] | None:
        found = db.record(SQL.find_attempt, _Attempt, run_id=run_id)
        # In constant time: the time of an answer tells nothing of the digest.
        if found is None or not hmac.compare_digest(found.token_digest, digest_of(secret)):
            return None
        return found, find_program_by_id(db, found.program_id)

    known = catalog.read(block)
    if known is None:
        raise Unauthorized(_UNKNOWN)
    attempt, program = known
    return RunPrincipal(
        token_id=f"{attempt.run_id}.{attempt.epoch}",
        kind=TokenKind.RUN,
        name=attempt.run_id,
        digest=attempt.token_digest,
        role=Role.VIEWER,
        namespace=program.namespace,
        last_used_at=None,
        run_id=attempt.run_id,
        write_pointer=attempt.write_pointer,
        consumer=program.qualified_name,
        datasets=frozenset({*program.reads, *program.writes}),
    )
