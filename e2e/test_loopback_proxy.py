"""The loopback proxy: the engine inside an instance, at 127.0.0.1 on its own ports, with the same credentials as
outside."""

import json

import pytest

from instances import Instances, needs_root
from support import eventually, free_port

pytestmark = needs_root
# Listens and sends its own response to every connection.
SQUATTER = """
import socket
server = socket.create_server(("127.0.0.1", {port}))
open("squatting", "w").close()
while True:
    connection, _ = server.accept()
    connection.recv(1000)
    connection.sendall(b"HTTP/1.0 200 OK\\r\\n\\r\\nmine")
    connection.close()
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """One engine with one instance for the whole file."""
    with Instances(tmp_path_factory.mktemp("inside"), "--log", "info,tarn_server::loopback_proxy=debug") as running:
        running.create("box", kind="1xCPU")
        yield running


def curl_inside(cloud, path: str, *options: str, port=None, instance="box") -> str:
    """The output of curl inside; empty when there is no response."""
    words = " ".join(["curl", "-s", "-m", "20", *options, f"'http://127.0.0.1:{port or cloud.port}{path}'"])
    return cloud.ssh(instance, words, code=None).out


def engine_responds_inside(cloud, instance="box") -> bool:
    """Whether the engine responds inside, and not another program on its port."""
    said = curl_inside(cloud, "/healthz", instance=instance)
    return said.startswith("{") and json.loads(said).get("status") == "ok"


def test_engine_responds_inside_instance(cloud):
    """The engine responds inside the instance as it does outside."""
    assert eventually(lambda: engine_responds_inside(cloud), what="a response inside")
    assert cloud.call("GET", "/healthz").json() == json.loads(curl_inside(cloud, "/healthz"))
    by_name = cloud.ssh("box", f"curl -s http://localhost:{cloud.port}/healthz").out
    assert json.loads(by_name)["status"] == "ok"


def test_loopback_proxy_grants_no_rights(cloud):
    """Calls through the loopback proxy need a key as all others do."""
    assert eventually(lambda: engine_responds_inside(cloud), what="a response inside")
    status = lambda *options: curl_inside(cloud, "/cluster/list", "-o", "/dev/null", "-w", "'%{http_code}'", *options)  # noqa: E731
    assert status() == "401"
    assert status("-H", "'Authorization: Bearer wrong'") == "401"
    with_key = ["-H", f"'Authorization: Bearer {cloud.key}'"]
    assert status(*with_key) == "200"
    clusters = json.loads(curl_inside(cloud, "/cluster/list", *with_key))["clusters"]
    assert [cluster["name"] for cluster in clusters] == ["box"]


def test_no_other_host_port_is_reachable(cloud):
    """No other port of the host is reachable inside."""
    assert eventually(lambda: engine_responds_inside(cloud), what="a response inside")
    for port in (cloud.ssh_port, free_port()):
        refused = cloud.ssh("box", f"curl -s -m 5 -o /dev/null http://127.0.0.1:{port}/", code=None)
        assert refused.code == 7, f"the port is not listened on: {refused}"


def test_many_parallel_calls_succeed(cloud):
    """Many parallel calls succeed."""
    assert eventually(lambda: engine_responds_inside(cloud), what="a response inside")
    many_calls = f"seq 300 | xargs -P 50 -I @ curl -s -m 30 -o /dev/null -w '%{{http_code}}\\n' http://127.0.0.1:{cloud.port}/healthz | sort | uniq -c"
    assert cloud.ssh("box", many_calls).out.split() == ["300", "200"]


def test_silent_connections_block_no_one(cloud):
    """Silent connections block neither another instance nor later calls."""
    other = cloud.create("neighbour")["id"]
    assert eventually(lambda: engine_responds_inside(cloud), what="a response inside")
    # More connections than the engine serves at once for one instance, and than the guest keeps waiting.
    silent = f"import socket, time; all = [socket.create_connection(('127.0.0.1', {cloud.port})) for _ in range(200)]; print('here', flush=True); time.sleep(1000)"
    cloud.ssh("box", f'nohup python3 -c "{silent}" > silent 2>&1 & echo $! > silent.pid')
    try:
        assert eventually(lambda: "here" in cloud.ssh("box", "cat silent").out, what="200 silent connections")
        assert eventually(lambda: engine_responds_inside(cloud, "neighbour"), what="a response in the other instance")
        assert cloud.call("GET", "/healthz").status_code == 200
    finally:
        cloud.ssh("box", "kill $(cat silent.pid)", code=None)
    assert eventually(lambda: engine_responds_inside(cloud), what="a response after the silent connections are closed")
    cloud.destroy(other)


def test_proxy_returns_after_engine_kill(cloud):
    """The proxy works again after the engine was killed."""
    assert eventually(lambda: engine_responds_inside(cloud), what="a response inside")
    cloud.process.kill()
    cloud.process.wait()
    cloud.start()
    assert eventually(lambda: engine_responds_inside(cloud), what="a response of the restarted engine")


def test_proxy_returns_after_instance_restart(cloud):
    """The proxy works again after a restart of the instance."""
    assert eventually(lambda: engine_responds_inside(cloud), what="a response inside")
    cloud.finish(cloud.call("POST", "/cluster/restart/box", expect=202).json()["request_id"])
    assert eventually(lambda: engine_responds_inside(cloud), what="a response after the restart")


def test_taken_port_is_left_to_its_program(cloud):
    """A program inside that holds the port keeps it; the engine retries until the port is free."""
    assert eventually(lambda: engine_responds_inside(cloud), what="a response inside")
    cloud.ssh("box", "rm -f squatting; cat > squatter.py", answer=SQUATTER.format(port=cloud.port))
    cloud.ssh("box", "nohup sh -c 'until python3 squatter.py; do sleep 0.05; done' >/dev/null 2>&1 & echo started")
    try:
        # Without an engine the port is free. The file is read from outside, because logins need the engine.
        cloud.process.kill()
        cloud.process.wait()
        assert eventually(lambda: any((root / "home/ubuntu/squatting").exists() for root in cloud.roots()), what="the program on the port")
        cloud.start()
        assert curl_inside(cloud, "/healthz") == "mine"
        tried = lambda: cloud.output().count("the loopback proxy cannot listen in the instance")  # noqa: E731
        assert eventually(lambda: tried() >= 2, what="an engine that keeps trying")
        assert curl_inside(cloud, "/healthz") == "mine", "the engine leaves the program alone each time"
    finally:
        if cloud.process.poll() is not None:
            cloud.start()
        cloud.ssh("box", "pkill -f '[s]quatter.py'", code=None)
    assert eventually(lambda: engine_responds_inside(cloud), seconds=60, what="the engine on the free port")
