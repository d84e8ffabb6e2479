"""Backups beside a running engine, and what is restored from them. `TARN_BACKUP_ROUNDS` sets how many are made under
load."""

import contextlib
import fcntl
import itertools
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from pathlib import Path

import pytest
import requests

from backups import (
    BUCKET, LARGE, SECRET, Backups, BucketBackups, Load, at, content_of, flip, put_large, restored_engine, vault,
)  # fmt: skip
from doctors import doctor_of_engine
from instances import needs_root
from objects import Account, enable, read
from support import BINARY, ENVIRONMENT, Server, eventually, free_port, tarn
from volumes import Volumes

ROUNDS = int(os.environ.get("TARN_BACKUP_ROUNDS", "5"))
POSTGRESQL_ROUNDS = max(1, ROUNDS // 4)
SEED = int(os.environ.get("TARN_BACKUP_SEED", "7"))
_numbers = itertools.count()


@pytest.fixture
def server(tmp_path):
    """A fresh engine, which a test may have stopped or killed."""
    with Server(tmp_path / "data") as running:
        yield running
        if running.process.poll() is None:
            running.stop()


@pytest.fixture
def account(server) -> Account:
    """Object storage with a bucket."""
    account = enable(server)
    account.client().create_bucket(Bucket=BUCKET)
    return account


@pytest.fixture
def backups(server, tmp_path) -> Backups:
    """A directory for backups of the engine."""
    return Backups(tmp_path / "backups", server)


def file_count(data: Path) -> int:
    """How many data files the objects have."""
    return len([*(data / "objects").glob("??/*")])


def row_count(data: Path) -> int:
    """How many data files rows name."""
    with contextlib.closing(sqlite3.connect(f"file:{data / 'tarn.db'}?mode=ro", uri=True)) as database:
        return database.execute("select count(*) from parts").fetchone()[0]


def psql_row_count(address: str) -> int:
    """How many data files rows name on a server."""
    done = subprocess.run(["psql", address, "-qtAc", "select count(*) from parts"], check=True, env=ENVIRONMENT, capture_output=True, text=True)
    return int(done.stdout)


def test_backups_under_load_are_restorable(server, account, backups, tmp_path):
    """Every backup that is made under full load is intact and has everything that was acknowledged before it began.
    Some are made to a bucket."""
    load = Load(server, account, SEED)
    before = []
    with vault(tmp_path / "vault") as (_, other), load.running():
        bucket = BucketBackups(other, server)
        for number in range(ROUNDS):
            place = bucket if number % 3 == 1 else backups
            # Each round begins with more than the last one.
            wanted = len(load.keys) + 20
            eventually(lambda: len(load.keys) >= wanted and load.users, what="load")
            before.append((list(load.keys), list(load.users)))
            manifest = place.make_json("--keep", 2)
            assert not manifest["objects"]["damaged"], manifest
            data = tmp_path / f"restored-{number}"
            place.restore(data)
            with Server(data) as restored:
                load.check(restored, *before[-1])
                restored.stop()
            shutil.rmtree(data)
        if ROUNDS > 1:
            bucket.verify()
            bucket.check_tidy()
    assert len(backups.names()) == min(2, ROUNDS), "older backups were removed"
    for name in backups.names():
        backups.verify("--backup", name)
    assert before[-1][0] and sum(map(len, load.versions.values())) > ROUNDS, "a test without load proves nothing"
    # What was deleted while a backup needed it is removed after the backup.
    eventually(lambda: file_count(server.data) == row_count(server.data), what="a directory without orphans")


def test_restore_is_a_new_installation(server, account, backups, tmp_path):
    """A restored installation has what was kept, and has ended what ran."""
    put_large(account, "large")
    account.client().put_object(Bucket=BUCKET, Key="small", Body=b"small")
    made = server.call("POST", "/cluster/create", json={"instance_type": "1xH100", "tp_cluster_name": "ran"}, expect=202).json()
    server.finish(made["request_id"])
    waiting = server.call("POST", "/cluster/create", json={"instance_type": "8xH100", "tp_cluster_name": "waits"}, expect=202).json()
    stored = server.call("POST", "/storage/create", json={"name": "kept", "size": 10}, expect=202).json()
    server.finish(stored["request_id"])
    (attaching,) = server.call(
        "POST", "/storage/attach", json={"storage_id": stored["storage_id"], "cluster_ids": [made["cluster_id"]]}, expect=202
    ).json()["request_ids"]
    server.finish(attaching)
    body = {"cluster_id": made["cluster_id"], "tp_config": 'commands = ["echo"]\n', "files": True}
    job = server.call("POST", "/job/create", json=body, expect=201).json()["job_id"]
    owner = server.call("GET", "/user/info", expect=200).json()["org_id"]
    server.call("POST", "/admin/grant", json={"to": owner, "amount": 5}, expect=200)
    key = server.key
    backups.make()
    said = backups.restore(tmp_path / "new").stdout
    assert made["cluster_id"] in said and stored["storage_id"] in said, said
    assert not (tmp_path / "new" / "admin.key").exists(), "the administrator's key is never in a backup"
    assert (tmp_path / "new" / "objects" / "installation").read_text() != (server.data / "objects" / "installation").read_text()
    with Server(tmp_path / "new") as restored:
        call = lambda path: restored.call("GET", path, key=key, expect=200).json()  # noqa: E731
        for cluster in (made["cluster_id"], waiting["cluster_id"]):
            info = call(f"/cluster/info/{cluster}")["cluster_info"]
            assert info["status"] == "FAILED" and "restored" in json.dumps(info), info
        request = call(f"/request/info/{waiting['request_id']}")
        assert request["status"] == "FAILED" and "restored at" in request["message"], request
        volume = call(f"/storage/info/{stored['storage_id']}")["storage_info"]
        assert volume["status"] == "FAILED" and not volume.get("attached_clusters"), volume
        ended = call(f"/job/info/{job}")
        assert "failed" in json.dumps(ended) and "restored at" in json.dumps(ended), ended
        assert call("/user/info")["balance"] == 5
        assert read(at(restored, account).client(), BUCKET, "large") == b"large" * LARGE
        assert read(at(restored, account).client(), BUCKET, "small") == b"small"
        # The name is free again when its owner has destroyed the cluster.
        gone = restored.call("DELETE", f"/cluster/{made['cluster_id']}", key=key, expect=202).json()
        restored.finish(gone["request_id"], key=key)
        again = restored.call("POST", "/cluster/create", json={"instance_type": "8xH100", "tp_cluster_name": "ran"}, key=key, expect=202)
        restored.finish(again.json()["request_id"], key=key)
        assert tarn("admin", "key", "reset", "--data", restored.data).returncode == 0
        assert restored.key != key
        restored.call("GET", "/me", expect=200)
        restored.stop()
    # The former one is not affected.
    assert server.call("GET", f"/cluster/info/{made['cluster_id']}", expect=200).json()["cluster_info"]["status"] == "RUNNING"


def test_second_backup_copies_only_what_is_new(server, account, backups):
    """Contents that a directory of backups has are not copied again, and those that no backup names are removed."""
    put_large(account, "first", "second")
    backups.make()
    before = {path.name: path.stat().st_ino for path in (backups.path / "objects").glob("??/*")}
    put_large(account, "third")
    said = backups.make().stdout
    assert "1 files" in said and "are new" in said, said
    assert {path.name: path.stat().st_ino for path in (backups.path / "objects").glob("??/*")}.items() >= before.items()
    assert len(backups.contents()) == 3
    account.client().delete_object(Bucket=BUCKET, Key="first")
    backups.make("--keep", 2)
    assert len(backups.contents()) == 3, "an older backup still names it"
    backups.make("--keep", 1)
    assert len(backups.names()) == 1 and len(backups.contents()) == 2
    backups.verify()


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a filesystem")
def test_backup_on_another_filesystem_is_a_copy(server, account, tmp_path):
    """Where files cannot be linked they are copied."""
    place = tmp_path / "disk"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tarn-test", place], check=True)
    try:
        backups = Backups(place / "backups", server)
        put_large(account, "key")
        assert "(0 by reference)" in backups.make().stdout
        (content,) = (place / "backups" / "objects").glob("??/*")
        assert content.stat().st_nlink == 1 and content.read_bytes() == b"key" * LARGE
        # Without space the backup fails, and leaves nothing that looks like one.
        put_large(account, *[f"{number:0200}" for number in range(4)])
        assert "No space" in backups.make(code=1).stderr
        assert len(backups.names()) == 1 and not [*backups.path.glob("*.partial")]
        backups.verify()
    finally:
        subprocess.run(["umount", "--lazy", place], check=True)


def test_damage_is_found(server, account, backups, tmp_path):
    """A changed or missing file of a backup is found, whatever it is, and such a backup is not restored."""
    put_large(account, "key", "other")
    backups.make()
    (name,) = backups.names()
    (first, second) = sorted((backups.path / "objects").glob("??/*"))
    files = [*(backups.path / name).iterdir(), first]
    assert {path.name for path in files} >= {"tarn.db", "objects.list", "secret.key.sealed", "manifest.json"}
    for path in files:
        intact = path.read_bytes()
        flip(path)
        said = backups.verify(code=1).stdout
        assert path.name in said or "manifest" in said, f"{path.name}: {said}"
        path.unlink()
        backups.verify(code=1)
        assert "damaged" in backups.restore(tmp_path / "refused", code=1).stderr, path.name
        path.write_bytes(intact)
        backups.verify()
    assert not (tmp_path / "refused").exists() and not (tmp_path / "refused.restoring").exists()
    # What is intact can be restored all the same.
    flip(second)
    said = backups.restore(tmp_path / "new", "--damaged", code=1).stdout
    assert second.name in said, said
    with Server(tmp_path / "new") as restored:
        client, intact = at(restored, account).client(), 0
        for key in ("key", "other"):
            with contextlib.suppress(Exception):
                intact += read(client, BUCKET, key) == key.encode() * LARGE
        assert intact == 1
        restored.stop()
    # The next backup replaces what it finds with another size.
    second.write_bytes(b"short")
    backups.make()
    backups.verify()


def test_damaged_objects_do_not_prevent_backups(server, account, backups):
    """A file of the engine that was damaged before is named, and everything else is in the backup."""
    put_large(account, "key", "other")
    damaged = sorted((server.data / "objects").glob("??/*"))[0]
    flip(damaged)
    said = backups.make(code=1)
    assert damaged.name in said.stderr and "1 files" in said.stdout, said
    backups.verify()
    damaged.unlink()
    assert "missing" in backups.make(code=1).stderr


def test_killed_backup_leaves_nothing(server, account, backups):
    """A backup that is killed at any moment is no backup; the next one removes what it left, and the engine goes on."""
    client = account.client()
    for number in range(60):
        client.put_object(Bucket=BUCKET, Key=f"key-{number}", Body=content_of(f"{number}") + b"." * 200_000)
    killed = 0
    for pause in (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4):
        before = set(backups.names()) if backups.path.exists() and (backups.path / "tarn-backups").exists() else set()
        process = backups.begin()
        time.sleep(pause)
        process.send_signal(signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        if (backups.path / "tarn-backups").exists():
            for name in set(backups.names()) - before:
                backups.verify("--backup", name)
    assert killed, "a test in which nothing is killed proves nothing"
    # The hold ended with the process: what is deleted is removed at once.
    files = file_count(server.data)
    client.delete_object(Bucket=BUCKET, Key="key-0")
    eventually(lambda: file_count(server.data) == files - 1, what="the removal of a file")
    backups.make("--keep", 1)
    assert not [*backups.path.glob("*.partial")] and len(backups.contents()) == 59
    backups.verify()


def test_backup_that_stands_still_keeps_its_files(server, account, backups, tmp_path):
    """While a backup stands still, nothing that it needs is removed; then it continues."""
    keys = [f"{number:020}" for number in range(20)]
    put_large(account, *keys)
    for number in range(20):
        backups.path = tmp_path / f"backups-{number}"
        process = backups.begin()
        if stopped_while_holding(process, server.data / "objects" / "backup.hold"):
            break
        assert process.wait(60) == 0
    else:
        pytest.fail("no backup could be stopped while it held the files")
    try:
        for key in keys:
            account.client().delete_object(Bucket=BUCKET, Key=key)
        assert file_count(server.data) == len(keys), "the backup needs them"
    finally:
        process.send_signal(signal.SIGCONT)
    assert process.wait(60) == 0
    backups.verify()
    eventually(lambda: file_count(server.data) == 0, what="the removal after the backup")


def stopped_while_holding(process: subprocess.Popen, hold: Path) -> bool:
    """Stops a backup as soon as it holds the files; `False` if it ended before."""
    while process.poll() is None:
        with contextlib.suppress(FileNotFoundError), open(hold) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                process.send_signal(signal.SIGSTOP)
                state = lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]  # noqa: E731
                eventually(lambda: state() in "TZ", what="the stop")
                # It may have ended its hold before it stopped.
                try:
                    fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
                process.send_signal(signal.SIGCONT)
    return False


def test_wrong_use_is_refused(server, account, backups, tmp_path):
    """Each mistake has a message that says what to do, and changes nothing."""
    assert "--passphrase-file" in backups.make(code=1, environment={}).stderr
    assert "too short" in backups.make(code=1, environment={"TARN_BACKUP_PASSPHRASE": "short"}).stderr
    assert not backups.path.exists() or not backups.names()
    assert "--data" in tarn("admin", "backup", backups.path, "--data", tmp_path / "nowhere", environment=SECRET).stderr
    assert backups.make("--passphrase", "visible in ps", code=2).stderr, "only an environment or a file has secrets"
    assert tarn("admin", "backup").returncode == 2
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "precious").write_text("")
    assert "not empty" in Backups(foreign, server).make(code=1).stderr
    assert [path.name for path in foreign.iterdir()] == ["precious"]
    assert "not a directory of backups" in tarn("admin", "backup", "verify", foreign).stderr
    key = tmp_path / "other.key"
    key.write_text("00" * 32)
    key.chmod(0o600)
    assert "not the master key" in backups.make("--secret-key-file", key, code=1).stderr
    config = tmp_path / "elsewhere.toml"
    config.write_text(f'[object_storage]\ndirectory = "{tmp_path / "elsewhere"}"\n')
    assert "--config" in backups.make("--config", config, code=1).stderr
    backups.make("--keep", 0, code=2)
    backups.make()
    new = tmp_path / "new"
    wrong = {"TARN_BACKUP_PASSPHRASE": "another passphrase"}
    assert "does not open" in backups.restore(new, code=1, environment=wrong).stderr
    assert "--data" in tarn("restore", backups.path, environment=SECRET).stderr
    assert "not an empty directory" in backups.restore(server.data, code=1).stderr
    assert "no backup nothing" in backups.restore(new, "--backup", "nothing", code=1).stderr
    assert "SQLite" in backups.restore(new, "--database", "postgres://nobody@127.0.0.1:9/none", code=1).stderr
    assert not new.exists() and not (tmp_path / "new.restoring").exists()


