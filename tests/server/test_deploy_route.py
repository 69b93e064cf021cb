"""`PUT /v1/apps/{app}`: an app is deployed from its declaration and its code, and no code is imported here."""

from __future__ import annotations

import base64
import io
import random
import stat
import sys
import zipfile
from dataclasses import replace

import pytest

from tests.run.conftest import rows_of
from tidemill.app.declaration import write_declaration
from tidemill.app.loading import load_with_code
from tidemill.run.records.bundles import Bundle

OTHER = """
import tidemill as tm

app = tm.App("shop")
orders = app.fileset("orders", keys={"day": "date"})

@app.python(writes=[orders])
def load(run):
    import helper
    print(helper.word)

app.schedule("hourly", load, trigger=tm.Every("1h"))
"""
TABLES = ("app", "deployment", "bundle", "bundle_upload", "program", "schedule", "dataset", "audit")


@pytest.fixture
def sent(stage, tmp_path):
    """The body of a request that deploys another version of the app."""
    folder = tmp_path / "laptop"
    folder.mkdir()
    (folder / "app.py").write_text(OTHER)
    (folder / "helper.py").write_text("word = 'one'")
    (app,), bundle = load_with_code(
        stage.world.disk, replace(stage.mill.project.config, folder=folder, app=folder / "app.py")
    )
    return {"declaration": write_declaration(app), "bundle": pack(bundle.files)}


