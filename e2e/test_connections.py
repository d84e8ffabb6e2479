"""Connections that send nothing, on the listeners of a real engine."""

import resource
import socket
from contextlib import ExitStack

import pytest

from support import eventually

# More than the 64 that an address may have.
SILENT = 1000
MAX_SILENT = 64
BEGINNINGS = [b"", b"GET /healthz HT", b"PRI * HTTP/2.0\r\n\r\n"]


@pytest.fixture(autouse=True)
def enough_descriptors():
    """Lets this process open as many files as it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_open(connection) -> bool:
    """Whether the other side has not closed a connection on which it sent nothing."""
    try:
        return connection.recv(4096, socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False


@pytest.mark.parametrize("listener", ["api", "s3"])
def test_silent_connections_leave_room(server, listener):
    """A thousand silent connections from one address leave at most 64 open, and calls from it are served meanwhile."""
    port = server.port if listener == "api" else server.s3_port
    with ExitStack() as stack:
        silent = []
        for number in range(SILENT):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            try:
                connection.sendall(BEGINNINGS[number % len(BEGINNINGS)])
            except (BrokenPipeError, ConnectionResetError):
                pass
            silent.append(connection)
        # A call without a key is enough to see that the listener serves.
        status = server.session.get(f"http://127.0.0.1:{port}/healthz", timeout=60).status_code
        assert status == (200 if listener == "api" else 403)
        assert eventually(
            lambda: sum(map(is_open, silent)) <= MAX_SILENT, what=f"at most {MAX_SILENT} silent connections"
        )
    assert server.call("GET", "/healthz").status_code == 200
