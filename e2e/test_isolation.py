"""Root inside an instance against everything around it: each attempt has the refusal that must come, and would succeed without
the protection that refuses it. The table of attempts is in `isolation.py`."""

import ctypes
import os
import re
import socket
import subprocess
import threading
from contextlib import contextmanager
from pathlib import Path

import isolation
import pytest
from machines import Machines, needs_root
from support import eventually

pytestmark = needs_root
SETTINGS = "\n[capacity]\ninstance_disk_gb = 1\n"
BYSTANDER = "31415.926"
MIB = 1 << 20
PAGE = Path(__file__).parent.parent / "docs/operating/security.md"


class Cloud(Machines):
    """Two clusters of one tenant, of which even those must not reach each other."""

    def __init__(self, directory: Path, without=""):
        super().__init__(directory)
        config = Path(self.command[self.command.index("--config") + 1])
        config.write_text(config.read_text().replace("[capacity]\n", SETTINGS.lstrip()))
        if without:
            self.environment = self.environment | {"TARN_TEST_WITHOUT": without}

    def populate(self):
        """Makes the clusters."""
        self.create("inside", nodes=2)
        self.create("neighbour", nodes=2)

    def targets(self, port: int, bystander: int) -> dict:
        """What the attempts are made at."""
        nodes, others = (self.info(name)["instances"] for name in ("inside", "neighbour"))
        first, second = sorted(nodes, key=lambda node: node["name"])
        own = first["private_ip"]
        gateway = f"{own.rsplit('.', 1)[0]}.{int(own.rsplit('.', 1)[1]) & 0xC0 | 1}"
        addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
        disk = os.stat("/").st_dev
        return {
            "host_pids": [bystander, self.process.pid, os.getpid(), 1], "bystander": BYSTANDER,
            "host_namespaces": {kind: os.readlink(f"/proc/self/ns/{kind}") for kind in ("mnt", "net", "user", "pid")},
            "disk": [os.major(disk), os.minor(disk)], "key": public_key_of_the_host(),
            "own": own, "second_address": second["private_ip"], "gateway": gateway,
            "second": {"name": second["name"], "address": second["private_ip"]},
            "neighbour": others[0]["private_ip"], "port": port,
            "addresses": [address for address in addresses if ":" not in address],
            "too_many_processes": 1100, "too_much_memory": 300 * MIB, "too_much_in_dev_shm": 140 * MIB,
            "too_much_in_run": 140 * MIB, "too_much_on_the_disk": 1200 * MIB, "too_many_cpus": 0.8,
        }  # fmt: skip

    @contextmanager
    def speech_next_door(self):
        """The nodes of the other cluster speak to each other."""
        other = sorted(self.info("neighbour")["instances"], key=lambda node: node["name"])[1]["private_ip"]
        speak = f"import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nwhile True: s.sendto(b'tarn-neighbours', ('{other}', 9)); time.sleep(0.02)"
        line = ["ssh", *self.options(), "neighbour@127.0.0.1", f'exec python3 -c "{speak}"']
        speaker = subprocess.Popen(line, stdin=subprocess.DEVNULL)
        try:
            yield
        finally:
            speaker.kill()
            speaker.wait()

    def attempt(self, names) -> dict[str, str]:
        """The outcomes of attempts, all at once."""
        bystander = subprocess.Popen(["sleep", BYSTANDER])
        try:
            with socket.create_server(("0.0.0.0", 0)) as listener, self.speech_next_door():
                outcomes = isolation.run(self, names, self.targets(listener.getsockname()[1], bystander.pid))
            assert bystander.poll() is None, "a process of the host was ended"
        finally:
            bystander.kill()
            bystander.wait()
        return outcomes


