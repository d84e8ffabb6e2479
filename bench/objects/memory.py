"""Memory of Tarn while 16 clients transfer large objects.

The objects of 16 writers are on the disk all at once, so they are as large as those of the readers, who share one, only
where there is space for 16 GiB.
"""

from dataclasses import dataclass
from pathlib import Path

from bench.objects import cells, systems

CLIENTS = 16


@dataclass
class PeakMemory:
    """The peak memory in MiB: before, during uploads, and during downloads."""

    idle: float
    put: float
    get: float


def watch(work: Path, put_mib: int, get_mib: int) -> PeakMemory:
    """A server that has done nothing else yet."""
    with systems.Tarn(work) as tarn:
        client = tarn.client("bench-memory")
        client.run("make")
        idle = cells.peak_mib(tarn.pid)
        put = during(tarn, client, "put", put_mib << 20, CLIENTS, CLIENTS, cells.LONGEST_SECONDS)
        client.run("delete", put_mib << 20, CLIENTS, CLIENTS)
        size = get_mib << 20
        client.run("put", size, 1, 1, cells.LONGEST_SECONDS)
        # A client that has begun reads to the end, and half a second is enough for all to begin.
        get = during(tarn, client, "get", size, CLIENTS, 1, 0.5)
        client.run("delete", size, 1, 1)
        client.run("drop")
    return PeakMemory(idle, put, get)


def during(tarn, client, *command) -> float:
    """The peak memory of the server while a command ran."""
    # Five tells the kernel to reset the peak.
    Path(f"/proc/{tarn.pid}/clear_refs").write_text("5")
    client.run(*command)
    return cells.peak_mib(tarn.pid)
