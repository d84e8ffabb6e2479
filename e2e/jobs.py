"""Engines with real instances that run jobs. Start reading at `Jobs`."""

import io
import json
import os
import re
import signal
import sqlite3
import subprocess
import tarfile
from contextlib import closing, contextmanager
from pathlib import Path

import requests
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from footprint import CGROUPS
from instances import Instances
from objects import data_files
from support import eventually

# A stopped job ends after its grace period at the latest, and tests wait for that; listeners get the last frame within
# it.
SETTINGS = """
[jobs]
stop_grace_seconds = 5
max_unpacked_gb = 1

[[types]]
name = "worker"
cpus = 1.0
memory_mib = 512
"""
ENDED = ("completed", "error", "failed", "canceled")
JOB_ID = re.compile(r"\bj-[0-9a-hjkmnp-tv-z]{12}\b")
NO_JOB = "j-000000000000"


def config(*commands: str, **keys) -> str:
    """The text of a job file. JSON for texts, numbers, booleans and lists is valid TOML as well."""
    keys = {"commands": list(commands)} | keys
    return "".join(f"{key} = {toml(value)}\n" for key, value in keys.items())


def toml(value) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def archive(files: dict[str, bytes]) -> bytes:
    """A tar.gz of these files."""
    entries = []
    for name, content in files.items():
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), 0o644
        entries.append((entry, content))
    return archive_of(entries)


