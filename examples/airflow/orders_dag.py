"""A DAG that processes the files of the inbox `orders`, each once: seed 004's workflow, in Airflow.

Needs `TIDEMILL_URL` and `TIDEMILL_TOKEN` in the environment of its workers, the token with the role developer. For
Airflow 3, and 2.4 or later. `tidemill_files.py` stands beside this file.
"""

from __future__ import annotations

import os
from datetime import datetime
from pathlib import Path
from urllib.parse import unquote, urlsplit

from tidemill_files import Files, Refused

try:
    from airflow.sdk import dag, get_current_context, task
except ImportError:  # Airflow 2
    from airflow.decorators import dag, task
    from airflow.operators.python import get_current_context
from airflow.exceptions import AirflowFailException, AirflowSkipException

INBOX = "orders"
LEASE = "30m"
"""Longer than Airflow waits between two tasks. While a task works, the claim is renewed."""


def _server() -> Files:
    return Files(os.environ["TIDEMILL_URL"], os.environ["TIDEMILL_TOKEN"])


@dag(schedule="@hourly", start_date=datetime(2026, 1, 1), catchup=False, tags=["tidemill"])
def orders():
    """Claim the files, process them, and update their status."""

    @task(retries=3)
    def get_latest_files():
        """Mark the waiting files IN_PROGRESS, and hand their names on."""
        run_id = get_current_context()["run_id"]
        claim = _server().get_latest_files(INBOX, key=f"orders/{run_id}", lease=LEASE, owner=f"airflow {run_id}")
        if not claim["files"]:
            raise AirflowSkipException("no files wait")
        return claim

    @task
    def process(claim):
        """Work on the files. The claim is kept meanwhile."""
        with _server().renewing(claim, LEASE) as lost:
            for file in claim["files"]:
                if lost.is_set():
                    raise AirflowFailException("the claim has ended: another run may have the files")
                rows = Path(unquote(urlsplit(file["url"]).path)).read_text(encoding="utf-8").splitlines()
                print(f"{file['name']}: {len(rows)} lines")

    @task(retries=3)
    def update_file_status(claim):
        """Close the files as SUCCESS. Refused if a file was written again since it was claimed."""
        _server().update_file_status(claim, "SUCCESS")

    @task(retries=3, trigger_rule="one_failed")
    def report_error(claim):
        """Close the files as ERROR: they come again, and after some attempts they are quarantined."""
        if claim is None:
            return  # the claim itself has failed
        try:
            _server().update_file_status(claim, "ERROR", error="the DAG orders failed; see its log")
        except Refused as refused:
            print(refused)  # the claim has ended, and its files wait for the next run

    claim = get_latest_files()
    processed = process(claim)
    updated = update_file_status(claim)
    processed >> updated
    [processed, updated] >> report_error(claim)


orders()
