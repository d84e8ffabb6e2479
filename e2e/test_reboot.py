"""The machine goes down and comes up again: what ran comes back with its disk, address, volume, keys and jobs, and losses are told."""

import os
import subprocess

import pytest
from machines import needs_root
from reboots import Reboots
from registry import Layer, Registry, needs_registry
from support import eventually

pytestmark = [needs_root, pytest.mark.alone]

# Ends only in its second attempt: the first one is cut off.
TWICE = "echo run >> count; echo attempt $(wc -l < count); [ $(wc -l < count) = 2 ] || sleep 31337; echo done"


def test_everything_comes_back(tmp_path):
    with Reboots(tmp_path) as cloud:
        pair, box, volume = cloud.create("pair", nodes=2), cloud.create("box"), cloud.make_volume("kept")
        cloud.finish(cloud.attach(volume, pair["id"], live=True)["request_id"])
        cloud.ssh("pair", f"echo on the volume > /mnt/{volume}/file && sync /mnt/{volume}/file")
        cloud.ssh("box", "echo on the disk > file && sync file")
        lost, again = cloud.run("box", "echo started; sleep 31337", venv=False), cloud.run("pair", TWICE, retries=1, venv=False)
        cloud.runs(lost, b"started")
        cloud.runs(again, b"attempt 1")
        last = cloud.create("last")
        final = cloud.run("last", "echo started; sleep 31337", teardown=True, venv=False)
        cloud.runs(final, b"started")
        later = cloud.run("box", "cat ~/file", venv=False)
        keys = cloud.host_keys()
        gone = cloud.create("gone")
        going = cloud.call("DELETE", f"/cluster/{gone['id']}", expect=202).json()["request_id"]
        # The second is the last in line: whoever came later would wait behind it.
        coming, waiting = cloud.in_the_midst(lambda: [ask(cloud, "coming", nodes=2), ask(cloud, "waiting", kind="huge")])
        cloud.go_down()
        unfinished = cloud.open_requests()
        assert {coming["request_id"], waiting["request_id"]} <= unfinished

        cloud.start()
        for before in (pair, box):
            after = cloud.state(before["id"], "RUNNING")
            assert addresses(after) == addresses(before)
        cloud.finish(going)
        cloud.finish(coming["request_id"])
        assert cloud.info(waiting["cluster_id"])["status"] == "PENDING"
        assert cloud.host_keys() == keys
        assert cloud.ssh("box", "cat file").out == "on the disk\n"
        for node in pair["instances"]:
            assert cloud.ssh(node["name"], f"cat /mnt/{volume}/file").out == "on the volume\n"
        peer = pair["instances"][1]["name"]
        greeting = cloud.ssh("pair", f"bash -c 'exec 3<>/dev/tcp/{peer}/22; head -c 4 <&3'").out
        assert greeting == "SSH-", "a node reaches the other by its name"

        ended = cloud.wait(lost, "failed")
        assert "restarted" in ended["explanation"] and cloud.log_of(lost) == b"started\n", ended
        cloud.wait(final, "failed")
        cloud.wait_until_gone(last["id"])
        assert cloud.text(later) == "on the disk\n"
        assert cloud.text(again) == "attempt 1\nattempt 2\ndone\n"
        operations = cloud.call("GET", f"/cluster/operations/{box['id']}", expect=200).json()["operations"]
        (restart,) = [each for each in operations if each["request_type"] == "CLUSTER_RESTART"]
        assert restart["status"] == "COMPLETED" and "The host was rebooted" in restart["message"], restart
        (told,) = cloud.event("machine.rebooted")
        assert told["clusters_coming_back"] == told["jobs_interrupted"] == 3 and told["clusters_failed"] == 0, told
        assert told["volumes_lost"] == told["disks_missing"] == told["instances_missing"] == 0, told
        assert told["requests_resumed"] == len(unfinished), told
        restarted = {each["id"] for each in (pair, box, last)}
        assert restarted <= set(cloud.objects("cluster.restarted")), "that they came back is told of each"
        assert "the host was rebooted" in cloud.output()

        cloud.destroy_all()
        eventually(lambda: not cloud.remains(), what=f"nothing of {cloud.installation}")
        assert not list((cloud.data / "instances").iterdir()) and not cloud.files()


