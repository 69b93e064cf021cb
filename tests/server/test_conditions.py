"""`ETag` and `If-Match`: of two callers that saw the same state, the second one changes nothing, and gets 412."""

from __future__ import annotations

import threading
from itertools import product

import pytest

from tests.errors import raises_code
from tests.served import serving
from tidemill.cli.main import main
from tidemill.client.connect import connect
from tidemill.mill.operations import OPERATIONS
from tidemill.mill.routes import list_routes
from tidemill.server.examples import example_inputs

CONDITIONAL = {
    "app.delete",
    "app.deploy",
    "app.rollback",
    "schedule.delete",
    "schedule.resume",
    "schedule.suspend",
    "schedule.update",
}
SCHEDULE = "/v1/schedules/shop.nightly"
EVERY = {"trigger": {"type": "every", "duration": "1h"}}
CHANGES = {
    "update": ("PATCH", SCHEDULE, EVERY),
    "suspend": ("POST", f"{SCHEDULE}:suspend", {}),
    "resume": ("POST", f"{SCHEDULE}:resume", {}),
    "delete": ("DELETE", SCHEDULE, {}),
    "rollback": ("POST", "/v1/apps/shop:rollback", {}),
    "delete app": ("DELETE", "/v1/apps/shop", {}),
}


def edit(stage):
    """Deploy other code."""
    app = stage.mill.project.config.app
    app.write_text(f"{app.read_text()}\n# edited\n")
    stage.mill.deploy()


def test_the_operations_that_take_a_generation():
    """The parameter, the header and the option say the same."""
    project = {"deploy"}

    assert {one.action for one in OPERATIONS if "if_generation" in one.parameters} == CONDITIONAL | project


def test_a_schedule_an_app_and_a_data_set_have_a_tag(sign, stage):
    """The tag is the generation in the record, and each change of the thing makes another one."""
    client = sign("viewer")
    paths = {
        "/v1/schedules/shop.nightly": "generation",
        "/v1/apps/shop": "version",
        "/v1/datasets/orders": "generation",
    }
    before = {path: client.get(path) for path in paths}
    text = stage.mill.project.config.app.read_text()
    changed = text.replace("30 2", "30 3").replace(
        '"orders", keys={"day": "date"}', '"orders", keys={"day": "date"}, retention="90d"'
    )
    stage.mill.project.config.app.write_text(changed)
    stage.mill.deploy()
    after = {path: client.get(path) for path in paths}
    stage.mill.deploy()

    for path, field in paths.items():
        assert (before[path].headers["etag"], after[path].headers["etag"]) == ('"1"', '"2"')
        assert after[path].json()[field] == 2
        assert client.get(path).headers["etag"] == '"2"'
    assert "etag" not in client.get("/v1/schedules").headers


@pytest.mark.parametrize("change", CHANGES)
def test_a_lost_update_is_refused(sign, stage, change):
    """412 names the generation that is there, and nothing was changed, nor written to the audit log."""
    method, path, body = CHANGES[change]
    edit(stage)  # deployment 2
    stage.mill.schedules.update("shop.nightly", priority=3)  # generation 2
    client = sign("developer")
    thing = SCHEDULE if "schedules" in path else "/v1/apps/shop"
    tag = client.get(thing).headers["etag"]
    before, notes = client.get(thing).json(), len(stage.mill.audit.log())
    refused = client.request(method, path, json=body, headers={"if-match": '"77"'})
    unchanged = (client.get(thing).json(), len(stage.mill.audit.log()))
    made = client.request(method, path, json=body, headers={"if-match": tag})

    assert (refused.status_code, refused.json()["code"]) == (412, "changed_meanwhile")
    assert f'"{refused.json()["generation"]}"' == tag
    assert unchanged == (before, notes)
    assert made.status_code == 200, made.text


@pytest.mark.parametrize(
    "headers",
    [
        {"if-match": "7"},
        {"if-match": 'W/"7"'},
        {"if-match": '"1", "2"'},
        {"if-match": '"x"'},
        {"if-match": ""},
        {"if-match": '"9999999999999999999999"'},
        {"if-none-match": '"1"'},
        {"if-none-match": "*", "if-match": '"1"'},
    ],
)
def test_a_condition_that_cannot_be_read_is_refused(sign, stage, headers):
    """A condition with a slip is never taken for none."""
    answer = sign("developer").post(f"{SCHEDULE}:suspend", json={}, headers=headers)

    assert (answer.status_code, answer.json()["code"]) == (400, "bad_condition")
    assert stage.mill.schedules.show("shop.nightly").status == "SCHEDULED"


