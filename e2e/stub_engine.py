"""A stub of an engine: it sends the responses that a test sets and records the calls. It also runs the client.

Start reading at `StubEngine`; `Laptop` is the user's side.
"""

import fcntl
import json
import os
import pty
import select
import shutil
import struct
import subprocess
import tempfile
import termios
import threading
import unicodedata
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from support import BINARY, ENVIRONMENT

KEY = "tp-not-for-strangers"
# Control sequences of terminals, and characters that reverse the direction of text.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\x08\x7f\x9b31m\u202egnp.exe\u2066\u200f"
SECONDS = 180


@dataclass
class ReceivedCall:
    """One received call. The names of its headers are in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


class StubEngine:
    """An HTTP server on loopback with scripted responses. Paths without a script return 404."""

    def __init__(self):
        self.calls: list[ReceivedCall] = []
        self.script = {}
        self.stopped = threading.Event()
        self.listener = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (Handler,), {"engine": self}))
        self.listener.daemon_threads, self.listener.block_on_close = True, False
        self.url = f"http://127.0.0.1:{self.listener.server_port}"

    def __enter__(self):
        threading.Thread(target=self.listener.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.listener.shutdown()
        self.listener.server_close()

    def set_response(self, path: str, body, *, status=200, kind="application/json", **headers):
        """Sets the response to a path, `*` for all others. Texts and bytes are sent as they are, anything else as
        JSON."""
        self.set_handler(path, lambda connection: connection.respond(body, status, kind, headers), reads_body=True)

    def set_handler(self, path: str, act, *, reads_body=False):
        """Sets the handler of a path; it must read the body of the call itself unless `reads_body` is set."""
        self.script[path] = (act, reads_body)

    def paths(self, method: str) -> list[str]:
        """The paths of all calls with a method, in order."""
        return [call.path for call in self.calls if call.method == method]


class Handler(BaseHTTPRequestHandler):
    """One connection to the stub engine."""

    protocol_version = "HTTP/1.1"
    engine: StubEngine

    def handle_one_request(self):
        with suppress(ConnectionError):
            super().handle_one_request()

    def act(self):
        """Records the call and runs its handler."""
        path, _, query = self.path.partition("?")
        act, reads_body = self.engine.script.get(path) or self.engine.script.get("*") or (respond_not_found, True)
        call = ReceivedCall(self.command, path, query, {name.lower(): value for name, value in self.headers.items()}, b"")
        self.engine.calls.append(call)
        if reads_body:
            call.body = self.read_body()
        self.close_connection = True
        act(self)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = act

    def read_body(self) -> bytes:
        """The body of the call."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline() or b"0", 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def respond(self, body, status=200, kind="application/json", headers=None):
        """Sends a response."""
        body = body if isinstance(body, (bytes, str)) else json.dumps(body)
        body = body.encode() if isinstance(body, str) else body
        self.send_head(status, {"Content-Type": kind, "Content-Length": len(body)} | (headers or {}))
        self.wfile.write(body)

    def send_head(self, status: int, headers: dict):
        """Sends the head of a response."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_):
        """Calls are recorded, not printed."""


def respond_not_found(connection: Handler):
    """The response of an engine that has no objects."""
    connection.respond({"message": "there is no such thing", "code": "not_found"}, 404)


@dataclass
class ClientResult:
    """The result of one run of the client."""

    code: int
    text: str
    errors: str


class Laptop:
    """A user's computer: a home, a working directory, variables and the client. Programs in `bin` are found first."""

    # The command that starts the client as another user, if any.
    before: tuple[str, ...] = ()

    def __init__(self, place: Path, engine: str):
        self.home, self.work, self.bin = place / "home", place / "work", place / "bin"
        for directory in (self.home, self.work, self.bin):
            directory.mkdir()
        self.variables = ENVIRONMENT | {
            "HOME": str(self.home), "PATH": f"{self.bin}:{ENVIRONMENT['PATH']}",
            "TENSORPOOL_ENGINE": engine, "TENSORPOOL_KEY": KEY,
        }  # fmt: skip

    @property
    def configuration(self) -> Path:
        """The client's configuration directory."""
        return self.home / ".config/tarn"

    def start(self, *arguments, **options) -> subprocess.Popen:
        """Starts the client."""
        everything = {
            "env": self.variables, "cwd": self.work, "stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
        } | options  # fmt: skip
        given = [each if isinstance(each, bytes) else str(each) for each in arguments]
        return subprocess.Popen([*self.before, str(BINARY), *given], **everything)

    def run(self, *arguments, answer=None, **options) -> ClientResult:
        """Runs the client to its end."""
        if answer is not None:
            options["stdin"] = subprocess.PIPE
        return finish(self.start(*arguments, **options), answer)

    def fails(self, code: int, *arguments, **options) -> str:
        """Runs the client, which must fail with one clear line on standard error and nothing else; returns the line."""
        said = self.run(*arguments, **options)
        assert not said.text, said
        return error_line(said, code)

    def works(self, *arguments, **options) -> str:
        """Runs the client, which must succeed without control characters in its output; returns the output."""
        said = self.run(*arguments, **options)
        assert said.code == 0 and not said.errors, said
        check_plain(said.text)
        return said.text

    def canary(self, name: str) -> Path:
        """Installs a program that only records its arguments, one for each line; returns the record's path."""
        recorded = self.bin.with_name(f"{name}.sung")
        program = self.bin / name
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> '{recorded}'\n")
        program.chmod(0o755)
        return recorded

    def terminal(self, *arguments, columns=80, **variables) -> tuple[int, str]:
        """Runs the client on a terminal with this many columns; returns its exit code and its output."""
        with Terminal(self, *arguments, columns=columns, **variables) as terminal:
            return terminal.end()


