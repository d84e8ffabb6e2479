"""Data directories of older programs, with work in progress. Start reading at `Upgrades`.

`TARN_BINARY=<older program> python e2e/upgrades.py e2e/fixtures/schema-8.tar.xz` writes one, as root.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from objects import MIB, enable
from reboots import Reboots

FACTS = "facts.json"
# Completes only in its second attempt: the host goes down during the first one.
TWICE = "echo run >> count; echo attempt $(wc -l < count); [ $(wc -l < count) = 2 ] || sleep 31337; echo done"
PART = b"\0" * 5 * MIB
LARGE = b"large object\n" * 10_000


class Upgrades(Reboots):
    """A cloud whose data directory one program fills and a newer one opens."""

    def __init__(self, directory: Path):
        super().__init__(directory)
        config = directory / "engine.toml"
        config.write_text(config.read_text().replace("[capacity]\n", "[capacity]\ninstance_disk_gb = 1\n", 1))

    def fill(self) -> dict:
        """Leaves work of every kind in progress, and ends as in a power cut. Returns what the newer program must know."""
        key = self.call("POST", "/admin/user/create", json={"email": "ada@example.org", "org_name": "lab"}, expect=200).json()["api_key"]
        box, volume = self.create("box"), self.make_volume("kept")
        self.finish(self.attach(volume, box["id"], live=True)["request_id"])
        self.ssh("box", f"echo on the volume > /mnt/{volume}/file && echo on the disk > file && sync /mnt/{volume}/file file")
        account = enable(self)
        s3 = account.client()
        s3.create_bucket(Bucket="bucket")
        s3.put_object(Bucket="bucket", Key="small", Body=b"small object\n")
        s3.put_object(Bucket="bucket", Key="large", Body=LARGE)
        upload = s3.create_multipart_upload(Bucket="bucket", Key="parts")["UploadId"]
        tag = s3.upload_part(Bucket="bucket", Key="parts", UploadId=upload, PartNumber=1, Body=PART)["ETag"]
        ended = self.run("box", "echo ended; echo 42 > result.txt", outputs=["*.txt"], venv=False)
        self.wait(ended)
        running = self.run("box", TWICE, retries=1, venv=False)
        self.runs(running, b"attempt 1")
        pending = self.run("box", "cat ~/file", venv=False)
        draft = self.submit("box", 'commands = ["cat message"]\nvenv = false\n')
        coming, waiting = self.in_the_midst(lambda: [self.ask("coming", "tiny"), self.ask("waiting", "huge")])
        self.go_down()
        return {
            "directory": str(self.directory), "user_key": key, "box": box["id"], "volume": volume, "access_key": account.access_key, "secret_key": account.secret_key,
            "upload": upload, "tag": tag, "ended": ended, "running": running, "pending": pending, "draft": draft["job_id"],
            "upload_path": draft["upload_url"].split(f":{self.port}", 1)[1], "coming": coming, "waiting": waiting,
        }  # fmt: skip

    def ask(self, name: str, kind: str) -> dict:
        """The accepted claim of a cluster."""
        return self.call("POST", "/cluster/create", json={"instance_type": kind, "tp_cluster_name": name}, expect=202).json()

    def unpack(self, fixture: Path) -> dict:
        """Puts the data directory and the SSH key of a fixture in the place of this cloud's. Returns what `fill` returned."""
        subprocess.run(["tar", "-xJf", fixture, "-C", self.directory], check=True)
        facts = json.loads((self.directory / FACTS).read_text())
        # An upgrade leaves the directory where it is; here it was elsewhere, and some files hold its path.
        for path in [self.data / "volumes.pool", *(self.data / "instances").glob("*/instance.json")]:
            path.write_text(path.read_text().replace(facts["directory"], str(self.directory)))
        # Its instances belong to an earlier boot of another host, never to a process that runs here.
        self.age()
        return facts


def write(fixture: Path):
    """Writes a fixture with the program in `TARN_BINARY`."""
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        cloud = Upgrades(directory)
        try:
            facts = cloud.start().fill()
        finally:
            cloud.kill()
        (directory / FACTS).write_text(json.dumps(facts, indent=1))
        # The host's image and the guest are made anew by each program on each host.
        options = ["--exclude=engine/images/host/*", "--exclude=engine/guests/*", "--sparse", "--owner=0", "--group=0"]
        parts = ["engine", "engine-id", "engine-id.pub", FACTS]
        subprocess.run(["tar", "-cJf", fixture.resolve(), *options, "-C", directory, *parts], check=True)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