def public_key_of_the_host() -> int:
    """A key in the keyring of this process that its owner lets everybody read."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = libc.syscall(248, b"user", b"tarn-host", b"secret", 6, -2)
    assert key > 0 and libc.syscall(250, 5, key, 0x3F3F3F3F) == 0, os.strerror(ctypes.get_errno())
    return key


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """A cloud as everybody has it."""
    with Cloud(tmp_path_factory.mktemp("isolation")) as running:
        running.populate()
        yield running


@pytest.fixture(scope="module")
def outcomes(cloud):
    """All attempts, made once."""
    return cloud.attempt(isolation.ATTEMPTS)


@pytest.mark.parametrize("name", isolation.ATTEMPTS)
def test_refused(outcomes, name):
    assert outcomes[name].startswith("refused: "), outcomes[name]


@pytest.fixture(scope="module")
def weak(tmp_path_factory):
    """One installation, started again without this or that. Clusters are made anew each time."""
    directory = tmp_path_factory.mktemp("weak")
    running = []

    def start(walls) -> Cloud:
        """An engine without some protections."""
        if running:
            running[0].destroy_all()
            running[0].stop()
            running[0].environment["TARN_TEST_WITHOUT"] = ",".join(walls)
        else:
            running.append(Cloud(directory, ",".join(walls)))
        running[0].start()
        assert "INSTANCES ARE NOT ISOLATED" in running[0].output()
        running[0].populate()
        return running[0]

    yield start
    if running:
        running[0].__exit__()


@pytest.mark.parametrize("walls", isolation.SETS, ids=",".join)
def test_without_its_protection_it_succeeds(weak, walls):
    """Whoever switches a wall off gets through. So the test above cannot pass by trying the wrong thing."""
    names = [name for name, needed in isolation.ATTEMPTS.items() if needed == walls]
    outcomes = weak(walls).attempt(names)
    assert outcomes == dict.fromkeys(names, "able")


def test_every_protection_has_an_attempt_that_only_it_refuses():
    alone = {walls[0] for walls in isolation.ATTEMPTS.values() if len(walls) == 1}
    assert alone == set(isolation.PROTECTIONS)


def test_the_page_lists_every_attempt():
    """The table of the page is the table of the suite."""
    listed = PAGE.read_text().split("## The attempts")[1]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", listed, re.MULTILINE)
    assert {name: tuple(re.findall(r"`([a-z-]+)`", walls)) for name, walls in rows} == isolation.ATTEMPTS


def test_nothing_of_the_host_can_be_read(cloud, tmp_path):
    secret = f"tarn-secret-{os.getpid()}"
    hidden = [tmp_path / "secret", cloud.data / "probe", Path("/root") / f".{secret}", Path("/home") / secret]
    for path in hidden:
        path.write_text(secret)
    try:
        known = [*hidden, cloud.data / "admin.key", cloud.data / "secret.key", cloud.data / "tarn.db", cloud.identity]
        assert all(path.exists() for path in known)
        tried = as_root(cloud, "".join(f"cat {path} 2>/dev/null\n" for path in known))
        assert tried.out == "", tried
        found = as_root(cloud, f"grep -rslF {secret} /root /home /etc /var /run /tmp /opt /srv /mnt /dev 2>/dev/null", seconds=120)
        assert found.out.strip() == "", found
        shadow = Path("/etc/shadow").read_text()
        inside = as_root(cloud, "cat /etc/shadow").out
        hashes = [line.split(":")[1] for line in shadow.splitlines() if line.split(":")[1].startswith("$")]
        assert not [one for one in hashes if one in inside]
        sockets = as_root(cloud, "find / -xdev -type s 2>/dev/null; ls /run").out
        assert "docker" not in sockets and "dbus" not in sockets and "control.sock" not in sockets
        seen = as_root(cloud, "cat /proc/*/cmdline | tr '\\0' ' '; ls /proc").out
        assert BYSTANDER not in seen and "tarn serve" not in seen and len(seen.split()) < 200
    finally:
        for path in hidden:
            path.unlink()


def test_garbage_and_crowds_at_what_listens_inside(cloud):
    """The SSH server of a node and the engine's doors, which are all that an instance can speak to."""
    flood = """
import os, socket, sys
for address, port in (("127.0.0.1", 22), ("127.0.0.1", %d), (sys.argv[1], 22)):
    held = []
    for number in range(150):
        try:
            one = socket.create_connection((address, port), timeout=5)
            one.sendall((b"SSH-2.0-x\\r\\n", os.urandom(5000), b"\\xff" * 100_000, b"\\0\\0\\0", b"GET / HTTP/9\\r\\n")[number %% 5])
            held.append(one)
        except OSError:
            pass
print("done")
""" % cloud.port  # fmt: skip
    second = sorted(cloud.info("inside")["instances"], key=lambda node: node["name"])[1]
    cloud.ssh("inside", "cat > flood.py", answer=flood)
    assert cloud.ssh("inside", f"python3 flood.py {second['private_ip']}", seconds=120).out == "done\n"
    for machine in ("inside", second["name"], "neighbour"):
        well = lambda machine=machine: cloud.ssh(machine, "echo well", code=None).out == "well\n"  # noqa: E731
        eventually(well, seconds=60, what=f"a way into {machine}")
    assert cloud.call("GET", "/healthz").status_code == 200 and "panicked" not in cloud.output()


