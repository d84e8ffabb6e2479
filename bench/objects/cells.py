"""PUT and GET by object size and number of connections, the systems in turns."""

import contextlib
import os
import statistics
from pathlib import Path

from bench import host
from bench.objects.client import Sample

CONNECTIONS = (1, 16)
# By size: its label, the most objects that a cell leaves on the disk, and how many of them are read.
SIZES = {4 << 10: ("4 KiB", 200_000, 1000), 1 << 20: ("1 MiB", 1024, 256), 64 << 20: ("64 MiB", 16, 8)}
# Objects that are not measured, for the directories that a server creates only with the first objects of a bucket.
WARM_SIZE, WARM_CONNECTIONS, WARM_COUNT = (4 << 10) - 1, 16, 64
AT_ONCE = 32
LONGEST_SECONDS = 600

# Verb, size and connections.
Cell = tuple[str, int, int]


def compare(work: Path, kinds: dict, rounds: int, seconds: float, sizes=SIZES) -> tuple[dict[Cell, dict[str, Sample]], dict]:
    """The medians by cell and by system, and the peak memory of each system."""
    found: dict[Cell, dict[str, list[Sample]]] = {}
    with contextlib.ExitStack() as stack:
        running = {name: stack.enter_context(kind(work)) for name, kind in kinds.items()}
        for number in range(rounds):
            for size in sizes:
                for connections in CONNECTIONS:
                    for name in turn(list(running), number):
                        bucket = f"bench-{number}-{size}-{connections}"
                        for verb, sample in one_cell(running[name], bucket, size, connections, seconds).items():
                            found.setdefault((verb, size, connections), {}).setdefault(name, []).append(sample)
        peaks = {name: peak_mib(system.pid) for name, system in running.items()}
    cells = {cell: {name: median(by[name]) for name in kinds} for cell, by in found.items()}
    return dict(sorted(cells.items())), peaks


def turn(names: list[str], number: int) -> list[str]:
    """The order of a round: each system is once at every place, because what the one before left to do disturbs it."""
    start = number % len(names)
    return names[start:] + names[:start]


def one_cell(system, bucket: str, size: int, connections: int, seconds: float) -> dict[str, Sample]:
    """Puts new objects into a new bucket, gets some of them, and deletes all of them."""
    client, (_, most, read) = system.client(bucket), SIZES[size]
    client.run("make")
    client.run("put", WARM_SIZE, WARM_CONNECTIONS, WARM_COUNT, LONGEST_SECONDS)
    # Dirty pages of other systems must not be written during this measurement.
    os.sync()
    put = client.measure(system.pid, "put", size, connections, most, seconds)
    os.sync()
    get = client.measure(system.pid, "get", size, connections, min(read, put.operations), seconds)
    client.run("delete", size, AT_ONCE, put.operations)
    client.run("delete", WARM_SIZE, AT_ONCE, WARM_COUNT)
    client.run("drop")
    return {"PUT": put, "GET": get}


def peak_mib(pid: int) -> float:
    """The peak memory of a process since its start, or since the last reset."""
    return int(host.field(f"/proc/{pid}/status", "VmHWM", "0 kB").split()[0]) / 1024


def median(samples: list[Sample]) -> Sample:
    """The median of every figure by itself."""
    names = Sample.__dataclass_fields__
    return Sample(**{name: statistics.median(getattr(sample, name) for sample in samples) for name in names})
