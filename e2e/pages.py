"""Pages whose examples are run.

A block of ```console shows a terminal: what follows `$ ` is typed, what follows `> ` continues it, and the other lines
are what must be printed. There `…` stands for anything within a line, and alone for any number of lines. A block of
```sh is for copying: each line is typed, and may print what it likes. One shell runs a whole page, and a command must
succeed unless `echo $?` comes after it. Only the standard library is needed here: scripts/record uses it, too.
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
# Whoever runs into these hangs.
STOP_SECONDS = 60
PAGE_SECONDS = 900
# More processors than a small machine has, so that what is shown does not depend on it.
SETTINGS = "[capacity]\ncpus = 8.0\nmemory_mib = 8192\n\n[storage]\novercommit = 10.0\n"


@dataclass
class Step:
    """A command of a page, and what it must print; `None` is whatever it likes."""

    line: int
    command: str
    expected: list[str] | None
    may_fail: bool = False


def steps(text: str) -> list[Step]:
    """The commands of a page, in their order."""
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
    """A command without the words for its reader."""
    return re.sub(r"\s+# .*$", "", command)


def output_matches(expected: list[str], printed: str) -> bool:
    """Whether that is what the page shows. What nobody sees does not count: spaces and empty lines at an end."""
    line = lambda text: re.escape(text.rstrip()).replace("…", "[^\n]*") + "\n"  # noqa: E731
    pattern = "".join("(?:[^\n]*\n)*" if text.strip() == "…" else line(text) for text in trim_lines(expected))
    return re.fullmatch(pattern, "".join(f"{text}\n" for text in trim_lines(printed.splitlines()))) is not None


def trim_lines(lines: list[str]) -> list[str]:
    """Lines without what nobody sees."""
    return "\n".join(text.rstrip() for text in lines).rstrip("\n").splitlines()


def shell_script(page: list[Step], results: Path) -> str:
    """What a shell does for a page. It leaves what each command printed, and its code, and ends where one fails."""
    parts = ["last=0"]
    for number, step in enumerate(page):
        out = results / str(number)
        parts.append(f"(exit $last); {{ {step.command}\n}} < /dev/null > '{out}' 2>&1")
        parts.append(f"last=$?; echo $last > '{out}.code'")
        parts.append("" if step.may_fail else '[ "$last" = 0 ] || exit 1')
    return "\n".join(parts) + "\nexit 0\n"


class Cloud:
    """A real engine as `make run` starts it, in a network of its own, where the ports of the pages are always free;
    and somebody with an empty home. Needs root."""

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
        # OpenSSH finds the home of a person here, whatever HOME says.
        self.passwd = directory / "passwd"
        self.passwd.write_text(passwd_with_home(Path("/etc/passwd").read_text(), self.home))
        self.process = None

    def __enter__(self):
        return self.start()

    def start(self):
        """Starts the engine and waits until it is ready."""
        start = ["sh", "-c", 'ip link set lo up && exec "$@"', "sh", self.place / "target/release/tarn", "serve"]
        with open(self.directory / "engine.log", "wb") as log:
            # The death of who started it ends it, too.
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
        """Lets the person be known to the engine, with a pair of SSH keys; the variables by which clients know that."""
        key = self.home / ".ssh/id_ed25519"
        key.parent.mkdir(mode=0o700)
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "you@laptop", "-f", key], check=True)
        self.tarn("me", "sshkey", "add", f"{key}.pub")
        return {"TENSORPOOL_ENGINE": ADDRESS, "TENSORPOOL_KEY": self.key}

    def environment(self) -> dict[str, str]:
        """Only what is needed is inherited: nothing of the caller's may change what is shown."""
        return {"LANG": "C.UTF-8", "HOME": str(self.home), "PATH": f"{self.programs}:{os.environ['PATH']}"}

    def command_in_network(self, *command) -> list[str]:
        """A command line that runs something where the engine is, by the person whose home it is."""
        enter = ["nsenter", f"--net=/proc/{self.process.pid}/ns/net", "unshare", "--mount"]
        return [*enter, "sh", "-c", 'mount --bind "$0" /etc/passwd && exec "$@"', str(self.passwd), *map(str, command)]

    def run(self, page: list[Step], **variables: str) -> list[str]:
        """Runs a page; what is wrong with it, one text for each step."""
        results = self.directory / "results"
        results.mkdir()
        (self.directory / "page.sh").write_text(shell_script(page, results))
        shell = self.command_in_network("bash", "--noprofile", "--norc", self.directory / "page.sh")
        done = subprocess.run(
            shell, cwd=self.place, env=self.environment() | variables, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=PAGE_SECONDS,
        )  # fmt: skip
        wrong = [said for number, step in enumerate(page) if (said := check_step(step, results / str(number)))]
        # What comes after a command that failed says nothing more.
        return wrong[:1] if done.returncode else wrong

    def tarn(self, *arguments, check=True) -> str:
        """What our client prints; `check` says that it must succeed."""
        command = self.command_in_network(self.place / "target/release/tarn", "--no-input", *arguments)
        environment = self.environment() | {"TENSORPOOL_KEY": self.key}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=check, timeout=180).stdout

    def destroy_all(self):
        """Leaves no machine and no volume behind, whatever a page did, and wherever it broke off."""
        deadline = time.monotonic() + 180
        for noun, items in (("cluster", "clusters"), ("storage", "volumes")):
            while left := json.loads(self.tarn(noun, "list", "--json"))[items]:
                assert time.monotonic() < deadline, f"these cannot be destroyed: {left}"
                for each in left:
                    # What is on its way somewhere refuses this, and is asked again.
                    self.tarn(noun, "edit", each["id"], "--deletion-protection", "false", check=False)
                    self.tarn(noun, "destroy", each["id"], "--wait", check=False)


def check_step(step: Step, out: Path) -> str | None:
    """What is wrong with what a command did, if something is."""
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
    """The users of this machine, of whom root lives elsewhere."""
    users = [line.split(":") for line in passwd.splitlines()]
    moved = [[*each[:5], str(home), *each[6:]] if each[2:3] == ["0"] else each for each in users]
    return "".join(":".join(each) + "\n" for each in moved)
