"""An engine that is known only by its address and a key. Start reading at `Engine`."""

import os
import secrets
import time
from pathlib import Path

import pytest
import requests

from instances import make_identity
from support import ENVIRONMENT, Server, eventually

from .document import Document, check_refusal, seeds

EXTERNAL_ENGINE = os.environ.get("TARN_CONFORMANCE_ENGINE", "").rstrip("/")
# Another operator may have to start hosts first.
TIMEOUT_SECONDS = int(os.environ.get("TARN_CONFORMANCE_SECONDS", "900" if EXTERNAL_ENGINE else "300"))
# Variables that would use the operator's own account, keys or agent instead of those of the test.
PRIVATE = ("TENSORPOOL_", "TARN_", "SSH_", "AWS_ACCESS", "AWS_SECRET", "AWS_SESSION", "AWS_PROFILE", "RCLONE_")


def environment() -> dict[str, str]:
    """The environment of programs. An external engine may need the operator's proxies and certificate authorities."""
    if not EXTERNAL_ENGINE:
        return ENVIRONMENT
    return {name: value for name, value in os.environ.items() if not name.startswith(PRIVATE)}


class Engine:
    """Calls an engine, checks every response against the documents, and removes what the run has created.

    Everything that is created has a name that begins with `prefix`, or is recorded in `jobs`.
    """

    def __init__(self, url: str, key: str, directory: Path, *, kind: str | None = None):
        self.url, self.key, self.kind = url, key, kind
        self.prefix = f"conformance-{secrets.token_hex(4)}"
        self.identity = make_identity(directory / "identity")
        self.public_key = self.identity.with_suffix(".pub")
        self.environment = environment()
        self.session = requests.Session()
        self.session.trust_env = bool(EXTERNAL_ENGINE)
        self.jobs, self.enabled, self.names = set(), False, 0
        self.documents = seeds()
        answer = self.session.get(f"{url}/openapi.json", timeout=30)
        self.own = Document(answer.json()) if answer.ok else None
        self.documents += [self.own] if self.own else []

    def call(self, method: str, path: str, *, expect=None, **options) -> requests.Response:
        """One call; `expect` is the expected status, and the response must match the documents in any case."""
        answer = Server.call(self, method, path, expect=expect, **options)
        for document in self.documents:
            document.check(method, path, answer)
        if not answer.ok:
            check_refusal(f"{method} {path}", answer)
        return answer

    def finish(self, request_id: str, status="COMPLETED") -> dict:
        """Waits for a request's end at the interval that the engine asks for, and checks its status."""
        deadline, seen = time.monotonic() + TIMEOUT_SECONDS, None
        while time.monotonic() < deadline:
            answer = self.call("GET", f"/request/info/{request_id}", expect=200)
            if (seen := answer.json())["status"] in ("COMPLETED", "FAILED"):
                assert seen["status"] == status, seen
                return seen
            time.sleep(min(int(answer.headers["Retry-After"]), 10))
        raise AssertionError(f"{request_id} did not end within {TIMEOUT_SECONDS} s: {seen}")

    def skip_unless_offered(self, method: str, path: str):
        """Skips the test when the engine has an OpenAPI document without this operation."""
        if self.own and self.own.operation(method, path) is None:
            pytest.skip(f"this engine does not offer {method} {path}")

    def name(self) -> str:
        """A new name."""
        self.names += 1
        return f"{self.prefix}-{self.names}"

    def type(self) -> str:
        """The instance type to use: the configured one, or the cheapest."""
        if self.kind is None:
            answer = self.call("GET", "/cluster/types")
            assert answer.ok, "the engine does not list its types: set TARN_CONFORMANCE_TYPE to the one to use"
            types = [each for each in answer.json()["types"] if each["memory_bytes"] >= 400 << 20]
            self.kind = min(types, key=lambda each: (each["hourly_rate"], each["cpus"]))["name"]
        return self.kind

    def create(self, *, nodes=1) -> dict:
        """Creates a cluster, waits until it runs and returns its info. Its key is not saved in the account."""
        body = {"instance_type": self.type(), "tp_cluster_name": self.name(), "num_nodes": nodes, "save_keys": False}
        body["public_keys"] = [self.public_key.read_text()]
        made = self.call("POST", "/cluster/create", json=body, expect=202).json()
        self.finish(made["request_id"])
        return self.info(made["cluster_id"])

    def info(self, cluster: str) -> dict:
        """The cluster as the API shows it."""
        return self.call("GET", f"/cluster/info/{cluster}", expect=200).json()["cluster_info"]

    def volume(self, volume: str) -> dict:
        """The volume as the API shows it."""
        return self.call("GET", f"/storage/info/{volume}", expect=200).json()["storage_info"]

    def own_ids(self, path: str, field: str) -> list[str]:
        """The ids of the objects of one kind that this run has created."""
        answer = self.call("GET", path)
        listed = answer.json()[field] if answer.ok else []
        return [each["id"] for each in listed if (each["name"] or "").startswith(self.prefix)]

    def clean(self):
        """Removes everything that was created, as far as possible, and fails if something is left."""
        failures = []
        for way in (self.clean_jobs, self.clean_clusters, self.clean_volumes, self.clean_keys, self.clean_objects):
            try:
                way()
            except Exception as failure:  # The rest is cleaned in any case.
                failures.append(failure)
        self.session.close()
        if failures:
            raise ExceptionGroup(f"left at {self.url}: look for names that begin with {self.prefix}", failures)

    def clean_jobs(self):
        """Cancels and deletes all jobs."""
        for job in self.jobs:
            answer = self.call("POST", f"/job/cancel/{job}")
            if answer.status_code != 404:
                gone = lambda: self.call("DELETE", f"/job/delete/{job}").status_code in (200, 404)  # noqa: E731
                eventually(gone, seconds=60, what=f"the end of {job}")

    def clean_clusters(self):
        """Destroys all clusters, each once it is no longer busy."""
        for cluster in self.own_ids("/cluster/list", "clusters"):
            self.destroy(f"/cluster/{cluster}")

    def clean_volumes(self):
        """Destroys all volumes, which are no longer attached."""
        for volume in self.own_ids("/storage/list", "volumes"):
            self.destroy(f"/storage/{volume}")

    def destroy(self, path: str):
        """Destroys an object as soon as that is possible, and waits until it is gone."""

        def accepted():
            answer = self.call("DELETE", path)
            is_gone = answer.status_code == 404 or answer.json().get("code", "").endswith("_gone")
            # In a tuple, because the response to a refusal is falsy.
            return (None,) if is_gone else answer.ok and (answer,)

        (answer,) = eventually(accepted, seconds=TIMEOUT_SECONDS, what=f"202 for DELETE {path}")
        if answer:
            self.finish(answer.json()["request_id"])

    def clean_keys(self):
        """Removes the run's SSH keys from the account: the stock client saves one when it creates a cluster."""
        ours = self.public_key.read_text().split()[1]
        for key in self.call("GET", "/user/ssh-key/list", expect=200).json()["keys"]:
            if ours in key["public_key"] or (key["name"] or "").startswith(self.prefix):
                self.call("DELETE", f"/user/ssh-key/remove/{key['id']}", expect=200)

    def clean_objects(self):
        """Disables object storage again if it was off; the fixtures have removed the buckets."""
        if self.enabled:
            self.call("DELETE", "/object-storage/disable", expect=200)
