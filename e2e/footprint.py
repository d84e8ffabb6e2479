"""What the local driver leaves on a host. A snapshot before and one after a test must be equal."""

import contextlib
import os
import re
import subprocess
from pathlib import Path

from support import eventually

CGROUPS = Path("/sys/fs/cgroup")


def take_snapshot() -> dict[str, frozenset]:
    """Everything that could be left behind, each kind as a set, so that a failed comparison names it."""
    return {
        "processes": frozenset(guest_processes()),
        "namespaces": frozenset(namespaces()),
        "mounts": frozenset(line.split(" ", 5)[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "loop devices": lines("losetup", "--list", "--noheadings", "--output", "NAME"),
        "interfaces": frozenset(os.listdir("/sys/class/net")),
        # Routes from a router advertisement expire, and the remaining time makes no difference.
        "routes": frozenset(re.sub(r" expires \d+sec", "", line) for line in lines("ip", "route", "show", "table", "all")),
        "tables": lines("nft", "list", "tables"),
        "cgroups": frozenset(str(path) for path in CGROUPS.glob("*/tarn*")) | frozenset(map(str, CGROUPS.glob("tarn*"))),
        "directories": frozenset(str(path) for path in Path("/run").glob("tarn*/**")),
    }


def loop_devices(below: Path) -> dict[str, str]:
    """The loop devices whose file is or was below a directory, by name."""
    found = {}
    for place in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # A device that clears itself may disappear between the listing and the reading.
            if (file := place.read_text().strip()).startswith(f"{below}/"):
                found[place.parts[3]] = file
    return found


def difference(before: dict, after: dict) -> dict[str, dict]:
    """What was added and what was removed, by kind; empty when nothing was. A removed namespace does not count: it
    disappears with the last process in it, which may be an unrelated one."""
    changed = {}
    for kind, old in before.items():
        gone = old - after[kind] if kind != "namespaces" else ()
        if (came := after[kind] - old) or gone:
            changed[kind] = {"more": sorted(map(str, came)), "less": sorted(map(str, gone))}
    return changed


def wait_until_restored(before: dict, what: str):
    """Waits until the host is as it was before; a failure lists the differences."""
    changed = {}

    def is_restored() -> bool:
        changed.clear()
        changed.update(difference(before, take_snapshot()))
        return not changed

    try:
        eventually(is_restored, what=what)
    except AssertionError:
        raise AssertionError(f"{what} was not seen: {changed}") from None


def guest_processes() -> list[str]:
    """The processes of instances, by their command lines, without zombies."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            state = (process / "stat").read_text().rsplit(")", 1)[1].split()[0]
            command, *arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if state not in "ZX" and (command.endswith(b"/.tarn/guest") or b"instance-helper" in arguments):
            found.append(process.name)
    return found


def namespaces() -> set[tuple[str, str]]:
    """The namespaces of live processes. Processes that come and go by themselves share a few namespaces."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            found |= {(kind, os.readlink(process / "ns" / kind)) for kind in ("mnt", "net", "user", "uts", "ipc", "pid")}
        except OSError:
            continue
    return found


def lines(*command) -> frozenset:
    """The lines that a program prints."""
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return frozenset(line.strip() for line in done.stdout.splitlines() if line.strip())
