"""A gibibyte over SSH, out by `cat` and in by `scp`: OpenSSH on the host, and Tarn's gateway into an instance."""

import contextlib
import subprocess
import time
from pathlib import Path

from bench import servers
from bench.instances import ssh_client
from bench.instances.baselines import banner
from bench.instances.tarn import Tarn

MEBIBYTES = 1024


@contextlib.contextmanager
def sshd(work: Path, key: Path):
    """OpenSSH's server with its defaults, on a separate port; yields the port."""
    port, host_key = servers.free_port(), ssh_client.identity(work / "host-key")
    keys = work / "authorized_keys"
    keys.write_text(key.with_suffix(".pub").read_text())
    Path("/run/sshd").mkdir(exist_ok=True)
    settings = {"ListenAddress": "127.0.0.1", "HostKey": host_key, "AuthorizedKeysFile": keys, "UsePAM": "no"}
    settings |= {"UseDNS": "no", "StrictModes": "no", "PidFile": "none", "PermitRootLogin": "yes"}
    settings |= {"Subsystem": "sftp internal-sftp"}
    command = ["/usr/sbin/sshd", "-D", "-e", "-f", "none", "-p", str(port)]
    command += [part for name, value in settings.items() for part in ("-o", f"{name}={value}")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not banner("127.0.0.1", port):
            time.sleep(0.01)
        yield port
    finally:
        process.terminate()
        process.wait()


def compare(work: Path, key: Path, tarn: Tarn, repetitions: int) -> dict[str, list[float]]:
    """Mebibytes per second, the two taking turns."""
    source = work / "gibibyte"
    with open(source, "wb") as file:
        for _ in range(MEBIBYTES):
            file.write(b"\0" * (1 << 20))
    accepted = tarn.ask("bytes", "whole")
    tarn.finish(accepted["request_id"])
    samples: dict[str, list[float]] = {}
    with sshd(work, key) as port:
        ways = {"OpenSSH": (port, "root", str(work / "there")), "Tarn": (tarn.ssh_port, "bytes", "there")}
        for _ in range(repetitions):
            for name, (port, user, target) in ways.items():
                samples.setdefault(f"out by cat, {name}", []).append(rate(cat, key, port, user))
                samples.setdefault(f"in by scp, {name}", []).append(rate(scp, key, port, user, source, target))
    tarn.destroy(accepted["cluster_id"])
    (work / "there").unlink()
    source.unlink()
    return samples


def rate(way, *arguments) -> float:
    """Mebibytes per second of one transfer."""
    began = time.monotonic()
    way(*arguments)
    return MEBIBYTES / (time.monotonic() - began)


def cat(key: Path, port: int, user: str):
    """Out of the instance or the host."""
    command = ["ssh", *ssh_client.options(key, port), f"{user}@127.0.0.1", f"head -c {MEBIBYTES}M /dev/zero"]
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True, timeout=300)


def scp(key: Path, port: int, user: str, source: Path, target: str):
    """Into the instance or the host, onto its disk."""
    command = ["scp", "-q", *ssh_client.options(key, port), str(source), f"{user}@127.0.0.1:{target}"]
    subprocess.run(command, stdin=subprocess.DEVNULL, check=True, timeout=300)
