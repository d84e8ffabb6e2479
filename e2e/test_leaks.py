"""Nothing leaks: the host is the same after rounds of create, restart and destroy with the engine killed at any
moment."""

import os
import random
import time

import footprint
import pytest
from instances import Instances, needs_root
from registry import Layer, Registry, needs_registry
from volumes import Volumes

pytestmark = [needs_root, pytest.mark.alone]
ROUNDS = int(os.environ.get("TARN_LEAK_ROUNDS", "10"))
PARALLEL_CLUSTERS = 50 if os.environ.get("TARN_SOAK") else 12
SEED = int(os.environ.get("TARN_LEAK_SEED", "3"))


@needs_registry
def test_rounds_with_kills_leave_nothing(tmp_path):
    """Rounds of create, restart and destroy with kills of the engine leave nothing on the host."""
    chance = random.Random(SEED)
    before = footprint.take_snapshot()
    with Registry(tmp_path / "registry") as registry, Volumes(tmp_path) as cloud:
        images = [registry.push("one", Layer().add("a", b"1").bytes()), registry.push("two", Layer().add("b", b"2").bytes(), Layer().add(".wh.b").bytes())]
        for number in range(ROUNDS):
            one_round(cloud, chance, number, images)
            cloud.destroy_all()
            left = footprint.difference(before, footprint.take_snapshot())
            # The kernel removes namespaces a moment after their last process.
            left.pop("namespaces", None)
            assert not left, f"round {number}, seed {SEED}: {left}"
            assert not list((cloud.data / "instances").iterdir()), f"round {number}, seed {SEED}"
    footprint.wait_until_restored(before, f"the host as before, seed {SEED}")


def one_round(cloud, chance: random.Random, number: int, images: list[str]):
    """Makes several calls and kills the engine at a random moment; what was accepted must still complete."""
    accepted = []
    for each in range(chance.randint(1, 3)):
        body = {"instance_type": "tiny", "tp_cluster_name": f"leak-{number}-{each}", "num_nodes": chance.randint(1, 3)}
        body["container"] = chance.choice([None, *images])
        accepted.append(cloud.call("POST", "/cluster/create", json=body, expect=202).json())
    kill_and_restart_engine(cloud, chance, 0.4)
    for one in accepted:
        cloud.finish(one["request_id"])
    restarted = chance.choice(accepted)["cluster_id"]
    # Both restart the instances, one of them with a volume, which outlives its cluster and is destroyed after it.
    if chance.random() < 0.5:
        request = cloud.call("POST", f"/cluster/restart/{restarted}", expect=202).json()["request_id"]
    else:
        request = cloud.attach(cloud.make_volume(f"leak-{number}"), restarted)["request_id"]
    kill_and_restart_engine(cloud, chance, 0.4)
    cloud.finish(request)
    requests = [cloud.call("DELETE", f"/cluster/{one['cluster_id']}", expect=202).json()["request_id"] for one in accepted]
    kill_and_restart_engine(cloud, chance, 0.2)
    for request in requests:
        cloud.finish(request)


def kill_and_restart_engine(cloud, chance: random.Random, within: float):
    """Kills the engine within the given seconds and starts it again."""
    time.sleep(chance.random() * within)
    cloud.process.kill()
    cloud.process.wait()
    cloud.start()


def test_two_engines_do_not_interfere(tmp_path):
    """Two engines on one host do not interfere with each other."""
    with Instances(tmp_path, name="one") as one, Instances(tmp_path, name="two") as two:
        mine, other = one.create("mine"), two.create("other")
        one.process.kill()
        one.process.wait()
        one.start()
        two.destroy(other["id"])
        assert one.ssh("mine", "hostname").out.strip() == mine["instances"][0]["name"]
        assert two.ssh("mine", "true", code=None).code == 255
        again = two.create("again")
        assert again["instances"][0]["private_ip"] != mine["instances"][0]["private_ip"]
        one.destroy(mine["id"])
        assert two.ssh("again", "hostname").out.strip() == again["instances"][0]["name"]


def test_many_clusters_at_once_leave_nothing(tmp_path):
    """Many clusters at once start and leave nothing."""
    before = footprint.take_snapshot()
    with Instances(tmp_path) as cloud:
        bodies = [{"instance_type": "tiny", "tp_cluster_name": f"crowd-{number}"} for number in range(PARALLEL_CLUSTERS)]
        accepted = [cloud.call("POST", "/cluster/create", json=body, expect=202).json() for body in bodies]
        for one in accepted:
            cloud.finish(one["request_id"])
            assert cloud.info(one["cluster_id"])["status"] == "RUNNING"
    footprint.wait_until_restored(before, "the host as before")
