"""New objects of a bucket on their way through an inbox: what they cost the store."""

from __future__ import annotations

from tests.lake.s3_course import play


def test_an_object_costs_three_requests_from_its_discovery_to_its_archive(s3_stub, sqlite_catalog_url):
    """A read, a copy, a deletion: at 16 requests a file, 10,000 files took more than half an hour at 20 ms."""
    course = play(s3_stub, sqlite_catalog_url, 200)

    assert course.requests["discovered"] == {"LIST": 2}
    assert course.requests["claimed and closed"] == {"GET": 200, "LIST": 1}
    # A process asks a store once whether it keeps conditions on copies and on deletions, by eleven requests.
    archived = course.requests["archived"]
    asked = {"PUT": 3, "COPY": 202, "DELETE": 205, "LIST": 1}
    assert archived in ({"COPY": 200, "DELETE": 200}, asked)
