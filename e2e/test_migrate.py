"""`tarn admin migrate`: an engine continues on PostgreSQL what it began on SQLite, and back."""

import itertools
import os
import re
import signal
import sqlite3
import subprocess
import tempfile
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from objects import Account, enable
from support import BINARY, ENVIRONMENT, Server, eventually, tarn
from test_full_disk import fill_disk, needs_root

SERVER = os.environ.get("TARN_TEST_POSTGRES", "")
pytestmark = pytest.mark.skipif(not SERVER, reason="needs scripts/with-postgres")
LARGE = b"large object\n" * 10_000
PAGES = (
    "/me", "/cluster/list", "/storage/list", "/user/info", "/user/organization/info", "/user/preferences", "/user/ssh-key/list",
    "/request/list", "/object-storage/bucket/list", "/object-storage/usage", "/admin/user/list", "/admin/limits", "/job/list",
)  # fmt: skip
TABLES = "select count(*) from pg_class where relnamespace = 'public'::regnamespace"
DISK_MIB = 24
_numbers = itertools.count(1)


def sql(address: str, *statements: str) -> str:
    """Runs statements on a server, and returns what they print."""
    commands = [part for statement in statements for part in ("-c", statement)]
    done = subprocess.run(["psql", address, "-qAt", *commands], check=True, env=ENVIRONMENT, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def database():
    """The address of an empty database."""
    name = f"migrate_{os.getpid()}_{next(_numbers)}"
    sql(SERVER, f"create database {name} template template0 lc_collate 'C' lc_ctype 'C' encoding 'UTF8'")
    yield f"{SERVER.rpartition('/')[0]}/{name}"
    sql(SERVER, f"drop database {name} with (force)")


def migrate(data, *options, **keywords):
    """Runs the command where it must succeed. Returns the sums of the tables, and what was printed."""
    done = tarn("admin", "migrate", "--data", data, *options, **keywords)
    assert done.returncode == 0, done
    _, _, table = done.stdout.partition("CHECKSUM IN BOTH\n")
    sums = dict(re.findall(r"^(\w+) +(\d+  [0-9a-f]{32})$", table, re.M))
    assert len(sums) > 20, done.stdout
    return sums, done.stdout


def refused(data, *options) -> str:
    """Runs the command where it must be refused, and returns its message."""
    done = tarn("admin", "migrate", "--data", data, *options)
    assert done.returncode == 1 and "panicked" not in done.stderr, done
    return done.stderr


def fill(server) -> tuple[Account, list[str]]:
    """Gives an engine users, clusters, volumes, jobs and objects, and pages about them."""
    call = lambda path, body, expect: server.call("POST", path, json=body, expect=expect).json()  # noqa: E731
    call("/admin/user/create", {"email": "ada@example.org", "org_name": "Ünïcode 'lab'"}, 200)
    cluster = call("/cluster/create", {"instance_type": "1xH100", "tp_cluster_name": "kept"}, 202)
    server.finish(cluster["request_id"])
    volume = call("/storage/create", {"name": "volume", "size": 5}, 202)
    server.finish(volume["request_id"])
    account = enable(server)
    s3 = account.client()
    s3.create_bucket(Bucket="bucket")
    s3.put_bucket_versioning(Bucket="bucket", VersioningConfiguration={"Status": "Enabled"})
    for body in (b"first\0", b"second\0\xff", LARGE):
        s3.put_object(Bucket="bucket", Key="ключ/key", Body=body)
    pages = [f"/cluster/info/{cluster['cluster_id']}", f"/request/info/{volume['request_id']}"]
    return account, pages


def answers(server, account: Account, pages: list[str]) -> dict:
    """What clients see. Times that pass, measurements and the numbers of calls are left out."""
    seen = {path: server.call("GET", path, expect=200).json() for path in (*PAGES, *pages)}
    s3 = Account(server.s3_url, account.access_key, account.secret_key, account.region).client()
    versions = s3.list_object_versions(Bucket="bucket")["Versions"]
    bodies = [s3.get_object(Bucket="bucket", Key=each["Key"], VersionId=each["VersionId"])["Body"].read() for each in versions]
    assert LARGE in bodies
    moving = re.compile(r"(used_gb|uptime|elapsed|age|requests|last_used|cost|spent|message|now)")
    return {"versions": [each["ETag"] for each in versions], "bodies": bodies} | {
        path: without(body, moving) for path, body in seen.items()
    }


def without(value, names: re.Pattern):
    """A body without the fields whose names match."""
    if isinstance(value, dict):
        return {name: without(below, names) for name, below in value.items() if not names.search(name)}
    return [without(each, names) for each in value] if isinstance(value, list) else value


def test_engine_continues_on_other_database(tmp_path, database):
    """An engine with real data continues on PostgreSQL and then on SQLite again; every table is the same."""
    data = tmp_path / "data"
    with Server(data) as server:
        account, pages = fill(server)
        before = answers(server, account, pages)
        # An engine that runs is not copied.
        assert "already running" in refused(data, "--to", database)
        server.stop()
    old = (data / "tarn.db").read_bytes()
    there, said = migrate(data, "--to", database)
    assert (data / "tarn.db").read_bytes() == old, "the old database is not changed"
    assert database not in said and "Set `database`" in said and "secret.key" in said
    assert "is not empty" in refused(data, "--to", database)
    assert "tarn.db exists" in refused(data, "--database", database, "--to", "sqlite")
    (data / "tarn.db").rename(tmp_path / "old.db")
    # What was copied is copied back as it is, before an engine has seen it.
    back, said = migrate(data, "--database", database, "--to", "sqlite")
    assert back == there and int(there["objects"].split()[0]) == 1 and int(there["versions"].split()[0]) == 2
    assert "Remove `database`" in said
    (data / "tarn.db").unlink()
    with Server(data, "--database", database) as server:
        assert answers(server, account, pages) == before
        made = server.call("POST", "/cluster/create", json={"instance_type": "1xH100", "tp_cluster_name": "later"}, expect=202).json()
        server.finish(made["request_id"])
        before = answers(server, account, pages)
        assert "connected from" in refused(data, "--database", database, "--to", "sqlite")
        server.kill()
    # The engine was killed; its connections end with it.
    config = tmp_path / "tarn.toml"
    config.write_text(f'data = "{data}"\ndatabase = "{database}"\n')
    done = tarn("admin", "migrate", "--config", config, environment={"TARN_MIGRATE_TO": "sqlite"})
    assert done.returncode == 0, done
    with Server(data) as server:
        assert answers(server, account, pages) == before
        names = {each["name"] for each in server.call("GET", "/cluster/list", expect=200).json()["clusters"]}
        assert {"kept", "later"} <= names
        server.stop()


def fill_with_events(data, count: int):
    """Makes the database of a data directory large."""
    with Server(data) as server:
        server.stop()
    with closing(sqlite3.connect(data / "tarn.db")) as db, db:
        db.execute(
            "with recursive n (n) as (select 1000000 union all select n + 1 from n limit ?) insert into events "
            "(number, at_us, actor, scope, object, verb, detail) select n, 1, 'engine', 's', 'o', 'test.event', '{}' from n",
            [count],
        )


@pytest.mark.parametrize("direction", ["server", "file"])
def test_killed_copy_is_started_again(tmp_path, database, direction):
    """A copy that is killed leaves nothing that an engine opens, and runs again."""
    data = tmp_path / "data"
    fill_with_events(data, 100_000)
    options = ["--to", database]
    if direction == "file":
        migrate(data, *options)
        (data / "tarn.db").rename(tmp_path / "old.db")
        options = ["--database", database, "--to", "sqlite"]
    command = [BINARY, "admin", "migrate", "--data", data, *options]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as copying:
        line = next(line for line in copying.stdout if "rows so far" in line)
        copying.send_signal(signal.SIGKILL)
    assert line.startswith("events: ") and copying.returncode == -signal.SIGKILL
    if direction == "server":
        eventually(lambda: sql(database, TABLES) == "0", what="an empty database")
    else:
        assert not (data / "tarn.db").exists() and (data / "tarn.db.incomplete").exists()
    sums, _ = migrate(data, *options)
    assert int(sums["events"].split()[0]) > 100_000 and not (data / "tarn.db.incomplete").exists()
    where = ["--database", database] if direction == "server" else []
    with Server(data, *where) as server:
        server.call("GET", "/me", expect=200)
        server.stop()


@needs_root
def test_full_disk_ends_a_copy_to_a_file(tmp_path, small_disk, database):
    """A copy onto a full disk leaves nothing that an engine opens, and runs again when there is space."""
    assert os.path.ismount(small_disk), "fill only the small disk"
    fill_with_events(tmp_path / "first", 40_000)
    before, _ = migrate(tmp_path / "first", "--to", database)
    options, ballast = ["--database", database, "--to", "sqlite"], small_disk / "ballast"
    for free in (100_000, 1_000_000):
        fill_disk(ballast)
        with open(ballast, "r+b") as file:
            file.truncate(ballast.stat().st_size - free)
        said = refused(small_disk, *options)
        assert "full" in said and "nothing incomplete is left" in said, said
        assert not [*small_disk.glob("tarn.db*")], "nothing is left"
        ballast.unlink()
    sums, _ = migrate(small_disk, *options)
    assert sums == before
    with closing(sqlite3.connect(small_disk / "tarn.db")) as db:
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)


