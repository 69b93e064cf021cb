"""Buckets: the words of errors about one that cannot be reached, and the keys and settings that reach it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import obstore
import pytest

from tests.s3_server import KEYS, S3Server
from tidemill.shapes.manifest import DamagedFiles, DataFile, Manifest, check_files
from tidemill.storage.files import (
    BadLocation,
    FileStatus,
    StorageUnavailable,
    checksum,
    checksums_of_job,
    find_file,
)
from tidemill.storage.locations import file_at, open_files, path_for_readers
from tidemill.storage.s3 import settings_for_hadoop
from tidemill.stores import StoreSettings
from tidemill.world import World


def test_a_missing_bucket_is_away_and_its_files_are_not_deleted(s3_server: S3Server):
    """A store says of a file in it what it says of a missing file: claimed files would be closed as deleted."""
    files = open_files("s3://no-such-bucket/landing", s3_server.world)

    with pytest.raises(StorageUnavailable, match="there is no such bucket"):
        find_file(files, "a.csv")
    with pytest.raises(BadLocation, match="there is no such bucket"):
        files.prepare()


def test_a_store_that_does_not_answer_is_named(s3_server: S3Server):
    """The error of an attempt that cannot reach its data names the place."""
    (settings,) = s3_server.world.stores
    world = replace(s3_server.world, stores=(replace(settings, endpoint="http://127.0.0.1:9"),))
    files = open_files("s3://lake/landing", world)

    with pytest.raises(StorageUnavailable, match="s3://lake/landing"):
        files.check_location()


@pytest.mark.parametrize(
    ("place", "keys"),
    [("env", KEYS), ("file", KEYS), ("env", {**KEYS, "AWS_SESSION_TOKEN": "t"}), ("none", None), ("instance", None)],
)
def test_spark_gets_the_keys_of_each_place_for_one_bucket(tmp_path, place, keys):
    """Two buckets may have two owners. Keys stand in no setting that `ps` or Spark's pages show."""
    (tmp_path / "keys").write_text("".join(f"{name} = {value}\n" for name, value in (keys or {}).items()))
    settings = StoreSettings(credentials=f"file:{tmp_path / 'keys'}" if place == "file" else place)
    world = replace(World(), environ=keys if place == "env" else {}, stores=(settings,))

    found = settings_for_hadoop("s3://lake/landing", world)

    assert {name.split(".")[3] for name in found} <= {"lake"}
    given = {name.removeprefix("fs.s3a.bucket.lake.") for name in found}
    expected = {"access.key", "secret.key"} if keys else set()
    assert given & {"access.key", "secret.key", "session.token"} == expected | (
        {"session.token"} if keys and "AWS_SESSION_TOKEN" in keys else set()
    )
    assert ("aws.credentials.provider" in given) == (place != "instance")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (StoreSettings(credentials="env"), "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY are wanted in env"),
        (StoreSettings(credentials="file:/no/such/file"), "there is no secret at file:/no/such/file"),
    ],
)
def test_missing_keys_are_named_with_their_place(settings, message):
    """The message may be pasted into a ticket: it has no key, and the way to one."""
    world = replace(World(), environ={}, stores=(settings,))

    with pytest.raises(StorageUnavailable, match=message):
        open_files("s3://lake/landing", world)


def test_a_table_is_not_mixed_with_variables(s3_server: S3Server, tmp_path, monkeypatch):
    """A machine with a role of its own may have variables that belong to another store."""
    for variable, value in {"AWS_ENDPOINT_URL_S3": "http://127.0.0.1:9", "AWS_SESSION_TOKEN": "another's"}.items():
        monkeypatch.setenv(variable, value)
    (tmp_path / "keys").write_text("".join(f"{name}={value}\n" for name, value in KEYS.items()))
    (settings,) = s3_server.world.stores
    world = replace(World(), stores=(replace(settings, credentials=f"file:{tmp_path / 'keys'}"),))
    name = s3_server.make_bucket()
    files = open_files(f"s3://{name}", world)

    files.put("a", b"1")

    assert s3_server.list(name) == ["a"]
    assert "Security-Token" not in obstore.sign(files._store, "GET", "a", timedelta(minutes=1))


def test_variables_that_other_programs_read_fill_what_a_table_leaves_open(s3_server: S3Server):
    """A bucket of a test server needs no table."""
    name = s3_server.make_bucket()
    environ = {**KEYS, "AWS_ENDPOINT_URL": s3_server.url, "AWS_REGION": "us-east-1"}
    files = open_files(f"s3://{name}", replace(World(), environ=environ))

    files.put("a", b"1")

    assert s3_server.list(name) == ["a"]