class Terminal:
    """A terminal with the client on it; the client is killed at the end."""

    def __init__(self, laptop: Laptop, *arguments, columns=80, **variables):
        self.near, self.far = pty.openpty()
        fcntl.ioctl(self.far, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        self.written = b""
        self.process = subprocess.Popen(
            ["setsid", "--ctty", str(BINARY), *map(str, arguments)], cwd=laptop.work, stdin=self.far, stdout=self.far,
            stderr=self.far, env=laptop.variables | {"TERM": "xterm-256color"} | variables,
        )  # fmt: skip

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.near)
        os.close(self.far)

    def read(self, seconds=0.05) -> str:
        """The output so far."""
        while select.select([self.near], [], [], seconds)[0]:
            self.written += os.read(self.near, 65536)
        return self.written.decode(errors="replace")

    def type(self, keys: str):
        """Presses keys."""
        os.write(self.near, keys.encode())

    def echoes(self) -> bool:
        """Whether the terminal echoes input."""
        return bool(termios.tcgetattr(self.far)[3] & termios.ECHO)

    def end(self) -> tuple[int, str]:
        """Waits for the end of the client; returns its exit code and its output."""
        reader = threading.Thread(target=self.process.wait, daemon=True)
        reader.start()
        for _ in range(SECONDS * 20):
            self.read()
            if not reader.is_alive():
                return self.process.returncode, self.read()
        raise AssertionError(f"the client did not end: {self.read()!r}")


def case_id(value) -> str:
    """A short name for a test case."""
    return ascii(value)[:30]


def finish(process: subprocess.Popen, answer=None) -> ClientResult:
    """Waits for the end of the client; returns its result."""
    try:
        text, errors = process.communicate(answer.encode() if answer is not None else None, timeout=SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return ClientResult(process.returncode, (text or b"").decode(), (errors or b"").decode())


def error_line(said: ClientResult, code: int) -> str:
    """Checks that the client failed with one clear line, and returns the line."""
    assert said.code == code, said
    assert said.errors.startswith("tarn: ") and said.errors.endswith("\n"), said
    line = said.errors.removesuffix("\n")
    assert "\n" not in line, f"one line: {said}"
    check_plain(line)
    assert len(line) < 1000, f"a readable line: {line[:200]}… of {len(line)}"
    for bad in ("panicked", "backtrace", "reqwest", "hyper", "serde", KEY):
        assert bad not in line, line
    return line


def check_plain(text: str):
    """Fails if the text contains control characters or characters that reverse its direction."""
    bad = {c for c in text if c not in "\n\t" and (unicodedata.category(c) == "Cc" or c in BIDIRECTIONAL)}
    assert not bad, f"{bad!r} in {text[:2000]!r}"


BIDIRECTIONAL = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.fixture
def engine():
    """A stub of an engine."""
    with StubEngine() as running:
        yield running


@pytest.fixture
def other_server():
    """Another server, which must never get the key."""
    with StubEngine() as running:
        yield running
        for call in running.calls:
            assert KEY not in f"{call}", "the key is for the engine only"
            assert "authorization" not in call.headers, "the key is for the engine only"


@pytest.fixture
def laptop(tmp_path, engine) -> Laptop:
    """The computer of a user of that engine."""
    return Laptop(tmp_path, engine.url)


@pytest.fixture
def unprivileged_laptop(engine):
    """The same for a user who is not root and owns nothing: neither their home nor their directory is writable."""
    if os.geteuid() != 0:
        pytest.skip("changing the user needs root: nothing was tested")
    place = Path(tempfile.mkdtemp(prefix="tarn-nobodys-"))
    try:
        place.chmod(0o755)
        unprivileged = Laptop(place, engine.url)
        unprivileged.before = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        if subprocess.run([*unprivileged.before, "test", "-x", str(BINARY)], check=False).returncode:
            pytest.skip(f"{BINARY} is not executable for users other than root: nothing was tested")
        yield unprivileged
    finally:
        shutil.rmtree(place)
