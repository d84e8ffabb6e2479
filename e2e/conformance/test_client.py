"""The unchanged `tp` 0.0.9: the account, its keys, and clusters from create to destroy."""

import re

import pytest

from instances import make_identity

CLUSTER_ID = re.compile(r"\bc-[0-9A-Za-z_-]+")


def test_me_shows_engine(tp, engine):
    """`tp me` shows the engine, and an unknown key is refused."""
    assert f"TENSORPOOL_ENGINE={engine.url}" in tp("me").text
    assert tp("me", key="tp-" + "x" * 40, refused=True)


def test_sshkey_add_list_remove(tp, engine, tmp_path):
    """SSH keys are added, listed and removed."""
    saved = make_identity(tmp_path / "saved").with_suffix(".pub")
    before = engine.own_ids("/user/ssh-key/list", "keys")
    tp("me", "sshkey", "add", saved, "--name", engine.name())
    [key] = [each for each in engine.own_ids("/user/ssh-key/list", "keys") if each not in before]
    assert key in tp("me", "sshkey", "list").text
    tp("me", "sshkey", "remove", key)
    assert key not in tp("me", "sshkey", "list").text
    tp("me", "sshkey", "remove", key, refused=True)


def test_cluster_create_edit_destroy(tp, engine):
    """A cluster is created, listed, shown, renamed and destroyed."""
    name, other = engine.name(), engine.name()
    tp("cluster", "create", engine.type(), "-i", engine.public_key, "--name", name, "--deletion-protection", "--wait")
    cluster = engine.info(name)["id"]
    info = tp("cluster", "info", name).text
    assert cluster in info and cluster in tp("cluster", "list").text
    for instance in engine.info(cluster)["instances"]:
        assert instance["id"] in info and instance["id"] in tp("cluster", "list", "--instances").text

    tp("cluster", "destroy", cluster, "--no-input", refused=True)
    tp("cluster", "edit", cluster, "--name", other, "--deletion-protection", "false")
    assert other in tp("cluster", "info", cluster).text
    tp("cluster", "destroy", cluster, "--no-input", "--wait")
    assert cluster not in tp("cluster", "list").text
    assert engine.info(cluster)["status"] == "DESTROYED"
    tp("cluster", "destroy", cluster, "--no-input", refused=True)


def test_create_without_wait_names_cluster(tp, engine):
    """Without `--wait` the message names the cluster, because the user gets nothing else."""
    said = tp("cluster", "create", engine.type(), "-i", engine.public_key, "--name", engine.name())
    [cluster] = set(CLUSTER_ID.findall(said.text))
    engine.destroy(f"/cluster/{cluster}")


@pytest.mark.parametrize("command", [
    "cluster info c-000000000000", "cluster destroy c-000000000000 --no-input",
    "cluster edit c-000000000000 --name nobody", "cluster attach c-000000000000 s-000000000000",
    "cluster detach c-000000000000 s-000000000000", "storage info s-000000000000",
    "storage destroy s-000000000000 --no-input", "storage edit s-000000000000 --name nobody", "ssh i-000000000000",
    "me sshkey remove k-000000000000", "cluster create 9xUNICORN", "storage create 0",
])  # fmt: skip
def test_unknown_ids_are_refused(tp, command):
    """Unknown IDs and types are refused."""
    tp(*command.split(), refused=True)
