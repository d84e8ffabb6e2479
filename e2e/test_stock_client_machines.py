"""The unchanged `tp` 0.0.9 on real machines: from a key to a shell and back to nothing."""

import re

import pytest

from machines import needs_root
from volumes import Volumes

pytestmark = needs_root
STORAGE_ID = re.compile(r"\bs-[0-9a-hjkmnp-tv-z]{12}\b")


@pytest.fixture
def server(tmp_path):
    """A cloud whose machines are real; the client's fixture uses it in the fake one's place."""
    with Volumes(tmp_path) as running:
        yield running


def test_from_a_key_to_a_shell_and_back(tp, server):
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


def test_a_stopped_machine_cannot_be_entered(tp, server):
    cluster = server.create("gone")
    server.destroy(cluster["id"])
    tp("ssh", cluster["instances"][0]["id"], refused=True)


def test_data_outlives_the_cluster_it_was_written_on(tp, server):
    public = server.identity.with_suffix(".pub")
    tp("cluster", "create", "tiny", "-i", public, "--name", "heron", "-n", "2", "--wait")
    volume = STORAGE_ID.search(tp("storage", "create", "1", "--name", "data", "--wait").text)[0]
    for said in (tp("storage", "list").text, tp("storage", "info", volume).text):
        assert volume in said and "data" in said and "READY" in said
    first = server.info("heron")
    tp("cluster", "attach", first["id"], volume, "--wait")
    assert server.info("heron")["instances"] == first["instances"], "the nodes come back as they were"
    server.ssh("heron", "head -c 20000000 /dev/urandom > data/file && sync data/file")
    checksum = server.ssh(first["instances"][1]["name"], f"sha256sum < /mnt/{volume}/file").out
    assert first["id"] in tp("storage", "info", volume).text
    assert "attached" in tp("storage", "destroy", volume, "--no-input", refused=True).text

    tp("cluster", "detach", first["id"], volume, "--wait")
    assert server.mounted("heron") == set()
    tp("cluster", "destroy", first["id"], "--no-input", "--wait")
    tp("cluster", "create", "tiny", "-i", public, "--name", "egret", "--wait")
    second = server.info("egret")["id"]
    tp("cluster", "attach", second, volume, "--wait")
    assert server.ssh("egret", "sha256sum < data/file").out == checksum

    # Destroying a cluster takes the volume off it and keeps the data.
    tp("cluster", "destroy", second, "--no-input", "--wait")
    assert volume in tp("storage", "list").text
    tp("storage", "destroy", volume, "--no-input", "--wait")
    assert volume not in tp("storage", "list").text and volume not in server.files()
