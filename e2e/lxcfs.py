"""A real lxcfs at a mount point of its own."""

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from support import eventually

needs_lxcfs = pytest.mark.skipif(
    not shutil.which("lxcfs") or not os.path.exists("/dev/fuse"),
    reason="lxcfs or /dev/fuse is missing (scripts/install-missing test): nobody looked at what instances see of themselves",
)


class Lxcfs:
    """A lxcfs that can be ended, stopped and started anew. A context manager that leaves neither process nor mount."""

    def __init__(self, directory: Path):
        self.place = directory / "lxcfs"
        self.place.mkdir()
        self.process = None

    @property
    def settings(self) -> str:
        """The section of the configuration of an engine."""
        return f'\n[instances]\nlxcfs = "{self.place}"\n'

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.unmount()

    def start(self):
        """Starts it with all that it can show, and waits until it answers."""
        command = ["lxcfs", "-f", "-l", "--enable-cfs", "-p", str(self.place.with_suffix(".pid")), str(self.place)]
        with open(self.place.with_suffix(".log"), "ab") as log:
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        eventually((self.place / "proc/meminfo").exists, what="an answer of lxcfs")
        return self

    def signal(self, number: int):
        self.process.send_signal(number)

    def kill(self):
        """Kills it; its mount stays, dead."""
        if self.process and self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()

    def unmount(self):
        """Removes its mounts."""
        while subprocess.run(["umount", "--lazy", str(self.place)], capture_output=True).returncode == 0:
            pass