def test_what_is_lost_is_told_and_the_rest_comes_back(tmp_path):
    with Reboots(tmp_path) as cloud:
        names = ["gone", "damaged", "diskless", "whole"]
        clusters = {name: cloud.create(name) for name in names}
        volumes = {name: cloud.make_volume(name) for name in ("gone", "damaged")}
        for name, volume in volumes.items():
            cloud.finish(cloud.attach(volume, clusters[name]["id"], live=True)["request_id"])
            cloud.ssh(name, f"echo {name} > /mnt/{volume}/file && sync /mnt/{volume}/file")
        cloud.ssh("diskless", "echo mine > file && sync file")
        cloud.go_down()

        files, disk = cloud.files(), cloud.data / "instances" / clusters["diskless"]["instances"][0]["id"] / "disk.xfs"
        away = {files[volumes["gone"]]: tmp_path / "volume", disk: tmp_path / "disk"}
        for place, elsewhere in away.items():
            place.rename(elsewhere)
        with open(files[volumes["damaged"]], "r+b") as file:
            start = file.read(4096)
            file.seek(0)
            file.write(os.urandom(4096))
        cloud.start()
        cloud.state(clusters["whole"]["id"], "RUNNING")
        for name, volume in volumes.items():
            failed = cloud.state(clusters[name]["id"], "FAILED")
            assert "could not be brought back" in failed["explanation"] and volume in failed["explanation"], failed
            assert cloud.becomes(volume, "FAILED")
        failed = cloud.state(clusters["diskless"]["id"], "FAILED")
        assert "has lost its disk" in failed["explanation"], failed
        (told,) = cloud.event("machine.rebooted")
        assert told["volumes_lost"] == 2 and told["disks_missing"] == 1, told
        assert told["clusters_failed"] == 3 and told["clusters_coming_back"] == 1, told
        refused = cloud.call("POST", f"/cluster/restart/{clusters['diskless']['id']}", expect=202).json()["request_id"]
        assert "disk" in cloud.finish(refused, status="FAILED")["message"]

        for place, elsewhere in away.items():
            elsewhere.rename(place)
        with open(files[volumes["damaged"]], "r+b") as file:
            file.write(start)
        for name, volume in volumes.items():
            cloud.becomes(volume, "READY")
            cloud.restart(name)
            assert cloud.ssh(name, f"cat /mnt/{volume}/file").out == f"{name}\n"
        cloud.restart("diskless")
        assert cloud.ssh("diskless", "cat file").out == "mine\n"
        cloud.destroy_all()
        eventually(lambda: not cloud.remains(), what=f"nothing of {cloud.installation}")


@needs_registry
def test_images_gpus_and_what_was_being_undone(tmp_path):
    with Reboots(tmp_path) as cloud:
        with Registry(tmp_path / "registry") as registry:
            layer = Layer().directory("bin").add("bin/say", program(tmp_path), mode=0o755)
            image = registry.push("small", layer.bytes())
            imaged = cloud.create("imaged", container=image)
        # The registry is gone: what comes back comes from what is kept.
        assert cloud.ssh("imaged", "/bin/say").out == "from the image\n"
        fast = cloud.create("fast", kind="2xH100")
        gpus = lambda cluster: [gpu["id"] for node in cluster["instances"] for gpu in node["gpus"]]  # noqa: E731
        assert len(gpus(fast)) == 2
        (undone,) = cloud.in_the_midst(lambda: [begun(cloud)])
        cloud.go_down()
        # It had failed and was being undone, and all of that an hour ago.
        cloud.turn_back(undone["request_id"])
        cloud.start()

        message = cloud.finish(undone["request_id"], status="FAILED")["message"]
        assert "turned back by a test" in message and "failed as well" not in message, message
        assert cloud.info(undone["cluster_id"])["status"] == "FAILED"
        cloud.state(imaged["id"], "RUNNING")
        assert cloud.ssh("imaged", "/bin/say").out == "from the image\n"
        again = cloud.state(fast["id"], "RUNNING")
        assert gpus(again) == gpus(fast) and addresses(again) == addresses(fast)
        (told,) = cloud.event("machine.rebooted")
        assert told["clusters_coming_back"] == 2 and told["requests_resumed"] == 1, told
        cloud.destroy_all()
        eventually(lambda: not cloud.remains(), what=f"nothing of {cloud.installation}")
        assert not list((cloud.data / "instances").iterdir())


def program(directory) -> bytes:
    """A program that needs nothing but the kernel."""
    source = directory / "say.c"
    source.write_text('#include <stdio.h>\nint main(void) { puts("from the image"); return 0; }\n')
    subprocess.run(["cc", "-static", "-O1", "-o", str(directory / "say"), str(source)], check=True)
    return (directory / "say").read_bytes()


def ask(cloud, name: str, *, nodes=1, kind="tiny") -> dict:
    """The answer to a call that creates a cluster, without waiting for it."""
    body = {"instance_type": kind, "tp_cluster_name": name, "num_nodes": nodes}
    return cloud.call("POST", "/cluster/create", json=body, expect=202).json()


def begun(cloud) -> dict:
    """A third cluster of which something is there."""
    asked = ask(cloud, "undone", nodes=3)
    eventually(lambda: list((cloud.data / "instances").iterdir())[2:], what="the node of the third cluster")
    return asked


def addresses(cluster: dict) -> list[tuple[str, str]]:
    """The nodes of a cluster and where they are."""
    return [(node["id"], node["private_ip"]) for node in cluster["instances"]]
