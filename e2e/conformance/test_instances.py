"""Instances: ssh, scp, sftp and rsync log in with the engine's command, and a volume outlives its cluster."""

import os

import pytest

from .instance_access import InstanceAccess



def test_ssh_runs_commands(access):
    """ssh runs commands with their streams and exit codes."""
    assert access.ssh("echo out; echo err >&2") == "out\n"
    assert access.ssh("cat", answer="in and out") == "in and out"
    access.ssh("exit 7", code=7)


def test_stock_client_logs_in(tp, engine, access):
    """`tp ssh` logs in."""
    name = access.ssh("hostname").strip()
    # Arguments after the instance are passed to ssh.
    assert name in tp("ssh", access.instance, *access.options, "hostname", loud=True).text
    tp("ssh", "i-000000000000", refused=True)


def test_scp_and_sftp_copy(engine, access, tmp_path):
    """scp and sftp copy files both ways."""
    (tmp_path / "there").write_bytes(content := os.urandom(3 << 20))
    place = engine.name()
    access.run("scp", tmp_path / "there", f"{access.host}:{place}")
    access.run("scp", f"{access.host}:{place}", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == content
    batch = f"rename {place} {place}-renamed\nget {place}-renamed {tmp_path}/again\nrm {place}-renamed\n"
    access.run("sftp", "-b", "-", access.host, answer=batch)
    assert (tmp_path / "again").read_bytes() == content


def test_rsync_copies_changes(engine, access, tmp_path):
    """rsync copies a tree and its changes both ways."""
    source, place = tmp_path / "source", engine.name()
    source.mkdir()
    for number in range(20):
        (source / f"file {number}").write_text(str(number) * number)
    access.rsync("-a", f"{source}/", f"{access.host}:{place}/")
    (source / "file 1").unlink()
    access.rsync("-a", "--delete", f"{source}/", f"{access.host}:{place}/")
    access.rsync("-a", f"{access.host}:{place}/", f"{tmp_path}/back/")
    access.ssh(f"rm -r {place}")
    contents = [{file.name: file.read_text() for file in each.iterdir()} for each in (source, tmp_path / "back")]
    assert contents[0] == contents[1] and len(contents[0]) == 19


def test_volume_survives_its_cluster(tp, engine, access):
    """The data of a volume survives the cluster that wrote it."""
    engine.skip_unless_offered("POST", "/storage/create")
    answer = engine.call("POST", "/storage/create", json={"name": engine.name(), "size": 1})
    if answer.status_code == 400:
        pytest.skip(f"this engine has no volumes: {answer.json()['message']}")
    assert answer.status_code == 202, answer.text
    volume = answer.json()["storage_id"]
    engine.finish(answer.json()["request_id"])
    for said in (tp("storage", "list").text, tp("storage", "info", volume).text):
        assert volume in said
    first = engine.create()
    eligible = engine.call("POST", "/storage/attach", json={"storage_id": volume, "cluster_ids": [first["id"]]})
    if eligible.status_code == 400:
        pytest.skip(f"this engine attaches no volume to {engine.type()}: {eligible.json()['message']}")
    for request in eligible.json()["request_ids"]:
        engine.finish(request)
    inside = InstanceAccess(engine, first["instances"][0]["id"])
    inside.ssh(f"head -c 5000000 /dev/urandom | sudo tee /mnt/{volume}/file > /dev/null && sync /mnt/{volume}/file")
    checksum = inside.ssh(f"sha256sum < /mnt/{volume}/file")
    assert first["id"] in tp("storage", "info", volume).text
    tp("storage", "destroy", volume, "--no-input", refused=True)

    tp("cluster", "detach", first["id"], volume, "--wait")
    inside.ssh(f"test -e /mnt/{volume}/file", code=1)
    tp("cluster", "destroy", first["id"], "--no-input", "--wait")
    second = engine.create()
    tp("cluster", "attach", second["id"], volume, "--wait")
    assert InstanceAccess(engine, second["instances"][0]["id"]).ssh(f"sha256sum < /mnt/{volume}/file") == checksum

    # Destroying a cluster detaches the volume and keeps the data.
    tp("cluster", "destroy", second["id"], "--no-input", "--wait")
    assert volume in tp("storage", "list").text
    tp("storage", "destroy", volume, "--no-input", "--wait")
    assert volume not in tp("storage", "list").text
