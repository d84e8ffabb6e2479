"""Tarn with the local driver under measurement."""

import json
import tempfile
import time
from pathlib import Path

from bench import servers
from bench.instances import ssh_client
from bench.instances.baselines import banner

CONFIG = """
[capacity]
cpus = 64.0
memory_mib = 65536

[[types]]
name = "tiny"
cpus = 0.1
memory_mib = 64

[[types]]
name = "whole"
cpus = 2.0
memory_mib = 4096

[images]
private_registries = ["127.0.0.1:*"]
"""


class Tarn(servers.Server):
    """The engine, its API and its gateway; a context manager that destroys what it created."""

    def __init__(self, work: Path, key: Path):
        data = Path(tempfile.mkdtemp(prefix="tarn-", dir=work))
        (data / "config.toml").write_text(CONFIG)
        port, self.ssh_port, self.data, self.key = servers.free_port(), servers.free_port(), data, key
        command = [servers.TARN, "serve", "--data", data, "--config", data / "config.toml"]
        command += ["--listen", f"127.0.0.1:{port}", "--ssh-listen", f"127.0.0.1:{self.ssh_port}"]
        command += ["--s3-listen", f"127.0.0.1:{servers.free_port()}"]
        environment = {"TARN_RATE_LIMIT_PER_SECOND": "0", "TARN_LIMITS_WAITING": "0"}
        super().__init__(command, environment=environment, log=data / "log", port=port)

    def __exit__(self, *problem):
        for cluster in self.call("GET", "/cluster/list")["clusters"]:
            self.destroy(cluster["id"])
        super().__exit__(*problem)

    def call(self, method: str, path: str, body=None) -> dict:
        """A call of the API that must succeed."""
        headers = {"Authorization": "Bearer " + (self.data / "admin.key").read_text()}
        status, text = self.get(path, headers, method=method, body=json.dumps(body) if body else None)
        assert status in (200, 202), (status, text)
        return json.loads(text)

    def ask(self, name: str, kind="tiny") -> dict:
        """Requests a cluster of one node."""
        keys = [self.key.with_suffix(".pub").read_text()]
        body = {"instance_type": kind, "tp_cluster_name": name, "public_keys": keys, "save_keys": False}
        return self.call("POST", "/cluster/create", body)

    def finish(self, request: str):
        """Waits for a request's end."""
        while True:
            seen = self.call("GET", f"/request/info/{request}")
            if seen["status"] in ("COMPLETED", "FAILED"):
                assert seen["status"] == "COMPLETED", seen
                return
            time.sleep(0.002)

    def destroy(self, cluster: str):
        """Destroys a cluster and waits until it is gone."""
        self.finish(self.call("DELETE", f"/cluster/{cluster}")["request_id"])


def seconds_to_banner(tarn: Tarn, name: str) -> float:
    """Seconds from the accepted request to the banner of the guest's SSH server at its own address."""
    accepted = tarn.ask(name)
    began, address = time.monotonic(), None
    while not address:
        # Polling without a pause would take a processor from the measurement.
        time.sleep(0.001)
        address = tarn.call("GET", f"/cluster/info/{name}")["cluster_info"]["instances"][0].get("private_ip")
    while not banner(address, 22):
        time.sleep(0.001)
    words = time.monotonic() - began
    tarn.finish(accepted["request_id"])
    tarn.destroy(accepted["cluster_id"])
    return words


def seconds_to_first_command(tarn: Tarn, name: str) -> float:
    """Seconds from the call to the end of the first command over SSH."""
    began = time.monotonic()
    accepted = tarn.ask(name)
    done = ssh_client.ssh(tarn.key, tarn.ssh_port, name, "true")
    took = time.monotonic() - began
    assert done.returncode == 0, done
    tarn.finish(accepted["request_id"])
    tarn.destroy(accepted["cluster_id"])
    return took


def seconds_to_run_all(tarn: Tarn, count: int) -> float:
    """Seconds until this many clusters, requested at once, are running."""
    began = time.monotonic()
    accepted = [tarn.ask(f"crowd-{number}") for number in range(count)]
    for one in accepted:
        tarn.finish(one["request_id"])
    took = time.monotonic() - began
    states = [cluster["status"] for cluster in tarn.call("GET", "/cluster/list?limit=100")["clusters"]]
    assert states == ["RUNNING"] * count, states
    for one in accepted:
        tarn.destroy(one["cluster_id"])
    return took


def guest_resident(tarn: Tarn) -> float:
    """Resident memory in mebibytes of the init process of an instance with a login session."""
    accepted = tarn.ask("resident")
    tarn.finish(accepted["request_id"])
    said = ssh_client.ssh(tarn.key, tarn.ssh_port, "resident", "cat /proc/1/status")
    tarn.destroy(accepted["cluster_id"])
    return int(said.stdout.split("VmRSS:")[1].split()[0]) / 1024

