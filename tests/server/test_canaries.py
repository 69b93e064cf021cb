"""Secrets of a real `tidemill up` appear nowhere: no page, answer, metric, error, log, argument, file, row."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import pytest

from tests.command import TIDEMILL
from tests.server.test_sign_in import Visitor, hidden
from tests.yardstick import patience
from tidemill.mill.mill import open_project
from tidemill.mill.routes import list_routes
from tidemill.server.access import SESSION
from tidemill.token_text import SECRET

CANARY = "canary7f3e"
ENVIRON = {
    "CRM_PASSWORD": f"{CANARY}-jdbc",
    "HOOK": f"{CANARY}-hook",
    "SLACK": f"http://127.0.0.1:9/{CANARY}-slack",
    "ARGUMENT": f"{CANARY}-argument",
    "KEY": f"{CANARY}-key",
    "AWS_SECRET_ACCESS_KEY": f"{CANARY}-aws",
    "UNUSED": f"{CANARY}-unused",
}
APP = """
import logging
import os
import tidemill as tm

app = tm.App("shop")
users = app.snapshot("users", key=["id"])
orders = app.fileset("orders", keys={"day": "date"})
crm = tm.Jdbc("postgresql://127.0.0.1:9/app", table="users", user="reader", password="env:CRM_PASSWORD")
app.pipeline("mirror", source=crm, transform="SELECT id FROM source", sink=users)


@app.python(writes=[orders], arguments={"password": tm.Secret, "key": tm.Secret("env:KEY")})
def load(run):
    with open(os.environ["TOLD"], "w") as told:
        told.write(os.environ["TIDEMILL_TOKEN"])
    assert run.arguments == {"password": os.environ["ARGUMENT"], "key": os.environ["KEY"]}
    print("signs in by", run.arguments)
    logging.getLogger("crm").warning("refused %s", run.arguments["key"])
    raise ValueError("of the program")


