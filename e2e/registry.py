"""Debian's registry on a loopback port, and images that are built here. Start reading at `Registry`; `Layer` writes
a layer member by member, so that it can be as wrong as a test needs it."""

import contextlib
import gzip
import hashlib
import io
import json
import os
import platform
import shutil
import socket
import subprocess
import tarfile
import threading
from pathlib import Path

import pytest
import requests

from support import BINARY, ENVIRONMENT, eventually, free_port

needs_registry = pytest.mark.skipif(not shutil.which("docker-registry"), reason="docker-registry is not installed")
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
# The login where one is needed, and its hash for htpasswd: the registry supports only bcrypt.
LOGIN, HASHED = ("ann", "open sesame"), "$2y$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy"
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[platform.machine()]
SETTINGS = """\
version: 0.1
log: {{ level: error }}
storage:
  filesystem: {{ rootdirectory: "{directory}" }}
http:
  addr: "127.0.0.1:{port}"
{auth}"""
AUTH = """\
auth:
  htpasswd: {{ realm: test, path: "{passwords}" }}
"""


class Registry:
    """A registry that is empty at first; a context manager that leaves no process behind."""

    def __init__(self, directory: Path, *, login=False):
        self.directory, self.port, self.login, self.process = directory, free_port(), login, None
        self.digest = None  # Of the manifest that was pushed last.
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.auth = LOGIN if login else None

    @property
    def host(self) -> str:
        """The host in the names of its images."""
        return f"127.0.0.1:{self.port}"

    def __enter__(self):
        self.directory.mkdir(parents=True, exist_ok=True)
        auth = ""
        if self.login:
            passwords = self.directory / "htpasswd"
            passwords.write_text(f"{LOGIN[0]}:{HASHED}\n")
            auth = AUTH.format(passwords=passwords)
        config = self.directory / "config.yml"
        config.write_text(SETTINGS.format(directory=self.directory / "blobs", port=self.port, auth=auth))
        with open(self.directory / "log", "ab") as log:
            # The registry ends with the test run.
            self.process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "docker-registry", "serve", str(config)],
                env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            )  # fmt: skip
        eventually(self.is_serving, seconds=60, what="a response of the registry")
        return self

    def __exit__(self, *_):
        self.session.close()
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def is_serving(self) -> bool:
        """Whether the registry responds."""
        assert self.process.poll() is None, (self.directory / "log").read_text()
        try:
            return self.session.get(f"http://{self.host}/v2/", timeout=5).status_code == 200
        except (requests.ConnectionError, requests.Timeout):
            return False

    def push(self, name: str, *layers: bytes, tag="latest", architecture=ARCHITECTURE, **config) -> str:
        """Pushes an image of these tar layers; `config` is its configuration. Returns its name."""
        unpacked = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers]
        blobs = [self.blob(name, gzip.compress(layer, 1)) | {"mediaType": LAYER} for layer in layers]
        about = {"architecture": architecture, "os": "linux", "config": config, "rootfs": {"type": "layers", "diff_ids": unpacked}}
        about = self.blob(name, json.dumps(about).encode()) | {"mediaType": CONFIG}
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": about, "layers": blobs}
        answer = self.session.put(
            f"http://{self.host}/v2/{name}/manifests/{tag}",
            data=json.dumps(manifest), headers={"Content-Type": MANIFEST}, timeout=60,
        )  # fmt: skip
        assert answer.status_code == 201, answer.text
        self.digest = answer.headers["Docker-Content-Digest"]
        return f"{self.host}/{name}:{tag}"

    def blob(self, name: str, data: bytes) -> dict:
        """Uploads bytes; returns their descriptor for a manifest."""
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        begun = self.session.post(f"http://{self.host}/v2/{name}/blobs/uploads/", timeout=60)
        assert begun.status_code == 202, begun.text
        done = self.session.put(begun.headers["Location"], params={"digest": digest}, data=data, timeout=60)
        assert done.status_code == 201, done.text
        return {"digest": digest, "size": len(data)}


class Layer:
    """A tar archive that is written member by member."""

    def __init__(self):
        self.out = io.BytesIO()
        self.tar = tarfile.open(fileobj=self.out, mode="w", format=tarfile.PAX_FORMAT)

    def add(self, name: str, data: bytes = b"", *, kind=tarfile.REGTYPE, mode=0o644, uid=0, gid=0, to="", device=(0, 0), **pax):
        """Adds one member of any kind."""
        member = tarfile.TarInfo(name)
        member.type, member.mode, member.uid, member.gid, member.linkname = kind, mode, uid, gid, to
        member.devmajor, member.devminor = device
        member.size, member.pax_headers = len(data) if kind == tarfile.REGTYPE else 0, pax
        self.tar.addfile(member, io.BytesIO(data))
        return self

    def directory(self, name: str, **more):
        """A directory."""
        return self.add(name, kind=tarfile.DIRTYPE, **({"mode": 0o755} | more))

    def link(self, name: str, to: str):
        """A symbolic link."""
        return self.add(name, kind=tarfile.SYMTYPE, to=to, mode=0o777)

    def bytes(self) -> bytes:
        """The whole archive."""
        self.tar.close()
        return self.out.getvalue()


