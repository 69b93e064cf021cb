"""Signing in with a token in a form, without scripts, and signing out: in all servers at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.run.conftest import rows_of
from tests.stage import Stage
from tests.yardstick import patience
from tidemill.mill.tokens import csrf_of
from tidemill.server.access import SESSION
from tidemill.server.listen import Listener, make_link

HTML = {"accept": "text/html"}


class Visitor:
    """A browser without scripts: keeps cookies, and sends the hidden fields of forms."""

    def __init__(self, url: str) -> None:
        self.http = httpx.Client(base_url=url, headers=HTML, timeout=patience(30))
        self.cookies: dict[str, str] = {}

    def get(self, path: str) -> httpx.Response:
        """Open a page."""
        return self._keep(self.http.get(path, headers=self._sent))

    def post(self, path: str, **fields: str) -> httpx.Response:
        """Send a form."""
        return self._keep(self.http.post(path, data=fields, headers=self._sent))

    def sign_in(self, secret: str, path: str = "/login") -> httpx.Response:
        """Fill in the form of sign-in."""
        return self.post("/login", **hidden(self.get(path).text), token=secret)

    @property
    def _sent(self) -> dict[str, str]:
        return {"cookie": "; ".join(f"{name}={value}" for name, value in self.cookies.items())}

    def _keep(self, answer: httpx.Response) -> httpx.Response:
        for one in answer.headers.get_list("set-cookie"):
            name, _, value = one.partition(";")[0].partition("=")
            self.cookies[name] = value.strip('"')
        return answer


def hidden(page: str) -> dict[str, str]:
    """Return the hidden fields of a page."""
    return dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page))


@pytest.fixture
def visitor(client: httpx.Client) -> Iterator[Visitor]:
    """A browser that has not signed in."""
    made = Visitor(str(client.base_url))
    yield made
    made.http.close()


def token(stage: Stage, role: str = "operator", **options: object) -> str:
    """Return the secret of a new token, `laptop`."""
    return stage.mill.tokens.create("laptop", role=role, **options).secret


def test_a_page_leads_to_the_form_and_the_form_back_to_the_page(visitor, stage):
    """A link of a colleague has to show what the colleague saw."""
    asked = visitor.get("/runs?program=shop.load")
    place = urlsplit(asked.headers["location"])

    answer = visitor.sign_in(token(stage), asked.headers["location"])

    assert (asked.status_code, place.path, parse_qs(place.query)["next"]) == (
        303,
        "/login",
        ["/runs?program=shop.load"],
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs?program=shop.load")
    page = visitor.get("/runs?program=shop.load")
    assert page.status_code == 200
    assert "laptop" in page.text


def test_rest_is_no_page_and_stays_401(visitor):
    """A program must not take a form for an answer."""
    assert visitor.get("/v1/runs").status_code == 401
    assert visitor.http.get("/runs", headers={"accept": "*/*"}).status_code == 401


def test_the_cookie_is_for_the_server_alone(visitor, stage):
    """Neither a script nor another site gets the session."""
    answer = visitor.sign_in(token(stage))
    (cookie,) = [one for one in answer.headers.get_list("set-cookie") if one.startswith(SESSION)]

    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= {one.strip() for one in cookie.split(";")}


def test_a_session_has_the_role_and_the_namespace_of_its_token(visitor, stage):
    """The form of a viewer makes no operator."""
    visitor.sign_in(token(stage, "viewer", namespace="elsewhere"))
    word = hidden(visitor.get("/runs").text)["word"]

    page = visitor.get("/datasets")
    change = visitor.http.post(
        "/v1/schedules/shop.nightly:suspend", headers={**visitor._sent, "x-csrf-token": word}, json={}
    )

    assert "orders" not in page.text
    assert (change.status_code, change.json()["code"]) == (403, "forbidden")


def test_a_wrong_token_is_asked_for_again(visitor):
    """The page says what is wrong, and shows no token."""
    answer = visitor.sign_in("tm_nonsense-of-a-token")

    assert answer.status_code == 401
    assert "the token is not known" in answer.text
    assert "nonsense" not in answer.text
    assert SESSION not in visitor.cookies


def test_an_address_that_fails_too_often_has_to_wait(visitor):
    """Guessing is slow, also by the form."""
    page = hidden(visitor.get("/login").text)
    answers = [visitor.post("/login", **page, token="tm_wrong") for _ in range(31)]

    assert [one.status_code for one in answers[:30]] == [401] * 30
    assert (answers[30].status_code, answers[30].headers["retry-after"]) == (429, "60")


@pytest.mark.parametrize("word", ["", "0" * 64, "ü"])
def test_another_site_cannot_sign_a_browser_in(visitor, stage, word):
    """A browser in the account of an attacker shows the attacker the searches of its user."""
    visitor.get("/login")

    answer = visitor.post("/login", word=word, token=token(stage))

    assert answer.status_code == 403
    assert SESSION not in visitor.cookies


def test_a_stranger_without_the_cookie_of_the_form_cannot_use_its_word(client, visitor, stage):
    """The word of one browser is of no use to another."""
    fields = hidden(visitor.get("/login").text)
    other = Visitor(str(client.base_url))

    assert other.post("/login", **fields, token=token(stage)).status_code == 403
    other.http.close()


@pytest.mark.parametrize("place", ["//evil.example/", "https://evil.example/", "/\\evil.example", "runs", "/\r\nx: y"])
def test_the_form_leads_to_no_other_site(visitor, stage, place):
    """A link to our form must not end at a copy of our form."""
    fields = hidden(visitor.get("/login").text) | {"next": place}

    assert visitor.post("/login", **fields, token=token(stage)).headers["location"] == "/"


def test_a_session_ends_with_its_token_in_all_servers(visitor, stage):
    """A token that was revoked must not live on in a browser."""
    secret = token(stage)
    visitor.sign_in(secret)
    assert visitor.get("/runs").status_code == 200
    stage.mill.tokens.revoke("laptop")

    assert visitor.get("/runs").status_code == 303
    assert visitor.get("/v1/runs").status_code == 401


def test_a_session_ends_when_its_token_expires(visitor, stage):
    """A token for an hour is no session for two weeks."""
    visitor.sign_in(token(stage, expires=timedelta(hours=1)))
    assert visitor.get("/runs").status_code == 200
    stage.sql("UPDATE token SET expires_at = 5 WHERE name = 'laptop' AND kind = 'token' RETURNING 1")

    assert visitor.get("/v1/runs").status_code == 401


def test_signing_out_ends_the_session_in_another_server_too(visitor, stage):
    """A copy of the cookie is of no use any more, wherever it is tried."""
    other = Listener(stage.mill, with_link=False)
    other.start()
    visitor.sign_in(token(stage))
    cookies = {"cookie": f"{SESSION}={visitor.cookies[SESSION]}"}
    with httpx.Client(base_url=other.url, headers=cookies, timeout=patience(60)) as there:
        before = there.get("/v1/runs").status_code
        answer = visitor.post("/logout", **hidden(visitor.get("/").text))
        after = there.get("/v1/runs").status_code
    other.stop()

    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    assert visitor.cookies[SESSION] == ""
    assert (before, after) == (200, 401)


def test_another_site_cannot_sign_a_browser_out(visitor, stage):
    """Nor end its work."""
    visitor.sign_in(token(stage))

    assert visitor.post("/logout", word="0" * 64).status_code == 403
    assert visitor.get("/runs").status_code == 200


def test_a_form_that_is_no_form_is_refused(visitor):
    """Any bytes may come."""
    for content in (b"\xff\xfe", b"a=b&" * 100, b"{}"):
        answer = visitor.http.post("/login", content=content, headers=visitor._sent)
        assert 400 <= answer.status_code < 500


def test_a_code_a_sign_in_and_a_sign_out_have_their_rows(visitor, stage):
    """A code of ten minutes has all rights: an audit has to find the person that made it, and the use of it."""
    known = {one.audit_id for one in stage.mill.audit.log()}  # the server prints a link at its start
    link = make_link(stage.mill, "")
    visitor.get(link)
    visitor.post("/logout", word=csrf_of(visitor.cookies[SESSION]))
    secret = token(stage, "viewer", namespace="elsewhere")
    visitor.sign_in(secret)
    opened = visitor.cookies[SESSION]
    for _ in range(2):
        visitor.post("/logout", word=csrf_of(opened))

    me = stage.mill.project.actor
    entries = [one for one in stage.mill.audit.log() if one.audit_id not in known and one.action != "token.create"]
    admin, laptop = {"role": "admin", "namespace": "*"}, {"role": "viewer", "namespace": "elsewhere"}
    assert sorted((one.action, one.actor, str(one.detail.get("by"))) for one in entries) == [
        ("session.code", me, "None"),
        ("session.end", "laptop@127.0.0.1", "session"),
        ("session.end", f"{me}@127.0.0.1", "session"),
        ("session.open", "laptop@127.0.0.1", "token"),
        ("session.open", f"{me}@127.0.0.1", "code"),
    ]
    rights = {(one.action, one.subject): (one.detail["before"], one.detail["after"]) for one in entries}
    assert rights == {
        ("session.code", me): (None, admin),
        ("session.open", me): (None, admin),
        ("session.end", me): (admin, None),
        ("session.open", "laptop"): (None, laptop),
        ("session.end", "laptop"): (laptop, None),
    }
    found = repr(list(stage.mill.audit.log()))
    assert not any(one in found for one in (link.partition("=")[2], secret, opened))


def test_a_sign_in_whose_row_cannot_be_written_opens_no_session(visitor, stage):
    """Row and session are one transaction."""
    secret = token(stage)
    stage.mill.project.catalog.run_script("ALTER TABLE audit RENAME TO elsewhere", unless=99)

    answer = visitor.sign_in(secret)

    assert answer.status_code >= 500
    assert rows_of(stage.mill.project.catalog, "SELECT 1 FROM token WHERE kind = 'session'") == []
