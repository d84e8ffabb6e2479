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

# A shell that runs the tests in the background may have Ctrl-C ignored, and every program that they start would inherit
# that.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    """Records for fixtures whether their test has failed."""
    report = yield
    item.stash[FAILED] = item.stash.get(FAILED, False) or report.failed
    return report


@pytest.fixture(autouse=True)
def remove_leftovers_after_failure(request):
    """After a failed test, removes what it left in the fixtures that the tests of its file share, so that no
    other test fails because of it."""
    request.node.stash[FAILED] = False
    shared = [request.getfixturevalue(name) for name in ("cloud", "server", "storage") if name in request.fixturenames]
    before = [(each, each.existing()) for each in dict.fromkeys(shared) if hasattr(each, "existing")]
    yield
    if request.node.stash[FAILED]:
        for each, kept in before:
            each.remove_except(kept)


@pytest.fixture
def server(tmp_path):
    """A fresh engine with the fake driver. Every test has its own, so that tests cannot affect each other; its stop
    is checked."""
    with Server(tmp_path / "data") as running:
        yield running
        running.stop()
        # Shown only for a failed test.
        print(running.output()[-8000:])


@pytest.fixture
def small_disk(tmp_path, request):
    """A data directory on a separate filesystem of `DISK_MIB` MiB, as the module sets it."""
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
    """The file of a new OpenSSH public key."""
    return write_public_key(tmp_path / "id_ed25519.pub")


def write_public_key(path: Path) -> Path:
    """Writes a well-formed ed25519 public key; no test logs in with it, so it needs no private key."""
    parts = (b"ssh-ed25519", os.urandom(32))
    blob = b"".join(struct.pack(">I", len(part)) + part for part in parts)
    path.write_text(f"ssh-ed25519 {base64.b64encode(blob).decode()} someone@laptop\n")
    return path


@pytest.fixture
def tarn(server, tmp_path) -> Client:
    """The `tarn` client with the administrator's key: `tarn("cluster list")`."""
    return Client(server, tmp_path / "our-home")


@pytest.fixture
def tp(server, tmp_path, request):
    """The stock client with the administrator's key: `tp("cluster", "list")`."""
    yield from verify_proofs(StockClient(server.url, server.key, tmp_path / "home"), request)


@pytest.fixture
def user(server):
    """Creates users: `user("ann@example.org", "org name")` returns the API key of a new one."""

    def create(email: str, org_name: str | None = None) -> str:
        body = {"email": email} | ({"org_name": org_name} if org_name else {})
        answer = server.call("POST", "/admin/user/create", json=body)
        if answer.status_code == 409:  # The test is run again on the same server.
            users = {each["email"]: each["user_id"] for each in server.call("GET", "/admin/user/list", expect=200).json()["users"]}
            answer = server.call("POST", "/admin/key/create", json={"user_id": users[email]})
        assert answer.status_code == 200, answer.text
        return answer.json()["api_key"]

    return create