def pack(files, **attributes):
    """Return a zip of files as base64; `attributes` of the file that is last."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name)
            for attribute, value in attributes.items():
                setattr(entry, attribute, value)
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
    return base64.b64encode(target.getvalue()).decode()


def content_of(stage):
    """Return the rows of all tables that a deployment writes."""
    return {table: sorted(map(str, rows_of(stage.mill.project.catalog, f"SELECT * FROM {table}"))) for table in TABLES}


def test_an_app_is_deployed_in_one_audited_step(sign, stage, sent):
    """Numbered as any deployment, with the caller as its actor; the bundle is what the client packed."""
    client = sign("developer", name="ci")

    answer = client.put("/v1/apps/shop", json=sent)
    newest, *_ = stage.mill.apps.history("shop")
    (note,) = [one for one in stage.mill.audit.log(subject="default.shop") if one.action == "app.deploy"]

    assert (answer.status_code, answer.json()["version"]) == (200, 2)
    assert answer.json()["schedules_added"] == ["hourly"]
    assert sorted(answer.json()["schedules_removed"]) == ["nightly", "on_orders"]
    assert answer.json()["programs_retired"] == ["sift"]
    assert newest.actor.startswith("ci@")
    assert note.actor.startswith("ci@")
    assert newest.code == Bundle.receive(base64.b64decode(sent["bundle"])).digest
    assert [one.name for one in stage.mill.schedules.list()] == ["default.shop.hourly"]


def test_the_deployed_code_runs(sign, stage, sent):
    """Though it lies nowhere on the machine of the server."""
    sign("developer").put("/v1/apps/shop", json=sent)
    stage.mill.runs.start("shop.load")
    sys.modules.pop("helper", None)
    (run,) = stage.work()

    assert run.state == "COMPLETED"


def test_schedules_stay_where_the_request_says_so(sign, stage, sent):
    """As with `--keep-schedules`."""
    before = {one.name for one in stage.mill.schedules.list()}
    answer = sign("developer").put("/v1/apps/shop", json=sent | {"update_schedules": False})

    assert answer.json()["schedules_added"] == []
    assert {one.name for one in stage.mill.schedules.list()} == before - {"default.shop.on_orders"}


def test_a_repeated_request_gets_the_same_answer(sign, sent):
    """Also a large bundle, whose file is written before the transaction of the change."""
    client = sign("developer")
    files = Bundle.receive(base64.b64decode(sent["bundle"])).files
    noise = random.Random(1).randbytes(1_500_000)
    large = sent | {"bundle": pack(files | {"data.bin": noise})}
    headers = {"idempotency-key": "one"}
    first, again = (client.put("/v1/apps/shop", json=large, headers=headers) for _ in range(2))
    other = client.put("/v1/apps/shop", json=sent, headers=headers)

    assert first.status_code == 200, first.text
    assert first.json() == again.json()
    assert (first.json()["version"], bool(first.json()["changes"])) == (2, True)
    assert (other.status_code, other.json()["code"]) == (422, "key_reused")


def test_a_plan_changes_nothing_and_names_what_the_deployment_changes(sign, stage, sent):
    """`POST /v1/apps:plan` needs the hashes of the files, not the files."""
    client = sign("developer")
    sums = Bundle.receive(base64.b64decode(sent["bundle"])).sums
    before = content_of(stage)

    (planned,) = client.post("/v1/apps:plan", json={"declarations": [sent["declaration"]], "sums": sums}).json()[
        "items"
    ]
    after = content_of(stage)
    deployed = client.put("/v1/apps/shop", json=sent).json()

    assert before == after
    assert (planned["version"], planned["changes"]) == (deployed["version"], deployed["changes"])


def spoil(sent, **files):
    """Return the body with further files in its bundle."""
    known = Bundle.receive(base64.b64decode(sent["bundle"])).files
    return sent | {"bundle": pack(dict(known) | files)}


def twice(sent):
    """Return a bundle in which a name stands twice."""
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("app.py", "1")
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("app.py", "2")
    return sent | {"bundle": base64.b64encode(target.getvalue()).decode()}


def torn(sent):
    """Return a bundle that is cut in its middle."""
    packed = base64.b64decode(sent["bundle"])
    return sent | {"bundle": base64.b64encode(packed[: len(packed) // 2]).decode()}


def damaged(sent):
    """Return a bundle with other bytes in the content of its first file."""
    packed = bytearray(base64.b64decode(sent["bundle"]))
    packed[45:60] = b"\xff" * 15
    return sent | {"bundle": base64.b64encode(packed).decode()}


def named(sent, name):
    """Return the body with the name of another app."""
    return sent | {"declaration": sent["declaration"] | name}


HOSTILE = {
    "a torn zip": (422, "bad_bundle", torn),
    "a damaged zip": (422, "bad_bundle", damaged),
    "no zip": (422, "bad_bundle", lambda sent: sent | {"bundle": base64.b64encode(b"hello").decode()}),
    "no base64": (422, "bad_bundle", lambda sent: sent | {"bundle": "%%%"}),
    "no bundle": (422, "bad_bundle", lambda sent: sent | {"bundle": ""}),
    "a name that leaves the folder": (422, "bad_bundle", lambda sent: spoil(sent, **{"../x.py": b""})),
    "a name that leaves a folder inside": (422, "bad_bundle", lambda sent: spoil(sent, **{"a/../../x.py": b""})),
    "an absolute name": (422, "bad_bundle", lambda sent: spoil(sent, **{"/etc/x.py": b""})),
    "a name of Windows": (422, "bad_bundle", lambda sent: spoil(sent, **{"..\\x.py": b""})),
    "a folder": (422, "bad_bundle", lambda sent: spoil(sent, **{"folder/": b""})),
    "a file that is a folder": (422, "bad_bundle", lambda sent: spoil(sent, **{"app.py/x": b""})),
    "a long name": (422, "bad_bundle", lambda sent: spoil(sent, **{"x" * 300: b""})),
    "a name with a line end": (422, "bad_bundle", lambda sent: spoil(sent, **{"x\ny.py": b""})),
    "a name twice": (422, "bad_bundle", twice),
    "a link": (
        422,
        "bad_bundle",
        lambda sent: sent | {"bundle": pack({"app.py": b"/etc/passwd"}, external_attr=(stat.S_IFLNK | 0o777) << 16)},
    ),
    "a bomb": (422, "bad_bundle", lambda sent: spoil(sent, **{"x.bin": b"\0" * 70_000_000})),
    "many files": (422, "bad_bundle", lambda sent: spoil(sent, **{f"{n}": b"" for n in range(10_001)})),
    "no app file": (422, "bad_bundle", lambda sent: sent | {"bundle": pack({"other.py": b""})}),
    "another app": (422, "bad_app", lambda sent: named(sent, {"name": "till"})),
    "another namespace": (422, "bad_app", lambda sent: named(sent, {"namespace": "till"})),
    "a bad name": (422, "bad_name", lambda sent: named(sent, {"name": "a/b"})),
    "no declaration": (422, "bad_json", lambda sent: sent | {"declaration": {}}),
    "a declaration that is no object": (422, "bad_request", lambda sent: sent | {"declaration": [1]}),
    "an app file outside": (422, "bad_app", lambda sent: sent | {"file": "../../app.py"}),
    "an absolute app file": (422, "bad_app", lambda sent: sent | {"file": "/etc/app.py"}),
    "an app file that is no Python": (422, "bad_app", lambda sent: sent | {"file": "app.sh"}),
    "a field that is not known": (422, "bad_request", lambda sent: sent | {"root": True}),
    "a data set that is not there": (
        404,
        "not_found",
        lambda sent: named(sent, {"programs": [{"name": "load", "kind": "python", "reads": ["default.none"]}]}),
    ),
    "a huge body": (413, "body_too_large", lambda sent: sent | {"bundle": "A" * (8 * 2**20)}),
}


def test_a_hostile_body_is_refused_and_nothing_is_stored(sign, stage, sent, tmp_path):
    """Each gets a clear answer, and changes neither the catalog nor the disk."""
    client = sign("developer")
    before, files = content_of(stage), sorted(map(str, tmp_path.rglob("*")))
    answers = {}
    for attempt, (_, _, make) in HOSTILE.items():
        answer = client.put("/v1/apps/shop", json=make(sent))
        answers[attempt] = (answer.status_code, answer.json()["code"])
        assert content_of(stage) == before, attempt

    assert answers == {attempt: (status, code) for attempt, (status, code, _) in HOSTILE.items()}
    assert sorted(map(str, tmp_path.rglob("*"))) == files


def test_a_deployment_needs_its_right_in_all_namespaces(sign, stage, sent):
    """Its programs run with the catalog, and so with the rights of all namespaces."""
    before, answers = content_of(stage), []
    for role, namespace in (("operator", None), ("developer", "other"), ("developer", "default")):
        client = sign(role, namespace)
        answers += [client.put("/v1/apps/shop", json=sent), client.post("/v1/apps:plan", json={})]
    before["audit"] = content_of(stage)["audit"]  # the new tokens

    assert {(one.status_code, one.json()["code"]) for one in answers} == {(403, "forbidden")}
    assert content_of(stage) == before


def test_no_code_is_imported_by_the_server(sign, stage, sent):
    """Neither by a deployment nor by a rollback: code of users ends its process, or reads its memory."""
    files = Bundle.receive(base64.b64decode(sent["bundle"])).files
    evil = sent | {"bundle": pack(files | {"app.py": files["app.py"] + b"\nraise SystemExit('imported')\n"})}
    client = sign("developer")

    deployed = client.put("/v1/apps/shop", json=evil)
    back = client.post("/v1/apps/shop:rollback", json={"to": 1})
    again = client.post("/v1/apps/shop:rollback", json={"to": 2})

    assert [(one.status_code, one.json()["version"]) for one in (deployed, back, again)] == [
        (200, 2),
        (200, 3),
        (200, 4),
    ]
    assert again.json()["schedules_added"] == ["hourly"]
