"""Engines with real instances and volumes. Start reading at `Volumes`."""

from pathlib import Path

import footprint
from instances import Instances
from support import eventually

# Tests wait until processes have left a volume, so the grace period is short. The volumes are larger in sum than a
# small disk, and nearly empty.
SETTINGS = """
[storage]
detach_grace_seconds = 1
overcommit = 10.0
"""
GIGABYTE = 10**9


def file_size(gigabytes: int) -> int:
    """The size of a volume's file: whole blocks."""
    return -(-gigabytes * GIGABYTE // 4096) * 4096


class Volumes(Instances):
    """`Instances` that also creates, attaches and inspects volumes. What a test leaves is destroyed."""

    def __init__(self, directory: Path, *options, name="engine"):
        super().__init__(directory, *options, name=name, settings=SETTINGS)

    def make_volume(self, name: str, size=1) -> str:
        """Creates a volume, waits until it is ready and returns its id."""
        accepted = self.call("POST", "/storage/create", json={"name": name, "size": size}, expect=202).json()
        self.finish(accepted["request_id"])
        return accepted["storage_id"]

    def volume(self, volume: str) -> dict:
        """The volume as the API shows it."""
        return self.call("GET", f"/storage/info/{volume}", expect=200).json()["storage_info"]

    def volumes(self) -> list[dict]:
        """All volumes that are not destroyed."""
        return self.call("GET", "/storage/list?include_org=true&limit=1000", expect=200).json()["volumes"]

    def attach(self, volume: str, cluster: str, *, live=False, expect=202):
        """The response to an attach. It has one request, because there is one cluster."""
        body = {"storage_id": volume, "cluster_ids": [cluster], "live": live}
        answer = self.call("POST", "/storage/attach", json=body, expect=expect).json()
        return answer | {"request_id": request for request in answer.get("request_ids", [])}

    def detach(self, volume: str, cluster: str, *, live=False, expect=202):
        """The response to a detach."""
        body = {"storage_id": volume, "cluster_id": cluster, "live": live}
        return self.call("POST", "/storage/detach", json=body, expect=expect).json()

    def edit(self, volume: str, **changes):
        """Changes a volume and waits until the change is done."""
        self.finish(self.call("PATCH", f"/storage/edit/{volume}", json=changes, expect=202).json()["request_id"])

    def destroy_volume(self, volume: str):
        """Destroys a volume and waits until it is gone."""
        self.finish(self.call("DELETE", f"/storage/{volume}", expect=202).json()["request_id"])

    def destroy_all(self):
        """Destroys clusters first, because they use volumes."""
        super().destroy_all()
        for volume in self.volumes():
            answer = eventually(lambda: self.try_destroy_volume(volume["id"]), seconds=60, what=f"the end of {volume['id']}")
            if answer.status_code == 202:
                self.finish(answer.json()["request_id"])

    def try_destroy_volume(self, volume: str):
        """The response to a destroy, unless the volume is busy."""
        answer = self.call("DELETE", f"/storage/{volume}")
        return answer if answer.status_code == 202 or answer.json()["code"] == "storage_gone" else None

    def wait_for_volume_status(self, volume: str, status: str, *, seconds=60) -> dict:
        """Waits until the volume has a status."""
        seen = lambda: (info := self.volume(volume))["status"] == status and info  # noqa: E731
        return eventually(seen, seconds=seconds, what=f"{volume} {status}")

    def files(self) -> dict[str, Path]:
        """The files of the volumes, by directory name: an id, unless the volume is incomplete."""
        return {place.parent.name: place for place in (self.data / "volumes").glob("s-*/data.xfs")}

    def devices(self) -> set[str]:
        """The volumes that have a loop device."""
        return {Path(file).parent.name for file in footprint.loop_devices(self.data / "volumes").values()}

    def mounted(self, instance: str) -> set[str]:
        """The volumes that are mounted inside an instance."""
        lines = self.ssh(instance, "cat /proc/self/mountinfo").out.splitlines()
        return {place.removeprefix("/mnt/") for line in lines if (place := line.split()[4]).startswith("/mnt/")}

    def init_start_time(self, instance: str) -> str:
        """When the init process of an instance started: different after every restart."""
        return self.ssh(instance, "cat /proc/1/stat").out.rsplit(")", 1)[1].split()[19]
