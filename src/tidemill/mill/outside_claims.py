"""Claims of files by other workflow engines, as `Mill` offers them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from tidemill.durations import parse_lease
from tidemill.lake.inbox.discovery import discover_settled
from tidemill.mill.inboxes import Inboxes, file_state
from tidemill.names import RunId
from tidemill.run.outside_claims import (
    CLAIM_LEASE,
    FileClaim,
    get_latest_files,
    release_claim,
    renew_claim,
    update_file_status,
)


class OutsideClaims(Inboxes):
    """Operations on claims of files. No list needs what they load."""

    def get_latest_files(
        self,
        name: str,
        limit: int = 1000,
        *,
        lease: str | timedelta = CLAIM_LEASE,
        owner: str = "",
        scan: bool = True,
    ) -> FileClaim:
        """Claim the oldest files that wait, for a workflow engine of your own (seed 004's GetLatestFiles).

        No run gets these files until `update_file_status` closes them, or the claim's `lease` has run out and a runner
        of `tidemill up` has seen it: renew it while you work. Looks for new files before, unless `scan` is False.
        """
        watched = self._inbox(name)
        if scan:
            discover_settled(self.catalog, watched)
        return get_latest_files(self.catalog, watched, limit=limit, lease=parse_lease(lease), owner=owner)

    def update_file_status(
        self, claim: FileClaim | str, files: Sequence[str] | None, status: str, *, error: str = ""
    ) -> int:
        """Close `files` of a claim (None: all it holds) as SUCCESS, ERROR (to be tried again) or NEW (given back).

        How many it still holds. Refused with `Fenced` when the claim has ended: somebody else may have its files.
        """
        return update_file_status(self.catalog, _claim_id(claim), files, file_state(status), error=error)

    def renew_claim(self, claim: FileClaim | str, *, lease: str | timedelta = CLAIM_LEASE) -> None:
        """Keep a claim for `lease` from now; `Fenced` when it has ended."""
        renew_claim(self.catalog, _claim_id(claim), parse_lease(lease))

    def release_claim(self, claim: FileClaim | str) -> str:
        """Return the files of a claim that are still open, as new. Return the state of its run afterwards."""
        return release_claim(self.catalog, _claim_id(claim)).value


def _claim_id(claim: FileClaim | str) -> RunId:
    return RunId(claim) if isinstance(claim, str) else claim.claim_id
