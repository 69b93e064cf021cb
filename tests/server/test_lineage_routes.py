"""Lineage, flow and search by REST: as the facade gives them, and a clear answer to what cannot be."""

from __future__ import annotations

import pytest


def test_lineage_flow_and_search_answer_as_the_facade_does(stage, sign):
    """A page of another team is made of these answers."""
    client = sign("viewer")
    stage.publish("orders", "day=2026-01-01")
    run_id = stage.mill.runs.list()[0].run_id
    wanted = {"partition": "day=2026-01-01", "direction": "upstream"}

    declared = client.get("/v1/datasets/orders/lineage").json()
    actual = client.get("/v1/datasets/orders/lineage", params=wanted).json()
    of_run = client.get(f"/v1/runs/{run_id}/lineage").json()
    flow = client.get("/v1/flow").json()
    found = client.get("/v1/search", params={"text": "ord"}).json()

    assert "program:default.shop.sift" in [node["id"] for node in declared["nodes"]]
    assert [edge["kind"] for edge in actual["edges"]] == ["writes"]
    assert [node["depth"] for node in of_run["nodes"]] == [0, 1]
    assert len(flow["nodes"]) == len(stage.mill.flow().nodes)
    assert [(hit["kind"], hit["name"]) for hit in found["hits"]] == [("dataset", "default.orders")]


@pytest.mark.parametrize(
    "path",
    [
        "/v1/datasets/orders/lineage?depth=0",
        "/v1/datasets/orders/lineage?depth=x",
        "/v1/datasets/orders/lineage?version=99999999999999999999999",
        "/v1/datasets/orders/lineage?partition=hour%3D1",
        "/v1/datasets/orders/lineage?direction=sideways",
        "/v1/datasets/nothing/lineage",
        "/v1/inboxes/orders/lineage?file=a",
        "/v1/runs/a%00b/lineage",
        "/v1/runs/run_1/lineage",
        "/v1/flow?limit=0",
        "/v1/search",
        "/v1/search?text=%00",
        "/v1/search?text=o&limit=999",
    ],
)
def test_what_cannot_be_asked_has_a_clear_answer(sign, path):
    """A mistyped bound is the caller's: the answer says so, and never 500."""
    answer = sign("viewer").get(path)

    assert answer.status_code in {404, 422}
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_caller_of_another_namespace_gets_empty_answers(stage, sign):
    """The graph of all teams would else be open to each of them."""
    client = sign("viewer", namespace="other")
    stage.publish("orders", "day=2026-01-01")

    assert client.get("/v1/flow").json()["nodes"] == []
    assert client.get("/v1/search", params={"text": "o"}).json()["hits"] == []
    assert client.get("/v1/datasets/default.orders/lineage").status_code == 404
    assert client.get(f"/v1/runs/{stage.mill.runs.list()[0].run_id}/lineage").status_code == 404