def test_a_file_is_found_by_its_path_for_readers(s3_server: S3Server, tmp_path):
    """Directories of keys have escaped characters, which are part of the name."""
    for location in (f"s3://{s3_server.make_bucket()}/a%20b", str(tmp_path / "a b")):
        files = open_files(location, s3_server.world)
        files.prepare()
        files.put("at=10%3A00/part", b"1")

        opened, name = file_at(path_for_readers(files.url, "at=10%3A00/part"), s3_server.world)

        assert opened.read(name) == b"1"


@pytest.mark.parametrize(
    "location", ["s3://ID:hush@lake/in", "s3://ID:hu/hush@lake/in", "s3://ID:hush/in", "s3://hush@lake"]
)
def test_a_key_in_a_location_is_refused_without_being_shown(location):
    """The error named the location with the key in it. A key of Amazon may have slashes."""
    with pytest.raises(BadLocation, match="has a key in it") as caught:
        open_files(location, World())

    assert "hush" not in str(caught.value)


def write_job(files, count=5):
    """Write what a job leaves, and return it as listed."""
    for number in range(count):
        files.put(f"tx-7-inc/1/part-{number}", b"row\n" * (number + 1))
    return list(files.list_after("", None))


def test_the_etags_of_a_store_are_the_checksums_of_what_a_job_wrote(s3_stub):
    """Each written file was read again for its checksum: a write of 1 GB fetched 1 GB."""
    files = open_files(f"s3://{s3_stub.make_bucket()}/lake", s3_stub.world)
    written = write_job(files)
    s3_stub.read_counts()

    found = checksums_of_job(files, written)
    counts = s3_stub.read_counts()

    assert counts == {"GET": 1}
    assert found == {one.name: checksum(files, one.name, "md5:") for one in written}


@pytest.mark.parametrize("changed", ["all", "one"])
def test_an_etag_that_is_no_hash_of_the_content_is_no_checksum(s3_stub, changed):
    """A store that encrypts with its own key has etags of 32 digits too, and that of a file in parts is no hash."""
    files = open_files(f"s3://{s3_stub.make_bucket()}/lake", s3_stub.world)
    written = write_job(files)
    etags = {one.name: "0" * 32 if changed == "all" else one.etag for one in written}
    etags[written[-1].name] = "0" * 32 + ("" if changed == "all" else "-2")
    others = written if changed == "all" else written[-1:]

    found = checksums_of_job(files, [replace(one, etag=etags[one.name]) for one in written])

    assert {name: text for name, text in found.items() if text.startswith("crc32:")} == {
        one.name: checksum(files, one.name) for one in others
    }
    assert found.keys() == etags.keys()


def test_an_empty_file_proves_nothing_about_etags(s3_stub):
    """A store may give the usual etag to what is empty, and others to what has content."""
    files = open_files(f"s3://{s3_stub.make_bucket()}/lake", s3_stub.world)
    files.put("tx-7-inc/1/empty", b"")
    written = [one if not one.bytes else replace(one, etag="0" * 32) for one in write_job(files)]

    found = checksums_of_job(files, written)

    assert found == {one.name: checksum(files, one.name) for one in written}


def test_a_checksum_of_an_etag_finds_damage_in_a_copy_on_another_store(s3_stub, tmp_path):
    """A bucket is copied in parts, or to a folder: each file has another etag there, and the same content."""
    bucket, folder = open_files(f"s3://{s3_stub.make_bucket()}", s3_stub.world), open_files(tmp_path, World())
    written = write_job(bucket)
    checksums = checksums_of_job(bucket, written)
    for one in written:
        folder.copy_from(bucket, one.name, one.etag, one.name)
    manifest = Manifest(tuple(_data_file(one, checksums) for one in written))
    check_files(folder, "default.lines", lambda: "hour=5", "tx-7-inc", manifest, whole=True)

    folder.put(written[0].name, b"Row\n")

    with pytest.raises(DamagedFiles, match="part-0 has other content than was written"):
        check_files(folder, "default.lines", lambda: "hour=5", "tx-7-inc", manifest)


def _data_file(one: FileStatus, checksums: dict[str, str]) -> DataFile:
    return DataFile(one.name.removeprefix("tx-7-inc/"), one.bytes, 1, one.etag, checksums[one.name])
