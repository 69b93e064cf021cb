"""New objects of a bucket on their way through an inbox: what they cost the store."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

from tests.lake.s3_course import add_inbox, play
from tidemill.catalog.engine import open_catalog
from tidemill.lake.inbox.discovery import discover


def test_an_object_costs_two_requests_from_its_discovery_to_its_archive(s3_stub, sqlite_catalog_url):
    """A read and a copy: at 16 requests a file, 10,000 files took more than half an hour at 20 ms."""
    course = play(s3_stub, sqlite_catalog_url, 512)

    assert course.requests["discovered"] == {"LIST": 2}
    assert course.requests["claimed and closed"] == {"GET": 512, "LIST": 1}
    # Sixteen rounds: a look at, and a deletion of, 32 objects each. A process asks a store once whether it keeps
    # conditions on copies and on deletions of many objects.
    archived = course.requests["archived"]
    asked = {"PUT": 3, "COPY": 514, "DELETE": 4, "LIST": 17, "DELETE MANY": 17}
    assert archived in ({"COPY": 512, "LIST": 16, "DELETE MANY": 16}, asked)


def test_a_done_flag_that_is_listed_costs_no_look(s3_stub, sqlite_catalog_url):
    """Flags come with their files: a look at each would be a fourth request."""
    with closing(open_catalog(sqlite_catalog_url, s3_stub.world)) as catalog:
        plain = add_inbox(s3_stub, catalog, 20)
        inbox = replace(plain, spec=replace(plain.spec, done_flag="{name}.done"))
        s3_stub.fill(inbox.dataset.location.split("/")[2], "in/2026-11-26/file-{:08}.csv.done", 15)
        s3_stub.read_counts()

        found = discover(catalog, inbox)

    assert (len(found.new), len(found.held_back)) == (15, 5)
    assert s3_stub.read_counts() == {"LIST": 2, "HEAD": 5}