def plain_shell() -> bytes:
    """A few programs of this host and their libraries, with a shell that is not bash, as one layer: as small as
    images of other distributions."""
    layer = Layer().directory("bin").directory("root", mode=0o700).directory("etc").add("etc/passwd", b"root:x:0:0::/root:/bin/sh\n")
    libraries, made = set(), {"bin", "root", "etc"}
    for name, program in {"sh": "dash", "cat": "cat", "id": "id", "ls": "ls"}.items():
        path = shutil.which(program)
        layer.add(f"bin/{name}", Path(path).read_bytes(), mode=0o755)
        needed = subprocess.run(["ldd", path], env=ENVIRONMENT, capture_output=True, text=True, check=True).stdout
        libraries |= {word for word in needed.split() if word.startswith("/")}
    for path in sorted(libraries):
        above = [str(each)[1:] for each in list(Path(path).parents)[-2::-1]]
        for directory in [each for each in above if each not in made]:
            layer.directory(directory)
            made.add(directory)
        layer.add(path[1:], Path(path).read_bytes(), mode=0o755)
    return layer.bytes()


def debian() -> bytes:
    """The files of a small Debian, as one layer. Building them takes a minute, so they are kept beside the build."""
    mirror, suite = source()
    kept = BINARY.parents[1] / "e2e-images" / f"{suite}-{ARCHITECTURE}.tar"
    if not kept.exists():
        kept.parent.mkdir(parents=True, exist_ok=True)
        place = kept.with_suffix(f".{os.getpid()}")
        try:
            # In a separate mount namespace: everything that the second stage mounts disappears with it.
            line = ["unshare", "--mount", "debootstrap", "--variant=minbase", suite, str(place), *mirror]
            done = subprocess.run(line, env=ENVIRONMENT, capture_output=True, text=True, timeout=600)
            assert done.returncode == 0, done.stdout + done.stderr
            archive = kept.with_suffix(f".{os.getpid()}.tar")
            leave = [f"--exclude=./{name}" for name in ("var/cache/apt/*", "var/lib/apt/lists/*", "usr/share/doc/*", "usr/share/locale/*", "dev/*")]
            subprocess.run(["tar", "-C", str(place), "--numeric-owner", *leave, "-cf", str(archive), "."], check=True)
            archive.rename(kept)
        finally:
            if place.exists():
                subprocess.run(["rm", "-rf", "--one-file-system", str(place)], check=True)
    return kept.read_bytes()


def source() -> tuple[list[str], str]:
    """The package mirror of this host, unless debootstrap has its own, and the name of the release."""
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    suite = release.get("VERSION_CODENAME", "bookworm").strip('"')
    apt = Path("/etc/apt")
    for name in [apt / "sources.list", *sorted(apt.glob("sources.list.d/*.sources")), *sorted(apt.glob("sources.list.d/*.list"))]:
        text = name.read_text() if name.is_file() else ""
        for line in text.splitlines():
            words = line.split()
            if line.startswith("URIs:") and suite in text:
                return [words[1]], suite
            if words[:1] == ["deb"] and suite in words:
                return [words[words.index(suite) - 1]], suite
    return [], suite


class PausingProxy:
    """A proxy to a registry that forwards a number of bytes and the rest on request, so that a test can observe the
    state in between."""

    def __init__(self, registry: Registry, first: int):
        self.registry, self.first, self.resume = registry, first, threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.host = f"127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.serve, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.resume.set()
        self.listener.close()

    def serve(self):
        """Accepts all connections."""
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.registry.port))
            threading.Thread(target=self.forward, args=(client, server, False), daemon=True).start()
            threading.Thread(target=self.forward, args=(server, client, True), daemon=True).start()

    def forward(self, source: socket.socket, target: socket.socket, holds: bool):
        """Forwards bytes in one direction until the end."""
        with contextlib.suppress(OSError):
            while data := source.recv(16384):
                target.sendall(data)
                self.first -= len(data) if holds else 0
                if holds and self.first < 0:
                    self.resume.wait(120)
            target.shutdown(socket.SHUT_WR)
