"""The unchanged `tp` 0.0.9 and real instances: from a key to a shell and to the destroyed cluster."""

import pytest

from instances import Instances, needs_root

pytestmark = needs_root


@pytest.fixture
def server(tmp_path):
    """An engine with real instances; it replaces the engine with the fake driver for the client's fixture."""
    with Instances(tmp_path) as running:
        yield running


def test_key_to_shell_and_destroy(tp, server):
    """From adding a key to a shell in each node, and to the destroyed cluster."""
    public = server.identity.with_suffix(".pub")
    tp("me", "sshkey", "add", public)
    key = server.call("GET", "/user/ssh-key/list", expect=200).json()["keys"][0]["id"]
    assert key in tp("me", "sshkey", "list").text
    tp("cluster", "create", "tiny", "-i", public, "--name", "heron", "-n", "2", "--wait")
    cluster = server.info("heron")
    assert cluster["status"] == "RUNNING"

    instances = tp("cluster", "list", "--instances").text
    info = tp("cluster", "info", "heron").text
    for node in cluster["instances"]:
        assert node["id"] in instances and node["id"] in info
        said = tp("ssh", node["id"], "-i", server.identity, "hostname")
        assert node["name"] in said.text

    tp("cluster", "edit", cluster["id"], "--name", "egret")
    assert server.ssh("egret", "hostname").out.strip() == cluster["instances"][0]["name"]
    tp("me", "sshkey", "remove", key)
    assert server.ssh("egret", "true", code=None).code == 255, "a removed key opens nothing"

    tp("cluster", "destroy", cluster["id"], "--no-input", "--wait")
    assert cluster["id"] not in tp("cluster", "list").text


def test_ssh_to_destroyed_instance_is_refused(tp, server):
    """SSH to a destroyed instance is refused."""
    cluster = server.create("gone")
    server.destroy(cluster["id"])
    tp("ssh", cluster["instances"][0]["id"], refused=True)
