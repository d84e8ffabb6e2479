"""The reboot of a host, for one engine: everything of its installation that a kernel would lose is dropped, and nothing
else.

Start reading at `Reboots.power_off`. Other engines on the host are not affected: everything that is ended or removed
here carries the id of the installation, is below its data directory, or descends from its engine.
"""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import time
import uuid
from contextlib import closing
from pathlib import Path

import footprint
from footprint import CGROUPS
from jobs import Jobs
from support import eventually
from volumes import Volumes

SETTINGS = """
[[types]]
name = "huge"
cpus = 32.0
memory_mib = 16384
"""


class Reboots(Volumes, Jobs):
    """An engine with volumes and jobs whose host can be rebooted."""

    def __init__(self, directory: Path, *options, name="engine"):
        super().__init__(directory, *options, name=name)
        config = directory / f"{name}.toml"
        config.write_text(config.read_text() + SETTINGS)

    @property
    def installation(self) -> str:
        """The id that everything of this engine carries on the host."""
        found = (self.data / "installation").read_text().strip()
        assert len(found) == 6 and found.isalnum(), found
        return found

    def power_off(self):
        """The host loses its power: only what is on disk is left, and it belongs to an earlier boot."""
        self.end_engine()
        for group in self.groups():
            remove_control_group(group)
        for name in self.interfaces():
            subprocess.run(["ip", "link", "delete", name], capture_output=True)
        for family, table in self.tables():
            subprocess.run(["nft", "delete", "table", family, table], check=True)
        eventually(lambda: self.unmounted() and not footprint.loop_devices(self.data), what="no loop device")
        subprocess.run(["rm", "-rf", "--one-file-system", str(self.running())], check=True)
        eventually(lambda: not self.leftovers(), what="nothing but the disks")
        self.change_boot_id()

    def hold_engine_during(self, begin) -> list[dict]:
        """Starts requests and stops the engine before any of them has ended. If the engine was faster, undoes them
        and tries again."""
        for _ in range(20):
            begun = begin()
            self.hold_engine()
            if {each["request_id"] for each in begun} <= self.open_requests():
                return begun
            os.kill(self.process.pid, signal.SIGCONT)
            for each in begun:
                self.destroy(each["cluster_id"])
        raise AssertionError("the engine is always faster")

    def hold_engine(self):
        """Stops the engine and waits until all its threads are stopped: until then each of them may start or write
        something."""
        os.kill(self.process.pid, signal.SIGSTOP)
        eventually(lambda: is_stopped(self.process.pid), what="a stopped engine")

    def end_engine(self):
        """Kills the engine and everything that it was starting at one moment: a stopped engine starts nothing."""
        self.hold_engine()
        family = descendants(self.process.pid)
        for process in [self.process.pid, *family]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        self.process.wait()

    def change_boot_id(self):
        """Changes all records to another boot of the host than the present one."""
        boot = str(uuid.uuid4())
        for path in (self.data / "instances").glob("*/instance.json"):
            record = json.loads(path.read_text())
            if record["process"]:
                record["process"]["boot_id"] = boot
                path.write_text(json.dumps(record))
        with closing(sqlite3.connect(self.data / "tarn.db", timeout=60)) as db, db:
            db.execute("update installation set value = ? where key = 'machine_boot'", (boot,))
            # A real host never has the same boot twice; this one does.
            db.execute("delete from installation where key = 'machine_boot_open'")

    def open_requests(self) -> set[str]:
        """The requests in the database that have not ended."""
        with closing(sqlite3.connect(self.data / "tarn.db", timeout=60)) as db:
            return {row[0] for row in db.execute("select id from requests where ended_us is null")}

    def mark_as_undoing(self, request: str, *, seconds=3600):
        """Changes a running request to one that failed and was being undone, this long before the host booted again."""
        begun = int((time.time() - seconds) * 1e6)
        change = "update requests set failure = 'turned back by a test', step = step + 1, deadline_us = ?, due_us = ?, lease_until_us = 0"
        with closing(sqlite3.connect(self.data / "tarn.db", timeout=60)) as db, db:
            done = db.execute(f"{change} where id = ? and ended_us is null and waiting = 0", (begun, begun, request))
            assert done.rowcount == 1, f"{request} is not running"

    def unmounted(self) -> bool:
        """Whether nothing of this engine is mounted where this process sees it, so that a removal reaches nothing
        else."""
        mounts = [line.split(" ", 5)[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        return not any(place.startswith((f"{self.running()}/", f"{self.data}/")) for place in mounts)

    def running(self) -> Path:
        """The directory of what exists only while instances run."""
        return Path("/run/tarn") / self.installation

    def groups(self) -> list[Path]:
        """The control groups of the installation, in every hierarchy."""
        name = f"tarn-{self.installation}"
        return [path for path in [CGROUPS / name, *CGROUPS.glob(f"*/{name}")] if path.is_dir()]

    def interfaces(self) -> list[str]:
        """The bridges and virtual Ethernet interfaces of the installation."""
        ours = (f"t{self.installation}-", f"t{self.installation}_")
        return [name for name in os.listdir("/sys/class/net") if name.startswith(ours)]

    def tables(self) -> list[tuple[str, str]]:
        """The firewall tables of the installation, by family."""
        listed = subprocess.run(["nft", "list", "tables"], capture_output=True, text=True, check=True).stdout
        tables = [tuple(line.split()[1:3]) for line in listed.splitlines()]
        return [(family, name) for family, name in tables if name == f"tarn_{self.installation}"]

    def leftovers(self) -> dict:
        """What this engine has on the host outside its data directory; empty when nothing is left."""
        found = {"groups": self.groups(), "interfaces": self.interfaces(), "tables": self.tables()}
        found |= {"devices": footprint.loop_devices(self.data), "directory": [self.running()] if self.running().exists() else []}
        return {kind: what for kind, what in found.items() if what}

    def wait_for_cluster_status(self, cluster: str, status: str, *, seconds=120) -> dict:
        """Waits until a cluster has a status."""
        seen = lambda: (info := self.info(cluster))["status"] == status and info  # noqa: E731
        return eventually(seen, seconds=seconds, what=f"{cluster} {status}")

    def event_details(self, verb: str) -> list[dict]:
        """The details of all events of a kind."""
        events, after = [], 0
        while page := self.call("GET", f"/admin/event/list?after={after}&limit=1000", expect=200).json()["events"]:
            events += [each["detail"] for each in page if each["verb"] == verb]
            after = page[-1]["number"]
        return events

    def event_objects(self, verb: str) -> list[str]:
        """The objects of all events of a kind."""
        found, after = [], 0
        while page := self.call("GET", f"/admin/event/list?after={after}&limit=1000", expect=200).json()["events"]:
            found += [each["object"] for each in page if each["verb"] == verb]
            after = page[-1]["number"]
        return found

    def host_keys(self) -> set[str]:
        """The host keys of the gateway."""
        done = subprocess.run(["ssh-keyscan", "-p", str(self.ssh_port), "127.0.0.1"], capture_output=True, text=True, timeout=60)
        return {line for line in done.stdout.splitlines() if line and not line.startswith("#")}


def is_stopped(process: int) -> bool:
    """Whether all threads of a process are stopped or gone."""
    states = set()
    for task in Path(f"/proc/{process}/task").iterdir():
        with contextlib.suppress(OSError):
            states.add((task / "stat").read_text().rsplit(")", 1)[1].split()[0])
    return states <= set("TXZ")


def descendants(process: int) -> list[int]:
    """The children of a process and their descendants."""
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{process}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *descendants(int(child))]
    return found


def group_processes(group: Path) -> set[int]:
    """The processes of a control group and of the groups below it."""
    found = set()
    for place in group.rglob("cgroup.procs"):
        with contextlib.suppress(OSError):
            found |= {int(pid) for pid in place.read_text().split()}
    return found


def send_signal(processes: set[int], what: signal.Signals):
    """Sends a signal to all of these processes that still exist."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, what)


def remove_control_group(group: Path):
    """Kills every process of a control group and of the groups below it, and removes the groups."""
    # No process may see the end of another: a power cut ends all at one moment.
    held: set[int] = set()
    while (found := group_processes(group)) - held:
        send_signal(found - held, signal.SIGSTOP)
        held |= found

    def gone() -> bool:
        send_signal(found := group_processes(group), signal.SIGKILL)
        return not found

    eventually(gone, seconds=60, what=f"no process in {group}")

    def removed() -> bool:
        for place in sorted((path for path in [group, *group.rglob("*")] if path.is_dir()), reverse=True):
            with contextlib.suppress(OSError):
                place.rmdir()
        return not group.exists()

    eventually(removed, seconds=60, what=f"the end of {group}")