def archive_of(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """A tar.gz of these entries, valid or not."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as file:
        for entry, content in entries:
            file.addfile(entry, io.BytesIO(content))
    return out.getvalue()


class Jobs(Instances):
    """`Instances` that also runs jobs and inspects what is left of them."""

    def __init__(self, directory: Path, *options, name="engine", settings=""):
        super().__init__(directory, *options, name=name, settings=SETTINGS + settings)

    def submit(self, cluster: str, text: str, *, key=None, expect=201, **more) -> dict:
        """Creates a job and returns the response."""
        body = {"tp_config": text, "cluster_id": cluster} | more
        return self.call("POST", "/job/create", key=key, json=body, expect=expect).json()

    def run(self, cluster: str, *commands: str, files: dict[str, bytes] | None = None, teardown=False, **keys) -> str:
        """Starts a job, with files or without, and returns its id."""
        text = config(*commands, **keys)
        if not files:
            return self.submit(cluster, text, files=False, start=True, teardown_cluster=teardown)["job_id"]
        made = self.submit(cluster, text, teardown_cluster=teardown)
        done = self.upload(made["upload_url"], archive(files))
        assert done.status_code in (200, 201, 204), done.text
        self.call("POST", f"/job/start/{made['job_id']}", expect=202)
        return made["job_id"]

    def upload(self, url: str, body) -> requests.Response:
        """Uploads files to a signed URL."""
        return self.session.put(url, data=body, timeout=120)

    def job(self, job: str) -> dict:
        """The job as the API shows it."""
        return self.call("GET", f"/job/info/{job}", expect=200).json()["job_info"]

    def jobs(self) -> list[dict]:
        """All jobs of the organization."""
        return self.call("GET", "/job/list?include_org=true&limit=1000", expect=200).json()["jobs"]

    def wait(self, job: str, status: str | None = "completed", seconds=180) -> dict:
        """Waits for a job's end and checks its status; `None` accepts any."""

        def ended():
            seen = self.job(job)
            return seen if seen["status"] in ENDED else None

        seen = eventually(ended, seconds=seconds, what=f"the end of {job}")
        assert status in (None, seen["status"]), f"{seen}\n{self.log_of(job)[-2000:]!r}"
        return seen

    def wait_until_running(self, job: str, word: bytes = b""):
        """Waits until a job runs and its log contains a word."""

        def seen():
            status = self.job(job)["status"]
            assert status not in ENDED, self.job(job)
            return status == "running" and word in self.log_of(job)

        eventually(seen, what=f"{job} running")

    def log_of(self, job: str, **query) -> bytes:
        """The log of a job, byte for byte."""
        return self.call("GET", f"/job/logs/{job}", params=query, expect=200).content

    def text(self, job: str, **more) -> str:
        """The log of a job that has completed."""
        self.wait(job, **more)
        return self.log_of(job).decode()

    def pull(self, job: str, **query) -> dict[str, str | None]:
        """The outputs of a job and their signed URLs."""
        return self.call("GET", f"/job/pull/{job}", params=query, expect=200).json()["download_map"]

    def fetch(self, url: str) -> bytes:
        """Downloads from a signed URL."""
        answer = self.session.get(url, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.content

    def cancel(self, job: str):
        """Cancels a job and waits for its end."""
        self.call("POST", f"/job/cancel/{job}", expect=202)
        return self.wait(job, "canceled")

    def delete(self, job: str):
        """Deletes a job."""
        self.call("DELETE", f"/job/delete/{job}", expect=200)

    def restart(self, cluster: str):
        """Restarts the nodes of a cluster and waits until they run again."""
        self.finish(self.call("POST", f"/cluster/restart/{cluster}", expect=202).json()["request_id"])

    def wait_until_destroyed(self, cluster: str):
        """Waits until a cluster is destroyed by something else."""
        eventually(lambda: self.info(cluster)["status"] == "DESTROYED", seconds=60, what=f"the end of {cluster}")

    def crash(self):
        """Kills the engine and starts it again."""
        self.process.kill()
        self.process.wait()
        self.start()

    @contextmanager
    def socket(self, path: str, key: str | None = None):
        """A WebSocket that has sent its first message."""
        with connect(self.url.replace("http", "ws", 1) + path, proxy=None, open_timeout=60) as connection:
            connection.send(json.dumps({"TENSORPOOL_KEY": key or self.key}))
            yield connection

    def listen(self, job: str, key: str | None = None) -> tuple[list[dict], int]:
        """All frames that a listener gets, and the close code."""
        with self.socket(f"/job/listen/{job}", key) as connection:
            return receive_frames(connection), connection.close_code

    def object_keys(self) -> set[str]:
        """The keys of all objects of jobs in the database."""
        with closing(sqlite3.connect(f"file:{self.data / 'tarn.db'}?mode=ro", uri=True, timeout=60)) as db:
            query = "select o.key from objects o join buckets b on b.id = o.bucket_id where b.org_id = 'o-000000000000'"
            return {key for (key,) in db.execute(query)}

    def rows(self) -> set[str]:
        """The jobs in the database, including those that are no longer shown."""
        with closing(sqlite3.connect(f"file:{self.data / 'tarn.db'}?mode=ro", uri=True, timeout=60)) as db:
            return {job for (job,) in db.execute("select id from jobs")}

    def data_bytes(self) -> int:
        """The disk space of the engine's database and objects."""
        done = subprocess.run(["du", "-sk", "--exclude=instances", str(self.data)], capture_output=True, text=True)
        return int(done.stdout.split()[0]) * 1024

    def directories(self, instance: str) -> set[str]:
        """The jobs of which a node has files."""
        found = self.ssh(instance, "sudo sh -c 'ls /home/ubuntu/jobs /var/lib/tarn/jobs 2>/dev/null; true'").out
        return set(JOB_ID.findall(found))

    def processes(self, *instances: str) -> dict[int, str]:
        """The processes of jobs, and their supervisors, in these instances or in all of this engine, by inherited
        environment."""
        instances = instances or [path.name for path in (self.data / "instances").iterdir()]
        found = {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
                groups, environment, command = ((process / name).read_bytes() for name in ("cgroup", "environ", "cmdline"))
            except OSError:
                continue
            ours = re.search(rb"(?:^|\0)TP_JOB_ID=", environment) or b"job-supervisor" in command
            if ours and state not in "ZX" and any(instance.encode() in groups for instance in instances):
                found[int(process.name)] = command.replace(b"\0", b" ").decode(errors="replace")
        return found

    def process_count(self, cluster: str) -> int:
        """The number of processes in the first node of a cluster, from its control group."""
        return int((self.control_group(cluster) / "pids.current").read_text())

    def control_group(self, cluster: str) -> Path:
        """The control group that counts the processes of the first node of a cluster."""
        instance = self.info(cluster)["instances"][0]["id"]
        return [*CGROUPS.glob(f"pids/tarn*/{instance}"), *CGROUPS.glob(f"tarn*/{instance}")][0]

    def kill_first_process(self, cluster: str):
        """Kills the first process of the first node from outside, which ends the node: it is the oldest process."""
        processes = (self.control_group(cluster) / "cgroup.procs").read_text().split()
        os.kill(min(map(int, processes), key=process_start_time), signal.SIGKILL)

    def wait_until_nothing_left(self, *instances: str):
        """Waits until no job has left a process, a directory, an object, a file or a row."""
        look = {"processes": self.processes, "objects": self.object_keys, "rows": self.rows, "files": lambda: data_files(self.data)}
        look |= {instance: lambda instance=instance: self.directories(instance) for instance in instances}
        left = {}

        def gone() -> bool:
            left.clear()
            left.update({what: found for what, of in look.items() if (found := of())})
            return not left

        try:
            eventually(gone, what="nothing of any job")
        except AssertionError:
            raise AssertionError(f"left of jobs: {left}") from None


def process_start_time(process: int) -> int:
    """When a process started, in ticks of the kernel."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[19])
    except OSError:  # The process is gone, so it is not the oldest one.
        return 1 << 62


def receive_frames(connection) -> list[dict]:
    """All frames until the peer closes the connection."""
    frames = []
    try:
        while True:
            frames.append(json.loads(connection.recv(timeout=60)))
    except ConnectionClosed:
        return frames


def printed_text(frames: list[dict]) -> str:
    """The lines that a listener got before the last frame."""
    return "".join(f"{frame['message']}\n" for frame in frames[:-1] if frame.get("message"))
