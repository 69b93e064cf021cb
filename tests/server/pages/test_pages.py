"""Pages of a project in which something of each kind has happened: every link leads somewhere, nothing is markup."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from html import unescape
from urllib.parse import quote

from tests.test_operations import COMMANDS
from tidemill.mill.routes import list_routes
from tidemill.server.listen import make_link

FIRST = {
    "/", "/flow", "/datasets", "/inboxes", "/consumers", "/watermarks", "/schedules", "/jobs", "/runs", "/apps",
    "/topics", "/transactions", "/audit", "/tokens",
}  # fmt: skip
COMMAND = re.compile(r"<span>\$ tidemill ([^<]+)</span>")


def buttons_without_route(pages: Iterable[str]) -> set[tuple[str, str]]:
    """Return the method and path of each button on pages that no route takes. At least six kinds must be there."""
    patterns = [(one.method, re.sub(r"{\w+}", "[^/:]+", one.path)) for one in list_routes()]
    tag = re.compile(r'data-method="(\w+)" data-path="([^"]+)"')
    found = {(method, unescape(path)) for text in pages for method, path in tag.findall(text)}
    taken = {
        (method, path): {one for known, one in patterns if known == method and re.fullmatch(one, path)}
        for method, path in found
    }
    assert len(set().union(*taken.values())) >= 6
    return {one for one, fitting in taken.items() if not fitting}


def test_each_link_of_each_page_leads_somewhere(browser):
    """A person at 3 in the morning follows links: none may end at an error."""
    seen: dict[str, str] = {}
    left = ["/"]
    while left:
        path = left.pop()
        answer = browser.get(path)
        assert answer.status_code == 200, f"{path}: {answer.status_code} {answer.text[-300:]}"
        seen[path] = answer.text
        found = {one.replace("&amp;", "&") for one in re.findall(r'href="([/?][^"]*)"', answer.text)}
        for link in found:
            whole = path.partition("?")[0] + link if link.startswith("?") else link
            if whole not in seen and whole not in left and not whole.startswith("/static"):
                left.append(whole)

    assert seen.keys() >= FIRST
    assert len(seen) > 40
    assert buttons_without_route(seen.values()) == set()
    commands = {unescape(one) for text in seen.values() for one in re.findall(r'data-command="([^"]*)"', text)}
    assert len(commands) >= 10
    assert [one for one in commands if " ".join(one.split()[:2]) not in COMMANDS] == []
    pages = [text for path, text in seen.items() if path.startswith(tuple(FIRST - {"/"})) or path == "/"]
    assert [text for text in pages if not COMMAND.search(text)] == []


def test_a_caller_of_one_namespace_has_no_link_that_is_refused(browser, stage):
    """A team looks at its own work: a link to what is of all namespaces would end at a refusal."""
    secret = stage.mill.tokens.create("team", role="operator", namespace="default").secret
    headers = {"cookie": "", "authorization": f"Bearer {secret}"}
    seen: dict[str, str] = {}
    refused: list[tuple[str, str]] = []
    left = [("/", "")]
    while left:
        path, of = left.pop()
        answer = browser.get(path, headers=headers)
        seen[path] = answer.text
        if answer.status_code != 200:
            refused.append((of, path))
            continue
        found = {one.replace("&amp;", "&") for one in re.findall(r'href="([/?][^"]*)"', answer.text)}
        wholes = {path.partition("?")[0] + one if one.startswith("?") else one for one in found}
        known = seen.keys() | {one for one, _ in left}
        left += [(one, path) for one in wholes - known if not one.startswith("/static")]

    assert refused == []
    assert len(seen) > 40


def test_values_of_users_are_text_and_no_markup(browser, stage):
    """Errors, payloads and names may hold anything."""
    run = stage.mill.runs.list(program="shop.broken", limit=1)[0]
    pages = [browser.get(path).text for path in ("/", f"/runs/{run.run_id}", "/topics/own", "/search?text=<b>x</b>")]

    assert all("<script>alert" not in text and "<i>hostile" not in text and "<b>x" not in text for text in pages)
    assert "&lt;script&gt;alert(1)" in pages[1]
    assert "&lt;i&gt;hostile" in pages[2]


def test_the_overview_names_what_needs_a_person(browser):
    """The first screen says what is wrong, and leads there."""
    text = browser.get("/").text

    words = re.sub(r"<[^>]+>", "", text)
    assert "shop.broken  failed" in words
    assert "raw  has 1 file in quarantine" in words
    assert "bad.csv: its last line has no end" in words


def test_a_page_without_a_session_says_how_to_sign_in(browser):
    """The token of another user of the machine is not ours: the page asks for one, and names the command."""
    answer = browser.get("/runs", headers={"cookie": ""})
    form = browser.get(answer.headers["location"], headers={"cookie": ""})

    assert (answer.status_code, answer.headers["location"]) == (303, "/login?next=%2Fruns")
    assert form.status_code == 200
    assert "tidemill open" in form.text


def test_a_change_by_a_session_needs_its_word(browser, stage):
    """A page of another site may make the browser send its cookie, but does not know the word."""
    path = "/v1/schedules/shop.on_raw:suspend"
    word = re.search(r'name="csrf" content="(\w+)"', browser.get("/").text)

    assert browser.post(path, json={}).json()["code"] == "forged_request"
    assert browser.post(path, json={}, headers={"x-csrf-token": "0" * 64}).status_code == 403
    assert browser.post(path, json={}, headers={"x-csrf-token": word.group(1)}).status_code == 200
    assert stage.mill.schedules.resume("shop.on_raw").changed


def test_a_code_signs_in_once(browser, stage):
    """A link that was read over a shoulder is of no use any more."""
    link = make_link(stage.mill, str(browser.base_url).rstrip("/"))

    assert browser.get(link).status_code == 303
    assert browser.get(link).status_code == 401


def test_the_command_of_a_page_gives_what_the_page_shows(browser, stage):
    """A filter is one word of the shell, whatever a link says, and the command goes on where the page does."""
    after = stage.mill.audit.log(limit=1).next
    subject = "$(id); 'rm' -r \"x\""
    answer = browser.get("/audit", params={"subject": subject, "after": after})

    assert _command(answer.text) == ["audit", "log", "--subject", subject, "--after", after]


def test_the_command_of_a_thing_names_it_as_one_word(browser, stage):
    """Files come from outside: their names may hold what a shell would run."""
    name = "two words; $(id) '.csv"
    (stage.mill.project.config.folder / "landing" / name).write_text("id,ts,n\n", encoding="utf-8")
    stage.mill.inboxes.scan("raw")

    answer = browser.get(f"/why/{quote(name)}")

    assert answer.status_code == 200
    assert _command(answer.text) == ["why", name]


def _command(page: str) -> list[str]:
    found = COMMAND.search(page)
    assert found is not None
    return shlex.split(unescape(found.group(1)))
