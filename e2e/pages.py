"""Runs the examples of documentation pages.

A block of ```console shows a terminal: `$ ` marks a command, `> ` continues it, and the other lines are its expected
output. In them `…` matches anything within a line, and alone any number of lines. A block of ```sh is for copying: each
line is a command, and its output is not checked. One shell runs a whole page, and a command must succeed unless `echo
$?` follows it. This module needs only the standard library, because scripts/record uses it, too.
"""

import json
import os
import re
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "http://127.0.0.1:7070"
# Only a run that hangs reaches these.
STOP_SECONDS = 60
PAGE_SECONDS = 900
# More processors than a small host has, so that the output does not depend on the host.
SETTINGS = "[capacity]\ncpus = 8.0\nmemory_mib = 8192\n\n[storage]\novercommit = 10.0\n"


@dataclass
class Step:
    """A command of a page and its expected output; `None` accepts any."""

    line: int
    command: str
    expected: list[str] | None
    may_fail: bool = False


def steps(text: str) -> list[Step]:
    """The commands of a page, in order."""
    found, kind = [], None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            kind = None if kind else line[3:].strip() or "text"
        elif kind == "sh" and line.strip():
            found.append(Step(number, line, None))
        elif kind == "console":
            if line.startswith("$ "):
                found.append(Step(number, line[2:], []))
            elif line.startswith("> "):
                found[-1].command += "\n" + line[2:]
            else:
                found[-1].expected.append(line)
    for step, following in zip(found, found[1:]):
        step.may_fail = following.command == "echo $?"
    return found


def strip_comment(command: str) -> str:
    """A command without its trailing comment."""
    return re.sub(r"\s+# .*$", "", command)


def output_matches(expected: list[str], printed: str) -> bool:
    """Whether the output matches the page. Trailing spaces and empty lines are ignored."""
    line = lambda text: re.escape(text.rstrip()).replace("…", "[^\n]*") + "\n"  # noqa: E731
    pattern = "".join("(?:[^\n]*\n)*" if text.strip() == "…" else line(text) for text in trim_lines(expected))
    return re.fullmatch(pattern, "".join(f"{text}\n" for text in trim_lines(printed.splitlines()))) is not None


def trim_lines(lines: list[str]) -> list[str]:
    """Lines without trailing spaces and empty lines."""
    return "\n".join(text.rstrip() for text in lines).rstrip("\n").splitlines()


def shell_script(page: list[Step], results: Path) -> str:
    """The shell script of a page. It stores the output and exit code of each command, and ends at the first failure."""
    parts = ["last=0"]
    for number, step in enumerate(page):
        out = results / str(number)
        parts.append(f"(exit $last); {{ {step.command}\n}} < /dev/null > '{out}' 2>&1")
        parts.append(f"last=$?; echo $last > '{out}.code'")
        parts.append("" if step.may_fail else '[ "$last" = 0 ] || exit 1')
    return "\n".join(parts) + "\nexit 0\n"


