"""Claims of files by REST, for any workflow engine: the two calls of seed 004, and the renewal of a claim.

Needs the standard library alone, neither Tidemill nor Airflow. Copy the module beside your workflows.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

TRIES = 5
"""Requests for one change. The server makes a change once, however often its key is sent."""
RENEWALS_IN_A_LEASE = 3
LOST = ("run_taken", "not_claimed")
"""Codes of a claim that has ended: another run may have its files."""


class Refused(Exception):
    """An answer that is no success. `code` never changes for one kind of error."""

    def __init__(self, status: int, code: str, detail: str) -> None:
        super().__init__(f"{code}: {detail}")
        self.status = status
        self.code = code


class Files:
    """Files of inboxes, as the server at `url` gives them to the caller whose secret `token` is."""

    def __init__(self, url: str, token: str, timeout: float = 60.0) -> None:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is no address of a server: write https://tidemill.example.com")
        self._url = url.rstrip("/")
        self._token = token
        self._timeout = timeout

    def get_latest_files(
        self, inbox: str, *, key: str, limit: int = 100, lease: str = "10m", owner: str = ""
    ) -> dict[str, Any]:
        """Claim the oldest waiting files: new ones, and those in ERROR whose time has come. They are IN_PROGRESS then.

        `key` names this step of this run of the workflow. A step that is repeated gets the claim that it has, or
        another one if that has ended.
        """
        wanted = {"limit": limit, "lease": lease, "owner": owner}
        for number in range(TRIES):
            claim = self._post(f"/v1/inboxes/{quote(inbox)}:get-latest-files", wanted, f"{key}#{number}")
            if not claim["files"] or self._is_held(claim, lease):
                return claim
        raise Refused(409, "run_taken", f"each claim of {key} has ended")

    def renew_claim(self, claim: Mapping[str, Any], lease: str = "10m") -> None:
        """Keep a claim for `lease` from now. `Refused` with a code of `LOST` says that it has ended: stop the work."""
        self._post(f"/v1/inboxes/{claim['claim_id']}:renew-claim", {"lease": lease})

    def update_file_status(
        self, claim: Mapping[str, Any], status: str, files: Sequence[str] | None = None, error: str = ""
    ) -> int:
        """Close files of a claim, all without `files`, as SUCCESS, ERROR or NEW. Return the number of files left."""
        wanted = {"files": None if files is None else list(files), "status": status, "error": error}
        return int(self._post(f"/v1/inboxes/{claim['claim_id']}:update-file-status", wanted)["left"])

    def release_claim(self, claim: Mapping[str, Any]) -> None:
        """Return all files of a claim, as new."""
        self._post(f"/v1/inboxes/{claim['claim_id']}:release-claim", {})

    @contextmanager
    def renewing(self, claim: Mapping[str, Any], lease: str = "10m", every: float = 180.0) -> Iterator[threading.Event]:
        """Renew a claim while the block works, every so many seconds. The event is set when the claim is lost."""
        done, lost = threading.Event(), threading.Event()

        def renew() -> None:
            while not done.wait(every):
                try:
                    self.renew_claim(claim, lease)
                except Refused as error:
                    if error.code in LOST:
                        lost.set()
                        return

        thread = threading.Thread(target=renew, daemon=True)
        thread.start()
        try:
            yield lost
        finally:
            done.set()
            thread.join()

    def _is_held(self, claim: Mapping[str, Any], lease: str) -> bool:
        try:
            self.renew_claim(claim, lease)
        except Refused as error:
            if error.code in LOST:
                return False
            raise
        return True

    def _post(self, path: str, wanted: Mapping[str, Any], key: str = "") -> dict[str, Any]:
        """Send a change, again while the server is away. Calls with a claim do no harm when they come twice."""
        headers = {"authorization": f"Bearer {self._token}", "content-type": "application/json"}
        headers |= {"idempotency-key": key} if key else {}
        request = Request(self._url + path, json.dumps(wanted).encode(), headers, method="POST")
        wait = threading.Event()
        for left in reversed(range(TRIES)):
            try:
                with urlopen(request, timeout=self._timeout) as answer:
                    found: dict[str, Any] = json.load(answer)
                    return found
            except HTTPError as error:
                refused = _refused(error)
                if refused.status not in (429, 503) or not left:
                    raise refused from None
            except (URLError, HTTPException, OSError) as error:
                if not left:
                    raise Refused(503, "server_unavailable", f"{self._url} does not answer: {error}") from error
            wait.wait(2.0 ** (TRIES - 1 - left) / 5)
        raise AssertionError


def _refused(error: HTTPError) -> Refused:
    try:
        problem = json.load(error)
        return Refused(error.code, str(problem["code"]), str(problem["detail"]))
    except (ValueError, KeyError, TypeError):
        return Refused(error.code, "no_tidemill", f"{error.url} is no server of Tidemill")
