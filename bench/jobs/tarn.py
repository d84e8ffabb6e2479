"""Tarn with one warm cluster under measurement."""

import http.client
import json
import sqlite3
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path

from bench import servers
from bench.jobs import listeners

PARALLEL = 32
# More jobs may wait for a cluster, but not many more.
OPEN = 800
CONFIG = """
[capacity]
cpus = 64.0
memory_mib = 65536

[[types]]
name = "whole"
cpus = 2.0
memory_mib = 4096
"""
# Waits for a signal, so that all listeners are connected, and prints the time of each line.
CLOCK = """\
import os, sys, time
while not os.path.exists(os.path.expanduser("~/begin")):
    time.sleep(0.02)
for number in range(int(sys.argv[1])):
    print(time.time_ns(), number, flush=True)
    time.sleep(float(sys.argv[2]))
"""


class Tarn(servers.Server):
    """The engine and its cluster `warm`; a context manager that destroys what it created."""

    def __init__(self, work: Path):
        data = Path(tempfile.mkdtemp(prefix="tarn-", dir=work))
        (data / "config.toml").write_text(CONFIG)
        port, self.data = servers.free_port(), data
        command = [servers.TARN, "serve", "--data", data, "--config", data / "config.toml", "--listen", f"127.0.0.1:{port}"]
        command += ["--ssh-listen", f"127.0.0.1:{servers.free_port()}", "--s3-listen", "none"]
        environment = {"TARN_RATE_LIMIT_PER_SECOND": "0", "TARN_LIMITS_WAITING": "0"}
        super().__init__(command, environment=environment, log=data / "log", port=port)

    def __enter__(self):
        super().__enter__()
        self.key = (self.data / "admin.key").read_text().strip()
        self.headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        body = {"instance_type": "whole", "tp_cluster_name": "warm", "jobs_parallel": PARALLEL}
        self.finish(self.call("POST", "/cluster/create", body)["request_id"])
        return self

    def __exit__(self, *problem):
        try:
            for cluster in self.call("GET", "/cluster/list")["clusters"]:
                self.finish(self.call("DELETE", f"/cluster/{cluster['id']}")["request_id"])
        finally:
            super().__exit__(*problem)

    def call(self, method: str, path: str, body=None) -> dict:
        """A call of the API that must succeed."""
        status, text = self.get(path, self.headers, method=method, body=json.dumps(body) if body else None)
        assert status in (200, 201, 202), (status, text)
        return json.loads(text)

    def finish(self, request: str):
        """Waits for a request's end."""
        while (seen := self.call("GET", f"/request/info/{request}"))["status"] not in ("COMPLETED", "FAILED"):
            time.sleep(0.01)
        assert seen["status"] == "COMPLETED", seen

    def job(self, *commands: str, **keys) -> str:
        """Starts a job; returns its id."""
        return self.call("POST", "/job/create", job_body(*commands, **keys))["job_id"]

    def wait(self, job: str) -> dict:
        """Waits until a job has completed."""
        while (seen := self.call("GET", f"/job/info/{job}")["job_info"])["status"] in ("pending", "running"):
            time.sleep(0.01)
        assert seen["status"] == "completed", seen
        return seen

    def ended(self) -> int:
        """How many jobs have ended, from the database."""
        with closing(sqlite3.connect(f"file:{self.data / 'tarn.db'}?mode=ro", uri=True, timeout=30)) as db:
            return db.execute("select count(*) from jobs where ended_us is not null").fetchone()[0]


def job_body(*commands: str, **keys) -> dict:
    """The body that starts a job without files. JSON for texts, booleans and lists is valid TOML as well."""
    keys = {"commands": list(commands), "venv": False} | keys
    variables = keys.pop("env", {})
    text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in keys.items())
    text += "[env]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in variables.items())
    return {"tp_config": text, "cluster_id": "warm", "files": False, "start": True}


def throughput(tarn: Tarn, count: int, connections: int) -> tuple[float, float]:
    """Trivial jobs accepted and completed each second, from before the first call."""
    before, submitted, began = tarn.ended(), [0] * connections, time.monotonic()
    body = json.dumps(job_body("true"))
    seen = [0]

    def submit(number: int):
        with closing(http.client.HTTPConnection("127.0.0.1", tarn.port, timeout=60)) as connection:
            for _ in range(count // connections):
                while sum(submitted) - seen[0] > OPEN:
                    time.sleep(0.005)
                connection.request("POST", "/job/create", body=body, headers=tarn.headers)
                answer = connection.getresponse()
                text = answer.read()
                assert answer.status == 201, (answer.status, text)
                submitted[number] += 1

    threads = [threading.Thread(target=submit, args=(number,)) for number in range(connections)]
    for thread in threads:
        thread.start()
    accepted, total = None, count // connections * connections
    while seen[0] < total:
        seen[0] = tarn.ended() - before
        if accepted is None and sum(submitted) == total:
            accepted = total / (time.monotonic() - began)
        assert time.monotonic() < began + 600 and (any(t.is_alive() for t in threads) or sum(submitted) == total), submitted
        time.sleep(0.02)
    took = time.monotonic() - began
    for thread in threads:
        thread.join()
    return accepted or total / took, total / took


def first_line(tarn: Tarn, repetitions: int) -> list[float]:
    """Seconds from before the call to the first line at a listener."""
    taken = []
    for _ in range(repetitions):
        began = time.time()
        job = tarn.job("date +%s.%N")
        taken.append(listeners.first_frame(tarn.port, tarn.key, job) - began)
        tarn.wait(job)
    return taken


def prints(tarn: Tarn, count: int, lines: int, pause: float) -> tuple[list[float], float]:
    """Seconds from each print to each of the listeners, and of the whole; no listener misses or repeats a line."""
    job = tarn.job('python3 -c "$CLOCK" ' + f"{lines} {pause}", "rm ~/begin", env={"CLOCK": CLOCK})
    began = time.monotonic()
    received = listeners.listen(tarn.port, tarn.key, job, count, then=lambda: tarn.job("touch ~/begin"))
    taken, delays = time.monotonic() - began, []
    for each in received:
        said = [(at, *line.split()) for at, line in each.lines()]
        assert [int(number) for _, _, number in said] == list(range(lines)), "a listener missed a line"
        delays += [at - int(printed) / 1e9 for at, printed, _ in said]
    return delays, taken
