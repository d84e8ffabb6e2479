"""Every command of the unchanged `tp` 0.0.9 has a test of its success and its refusal. None works without a key."""

import importlib
import inspect

import pytest

from stock import commands, required_arguments
from stock_proofs import PROOFS, proof_location
from support import Server

WRONG_KEY = "tp-" + "x" * 40


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One engine for the whole file, on which nothing is created."""
    with Server(tmp_path_factory.mktemp("commands") / "data") as running:
        yield running


def test_proofs_cover_every_command():
    """`PROOFS` lists exactly the commands of the client."""
    assert commands().keys() == PROOFS.keys()


@pytest.mark.parametrize("command", PROOFS)
def test_command_has_proofs(command):
    """Each command has a test of its success and tests of its refusals."""
    works, *refused = PROOFS[command]
    assert refused or not required_arguments(commands()[command]), "a command with arguments can have wrong ones"
    for test in (works, *refused):
        module, name = proof_location(test)
        # A test without the client would never have its claims checked.
        assert "tp" in inspect.signature(getattr(importlib.import_module(module), name)).parameters, test


@pytest.mark.parametrize("command", commands())
def test_command_needs_key(tp, server, command):
    """No command works without a key or with an unknown one."""
    given = ["1" if action.type is int else f"some-{action.dest}" for action in required_arguments(commands()[command])]
    said = tp(*command.split(), *given, with_key=False, refused=True).text
    assert "TENSORPOOL_KEY" in said and not (tp.home / ".env").exists()
    said = tp(*command.split(), *given, key=WRONG_KEY, refused=True).text
    assert "key" in said.lower() and WRONG_KEY not in said
    assert server.call("GET", "/request/list", expect=200).json()["requests"] == []


def test_env_file_key_is_used(tp, server):
    """The key of `.env` in the directory is used."""
    (tp.home / ".env").write_text(f"OTHER=1\nTENSORPOOL_KEY='{server.key}'\n")
    assert "admin@" in tp("me", with_key=False).text
    (tp.home / ".env").write_text(f"TENSORPOOL_KEY={WRONG_KEY}\n")
    tp("me", with_key=False, refused=True)
