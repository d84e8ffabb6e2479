"""The REST API, checked against its own OpenAPI document and the API's original specification."""

import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from .document import seeds

CLUSTER, VOLUME, REQUEST, JOB = (f"{kind}-000000000000" for kind in "csrj")
SEEDS = [(path, method, seed) for seed in seeds() for path, methods in seed.text["paths"].items() for method in methods]
# Calls that need only a key, and the fields that existing clients need in the response.
LISTS = {
    "/cluster/list": {"clusters", "message"}, "/cluster/list?instances=True": {"clusters", "message"},
    "/cluster/list?include_org=True": {"clusters", "message"}, "/storage/list": {"volumes", "message"},
    "/storage/list?include_org=true": {"volumes", "message"}, "/job/list?include_org=False": {"jobs", "message"},
    "/user/info": {"message"}, "/user/ssh-key/list?include_org=True": {"keys", "message"},
    "/job/init": {"empty_tp_config"},
    "/user/preferences": {"notify_email_cluster_create", "notify_email_cluster_destroy", "autopay_enabled"},
}  # fmt: skip


@pytest.mark.parametrize("path, method, seed", SEEDS, ids=lambda each: each if isinstance(each, str) else "")
def test_openapi_keeps_original_operations(engine, path, method, seed):
    """The engine's document keeps the operations, responses and fields of the API's original specification."""
    if engine.own is None:
        pytest.skip("this engine has no /openapi.json")
    original, ours = seed.text["paths"][path][method], engine.own.text["paths"][path][method]
    assert original["operationId"] == ours["operationId"]
    assert original["responses"].keys() <= ours["responses"].keys()
    assert seed.required(method, path, 202) <= engine.own.required(method, path, 202)


def test_missing_field_is_found():
    """The original specification has three operations, and the comparison with it finds a missing field."""
    assert len(SEEDS) == 3
    for path, method, seed in SEEDS:
        assert seed.operation(method, path.replace("{cluster}", "box").replace("{storage_id}", "s-1"))
        faults = seed.faults(seed.schema(seed.text["paths"][path][method], 202), {"message": "accepted"})
        assert len(faults) == 1 and "_id" in faults[0], faults


def test_health_accepts_clients(engine):
    """The engine is healthy and accepts the stock client."""
    assert engine.session.get(f"{engine.url}/healthz", timeout=30).status_code == 200
    client = {
        "package_version": "0.0.9", "uname": ["Linux", "", "", "", "", ""], "python_version": "3",
        "python_implementation": "", "python_compiler": "", "python_build": ["", ""],
    }  # fmt: skip
    answer = engine.call("POST", "/health", json=client, expect=200).json()
    assert answer["message"] is None or answer["message"].strip()


@pytest.mark.parametrize("path", LISTS)
def test_list_has_required_fields(engine, path):
    """The lists have the fields that clients need."""
    engine.skip_unless_offered("GET", path)
    # The stock client sends this header although there is no body.
    answer = engine.call("GET", path, headers={"Content-Type": "application/json"}, expect=200).json()
    assert LISTS[path] <= answer.keys()


@pytest.mark.parametrize("key", [None, "", "tp-" + "x" * 40, "ünïcode"], ids=["none", "empty", "unknown", "odd"])
def test_calls_need_key(engine, key):
    """Calls without a valid key are refused."""
    for method, path in (("GET", "/cluster/list"), ("POST", "/storage/attach"), ("DELETE", f"/cluster/{CLUSTER}")):
        header = {} if key is None else {"Authorization": f"Bearer {key}".encode()}
        answer = engine.session.request(method, engine.url + path, headers=header, timeout=30)
        assert answer.status_code in (401, 403) and answer.json()["message"], answer.text


def test_missing_objects_return_404(engine):
    """Objects that do not exist return 404."""
    for method, path in (
        ("GET", f"/cluster/info/{CLUSTER}"), ("DELETE", f"/cluster/{CLUSTER}"),
        ("GET", f"/storage/info/{VOLUME}"), ("DELETE", f"/storage/{VOLUME}"),
        ("GET", f"/request/info/{REQUEST}"), ("GET", f"/job/info/{JOB}"), ("GET", "/ssh/i-000000000000"),
    ):  # fmt: skip
        engine.call(method, path, expect=404)
    engine.call("DELETE", "/storage/not-an-id", expect=400)


def test_invalid_bodies_return_422(engine):
    """Invalid bodies return 422 with the fields at fault."""
    wrong = [{}, {"storage_id": VOLUME, "cluster_ids": []}, {"storage_id": 1, "cluster_ids": "c"}]
    wrong.append({"storage_id": VOLUME, "cluster_ids": [CLUSTER] * 2})
    for body in wrong:
        faults = engine.call("POST", "/storage/attach", json=body, expect=422).json()["detail"]
        assert all({"loc", "msg", "type"} <= fault.keys() for fault in faults) and faults, faults


def test_changes_are_followed_by_request(engine):
    """Every change is accepted at once, and its request can be followed to the end."""
    cluster = engine.create()
    assert cluster["status"] == "RUNNING" and len(cluster["instances"]) == 1
    made = engine.call("POST", "/storage/create", json={"size": 1, "name": engine.name()})
    if made.status_code == 400:
        pytest.skip(f"this engine has no volumes: {made.json()['message']}")
    volume = made.json()["storage_id"]
    assert engine.finish(made.json()["request_id"])["object_id"] == volume

    attach = {"storage_id": volume, "cluster_ids": [cluster["id"]]}
    accepted = engine.call("POST", "/storage/attach", json=attach)
    if accepted.status_code == 400:
        pytest.skip(f"this engine attaches no volume to {engine.type()}: {accepted.json()['message']}")
    [request] = accepted.json()["request_ids"]
    assert engine.finish(request)["request_type"] == "STORAGE_ATTACH"
    assert engine.volume(volume)["attached_clusters"] == [cluster["id"]]
    assert volume in engine.info(cluster["id"])["storage"]
    engine.call("POST", "/storage/attach", json=attach, expect=409)
    engine.call("DELETE", f"/storage/{volume}", expect=409)

    detach = {"storage_id": volume, "cluster_id": cluster["id"]}
    detached = engine.call("POST", "/storage/detach", json=detach, expect=202)
    engine.finish(detached.json()["request_id"])
    engine.finish(engine.call("DELETE", f"/cluster/{cluster['id']}", expect=202).json()["request_id"])
    engine.finish(engine.call("DELETE", f"/storage/{volume}", expect=202).json()["request_id"])
    engine.call("DELETE", f"/cluster/{cluster['id']}", expect=409)


@pytest.mark.parametrize("path", ["/job/push", f"/job/listen/{JOB}"])
def test_socket_needs_key(engine, path):
    """A WebSocket without a valid key is closed with an error."""
    engine.skip_unless_offered("GET", "/job/init")
    address = engine.url.replace("http", "ws", 1) + path
    with connect(address, proxy=None if not engine.session.trust_env else True, open_timeout=30) as socket:
        socket.send('{"TENSORPOOL_KEY": "nonsense"}')
        with pytest.raises(ConnectionClosed):
            while True:
                assert "message" in socket.recv(timeout=30)
        assert socket.close_code not in (1000, 1006)
