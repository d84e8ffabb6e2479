"""Point-in-time recovery on SQLite: Litestream follows the database of a running engine, and the engine continues on
what Litestream restores."""

import contextlib
import datetime
import signal
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import requests

from objects import enable
from support import ENVIRONMENT, STOP_SECONDS, Server, eventually

LITESTREAM = Path(sys.executable).with_name("litestream")
WRITERS = 8
# Together more pages than the engine lets its write-ahead log have before it copies them into the database.
BODY = b"x" * 15_000
MANY = 1500


class Litestream:
    """`litestream replicate` for the database of an engine; a context manager that leaves no process behind."""

    def __init__(self, data: Path, replica: Path):
        self.data, self.replica = data, replica
        self.log = replica.with_suffix(".log")
        self.process = None

    def __enter__(self):
        with open(self.log, "ab") as log:
            command = ["setpriv", "--pdeathsig", "KILL", LITESTREAM, "replicate", self.data / "tarn.db", f"file://{self.replica}"]
            self.process = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        return self

    def __exit__(self, *_):
        self.end(signal.SIGKILL)

    def end(self, how: int):
        """Ends it. On SIGTERM it first copies what it has not copied yet."""
        self.process.send_signal(how)
        self.process.wait(STOP_SECONDS)

    def restore(self, target: Path, *options) -> subprocess.CompletedProcess:
        """Restores into a new file."""
        command = [LITESTREAM, "restore", "-o", target, *options, f"file://{self.replica}"]
        return subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True)

    def users(self, scratch: Path, *options) -> set[str]:
        """The users in what it would restore now. None before there is anything to restore."""
        for path in scratch.parent.glob(scratch.name + "*"):
            path.unlink()
        if self.restore(scratch, *options).returncode != 0:
            return set()
        with contextlib.closing(sqlite3.connect(scratch)) as db:
            return {email for (email,) in db.execute("select email from users")}


class Writers:
    """Threads that create users and objects until the engine is gone. `users` and `objects` were acknowledged."""

    def __init__(self, server: Server, client):
        self.server, self.client = server, client
        self.users, self.objects = set(), set()
        self.threads = [threading.Thread(target=self.write, args=(number,)) for number in range(WRITERS)]

    def write(self, number: int):
        """One thread."""
        with requests.Session() as session, contextlib.suppress(Exception):
            session.trust_env = False
            session.headers["Authorization"] = f"Bearer {self.server.key}"
            for count in range(1_000_000):
                email = f"u{number}-{count}@example.org"
                answer = session.post(f"{self.server.url}/admin/user/create", json={"email": email}, timeout=30)
                if answer.status_code == 200:
                    self.users.add(email)
                self.client.put_object(Bucket="bucket", Key=email, Body=BODY)
                self.objects.add(email)

    def run_until_killed(self):
        """Writes until there is much, and kills the engine in the middle of it."""
        for thread in self.threads:
            thread.start()
        eventually(lambda: len(self.objects) >= MANY, seconds=300, what="many objects")
        assert all(thread.is_alive() for thread in self.threads), "the writers are at work when the engine is killed"
        self.server.kill()
        for thread in self.threads:
            thread.join()


def create_user(server: Server, email: str) -> str:
    """Creates a user."""
    server.call("POST", "/admin/user/create", json={"email": email}, expect=200)
    return email


def replace_database(server: Server, litestream: Litestream, aside: Path, *options):
    """What an operator does: the damaged database goes away, with what is beside it, and another one takes its place."""
    aside.mkdir()
    for path in [*server.data.glob("tarn.db*"), server.data / ".tarn.db-litestream"]:
        path.rename(aside / path.name)
    done = litestream.restore(server.data / "tarn.db", "-integrity-check", "full", *options)
    assert done.returncode == 0, done


def test_killed_engine_continues_on_restored_database(tmp_path):
    """After `kill -9` under load, the restored database has every acknowledged row, and the engine continues on it. For a
    while Litestream did not run."""
    scratch = tmp_path / "scratch.db"
    with Server(tmp_path / "data") as server:
        client = enable(server).client()
        client.create_bucket(Bucket="bucket")
        replica = Litestream(server.data, tmp_path / "replica")
        with replica:
            first = create_user(server, "first@example.org")
            eventually(lambda: first in replica.users(scratch), what="the first user in the replica")
        for number in range(MANY):
            client.put_object(Bucket="bucket", Key=f"unseen-{number}", Body=BODY)
        writers = Writers(server, client)
        with replica:
            writers.run_until_killed()
            replica.end(signal.SIGTERM)
        replace_database(server, replica, tmp_path / "aside")
        server.start()
        with contextlib.closing(sqlite3.connect(server.data / "tarn.db")) as db:
            users = {email for (email,) in db.execute("select email from users")}
        pages = client.get_paginator("list_objects_v2").paginate(Bucket="bucket")
        objects = {each["Key"] for page in pages for each in page["Contents"]}
        assert writers.users | {first} <= users
        assert writers.objects | {f"unseen-{number}" for number in range(MANY)} <= objects
        assert client.get_object(Bucket="bucket", Key=min(writers.objects))["Body"].read() == BODY
        # From here on there is another history: it goes into another replica.
        later = Litestream(server.data, tmp_path / "later")
        with later:
            second = create_user(server, "second@example.org")
            eventually(lambda: {first, second} <= later.users(scratch), what="both users in the new replica")
        server.stop()


def test_database_of_an_earlier_time_is_restored(tmp_path):
    """The database of a point in time has what was there, and nothing that came later."""
    scratch = tmp_path / "scratch.db"
    with Server(tmp_path / "data") as server, Litestream(server.data, tmp_path / "replica") as replica:
        before = create_user(server, "before@example.org")
        eventually(lambda: before in replica.users(scratch), what="the first user in the replica")
        moment = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        after = create_user(server, "after@example.org")
        eventually(lambda: after in replica.users(scratch), what="the second user in the replica")
        server.stop()
        replica.end(signal.SIGTERM)
        replace_database(server, replica, tmp_path / "aside", "-timestamp", moment)
        server.start()
        users = {user["email"] for user in server.call("GET", "/admin/user/list", expect=200).json()["users"]}
        assert before in users and after not in users
        server.stop()
