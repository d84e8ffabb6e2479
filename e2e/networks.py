"""Separate networks for tests. Nothing that is sent there can leave the host, and public addresses can be simulated."""

import ctypes
import os
import subprocess
from contextlib import contextmanager

NEW_NETWORK = 0x40000000
METADATA = "169.254.169.254"
WORLD = """
import socket
with socket.create_server(("0.0.0.0", 80)) as listener:
    print("listening", flush=True)
    while True:
        listener.accept()[0].close()
"""


@contextmanager
def private_network():
    """Moves the calling process and its children into an empty network."""
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        assert libc.unshare(NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
        try:
            ip("link", "set", "lo", "up")
            yield
        finally:
            assert libc.setns(before, NEW_NETWORK) == 0, os.strerror(ctypes.get_errno())
    finally:
        os.close(before)


@contextmanager
def external_network():
    """A second network, in which a server plays the metadata service of a cloud."""
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "python3", "-c", WORLD]
    beyond = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert beyond.stdout.readline() == "listening\n"
        ip("link", "add", "world", "type", "veth", "peer", "name", "machine", "netns", str(beyond.pid))
        ip("address", "add", "192.0.2.1/30", "dev", "world")
        ip("link", "set", "world", "up")
        for line in ("link set lo up", "address add 192.0.2.2/30 dev machine", "link set machine up",
                     f"address add {METADATA}/32 dev lo", "route add default via 192.0.2.1"):  # fmt: skip
            subprocess.run(["nsenter", f"--net=/proc/{beyond.pid}/ns/net", "ip", *line.split()], check=True)
        ip("route", "add", "default", "via", "192.0.2.2")
        yield
    finally:
        beyond.kill()
        beyond.wait()
        beyond.stdout.close()


def ip(*arguments: str):
    subprocess.run(["ip", *arguments], check=True)