def test_backup_without_the_key(server, account, backups, tmp_path):
    """A backup can be made without the master key, and restored with a copy of it."""
    backups.make("--without-key", environment={})
    assert not [*backups.path.glob("*/secret*")]
    new = tmp_path / "new"
    assert "--secret-key-file" in backups.restore(new, code=1).stderr
    backups.restore(new, "--secret-key-file", server.data / "secret.key")
    with Server(new) as restored:
        assert at(restored, account).client().list_buckets()["Buckets"]
        restored.stop()


def test_backup_of_a_stopped_engine(server, account, backups, tmp_path):
    """A backup can be made while no engine runs, with objects in another directory."""
    put_large(account, "key")
    server.stop()
    (server.data / "objects").rename(tmp_path / "moved")
    config = tmp_path / "tarn.toml"
    config.write_text(f'[object_storage]\ndirectory = "{tmp_path / "moved"}"\n')
    backups.make("--config", config)
    config.write_text(f'[object_storage]\ndirectory = "{tmp_path / "restored-objects"}"\n')
    backups.restore(tmp_path / "new", "--config", config)
    with Server(tmp_path / "new", "--config", config) as restored:
        assert read(at(restored, account).client(), BUCKET, "key") == b"key" * LARGE
        restored.stop()
    assert len([*(tmp_path / "restored-objects").glob("??/*")]) == 1


