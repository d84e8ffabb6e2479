"""The baselines: OpenSSH's server in a bare `unshare`, and in podman, on an overlay over the same root."""

import atexit
import contextlib
import functools
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

from bench.instances import ssh_client

ROOT = Path("target/bench/rootfs").resolve()
START = """#!/bin/sh
mkdir -p /run/sshd
exec /usr/sbin/sshd -D -e -p "$1" -o ListenAddress=127.0.0.1 -o UsePAM=no -o UseDNS=no
"""


def prepare(key: Path):
    """A Debian with OpenSSH's server, unpacked once and kept beside the build."""
    if not (ROOT / "usr/sbin/sshd").exists():
        shutil.rmtree(ROOT, ignore_errors=True)
        ROOT.parent.mkdir(parents=True, exist_ok=True)
        release = subprocess.run(["sh", "-c", ". /etc/os-release; echo $VERSION_CODENAME"], capture_output=True, text=True)
        command = ["debootstrap", "--variant=minbase", "--include=openssh-server", release.stdout.strip(), str(ROOT)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    home = ROOT / "root/.ssh"
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "authorized_keys").write_text(key.with_suffix(".pub").read_text())
    (home / "authorized_keys").chmod(0o600)
    subprocess.run(["chroot", str(ROOT), "ssh-keygen", "-A"], check=True, stdout=subprocess.DEVNULL)
    (ROOT / "start-sshd").write_text(START)
    (ROOT / "start-sshd").chmod(0o755)


@contextlib.contextmanager
def unshare(work: Path, port: int):
    """Namespaces for mounts, host names, processes and IPC; the host's network, no limits, no user namespace."""
    mounted = overlay(work)
    spaces = ["--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
    command = ["unshare", *spaces, "chroot", str(mounted), "/start-sshd", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.kill()
        process.wait()
        subprocess.run(["umount", "--lazy", str(mounted)], check=True)


def overlay(work: Path) -> Path:
    """The root with a separate writable layer."""
    layers = {name: work / name for name in ("upper", "work", "mounted")}
    for layer in layers.values():
        layer.mkdir(parents=True)
    options = f"lowerdir={ROOT},upperdir={layers['upper']},workdir={layers['work']}"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", options, str(layers["mounted"])], check=True)
    return layers["mounted"]


@contextlib.contextmanager
def podman(_work: Path, port: int):
    """A container in the host's network and without a user namespace; runc, because not all of our hosts can run
    crun."""
    store = podman_store()
    name, base = f"bench-{port}", ["podman", "--root", str(store / "storage"), "--runroot", str(store / "run")]
    base += ["--cgroup-manager=cgroupfs", "--events-backend=file", "--runtime", "runc"]
    limits = ["--ulimit", "nofile=10000:10000", "--ulimit", "nproc=4096:4096", "--cgroups=enabled"]
    command = [*base, "run", "--detach", *limits, "--network=host", "--name", name, "--rootfs", f"{ROOT}:O"]
    try:
        subprocess.run([*command, "/start-sshd", str(port)], check=True, capture_output=True)
        yield
    finally:
        subprocess.run([*base, "rm", "--force", "--time", "0", name], capture_output=True)


@functools.cache
def podman_store() -> Path:
    """The storage of podman for one run. It contains sockets, whose paths must be short."""
    store = Path(tempfile.mkdtemp(prefix="bench-podman-"))
    atexit.register(subprocess.run, ["rm", "--recursive", "--force", "--one-file-system", str(store)])
    # podman leaves a mount of its storage behind.
    atexit.register(subprocess.run, ["umount", str(store / "storage/overlay")], capture_output=True)
    return store


def measure(kind, work: Path, key: Path, port: int) -> tuple[float, float]:
    """Seconds from the start to the server's banner, and to the end of the first command."""
    began = time.monotonic()
    with kind(work, port):
        while not banner("127.0.0.1", port):
            time.sleep(0.001)
        words = time.monotonic() - began
        done = ssh_client.ssh(key, port, "root", "true")
        assert done.returncode == 0, done
        return words, time.monotonic() - began


def banner(address: str, port: int) -> bool:
    """Whether an SSH server sends its banner there."""
    with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=1) as connection:
        return connection.recv(4) == b"SSH-"
    return False

