"""Real instances of the local driver: what users find inside, and what happens when the engine dies."""

import re

import pytest

from instances import Instances, make_identity, needs_root
from support import eventually

pytestmark = needs_root


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """One engine for the whole file, because instances take a moment to start."""
    with Instances(tmp_path_factory.mktemp("machines")) as running:
        yield running


@pytest.fixture(scope="module")
def pair(cloud):
    """A cluster of two nodes."""
    return cloud.create("pair", nodes=2)


def test_instance_looks_like_usual_host(cloud, pair):
    """A user finds the usual accounts, directories and sudo in an instance."""
    node = pair["instances"][0]
    inside = lambda *command, **more: cloud.ssh(node["id"], *command, **more).out.strip()  # noqa: E731
    assert inside("whoami") == "ubuntu"
    assert inside("hostname") == f"{pair['id']}-0" == node["name"]
    assert inside("sudo", "id", "-u") == "0"
    assert inside("sudo", "whoami") == "root"
    assert inside("pwd") == "/home/ubuntu"
    assert inside("nproc") == "1"
    assert inside("echo $HOME:$USER:$SHELL") == "/home/ubuntu:ubuntu:/bin/bash"
    assert inside("touch mine && stat -c %U:%G mine") == "ubuntu:ubuntu"
    assert inside("stat -c %U:%a /usr/bin/env / /etc /root /tmp").split() == [
        "root:755", "root:755", "root:755", "root:700", "root:1777",
    ]  # fmt: skip
    assert node["private_ip"] in inside("cat /etc/hosts")
    assert "guest" in inside("cat /proc/1/comm")


def test_type_limits_are_enforced(cloud, pair):
    """Memory and processes are limited as the instance type says."""
    node = pair["instances"][0]["id"]
    hungry = "python3 -c 'b = bytearray(600 << 20); print(len(b))'"
    assert cloud.ssh(node, hungry, code=None).code != 0, "more memory than the type has"
    assert cloud.ssh(node, "python3 -c 'b = bytearray(50 << 20); print(len(b))'").out.strip() == str(50 << 20)
    many_threads = "import threading as t; t.stack_size(65536); e = t.Event(); [t.Thread(target=e.wait, daemon=True).start() for _ in range(9000)]"
    refused = cloud.ssh(node, f"python3 -c '{many_threads}'", code=None)
    assert "can't start new thread" in refused.errors, "threads and processes stop at the limit"
    assert cloud.ssh(node, "echo", "alive").out.strip() == "alive"


def test_nodes_reach_each_other_by_name(cloud, pair):
    """The nodes of a cluster reach each other by name over SSH."""
    first, second = (node["name"] for node in pair["instances"])
    assert cloud.ssh(first, "ssh", second, "hostname").out.strip() == second
    assert cloud.ssh(second, "ssh", first, "hostname").out.strip() == first
    assert cloud.ssh("pair", "ssh", "-o", "BatchMode=yes", pair["instances"][1]["private_ip"], "hostname").out.strip() == second


def test_packages_can_be_installed(cloud, pair):
    """Debian and Python packages can be installed."""
    node = pair["instances"][0]["id"]
    build = (
        "mkdir -p hello/DEBIAN hello/usr/bin && "
        "printf 'Package: tarn-hello\\nVersion: 1\\nArchitecture: all\\nMaintainer: me <me@example.org>\\nDescription: hello\\n' > hello/DEBIAN/control && "
        "printf '#!/bin/sh\\necho hello from a package\\n' > hello/usr/bin/tarn-hello && chmod 755 hello/usr/bin/tarn-hello && "
        "dpkg-deb --root-owner-group -b hello hello.deb"
    )
    cloud.ssh(node, build)
    cloud.ssh(node, "sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y ./hello.deb", seconds=180)
    assert cloud.ssh(node, "tarn-hello").out.strip() == "hello from a package"
    package = (
        "python3 -m venv --system-site-packages venv && mkdir -p greets/tarn_greets && "
        "echo 'WORD = 42' > greets/tarn_greets/__init__.py && "
        "printf 'from setuptools import setup\\nsetup(name=\"tarn-greets\", version=\"1\", packages=[\"tarn_greets\"])\\n' > greets/setup.py && "
        "venv/bin/pip install --quiet --no-build-isolation --no-index ./greets && venv/bin/python -c 'import tarn_greets; print(tarn_greets.WORD)'"
    )
    assert cloud.ssh(node, package, seconds=180, code=None).out.strip() == "42"
    assert "tarn-hello" in cloud.ssh(node, "dpkg -l tarn-hello").out