@pytest.fixture
def small_database():
    """The address of an empty database on a disk of its own, and the directory of that."""
    name = f"small_{os.getpid()}_{next(_numbers)}"
    # The server runs as another user, which may not enter the directories of tests.
    owner = Path(sql(SERVER, "show data_directory")).stat()
    place = Path(tempfile.mkdtemp(prefix="tarn-tablespace-"))
    place.chmod(0o755)
    with ExitStack() as made:
        made.callback(place.rmdir)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "tarn-test", place], check=True)
        made.callback(subprocess.run, ["umount", "--lazy", place], check=True)
        space = place / "space"
        space.mkdir(mode=0o700)
        os.chown(space, owner.st_uid, owner.st_gid)
        sql(SERVER, f"create tablespace {name} location '{space}'")
        made.callback(sql, SERVER, f"drop tablespace {name}")
        collation = "template template0 lc_collate 'C' lc_ctype 'C' encoding 'UTF8'"
        sql(SERVER, f"create database {name} {collation} tablespace {name}")
        made.callback(sql, SERVER, f"drop database {name} with (force)")
        yield f"{SERVER.rpartition('/')[0]}/{name}", place


@needs_root
def test_full_disk_ends_a_copy_to_a_server(tmp_path, small_database):
    """A server whose disk is full has an empty database afterwards, and the copy runs again when there is space."""
    address, place = small_database
    data = tmp_path / "data"
    fill_with_events(data, 200_000)
    old = (data / "tarn.db").read_bytes()
    said = refused(data, "--to", address)
    assert "No space left" in said and "nothing incomplete is left" in said, said
    eventually(lambda: sql(address, TABLES) == "0", what="an empty database")
    assert (data / "tarn.db").read_bytes() == old, "the old database is not changed"
    subprocess.run(["mount", "-o", "remount,size=400m", place], check=True)
    sums, _ = migrate(data, "--to", address)
    assert int(sums["events"].split()[0]) > 200_000


