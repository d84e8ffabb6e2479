"""Debian's `docker-registry` on a loopback port, and images that are built for the benchmark."""

import gzip
import hashlib
import http.client
import io
import json
import platform
import random
import tarfile
import urllib.parse
from pathlib import Path

from bench import servers

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
LAYERS = 6
WORDS = b"the same words again and again. "
CONFIG = """
version: 0.1
log: {{level: error}}
storage: {{filesystem: {{rootdirectory: {data}}}}}
http: {{addr: '127.0.0.1:{port}', secret: bench}}
"""


class Registry(servers.Server):
    """The registry; a context manager that ends it."""

    def __init__(self, work: Path):
        port, config = servers.free_port(), work / "registry.yml"
        config.write_text(CONFIG.format(data=work / "registry", port=port))
        super().__init__(["docker-registry", "serve", config], log=work / "registry.log", port=port)

    def push(self, name: str, layers: list[tuple[bytes, str]]) -> str:
        """Pushes an image of these layers; returns its reference."""
        config = {"os": "linux", "architecture": ARCHITECTURE, "config": {}}
        config["rootfs"] = {"type": "layers", "diff_ids": [archive for _, archive in layers]}
        config = json.dumps(config).encode()
        for blob in [config, *(packed for packed, _ in layers)]:
            self.send("POST", f"/v2/{name}/blobs/uploads/", blob)
        described = {"schemaVersion": 2, "mediaType": MANIFEST}
        described["config"] = describe("application/vnd.oci.image.config.v1+json", config)
        described["layers"] = [describe(LAYER, packed) for packed, _ in layers]
        headers = {"Content-Type": MANIFEST}
        status, text = self.get(f"/v2/{name}/manifests/1", headers, method="PUT", body=json.dumps(described))
        assert status == 201, (status, text)
        return f"127.0.0.1:{self.port}/{name}:1"

    def send(self, method: str, path: str, blob: bytes):
        """One blob, in two calls."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path)
        begun = connection.getresponse()
        begun.read()
        place = urllib.parse.urlsplit(begun.headers["Location"])
        target = f"{place.path}?{place.query}&digest={urllib.parse.quote(digest(blob))}"
        connection.request("PUT", target, body=blob)
        done = connection.getresponse()
        text = done.read()
        connection.close()
        assert done.status == 201, (done.status, text)


def digest(data: bytes) -> str:
    """A digest in the format of registries."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def describe(kind: str, data: bytes) -> dict:
    """The descriptor of a blob."""
    return {"mediaType": kind, "digest": digest(data), "size": len(data)}


def layer(seed: int, kilobytes: int) -> tuple[bytes, str]:
    """A layer with files as in real images: many small ones, some large ones, about half of it compressible."""
    chance, buffer, left = random.Random(seed), io.BytesIO(), kilobytes << 10
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        while left > 0:
            size = min(left, chance.choice([2 << 10, 8 << 10, 30 << 10, 30 << 10, 1 << 20]))
            content = chance.randbytes(size // 2) + (WORDS * (size // len(WORDS) + 1))[: size - size // 2]
            entry = tarfile.TarInfo(f"data/{seed}/{chance.randrange(64)}/{left}")
            entry.size, entry.mode = size, 0o644
            archive.addfile(entry, io.BytesIO(content))
            left -= size
    plain = buffer.getvalue()
    return gzip.compress(plain, 1), digest(plain)


def layers(megabytes: int) -> list[tuple[bytes, str]]:
    """Layers of this size in total."""
    return [layer(seed, megabytes * 1000 // LAYERS) for seed in range(2, 2 + LAYERS)]