def test_links_in_the_place_of_files_that_the_guest_writes(cloud):
    """What the engine has the guest write goes to the instance's own files, wherever root inside points them."""
    before = Path("/etc/hosts").read_text()
    made = cloud.create("links")
    spoil = "rm -f /etc/hosts && ln -s /proc/1/root/../../../../etc/hosts /etc/hosts; rm -rf /home/ubuntu/.ssh && ln -s /etc /home/ubuntu/.ssh"
    as_root(cloud, spoil, machine="links")
    # The guest refuses to follow them. Whether it can do without is the tenant's affair.
    cloud.finish(cloud.call("POST", "/cluster/restart/links", expect=202).json()["request_id"], status=None)
    cloud.destroy(made["id"])
    assert Path("/etc/hosts").read_text() == before and not Path("/etc/authorized_keys").exists()


def test_a_destroy_while_everything_moves(cloud):
    """Trees that are renamed all the time, and links where directories were: removal goes its way and no other."""
    made = cloud.create("moving")
    kept = Path("/usr/share/doc")
    before = sorted(kept.iterdir())[:50]
    race = """
import os
os.makedirs('/home/ubuntu/race/deep/deeper', exist_ok=True)
os.chdir('/home/ubuntu/race')
if os.fork(): os._exit(0)
while True:
    try:
        os.rename('deep', 'other'); os.symlink('/usr/share/doc', 'deep'); os.unlink('deep'); os.rename('other', 'deep')
    except OSError: pass
"""
    cloud.ssh("moving", "nohup python3 - >/dev/null 2>&1", answer=race)
    cloud.destroy(made["id"])
    assert not (cloud.data / "instances" / made["instances"][0]["id"]).exists()
    assert sorted(kept.iterdir())[:50] == before


def test_a_hog_does_not_starve_its_neighbour(cloud):
    """One instance takes all the time, memory and processes that it may have; another one still works."""
    hog = "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; (tail /dev/zero) & sleep 600"
    line = ["ssh", *cloud.options(), "inside@127.0.0.1", hog]
    running = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        answers = []
        crowd = [threading.Thread(target=lambda: answers.append(cloud.ssh("neighbour", "echo well", code=None).out)) for _ in range(4)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()
        assert answers == ["well\n"] * 4
    finally:
        running.kill()
        running.wait()
        cloud.ssh("inside", "sudo pkill -f '[t]ail /dev/zero'; pkill -u ubuntu -x bash; true", code=None)


def as_root(cloud, script: str, machine="inside", **more):
    """Runs a script as root in an instance."""
    return cloud.ssh(machine, "sudo bash -s", answer=script, code=None, **more)
