"""A cloud with real machines that run jobs. Start reading at `Jobs`."""

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

# What is stopped ends after its grace at the latest, and tests wait for that; who listens says his last word within it.
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
    """The text of a job's file. What JSON writes for texts, numbers, booleans and lists is TOML as well."""
    keys = {"commands": list(commands)} | keys
    return "".join(f"{key} = {toml(value)}\n" for key, value in keys.items())


def toml(value) -> str:
    """A value as TOML writes it."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml(key)} = {toml(each)}" for key, each in value.items()) + "}"
    return json.dumps(value, ensure_ascii=False)


def archive(files: dict[str, bytes]) -> bytes:
    """A tar.gz of so many files."""
    entries = []
    for name, content in files.items():
        entry = tarfile.TarInfo(name)
        entry.size, entry.mode = len(content), 0o644
        entries.append((entry, content))
    return archive_of(entries)


def archive_of(entries: list[tuple[tarfile.TarInfo, bytes]]) -> bytes:
    """A tar.gz of entries as they are, honest or not."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=tarfile.PAX_FORMAT) as file:
        for entry, content in entries:
            file.addfile(entry, io.BytesIO(content))
    return out.getvalue()


class Jobs(Instances):
    """`Machines` that also runs jobs and looks at what is left of them."""

    def __init__(self, directory: Path, *options, name="engine", settings=""):
        super().__init__(directory, *options, name=name, settings=SETTINGS + settings)

    def submit(self, cluster: str, text: str, *, key=None, expect=201, **more) -> dict:
        """The answer to `POST /job/create`."""
        body = {"tp_config": text, "cluster_id": cluster} | more
        return self.call("POST", "/job/create", key=key, json=body, expect=expect).json()

    def run(self, cluster: str, *commands: str, files: dict[str, bytes] | None = None, teardown=False, **keys) -> str:
        """A job that has been started, with files or without; answers its id."""
        text = config(*commands, **keys)
        if not files:
            return self.submit(cluster, text, files=False, start=True, teardown_cluster=teardown)["job_id"]
        made = self.submit(cluster, text, teardown_cluster=teardown)
        done = self.upload(made["upload_url"], archive(files))
        assert done.status_code in (200, 201, 204), done.text
        self.call("POST", f"/job/start/{made['job_id']}", expect=202)
        return made["job_id"]

    def upload(self, url: str, body) -> requests.Response:
        """Sends files to where they were asked for; the address is all the right that it needs."""
        return self.session.put(url, data=body, timeout=120)

    def job(self, job: str) -> dict:
        """The job as the API shows it."""
        return self.call("GET", f"/job/info/{job}", expect=200).json()["job_info"]

    def jobs(self) -> list[dict]:
        """All jobs that are to be seen."""
        return self.call("GET", "/job/list?include_org=true&limit=1000", expect=200).json()["jobs"]

    def wait(self, job: str, status: str | None = "completed", seconds=180) -> dict:
        """Waits for a job's end and checks which one it is; `None` accepts any."""

        def ended():
            seen = self.job(job)
            return seen if seen["status"] in ENDED else None

        seen = eventually(ended, seconds=seconds, what=f"the end of {job}")
        assert status in (None, seen["status"]), f"{seen}\n{self.log_of(job)[-2000:]!r}"
        return seen

    def wait_until_running(self, job: str, word: bytes = b""):
        """Waits until a job runs, and has written a word."""

        def seen():
            status = self.job(job)["status"]
            assert status not in ENDED, self.job(job)
            return status == "running" and word in self.log_of(job)

        eventually(seen, what=f"{job} running")

    def log_of(self, job: str, **query) -> bytes:
        """What a job wrote, byte for byte."""
        return self.call("GET", f"/job/logs/{job}", params=query, expect=200).content

    def text(self, job: str, **more) -> str:
        """What a job wrote, once it has ended well."""
        self.wait(job, **more)
        return self.log_of(job).decode()

    def pull(self, job: str, **query) -> dict[str, str | None]:
        """Where the outputs of a job are."""
        return self.call("GET", f"/job/pull/{job}", params=query, expect=200).json()["download_map"]

    def fetch(self, url: str) -> bytes:
        """What is at a signed address."""
        answer = self.session.get(url, timeout=60)
        assert answer.status_code == 200, answer.text
        return answer.content

    def cancel(self, job: str):
        """Stops a job and waits until that is done."""
        self.call("POST", f"/job/cancel/{job}", expect=202)
        return self.wait(job, "canceled")

    def delete(self, job: str):
        """Forgets a job."""
        self.call("DELETE", f"/job/delete/{job}", expect=200)

    def restart(self, cluster: str):
        """Restarts the nodes of a cluster and waits until they run again."""
        self.finish(self.call("POST", f"/cluster/restart/{cluster}", expect=202).json()["request_id"])

    def wait_until_destroyed(self, cluster: str):
        """Waits until a cluster that something else destroys is destroyed."""
        eventually(lambda: self.info(cluster)["status"] == "DESTROYED", seconds=60, what=f"the end of {cluster}")

    def crash(self):
        """The engine dies as by a power cut of its own, and comes back."""
        self.process.kill()
        self.process.wait()
        self.start()

    @contextmanager
    def socket(self, path: str, key: str | None = None):
        """A WebSocket whose first word has been said."""
        with connect(self.url.replace("http", "ws", 1) + path, proxy=None, open_timeout=60) as connection:
            connection.send(json.dumps({"TENSORPOOL_KEY": key or self.key}))
            yield connection

    def listen(self, job: str, key: str | None = None) -> tuple[list[dict], int]:
        """All that a listener hears, and the code with which it is told good-bye."""
        with self.socket(f"/job/listen/{job}", key) as connection:
            return receive_frames(connection), connection.close_code

    def object_keys(self) -> set[str]:
        """The keys of all objects that jobs have, as the database knows them."""
        with closing(sqlite3.connect(f"file:{self.data / 'tarn.db'}?mode=ro", uri=True, timeout=60)) as db:
            query = "select o.key from objects o join buckets b on b.id = o.bucket_id where b.org_id = 'o-000000000000'"
            return {key for (key,) in db.execute(query)}

    def rows(self) -> set[str]:
        """The jobs that the database knows, also those that are not shown any more."""
        with closing(sqlite3.connect(f"file:{self.data / 'tarn.db'}?mode=ro", uri=True, timeout=60)) as db:
            return {job for (job,) in db.execute("select id from jobs")}

    def data_bytes(self) -> int:
        """How much disk the engine's database and objects take."""
        done = subprocess.run(["du", "-sk", "--exclude=instances", str(self.data)], capture_output=True, text=True)
        return int(done.stdout.split()[0]) * 1024

    def directories(self, instance: str) -> set[str]:
        """The jobs of which a node holds something."""
        found = self.ssh(instance, "sudo sh -c 'ls /home/ubuntu/jobs /var/lib/tarn/jobs 2>/dev/null; true'").out
        return set(JOB_ID.findall(found))

    def processes(self, *instances: str) -> dict[int, str]:
        """The processes of jobs in these instances, or in all of this cloud, by what they inherited, and what keeps watch over them."""
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
        """How many processes the first node of a cluster has, as its control group counts them."""
        return int((self.control_group(cluster) / "pids.current").read_text())

    def control_group(self, cluster: str) -> Path:
        """The control group that counts the processes of the first node of a cluster."""
        instance = self.info(cluster)["instances"][0]["id"]
        return [*CGROUPS.glob(f"pids/tarn*/{instance}"), *CGROUPS.glob(f"tarn*/{instance}")][0]

    def kill_first_process(self, cluster: str):
        """Ends the first node of a cluster from outside, with all that it holds: its first process is the oldest one."""
        inhabitants = (self.control_group(cluster) / "cgroup.procs").read_text().split()
        os.kill(min(map(int, inhabitants), key=process_start_time), signal.SIGKILL)

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
    """When a process started, in the kernel's ticks."""
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[19])
    except OSError:  # It is gone, and never the one that is looked for.
        return 1 << 62


def receive_frames(connection) -> list[dict]:
    """Everything that comes until the other side closes."""
    frames = []
    try:
        while True:
            frames.append(json.loads(connection.recv(timeout=60)))
    except ConnectionClosed:
        return frames


def printed_text(frames: list[dict]) -> str:
    """The lines that a listener printed before the last word."""
    return "".join(f"{frame['message']}\n" for frame in frames[:-1] if frame.get("message"))