def test_drill(server, account, backups, tmp_path):
    """The drill restores a backup, examines it and leaves nothing; it finds a database that is not right."""
    put_large(account, "key")
    backups.make()
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    said = backups.drill("--data", scratch).stdout
    assert "can be restored" in said and "1 files" in said, said
    assert not [*scratch.iterdir()]
    # A row without its file, which no checksum can find.
    server.stop()
    with contextlib.closing(sqlite3.connect(server.data / "tarn.db")) as database, database:
        database.execute("insert into ledger_transactions values ('t-x', 1, 'x', 'x')")
        database.execute("insert into ledger_entries values ('t-x', 0, 'x', 5)")
    backups.make()
    backups.verify()
    assert "ledger" in backups.drill("--data", scratch, code=1).stderr
    assert not [*scratch.iterdir()]


def test_age_is_a_metric_and_a_finding(tmp_path):
    """The age of the last backup is a metric and a finding of the doctor."""
    metrics = f"127.0.0.1:{free_port()}"
    with Server(tmp_path / "data", "--metrics-listen", metrics) as server:
        backups = Backups(tmp_path / "backups", server)
        assert doctor_of_engine(server).level("backups.age") == "note"
        seen = lambda: [line for line in requests.get(f"http://{metrics}/metrics").text.splitlines() if line.startswith("tarn_backup_age_seconds ")]  # noqa: E731
        assert not seen()
        backups.make()
        (line,) = seen()
        assert 0 <= float(line.split()[1]) < 300
        doctor_of_engine(server).expect_level("ok", "backups.age")
        record = server.data / "last-backup.json"
        old = json.loads(record.read_text())
        record.write_text(json.dumps(old | {"created_us": old["created_us"] - 9 * 24 * 3600 * 10**6}))
        doctor_of_engine(server).expect_level("warning", "backups.age")
        record.write_text(json.dumps(old))
        # A backup that was found to be damaged is none.
        database = backups.path / old["name"] / "tarn.db"
        intact = database.read_bytes()
        flip(database)
        backups.verify(code=1)
        doctor_of_engine(server).expect_level("ok", "backups.age")
        backups.verify("--data", server.data, code=1)
        doctor_of_engine(server).expect_level("warning", "backups.age")
        assert "tarn.db" in json.loads(record.read_text())["damaged"]
        eventually(lambda: [line for line in seen() if line.endswith("inf") or line.endswith("Inf")], what="an infinite age")
        database.write_bytes(intact)
        backups.verify("--data", server.data)
        assert json.loads(record.read_text()) == old
        shutil.rmtree(backups.path / old["name"])
        doctor_of_engine(server).expect_level("warning", "backups.age")
        # Without a readable record there is no metric, so that an alert on its absence works.
        record.write_text("damaged")
        assert not seen()
        record.unlink()
        assert not seen()
        server.stop()