def test_wrong_use_changes_nothing(tmp_path, database):
    """Wrong options and directories are refused, and nothing is created."""
    nowhere = tmp_path / "nowhere"
    assert "no database in" in refused(nowhere, "--to", database)
    assert "--to must be a postgres:// URL" in refused(nowhere, "--to", "mysql://a:secret@b/c")
    assert "already" in refused(nowhere, "--to", "sqlite")
    assert "already" in refused(nowhere, "--database", database, "--to", database)
    assert "it is empty" in refused(nowhere, "--database", database, "--to", "sqlite")
    assert not (nowhere / "tarn.db").exists()
    secret = "postgres://tarn:secret@127.0.0.1:1/tarn"
    assert "secret" not in refused(nowhere, "--database", secret, "--to", "sqlite")
    assert "--to" in tarn("admin", "migrate", "--data", nowhere).stderr


def test_other_collation_is_refused(tmp_path, database):
    """A database that does not sort by bytes is refused before anything is written."""
    other = f"{database}_other"
    name = other.rpartition("/")[2]
    sql(SERVER, f"create database {name} template template0 locale_provider icu icu_locale 'en' encoding 'UTF8'")
    try:
        with Server(tmp_path / "data") as server:
            server.stop()
        assert "does not sort by bytes" in refused(tmp_path / "data", "--to", other)
        assert sql(other, TABLES) == "0"
    finally:
        sql(SERVER, f"drop database {name} with (force)")


def test_engine_waits_for_copy(tmp_path, database):
    """An engine does not work on a database while another program has it for itself."""
    # The lock that the command holds while it copies.
    alone = f"select pg_advisory_lock({0x7461_726E_0002})"
    command = ["psql", database, "-qAt", "-c", alone, "-c", "select 'locked'", "-c", "select pg_sleep(600)"]
    engine = Server(tmp_path / "data", "--database", database)
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as lock, open(engine.log, "wb") as log:
        assert any("locked" in line for line in lock.stdout)
        engine.process = subprocess.Popen(engine.command, env=engine.environment, stdout=log, stderr=log)
        try:
            eventually(lambda: "tarn admin migrate" in engine.output(), what="a message that names the command")
            assert not (engine.data / "admin.key").exists()
        finally:
            engine.kill()
            lock.kill()
    # The server ends the statement when it notices that its client is gone.
    sql(SERVER, "select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_sleep(600)%' and pid <> pg_backend_pid()")
    with engine:
        engine.call("GET", "/me", expect=200)
        engine.stop()
