"""Restores that are killed, that run out of disk, or that run at the same time; and what survived of an installation."""

import os
import random
import shutil
import signal
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from backups import BUCKET, SECRET, Backups, flip
from instances import needs_root
from objects import Account, enable, read
from support import BINARY, ENVIRONMENT, Server, eventually, tarn
from test_full_disk import fill_disk
from volumes import Volumes

DISK_MIB = 24
LARGE = 100_000
KEYS = [f"key-{number:02}" for number in range(30)]
SEED = int(os.environ.get("TARN_BACKUP_SEED", "7"))


class Installation:
    """An engine with its objects in a directory of its own, and its backups."""

    def __init__(self, place: Path):
        self.place, self.objects = place, place / "objects"
        self.config = place / "tarn.toml"
        self.name_objects(self.objects)
        self.server = Server(place / "data", "--config", self.config)
        self.backups = Backups(place / "backups", self.server, "--config", self.config)
        self.account = None

    def name_objects(self, directory: Path):
        """Names the directory of objects in the configuration."""
        self.config.write_text(f'[object_storage]\ndirectory = "{directory}"\n')

    def fill(self):
        """Stores objects and makes a backup of them."""
        self.account = enable(self.server)
        self.account.client().create_bucket(Bucket=BUCKET)
        for key in KEYS:
            self.put(key)
        self.backups.make()

    def put(self, key: str):
        """Stores an object that is a file."""
        self.account.client().put_object(Bucket=BUCKET, Key=key, Body=key.encode() * (LARGE // len(key)))

    def client(self, server: Server):
        """A client of another engine on the same rows."""
        return Account(server.s3_url, self.account.access_key, self.account.secret_key, self.account.region).client()

    def check(self, server: Server, keys=KEYS):
        """Checks that an engine has all objects."""
        client = self.client(server)
        for key in keys:
            assert read(client, BUCKET, key) == key.encode() * (LARGE // len(key)), key

    def files(self) -> list[Path]:
        """The files of objects, by age."""
        return sorted(self.objects.glob("??/f-*"), key=lambda path: path.stat().st_mtime_ns)

    @contextmanager
    def restored(self, data: Path):
        """An engine on restored data."""
        with Server(data, "--config", self.config) as server:
            yield server
            server.stop()

    def begin_restore(self, data: Path, *more) -> subprocess.Popen:
        """Begins a restore, and returns its process."""
        command = [BINARY, "restore", self.backups.path, "--data", data, "--config", self.config, *more]
        pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen([*map(str, command)], env=ENVIRONMENT | SECRET, **pipes)

    def kill_restore(self, data: Path, within: float, *more) -> bool:
        """Kills a restore at some moment; `False` if it was complete before."""
        with self.begin_restore(data, *more) as process:
            time.sleep(within)
            process.send_signal(signal.SIGKILL)
        return process.returncode == -signal.SIGKILL


@pytest.fixture
def installation(tmp_path):
    """A filled installation whose engine runs."""
    made = Installation(tmp_path)
    with made.server:
        made.fill()
        yield made


def duration(work) -> float:
    """How long something takes here, to choose moments at which it is killed."""
    began = time.monotonic()
    work()
    return time.monotonic() - began


def test_killed_restore_is_repeated(installation, tmp_path):
    """Wherever a restore is killed, it left an installation that works, or nothing that keeps the next one from it."""
    made, chance, killed = installation, random.Random(SEED), 0
    made.name_objects(tmp_path / "new-objects")
    whole = duration(lambda: made.backups.restore(tmp_path / "first", "--config", made.config))
    shutil.rmtree(tmp_path / "first")
    shutil.rmtree(tmp_path / "new-objects")
    for number in range(8):
        data = tmp_path / f"new-{number}"
        made.name_objects(tmp_path / f"objects-{number}")
        for _ in range(3):
            killed += made.kill_restore(data, chance.random() * whole)
            if data.exists():
                break
        else:
            made.backups.restore(data, "--config", made.config)
        assert not [*tmp_path.glob("*.restoring")], "nothing is left"
        with made.restored(data) as server:
            made.check(server)
    assert killed >= 5, "a test in which little is killed proves little"


def test_full_disk_ends_a_restore(tmp_path, small_disk):
    """A restore onto a full disk fails, leaves nothing there, and works when there is space."""
    assert os.path.ismount(small_disk), "fill only the small disk"
    place = tmp_path / "place"
    place.mkdir()
    made, target, ballast = Installation(place), small_disk / "new", small_disk / "ballast"
    with made.server:
        made.fill()
        made.server.stop()
    made.name_objects(target / "objects")
    for free in (0, 100_000, 1_000_000, 2_500_000):
        fill_disk(ballast)
        with open(ballast, "r+b") as file:
            file.truncate(ballast.stat().st_size - free)
        said = made.backups.restore(target, "--config", made.config, code=1).stderr
        assert "No space left" in said or "full" in said, said
        assert [path.name for path in small_disk.iterdir()] == ["ballast"], "nothing is left"
        ballast.unlink()
    made.backups.restore(target, "--config", made.config)
    with made.restored(target) as server:
        made.check(server)


def test_one_of_two_restores_wins(installation, tmp_path):
    """Of restores into one directory at the same time one succeeds, and the others leave it alone."""
    data, made = tmp_path / "new", installation
    made.name_objects(tmp_path / "new-objects")
    running = [made.begin_restore(data) for _ in range(4)]
    said = [process.communicate(timeout=120)[0] for process in running]
    codes = [process.returncode for process in running]
    assert sorted(codes) == [0, 1, 1, 1], said
    for code, text in zip(codes, said):
        assert code == 0 or "another restore" in text or "not an empty directory" in text, text
    assert not [*tmp_path.glob("*.restoring")]
    with made.restored(data) as server:
        made.check(server)


def test_killed_drill_is_cleared_away(installation, tmp_path):
    """The next drill removes what a killed one left, and nothing of one that still runs."""
    made, scratch = installation, tmp_path / "scratch"
    scratch.mkdir()
    held = begin_drill(made, scratch)
    (alive,) = scratch.iterdir()
    dead = begin_drill(made, scratch)
    dead.kill()
    dead.wait()
    assert len([*scratch.iterdir()]) == 2
    made.backups.drill("--data", scratch)
    assert [*scratch.iterdir()] == [alive]
    held.send_signal(signal.SIGCONT)
    assert held.wait(60) == 0 and not [*scratch.iterdir()]


def begin_drill(made: Installation, scratch: Path) -> subprocess.Popen:
    """Begins a drill, and stops it as soon as it has its directory."""
    before = {*scratch.iterdir()}
    command = [BINARY, "restore", "--check", made.backups.path, "--data", scratch]
    for _ in range(20):
        process = subprocess.Popen([*map(str, command)], env=ENVIRONMENT | SECRET, stdout=subprocess.DEVNULL)
        while process.poll() is None:
            if {*scratch.iterdir()} - before:
                process.send_signal(signal.SIGSTOP)
                state = lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(") ")[2][0]  # noqa: E731
                eventually(lambda: state() in "TZ", what="the stop")
                # It may have been complete before it stopped.
                if {*scratch.iterdir()} - before:
                    return process
                process.send_signal(signal.SIGCONT)
    pytest.fail("no drill could be stopped")


def test_surviving_objects_are_taken_over(installation, tmp_path):
    """A restored installation continues with the objects that survived: what is missing comes from the backup, what the
    backup does not know stays until its engine removes it, and the former engine is refused."""
    made, new = installation, tmp_path / "new"
    take_over = ("--config", made.config, "--take-over-objects", made.objects)
    assert "used by an engine" in made.backups.restore(new, *take_over, code=1).stderr
    made.put("later")
    made.server.stop()
    assert "--take-over-objects needs" in made.backups.restore(new, "--take-over-objects", made.objects, code=1).stderr
    assert "--take-over-objects needs" in made.backups.restore(new, *take_over[:3], tmp_path, code=1).stderr
    files = made.files()
    before = {path: path.stat().st_ino for path in files}
    files[0].unlink()
    flip(files[1])
    said = made.backups.restore(new, *take_over, "--verify").stdout
    assert "1 more survived" in said, said
    assert files[-1].exists(), "nothing that the backup does not name was removed"
    assert {path: path.stat().st_ino for path in files[2:]}.items() <= before.items(), "what was intact was not touched"
    with made.restored(new) as server:
        made.check(server)
        eventually(lambda: not files[-1].exists(), what="the removal of what has no row")
        former = subprocess.run(made.server.command, env=made.server.environment, capture_output=True, text=True, timeout=60)
        assert former.returncode == 1 and "another installation" in former.stderr, former
    # Those of another installation.
    (made.objects / "installation").write_text("another")
    assert "another installation" in made.backups.restore(tmp_path / "other", *take_over, code=1).stderr
    assert not [*tmp_path.glob("*.restoring")] and not (tmp_path / "other").exists()


def test_missing_survivors_are_reported(installation, tmp_path):
    """What neither survived nor is in the backup is named, and the rest is restored."""
    made, new = installation, tmp_path / "new"
    made.server.stop()
    lost, damaged = made.files()[:2]
    for path in (lost, damaged):
        (made.backups.path / "objects" / path.parent.name / path.name).unlink()
    lost.unlink()
    flip(damaged)
    take_over = ("--config", made.config, "--take-over-objects", made.objects, "--damaged", "--verify")
    said = made.backups.restore(new, *take_over, code=1).stdout
    assert f"{lost.name}: it is missing" in said and f"{damaged.name}: its content is not" in said, said
    assert damaged.exists(), "what cannot be replaced is not removed"
    with made.restored(new) as server:
        made.check(server, KEYS[2:])


def test_killed_take_over_leaves_one_installation(installation, tmp_path):
    """Wherever a restore is killed that takes objects over, the former engine starts, or the new one does."""
    made, new, chance = installation, tmp_path / "new", random.Random(SEED)
    made.server.stop()
    take_over = ("--take-over-objects", made.objects, "--verify")
    whole = duration(lambda: made.backups.drill("--data", tmp_path))
    for _ in range(10):
        made.kill_restore(new, chance.random() * whole, *take_over)
        if new.exists():
            break
        made.server.start()
        made.check(made.server)
        made.server.stop()
    else:
        made.backups.restore(new, "--config", made.config, *take_over)
    with made.restored(new) as server:
        made.check(server)
        former = subprocess.run(made.server.command, env=made.server.environment, capture_output=True, text=True, timeout=60)
        assert former.returncode == 1 and "another installation" in former.stderr, former


def test_take_over_is_completed_by_the_first_engine(installation, tmp_path):
    """After a kill between the name of the data directory and the mark of the objects, either engine starts, and the
    former one is refused once the new one did."""
    made, new = installation, tmp_path / "new"
    made.server.stop()
    former = (made.objects / "installation").read_text()
    made.backups.restore(new, "--config", made.config, "--take-over-objects", made.objects)
    # As the kill leaves it.
    (new / "objects.take-over").write_text(former)
    (made.objects / "installation").write_text(former)
    made.server.start()
    made.check(made.server)
    made.server.stop()
    with made.restored(new) as server:
        made.check(server)
        assert not (new / "objects.take-over").exists()
    done = subprocess.run(made.server.command, env=made.server.environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "another installation" in done.stderr, done


@needs_root
def test_killed_restore_keeps_the_pool(tmp_path):
    """Wherever a restore is killed that takes a pool over, the volume is there for the former engine or for the new
    one."""
    config, pool, chance = tmp_path / "engine.toml", tmp_path / "pool", random.Random(SEED)
    cloud = Volumes(tmp_path)
    config.write_text(config.read_text().replace("[storage]\n", f'[storage]\npool = "{pool}"\n'))
    backups = Backups(tmp_path / "backups", cloud, "--config", config)
    new = tmp_path / "new"
    command = [BINARY, "restore", backups.path, "--data", new, "--config", config, "--take-over-pool"]
    with cloud:
        volume = cloud.make_volume("kept")
        backups.make()
        cloud.stop()
        whole = duration(lambda: backups.drill("--data", tmp_path))
        for _ in range(8):
            with subprocess.Popen([*map(str, command)], env=ENVIRONMENT | SECRET, stdout=subprocess.DEVNULL) as process:
                time.sleep(chance.random() * whole)
                process.kill()
            if new.exists():
                break
            cloud.start()
            assert cloud.volume(volume)["status"] == "READY"
            cloud.stop()
        else:
            backups.restore(new, "--config", config, "--take-over-pool")
        restored = Volumes(tmp_path, name="new")
        (tmp_path / "new.toml").write_text(config.read_text())
        assert tarn("admin", "key", "reset", "--data", new).returncode == 0
        with restored:
            assert restored.volume(volume)["status"] == "READY"
            restored.stop()
            former = subprocess.run(cloud.command, env=cloud.environment, capture_output=True, text=True, timeout=60)
            assert former.returncode == 1 and "another installation" in former.stderr, former
        # The former one is over: it has nothing to remove.
        (tmp_path / "engine" / "volumes.pool").unlink()
        shutil.rmtree(pool)
        cloud.start()