@pytest.fixture
def databases():
    """Creates databases on PostgreSQL, and returns their addresses."""
    if "TARN_TEST_POSTGRES" not in os.environ:
        pytest.skip("needs scripts/with-postgres")
    address, names = os.environ["TARN_TEST_POSTGRES"], []

    def sql(statement: str):
        subprocess.run(["psql", address, "-qc", statement], check=True, env=ENVIRONMENT)

    def create() -> str:
        names.append(f"backups_{os.getpid()}_{next(_numbers)}")
        sql(f"create database {names[-1]}")
        return f"{address.rpartition('/')[0]}/{names[-1]}"

    yield create
    for name in names:
        sql(f"drop database {name} with (force)")


def test_postgresql_backups_under_load(databases, tmp_path):
    """Every backup of PostgreSQL under load has everything that was acknowledged before it began, and is restored into
    an empty database."""
    address = databases()
    with Server(tmp_path / "data", "--database", address) as server:
        account = enable(server)
        account.client().create_bucket(Bucket=BUCKET)
        made = server.call("POST", "/cluster/create", json={"instance_type": "1xH100"}, expect=202).json()
        server.finish(made["request_id"])
        load, backups = Load(server, account, SEED), Backups(tmp_path / "backups", server, "--database", address)
        with load.running(threads=1):
            for number in range(POSTGRESQL_ROUNDS):
                wanted = len(load.keys) + 20
                eventually(lambda: len(load.keys) >= wanted and load.users, what="load")
                keys, users = list(load.keys), list(load.users)
                assert backups.make_json("--keep", 2)["database"] == "postgresql"
                data, new = tmp_path / f"restored-{number}", databases()
                backups.restore(data, "--database", new)
                with Server(data, "--database", new) as restored:
                    load.check(restored, keys, users)
                    info = restored.call("GET", f"/cluster/info/{made['cluster_id']}", key=server.key, expect=200).json()["cluster_info"]
                    assert info["status"] == "FAILED", info
                    restored.stop()
                shutil.rmtree(data)
        backups.verify()
        # What was deleted while a backup needed it is removed after it.
        eventually(lambda: file_count(server.data) == psql_row_count(address), what="a directory without orphans")
        server.stop()