def test_restart_keeps_disk_and_addresses(cloud, pair):
    """A restart keeps the disk, names and addresses, and clears /dev/shm."""
    node = pair["instances"][0]
    cloud.ssh(node["id"], "echo kept > kept; sudo touch /etc/mine; echo gone > /dev/shm/gone")
    before = cloud.ssh(node["id"], "cat /proc/1/stat").out.split()[21]
    cloud.finish(cloud.call("POST", f"/cluster/restart/{pair['id']}", expect=202).json()["request_id"])
    after = cloud.info(pair["id"])
    assert [(n["id"], n["name"], n["private_ip"]) for n in after["instances"]] == [
        (n["id"], n["name"], n["private_ip"]) for n in pair["instances"]
    ]
    assert cloud.ssh(node["id"], "cat kept; ls /etc/mine /dev/shm").out.split() == ["kept", "/etc/mine", "/dev/shm:"]
    assert cloud.ssh(node["id"], "cat /proc/1/stat").out.split()[21] != before
    assert cloud.ssh(node["id"], "ssh", pair["instances"][1]["name"], "true").code == 0


def test_instance_survives_engine_kill(cloud, pair):
    """An instance and its processes survive a killed engine."""
    node = pair["instances"][0]["id"]
    cloud.ssh(node, "nohup sh -c 'while :; do date +%s.%N > beat; sleep 0.1; done' >/dev/null 2>&1 & echo started")
    identity = cloud.ssh(node, "cat /proc/sys/kernel/random/boot_id; cat /proc/1/stat").out.split()[22]
    cloud.process.kill()
    cloud.process.wait()
    cloud.start()
    assert cloud.info(pair["id"])["status"] == "RUNNING"
    assert cloud.ssh(node, "cat /proc/sys/kernel/random/boot_id; cat /proc/1/stat").out.split()[22] == identity
    beat = cloud.ssh(node, "cat beat").out
    assert eventually(lambda: cloud.ssh(node, "cat beat").out != beat, what="a loop that continues")
    cloud.ssh(node, "pkill -f 'while :' || true", code=None)


def test_ssh_keys_change_within_seconds(cloud, pair, tmp_path):
    """Added and removed SSH keys take effect at the gateway and in the guest within seconds."""
    first, second = (node["name"] for node in pair["instances"])
    other = make_identity(tmp_path / "other")
    line = other.with_suffix(".pub").read_text()
    comes_in = lambda: login_exit_code(cloud, other, first) == 0  # noqa: E731
    assert not comes_in()
    key = cloud.call("POST", "/user/ssh-key/add", json={"public_key": line, "name": "other"}, expect=200).json()["key_id"]
    assert eventually(comes_in, what="the new key opening the gateway")
    # The guest's own SSH server gets keys pushed; it is tested from the other node with a copy of the key.
    cloud.ssh(second, "umask 077; cat > other", answer=other.read_text())
    inner = f"ssh -i other -o IdentitiesOnly=yes -o IdentityFile=other {first} true"
    assert eventually(lambda: cloud.ssh(second, inner, code=None).code == 0, what="the key in the guest")
    cloud.call("DELETE", f"/user/ssh-key/remove/{key}", expect=200)
    assert eventually(lambda: not comes_in(), what="the removed key refused")


def login_exit_code(cloud, identity, instance) -> int:
    """The exit code of a login with another key."""
    mine, cloud.identity = cloud.identity, identity
    try:
        return cloud.ssh(instance, "true", code=None).code
    finally:
        cloud.identity = mine


def test_dead_instance_fails_cluster(cloud):
    """A dead instance fails its cluster with an explanation."""
    cluster = cloud.create("mortal")
    cloud.ssh("mortal", "sudo kill -TERM 1", code=None)
    dead = eventually(lambda: (seen := cloud.info(cluster["id"]))["status"] == "FAILED" and seen, what="FAILED")
    assert re.search(r"ended|exit", str(dead["explanation"])), dead
    cloud.destroy(cluster["id"])


def test_unknown_ssh_key_is_refused(cloud, pair, tmp_path):
    """An unknown SSH key is refused, also for a name that does not exist."""
    stranger = make_identity(tmp_path / "stranger")
    assert login_exit_code(cloud, stranger, pair["instances"][0]["id"]) == 255
    assert login_exit_code(cloud, stranger, "no-such-machine") == 255
