"""An engine that is none: it answers what a test says and remembers what it was asked. And the client before it.

Start reading at `FalseEngine`; `Laptop` is the side of the person.
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
# What a terminal takes for a command, or what turns the order of letters around.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\r\x08\x7f\x9b31m\u202egnp.exe\u2066\u200f"
SECONDS = 180


@dataclass
class ReceivedCall:
    """One request that came. The names of its headers are in lower case."""

    method: str
    path: str
    query: str
    headers: dict[str, str]
    body: bytes


class StubEngine:
    """HTTP on loopback, by a script. What nobody scripted is answered as by an engine that has nothing."""

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
        """Scripts the answer to a path, `*` for all others. Texts and bytes go as they are, anything else as JSON."""
        self.set_handler(path, lambda connection: connection.respond(body, status, kind, headers), reads_body=True)

    def set_handler(self, path: str, act, *, reads_body=False):
        """Scripts what happens to a connection; the request's body is still to be read, unless all is taken first."""
        self.script[path] = (act, reads_body)

    def paths(self, method: str) -> list[str]:
        """What was asked by a method, in order."""
        return [call.path for call in self.calls if call.method == method]


class Handler(BaseHTTPRequestHandler):
    """One connection of the false engine."""

    protocol_version = "HTTP/1.1"
    engine: StubEngine

    def handle_one_request(self):
        with suppress(ConnectionError):
            super().handle_one_request()

    def act(self):
        """Writes down what is asked and follows the script."""
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
        """The body of the request."""
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        pieces = []
        while size := int(self.rfile.readline() or b"0", 16):
            pieces.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(pieces)

    def respond(self, body, status=200, kind="application/json", headers=None):
        """Sends an answer."""
        body = body if isinstance(body, (bytes, str)) else json.dumps(body)
        body = body.encode() if isinstance(body, str) else body
        self.send_head(status, {"Content-Type": kind, "Content-Length": len(body)} | (headers or {}))
        self.wfile.write(body)

    def send_head(self, status: int, headers: dict):
        """Sends the beginning of an answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), str(value))
        self.send_header("Connection", "close")
        self.end_headers()

    def log_message(self, *_):
        """What was asked is remembered, not printed."""


def respond_not_found(connection: Handler):
    """What an engine says that has nothing."""
    connection.respond({"message": "there is no such thing", "code": "not_found"}, 404)


@dataclass
class ClientResult:
    """What one run of the client did."""

    code: int
    text: str
    errors: str


class Laptop:
    """Somebody's machine: a home, a directory to work in, variables, the client. Programs of `bin` are found first."""

    # What the client is started by; nothing for who is there anyway.
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
        """Where the client keeps what is its own."""
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
        """Runs the client where it must fail: one clear line on standard error, which is returned, and nothing else."""
        said = self.run(*arguments, **options)
        assert not said.text, said
        return error_line(said, code)

    def works(self, *arguments, **options) -> str:
        """Runs the client where it must work; what it prints, of which nothing commands a terminal."""
        said = self.run(*arguments, **options)
        assert said.code == 0 and not said.errors, said
        check_plain(said.text)
        return said.text

    def canary(self, name: str) -> Path:
        """A program that only writes down its arguments, one for each line; where it does."""
        recorded = self.bin.with_name(f"{name}.sung")
        program = self.bin / name
        program.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" >> '{recorded}'\n")
        program.chmod(0o755)
        return recorded

    def terminal(self, *arguments, columns=80, **variables) -> tuple[int, str]:
        """Runs the client on a terminal of so many columns; its code and all that it wrote there."""
        with Terminal(self, *arguments, columns=columns, **variables) as terminal:
            return terminal.end()


class Terminal:
    """A terminal with the client on it; nothing is left running."""

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
        """What was written until now."""
        while select.select([self.near], [], [], seconds)[0]:
            self.written += os.read(self.near, 65536)
        return self.written.decode(errors="replace")

    def type(self, keys: str):
        """Presses keys."""
        os.write(self.near, keys.encode())

    def echoes(self) -> bool:
        """Whether the terminal shows what is typed."""
        return bool(termios.tcgetattr(self.far)[3] & termios.ECHO)

    def end(self) -> tuple[int, str]:
        """Waits for the end of the client."""
        reader = threading.Thread(target=self.process.wait, daemon=True)
        reader.start()
        for _ in range(SECONDS * 20):
            self.read()
            if not reader.is_alive():
                return self.process.returncode, self.read()
        raise AssertionError(f"the client did not end: {self.read()!r}")


def case_id(value) -> str:
    """A name for a case, whatever it is."""
    return ascii(value)[:30]


def finish(process: subprocess.Popen, answer=None) -> ClientResult:
    """Waits for the end of the client; what it did."""
    try:
        text, errors = process.communicate(answer.encode() if answer is not None else None, timeout=SECONDS)
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
    return ClientResult(process.returncode, (text or b"").decode(), (errors or b"").decode())


def error_line(said: ClientResult, code: int) -> str:
    """The one line by which a person learns why it failed."""
    assert said.code == code, said
    assert said.errors.startswith("tarn: ") and said.errors.endswith("\n"), said
    line = said.errors.removesuffix("\n")
    assert "\n" not in line, f"one line: {said}"
    check_plain(line)
    assert len(line) < 1000, f"a line that can be read: {line[:200]}… of {len(line)}"
    for bad in ("panicked", "backtrace", "reqwest", "hyper", "serde", KEY):
        assert bad not in line, line
    return line


def check_plain(text: str):
    """Nothing in it commands a terminal or turns the order of letters around."""
    bad = {c for c in text if c not in "\n\t" and (unicodedata.category(c) == "Cc" or c in BIDIRECTIONAL)}
    assert not bad, f"{bad!r} in {text[:2000]!r}"


BIDIRECTIONAL = "\u200e\u200f\u061c\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


@pytest.fixture
def engine():
    """An engine that is none."""
    with StubEngine() as running:
        yield running


@pytest.fixture
def other_server():
    """Somebody else's server, who must never learn the key."""
    with StubEngine() as running:
        yield running
        for call in running.calls:
            assert KEY not in f"{call}", "the key is for the engine only"
            assert "authorization" not in call.headers, "the key is for the engine only"


@pytest.fixture
def laptop(tmp_path, engine) -> Laptop:
    """The machine of somebody who speaks to that engine."""
    return Laptop(tmp_path, engine.url)


@pytest.fixture
def unprivileged_laptop(engine):
    """The same of somebody who is not root and owns nothing: neither his home nor his directory can be written."""
    if os.geteuid() != 0:
        pytest.skip("becoming somebody else needs root: nothing was tested")
    place = Path(tempfile.mkdtemp(prefix="tarn-nobodys-"))
    try:
        place.chmod(0o755)
        unprivileged = Laptop(place, engine.url)
        unprivileged.before = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
        if subprocess.run([*unprivileged.before, "test", "-x", str(BINARY)], check=False).returncode:
            pytest.skip(f"{BINARY} lies where others than root cannot start it: nothing was tested")
        yield unprivileged
    finally:
        shutil.rmtree(place)
