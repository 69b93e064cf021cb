"""Requests to S3 of our own: their signature, and answers that come late, wrong or not at all."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest.mock import patch
from urllib.parse import parse_qsl, urlsplit

import pytest
from botocore.auth import S3SigV4Auth, S3SigV4QueryAuth  # type: ignore[import-untyped]
from botocore.awsrequest import AWSRequest  # type: ignore[import-untyped]
from botocore.credentials import Credentials  # type: ignore[import-untyped]

from tests.manual_clock import ManualClock
from tidemill.storage.files import FileUnreadable, StorageUnavailable, Unusable, find_files, for_each
from tidemill.storage.locations import open_files
from tidemill.storage.objects import Refused
from tidemill.storage.s3_requests import Keys, Link, S3Requests, sign
from tidemill.world import World

NOW = dt.datetime(2026, 11, 26, 12, 30, 5, tzinfo=dt.UTC)
BAD_NAMES = ("/lead", "a//b", "a/../b", "a/./b", "//x", "x//", "tab\tx", "with/a body/")


@contextmanager
def botocore_time(now: dt.datetime) -> Iterator[None]:
    """Have botocore sign at this time."""
    with patch("botocore.auth.get_current_datetime", return_value=now.replace(tzinfo=None)):
        yield


@pytest.mark.parametrize("token", ["", "a/token+of=a role"])
@pytest.mark.parametrize("query", ["", "list-type=2&prefix=a%20location%2F%C3%A9&start-after=x%2By"])
def test_the_signature_is_that_of_amazons_own_library(token, query):
    """No store of the tests checks a signature; Amazon refuses a wrong one."""
    url = f"https://bucket.s3.eu-west-1.amazonaws.com/a%20location/%C3%A9{'?' if query else ''}{query}"
    headers = {"x-amz-copy-source": "/bucket/a%20location/b", "If-None-Match": "*"}

    signed = sign(Keys("ID", "SECRET", token), "eu-west-1", "PUT", urlsplit(url), headers, NOW)

    theirs = AWSRequest("PUT", url, {**headers, "x-amz-content-sha256": signed["x-amz-content-sha256"]})
    with botocore_time(NOW):
        S3SigV4Auth(Credentials("ID", "SECRET", token or None), "s3", "eu-west-1").add_auth(theirs)
    assert signed["Authorization"] == theirs.headers["Authorization"]


def test_obstore_signs_a_page_of_a_listing_for_a_machine_with_a_role():
    """Only obstore knows the keys of a role; it signs no query of ours, but what stands in an address."""
    config = {"region": "eu-west-1", "access_key_id": "ID", "secret_access_key": "SECRET", "session_token": "to/ken"}
    link = Link("https://s3.example/bucket", "bucket", config, None)

    target = link.presign("GET", "", "list-type=2&prefix=a%20b%2F", dt.datetime.now(dt.UTC))

    query = dict(parse_qsl(urlsplit(target).query))
    plain = f"https://s3.example{target.partition('&X-Amz-')[0]}"
    theirs = AWSRequest("GET", plain)
    with botocore_time(dt.datetime.strptime(query["X-Amz-Date"], "%Y%m%dT%H%M%SZ")):  # noqa: DTZ007
        S3SigV4QueryAuth(Credentials("ID", "SECRET", "to/ken"), "s3", "eu-west-1", 600).add_auth(theirs)
    assert query["X-Amz-Signature"] == dict(parse_qsl(urlsplit(theirs.url).query))["X-Amz-Signature"]
    assert query["prefix"] == "a b/"


def test_a_machine_with_a_role_lists_and_deletes_as_others_do(s3_stub):
    """Its requests are signed by obstore, and copies are read and written."""
    bucket = s3_stub.make_bucket()
    s3_stub.put_raw(bucket, "in/a//b", b"x")
    s3_stub.put_raw(bucket, "in/file", b"x")
    config = {"region": "us-east-1", "access_key_id": "ID", "secret_access_key": "SECRET"}
    link = Link(f"{s3_stub.url}/{bucket}", bucket, config, None)
    requests = S3Requests(link, "in/", World(), ".test")

    page = requests.list_page("", "", "", "", 1000)
    copied = requests.copy_if(requests, "file", page.entries[1].etag, "copy")
    deleted = [requests.delete_if("file", etag) for etag in ("another", page.entries[1].etag)]

    assert [one.name for one in page.entries] == ["a//b", "file"]
    assert (copied, deleted) == (Refused.UNABLE, [Refused.CONDITION, None])
    assert [one.name for one in requests.list_page("", "", "", "", 1000).entries] == ["a//b"]


def test_names_that_obstore_refuses_or_misreads_hide_no_others(s3_stub):
    """An object `a//b` stopped an inbox; `folder/` was listed as a file `folder` that is not there."""
    bucket = s3_stub.make_bucket()
    files = open_files(f"s3://{bucket}/in", s3_stub.world)
    for name in ("a/b", "folder/file", "good", "x", "é"):
        files.put(name, b"content")
    for name in BAD_NAMES:
        s3_stub.put_raw(bucket, f"in/{name}", b"x")
    s3_stub.put_raw(bucket, "in/folder/", b"")
    s3_stub.put_raw(bucket, "in/", b"")
    unusable: list[Unusable] = []

    listed = [file.name for file in files.list_after("", None, None, unusable)]

    assert listed == ["a/b", "folder/file", "good", "x", "é"]
    assert files.check_location() is None
    assert {one.name for one in unusable} == {"tab\\x09x", *BAD_NAMES} - {"tab\tx"}
    assert {one.why for one in unusable if one.name == "a//b"} == {"it has an empty, '.' or '..' part"}
    assert files.list_folders() == ["a", "folder", "with", "x"]
    assert files.delete_below("a").names == 4
    assert [file.name for file in files.list_after("a", None, None, unusable)] == []


def test_a_bucket_that_is_not_there_is_away(s3_stub):
    """Its answer to each file is that of a missing file: claimed files would be closed as deleted."""
    files = open_files("s3://no-such-bucket/in", s3_stub.world)
    other = open_files(f"s3://{s3_stub.make_bucket()}/in", s3_stub.world)
    other.put("file", b"")
    etag = other.stat("file").etag

    for attempt in (
        files.check_location,
        lambda: list(files.list_after("", None)),
        lambda: files.delete("file", etag="x"),
        lambda: files.copy_from(other, "file", etag, "copy"),
        lambda: other.copy_from(files, "file", etag, "copy"),
    ):
        with pytest.raises(StorageUnavailable):
            attempt()


def test_a_request_is_sent_again_where_the_store_is_busy_or_hangs_up(s3_stub):
    """Amazon asks for that with status 503, and closes connections that were idle."""
    files = open_files(f"s3://{s3_stub.make_bucket()}/in", replace(s3_stub.world, clock=ManualClock()))
    files.put("file", b"")
    listed = [list(files.list_after("", None))]
    for failures in (["503"], ["500", "hang up"], ["hang up", "hang up", "503"]):
        s3_stub.fail_next(failures)
        listed.append(list(files.list_after("", None)))

    s3_stub.fail_next(["503"] * 6)
    with pytest.raises(StorageUnavailable, match="503"):
        list(files.list_after("", None))

    assert [[file.name for file in one] for one in listed] == [["file"]] * 4


def test_connections_that_were_idle_for_long_are_all_opened_again(s3_stub):
    """A janitor works from time to time, by 16 threads; stores end what is idle for a minute."""
    files = open_files(f"s3://{s3_stub.make_bucket()}/in", s3_stub.world)
    names = [f"file {number}" for number in range(200)]
    for name in names:
        files.put(name, b"x")
    etag = files.stat(names[0]).etag
    s3_stub.answer_after(0.05)
    for_each(files, lambda name: files.delete(name, etag=etag), names[:100])
    s3_stub.answer_after(0)

    s3_stub.hang_up()
    for name in names[100:]:
        files.delete(name, etag=etag)

    assert list(files.list_after("", None)) == []


def test_a_copy_that_breaks_off_is_an_error_though_its_status_is_good(s3_stub):
    """Amazon answers 200 before it has copied: the original would be deleted."""
    files = open_files(f"s3://{s3_stub.make_bucket()}/in", s3_stub.world)
    files.put("file", b"content")
    files.copy_from(files, "file", files.stat("file").etag, "first")

    etag = files.stat("file").etag

    s3_stub.fail_next(["200 InternalError"])
    with pytest.raises(StorageUnavailable, match="InternalError"):
        files.copy_from(files, "file", etag, "second")

    assert files.stat("second") is None


@pytest.mark.parametrize(
    "answer", ["say Please log in.", "say <html><body>Welcome</body></html>", "say ", "200 InternalError"]
)
def test_an_answer_that_is_none_of_s3_is_an_error_of_the_store(s3_stub, answer):
    """A console or a proxy answers so. The error ended the node; a page that is XML passed for an empty bucket."""
    files = open_files(f"s3://{s3_stub.make_bucket()}/in", s3_stub.world)
    for name in ("a", "b"):
        files.put(name, b"1")
    contents = [(file.name, file.etag) for file in files.list_after("", None)]
    files.delete_contents([(name, "another") for name, _ in contents])

    errors = []
    for attempt in (
        files.check_location,
        lambda: list(files.list_after("", None)),
        lambda: files.delete_contents(contents),
        lambda: files.stat("a"),
        lambda: files.read("a"),
    ):
        s3_stub.fail_next([answer])
        with pytest.raises(StorageUnavailable, match="no answer of S3; set `endpoint`") as caught:
            attempt()
        errors.append(str(caught.value))

    assert all(f"the answer of {s3_stub.url} is no answer" in error for error in errors[:3])
    assert [file.name for file in files.list_after("", None)] == ["a", "b"]


@pytest.mark.parametrize("code", ["InvalidObjectState", "AccessDenied"])
def test_an_object_that_the_store_refuses_is_unreadable_and_the_store_is_not_away(s3_stub, code):
    """Glacier, a key of KMS or an access list refuses one object: its inbox waited for ever."""
    bucket = s3_stub.make_bucket()
    files = open_files(f"s3://{bucket}/in", s3_stub.world)
    files.put("bad", b"1")
    files.put("good", b"2")
    s3_stub.refuse(bucket, "in/bad", code)
    s3_stub.read_counts()

    with pytest.raises(FileUnreadable, match=code):
        files.read("bad")
    counts = s3_stub.read_counts()
    with pytest.raises(FileUnreadable, match="403 Forbidden"):
        files.stat("bad")
    bad, good = find_files(files, ["bad", "good"])

    assert counts == {"GET": 1, "LIST": 1}
    assert isinstance(bad, FileUnreadable)
    assert good == files.stat("good")


def test_credentials_that_the_store_refuses_make_no_file_unreadable(s3_stub):
    """Each request gets 403 then: files would fail one after the other, and be quarantined."""
    files = open_files(f"s3://{s3_stub.make_bucket()}/in", s3_stub.world)
    files.put("file", b"1")

    for attempt in (lambda: files.read("file"), lambda: files.stat("file"), lambda: files.stat_many(["file"])):
        s3_stub.fail_next(["403 InvalidAccessKeyId"] * 2)
        with pytest.raises(StorageUnavailable, match="InvalidAccessKeyId") as caught:
            attempt()
        assert not isinstance(caught.value, FileUnreadable)
