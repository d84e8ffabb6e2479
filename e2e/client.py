"""The `tarn` client, run as a user or a script runs it. Start reading at `Client`."""

import contextlib
import fcntl
import json
import os
import pty
import select
import shlex
import signal
import struct
import subprocess
import termios
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from client_schemas import check_json_output
from support import BINARY, ENVIRONMENT, Server


@dataclass
class ClientResult:
    """The result of one run of a client."""

    code: int
    text: str
    errors: str


class Client:
    """`tarn` against one engine, with its own home directory. `tarn("cluster info box")` fails the test unless the
    client exits with `code`. Arguments after the line are passed as single words."""

    def __init__(self, server: Server, home: Path, program: Path = BINARY, **variables):
        self.server, self.home, self.program, self.variables = server, home, program, variables
        home.mkdir(exist_ok=True)

    def environment(self, key=None, **more) -> dict[str, str]:
        """The environment variables of the client; one that is `None` is not set."""
        told = ENVIRONMENT | {"HOME": str(self.home), "TENSORPOOL_ENGINE": self.server.url}
        told |= {"TENSORPOOL_KEY": key or self.server.key} | self.variables | more
        return {name: str(value) for name, value in told.items() if value is not None}

    def command(self, line: str, *more) -> list[str]:
        """The arguments of a command."""
        return [str(self.program), *shlex.split(line), *map(str, more)]

    def __call__(self, line: str, *more, code=0, key=None, answer="", where=None, loud=False, **environment) -> ClientResult:
        """Runs the client to its end, away from any terminal. `answer` is its standard input, `where` its working
        directory; `loud` allows output on the error stream although it succeeds."""
        done = subprocess.run(
            self.command(line, *more), env=self.environment(key, **environment), cwd=where or self.home,
            input=answer, capture_output=True, text=True, errors="replace", timeout=180,
        )  # fmt: skip
        said = ClientResult(done.returncode, done.stdout, done.stderr)
        assert said.code == code, f"{line} {more}: {said}"
        check_streams(said, loud=loud or "--json" in line)
        return said

    def json(self, line: str, *more, code=0, **options) -> dict:
        """Runs the client with `--json`. Its output must be one document that matches the OpenAPI schema."""
        # Arguments after the name of an instance belong to the remote command, so `--json` comes first.
        said = self(f"--json {line}", *more, code=code, loud=True, **options)
        body = json.loads(said.text)
        check_json_output(self.server, line, code, body)
        return body

    @contextlib.contextmanager
    def running(self, line: str, *more, key=None, where=None, **environment):
        """The running client with pipes for its output; it is killed at the end."""
        process = subprocess.Popen(
            self.command(line, *more), env=self.environment(key, **environment), cwd=where or self.home, text=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            yield process
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
            process.stderr.close()

    @contextlib.contextmanager
    def terminal(self, line: str, *more, columns=100, key=None, where=None, **environment):
        """The client at a terminal with this many columns."""
        told = self.environment(key, TERM="xterm-256color", **environment)
        terminal = Terminal(self.command(line, *more), told, where or self.home, columns)
        try:
            yield terminal
        finally:
            terminal.close()


def check_streams(said: ClientResult, *, loud: bool):
    """Success prints nothing on the error stream; a failure prints one line with the reason, unless it is a usage
    error."""
    assert "panicked" not in said.errors, said
    if said.code == 0:
        assert loud or not said.errors, said
    elif not loud and "Usage: " not in said.errors and not said.errors.startswith("error: "):
        *_, last = said.errors.splitlines() or [""]
        assert last.startswith("tarn: ") and len(last.split()) >= 3, said


def interrupt(process: subprocess.Popen) -> ClientResult:
    """Sends Ctrl-C and returns the result."""
    process.send_signal(signal.SIGINT)
    return wait_for_end(process)


def wait_for_end(process: subprocess.Popen, seconds=60) -> ClientResult:
    """Waits for the end and returns the output that was not read before. (`communicate` would lose what `readline`
    has buffered.)"""
    deadline = threading.Timer(seconds, process.kill)
    deadline.start()
    try:
        text, errors = process.stdout.read(), process.stderr.read()
        return ClientResult(process.wait(), text, errors)
    finally:
        deadline.cancel()


class Terminal:
    """A program at a terminal, whose output is read and which gets typed input."""

    def __init__(self, command: list[str], environment: dict[str, str], where: Path, columns: int):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self.shown = ""
        self.process = subprocess.Popen(
            command, env=environment, cwd=where, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(slave)

    def read(self, seconds: float) -> bool:
        """Reads what is available; returns whether more can come."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # The other side is closed.
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)

    def read_until(self, word: str, *, seconds=60) -> str:
        """Reads until a word is shown; returns everything up to the end of the word, and drops it."""
        deadline = time.monotonic() + seconds
        while word not in self.shown:
            assert time.monotonic() < deadline and self.read(0.1), f"{word!r} was not shown: {self.shown!r}"
        before, found, self.shown = self.shown.partition(word)
        return before + found

    def type(self, text: str):
        """Types something; `\\x03` is Ctrl-C."""
        os.write(self.master, text.encode())

    def wait_for_end(self, *codes, seconds=60) -> str:
        """Reads until the program has exited with one of these codes; returns what was shown and not returned
        before."""
        deadline = time.monotonic() + seconds
        while self.read(0.1):
            assert time.monotonic() < deadline, f"it does not end: {self.shown!r}"
        assert self.process.wait(60) in (codes or (0,)), self.shown
        return self.shown

    def close(self):
        """Kills the program if it still runs."""
        self.process.kill()
        self.process.wait()
        os.close(self.master)
