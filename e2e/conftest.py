"""Fixtures of the end-to-end tests: a server per test, the stock client, a second user."""

import base64
import os
import signal
import struct
import subprocess
from pathlib import Path

import pytest

from client import Client
from stock import StockClient
from stock_proofs import verify_proofs
from support import FAILED, Server

# Whoever runs the tests in the background may let Ctrl-C be ignored, and every program that they start would inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Lets fixtures know whether their test has failed."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def remove_leftovers_after_failure(request):
    """A test that fails leaves nothing in what it shares with the other tests of its file: they would stumble over it, and so would
    the same test when it is run once more."""
    request.node.stash[FAILED] = False
    shared = [request.getfixturevalue(name) for name in ("cloud", "server", "storage") if name in request.fixturenames]
    before = [(each, each.existing()) for each in dict.fromkeys(shared) if hasattr(each, "existing")]
    yield
    if request.node.stash[FAILED]:
        for each, kept in before:
            each.remove_except(kept)


@pytest.fixture
def server(tmp_path):
    """A fresh cloud. Every test has its own, so that none can spoil another's; its end is checked each time."""
    with Server(tmp_path / "data") as running:
        yield running
        running.stop()
        # Shown only beside a failure.
        print(running.output()[-8000:])


@pytest.fixture
def small_disk(tmp_path, request):
    """A data directory on a filesystem of so many MiB as the module says, and nothing else of the machine's disk."""
    place = tmp_path / "data"
    place.mkdir()
    size = f"size={request.module.DISK_MIB}m"
    subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tarn-test", place], check=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


@pytest.fixture
def public_key(tmp_path) -> Path:
    """The file of an OpenSSH public key that nobody else has."""
    return write_public_key(tmp_path / "id_ed25519.pub")


def write_public_key(path: Path) -> Path:
    """Writes a well-formed ed25519 key; nobody will log in with it, so it needs no private half."""
    parts = (b"ssh-ed25519", os.urandom(32))
    blob = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    path.write_text(f"ssh-ed25519 {base64.b64encode(blob).decode()} someone@laptop\n")
    return path


@pytest.fixture
def tarn(server, tmp_path) -> Client:
    """Our own client with the administrator's key: `tarn("cluster list")`."""
    return Client(server, tmp_path / "our-home")


@pytest.fixture
def tp(server, tmp_path, request):
    """The stock client with the administrator's key: `tp("cluster", "list")`."""
    yield from verify_proofs(StockClient(server.url, server.key, tmp_path / "home"), request)


@pytest.fixture
def user(server):
    """Makes users: `user("ann@example.org", "org name")` answers the key of a new one."""

    def create(email: str, org_name: str | None = None) -> str:
        body = {"email": email} | ({"org_name": org_name} if org_name else {})
        answer = server.call("POST", "/admin/user/create", json=body)
        if answer.status_code == 409:  # The test is run once more, on the same server.
            users = {each["email"]: each["user_id"] for each in server.call("GET", "/admin/user/list", expect=200).json()["users"]}
            answer = server.call("POST", "/admin/key/create", json={"user_id": users[email]})
        assert answer.status_code == 200, answer.text
        return answer.json()["api_key"]

    return create
