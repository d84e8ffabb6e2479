"""Fixtures of the end-to-end tests: a server per test, the stock client, a second user."""

import base64
import os
import struct
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import ENVIRONMENT, Server

CLIENT = Path(sys.executable).with_name("tp")


@pytest.fixture
def server(tmp_path):
    """A fresh cloud. Every test has its own, so that none can spoil another's; its end is checked each time."""
    with Server(tmp_path / "data") as running:
        yield running
        running.stop()
        # Shown only beside a failure.
        print(running.output()[-8000:])


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


@dataclass
class Said:
    """What one run of the client did."""

    code: int
    text: str
    errors: str


@pytest.fixture
def tp(server, tmp_path):
    """Runs the stock client: `tp("cluster", "list")`. A failure without `refused=True` fails the test."""
    home = tmp_path / "home"
    home.mkdir()

    def run(*arguments, key=None, refused=False, with_key=True, answer="") -> Said:
        environment = ENVIRONMENT | {"HOME": str(home), "TENSORPOOL_ENGINE": server.url}
        if with_key:
            environment["TENSORPOOL_KEY"] = key or server.key
        done = subprocess.run(
            [str(CLIENT), *map(str, arguments)], env=environment, cwd=home,
            input=answer, capture_output=True, text=True, timeout=90,
        )  # fmt: skip
        # Away from a terminal, the client writes its progress as lines that begin with an asterisk.
        lines = [line for line in done.stdout.splitlines() if not line.startswith("* ")]
        said = Said(done.returncode, "\n".join(lines), done.stderr)
        (check_refusal if refused else check_success)(said)
        return said

    return run


def check_success(said: Said):
    """Success is exit code 0 and nothing on the error stream."""
    assert said.code == 0, said
    assert not said.errors, said


def check_refusal(said: Said):
    """A refusal is exit code 1 and words for a person: no crash, not the client's stand-in for a missing message."""
    assert said.code == 1, said
    assert len(said.text.split()) >= 3, said
    for bad in ("Traceback", "Status code", "None", "{"):
        assert bad not in said.text + said.errors, said


@pytest.fixture
def user(server):
    """Makes users: `user("ann@example.org", "org name")` answers the key of a new one."""

    def create(email: str, org_name: str | None = None) -> str:
        body = {"email": email} | ({"org_name": org_name} if org_name else {})
        return server.call("POST", "/admin/user/create", json=body, expect=200).json()["api_key"]

    return create