class Cloud:
    """A real engine as `make run` starts it, in a separate network, where the ports of the pages are always free,
    and a user with an empty home. Needs root."""

    def __init__(self, directory: Path, binary: Path, others: tuple[Path, ...] = ()):
        self.directory = directory
        self.home, self.place, self.programs = directory / "home", directory / "tarn", directory / "bin"
        for each in (self.home, self.place / "target/release", self.programs):
            each.mkdir(parents=True)
        (self.place / "target/release/tarn").symlink_to(binary)
        for program in (binary, *others):
            (self.programs / program.name).symlink_to(program)
        self.config = directory / "tarn.toml"
        self.config.write_text(SETTINGS)
        # OpenSSH reads the home of a user here and ignores HOME.
        self.passwd = directory / "passwd"
        self.passwd.write_text(passwd_with_home(Path("/etc/passwd").read_text(), self.home))
        self.process = None

    def __enter__(self):
        return self.start()

    def start(self):
        """Starts the engine and waits until it is ready."""
        start = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", self.place / "target/release/tarn", "serve"]
        with open(self.directory / "engine.log", "wb") as log:
            # The engine ends with the process that started it.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", *start], cwd=self.place,
                env=self.environment() | {"TARN_CONFIG": str(self.config)},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        deadline = time.monotonic() + 60
        while "is ready" not in (said := (self.directory / "engine.log").read_text()):
            assert self.process.poll() is None and time.monotonic() < deadline, f"the engine did not start:\n{said}"
            time.sleep(0.05)
        return self

    def __exit__(self, *_):
        try:
            if self.process.poll() is not None:
                self.start()
            self.destroy_all()
            self.process.terminate()
            self.process.wait(STOP_SECONDS)
        finally:
            self.process.kill()
            self.process.wait()
            shutil.rmtree(self.place / "tarn-data", ignore_errors=True)

    @property
    def key(self) -> str:
        """The administrator's key."""
        return (self.place / "tarn-data/admin.key").read_text().strip()

    def register_user(self) -> dict[str, str]:
        """Creates an SSH key for the user and adds it to the account; returns the variables for clients."""
        key = self.home / ".ssh/id_ed25519"
        key.parent.mkdir(mode=0o700)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "you@laptop", "-f", key], check=True)
        self.tarn("me", "sshkey", "add", f"{key}.pub")
        return {"TENSORPOOL_ENGINE": ADDRESS, "TENSORPOOL_KEY": self.key}

    def environment(self) -> dict[str, str]:
        """Only what is needed is inherited: no variable of the caller may change the output."""
        return {"LANG": "C.UTF-8", "HOME": str(self.home), "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def command_in_network(self, *command) -> list[str]:
        """A command line that runs a command in the network of the engine, as the user of the page."""
        enter = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", "unshare", "--mount"]
        return [*enter, "sh", "-c", 'mount --bind "$0" /etc/passwd && exec "$@"', str(self.passwd), *map(str, command)]

    def run(self, page: list[Step], **variables: str) -> list[str]:
        """Runs a page and returns its faults, one text for each step."""
        results = self.directory / "results"
        results.mkdir()
        (self.directory / "page.sh").write_text(shell_script(page, results))
        shell = self.command_in_network("bash", "--noprofile", "--norc", self.directory / "page.sh")
        done = subprocess.run(
            shell, cwd=self.place, env=self.environment() | variables, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PAGE_SECONDS,
        )  # fmt: skip
        wrong = [said for number, step in enumerate(page) if (said := check_step(step, results / str(number)))]
        # What follows a failed command says nothing more.
        return wrong[:1] if done.returncode else wrong

    def tarn(self, *arguments, check=True) -> str:
        """The output of the `tarn` client; `check` requires success."""
        command = self.command_in_network(self.place / "target/release/tarn", "--no-input", *arguments)
        environment = self.environment() | {"TENSORPOOL_KEY": self.key}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=check, timeout=180).stdout

    def destroy_all(self):
        """Destroys all clusters and volumes, wherever a page stopped."""
        deadline = time.monotonic() + 180
        for noun, items in (("cluster", "clusters"), ("storage", "volumes")):
            while left := json.loads(self.tarn(noun, "list", "--json"))[items]:
                assert time.monotonic() < deadline, f"these cannot be destroyed: {left}"
                for each in left:
                    # An object that is changing refuses this, and is tried again.
                    self.tarn(noun, "edit", each["id"], "--deletion-protection", "false", check=False)
                    self.tarn(noun, "destroy", each["id"], "--wait", check=False)


def check_step(step: Step, out: Path) -> str | None:
    """The fault in the result of a command, if there is one."""
    code = out.with_name(f"{out.name}.code")
    printed = out.read_text(errors="replace") if out.exists() else ""
    if not code.exists():
        return f"line {step.line}: {step.command}\ndid not come to its end; printed:\n{printed}"
    if code.read_text().strip() != "0" and not step.may_fail:
        return f"line {step.line}: {step.command}\nended with {code.read_text().strip()}; printed:\n{printed}"
    if step.expected is not None and not output_matches(step.expected, printed):
        shown = "\n".join(step.expected)
        return f"line {step.line}: {step.command}\nthe page shows:\n{shown}\nit printed:\n{printed}"
    return None


def passwd_with_home(passwd: str, home: Path) -> str:
    """The users of this host, with another home for root."""
    users = [line.split(":") for line in passwd.splitlines()]
    moved = [[*each[:5], str(home), *each[6:]] if each[2:3] == ["0"] else each for each in users]
    return "".join(":".join(each) + "\n" for each in moved)
