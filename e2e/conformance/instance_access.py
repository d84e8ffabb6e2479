"""OpenSSH programs and rsync for an instance of any engine. Start reading at `InstanceAccess`."""

import shlex
import subprocess

from .engine import TIMEOUT_SECONDS, Engine


class InstanceAccess:
    """SSH access to an instance by the engine's command, with the run's key and without the caller's configuration."""

    def __init__(self, engine: Engine, instance: str):
        self.environment, self.instance = engine.environment, instance
        told = engine.call("GET", f"/ssh/{instance}", params={"system": "Linux"}, expect=200).json()
        program, *words, self.host = shlex.split(told["command"])
        assert program == "ssh", told
        # The port is the only option that ssh and the other programs write differently.
        ports = [at for at, word in enumerate(words) if word == "-p"]
        words = [f"-oPort={word}" if at - 1 in ports else word for at, word in enumerate(words) if at not in ports]
        # The first value of an option counts, so that these only add to the engine's.
        self.options = [
            "-F", "none", *words, "-i", str(engine.identity), "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none",
            "-o", "BatchMode=yes", "-o", "ConnectTimeout=30", "-o", "StrictHostKeyChecking=accept-new",
            "-o", f"UserKnownHostsFile={engine.identity.with_name('known_hosts')}", "-o", "LogLevel=ERROR",
        ]  # fmt: skip

    def run(self, program: str, *arguments, answer: str = "", code=0) -> str:
        """Runs one of the programs and returns its output; `code` is the expected exit code."""
        line = [program, *self.options, *map(str, arguments)]
        done = subprocess.run(
            line, input=answer, env=self.environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS
        )
        assert done.returncode == code, f"{line}: {done}"
        return done.stdout

    def ssh(self, command: str, **options) -> str:
        """Runs a command inside the instance."""
        return self.run("ssh", self.host, command, **options)

    def rsync(self, *arguments):
        """Runs rsync over ssh."""
        line = ["rsync", "-e", shlex.join(["ssh", *self.options]), *map(str, arguments)]
        done = subprocess.run(line, env=self.environment, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
        assert done.returncode == 0, f"{line}: {done}"
