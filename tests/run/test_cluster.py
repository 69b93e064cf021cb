"""The end of applications on a cluster, asked of a page as Spark's masters have it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs

import pytest

from tests.run.conftest import Works
from tidemill.run.processes.cluster import end_application_of

FORM = '<form action="app/kill/" method="POST"><input type="hidden" name="id" value="app-1"/>{field}</form>'
FIELD = '<input type="hidden" name="csrfToken" value="a&amp;b"/>'


@contextmanager
def page_of_a_master(field: str) -> Iterator[tuple[int, list[dict[str, list[str]]]]]:
    """Serve a master's page, and yield its port and the forms that it took. With a field, other forms are refused."""
    taken: list[dict[str, list[str]]] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the base class names it
            self.answer(200)

        def do_POST(self) -> None:  # as above
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            refused = bool(field) and form.get("csrfToken") != ["a&b"]
            if not refused:
                taken.append({"path": [self.path], **form})
            self.answer(403 if refused else 302)

        def answer(self, status: int) -> None:
            body = FORM.format(field=field).encode()
            self.send_response(status)
            self.send_header("Location", "/")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port, taken
        finally:
            server.shutdown()


@pytest.mark.parametrize("field", [FIELD, ""], ids=["Spark 4.3", "before"])
def test_the_application_of_an_attempt_is_ended_by_the_form_of_the_page(works: Works, field):
    """Spark 4.3 answers 403 to a form without the token of its page: no application was ended."""
    run = works.under_way(works.program("load"))
    with page_of_a_master(field) as (port, taken):
        conf = {"spark.master": "spark://127.0.0.1:7077", "spark.master.ui.port": str(port)}
        end_application_of(replace(run, facts={"spark": "app-1", "spark_conf": conf}))

    assert [(form["id"], form["terminate"]) for form in taken] == [(["app-1"], ["true"])]


def test_the_driver_of_an_attempt_on_the_cluster_is_ended_with_its_application(works: Works):
    """Its node may be beyond reach, and any other node asks the master."""
    run = works.under_way(works.program("load"))
    with page_of_a_master(FIELD) as (port, taken):
        conf = {"spark.master": "spark://127.0.0.1:7077", "spark.master.ui.port": str(port)}
        end_application_of(replace(run, facts={"spark": "app-1", "spark_driver": "driver-1", "spark_conf": conf}))

    assert [(form["path"], form["id"]) for form in taken] == [
        (["/app/kill/"], ["app-1"]),
        (["/driver/kill/"], ["driver-1"]),
    ]
