"""Two engines on one PostgreSQL: the database belongs to one installation of the local driver, or to the fake driver."""

import hashlib
import re
import subprocess
import time
from pathlib import Path

import pytest

from databases import needs_postgresql, proxied_database
from instances import Instances, needs_root
from support import Server, eventually, free_port, refused_start, tarn

pytestmark = [needs_root, needs_postgresql]
MIGRATIONS = sorted((Path(__file__).parents[1] / "migrations").glob("*.sql"))


@pytest.fixture
def database():
    """A database that both engines can reach."""
    with proxied_database() as made:
        made.listen()
        yield made


def refused_engine(directory, database, key) -> str:
    """What another engine with the local driver says, which must not start."""
    ports = [part for name in ("listen", "ssh-listen", "s3-listen") for part in (f"--{name}", f"127.0.0.1:{free_port()}")]
    done = tarn("serve", "--data", directory, "--driver", "local", "--database", database.url, "--secret-key-file", key, *ports)
    assert done.returncode == 1, done
    return done.stderr


def adopt(directory, database):
    """Gives the database to another data directory."""
    return tarn("admin", "driver", "adopt", "--data", directory, "--database", database.url)


def bound(database) -> str:
    """What the database remembers."""
    return database.sql(database.name, "select value from installation where key = 'local_driver'")


def make_older(database):
    """Gives the database the schema before the newest one."""
    database.sql(database.name, "create table migrations (version bigint primary key, hash text, program text); create sequence event_numbers")
    for number, path in enumerate(MIGRATIONS[:-1], 1):
        database.sql(database.name, path.read_text())
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        database.sql(database.name, f"insert into migrations values ({number}, '{digest}', '0.1.0')")


def bind_to(database, installation: str, seen: str):
    """Writes into the database what an engine of another installation wrote there."""
    row = f"('local_driver', '{installation} {seen} another-boot /elsewhere')"
    database.sql(database.name, f"insert into installation values {row} on conflict (key) do update set value = excluded.value")


def contents(database) -> str:
    """The schema of the database, and what it says about itself."""
    columns = "select table_name, column_name from information_schema.columns where table_schema = 'public' order by 1, 2"
    return "".join(database.sql(database.name, sql) for sql in (columns, "table migrations order by 1", "table installation order by 1"))


