"""The measured S3 servers, each on loopback ports and in its own directory."""

import json
import secrets
import sys
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from bench import servers
from bench.objects.client import Client

S3S_FS = Path("target/bench/bin/s3s-fs").resolve()
NODELAY = Path("target/bench/nodelay.so").resolve()
# Beside the interpreter of the environment: the link to the host's own interpreter is not followed.
WEED = Path(sys.executable).parent / "weed"
READY_SECONDS = 60


class System(servers.Server):
    """A server with given credentials; a context manager that waits until it accepts objects."""

    region = "us-east-1"

    def __init__(self, work: Path, environment=None):
        self.data = Path(tempfile.mkdtemp(prefix=type(self).__name__.lower() + "-", dir=work))
        self.access_key, self.secret_key = "bench" + secrets.token_hex(8), secrets.token_hex(20)
        log, port = self.data.with_suffix(".log"), servers.free_port()
        super().__init__(self.command_line(port), environment=environment, log=log, port=port)

    def __enter__(self):
        self.start(path="/")
        try:
            self.wait()
        except BaseException:
            self.stop()
            raise
        return self

    def client(self, bucket: str) -> Client:
        """A client for one of its buckets."""
        return Client(f"127.0.0.1:{self.port}", bucket, self.region, self.access_key, self.secret_key)

    def wait(self):
        """A response does not mean that it is ready: the parts of SeaweedFS find each other only after a while."""
        client, deadline = self.client("ready"), time.monotonic() + READY_SECONDS
        while True:
            try:
                client.run("make")
                break
            except RuntimeError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
        client.run("put", 1, 1, 1, READY_SECONDS)
        client.run("delete", 1, 1, 1)
        client.run("drop")

    def command_line(self, port: int) -> list:
        """The command line that starts it."""
        raise NotImplementedError


class S3sFs(System):
    """The sample server of the crate s3s: files in a directory, without fsync."""

    def __init__(self, work: Path):
        super().__init__(work, {"LD_PRELOAD": str(NODELAY)})

    def command_line(self, port: int) -> list:
        keys = ["--access-key", self.access_key, "--secret-key", self.secret_key]
        return [S3S_FS, "--host", "127.0.0.1", "--port", port, *keys, self.data]


class SeaweedFs(System):
    """All of its parts in one process, without fsync. It must not send telemetry, and each bucket takes several
    volumes."""

    def command_line(self, port: int) -> list:
        keys = [{"accessKey": self.access_key, "secretKey": self.secret_key}]
        identity = {"name": "bench", "credentials": keys, "actions": ["Admin", "Read", "Write", "List", "Tagging"]}
        config = self.data / "identities.json"
        config.write_text(json.dumps({"identities": [identity]}))
        command = [WEED, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={self.data}", "-filer", "-s3"]
        command += [f"-s3.config={config}", "-s3.port.iceberg=0", "-s3.port.lance=0", "-master.telemetry=false"]
        command += ["-volume.max=64", "-volume.preStopSeconds=0"]
        names = ["master.port", "volume.port", "filer.port"]
        names += [f"{part}.port.grpc" for part in ("master", "volume", "filer", "s3")]
        self.ports = {"s3.port": port} | {name: servers.free_port() for name in names}
        return [*command, *(f"-{name}={number}" for name, number in self.ports.items())]

    def stop(self):
        super().stop()
        # It leaves sockets behind, and has no option for that.
        for number in self.ports.values():
            for left in Path("/tmp").glob(f"seaweedfs-*-{number}.sock"):
                left.unlink(missing_ok=True)


class Tarn(System):
    """Tarn as an operator would start it, with the credentials of the administrator's organization."""

    def __init__(self, work: Path, program: Path = servers.TARN):
        self.program = program
        super().__init__(work)

    def command_line(self, port: int) -> list:
        self.api_port = servers.free_port()
        command = [self.program, "serve", "--data", self.data, "--driver", "fake"]
        return [*command, "--listen", f"127.0.0.1:{self.api_port}", "--s3-listen", f"127.0.0.1:{port}"]

    def wait(self):
        headers = {"Authorization": "Bearer " + (self.data / "admin.key").read_text().strip()}
        api = servers.Server([], log=self.log, port=self.api_port)
        status, text = api.get("/object-storage/enable", headers, method="POST")
        if status != 200:
            raise RuntimeError(f"object storage could not be enabled: {status} {text!r}")
        given = json.loads(text)
        self.access_key, self.secret_key = given["access_key_id"], given["secret_access_key"]
        self.region, self.port = given["region"], urlsplit(given["endpoint"]).port
        super().wait()
