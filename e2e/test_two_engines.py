"""Two engines with the local driver on one PostgreSQL: the database belongs to the installation of one of them."""

import re
import subprocess

import pytest

from databases import needs_postgresql, proxied_database
from instances import Instances, needs_root
from support import eventually, free_port, tarn

pytestmark = [needs_root, needs_postgresql]


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