def test_foreign_database_of_older_schema_is_not_changed(tmp_path, database):
    """What a newer program may not use, it does not bring to its schema: an older engine may be at work there."""
    make_older(database)
    key = tmp_path / "no.key"
    bind_to(database, "abc123", "stopped")
    before = contents(database)
    assert "installation abc123" in refused_engine(tmp_path / "second", database, key)
    assert "whose instances and volumes are real" in refused_start(tmp_path / "fake", "--database", database.url)
    assert contents(database) == before
    bind_to(database, "abc123", str(time.time_ns() // 1000))
    before = contents(database)
    done = adopt(tmp_path / "second", database)
    assert done.returncode == 1 and "stop it first" in done.stderr, done
    # A copy of the data directory waits until the first one is silent.
    copy = Server(tmp_path / "copy", "--database", database.url, driver="local")
    copy.data.mkdir(mode=0o700)
    (copy.data / "installation").write_text("abc123")
    with copy.launch():
        eventually(lambda: "used this database" in copy.output(), what="an engine that waits for the other one")
        assert contents(database) == before
    assert not key.exists() and not (tmp_path / "second" / "installation").exists()


def test_drivers_share_no_database(tmp_path, database):
    """Replicas with the fake driver share a database, and an engine with the local driver is refused there until an
    operator gives it the database; then the fake driver is refused."""
    key = tmp_path / "data" / "secret.key"
    with Server(tmp_path / "data", "--database", database.url) as first:
        made = first.call("POST", "/cluster/create", json={"instance_type": "1xH100"}, expect=202).json()
        first.finish(made["request_id"])
        # What an older program leaves, which binds nothing.
        database.sql(database.name, "delete from installation where key = 'local_driver'")
        unbound = Server(tmp_path / "unbound", "--database", database.url, driver="local")
        with unbound.launch():
            eventually(lambda: "another engine uses this database" in unbound.output(), what="an engine that waits")
        with Server(tmp_path / "data", "--database", database.url) as second:
            said = refused_engine(tmp_path / "local", database, key)
            assert "belongs to the fake driver" in said and "tarn admin driver adopt" in said
            done = adopt(tmp_path / "local", database)
            assert done.returncode == 1 and "stop every engine" in done.stderr, done
            assert second.call("GET", f"/cluster/info/{made['cluster_id']}", expect=200).json()["cluster_info"]["status"] == "RUNNING"
            second.stop()
        first.stop()
    assert "belongs to the fake driver" in refused_engine(tmp_path / "local", database, key)
    # The server may need a moment to notice that the engine has ended.
    done = eventually(lambda: (said := adopt(tmp_path / "local", database)).returncode == 0 and said, what="the adoption")
    assert "no longer to the fake driver" in done.stdout, done
    assert "are real" in refused_start(tmp_path / "data", "--database", database.url)


def test_second_installation_is_refused(tmp_path, database):
    """Another installation is refused at its start and changes nothing. The first one keeps its clusters, through a
    `kill -9` as well, and also at another path."""
    second = tmp_path / "second"
    with Instances(tmp_path, "--database", database.url, name="first") as first:
        cluster = first.create("kept")
        key = first.data / "secret.key"
        said = refused_engine(second, database, key)
        installation = (first.data / "installation").read_text().strip()
        assert installation in said and "tarn admin driver adopt" in said and str(second) in said
        assert not (second / "installation").exists() and not (second / "instances").exists()
        done = adopt(second, database)
        assert done.returncode == 1 and "stop it first" in done.stderr, done
        assert not (second / "installation").exists(), "a refused adoption changes nothing"

        first.process.kill()
        first.process.wait()
        first.start()
        assert first.info(cluster["id"])["status"] == "RUNNING"
        first.destroy(cluster["id"])
        first.stop()
        assert f"{installation} stopped" in bound(database)
        # The first directory is moved. Nothing else is necessary.
        moved = tmp_path / "moved"
        first.data.rename(moved)
        first.command[first.command.index(str(first.data))] = str(moved)
        first.data = moved
        first.start()
        first.call("GET", "/cluster/list", expect=200)


def test_database_is_given_to_another_installation(tmp_path, database):
    """After the data directory was lost, an operator gives the database to another one, and the earlier one is refused."""
    with Instances(tmp_path, "--database", database.url, name="first") as first:
        key = tmp_path / "kept.key"
        key.write_bytes((first.data / "secret.key").read_bytes())
        key.chmod(0o600)
        first.stop()
        second = Instances(tmp_path, "--database", database.url, "--secret-key-file", key, name="second")
        done = adopt(second.data, database)
        assert done.returncode == 0, done
        installation = (second.data / "installation").read_text().strip()
        assert re.search(rf"belongs to installation {installation} .* no longer to", done.stdout), done
        assert installation in refused_engine(first.data, database, key)
        (second.data / "admin.key").write_bytes((first.data / "admin.key").read_bytes())
        with second:
            second.destroy(second.create("here")["id"])
            # A wrong use: the row is changed while the engine runs, as an older program could. It stops.
            database.sql(database.name, "update installation set value = 'zzzzzz stopped elsewhere' where key = 'local_driver'")
            eventually(lambda: second.process.poll() is not None, what="the end of an engine without its database")
            assert "given to another engine" in second.output()
            assert adopt(second.data, database).returncode == 0
            second.start()
        # For the end of the first engine's fixture.
        assert adopt(first.data, database).returncode == 0


def test_sqlite_needs_no_adoption(tmp_path):
    """A SQLite file is in its data directory and belongs to that."""
    done = tarn("admin", "driver", "adopt", "--data", tmp_path)
    assert done.returncode == 1 and "only a PostgreSQL database" in done.stderr
    assert subprocess.run(["ls", tmp_path], capture_output=True).stdout == b""