def test_a_change_that_checks_no_condition_refuses_one(sign, subtests):
    """A caller that sends a condition believes that a lost update is refused."""
    client = sign("admin")
    routes = [one for one in list_routes() if one.method != "GET" and not one.conditional]
    for route, header in product(routes, ("If-Match", "If-None-Match")):
        with subtests.test(route.operation.action, header=header):
            path = route.path.format(**dict.fromkeys(route.in_path, "1"))
            body = [] if route.document is not None else example_inputs(route)
            answer = client.request(route.method, path, json=body, headers={header: "*"})

            assert (answer.status_code, answer.json()["code"]) == (400, "bad_condition"), answer.text
            assert f"{route.operation.action} checks no condition" in answer.json()["detail"]


def test_any_generation_and_none_at_all(sign, stage):
    """`If-Match: *` is met by what is there, `If-None-Match: *` by what is not."""
    client = sign("developer")
    there = client.post(f"{SCHEDULE}:suspend", json={}, headers={"if-match": "*"})
    is_there = client.post(f"{SCHEDULE}:resume", json={}, headers={"if-none-match": "*"})
    missing = client.delete("/v1/schedules/shop.none", headers={"if-match": "*"})

    assert [one.status_code for one in (there, is_there, missing)] == [200, 412, 404]


def test_of_many_callers_that_saw_one_state_one_succeeds(sign, stage):
    """The condition is checked in the transaction of the change: a check before it would let several pass."""
    client = sign("developer")
    barrier, statuses = threading.Barrier(8), []

    def update(priority):
        barrier.wait()
        answer = client.patch(SCHEDULE, json={"priority": priority}, headers={"if-match": '"1"'})
        statuses.append((answer.status_code, priority))

    threads = [threading.Thread(target=update, args=(priority,)) for priority in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (won,) = [priority for status, priority in statuses if status == 200]

    assert sorted(status for status, _ in statuses) == [200] + [412] * 7
    assert stage.mill.schedules.show("shop.nightly").priority == won
    assert stage.mill.schedules.show("shop.nightly").generation == 2


def test_the_client_and_the_commands_take_the_same_parameter(stage, capsys, monkeypatch):
    """Beside the catalog, by way of a server, and on the command line, with the same error."""
    with serving(stage.mill) as (url, secret), connect(url, token=secret) as far:
        monkeypatch.setenv("TIDEMILL_TOKEN", secret)
        for mill in (stage.mill, far):
            with raises_code("changed_meanwhile"):
                mill.schedules.update("shop.nightly", if_generation=7, priority=3)
            with raises_code("changed_meanwhile"):
                mill.apps.delete("shop", if_generation=7)
            assert mill.schedules.suspend("shop.nightly", if_generation=1).status == "SUSPENDED"
        place = ["--project", str(stage.mill.project.config.folder)]
        for options in (["--catalog", stage.mill.project.config.catalog], ["--server", url]):
            for words in (
                "schedule update shop.nightly --priority 4",
                "schedule suspend shop.nightly",
                "schedule resume shop.nightly",
                "schedule delete shop.nightly",
                "app rollback shop",
                "app delete shop",
                "deploy",
            ):
                if words == "app rollback shop":
                    edit(stage)
                with pytest.raises(SystemExit) as ended:
                    main([*place, *options, *words.split(), "--if-generation", "77"])
                printed = capsys.readouterr()
                assert (ended.value.code, "[changed_meanwhile]" in printed.err) == (3, True), (words, printed)


def test_a_generation_is_that_of_one_thing(stage, capsys):
    """A caller has seen a generation of each of several things."""
    place = ["--project", str(stage.mill.project.config.folder), "--catalog", stage.mill.project.config.catalog]
    text = stage.mill.project.config.app.read_text()
    stage.mill.project.config.app.write_text(f"{text}\ntill = tm.App('till')\n")
    for words in (
        "schedule delete shop.nightly shop.on_orders",
        "schedule suspend --all",
        "schedule resume --suspended-between 2026-01-01 2026-01-02",
        "deploy",
    ):
        with pytest.raises(SystemExit) as ended:
            main([*place, *words.split(), "--if-generation", "1"])
        assert (ended.value.code, "generation" in capsys.readouterr().err) == (2, True), words


def test_a_new_app_can_be_demanded(stage):
    """0 is the generation of what is not there, also after a deletion."""
    with raises_code("changed_meanwhile"):
        stage.mill.deploy(if_generation=0)
    stage.mill.apps.delete("shop")

    assert stage.mill.deploy(if_generation=0)[0].version == 2
    assert stage.mill.deploy(if_generation=2)[0].version == 2
