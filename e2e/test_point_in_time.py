"""Point-in-time recovery on SQLite: Litestream follows the database of a running engine, and the engine continues on
what Litestream restores."""

import contextlib
import datetime
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

from objects import enable
from support import ENVIRONMENT, STOP_SECONDS, Server, eventually

LITESTREAM = Path(sys.executable).with_name("litestream")
BODY = b"x" * 15_000
MANY = 100


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
    """After `kill -9` the restored database has every row that Litestream has copied, and the engine continues on it.

    Nothing is written while Litestream begins to copy: its page says what is known of that."""
    scratch = tmp_path / "scratch.db"
    with Server(tmp_path / "data") as server:
        client = enable(server).client()
        client.create_bucket(Bucket="bucket")
        replica = Litestream(server.data, tmp_path / "replica")
        with replica:
            first = create_user(server, "first@example.org")
            eventually(lambda: first in replica.users(scratch), what="the first user in the replica")
            keys = {f"object-{number}" for number in range(MANY)}
            for key in keys:
                client.put_object(Bucket="bucket", Key=key, Body=BODY)
            last = create_user(server, "last@example.org")
            eventually(lambda: last in replica.users(scratch), what="the last user in the replica")
            server.kill()
            replica.end(signal.SIGTERM)
        replace_database(server, replica, tmp_path / "aside")
        server.start()
        listed = client.list_objects_v2(Bucket="bucket")["Contents"]
        assert {each["Key"] for each in listed} == keys
        assert client.get_object(Bucket="bucket", Key=min(keys))["Body"].read() == BODY
        # From here on there is another history: it goes into another replica.
        later = Litestream(server.data, tmp_path / "later")
        with later:
            second = create_user(server, "second@example.org")
            eventually(lambda: {first, last, second} <= later.users(scratch), what="all users in the new replica")
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
