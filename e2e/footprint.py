"""What a machine holds of what the local driver makes: taken before and after, the two must be equal."""

import contextlib
import os
import re
import subprocess
from pathlib import Path

from support import eventually

CGROUPS = Path("/sys/fs/cgroup")


def take_snapshot() -> dict[str, frozenset]:
    """Everything that could be left behind, each kind as a set that shows in a failed comparison what it is."""
    return {
        "processes": frozenset(guest_processes()),
        "namespaces": frozenset(namespaces()),
        "mounts": frozenset(line.split(" ", 5)[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()),
        "loop devices": lines("losetup", "--list", "--noheadings", "--output", "NAME"),
        "interfaces": frozenset(os.listdir("/sys/class/net")),
        # Those that a router has told end some time, and how soon is no difference.
        "routes": frozenset(re.sub(r" expires \d+sec", "", line) for line in lines("ip", "route", "show", "table", "all")),
        "tables": lines("nft", "list", "tables"),
        "cgroups": frozenset(str(path) for path in CGROUPS.glob("*/tarn*")) | frozenset(map(str, CGROUPS.glob("tarn*"))),
        "directories": frozenset(str(path) for path in Path("/run").glob("tarn*/**")),
    }


def loop_devices(below: Path) -> dict[str, str]:
    """The loop devices that have a file below a directory, also a removed one, by their names."""
    found = {}
    for place in Path("/sys/block").glob("loop*/loop/backing_file"):
        with contextlib.suppress(OSError):  # One that clears itself is gone between the listing and the reading.
            if (file := place.read_text().strip()).startswith(f"{below}/"):
                found[place.parts[3]] = file
    return found


def difference(before: dict, after: dict) -> dict[str, dict]:
    """What came and what went, by kind; empty when nothing did. Namespaces go with whoever is the last in them, and anybody may end
    meanwhile who has nothing to do with this."""
    changed = {}
    for kind, old in before.items():
        gone = old - after[kind] if kind != "namespaces" else ()
        if (came := after[kind] - old) or gone:
            changed[kind] = {"more": sorted(map(str, came)), "less": sorted(map(str, gone))}
    return changed


def wait_until_restored(before: dict, what: str):
    """Waits until the machine holds what it held before; a failure says what it holds instead."""
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
    """The processes of instances, by what they were started as; those that are only waiting to be reaped do not count."""
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
    """The namespaces that live processes are in. Those of processes that come and go by themselves are few and shared."""
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
