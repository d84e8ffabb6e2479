"""Engines with real instances, for all tests that log in. Start reading at `Instances`."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from support import ENVIRONMENT, Server, eventually

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="the local driver needs root: nothing real was created or tested")
# The kinds of objects on an engine, and the fields in which they are listed.
LISTS = {"job": "jobs", "cluster": "clusters", "storage": "volumes"}
TYPES = """
[capacity]
cpus = 32.0
memory_mib = 16384

[[types]]
name = "tiny"
cpus = 0.5
memory_mib = 256
"""

# Registries of tests are on loopback addresses, where engines pull only from listed ones.
IMAGES = """
[images]
private_registries = ["127.0.0.1:*", "localhost:*"]
"""


@dataclass
class SshResult:
    """The result of a command over SSH."""

    code: int
    out: str
    errors: str


class Instances(Server):
    """`tarn serve` with the local driver, and a user's SSH key. Everything that a test leaves running is destroyed."""

    def __init__(self, directory: Path, *options, name="engine", settings=""):
        config = directory / f"{name}.toml"
        config.write_text(TYPES + IMAGES + settings)
        super().__init__(directory / name, "--config", config, *options, driver="local")
        self.directory = directory
        self.identity = make_identity(directory / f"{name}-id")

    def __exit__(self, *_):
        try:
            if self.process and self.process.poll() is not None:
                self.start()
            self.destroy_all()
            self.stop()
        finally:
            self.kill()
            shutil.rmtree(self.data, ignore_errors=True)

    def create(self, name: str, *, nodes=1, kind="tiny", **more) -> dict:
        """Creates a cluster, waits until it runs and returns its info."""
        keys = [self.identity.with_suffix(".pub").read_text()]
        body = {"instance_type": kind, "tp_cluster_name": name, "num_nodes": nodes, "public_keys": keys} | more
        accepted = self.call("POST", "/cluster/create", json=body, expect=202).json()
        self.finish(accepted["request_id"])
        return self.info(accepted["cluster_id"])

    def info(self, cluster: str) -> dict:
        """The cluster as the API shows it."""
        return self.call("GET", f"/cluster/info/{cluster}", expect=200).json()["cluster_info"]

    def destroy(self, cluster: str):
        """Destroys a cluster and waits until it is gone."""
        self.finish(self.call("DELETE", f"/cluster/{cluster}", expect=202).json()["request_id"])

    def destroy_all(self):
        """Destroys all clusters, also after a failed test."""
        for cluster in self.call("GET", "/cluster/list?include_org=true", expect=200).json()["clusters"]:
            # A cluster that is changing can be destroyed once the change is done.
            what = f"the end of {cluster['id']}"
            (answer,) = eventually(lambda: self.try_destroy_cluster(cluster["id"]), seconds=60, what=what)
            if answer.status_code == 202:
                self.finish(answer.json()["request_id"])

    def try_destroy_cluster(self, cluster: str):
        """The response to a destroy, unless the cluster is busy. It is in a tuple, because the response to a refusal
        is falsy."""
        return self.try_destroy(f"/cluster/{cluster}", f"/cluster/edit/{cluster}")

    def try_destroy(self, path: str, edit: str):
        """The response to a destroy, unless the object is busy or protected. Protection is removed, so that the next
        try succeeds."""
        answer = self.call("DELETE", path)
        if answer.status_code == 202 or answer.json()["code"].endswith("_gone"):
            return (answer,)
        if answer.json()["code"] == "deletion_protected":
            self.call("PATCH", edit, json={"deletion_protection": False})
        return None

    def listed(self, noun: str) -> list[dict]:
        """All objects of a kind."""
        return self.call("GET", f"/{noun}/list?include_org=true&limit=1000", expect=200).json()[LISTS[noun]]

    def existing(self) -> set[str]:
        """The ids of all objects. Starts the engine again if a test has ended it."""
        if self.process.poll() is not None:
            self.start()
        return {each["id"] for noun in LISTS for each in self.listed(noun)}

    def remove_except(self, kept: set[str]):
        """Removes all objects except these."""
        for each in self.existing() - kept:
            if each.startswith("j-"):
                self.call("POST", f"/job/cancel/{each}")
                gone = lambda: self.call("DELETE", f"/job/delete/{each}").status_code in (200, 404)  # noqa: E731
                eventually(gone, what=f"the end of {each}")
        for noun in ("cluster", "storage"):
            for each in [each for each in self.listed(noun) if each["id"] not in kept]:
                for cluster in each.get("attached_clusters", []):
                    self.call("POST", "/storage/detach", json={"storage_id": each["id"], "cluster_id": cluster})
                path, edit = f"/{noun}/{each['id']}", f"/{noun}/edit/{each['id']}"
                (answer,) = eventually(lambda: self.try_destroy(path, edit), what=f"the end of {each['id']}")
                if answer.status_code == 202:
                    self.finish(answer.json()["request_id"])

    def roots(self) -> list[Path]:
        """The root directories of all running instances, as the host sees them."""
        records = (json.loads(path.read_text()) for path in (self.data / "instances").glob("*/instance.json"))
        return [Path(f"/proc/{record['process']['pid']}/root") for record in records if record["process"]]

    def options(self) -> list[str]:
        """The options that every OpenSSH program needs besides the address: only this key, no prompt, no files."""
        return [
            "-F", "none", "-i", str(self.identity), "-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none",
            "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null",
            "-o", "LogLevel=ERROR", "-o", f"Port={self.ssh_port}",
        ]  # fmt: skip

    def ssh(self, instance: str, *command, options=(), answer="", seconds=180, code=0) -> SshResult:
        """Runs a command over SSH; `code` is the expected exit code, `None` accepts any."""
        line = ["ssh", *self.options(), *options, f"{instance}@127.0.0.1", *command]
        done = subprocess.run(line, input=answer, env=ENVIRONMENT, capture_output=True, text=True, timeout=seconds)
        ran = SshResult(done.returncode, done.stdout, done.stderr)
        assert code in (None, ran.code), f"{command}: {ran}"
        return ran


def make_identity(path: Path) -> Path:
    """Creates an SSH key pair."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "someone", "-f", str(path)], check=True)
    return path
