"""Runs the real `tarn` binary. Start reading at `Server`."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
import requests

BINARY = Path(os.environ.get("TARN_BINARY", "target/debug/tarn")).resolve()
# Only what is needed is inherited: a caller's TARN_… or proxy variables must not change what is tested.
ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ}
ENVIRONMENT |= {"TARN_RATE_LIMIT_PER_SECOND": "0", "NO_PROXY": "*", "RUST_BACKTRACE": "1"}
# A wait that ends early costs nothing. These limits are for busy hosts: only a run that hangs reaches them.
STOP_SECONDS = WAIT_SECONDS = 60
# Below the ephemeral ports of the kernel, so that no other program gets one of these by chance, neither between the
# choice and the use of a port nor while its server is down. Each parallel worker has its own share.
WORKERS = 16
WORKER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
assert WORKER < WORKERS, f"there are ports for {WORKERS} workers"
PORTS = range(12_000 + 1250 * WORKER, 12_000 + 1250 * (WORKER + 1))
_given = set()
# Whether a test has failed so far, for the teardown of its fixtures.
FAILED = pytest.StashKey[bool]()


def free_port() -> int:
    """A loopback port that is not in use. Each is returned once."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            if port not in _given:
                _given.add(port)
                return port


def eventually(observe, *, seconds=WAIT_SECONDS, what="the condition"):
    """Polls until `observe` returns something true, and returns it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if seen := observe():
            return seen
        time.sleep(0.05)
    raise AssertionError(f"{what} was not seen within {seconds} s")


def tarn(*arguments, environment=None, seconds=60) -> subprocess.CompletedProcess:
    """Runs the binary to its end, for commands that end by themselves or are refused."""
    command = [str(BINARY), *map(str, arguments)]
    everything = ENVIRONMENT | (environment or {})
    return subprocess.run(
        command, env=everything, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
    )


def refused_start(data, *options) -> str:
    """Runs `tarn serve` where it must refuse to start; returns its output."""
    defaults = ["--data", data, "--driver", "fake"]
    if "--s3-listen" not in options:
        defaults += ["--s3-listen", f"127.0.0.1:{free_port()}"]
    if "--listen" not in options:
        defaults += ["--listen", f"127.0.0.1:{free_port()}"]
    done = tarn("serve", *defaults, *options)
    assert done.returncode not in (0, 101), f"it must refuse without a panic: {done}"
    said = done.stdout + done.stderr
    assert "panicked" not in said, said
    return said


class Server:
    """One `tarn serve` on a data directory; a context manager that leaves no process behind."""

    def __init__(self, data: Path, *options, environment=None, verify=None, driver="fake"):
        self.data = Path(data)
        self.port, self.ssh_port, self.s3_port = free_port(), free_port(), free_port()
        self.scheme = "https" if verify else "http"
        self.url = f"{self.scheme}://127.0.0.1:{self.port}"
        self.s3_url = f"{self.scheme}://127.0.0.1:{self.s3_port}"
        self.log = self.data.with_name(self.data.name + ".log")
        self.environment = ENVIRONMENT | (environment or {})
        self.process = None
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.verify = str(verify) if verify else False
        listen = f"127.0.0.1:{self.port}"
        defaults = ["--data", self.data, "--listen", listen, "--driver", driver, "--simulated-gpus", "8xH100"]
        defaults += ["--ssh-listen", f"127.0.0.1:{self.ssh_port}"]
        if "--s3-listen" not in map(str, options):
            defaults += ["--s3-listen", f"127.0.0.1:{self.s3_port}"]
        self.command = [str(part) for part in [BINARY, "serve", *defaults, *options]]

    def __enter__(self):
        return self if self.process and self.process.poll() is None else self.start()

    def __exit__(self, *_):
        self.kill()

    def start(self):
        """Starts the process and waits until it is healthy."""
        self.launch()
        eventually(self.is_healthy, what=f"a response of {self.url}/healthz")
        return self

    def launch(self):
        """Starts the process, which may have to wait. In a `with`, this takes the place of `start`."""
        assert BINARY.exists(), f"{BINARY} is missing: cargo build -p tarn, or set TARN_BINARY"
        with open(self.log, "ab") as log:
            # The server ends with the test run.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *self.command],
                env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        return self

    def is_healthy(self) -> bool:
        """Whether `/healthz` returns 200; fails at once when the process has ended."""
        if self.process.poll() is not None:
            raise AssertionError(f"tarn serve ended with {self.process.returncode}:\n{self.output()}")
        with contextlib.suppress(requests.ConnectionError, requests.Timeout):
            return self.session.get(f"{self.url}/healthz", timeout=5).status_code == 200
        return False

    def stop(self) -> float:
        """Stops the server as an operator would and returns how long it took."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"SIGTERM did not end it within {STOP_SECONDS} s:\n{self.output()}") from None
        assert code == 0, f"a graceful stop ends with 0, not {code}:\n{self.output()}"
        return time.monotonic() - began

    def kill(self):
        """Kills the server if it still runs."""
        self.session.close()
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def output(self) -> str:
        """The output of the process."""
        return self.log.read_text(errors="replace")

    @property
    def key(self) -> str:
        """The administrator's key."""
        return (self.data / "admin.key").read_text().strip()

    def call(self, method: str, path: str, *, key=None, expect=None, **options) -> requests.Response:
        """One API call with the administrator's key, or another; `expect` is the expected status."""
        headers = {"Authorization": f"Bearer {key or self.key}"} | options.pop("headers", {})
        answer = self.session.request(method, self.url + path, headers=headers, timeout=30, **options)
        assert expect in (None, answer.status_code), f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def finish(self, request_id: str, *, key=None, status="COMPLETED") -> dict:
        """Waits for a request's end and checks its status; `None` accepts any."""

        def ended():
            seen = self.call("GET", f"/request/info/{request_id}", key=key, expect=200).json()
            return seen if seen["status"] in ("COMPLETED", "FAILED") else None

        seen = eventually(ended, seconds=180, what=f"the end of {request_id}")
        assert status in (None, seen["status"]), seen
        return seen
