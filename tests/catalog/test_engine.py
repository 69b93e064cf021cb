from __future__ import annotations

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import apsw
import psutil
import psycopg
import pytest

from tests.catalog.conftest import OpenCatalog
from tests.yardstick import patience
from tidemill.catalog import migrate
from tidemill.catalog.audit_log import list_entries
from tidemill.catalog.db import Catalog, CatalogUnavailable
from tidemill.catalog.engine import BadCatalogUrl, connect, open_catalog
from tidemill.catalog.migrate import NewerCatalog, OlderCatalog, read_version
from tidemill.catalog.named import Dialect
from tidemill.catalog.sqlite import NetworkFileSystem
from tidemill.catalog.transactions import begin, find_transaction
from tidemill.names import RunId
from tidemill.world import World


def _run_sql(catalog: Catalog, text: str) -> None:
    """Change the database behind the catalog's back."""
    if catalog.dialect is Dialect.SQLITE:
        with apsw.Connection(catalog.url.removeprefix("sqlite:///")) as connection:
            connection.execute(text)
    else:
        with psycopg.connect(catalog.url, autocommit=True) as connection:
            connection.execute(text)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "catalog.db",
        "mysql://root@db/x",
        "sqlite://catalog.db",
        "sqlite:///",
        "sqlite:catalog.db",
        "sqlite:///x?y",
        "sqlite:///x?vfs=y",
    ],
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """`sqlite://catalog.db` names a host, as every other URL: it would have opened some other file."""
    with pytest.raises(BadCatalogUrl) as refused:
        open_catalog(url, World())

    assert refused.value.exit_code == 2


def test_text_is_ordered_by_its_bytes_whatever_the_language_of_the_database(postgres_catalog_url: str) -> None:
    """Lists end at the greatest name, which sorts before all letters in the languages of most servers."""
    open_catalog(postgres_catalog_url, World()).close()

    with psycopg.connect(postgres_catalog_url) as connection:
        found = connection.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = current_schema()"
            " AND data_type = 'text' AND collation_name IS DISTINCT FROM 'C' AND table_name <> 'migration'"
        ).fetchall()

    assert found == []


def test_opening_twice_finds_the_same_catalog(catalog: Catalog, open_again: OpenCatalog) -> None:
    """The first one makes it, with an incarnation that stays."""
    again = open_again()

    assert read_version(again) == max(migrate._migrations())
    assert again.incarnation == catalog.incarnation
    assert len(again.incarnation) == 8


def test_a_catalog_in_memory_is_one_for_all_openers_and_ends_with_them() -> None:
    """The simulation has thousands of them in one process; no file of theirs may be left, or shared by accident."""
    url = "sqlite:///sim/one?vfs=memdb"
    first = open_catalog(url, World())
    again, other = open_catalog(url, World(), create=False), open_catalog("sqlite:///two?vfs=memdb", World())
    tx = begin(first, run_id=RunId("run_1"), epoch=1)
    waiter = again.waiter()
    begin(first, run_id=RunId("run_2"), epoch=1)
    woken = waiter.wait(timedelta(seconds=20))
    seen = [catalog.read(lambda db: find_transaction(db, tx.write_pointer)) for catalog in (first, again)]
    waiter.close()
    for catalog in (first, again, other):
        catalog.close()

    assert woken
    assert seen[0] == seen[1]
    assert len({first.incarnation, again.incarnation, other.incarnation}) == 2
    assert not Path("sim").exists()
    with pytest.raises(CatalogUnavailable):
        open_catalog(url, World(), create=False)


def test_two_catalogs_have_two_incarnations(catalog_url: str, tmp_path: Path) -> None:
    """Directories of one must never pass for those of the other."""
    first, second = (open_catalog(f"sqlite:///{tmp_path}/{name}.db", World()) for name in "ab")
    incarnations = {first.incarnation, second.incarnation}
    first.close()
    second.close()

    assert len(incarnations) == 2


