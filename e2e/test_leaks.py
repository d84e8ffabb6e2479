"""Nothing leaks: the machine looks the same after rounds of create, restart and destroy with the engine killed at any moment."""

import os
import random
import time

import footprint
import pytest
from machines import Machines, needs_root
from registry import Layer, Registry, needs_registry
from volumes import Volumes

pytestmark = [needs_root, pytest.mark.alone]
ROUNDS = int(os.environ.get("TARN_LEAK_ROUNDS", "10"))
CROWD = 50 if os.environ.get("TARN_SOAK") else 12
SEED = int(os.environ.get("TARN_LEAK_SEED", "3"))


@needs_registry
def test_rounds_with_kills_leave_nothing_behind(tmp_path):
    chance = random.Random(SEED)
    before = footprint.take()
    with Registry(tmp_path / "registry") as registry, Volumes(tmp_path) as cloud:
        images = [registry.push("one", Layer().add("a", b"1").bytes()), registry.push("two", Layer().add("b", b"2").bytes(), Layer().add(".wh.b").bytes())]
        for number in range(ROUNDS):
            one_round(cloud, chance, number, images)
            cloud.destroy_all()
            left = footprint.difference(before, footprint.take())
            # The kernel takes namespaces apart a moment after their last process.
            left.pop("namespaces", None)
            assert not left, f"round {number}, seed {SEED}: {left}"
            assert not list((cloud.data / "instances").iterdir()), f"round {number}, seed {SEED}"
    footprint.as_before(before, f"the machine as before, seed {SEED}")


def one_round(cloud, chance: random.Random, number: int, images: list[str]):
    """Asks for several things at once and kills the engine at a random moment of it; what was accepted must still come."""
    accepted = []
    for each in range(chance.randint(1, 3)):
        body = {"instance_type": "tiny", "tp_cluster_name": f"leak-{number}-{each}", "num_nodes": chance.randint(1, 3)}
        body["container"] = chance.choice([None, *images])
        accepted.append(cloud.call("POST", "/cluster/create", json=body, expect=202).json())
    strike(cloud, chance, 0.4)
    for one in accepted:
        cloud.finish(one["request_id"])
    restarted = chance.choice(accepted)["cluster_id"]
    # Both restart the machines, one of them with a volume, which outlives its cluster and is destroyed after it.
    if chance.random() < 0.5:
        request = cloud.call("POST", f"/cluster/restart/{restarted}", expect=202).json()["request_id"]
    else:
        request = cloud.attach(cloud.make_volume(f"leak-{number}"), restarted)["request_id"]
    strike(cloud, chance, 0.4)
    cloud.finish(request)
    requests = [cloud.call("DELETE", f"/cluster/{one['cluster_id']}", expect=202).json()["request_id"] for one in accepted]
    strike(cloud, chance, 0.2)
    for request in requests:
        cloud.finish(request)


def strike(cloud, chance: random.Random, within: float):
    """The engine dies within the given seconds, as by a power cut of its own, and comes back."""
    time.sleep(chance.random() * within)
    cloud.process.kill()
    cloud.process.wait()
    cloud.start()


def test_two_engines_leave_each_other_alone(tmp_path):
    with Machines(tmp_path, name="one") as one, Machines(tmp_path, name="two") as two:
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


def test_a_crowd_at_once(tmp_path):
    before = footprint.take()
    with Machines(tmp_path) as cloud:
        bodies = [{"instance_type": "tiny", "tp_cluster_name": f"crowd-{number}"} for number in range(CROWD)]
        accepted = [cloud.call("POST", "/cluster/create", json=body, expect=202).json() for body in bodies]
        for one in accepted:
            cloud.finish(one["request_id"])
            assert cloud.info(one["cluster_id"])["status"] == "RUNNING"
    footprint.as_before(before, "the machine as before")