def test_postgresql_drill(databases, tmp_path):
    """The drill needs an empty database and leaves it empty, and a restore needs one as well."""
    address, trial = databases(), databases()
    with Server(tmp_path / "data", "--database", address) as server:
        backups = Backups(tmp_path / "backups", server, "--database", address)
        backups.make()
        assert "--database" in backups.drill(code=1).stderr
        for _ in range(2):
            assert "can be restored" in backups.drill("--database", trial).stdout, "the trial leaves an empty database"
        assert "not empty" in backups.restore(tmp_path / "new", "--database", address, code=1).stderr
        assert "PostgreSQL" in backups.restore(tmp_path / "new", code=1).stderr
        server.stop()


@pytest.mark.skipif(os.geteuid() != 0, reason="hides the programs of PostgreSQL in a namespace")
def test_missing_and_old_pg_dump_are_refused(databases, tmp_path):
    """Without pg_dump, or with one that is older than the server, no backup is made."""
    address = databases()
    with Server(tmp_path / "data", "--database", address) as server:
        programs = tmp_path / "bin"
        programs.mkdir()
        hidden = 'mount -t tmpfs none /usr/lib/postgresql && export PATH="$1" && shift && exec "$@"'
        command = ["unshare", "--mount", "sh", "-c", hidden, "sh", f"{programs}:/bin/nowhere", BINARY, "admin", "backup"]
        command += [tmp_path / "backups", "--data", server.data, "--database", address]
        run = lambda: subprocess.run([*map(str, command)], env=ENVIRONMENT | SECRET, capture_output=True, text=True)  # noqa: E731
        assert "pg_dump is missing" in run().stderr
        (programs / "pg_dump").write_text('#!/bin/sh\necho "pg_dump (PostgreSQL) 9.6.24"\n')
        (programs / "pg_dump").chmod(0o755)
        assert "pg_dump has version 9 and the server" in run().stderr
        assert not Backups(tmp_path / "backups", server).names()
        server.stop()


