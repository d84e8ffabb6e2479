"""The measured servers: started on a free loopback port, ended by process id."""

import contextlib
import hashlib
import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

TARN = Path("target/release/tarn").resolve()
AXUM_LIMIT = Path("target/bench/release/axum_limit").resolve()
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}


class Server:
    """A running server; a context manager that ends it."""

    def __init__(self, command, *, environment=None, log: Path, port: int):
        self.command, self.environment, self.log, self.port = command, ENVIRONMENT | (environment or {}), log, port
        self.url = f"http://127.0.0.1:{port}"
        self.pid = None

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, *, path="/openapi.json", headers=None) -> float:
        """Starts the server and returns the seconds until the first response."""
        with open(self.log, "ab") as log:
            began = time.monotonic()
            # The server ends with the benchmark, in any case.
            command = ["setpriv", "--pdeathsig", "KILL", *map(str, self.command)]
            self.process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.pid = self.process.pid
        while time.monotonic() < began + 60:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.command[0]} ended:\n{self.log.read_text(errors='replace')[-4000:]}")
            with contextlib.suppress(OSError):
                status, _ = self.get(path, headers or {})
                # A baseline has no such path, or refuses it, and says so; that is a response, too.
                if status in (200, 403, 404):
                    return time.monotonic() - began
            time.sleep(0.001)
        self.stop()
        raise RuntimeError(f"{self.command[0]} did not answer within a minute")

    def get(self, path: str, headers: dict, *, method="GET", body=None) -> tuple[int, bytes]:
        """One call on a separate connection."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        with contextlib.closing(connection):
            connection.request(method, path, body=body, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def stop(self):
        """Stops the server gracefully, or kills it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def fastapi(database: Path) -> Server:
    """Baseline (a), with a worker for each core."""
    port = free_port()
    command = [sys.executable, "-m", "uvicorn", "bench.spine.fastapi_app:app", "--host", "127.0.0.1", "--port", port]
    command += ["--workers", os.cpu_count(), "--no-access-log", "--log-level", "warning"]
    return Server(command, environment={"DB": str(database)}, log=database.with_suffix(".fastapi.log"), port=port)


def axum_limit(database: Path, sync="NORMAL") -> Server:
    """Baseline (b)."""
    port = free_port()
    command = [AXUM_LIMIT, port, database, os.cpu_count()]
    return Server(command, environment={"SYNC": sync}, log=database.with_suffix(".axum.log"), port=port)


def tarn(data: Path, *options, program: Path = TARN) -> Server:
    """Tarn as an operator would start it, but without a rate limit."""
    port = free_port()
    command = [program, "serve", "--data", data, "--listen", f"127.0.0.1:{port}", "--driver", "fake"]
    command += ["--s3-listen", "none", *options]
    log = data.with_name(data.name + ".log")
    environment = {"TARN_RATE_LIMIT_PER_SECOND": "0", "TARN_LIMITS_WAITING": "0"}
    return Server(command, environment=environment, log=log, port=port)


def version(program: Path) -> str:
    """What a build says of itself, and the start of its hash: two builds may have the same version."""
    said = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    return f"{said} ({hashlib.sha256(program.read_bytes()).hexdigest()[:12]})"


def free_port() -> int:
    """A loopback port that is not in use."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
