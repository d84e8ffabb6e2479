"""The life cycle of `tarn serve` for its operator: first start, restart, stop and a lost key, on either database."""

import os
import re
import socket
import stat
import subprocess

import pytest
import requests

from support import ENVIRONMENT, Server, refused_start, tarn

API_KEY = re.compile(r"tp-[A-Za-z0-9]{40}")


def test_first_start_writes_admin_key(server):
    """The first start writes the administrator's key to a private file and not to the log."""
    path = server.data / "admin.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert API_KEY.fullmatch(path.read_text().removesuffix("\n"))
    server.call("GET", "/me", expect=200)
    output = server.output()
    assert "admin.key" in output, "the first start says how to use it"
    assert server.key not in output, "a secret does not belong in a log"


def test_restart_keeps_state(tmp_path):
    """A restart keeps the key and the clusters."""
    with Server(tmp_path / "data") as first:
        key = first.key
        made = first.call("POST", "/cluster/create", json={"instance_type": "1xH100"}, expect=202).json()
        first.finish(made["request_id"])
        first.stop()
    with Server(tmp_path / "data") as second:
        assert second.key == key
        info = second.call("GET", f"/cluster/info/{made['cluster_id']}", expect=200).json()["cluster_info"]
        assert info["status"] == "RUNNING"
        ended = second.call("DELETE", f"/cluster/{made['cluster_id']}", expect=202).json()
        second.finish(ended["request_id"])
        second.stop()


def test_second_engine_on_same_data_is_refused(server):
    """A second engine on the same data directory refuses to start."""
    said = refused_start(server.data)
    assert str(server.data) in said or "already" in said, said
    server.call("GET", "/me", expect=200)


def test_taken_port_is_named(server, tmp_path):
    """An engine whose port is taken names the port."""
    said = refused_start(tmp_path / "other", "--listen", f"127.0.0.1:{server.port}")
    assert str(server.port) in said and "in use" in said.lower(), said


def test_idle_connections_do_not_delay_stop(server):
    """Idle connections do not delay a stop."""
    # Running calls may take this long. A busy host may need as long by itself, but not every time.
    assert any(stopped_with_idle_connections(server) < 4.5 for _ in range(5))


def stopped_with_idle_connections(server) -> float:
    """Stops the server while idle connections are open, and starts it again; returns how long the stop took."""
    with socket.create_connection(("127.0.0.1", server.port)) as idle, requests.Session() as kept:
        kept.trust_env = False
        kept.get(f"{server.url}/healthz", timeout=60)
        took = server.stop()
        idle.settimeout(60)
        assert idle.recv(1) == b"", "the connection is closed with the server"
    server.start()
    return took


def test_key_reset_replaces_admin_key(server):
    """`tarn admin key reset` replaces the administrator's key."""
    old = server.key
    server.stop()
    done = tarn("admin", "key", "reset", "--data", server.data)
    assert done.returncode == 0, done
    new = server.key
    assert API_KEY.fullmatch(new) and new != old
    assert stat.S_IMODE((server.data / "admin.key").stat().st_mode) == 0o600
    server.start()
    server.call("GET", "/me", expect=200)
    assert server.call("GET", "/me", key=old).status_code == 401


@pytest.mark.skipif("TARN_TEST_POSTGRES" not in os.environ, reason="needs scripts/with-postgres")
def test_postgresql_keeps_state(tmp_path):
    """An engine on PostgreSQL keeps its state through restarts."""
    base, _, _ = os.environ["TARN_TEST_POSTGRES"].rpartition("/")
    name = f"lifecycle_{os.getpid()}"
    create = ["psql", os.environ["TARN_TEST_POSTGRES"], "-qc", f"create database {name}"]
    subprocess.run(create, check=True, env=ENVIRONMENT)
    for _ in range(2):
        with Server(tmp_path / "data", "--database", f"{base}/{name}") as server:
            made = server.call("POST", "/cluster/create", json={"instance_type": "1xH100"}, expect=202).json()
            server.finish(made["request_id"])
            server.stop()
    with Server(tmp_path / "data", "--database", f"{base}/{name}") as server:
        assert len(server.call("GET", "/cluster/list", expect=200).json()["clusters"]) == 2
        server.stop()
