"""`tarn doctor` and the host: its disk and firewall, leftovers, and whole trials on a real engine."""

import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from doctors import doctor, doctor_of_engine, doctor_without_engine, documented
from instances import needs_root
from support import BINARY, ENVIRONMENT, eventually
from volumes import Volumes

DISK_MIB = 64


@needs_root
def test_nearly_full_disk_is_failure(small_disk):
    """A nearly full disk is a failure."""
    report = doctor_without_engine(small_disk)
    report.expect_level("failure", "space.data")
    assert report.code == 1


@needs_root
def test_firewall_advice_fixes_foreign_rules(tmp_path):
    """Firewall rules that drop forwarded traffic are a failure, and the suggested rule fixes it."""
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data/installation").write_text("abc123")
    chain = "nft add table inet mine; nft add chain inet mine through '{ type filter hook forward priority 0; policy drop; }'"
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    todo = """python3 -c 'import json, sys; print(next(f["todo"] for f in json.load(open(sys.argv[1]))["findings"] if f["check"] == "network.firewall"))'"""
    script = f"""
    set -u
    ip link add uplink type veth peer name elsewhere
    ip address add 192.0.2.1/24 dev uplink
    ip link set uplink up
    ip route add default via 192.0.2.2
    {chain}
    "$@" > {before}
    rule=$({todo} {before})
    sh -ec "$rule"
    "$@" > {after}
    """
    command = ["unshare", "--net", "sh", "-c", script, "sh", BINARY, "doctor", "--json", "--data", tmp_path / "data"]
    subprocess.run([str(part) for part in command], env=ENVIRONMENT, stdin=subprocess.DEVNULL, timeout=120)
    first, second = (
        {each["check"]: each for each in json.loads(path.read_text())["findings"]} for path in (before, after)
    )
    assert first["network.firewall"]["level"] == "failure", first["network.firewall"]
    assert "inet mine through" in first["network.firewall"]["found"]
    assert "uplink" in first["network.firewall"]["todo"], "only the way to other hosts is opened"
    assert second["network.firewall"]["level"] == "ok", second["network.firewall"]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """A real engine with instances and volumes."""
    with Volumes(tmp_path_factory.mktemp("doctor")) as running:
        yield running


@needs_root
def test_trial_on_real_engine_passes(cloud):
    """The whole trial passes on a real engine and leaves nothing."""
    report = doctor_of_engine(cloud, "--full")
    report.expect_level("ok", "kernel.idmapped_mounts", "kernel.links", "kernel.nf_tables", "ports.ssh", "engine.answers")
    report.expect_level("ok", "drift.instances", "drift.volumes", "drift.leftovers", "drift.promises")
    wrong = [step for step in report.steps.values() if not step["ok"]]
    assert not wrong, wrong
    expected = {"cluster create", "volume create", "volume attach", "job run", "job output", "object put", "object get"}
    assert expected | {"cluster destroy", "volume destroy", "bucket delete", "job delete"} <= set(report.steps)
    assert report.body["trial"] and documented() - set(report.found) <= {
        "certificate.valid", "certificate.names", "certificate.served", "certificate.key_file", "database.server", "database.clock",
        "database.host", "engine.metrics",
    }  # fmt: skip
    check_trial_left_nothing(cloud)


def check_trial_left_nothing(cloud):
    """Checks that a trial has left nothing."""
    names = [each["name"] for each in cloud.call("GET", "/cluster/list", expect=200).json()["clusters"] + cloud.volumes()]
    assert not [name for name in names if name.startswith("doctor-")]
    assert not cloud.call("GET", "/job/list", expect=200).json()["jobs"]


@needs_root
def test_interrupted_trial_leaves_nothing(cloud):
    """An interrupted trial leaves nothing."""
    command = [str(BINARY), "doctor", *cloud.command[2:], "--full"]
    process = subprocess.Popen(
        command, env=ENVIRONMENT | {"TENSORPOOL_KEY": cloud.key}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        # Once the key is created, the cluster follows.
        for line in process.stdout:
            if re.match(r"  ok +key ", line):
                break
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(120) == 130, rest
    finally:
        process.kill()
        process.wait()
    check_trial_left_nothing(cloud)


@needs_root
def test_orphaned_control_group_is_reported(cloud):
    """A control group that belongs to no instance is reported."""
    top = Path("/sys/fs/cgroup")
    top = top if (top / "cgroup.controllers").exists() else top / "memory"
    group = top / f"tarn-{(cloud.data / 'installation').read_text().strip()}/i-000000000000"
    made = [path for path in (group, group.parent) if not path.exists()]
    group.mkdir(parents=True)
    try:
        report = doctor_of_engine(cloud)
    finally:
        for path in made:
            path.rmdir()
    report.expect_level("warning", "drift.leftovers")
    assert "i-000000000000" in report.found["drift.leftovers"]["found"]


@needs_root
def test_missing_volume_file_is_reported(cloud):
    """A volume without its file is reported, and recovers when the file returns."""
    volume = cloud.make_volume("lost")
    file = cloud.data / f"volumes/{volume}/data.xfs"
    file.rename(file.with_name("away"))
    try:
        report = doctor_of_engine(cloud)
        report.expect_level("failure", "drift.volumes")
        assert volume in report.found["drift.volumes"]["found"] and report.code == 1
    finally:
        file.with_name("away").rename(file)
    eventually(lambda: cloud.volume(volume)["status"] == "READY", seconds=60, what="a volume that has recovered")
    cloud.destroy_volume(volume)


@needs_root
def test_killed_engine_with_instance_is_checked(cloud):
    """The host of a killed engine is checked while its instance runs; a trial needs the engine."""
    cluster = cloud.create("alive")
    cloud.process.kill()
    cloud.process.wait()
    report = doctor(*cloud.command[2:])
    report.expect_level("note", "engine.answers")
    report.expect_level("ok", "drift.instances", "drift.leftovers", "database.integrity", "ports.ssh")
    full = doctor(*cloud.command[2:], "--full")
    assert "tarn serve" in full.found["full"]["todo"] and full.code == 1
    cloud.start()
    cloud.destroy(cluster["id"])


@needs_root
def test_trial_names_failed_step(cloud):
    """A trial names the step that failed."""
    cloud.stop()
    usual = cloud.command
    at = usual.index("--s3-listen") + 1
    cloud.command = [*usual[:at], "none", *usual[at + 1 :]]
    try:
        cloud.start()
        report = doctor_of_engine(cloud, "--full")
        failed = [name for name, step in report.steps.items() if not step["ok"]]
        assert failed == ["object storage keys"], report.body["trial"]
        assert report.code == 1 and report.steps["object storage keys"]["message"]
        check_trial_left_nothing(cloud)
        cloud.stop()
    finally:
        cloud.kill()
        cloud.command = usual
        cloud.start()
