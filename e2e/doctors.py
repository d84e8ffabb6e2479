"""Runs `tarn doctor` for an engine or without one, and parses its report."""

import json
import re
import subprocess
from pathlib import Path

from support import BINARY, ENVIRONMENT, Server, free_port

PAGE = Path(__file__).resolve().parent.parent / "docs/operating/doctor.md"
# No call leaves the host: the proxy is a port that is not listened on.
NO_NETWORK = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"}


class Report:
    """The report of the doctor, by the names of the checks."""

    def __init__(self, done: subprocess.CompletedProcess):
        assert "panicked" not in done.stderr, done.stderr
        self.code, self.body = done.returncode, json.loads(done.stdout)
        self.found = {each["check"]: each for each in self.body["findings"]}
        self.steps = {each["step"]: each for each in self.body["trial"] or ()}

    def level(self, check: str) -> str:
        return self.found[check]["level"]

    def expect_level(self, level: str, *checks: str):
        """Fails unless all of these checks have that level."""
        wrong = {check: self.found.get(check) for check in checks if (self.found.get(check) or {}).get("level") != level}
        assert not wrong, json.dumps(wrong, indent=1)


def run_doctor(*options, prefix=(), environment=None, seconds=240, **more) -> subprocess.CompletedProcess:
    command = [*map(str, prefix), str(BINARY), "doctor", *map(str, options)]
    return subprocess.run(
        command, env=ENVIRONMENT | NO_NETWORK | (environment or {}), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=seconds, **more,
    )  # fmt: skip


def doctor(*options, **more) -> Report:
    return Report(run_doctor("--json", *options, **more))


def doctor_of_engine(server: Server, *options, **more) -> Report:
    """Runs the doctor with the options of an engine and the key of its administrator."""
    return doctor(*server.command[2:], *options, environment={"TENSORPOOL_KEY": server.key}, **more)


def doctor_without_engine(data: Path, *options, **more) -> Report:
    """Runs the doctor where no engine runs, on free ports."""
    ports = [part for name in ("listen", "ssh-listen", "s3-listen") for part in (f"--{name}", f"127.0.0.1:{free_port()}")]
    return doctor("--data", data, *ports, *options, **more)


def documented() -> set[str]:
    return set(re.findall(r"^\| `([a-z_]+\.[a-z_0-9]+)` \|", PAGE.read_text(), re.M))
