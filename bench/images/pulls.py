"""Pulls of a large image from a loopback registry: Tarn's and podman's, each with nothing in its cache."""

import contextlib
import shutil
import subprocess
import threading
import time
from pathlib import Path

from bench import host
from bench.images.starts import start
from bench.instances.baselines import podman_store
from bench.instances.tarn import Tarn


def take_turns(work: Path, key: Path, reference: str, rounds: int) -> dict[str, list[float]]:
    """Seconds of each, and the peak memory in mebibytes of the process that unpacks for Tarn."""
    figures = {"tarn": [], "podman": [], "memory": []}
    for _ in range(rounds):
        seconds, memory = tarn(work, key, reference)
        figures["tarn"].append(seconds)
        figures["memory"].append(memory)
        figures["podman"].append(podman(reference))
    return figures


def tarn(work: Path, key: Path, reference: str) -> tuple[float, float]:
    """A cluster from an image that is not cached: the time includes the start of its instance."""
    with Tarn(work, key) as engine, watched(engine.pid) as most:
        seconds = start(engine, "pull", reference)
    shutil.rmtree(engine.data, ignore_errors=True)
    return seconds, most[0]


@contextlib.contextmanager
def watched(pid: int):
    """The peak memory of a single child of the engine meanwhile."""
    most, over = [0.0], threading.Event()

    def look():
        while not over.wait(0.01):
            for child in host.tree(pid)[1:]:
                with contextlib.suppress(OSError):
                    most[0] = max(most[0], int(host.field(f"/proc/{child}/status", "VmHWM", "0 kB").split()[0]) / 1024)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        yield most
    finally:
        over.set()
        watcher.join()


def podman(reference: str) -> float:
    """`podman pull` into an empty store."""
    store = podman_store()
    command = ["podman", "--root", str(store / "storage"), "--runroot", str(store / "run"), "--storage-driver", "overlay"]
    try:
        began = time.monotonic()
        subprocess.run([*command, "pull", "--quiet", "--tls-verify=false", reference], check=True, stdout=subprocess.DEVNULL)
        return time.monotonic() - began
    finally:
        subprocess.run([*command, "system", "reset", "--force"], capture_output=True)
        # podman leaves a mount of its storage behind.
        subprocess.run(["umount", str(store / "storage/overlay")], capture_output=True)
        subprocess.run(["rm", "--recursive", "--force", "--one-file-system", str(store)], check=True)
