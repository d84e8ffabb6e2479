"""Volumes through rounds of all changes, with the engine killed at any moment: synced data survives, and nothing
else is left. Start reading at the test; `Model` is what must be true after each round."""

import hashlib
import os
import random
import time
from dataclasses import dataclass, field

import footprint
import pytest
from instances import needs_root
from support import eventually
from volumes import Volumes, file_size

pytestmark = [needs_root, pytest.mark.alone]
ROUNDS = int(os.environ.get("TARN_VOLUME_ROUNDS", "10"))
SEED = int(os.environ.get("TARN_VOLUME_SEED", "4"))
MOST_VOLUMES, MOST_CLUSTERS, MOST_GB = 4, 2, 4


@dataclass
class Volume:
    """The expected state of a volume."""

    size: int = 1
    files: dict[str, str] = field(default_factory=dict)


@dataclass
class Model:
    """What must exist: volumes and clusters, and the volume of each cluster, if any."""

    volumes: dict[str, Volume] = field(default_factory=dict)
    clusters: dict[str, str | None] = field(default_factory=dict)

    def free(self) -> list[str]:
        """The volumes that are attached to no cluster."""
        return [volume for volume in self.volumes if volume not in self.clusters.values()]


def test_rounds_with_kills_keep_volume_data(tmp_path):
    """Rounds of changes with kills of the engine keep synced data and leave nothing else on the host."""
    chance, model = random.Random(SEED), Model()
    before = footprint.take_snapshot()
    with Volumes(tmp_path) as cloud:
        for number in range(ROUNDS):
            where = f"round {number}, seed {SEED}"
            one_round(cloud, chance, model, number, where)
            compare(cloud, model, where)
        check_detached_volumes(cloud, model, f"the end, seed {SEED}")
        cloud.destroy_all()
        assert not list((cloud.data / "volumes").glob("s-*")), f"seed {SEED}"
    footprint.wait_until_restored(before, f"the host as before, seed {SEED}")


def one_round(cloud, chance: random.Random, model: Model, number: int, where: str):
    """Makes several independent calls at once and kills the engine meanwhile; then writes data."""
    busy, accepted = set(), []
    for each in range(chance.randint(2, 4)):
        if (chosen := choose_change(chance, model, busy)) is not None:
            action, *subjects = chosen
            busy.update(subject for subject in subjects if isinstance(subject, str))
            answer = action(cloud, model, f"{number}-{each}", *subjects)
            accepted.append((action.__name__, subjects, *answer))
    for _ in range(chance.choice((1, 1, 2))):
        # Most changes are done soon, so most kills come soon; a second kill may hit a resumed change.
        time.sleep(chance.random() ** 3 * 0.8)
        cloud.process.kill()
        cloud.process.wait()
        cloud.start()
    for name, subjects, request, settle in accepted:
        seen = cloud.finish(request, status=None)
        assert seen["status"] == "COMPLETED", f"{where}: {name} of {subjects}: {seen}"
        settle()
    for cluster, volume in model.clusters.items():
        if volume and chance.random() < 0.7:
            write(cloud, chance, model, cluster, volume)


def choose_change(chance: random.Random, model: Model, busy: set[str]):
    """A change that is possible now, and its objects."""
    clusters = [cluster for cluster in model.clusters if cluster not in busy]
    idle = [volume for volume in model.volumes if volume not in busy]
    free = [volume for volume in model.free() if volume not in busy]
    empty = [cluster for cluster in clusters if model.clusters[cluster] is None]
    full = [cluster for cluster in clusters if model.clusters[cluster] in idle]
    small = [volume for volume in idle if model.volumes[volume].size < MOST_GB]
    options = []
    if len(model.volumes) + len(busy) < MOST_VOLUMES:
        options += [(create_volume,)] * 3
    if len(model.clusters) + len(busy) < MOST_CLUSTERS:
        options += [(create_cluster,)] * 4
    if idle and empty:
        options += [(attach, chance.choice(idle), chance.choice(empty), chance.random() < 0.5)] * 4
    if full:
        cluster = chance.choice(full)
        options += [(detach, model.clusters[cluster], cluster, chance.random() < 0.5)] * 3
        options += [(destroy_cluster, cluster, model.clusters[cluster])]
    if empty and len(model.clusters) == MOST_CLUSTERS:
        options += [(destroy_cluster, chance.choice(empty), None)]
    if small:
        options += [(grow, chance.choice(small))]
    if len(free) > 1:
        options += [(destroy_volume, chance.choice(free))]
    return chance.choice(options) if options else None


def create_volume(cloud, model, name):
    """Creates a volume of the minimum size. Returns, as all of these do, the request and a function that updates the
    model."""
    body = {"name": f"volume-{name}", "size": 1}
    accepted = cloud.call("POST", "/storage/create", json=body, expect=202).json()
    return accepted["request_id"], lambda: model.volumes.update({accepted["storage_id"]: Volume()})


