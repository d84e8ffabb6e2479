"""Separate networks for tests. Nothing that is sent there can leave the host, and public addresses can be simulated."""

import ctypes
import os
import subprocess
from contextlib import contextmanager
from pathlib import Path

NEW_NETWORK = 0x40000000
METADATA = "169.254.169.254"
OFFICE = "192.168.77.7"
KNOWN_NAME, KNOWN_ADDRESS = "tarn.test", "192.0.2.77"
WORLD = f"""
import socket, struct, sys, threading

def resolve(address):
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.setsockopt(socket.IPPROTO_IP, 15, 1)
    server.bind((address, 53))
    # The network did not have this address when it was bound, so the kernel would choose another source.
    source = [(socket.IPPROTO_IP, 8, struct.pack("=I4s4s", 0, socket.inet_aton(address), bytes(4)))]
    while True:
        query, asker = server.recvfrom(512)
        end = query.index(0, 12) + 5
        answer = struct.pack(">HHHIH", 0xC00C, 1, 1, 60, 4) + socket.inet_aton("{KNOWN_ADDRESS}") if query[end - 4 : end - 2] == b"\\0\\1" else b""
        reply = query[:2] + struct.pack(">HHHHH", 0x8180, 1, len(answer) // 16, 0, 0) + query[12:end] + answer
        server.sendmsg([reply], source, 0, asker)

for address in sys.argv[1:]:
    threading.Thread(target=resolve, args=(address,), daemon=True).start()
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
    """A second network, in which a server plays the metadata service of a cloud, the operator's own network, and the
    name servers of this host."""
    names = name_servers()
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "python3", "-c", WORLD, *names]
    beyond = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert beyond.stdout.readline() == "listening\n"
        ip("link", "add", "world", "type", "veth", "peer", "name", "machine", "netns", str(beyond.pid))
        ip("address", "add", "192.0.2.1/30", "dev", "world")
        ip("link", "set", "world", "up")
        for line in ("link set lo up", "address add 192.0.2.2/30 dev machine", "link set machine up",
                     *(f"address add {address}/32 dev lo" for address in (METADATA, OFFICE, *names)), "route add default via 192.0.2.1"):  # fmt: skip
            subprocess.run(["nsenter", f"--net=/proc/{beyond.pid}/ns/net", "ip", *line.split()], check=True)
        ip("route", "add", "default", "via", "192.0.2.2")
        yield
    finally:
        beyond.kill()
        beyond.wait()
        beyond.stdout.close()


def name_servers() -> list[str]:
    """The name servers of this host that are not on its loopback interface."""
    lines = [line.split() for line in Path("/etc/resolv.conf").read_text().splitlines()]
    found = [words[1] for words in lines if words[:1] == ["nameserver"] and len(words) > 1]
    return sorted({address for address in found if ":" not in address and not address.startswith("127.")})


def ip(*arguments: str):
    subprocess.run(["ip", *arguments], check=True)
