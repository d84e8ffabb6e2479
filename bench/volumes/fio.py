"""Bytes to and from a volume inside an instance, and a loop-mounted XFS file on the host, by fio.

A loop device caches reads and writes in the host's page cache unless it uses direct I/O: then it is slower where that
cache would help, and takes no memory. Both are measured on the host, so that the two cannot be confused.
"""

import contextlib
import json
import subprocess
import tempfile
from pathlib import Path

from bench.instances import ssh_client
from bench.instances.tarn import Tarn
from bench.volumes import changes

GIGABYTES = 4
MEBIBYTES = 512
# By name: fio's name of the pattern, and the size of a block.
PATTERNS = {
    "sequential write, 1 MiB": ("write", "1M"),
    "sequential read, 1 MiB": ("read", "1M"),
    "random write, 4 KiB": ("randwrite", "4k"),
    "random read, 4 KiB": ("randread", "4k"),
}


@contextlib.contextmanager
def loop_mount(direct_io: str):
    """A baseline: a file like that of a volume, formatted and mounted on the host. It is removed without walking the
    mount."""
    work = Path(tempfile.mkdtemp(prefix="bench-loop-", dir="target")).resolve()
    file, place = work / "file", work / "mounted"
    place.mkdir()
    try:
        with open(file, "wb") as made:
            made.truncate(GIGABYTES * 10**9)
        subprocess.run(["mkfs.xfs", "-q", str(file)], check=True)
        command = ["losetup", "--find", "--show", f"--direct-io={direct_io}", str(file)]
        device = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
        try:
            subprocess.run(["mount", device, str(place)], check=True)
            try:
                yield place
            finally:
                subprocess.run(["umount", str(place)], check=True)
        finally:
            subprocess.run(["losetup", "--detach", device], check=True)
    finally:
        place.rmdir()
        file.unlink(missing_ok=True)
        work.rmdir()


def compare(tarn: Tarn, rounds: int, seconds: int) -> dict[str, dict[str, list[float]]]:
    """Bytes per second by pattern and place; the places take turns, also in being the first."""
    cluster = tarn.ask("bytes", "whole")
    volume = tarn.call("POST", "/storage/create", {"name": "bytes", "size": GIGABYTES})
    for accepted in (cluster, volume):
        tarn.finish(accepted["request_id"])
    attach = {"storage_id": volume["storage_id"], "cluster_ids": [cluster["cluster_id"]], "live": True}
    changes.timed(tarn, "POST", "/storage/attach", attach)
    rates: dict[str, dict[str, list[float]]] = {name: {} for name in PATTERNS}
    with loop_mount("off") as mounted, loop_mount("on") as direct:
        places = {
            "host": lambda line: on_host(mounted, line),
            "host, direct": lambda line: on_host(direct, line),
            "volume": lambda line: inside(tarn, volume["storage_id"], line),
        }
        for run in places.values():
            run(command("write", "1M") + ["--end_fsync=1"])
        for number in range(rounds):
            for name, pattern in PATTERNS.items():
                for place in sorted(places, reverse=number % 2 == 1):
                    rates[name].setdefault(place, []).append(places[place](command(*pattern, seconds=seconds)))
    tarn.destroy(cluster["cluster_id"])
    changes.timed(tarn, "DELETE", f"/storage/{volume['storage_id']}")
    return rates


def command(kind: str, block: str, *, seconds=None) -> list[str]:
    """The command line of fio: direct I/O, sixteen at once, and never more than one bounded file."""
    line = ["fio", "--name=bench", f"--size={MEBIBYTES}M", f"--rw={kind}", f"--bs={block}"]
    line += ["--direct=1", "--ioengine=libaio", "--iodepth=16", "--output-format=json"]
    return line + (["--time_based", f"--runtime={seconds}", "--ramp_time=0.5"] if seconds else [])


def on_host(place: Path, line: list[str]) -> float:
    """One run on the host."""
    return speed(subprocess.run([*line, f"--filename={place}/bench"], capture_output=True, text=True, timeout=120))


def inside(tarn: Tarn, volume: str, line: list[str]) -> float:
    """One run in the instance."""
    return speed(ssh_client.ssh(tarn.key, tarn.ssh_port, "bytes", *line, f"--filename=/mnt/{volume}/bench"))


def speed(done: subprocess.CompletedProcess) -> float:
    """Bytes per second of one run."""
    assert done.returncode == 0, done
    job = json.loads(done.stdout[done.stdout.index("{") :])["jobs"][0]
    return job["read"]["bw_bytes"] + job["write"]["bw_bytes"]