def create_cluster(cloud, model, name):
    """Creates a cluster, sometimes of two nodes."""
    body = {"instance_type": "tiny", "tp_cluster_name": f"cluster-{name}", "num_nodes": 1 + len(model.volumes) % 2}
    body["public_keys"] = [cloud.identity.with_suffix(".pub").read_text()]
    accepted = cloud.call("POST", "/cluster/create", json=body, expect=202).json()
    return accepted["request_id"], lambda: model.clusters.update({accepted["cluster_id"]: None})


def attach(cloud, model, _name, volume, cluster, live):
    """Attaches a volume, with a restart of the nodes or live."""
    accepted = cloud.attach(volume, cluster, live=live)
    return accepted["request_id"], lambda: model.clusters.update({cluster: volume})


def detach(cloud, model, _name, volume, cluster, live):
    """Detaches a volume, with a restart of the nodes or live."""
    accepted = cloud.detach(volume, cluster, live=live)
    return accepted["request_id"], lambda: model.clusters.update({cluster: None})


def grow(cloud, model, _name, volume):
    """Grows a volume by a gigabyte, attached or not."""
    size = model.volumes[volume].size + 1
    accepted = cloud.call("PATCH", f"/storage/edit/{volume}", json={"size_gb": size}, expect=202).json()
    return accepted["request_id"], lambda: setattr(model.volumes[volume], "size", size)


def destroy_volume(cloud, model, _name, volume):
    """Destroys a volume with its data."""
    accepted = cloud.call("DELETE", f"/storage/{volume}", expect=202).json()
    return accepted["request_id"], lambda: model.volumes.pop(volume)


def destroy_cluster(cloud, model, _name, cluster, _volume):
    """Destroys a cluster, which detaches its volume and keeps the data."""
    accepted = cloud.call("DELETE", f"/cluster/{cluster}", expect=202).json()
    return accepted["request_id"], lambda: model.clusters.pop(cluster)


def write(cloud, chance: random.Random, model: Model, cluster: str, volume: str):
    """Writes a file, new or replaced, that is synced before the command ends."""
    name, text = f"file-{chance.randrange(4)}", chance.randbytes(chance.randrange(1, 200_000)).hex()
    cloud.ssh(cluster, f"cd /mnt/{volume} && cat > {name} && sync {name} .", answer=text)
    model.volumes[volume].files[name] = hashlib.sha256(text.encode()).hexdigest()


def read(cloud, cluster: str, volume: str) -> dict[str, str]:
    """The checksums of all files of a volume."""
    said = cloud.ssh(cluster, f"cd /mnt/{volume} && find . -type f -printf '%P\\n' | xargs --no-run-if-empty sha256sum").out
    return {name: sum_ for sum_, name in (line.split() for line in said.splitlines())}


def compare(cloud, model: Model, where: str):
    """Checks that the database, the host and the data match the model."""
    shown = {volume["id"]: volume for volume in cloud.volumes()}
    seen = {volume: (info["status"], info["size_gb"], sorted(info["attached_clusters"])) for volume, info in shown.items()}
    on = lambda volume: sorted(cluster for cluster, has in model.clusters.items() if has == volume)  # noqa: E731
    assert seen == {volume: ("READY", must.size, on(volume)) for volume, must in model.volumes.items()}, where
    assert {place.name for place in (cloud.data / "volumes").glob("s-*")} == model.volumes.keys(), where
    sizes = {volume: file.stat().st_size for volume, file in cloud.files().items()}
    assert sizes == {volume: file_size(must.size) for volume, must in model.volumes.items()}, where
    attached = {volume for volume in model.clusters.values() if volume}
    # A device that clears itself may exist a moment longer beside its replacement.
    files = lambda: sorted(footprint.loop_devices(cloud.data / "volumes").values())  # noqa: E731
    wanted = sorted(str(cloud.files()[volume]) for volume in attached)
    eventually(lambda: files() == wanted, what=f"one loop device for each attached volume ({where})")
    assert not any("/mnt/s-" in line for line in open("/proc/self/mountinfo")), where
    for cluster, volume in model.clusters.items():
        info = cloud.info(cluster)
        assert info["status"] == "RUNNING", f"{where}: {info}"
        for node in info["instances"]:
            assert cloud.mounted(node["id"]) == ({volume} if volume else set()), where
        if volume:
            assert read(cloud, cluster, volume) == model.volumes[volume].files, where


def check_detached_volumes(cloud, model: Model, where: str):
    """Checks the data of the volumes that are attached to no cluster."""
    cluster = cloud.create("reader")["id"]
    for volume in model.free():
        cloud.finish(cloud.attach(volume, cluster, live=True)["request_id"])
        assert read(cloud, cluster, volume) == model.volumes[volume].files, where
        cloud.finish(cloud.detach(volume, cluster, live=True)["request_id"])
