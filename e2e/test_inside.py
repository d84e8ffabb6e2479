"""The engine as it is seen from inside an instance: at 127.0.0.1, on its own ports, with the credentials of the outside."""

import json

import pytest

from machines import Machines, needs_root
from support import eventually, free_port

pytestmark = needs_root
# Listens, and says its own word to whoever comes.
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
    """One cloud with one machine for the whole file."""
    with Machines(tmp_path_factory.mktemp("inside"), "--log", "info,tarn_server::inside=debug") as running:
        running.create("box", kind="1xCPU")
        yield running


def inside(cloud, path: str, *options: str, port=None, machine="box") -> str:
    """What curl says inside; nothing when nobody answers."""
    words = " ".join(["curl", "-s", "-m", "20", *options, f"'http://127.0.0.1:{port or cloud.port}{path}'"])
    return cloud.ssh(machine, words, code=None).out


def is_open(cloud, machine="box") -> bool:
    """Whether the engine answers inside, and not somebody else who has its port."""
    said = inside(cloud, "/healthz", machine=machine)
    return said.startswith("{") and json.loads(said).get("status") == "ok"


def test_the_engine_answers_inside(cloud):
    assert eventually(lambda: is_open(cloud), what="an answer inside")
    assert cloud.call("GET", "/healthz").json() == json.loads(inside(cloud, "/healthz"))
    by_name = cloud.ssh("box", f"curl -s http://localhost:{cloud.port}/healthz").out
    assert json.loads(by_name)["status"] == "ok"


def test_a_door_gives_no_right(cloud):
    assert eventually(lambda: is_open(cloud), what="an answer inside")
    status = lambda *options: inside(cloud, "/cluster/list", "-o", "/dev/null", "-w", "'%{http_code}'", *options)  # noqa: E731
    assert status() == "401"
    assert status("-H", "'Authorization: Bearer wrong'") == "401"
    with_key = ["-H", f"'Authorization: Bearer {cloud.key}'"]
    assert status(*with_key) == "200"
    clusters = json.loads(inside(cloud, "/cluster/list", *with_key))["clusters"]
    assert [cluster["name"] for cluster in clusters] == ["box"]


def test_nothing_else_of_the_host_is_there(cloud):
    assert eventually(lambda: is_open(cloud), what="an answer inside")
    for port in (cloud.ssh_port, free_port()):
        refused = cloud.ssh("box", f"curl -s -m 5 -o /dev/null http://127.0.0.1:{port}/", code=None)
        assert refused.code == 7, f"nobody listens there: {refused}"


def test_many_calls_at_once(cloud):
    assert eventually(lambda: is_open(cloud), what="an answer inside")
    crowd = f"seq 300 | xargs -P 50 -I @ curl -s -m 30 -o /dev/null -w '%{{http_code}}\\n' http://127.0.0.1:{cloud.port}/healthz | sort | uniq -c"
    assert cloud.ssh("box", crowd).out.split() == ["300", "200"]


def test_those_who_say_nothing_harm_nobody(cloud):
    other = cloud.create("neighbour")["id"]
    assert eventually(lambda: is_open(cloud), what="an answer inside")
    # More than the engine carries at once for one instance, and than the guest keeps waiting.
    silent = f"import socket, time; all = [socket.create_connection(('127.0.0.1', {cloud.port})) for _ in range(200)]; print('here', flush=True); time.sleep(1000)"
    cloud.ssh("box", f'nohup python3 -c "{silent}" > silent 2>&1 & echo $! > silent.pid')
    try:
        assert eventually(lambda: "here" in cloud.ssh("box", "cat silent").out, what="the crowd")
        assert eventually(lambda: is_open(cloud, "neighbour"), what="an answer in the neighbour")
        assert cloud.call("GET", "/healthz").status_code == 200
    finally:
        cloud.ssh("box", "kill $(cat silent.pid)", code=None)
    assert eventually(lambda: is_open(cloud), what="an answer after the crowd has gone")
    cloud.destroy(other)


def test_the_engine_may_die(cloud):
    assert eventually(lambda: is_open(cloud), what="an answer inside")
    cloud.process.kill()
    cloud.process.wait()
    cloud.start()
    assert eventually(lambda: is_open(cloud), what="an answer of the next engine")


def test_the_instance_may_restart(cloud):
    assert eventually(lambda: is_open(cloud), what="an answer inside")
    cloud.finish(cloud.call("POST", "/cluster/restart/box", expect=202).json()["request_id"])
    assert eventually(lambda: is_open(cloud), what="an answer after the restart")


def test_a_port_that_is_taken_stays_so(cloud):
    assert eventually(lambda: is_open(cloud), what="an answer inside")
    cloud.ssh("box", "rm -f squatting; cat > squatter.py", answer=SQUATTER.format(port=cloud.port))
    cloud.ssh("box", "nohup sh -c 'until python3 squatter.py; do sleep 0.05; done' >/dev/null 2>&1 & echo started")
    try:
        # Without an engine the port is free. What the program writes is seen from outside, as nobody can log in now.
        cloud.process.kill()
        cloud.process.wait()
        assert eventually(lambda: any((root / "home/ubuntu/squatting").exists() for root in cloud.roots()), what="the program in the port")
        cloud.start()
        assert inside(cloud, "/healthz") == "mine"
        tried = lambda: cloud.output().count("the loopback proxy cannot listen in the instance")  # noqa: E731
        assert eventually(lambda: tried() >= 2, what="an engine that goes on trying")
        assert inside(cloud, "/healthz") == "mine", "and leaves the program alone each time"
    finally:
        if cloud.process.poll() is not None:
            cloud.start()
        cloud.ssh("box", "pkill -f '[s]quatter.py'", code=None)
    assert eventually(lambda: is_open(cloud), seconds=60, what="the engine in the port that became free")
