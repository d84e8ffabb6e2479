"""Our own client, run as a person or a script runs it. Start reading at `Client`."""

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

from client_schemas import check_answer
from support import BINARY, ENVIRONMENT, Server


@dataclass
class ClientResult:
    """What one run of a client did."""

    code: int
    text: str
    errors: str


class Client:
    """`tarn` against one engine, with a home directory of its own. `tarn("cluster info box")` fails the test unless it ends with
    `code`. What must stay one word whatever is in it follows the line."""

    def __init__(self, server: Server, home: Path, program: Path = BINARY, **variables):
        self.server, self.home, self.program, self.variables = server, home, program, variables
        home.mkdir(exist_ok=True)

    def environment(self, key=None, **more) -> dict[str, str]:
        """What the client is told by variables; one that is `None` is not there."""
        told = ENVIRONMENT | {"HOME": str(self.home), "TENSORPOOL_ENGINE": self.server.url}
        told |= {"TENSORPOOL_KEY": key or self.server.key} | self.variables | more
        return {name: str(value) for name, value in told.items() if value is not None}

    def command(self, line: str, *more) -> list[str]:
        """The words of a command."""
        return [str(self.program), *shlex.split(line), *map(str, more)]

    def __call__(self, line: str, *more, code=0, key=None, answer="", where=None, loud=False, **environment) -> ClientResult:
        """Runs it to its end, away from any terminal. `answer` is its standard input, `where` the directory that it runs in,
        `loud` says that it may also speak on the error stream though it succeeds."""
        done = subprocess.run(
            self.command(line, *more), env=self.environment(key, **environment), cwd=where or self.home,
            input=answer, capture_output=True, text=True, errors="replace", timeout=180,
        )  # fmt: skip
        said = ClientResult(done.returncode, done.stdout, done.stderr)
        assert said.code == code, f"{line} {more}: {said}"
        check_streams(said, loud=loud or "--json" in line)
        return said

    def json(self, line: str, *more, code=0, **options) -> dict:
        """Runs it with `--json`. Its output is one document, and what the API's description says that it is."""
        # What follows the name of a machine is for that machine.
        said = self(f"--json {line}", *more, code=code, loud=True, **options)
        body = json.loads(said.text)
        check_answer(self.server, line, code, body)
        return body

    @contextlib.contextmanager
    def running(self, line: str, *more, key=None, where=None, **environment):
        """The client while it runs, with pipes for its output; ended for good at the end."""
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
        """The client at a terminal of so many columns."""
        told = self.environment(key, TERM="xterm-256color", **environment)
        terminal = Terminal(self.command(line, *more), told, where or self.home, columns)
        try:
            yield terminal
        finally:
            terminal.close()


def check_streams(said: ClientResult, *, loud: bool):
    """Success says nothing on the error stream; a failure says why, in one line, unless the line was not understood at all."""
    assert "panicked" not in said.errors, said
    if said.code == 0:
        assert loud or not said.errors, said
    elif not loud and "Usage: " not in said.errors and not said.errors.startswith("error: "):
        *_, last = said.errors.splitlines() or [""]
        assert last.startswith("tarn: ") and len(last.split()) >= 3, said


def interrupt(process: subprocess.Popen) -> ClientResult:
    """Presses Ctrl-C, and answers how it ended."""
    process.send_signal(signal.SIGINT)
    return wait_for_end(process)


def wait_for_end(process: subprocess.Popen, seconds=60) -> ClientResult:
    """Waits for the end, and answers what was not read before. (`communicate` forgets what a line that was read has buffered.)"""
    deadline = threading.Timer(seconds, process.kill)
    deadline.start()
    try:
        text, errors = process.stdout.read(), process.stderr.read()
        return ClientResult(process.wait(), text, errors)
    finally:
        deadline.cancel()


class Terminal:
    """A program at a terminal: what it shows is read, and what is typed goes in."""

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
        """Reads what comes; whether more can come."""
        if not select.select([self.master], [], [], seconds)[0]:
            return True
        try:
            data = os.read(self.master, 1 << 16)
        except OSError:  # The other side is closed.
            return False
        self.shown += data.decode(errors="replace")
        return bool(data)

    def read_until(self, word: str, *, seconds=60) -> str:
        """Reads until a word is shown; answers everything up to its end, which is not looked at again."""
        deadline = time.monotonic() + seconds
        while word not in self.shown:
            assert time.monotonic() < deadline and self.read(0.1), f"{word!r} was not shown: {self.shown!r}"
        before, found, self.shown = self.shown.partition(word)
        return before + found

    def type(self, text: str):
        """Types something; `\\x03` is Ctrl-C."""
        os.write(self.master, text.encode())

    def wait_for_end(self, *codes, seconds=60) -> str:
        """Reads until the program has ended, with one of these codes; answers what was shown and not looked at before."""
        deadline = time.monotonic() + seconds
        while self.read(0.1):
            assert time.monotonic() < deadline, f"it does not end: {self.shown!r}"
        assert self.process.wait(60) in (codes or (0,)), self.shown
        return self.shown

    def close(self):
        """Makes sure that it is gone."""
        self.process.kill()
        self.process.wait()
        os.close(self.master)
