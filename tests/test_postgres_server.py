"""The suite's own PostgreSQL."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from tests.postgres_server import running_server
from tests.yardstick import patience

ROOT = Path(__file__).resolve().parent.parent


def test_schemas_of_two_tests_are_apart(postgres_catalog_url):
    """Tests share one server: a table of one must not be seen by another."""
    with psycopg.connect(postgres_catalog_url, autocommit=True) as connection:
        connection.execute("CREATE TABLE tx (write_pointer BIGINT)")
        placed = connection.execute("SELECT relnamespace::regnamespace::text FROM pg_class WHERE oid = 'tx'::regclass")
        schema = placed.fetchone()

    assert schema is not None
    assert schema[0] in postgres_catalog_url


def test_a_server_is_gone_after_its_user_failed():
    """A failing run must leave no server behind, or a day of work fills the machine."""
    addresses = []

    def fail() -> None:
        with running_server() as address:
            psycopg.connect(address).close()
            addresses.append(address)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()

    [address] = addresses
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(address)


def test_a_server_ends_with_a_killed_lender():
    """`kill -9` of a test run cannot clean up; the kernel does it."""
    lender = subprocess.Popen(
        [sys.executable, "-m", "tests.postgres_server", "--", "sh", "-c", "echo $TIDEMILL_TEST_POSTGRES; exec cat"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert lender.stdout is not None
    with lender:
        address = lender.stdout.readline().strip()
        with psycopg.connect(address) as connection:
            folder = connection.execute("SHOW data_directory").fetchone()
        os.kill(lender.pid, signal.SIGKILL)

    ended = _ends(address)
    if folder:
        shutil.rmtree(Path(folder[0]).parent)
    assert ended


def test_without_a_command_the_program_says_how_to_call_it():
    """Exit code 2, as for every wrong call."""
    ended = subprocess.run([sys.executable, "-m", "tests.postgres_server"], cwd=ROOT, capture_output=True, check=False)

    assert ended.returncode == 2


def _ends(address: str) -> bool:
    """Return whether the server stops answering within ten seconds."""
    deadline = time.monotonic() + patience(10)
    while time.monotonic() < deadline:
        try:
            psycopg.connect(address).close()
        except psycopg.OperationalError as error:
            if "refused" in str(error):
                return True
    return False