def test_slow_pg_dump_is_waited_for(databases, tmp_path):
    """A dump takes as long as it needs: longer than a transaction of an engine may, or be silent."""
    address = databases()
    with Server(tmp_path / "data", "--database", address) as server:
        programs = tmp_path / "bin"
        programs.mkdir()
        real = max(Path("/usr/lib/postgresql").glob("*/bin/pg_dump"), key=lambda path: int(path.parts[4]))
        # 35 s: the server would end a transaction whose client is silent for 30 s, and the engine one after 10 s.
        (programs / "pg_dump").write_text(f'#!/bin/sh\n[ "$1" = --version ] || sleep 35\nexec {real} "$@"\n')
        (programs / "pg_dump").chmod(0o755)
        command = [BINARY, "admin", "backup", tmp_path / "backups", "--data", server.data, "--database", address]
        slow = ENVIRONMENT | SECRET | {"PATH": f"{programs}:{os.environ['PATH']}"}
        made = subprocess.run([*map(str, command)], env=slow, capture_output=True, text=True)
        assert made.returncode == 0, made
        assert len(Backups(tmp_path / "backups", server).names()) == 1
        server.stop()


@needs_root
def test_volumes_are_restored(tmp_path):
    """A volume in use is cloned, and the restored engine has it with its data."""
    config = tmp_path / "engine.toml"
    with Volumes(tmp_path) as cloud:
        box, volume, idle = cloud.create("box"), cloud.make_volume("used"), cloud.make_volume("idle")
        cloud.finish(cloud.attach(volume, box["id"], live=True)["request_id"])
        cloud.ssh("box", f"echo on the volume > /mnt/{volume}/file && sync -f /mnt/{volume}/file")
        backups = Backups(tmp_path / "backups", cloud, "--config", config)
        assert backups.make_json()["volumes"] == []
        manifest = backups.make_json("--volumes")
        assert {each["id"] for each in manifest["volumes"]} == {volume, idle} and not manifest["volumes_left_out"], manifest
        said = backups.restore(tmp_path / "new", "--config", config).stdout
        assert "2 with their data" in said, said
        # Both run on one host, and none of them touches what belongs to the other. The kernel mounts one of the two.
        cloud.finish(cloud.detach(volume, box["id"], live=True)["request_id"])
        with restored_engine(tmp_path, config) as restored:
            assert restored.volume(volume)["status"] == "READY" and restored.info(box["id"])["status"] == "FAILED"
            again = restored.create("again")
            restored.finish(restored.attach(volume, again["id"], live=True)["request_id"])
            assert restored.ssh("again", f"cat /mnt/{volume}/file").out == "on the volume\n"
        assert cloud.info(box["id"])["status"] == "RUNNING"
        cloud.finish(cloud.attach(volume, box["id"], live=True)["request_id"])
        assert cloud.ssh("box", f"cat /mnt/{volume}/file").out == "on the volume\n"


