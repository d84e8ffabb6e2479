"""The load client `s3bench`, and what its runs cost the server."""

import json
import resource
import subprocess
from dataclasses import dataclass
from pathlib import Path

from bench import host, servers

S3BENCH = Path("target/bench/release/s3bench").resolve()
LONGEST_SECONDS = 3600


@dataclass
class Sample:
    """The result of one run, or the median of several."""

    operations: float
    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    others_percent: float


@dataclass
class Client:
    """The client with credentials and a bucket."""

    endpoint: str
    bucket: str
    region: str
    access_key: str
    secret_key: str

    def run(self, *command) -> dict:
        """One command that must succeed."""
        keys = {"AWS_ACCESS_KEY_ID": self.access_key, "AWS_SECRET_ACCESS_KEY": self.secret_key}
        return call(self.endpoint, self.bucket, self.region, *command, environment=keys)

    def measure(self, pid: int, *command) -> Sample:
        """Runs one command, and measures the processor time of the server and of everything else."""
        server, whole, client = host.cpu_seconds(pid), host.busy_seconds(), children_seconds()
        seen = self.run(*command)
        server = host.cpu_seconds(pid) - server
        client = children_seconds() - client
        busy, had = (after - before for after, before in zip(host.busy_seconds(), whole, strict=True))
        return Sample(
            operations=seen["operations"],
            rate=seen["operations"] / seen["seconds"],
            p50_ms=seen["p50_ms"],
            p99_ms=seen["p99_ms"],
            cpu_us=server / seen["operations"] * 1e6,
            others_percent=100 * max(0, busy - server - client) / max(had, 0.01),
        )


def call(*command, environment=None) -> dict:
    """The output of the program."""
    environment = servers.ENVIRONMENT | (environment or {})
    line = [str(S3BENCH), *map(str, command)]
    done = subprocess.run(line, env=environment, capture_output=True, text=True, timeout=LONGEST_SECONDS)
    if done.returncode:
        raise RuntimeError(done.stderr.strip())
    return json.loads(done.stdout)


def children_seconds() -> float:
    """Processor time of the clients so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
