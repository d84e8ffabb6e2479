"""Many listeners in one process, as light as possible: the engine is measured, not a WebSocket library."""

import base64
import json
import os
import resource
import select
import socket
import time

# Masked with zeros, which the protocol allows and which costs nothing.
MASK = b"\0\0\0\0"


class Listener:
    """One connection that listens to a job."""

    def __init__(self, port: int, key: str, job: str):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        nonce = base64.b64encode(os.urandom(16)).decode()
        head = f"GET /job/listen/{job} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
        head += f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {nonce}\r\n\r\n"
        word = json.dumps({"TENSORPOOL_KEY": key}).encode()
        self.socket.sendall(head.encode() + bytes([0x81, 0x80 | len(word)]) + MASK + word)
        self.upgraded, self.closed, self.waiting = False, False, b""
        self.frames: list[tuple[float, bytes]] = []

    def receive(self):
        """Receives what is available; each frame with its time of arrival."""
        data = self.socket.recv(1 << 18)
        now = time.time()
        if not data:
            self.closed = True
            return
        self.waiting += data
        if not self.upgraded:
            head, found, rest = self.waiting.partition(b"\r\n\r\n")
            if not found:
                return
            assert head.startswith(b"HTTP/1.1 101"), head
            self.upgraded, self.waiting = True, rest
        while (frame := self.next_frame()) is not None:
            self.frames.append((now, frame))

    def next_frame(self) -> bytes | None:
        """The next text, once it is complete."""
        while len(self.waiting) >= 2:
            kind, length, start = self.waiting[0] & 15, self.waiting[1] & 127, 2
            if length == 126:
                length, start = int.from_bytes(self.waiting[2:4], "big"), 4
            elif length == 127:
                length, start = int.from_bytes(self.waiting[2:10], "big"), 10
            if len(self.waiting) < start + length:
                return None
            body, self.waiting = self.waiting[start : start + length], self.waiting[start + length :]
            if kind == 1:
                return body
            self.closed |= kind == 8
        return None

    def lines(self) -> list[tuple[float, str]]:
        """All lines of the job with their times of arrival, without the last frame."""
        texts = [(at, json.loads(frame)) for at, frame in self.frames]
        assert texts and texts[-1][1]["status"] == "success", texts[-1:]
        return [(at, line) for at, text in texts[:-1] for line in text["message"].split("\n")]


def listen(port: int, key: str, job: str, count: int, *, then=lambda: None) -> list[Listener]:
    """Connects this many listeners and reads until all have got the end; `then` is called when all are connected."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, count + 1000), most))
    listeners = {}
    poll = select.epoll()
    for _ in range(count):
        each = Listener(port, key, job)
        listeners[each.socket.fileno()] = each
        poll.register(each.socket, select.EPOLLIN)
    opened, deadline, called = set(listeners), time.monotonic() + 300, False
    while opened:
        assert time.monotonic() < deadline, f"{len(opened)} of {count} listeners have not got the end"
        for number, _ in poll.poll(1):
            each = listeners[number]
            each.receive()
            if each.closed:
                poll.unregister(number)
                opened.discard(number)
        if not called and all(each.upgraded for each in listeners.values()):
            called = True
            then()
    for each in listeners.values():
        each.socket.close()
    return list(listeners.values())


def first_frame(port: int, key: str, job: str) -> float:
    """When the first text of a job arrived."""
    each = Listener(port, key, job)
    with each.socket:
        while not each.frames and not each.closed:
            each.receive()
    return each.frames[0][0]
