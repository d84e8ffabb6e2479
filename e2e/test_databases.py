"""A database that is absent or hangs: the engine says so, ends every call, and continues by itself."""

import socket
import threading

import pytest
import requests

from databases import needs_postgresql, proxied_database
from doctors import doctor
from support import Server, eventually, free_port, refused_start
from test_service_manager import Manager


@pytest.fixture
def database():
    """A database that can be absent or hang."""
    with proxied_database() as made:
        yield made


def probe(server) -> tuple[int, dict]:
    """The response of `/healthz`; a connection that is refused is none."""
    try:
        answer = server.session.get(f"{server.url}/healthz", timeout=20)
    except requests.ConnectionError:
        return 0, {}
    return answer.status_code, answer.json()


def wait_until_it_waits(server, *words: str):
    """Waits until probes are told that the engine waits, and for what."""
    seen = lambda: probe(server)[0] == 503 and all(word in probe(server)[1]["message"] for word in words)  # noqa: E731
    eventually(seen, what=f"an engine that waits for {words}")
    assert server.process.poll() is None, server.output()


def absent_database() -> str:
    """The address of a database server that does not exist."""
    return f"postgres://tarn:s3cr3t@127.0.0.1:{free_port()}/tarn"


def test_engine_waits_for_database(tmp_path):
    """Without its database the engine waits: it is READY with a STATUS, refuses calls with the reason, and stops when it
    is asked to."""
    manager = Manager(tmp_path / "notify")
    server = Server(tmp_path / "data", "--database", absent_database(), environment={"NOTIFY_SOCKET": str(tmp_path / "notify")})
    with server.launch():
        wait_until_it_waits(server, "cannot open the database", "Connection refused")
        message = probe(server)[1]["message"]
        status = message.replace("the engine waits and continues by itself", "STATUS=waiting")
        manager.wait_for("READY=1", status)
        for method, path in (("GET", "/cluster/list"), ("POST", "/cluster/create"), ("GET", "/healthz")):
            answer = server.session.request(method, server.url + path, headers={"Authorization": "Bearer tp-x"}, timeout=20)
            assert (answer.status_code, answer.json()["code"]) == (503, "engine_waiting"), answer.text
            assert int(answer.headers["Retry-After"]) > 0 and answer.json()["request_id"]
        s3 = server.session.put(f"{server.s3_url}/bucket/key", timeout=20)
        assert s3.status_code == 503 and "<Code>ServiceUnavailable</Code>" in s3.text
        report = doctor(*server.command[2:])
        assert "Connection refused" in report.found["engine.answers"]["found"], report.found["engine.answers"]
        server.stop()
    manager.wait_for("STOPPING=1", "STATUS=stopping")
    assert "continues by itself" in server.output() and "s3cr3t" not in server.output()


@needs_postgresql
def test_engine_continues_when_database_comes(tmp_path, database):
    """An engine that was started before its database serves as soon as the database is there."""
    manager = Manager(tmp_path / "notify")
    environment = {"NOTIFY_SOCKET": str(tmp_path / "notify")}
    with Server(tmp_path / "data", "--database", database.url, environment=environment).launch() as server:
        wait_until_it_waits(server, "Connection refused")
        database.listen()
        eventually(server.is_healthy, what="a healthy engine")
        manager.wait_for("READY=1", "STATUS=serving")
        made = server.call("POST", "/cluster/create", json={"instance_type": "1xH100"}, expect=202).json()
        server.finish(made["request_id"])
        server.stop()


@needs_postgresql
def test_engine_waits_for_database_that_hangs_at_start(tmp_path, database):
    """A database that accepts connections and says nothing is waited for, too."""
    database.listen()
    database.freeze()
    with Server(tmp_path / "data", "--database", database.url).launch() as server:
        wait_until_it_waits(server, "database")
        database.thaw()
        eventually(server.is_healthy, what="a healthy engine")
        server.call("GET", "/me", expect=200)
        server.stop()


@needs_postgresql
def test_calls_end_while_database_hangs(tmp_path, database):
    """While the database hangs, a probe is told so before calls give up, every call gets a 503, and nothing needs to be
    restarted afterwards."""
    database.listen()
    with Server(tmp_path / "data", "--database", database.url) as server:
        server.call("GET", "/me", expect=200)
        answers = []

        def call(number):
            # More calls than the engine has connections; each sends what it would change.
            answers.append(server.call("POST", "/storage/create", json={"size": 1, "name": f"volume-{number}"}))

        database.freeze()
        calls = [threading.Thread(target=call, args=(number,)) for number in range(24)]
        for each in calls:
            each.start()
        eventually(database.waiting, what="a call that waits for the database")
        status, body = probe(server)
        assert (status, body["code"]) == (503, "unavailable"), body
        assert not answers, "the probe does not wait for the connections that the calls have"
        for each in calls:
            each.join(60)
        assert len(answers) == 24, "every call ended"
        assert {(answer.status_code, answer.json()["code"]) for answer in answers} == {(503, "unavailable")}
        assert all("Retry-After" in answer.headers for answer in answers)

        database.thaw()
        eventually(server.is_healthy, what="a healthy engine")
        made = server.call("POST", "/storage/create", json={"size": 1, "name": "afterwards"}, expect=202).json()
        server.finish(made["request_id"])
        volumes = server.call("GET", "/storage/list?all=true", expect=200).json()["volumes"]
        assert [volume["name"] for volume in volumes] == ["afterwards"], "what was refused did not happen"
        server.stop()


@needs_postgresql
def test_permanent_refusals_end_the_engine(tmp_path, database):
    """What a person has to correct is no reason to wait: a wrong collation, and another master key."""
    said = refused_start(tmp_path / "none", "--database", "postgres://127.0.0.1:notaport/tarn")
    assert "cannot be understood" in said
    database.listen()
    with Server(tmp_path / "first", "--database", database.url) as server:
        server.stop()
    assert "master key" in refused_start(tmp_path / "second", "--database", database.url)
    other = f"{database.name}_icu"
    database.sql("postgres", f"create database {other} template template0 locale_provider icu icu_locale 'en' locale 'C' encoding 'UTF8'")
    try:
        assert "does not sort by bytes" in refused_start(tmp_path / "third", "--database", f"{database.base}/{other}")
    finally:
        database.sql("postgres", f"drop database {other} with (force)")


def test_taken_port_is_no_reason_to_wait(tmp_path):
    """An engine that waits has its ports, and one whose port is taken ends."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        listen = "127.0.0.1:{}".format(taken.getsockname()[1])
        assert "cannot listen" in refused_start(tmp_path / "data", "--database", absent_database(), "--listen", listen)
