"""Data directories of older versions, with work in progress. Start reading at `Upgrades`.

`TARN_BINARY=<older program> python e2e/upgrades.py e2e/fixtures/schema-8.tar.xz` writes one, as root. The number in the
name says what the program knows: 4 has no jobs, 7 has neither images nor disks of instances (its commit numbered the
migration of GPUs as its sixth).
"""

import json
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

from instances import IMAGES
from jobs import SETTINGS as JOBS
from objects import MIB, enable
from reboots import Reboots

FACTS = "facts.json"
NEWEST = 1000
# Before schema 8 the disk of an instance is a directory, whose files belong to the ids of the instance.
OWNERS = ["--numeric-owner", "--xattrs", "--xattrs-include=*"]
# Completes only in its second attempt: the host reboots during the first one.
TWICE = "echo run >> count; echo attempt $(wc -l < count); [ $(wc -l < count) = 2 ] || sleep 31337; echo done"
PART = b"\0" * 5 * MIB
LARGE = b"large object\n" * 10_000


class Upgrades(Reboots):
    """An engine whose data directory one version fills and a newer one opens. `schema` is what the program knows that
    runs; the newest one by default."""

    def __init__(self, directory: Path, schema=NEWEST):
        super().__init__(directory)
        self.schema = schema
        config = directory / "engine.toml"
        text = config.read_text()
        if schema >= 8:
            text = text.replace("[capacity]\n", "[capacity]\ninstance_disk_gb = 1\n", 1)
        if schema < 9:
            text = text.replace(IMAGES, "")
        if schema < 5:
            text = text.replace(JOBS, "")
        config.write_text(text)

    def fill(self) -> dict:
        """Leaves work of every kind in progress, and ends as in a power cut. Returns what the newer version must
        know."""
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
        facts = self.fill_jobs() if self.schema >= 5 else {}
        coming, waiting = self.hold_engine_during(lambda: [self.request_cluster("coming", "tiny"), self.request_cluster("waiting", "huge")])
        self.power_off()
        return facts | {
            "directory": str(self.directory), "written_us": time.time_ns() // 1000, "user_key": key,
            "box": box["id"], "volume": volume, "access_key": account.access_key, "secret_key": account.secret_key,
            "upload": upload, "tag": tag, "coming": coming, "waiting": waiting,
        }  # fmt: skip

    def fill_jobs(self) -> dict:
        """Leaves jobs of every state."""
        ended = self.run("box", "echo ended; echo 42 > result.txt", outputs=["*.txt"], venv=False)
        self.wait(ended)
        running = self.run("box", TWICE, retries=1, venv=False)
        self.wait_until_running(running, b"attempt 1")
        pending = self.run("box", "cat ~/file", venv=False)
        without_files = self.submit("box", 'commands = ["cat message"]\nvenv = false\n')
        draft = self.submit("box", 'commands = ["echo started"]\nvenv = false\n', files=False)
        return {
            "ended": ended, "running": running, "pending": pending,
            "without_files": without_files["job_id"], "draft": draft["job_id"],
        }  # fmt: skip

    def request_cluster(self, name: str, kind: str) -> dict:
        """Requests a cluster and returns the response."""
        return self.call("POST", "/cluster/create", json={"instance_type": kind, "tp_cluster_name": name}, expect=202).json()

    def unpack(self, fixture: Path) -> dict:
        """Replaces the data directory and the SSH key with those of a fixture. Returns what `fill` returned."""
        subprocess.run(["tar", "-xJf", fixture, *OWNERS, "-C", self.directory], check=True)
        facts = json.loads((self.directory / FACTS).read_text())
        # An upgrade does not move the directory; here it was elsewhere, and some files contain its path.
        for path in [*self.data.glob("volumes.pool"), *(self.data / "instances").glob("*/instance.json")]:
            path.write_text(path.read_text().replace(facts["directory"], str(self.directory)))
        # Its instances belong to an earlier boot of another host, never to a process that runs here.
        self.change_boot_id()
        self.move_times(time.time_ns() // 1000 - facts["written_us"])
        return facts

    def move_times(self, by_us: int):
        """Moves every time in the database, as if the fixture had just been written: drafts and uploads expire."""
        with closing(sqlite3.connect(self.data / "tarn.db", timeout=60)) as db, db:
            tables = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
            for table in tables:
                times = [row[1] for row in db.execute(f"pragma table_info({table})") if row[1].endswith("_us")]
                for column in times:
                    # Zero and small numbers mean something else than a time.
                    db.execute(f"update {table} set {column} = {column} + ? where {column} > 1000000000000000", (by_us,))


def schema_of(fixture: Path) -> int:
    """The number in the name of a fixture."""
    return int(re.match(r"schema-(\d+)\.", fixture.name)[1])


def write(fixture: Path):
    """Writes a fixture with the program in `TARN_BINARY`."""
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        cloud = Upgrades(directory, schema_of(fixture))
        try:
            facts = cloud.start().fill()
        finally:
            cloud.kill()
        (directory / FACTS).write_text(json.dumps(facts, indent=1))
        # Each version creates the host's image and the guest anew on each host.
        options = ["--exclude=engine/images/host/*", "--exclude=engine/guests/*", "--sparse", *OWNERS]
        parts = ["engine", "engine-id", "engine-id.pub", FACTS]
        subprocess.run(["tar", "-cJf", fixture.resolve(), *options, "-C", directory, *parts], check=True)


if __name__ == "__main__":
    write(Path(sys.argv[1]))
