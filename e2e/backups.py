"""Backups under test. Start reading at `Backups`."""

import hashlib
import json
import os
import random
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path


from objects import INLINE, Account, enable
from support import BINARY, ENVIRONMENT, Server, tarn
from volumes import Volumes

PASSPHRASE = "correct horse battery staple"
SECRET = {"TARN_BACKUP_PASSPHRASE": PASSPHRASE}
BUCKET = "load"
# The size of a large object is this, times the length of its key.
LARGE = 100_000
# Tests keep more than they overwrite.
SIZES = (100, INLINE + 1, 50_000, 300_000)


class Backups:
    """A directory of backups of an engine."""

    # How the place is reached.
    environment: dict[str, str] = {}

    def __init__(self, path: Path, server: Server, *options):
        self.path, self.server, self.options = path, server, options

    def make(self, *more, code=0, environment=SECRET) -> subprocess.CompletedProcess:
        """Makes a backup; `code` is the expected exit code."""
        done = tarn("admin", "backup", self.path, "--data", self.server.data, *self.options, *more, environment=self.environment | environment, seconds=300)
        assert done.returncode == code and "panicked" not in done.stderr, done
        return done

    def make_json(self, *more) -> dict:
        """Makes a backup and returns its manifest."""
        return json.loads(self.make("--json", *more).stdout)

    def verify(self, *more, code=0) -> subprocess.CompletedProcess:
        """Verifies a backup, the newest one by default."""
        done = tarn("admin", "backup", "verify", self.path, *more, environment=self.environment, seconds=300)
        assert done.returncode == code, done
        return done

    def names(self) -> list[str]:
        """The names of the complete backups, oldest first."""
        done = tarn("admin", "backup", "list", self.path, "--json", environment=self.environment)
        assert done.returncode == 0, done
        return [each["backup"] for each in json.loads(done.stdout)["backups"]]

    def contents(self) -> set[str]:
        """The names of all contents of objects."""
        return {path.name for path in (self.path / "objects").glob("??/*")}

    def restore(self, data: Path, *more, code=0, environment=SECRET) -> subprocess.CompletedProcess:
        """Restores the newest backup into a data directory."""
        done = tarn("restore", self.path, "--data", data, *more, environment=self.environment | environment, seconds=300)
        assert done.returncode == code and "panicked" not in done.stderr, done
        return done

    def drill(self, *more, code=0) -> subprocess.CompletedProcess:
        """Tries a restore."""
        done = tarn("restore", "--check", self.path, *more, environment=self.environment | SECRET, seconds=300)
        assert done.returncode == code, done
        return done

    def begin(self, *more) -> subprocess.Popen:
        """Begins a backup, and returns its process."""
        command = [str(BINARY), "admin", "backup", str(self.path), "--data", str(self.server.data), *map(str, more)]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        return subprocess.Popen(command, env=ENVIRONMENT | self.environment | SECRET, **pipes)


VAULT = "vault"


