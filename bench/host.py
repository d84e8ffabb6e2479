"""What the kernel reports about the host and about a process with all its children."""

import os
import platform
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


def description() -> str:
    """The host in one line: a figure without it means nothing."""
    model = field("/proc/cpuinfo", "model name", platform.machine())
    memory = int(field("/proc/meminfo", "MemTotal", "0 kB").split()[0]) / 2**20
    return f"{os.cpu_count()} cores of {model}, {memory:.0f} GiB of memory, Linux {platform.release()}"


def field(path: str, name: str, default: str) -> str:
    """The value after `name:` in one of the kernel's text files."""
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return default


def tree(pid: int) -> list[int]:
    """The process and its descendants; servers with several workers count as one."""
    found, todo = [], [pid]
    while todo:
        process = todo.pop()
        found.append(process)
        for children in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                todo += [int(child) for child in children.read_text().split()]
            except OSError:  # A thread may end between the listing and the reading.
                continue
    return found


def cpu_seconds(pid: int) -> float:
    """Processor time that the tree has used."""
    total = 0
    for process in tree(pid):
        try:
            stat = Path(f"/proc/{process}/stat").read_text()
        except OSError:
            continue
        # The name in parentheses may contain spaces, so the fields are counted from behind it.
        fields = stat.rpartition(")")[2].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICKS


def resident_mib(pid: int) -> float:
    """Memory that the tree holds."""
    total = 0
    for process in tree(pid):
        try:
            total += int(field(f"/proc/{process}/status", "VmRSS", "0 kB").split()[0])
        except OSError:
            continue
    return total / 1024


def busy_seconds() -> tuple[float, float]:
    """Processor time that the whole host has used, and that it had available."""
    times = [int(value) for value in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(times) - times[3] - times[4]) / TICKS, sum(times) / TICKS
