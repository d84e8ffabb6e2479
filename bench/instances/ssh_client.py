"""OpenSSH's own client with one key."""

import subprocess
from pathlib import Path


def identity(path: Path) -> Path:
    """Creates a key pair."""
    if not path.exists():
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(path)], check=True)
    return path


def options(key: Path, port: int) -> list[str]:
    """The options of every OpenSSH program, the same for each measured server: one key, no prompt, no files, no
    look-ups."""
    pairs = {
        "StrictHostKeyChecking": "no", "UserKnownHostsFile": "/dev/null", "LogLevel": "ERROR", "BatchMode": "yes",
        "GSSAPIAuthentication": "no", "PreferredAuthentications": "publickey", "IdentityAgent": "none",
        "IdentitiesOnly": "yes", "ConnectTimeout": "10", "Port": port,
    }  # fmt: skip
    return ["-F", "none", "-i", str(key), *(part for name, value in pairs.items() for part in ("-o", f"{name}={value}"))]


def ssh(key: Path, port: int, user: str, *command: str, **more) -> subprocess.CompletedProcess:
    """Runs a command over SSH."""
    line = ["ssh", *options(key, port), f"{user}@127.0.0.1", *command]
    return subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60, **more)