class BucketBackups(Backups):
    """Backups of an engine in a bucket of another one."""

    def __init__(self, account: Account, server: Server, *options, prefix="tarn/backups"):
        super().__init__(f"s3://{VAULT}/{prefix}", server, *options)
        self.client, self.prefix = account.client(), prefix
        self.environment = {
            "AWS_ENDPOINT_URL": account.endpoint, "AWS_REGION": account.region,
            "AWS_ACCESS_KEY_ID": account.access_key, "AWS_SECRET_ACCESS_KEY": account.secret_key,
        }  # fmt: skip

    def keys(self) -> set[str]:
        """What is in the place, relative to it."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=VAULT, Prefix=f"{self.prefix}/")
        return {each["Key"].removeprefix(f"{self.prefix}/") for page in pages for each in page.get("Contents", [])}

    def contents(self) -> set[str]:
        return {key.rpartition("/")[2] for key in self.keys() if key.startswith("objects/")}

    def uploads(self) -> list[dict]:
        """The uploads that were not ended."""
        return self.client.list_multipart_uploads(Bucket=VAULT).get("Uploads", [])

    def damage(self, key: str):
        """Changes an object, which keeps its size."""
        where = {"Bucket": VAULT, "Key": f"{self.prefix}/{key}"}
        content = bytearray(self.client.get_object(**where)["Body"].read())
        content[len(content) // 2] ^= 0x40
        self.client.put_object(**where, Body=bytes(content))

    def check_tidy(self):
        """Checks that there is nothing except complete backups."""
        names, keys = self.names(), self.keys()
        other = {key for key in keys if not key.startswith(("objects/", *(f"{name}/" for name in names)))}
        assert other <= {"tarn-backups", "reread.next"} and "tarn-backups" in other, other
        assert not self.uploads()


@contextmanager
def vault(data: Path):
    """Another engine with a bucket for backups, and its account."""
    with Server(data) as server:
        account = enable(server)
        account.client().create_bucket(Bucket=VAULT)
        yield server, account
        server.stop()


def content_of(key: str) -> bytes:
    """The content of an object that is written once."""
    chance = random.Random(key)
    return chance.randbytes(chance.choice(SIZES))


class Load:
    """Threads that write, overwrite and delete as fast as they can. What was acknowledged is in `keys` and `users`."""

    def __init__(self, server: Server, account: Account, seed: int):
        self.server, self.account, self.seed = server, account, seed
        self.keys, self.users, self.stop = [], [], threading.Event()
        # The contents that each overwritten key has had.
        self.versions: dict[str, set[str]] = {}

    @contextmanager
    def running(self, threads=2):
        """Runs all threads until the end of the block."""
        work = [self.put_new, self.overwrite, self.create_users]
        with ThreadPoolExecutor(threads * len(work)) as pool:
            running = [pool.submit(each, f"{self.seed}-{number}") for number in range(threads) for each in work]
            try:
                yield self
            finally:
                self.stop.set()
        for each in running:
            each.result()

    def put_new(self, name: str):
        """Stores objects that are never changed."""
        client, number = self.account.client(), 0
        while not self.stop.is_set():
            key, number = f"new/{name}/{number}", number + 1
            client.put_object(Bucket=BUCKET, Key=key, Body=content_of(key))
            self.keys.append(key)

    def overwrite(self, name: str):
        """Stores and deletes objects again and again, so that files are removed all the time."""
        client, chance = self.account.client(), random.Random(name)
        while not self.stop.is_set():
            key, body = f"old/{name}/{chance.randrange(5)}", chance.randbytes(chance.choice(SIZES))
            self.versions.setdefault(key, set()).add(hashlib.md5(body).hexdigest())
            client.put_object(Bucket=BUCKET, Key=key, Body=body)
            if chance.random() < 0.3:
                client.delete_object(Bucket=BUCKET, Key=key)

    def create_users(self, name: str):
        """Creates users."""
        number = 0
        while not self.stop.is_set():
            email, number = f"u{number}@{name}.example", number + 1
            self.server.call("POST", "/admin/user/create", json={"email": email}, expect=200)
            self.users.append(email)

    def check(self, restored: Server, keys: list[str], users: list[str]):
        """Checks that an engine has everything that was acknowledged, and nothing that was never written."""
        account = Account(restored.s3_url, self.account.access_key, self.account.secret_key, self.account.region)
        client = account.client()
        listed = [each["Key"] for page in client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET) for each in page.get("Contents", [])]
        lost = set(keys) - set(listed)
        assert not lost, f"acknowledged objects are not there: {sorted(lost)[:5]}"
        with ThreadPoolExecutor(8) as pool:
            bodies = dict(zip(listed, pool.map(lambda key: client.get_object(Bucket=BUCKET, Key=key)["Body"].read(), listed)))
        for key, body in bodies.items():
            if key.startswith("new/"):
                assert body == content_of(key), key
            else:
                assert hashlib.md5(body).hexdigest() in self.versions[key], key
        emails, cursor = set(), {}
        while cursor is not None:
            page = restored.call("GET", "/admin/user/list", params=cursor | {"limit": 1000}, expect=200, key=self.server.key).json()
            emails |= {each["email"] for each in page["users"]}
            cursor = {"cursor": page["next_cursor"]} if page.get("next_cursor") else None
        assert set(users) <= emails, f"acknowledged users are not there: {set(users) - emails}"


def put_large(account: Account, *keys: str):
    """Stores objects that are files."""
    for key in keys:
        account.client().put_object(Bucket=BUCKET, Key=key, Body=key.encode() * LARGE)


def at(server: Server, account: Account) -> Account:
    """The account at another engine."""
    return Account(server.s3_url, account.access_key, account.secret_key, account.region)


def restored_engine(tmp_path: Path, config: Path) -> Volumes:
    """An engine on restored data, with the configuration of the former one."""
    engine = Volumes(tmp_path, name="new")
    (tmp_path / "new.toml").write_text(config.read_text())
    assert tarn("admin", "key", "reset", "--data", engine.data).returncode == 0
    return engine


def flip(path: Path, at=-1):
    """Damages one byte of a file."""
    content = bytearray(path.read_bytes())
    content[at if at >= 0 else len(content) // 2] ^= 0x40
    # Another file: contents may be linked to those of the engine.
    mode = path.stat().st_mode
    path.unlink()
    path.write_bytes(content)
    os.chmod(path, mode)