ops = tm.WebHook("http://127.0.0.1:9/hook", secret="env:HOOK")
chat = tm.Slack("env:SLACK")
app.alert("failed", tm.RunFailed(load), to=[ops, chat])
app.schedule("nightly", "mirror", trigger=tm.Cron("30 2 * * *", zone="UTC"))
"""
SETTINGS = """
catalog = "{catalog}"
log_format = "json"
[spark]
warm = 0
conf = {{"spark.hadoop.fs.s3a.secret.key" = "{canary}-conf", "spark.my.url" = "https://me:{canary}-url@host/"}}
"""
HOSTILE = ("%00", "<script>", "env:ARGUMENT")


@contextmanager
def watching_arguments() -> Iterator[set[str]]:
    """Yield the arguments of all processes of this machine that are seen until the end of the block."""
    seen: set[str] = set()
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.3):
            done = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, errors="replace", check=True)
            seen.update(done.stdout.splitlines())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        ended.set()
        watcher.join()


def with_password(url: str) -> str:
    """Return the address of a catalog with a password, which this server of tests does not ask for."""
    parts = urlsplit(url)
    if parts.scheme == "sqlite":
        return url
    login, _, host = parts.netloc.rpartition("@")
    return parts._replace(netloc=f"{login or 'postgres'}:{CANARY}-catalog@{host}").geturl()


def until(done: Callable[[], bool]) -> None:
    """Wait until something is so."""
    give_up_at = time.monotonic() + patience(90)
    while not done():
        assert time.monotonic() < give_up_at
        time.sleep(0.1)


@pytest.fixture
def project(catalog_url, tmp_path, monkeypatch) -> Path:
    """A project with secrets in all places where they may stand."""
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "app.py").write_text(APP, encoding="utf-8")
    settings = SETTINGS.format(catalog=with_password(catalog_url), canary=CANARY)
    (tmp_path / "tidemill.toml").write_text(settings, encoding="utf-8")
    return tmp_path


def tidemill(project: Path, *arguments: str) -> str:
    """Return what a command prints, on both streams."""
    command = [TIDEMILL, "--project", str(project), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.long
def test_no_secret_leaves_its_place(project):
    """A secret that was printed once is in a log of some tool for years."""
    told = project.parent / f"{project.name}-told"
    environ = {**os.environ, "TIDEMILL_SERVER_PORT": "0", "TOLD": str(told)}
    command = [TIDEMILL, "--project", str(project), "up"]
    out, errors = project.parent / f"{project.name}-out", project.parent / f"{project.name}-errors"
    with watching_arguments() as arguments, out.open("wb") as stdout, errors.open("wb") as stderr:
        up = subprocess.Popen(command, env=environ, stdout=stdout, stderr=stderr)
        try:
            until(lambda: '"ready"' in out.read_text() or up.poll() is not None)
            assert up.poll() is None, errors.read_text()
            url = json.loads(out.read_text().splitlines()[0])["subject"]
            with open_project(project) as mill:
                secret = mill.tokens.create("canary", role="admin").secret
                run_id = mill.runs.start("shop.load", {"password": "env:ARGUMENT"}).run_id
                until(lambda: mill.runs.show(run_id).state == "FAILED")
                until(lambda: len([one for one in mill.alerts.deliveries() if one.error]) == 2)
                names = (run_id, mill.alerts.list()[0].alert_id, "users", "shop.load", *HOSTILE)
                rows = repr([list(table.rows) for table in mill.project.catalog.dump()])
            said, session = look_at_everything(url, secret, names)
            logs = "".join(tidemill(project, "run", "logs", run_id))
            commands = [("doctor", "--json"), ("audit", "log", "--json"), ("token", "list"), ("alert", "deliveries")]
            for words in (*commands, ("run", "show", run_id), ("why", run_id), ("metrics",), ("nonsense",)):
                said[" ".join(words)] = tidemill(project, *words)
        finally:
            up.send_signal(signal.SIGTERM)
            up.wait()

    of_run = told.read_text().rpartition("_")[2]
    assert len(of_run) == SECRET
    secrets = (CANARY, secret, secret.removeprefix("tm_"), session, of_run)
    said |= {"arguments": "\n".join(arguments), "out": out.read_text(), "errors": errors.read_text(), "rows": rows}
    said |= {"log": logs} | files_of(project)
    found = {place: one for place, text in said.items() for one in secrets if one in text}
    assert "of the program" in logs
    assert "signs in by {'password': 'env:ARGUMENT', 'key': 'env:KEY'}" in logs
    assert "refused env:KEY" in logs
    assert any("tidemill" in one for one in arguments)
    assert "shop" in rows
    assert len(said) > 300
    assert found == {}


def look_at_everything(url: str, secret: str, names: tuple[str, ...]) -> tuple[dict[str, str], str]:
    """Return the answer of each page that has a link, and of each route with each name; and the session's secret."""
    visitor = Visitor(url)
    assert visitor.sign_in(secret).status_code == 303
    session = visitor.cookies[SESSION]
    said: dict[str, str] = {}

    def ask(path: str, **headers: str) -> str:
        answer = visitor.http.get(path, headers={**visitor._sent, **headers})
        said[path] = f"{answer.headers}{answer.text}"
        return answer.text

    left = ["/"]
    while left:
        path = left.pop()
        page = ask(path)
        for link in re.findall(r'href="([/?][^"]*)"', page):
            whole = (path.partition("?")[0] + link if link.startswith("?") else link).replace("&amp;", "&")
            if whole not in said and whole not in left and not whole.startswith("/static"):
                left.append(whole)
    for route in list_routes():
        if route.method == "GET":
            for name in names if route.in_path else names[:1]:
                path = re.sub(r"\{[^}]+\}", lambda _: quote(name, safe="%"), route.path)  # noqa: B023
                ask(path, accept="application/json")
        else:
            path = re.sub(r"\{[^}]+\}", "nothing", route.path)
            sent = {**visitor._sent, "x-csrf-token": hidden(said["/"])["word"]}
            body = {"password": "env:ARGUMENT", "secret": secret[:0]}
            said[f"{route.method} {path}"] = visitor.http.request(route.method, path, json=body, headers=sent).text
    for path in (
        "/metrics",
        "/v1/openapi.json",
        "/health",
        "/ready",
        "/version",
        "/login",
        "/login?code=tm_x",
        "/none",
    ):
        ask(path)
    said["401"] = visitor.http.get("/v1/runs", headers={"authorization": f"Bearer {secret}x"}).text
    visitor.http.close()
    return said, session


def files_of(project: Path) -> dict[str, str]:
    """Return the text of each file that `up` wrote: but for the token that the user of the project owns."""
    return {
        str(path): path.read_bytes().decode("latin-1")
        for path in (project / ".tidemill").rglob("*")
        if path.is_file() and path.name != "token"
    }