def test_a_catalog_that_is_not_there_is_not_made_by_looking(catalog_url: str) -> None:
    """`tidemill run list` in the wrong folder says so (exit code 5) and leaves nothing behind."""
    for _ in range(2):
        with pytest.raises(CatalogUnavailable, match="no catalog yet") as refused:
            open_catalog(catalog_url, World(), create=False)
        assert refused.value.exit_code == 5


def test_a_file_of_something_else_is_not_touched(tmp_path: Path) -> None:
    """A typing error must not destroy what is there."""
    file = tmp_path / "letter.txt"
    file.write_text("Dear Sir or Madam, " * 100)

    with pytest.raises(CatalogUnavailable, match="not a database"):
        open_catalog(f"sqlite:///{file}", World())

    assert file.read_text() == "Dear Sir or Madam, " * 100


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    """A user gets one line and exit code 5."""
    (tmp_path / "file").write_text("")

    with pytest.raises(CatalogUnavailable, match="folder cannot be made"):
        open_catalog(f"sqlite:///{tmp_path}/file/below/catalog.db", World())


def test_a_place_where_nothing_can_be_written_is_reported(tmp_path: Path) -> None:
    """A folder in the file's place; /proc, where not even root may."""
    for path in (tmp_path, Path("/proc/catalog.db")):
        with pytest.raises(CatalogUnavailable, match="unable to open"):
            open_catalog(f"sqlite:///{path}", World())


def test_a_network_file_system_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's locks do not hold there: two machines would both commit. A link to there is no way around."""
    mount = type("Mount", (), {"mountpoint": str(tmp_path / "shared"), "fstype": "nfs4"})
    monkeypatch.setattr(psutil, "disk_partitions", lambda **_: [mount])
    (tmp_path / "link").symlink_to(tmp_path / "shared")
    (tmp_path / "catalog.db").symlink_to(tmp_path / "shared" / "catalog.db")

    for place in ("shared/below/catalog.db", "link/catalog.db", "catalog.db"):
        with pytest.raises(NetworkFileSystem, match=r"network file system \(nfs4\)"):
            open_catalog(f"sqlite:///{tmp_path}/{place}", World())


@pytest.mark.parametrize(
    ("replace", "by"),
    [("/postgres", "/no_such_database"), ("127.0.0.1:", "127.0.0.1:1"), ("postgres@", "nobody_known:secret@")],
)
def test_a_server_that_cannot_be_used_is_reported_without_its_password(
    postgres_url: str, replace: str, by: str
) -> None:
    """The message goes to logs."""
    url = by.join(postgres_url.rsplit(replace, 1))
    if replace == "127.0.0.1:":
        url = "postgresql://postgres:secret@127.0.0.1:1/postgres"

    with pytest.raises(CatalogUnavailable) as refused:
        open_catalog(url, World())

    assert "secret" not in str(refused.value)
    assert refused.value.exit_code == 5


def test_a_schema_that_does_not_exist_is_reported(postgres_url: str) -> None:
    """PostgreSQL would take the next schema of the search path, which belongs to another user."""
    with pytest.raises(CatalogUnavailable, match="create it first"):
        open_catalog(f"{postgres_url}?options=-csearch_path%3Dno_such_schema", World())


def test_a_replica_is_refused(postgres_catalog_url: str) -> None:
    """A replica shows the past. libpq takes a session that only reads for a replica."""
    with pytest.raises(CatalogUnavailable, match="read-only"):
        open_catalog(f"{postgres_catalog_url}%20-cdefault_transaction_read_only%3Don", World())


def test_a_newer_catalog_is_refused(catalog: Catalog) -> None:
    """This program could harm what it does not know."""
    _run_sql(catalog, "INSERT INTO migration (version, name, applied_at) VALUES (9999, 'future', 0)")

    with pytest.raises(NewerCatalog, match="schema version 9999") as refused:
        open_catalog(catalog.url, World())

    assert refused.value.exit_code == 2


