"""Clients that listen to a job and do not read: each costs little memory, and no other tenant waits for them."""

import base64
import json
import os
import re
import socket
from contextlib import ExitStack

import pytest

from instances import needs_root
from jobs import Jobs, config, printed_text
from support import eventually, free_port

pytestmark = [needs_root, pytest.mark.alone]

LISTENERS = 600
# What a listener may add to the resident memory, in KiB: the connection and its task need about a third of it.
KIB_EACH = 192
# The part of what they took that goes back to the system.
RETURNED = 0.3
LINES = 200_000
# The limit of a user, and about what a listener acquires for a piece of plain text.
USER_BYTES, WINDOW = 8 << 20, 48 << 10


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """An engine without a rate limit, with metrics, and a cluster of the administrator."""
    metrics = free_port()
    options = ["--metrics-listen", f"127.0.0.1:{metrics}"]
    with Jobs(tmp_path_factory.mktemp("unread"), *options, settings="\n[rate_limit]\nper_second = 0\n") as running:
        running.metrics = metrics
        running.create("box", kind="worker")
        yield running


@pytest.fixture
def tenant(cloud, user):
    """The key of another tenant with a cluster named `theirs`."""
    key = user("other@example.org", "others")
    public = cloud.identity.with_suffix(".pub").read_text()
    body = {"instance_type": "worker", "tp_cluster_name": "theirs", "public_keys": [public]}
    made = cloud.call("POST", "/cluster/create", key=key, json=body, expect=202).json()
    cloud.finish(made["request_id"], key=key)
    yield key
    ended = cloud.call("DELETE", f"/cluster/{made['cluster_id']}", key=key, expect=202).json()
    cloud.finish(ended["request_id"], key=key)


@pytest.fixture
def server(cloud):
    """The engine in which `user` creates users."""
    return cloud


def resident_kib(cloud) -> int:
    """The resident memory of the engine."""
    status = open(f"/proc/{cloud.process.pid}/status").read()
    return int(re.search(r"VmRSS:\s+(\d+)", status).group(1))


def listen_without_reading(cloud, job) -> socket.socket:
    """Opens a listener that reads nothing after the handshake; its receive buffer is as small as possible."""
    stream = socket.socket()
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    stream.settimeout(60)
    stream.connect(("127.0.0.1", cloud.port))
    key = base64.b64encode(os.urandom(16)).decode()
    stream.sendall(
        f"GET /job/listen/{job} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode()
    )
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        byte = stream.recv(1)
        assert byte, head
        head += byte
    assert b" 101 " in head.splitlines()[0], head
    text = json.dumps({"TENSORPOOL_KEY": cloud.key}).encode()
    stream.sendall(bytes([0x81, 0x80 | len(text)]) + bytes(4) + text)
    return stream


def unread_bytes(cloud) -> float:
    """The room that is acquired for output that listeners have not read."""
    text = cloud.session.get(f"http://127.0.0.1:{cloud.metrics}/metrics", timeout=60).text
    found = re.search(r"^tarn_listener_unread_bytes (\S+)$", text, re.M)
    return float(found.group(1)) if found else 0


def listen_all(cloud, job, theirs, tenant) -> tuple[int, int]:
    """Opens many listeners that read nothing, while another tenant listens, and closes them. Returns the resident
    memory with all of them, and how much of that they took."""
    with ExitStack() as opened:
        # The first listeners also pay for what all share, such as blocks of the log.
        streams = [opened.enter_context(listen_without_reading(cloud, job)) for _ in range(20)]
        eventually(lambda: unread_bytes(cloud) > 20 * WINDOW / 2, what="the first listeners being blocked")
        before = resident_kib(cloud)
        streams += [opened.enter_context(listen_without_reading(cloud, job)) for _ in range(LISTENERS)]
        eventually(lambda: unread_bytes(cloud) > USER_BYTES - 2 * WINDOW, what="the limit of the user being reached")
        frames, code = cloud.listen(theirs, key=tenant)
        assert (printed_text(frames).split(), code) == ([str(number) for number in range(1, 1001)], 1000)
        assert unread_bytes(cloud) <= USER_BYTES + 4 * WINDOW, "what one user has does not grow"
        most = resident_kib(cloud)
    eventually(lambda: unread_bytes(cloud) == 0, what="the room being free again")
    return most, most - before


def test_unread_output_takes_little_memory(cloud, tenant):
    """Listeners that do not read take a bounded part of memory, which goes back to the system when they have left; another
    tenant listens meanwhile, and then they do."""
    job = cloud.run("box", f"seq {LINES} | sed 's/$/ of a log that is long enough to fill every buffer/'", venv=False)
    cloud.wait(job)
    theirs = cloud.submit("theirs", config("seq 1000", venv=False), files=False, start=True, key=tenant)["job_id"]
    most, taken = listen_all(cloud, job, theirs, tenant)
    assert taken / LISTENERS < KIB_EACH, f"a listener that does not read takes {taken / LISTENERS:.0f} KiB"
    eventually(lambda: resident_kib(cloud) < most - taken * RETURNED, what=f"less memory than {most} KiB")
    again, _ = listen_all(cloud, job, theirs, tenant)
    assert again < most * 1.25, f"the second time the engine has {again} KiB, and the first time {most}"
    frames, code = cloud.listen(job)
    assert (printed_text(frames).count("\n"), code) == (LINES, 1000)