@needs_root
def test_surviving_pool_is_taken_over(tmp_path):
    """The volumes in a pool that survived continue in the restored installation, and only there."""
    config, pool = tmp_path / "engine.toml", tmp_path / "pool"
    cloud = Volumes(tmp_path)
    config.write_text(config.read_text().replace("[storage]\n", f'[storage]\npool = "{pool}"\n'))
    backups = Backups(tmp_path / "backups", cloud, "--config", config)
    with cloud:
        box, volume = cloud.create("box"), cloud.make_volume("kept")
        cloud.finish(cloud.attach(volume, box["id"], live=True)["request_id"])
        cloud.ssh("box", f"echo on the volume > /mnt/{volume}/file && sync -f /mnt/{volume}/file")
        backups.make()
        assert "--take-over-pool" in backups.restore(tmp_path / "new", "--config", config, code=1).stderr
        said = backups.restore(tmp_path / "new", "--config", config, "--take-over-pool", code=1).stderr
        assert "used by another engine" in said, said
        assert not (tmp_path / "new").exists() and not (tmp_path / "new.restoring").exists()
        cloud.finish(cloud.detach(volume, box["id"])["request_id"])
        cloud.destroy(box["id"])
        cloud.stop()
        backups.restore(tmp_path / "new", "--config", config, "--take-over-pool")
        with restored_engine(tmp_path, config) as restored:
            again = restored.create("again")
            assert restored.volume(volume)["status"] == "READY"
            restored.finish(restored.attach(volume, again["id"], live=True)["request_id"])
            assert restored.ssh("again", f"cat /mnt/{volume}/file").out == "on the volume\n"
            restored.stop()
            former = subprocess.run(cloud.command, env=cloud.environment, capture_output=True, text=True, timeout=60)
            assert former.returncode == 1 and "another installation" in former.stderr, former
            restored.start()
        # The former one is over: it has nothing to remove.
        (tmp_path / "engine" / "volumes.pool").unlink()
        shutil.rmtree(pool)
        cloud.start()