def test_an_older_catalog_says_what_to_do(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """No catalog is migrated by surprise: old processes may still work on it."""
    _with_one_more_migration(monkeypatch)

    with pytest.raises(OlderCatalog, match="tidemill catalog migrate") as refused:
        open_catalog(catalog.url, World())

    assert refused.value.exit_code == 2


def test_a_migration_is_applied_once(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Called again, by another process, it has nothing to do."""
    _with_one_more_migration(monkeypatch)
    raw = connect(catalog.url, World())

    applied = [migrate.migrate(raw), migrate.migrate(raw)]
    raw.run_script("CREATE TABLE never (n BIGINT)", unless=_NEXT)

    assert applied == [[_NEXT], []]
    assert raw.has_table("invention")
    assert not raw.has_table("never")
    raw.close()


def test_a_migration_has_an_audit_row_in_its_transaction(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change of the schema needs a name beside it; a second call changes nothing, and has no row."""
    _with_one_more_migration(monkeypatch)
    raw = connect(catalog.url, World())

    for _ in range(2):
        migrate.migrate(raw, by="o'neill@desk")

    (entry,) = raw.read(lambda db: list_entries(db, subject="catalog", after="", limit=9))
    assert (entry.action, entry.actor) == ("catalog.migrate", "o'neill@desk")
    assert entry.detail == {"before": {"schema": _NEXT - 1}, "after": {"schema": _NEXT}}
    assert entry.at.year == raw.read(lambda db: db.now()).year
    raw.close()


def test_a_migration_whose_row_cannot_be_written_changes_nothing(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row and migration are one transaction."""
    _with_one_more_migration(monkeypatch)
    raw = connect(catalog.url, World())
    raw.run_script("ALTER TABLE audit RENAME TO elsewhere", unless=99)

    with pytest.raises((apsw.Error, psycopg.Error)):
        migrate.migrate(raw, by="ann@desk")

    assert read_version(raw) == _NEXT - 1
    assert not raw.has_table("invention")
    raw.close()


def test_a_migration_that_fails_leaves_the_schema_as_it_was(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a migration is a catalog of no version."""
    _with_one_more_migration(monkeypatch, "CREATE TABLE invention (n BIGINT); CREATE TABLE tx (n BIGINT);")
    raw = connect(catalog.url, World())

    with pytest.raises((apsw.Error, psycopg.Error)):
        migrate.migrate(raw)

    assert read_version(raw) == _NEXT - 1
    assert not raw.has_table("invention")
    raw.close()


def test_processes_that_start_at_once_make_one_catalog(catalog_url: str) -> None:
    """`tidemill up` on three machines, on the first day."""
    script = (
        "import sys; from tidemill.catalog.engine import open_catalog; from tidemill.world import World\n"
        "print('ready', flush=True); sys.stdin.readline()\n"
        "print(open_catalog(sys.argv[1], World()).incarnation)"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, catalog_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    incarnations = {process.communicate(timeout=patience(60))[0].strip() for process in processes}

    assert [process.returncode for process in processes] == [0] * 4
    assert len(incarnations) == 1


def test_a_closed_sqlite_catalog_leaves_one_file(tmp_path: Path) -> None:
    """So that a copy of it is a backup."""
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db", World())
    begin(catalog, run_id=RunId("run_1"), epoch=1)
    catalog.close()

    assert [path.name for path in tmp_path.iterdir()] == ["catalog.db"]


def test_sqlite_promises_what_a_commit_needs(tmp_path: Path) -> None:
    """WAL and FULL: a commit that was answered is on the disk."""
    catalog = open_catalog(f"sqlite:///{tmp_path}/catalog.db", World())
    connection = catalog._connection()  # type: ignore[attr-defined]
    settings = [connection.execute(f"PRAGMA {name}").get for name in ("journal_mode", "synchronous", "busy_timeout")]
    catalog.close()

    assert settings == ["wal", 2, 0]


_NEXT = max(migrate._migrations()) + 1


def _with_one_more_migration(monkeypatch: pytest.MonkeyPatch, text: str = "CREATE TABLE invention (n BIGINT);") -> None:
    known = migrate._migrations()
    more = {**known, _NEXT: ("invention", {dialect: [text] for dialect in Dialect})}
    monkeypatch.setattr(migrate, "_migrations", lambda: more)
