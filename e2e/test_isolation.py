"""Root inside an instance tries to break out: each attempt gets the expected refusal, and would succeed without the
protections that refuse it. The table of attempts is in `isolation.py`."""

import ctypes
import os
import re
import socket
import struct
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from pathlib import Path

import isolation
import networks
import pytest
from instances import Instances, needs_root
from support import eventually

pytestmark = [needs_root, pytest.mark.alone]
SETTINGS = "\n[capacity]\ninstance_disk_gb = 1\n"
BYSTANDER = "31415.926"
KEY = "tarn-host"
MIB = 1 << 20
PAGE = Path(__file__).parent.parent / "docs/operating/security.md"


class Cloud(Instances):
    """Two clusters of one tenant, which must not reach each other either."""

    def __init__(self, directory: Path, without=""):
        super().__init__(directory)
        self.is_protected = not without
        config = Path(self.command[self.command.index("--config") + 1])
        config.write_text(config.read_text().replace("[capacity]\n", SETTINGS.lstrip()))
        if without:
            self.environment = self.environment | {"TARN_TEST_WITHOUT": without}

    def populate(self):
        """Creates the clusters."""
        self.create("inside", nodes=2)
        self.create("neighbour", nodes=2)

    def targets(self, port: int, bystander: int) -> dict:
        """The targets of the attempts."""
        nodes, others = (self.info(name)["instances"] for name in ("inside", "neighbour"))
        first, second = sorted(nodes, key=lambda node: node["name"])
        own = first["private_ip"]
        gateway = f"{own.rsplit('.', 1)[0]}.{int(own.rsplit('.', 1)[1]) & 0xC0 | 1}"
        addresses = subprocess.run(["hostname", "-I"], capture_output=True, text=True, check=True).stdout.split()
        return {
            "bystander": {"pid": bystander, "word": BYSTANDER}, "host_mounts": os.readlink("/proc/self/ns/mnt"),
            "key": add_readable_host_key(), "key_name": KEY,
            "shown": "/.tarn/guest", "handle": filesystem_root_handle(self.data).hex(), "metadata": networks.METADATA, "office": networks.OFFICE,
            "own": own, "second_address": second["private_ip"], "gateway": gateway,
            "second": {"name": second["name"], "address": second["private_ip"]},
            "neighbour": others[0]["private_ip"], "port": port,
            "addresses": [address for address in addresses if ":" not in address],
            "too_many_processes": 1100, "too_many_pipes": 260_000, "too_much_in_sockets": 150 * MIB, "too_many_terminals": 300,
            "too_much_memory": 300 * MIB, "too_much_in_dev_shm": 140 * MIB,
            "too_much_in_run": 140 * MIB, "too_much_on_the_disk": 1200 * MIB, "too_many_cpus": 0.7,
            # Where nothing limits the instance, other programs of a busy host can still take what it tries to use.
            "processor_tries": 5 if self.is_protected else 100,
        }  # fmt: skip

    @contextmanager
    def traffic_in_other_cluster(self):
        """The nodes of the other cluster send to each other, so that an instance that captures traffic could receive
        it."""
        other = sorted(self.info("neighbour")["instances"], key=lambda node: node["name"])[1]["private_ip"]
        speak = "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nprint('speaks', flush=True)\n"
        speak += f"while True: s.sendto(b'tarn-neighbours', ('{other}', 9)); time.sleep(0.02)"
        line = ["ssh", *self.options(), "neighbour@127.0.0.1", f'exec python3 -c "{speak}"']
        speaker = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        try:
            assert speaker.stdout.readline() == "speaks\n"
            yield
        finally:
            speaker.kill()
            speaker.wait()
            speaker.stdout.close()

    def attempt(self, names, outside=False) -> dict[str, str]:
        """The outcomes of attempts, all at once; inside an instance, or by root of the host."""
        bystander = subprocess.Popen(["sleep", BYSTANDER])
        try:
            with socket.create_server(("0.0.0.0", 0)) as listener, self.traffic_in_other_cluster():
                targets = self.targets(listener.getsockname()[1], bystander.pid)
                outcomes = isolation.run_on_host(names, targets) if outside else isolation.run_inside(self, names, targets)
            assert bystander.poll() is None, "a process of the host was ended"
        finally:
            bystander.kill()
            bystander.wait()
        return outcomes


def add_readable_host_key() -> int:
    """A key in the keyring of this process that its owner lets everybody read."""
    libc = ctypes.CDLL(None, use_errno=True)
    key = libc.syscall(248, b"user", KEY.encode(), b"secret", 6, -2)
    assert key > 0 and libc.syscall(250, 5, key, 0x3F3F3F3F) == 0, os.strerror(ctypes.get_errno())
    return key


def filesystem_root_handle(path: Path) -> bytes:
    """The kernel's handle of the root directory of the filesystem that contains a path."""
    while not os.path.ismount(path):
        path = path.parent
    libc = ctypes.CDLL(None, use_errno=True)
    handle, mount = ctypes.create_string_buffer(struct.pack("<Ii", 128, 0), 136), ctypes.c_int()
    found = libc.name_to_handle_at(-100, os.fsencode(path), handle, ctypes.byref(mount), 0)
    assert found == 0, os.strerror(ctypes.get_errno())
    return handle.raw[: 8 + struct.unpack_from("<I", handle)[0]]


@pytest.fixture(scope="module", autouse=True)
def network():
    """A separate network, so that nothing is sent anywhere, whatever is switched off."""
    with networks.private_network(), networks.external_network():
        yield


@pytest.fixture(scope="module")
def cloud(tmp_path_factory, network):
    """An engine with all protections."""
    with Cloud(tmp_path_factory.mktemp("isolation")) as running:
        running.populate()
        yield running


@pytest.fixture(scope="module")
def outcomes(cloud, raw_outcomes):
    """The outcomes of all attempts, made once; those that need raw sockets where there are some."""
    raw = {name: raw_outcomes[name] for name, each in isolation.ATTEMPTS.items() if each.raw}
    return raw | cloud.attempt([name for name in isolation.ATTEMPTS if name not in raw])


@pytest.fixture(scope="module")
def raw_outcomes(tmp_path_factory, network):
    """The outcomes in an engine that allows raw sockets and protects from everything else: of the attempts that need
    them, and of those that only lack them."""
    raw = (isolation.RAW_SOCKETS,)
    with Cloud(tmp_path_factory.mktemp("raw"), *raw) as cloud:
        cloud.populate()
        return cloud.attempt([name for name, each in isolation.ATTEMPTS.items() if each.raw or each.proof == raw])


@pytest.fixture(scope="module")
def outside(cloud):
    """The outcomes by root of the host, for attempts that need namespaces or that not every kernel supports."""
    names = [name for name, each in isolation.ATTEMPTS.items() if each.optional or each.protections == isolation.NAMESPACES]
    return cloud.attempt(names, outside=True)


@pytest.mark.parametrize("name", isolation.ATTEMPTS)
def test_attempt_is_refused(outcomes, outside, name):
    """Each attempt is refused as the table says."""
    outcome, attempt = outcomes[name], isolation.ATTEMPTS[name]
    if attempt.optional and outside[name] != "able" and outcome != "able":
        pytest.skip(f"root of the host cannot do it either: {outside[name]}")
    assert outcome.split(": ")[0] == "refused" and outcome.split(": ")[1] in attempt.refusals, outcome


def prove(cloud: Cloud, protections) -> dict[str, str]:
    """The outcomes of the attempts that only these protections refuse, in an engine without them."""
    with cloud:
        assert "INSTANCES ARE NOT ISOLATED" in cloud.output()
        cloud.populate()
        return cloud.attempt([name for name, each in isolation.ATTEMPTS.items() if each.proof == protections])


@pytest.fixture(scope="module")
def proofs(tmp_path_factory, network):
    """The proofs of `prove`, by protections. Three engines run at once, because they mostly wait. What exhausts the
    host runs alone."""
    known = {attempt.proof for attempt in isolation.ATTEMPTS.values() if attempt.protections != isolation.NAMESPACES}
    clouds = {each: Cloud(tmp_path_factory.mktemp("weak"), ",".join(each)) for each in known - {(isolation.RAW_SOCKETS,)}}
    proofs = {}
    with ThreadPoolExecutor(3) as pool:
        for exhausting in ((isolation.LIMITS,), (isolation.OWN_COUNTS,)):
            proofs[exhausting] = pool.submit(prove, clouds.pop(exhausting), exhausting)
            wait(proofs.values())
        proofs |= {each: pool.submit(prove, cloud, each) for each, cloud in clouds.items()}
    return proofs


@pytest.mark.parametrize("name", isolation.PROOFS)
def test_attempt_succeeds_without_protection(proofs, outside, raw_outcomes, name):
    """Without its protections each attempt succeeds, so the test above cannot pass by trying the wrong thing."""
    attempt = isolation.ATTEMPTS[name]
    if attempt.protections == isolation.NAMESPACES:
        outcome = outside[name]
    else:
        outcome = raw_outcomes[name] if attempt.proof == (isolation.RAW_SOCKETS,) else proofs[attempt.proof].result()[name]
    if attempt.optional and outside[name] != "able" and outcome != "able":
        pytest.skip(f"root of the host cannot do it either: {outside[name]}")
    assert outcome == "able"


def test_every_protection_has_its_own_attempt():
    """Every protection has an attempt that only this protection refuses."""
    alone = {attempt.protections for attempt in isolation.ATTEMPTS.values() if len(attempt.protections) == 1}
    assert alone - {isolation.NAMESPACES} == {(protection,) for protection in isolation.PROTECTIONS}
    assert all(attempt.protections for attempt in isolation.ATTEMPTS.values())


def test_page_lists_every_attempt():
    """The table in docs/operating/security.md is the table of the suite."""
    listed = PAGE.read_text().split("## The attempts")[1]
    rows = re.findall(r"^\| `(\w+)` \| ([^|]*) \|", listed, re.MULTILINE)
    expected = {name: attempt.protections for name, attempt in isolation.ATTEMPTS.items()}
    assert {name: tuple(re.findall(r"`([a-z-]+)`", protections)) for name, protections in rows} == expected


def test_host_secrets_are_unreadable(cloud, tmp_path):
    """Root inside reads no file, password hash, socket or command line of the host."""
    secret = f"tarn-secret-{os.getpid()}"
    hidden = [tmp_path / "secret", cloud.data / "probe", Path("/root") / f".{secret}", Path("/home") / secret]
    for path in hidden:
        path.write_text(secret)
    try:
        known = [*hidden, cloud.data / "admin.key", cloud.data / "secret.key", cloud.data / "tarn.db", cloud.identity]
        assert all(path.exists() for path in known)
        assert run_as_root(cloud, "".join(f"cat {path} 2>/dev/null\n" for path in known)) == ""
        found = run_as_root(cloud, f"grep -rslF {secret} /root /home /etc /var /run /tmp /opt /srv /mnt /dev 2>/dev/null", seconds=120)
        assert found.strip() == ""
        shadow = Path("/etc/shadow").read_text()
        inside = run_as_root(cloud, "cat /etc/shadow")
        hashes = [line.split(":")[1] for line in shadow.splitlines() if line.split(":")[1].startswith("$")]
        assert not [one for one in hashes if one in inside]
        listening = {line.split()[-1] for line in Path("/proc/net/unix").read_text().splitlines()[1:]}
        ours = [path for path in listening if str(cloud.data) in path or "/run/tarn/" in path]
        sockets = run_as_root(cloud, "find / -xdev -type s 2>/dev/null; cat /proc/net/unix")
        assert ours and not [path for path in ours if Path(path).name in sockets]
        seen = run_as_root(cloud, "cat /proc/*/cmdline | tr '\\0' ' '")
        assert "serve" in Path(f"/proc/{cloud.process.pid}/cmdline").read_text() and "serve" not in seen
    finally:
        for path in hidden:
            path.unlink()


PING = """
import os, socket, struct, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as echoes:
    echoes.settimeout(30)
    echoes.sendto(struct.pack(">BBHHH", 8, 0, 0, 0, 7), (sys.argv[1], 0))
    print(os.getuid(), echoes.recv(64)[0])
"""


def test_ping_works_without_raw_sockets(cloud):
    """Users and root send echo requests by the kernel's sockets for them, and with the `ping` of the host."""
    second = cloud.info("inside")["instances"][1]["private_ip"]
    line = f"cat > ping.py; python3 ping.py {second}; sudo python3 ping.py {second}"
    assert cloud.ssh("inside", line, answer=PING).out == "1000 0\n0 0\n"
    cloud.ssh("inside", f"ping -c 1 {second} && sudo ping -c 1 {second}")


@pytest.mark.skipif(not networks.name_servers(), reason="this host has no name server that instances can reach")
def test_names_are_resolved(cloud):
    """Instances use the host's name servers, also those in private networks."""
    assert networks.KNOWN_ADDRESS in cloud.ssh("inside", f"getent ahostsv4 {networks.KNOWN_NAME}").out


def test_allowed_private_network_is_reachable(tmp_path):
    """What the configuration allows in a private network is reachable, and other ports there are not."""
    settings = f"\n[network]\nallow = ['{networks.OFFICE}:80']\n"
    reach = "python3 -c \"import socket; socket.create_connection(('%s', %d), 2)\""
    with Instances(tmp_path, settings=settings) as engine:
        engine.create("guest")
        engine.ssh("guest", reach % (networks.OFFICE, 80))
        assert "timed out" in engine.ssh("guest", reach % (networks.OFFICE, 81), code=1).errors


def test_flooded_listeners_survive(cloud):
    """The SSH server of a node and the loopback proxy survive garbage and many connections."""
    flood = """
import os, socket, sys
for address, port in (("127.0.0.1", 22), ("127.0.0.1", %d), (sys.argv[1], 22)):
    held = []
    for number in range(150):
        try:
            one = socket.create_connection((address, port), timeout=5)
            held.append(one)
            one.sendall((b"SSH-2.0-x\\r\\n", os.urandom(5000), b"\\xff" * 100_000, b"\\0\\0\\0", b"GET / HTTP/9\\r\\n")[number %% 5])
        except OSError:
            pass
    assert len(held) > 10, (address, port, len(held))
print("done")
""" % cloud.port  # fmt: skip
    second = sorted(cloud.info("inside")["instances"], key=lambda node: node["name"])[1]
    cloud.ssh("inside", "cat > flood.py", answer=flood)
    assert cloud.ssh("inside", f"python3 flood.py {second['private_ip']}", seconds=120).out == "done\n"
    for instance in ("inside", second["name"], "neighbour"):
        well = lambda instance=instance: cloud.ssh(instance, "echo well", code=None).out == "well\n"  # noqa: E731
        eventually(well, seconds=60, what=f"a login to {instance}")
    assert cloud.call("GET", "/healthz").status_code == 200 and "panicked" not in cloud.output()


def test_guest_follows_no_planted_links(cloud):
    """The guest follows no links that root inside plants in place of the files that it writes."""
    before = Path("/etc/hosts").read_text()
    made = cloud.create("links")
    spoil = "set -e; rm -f /etc/hosts && ln -s /proc/1/root/../../../../etc/hosts /etc/hosts; rm -rf /home/ubuntu/.ssh && ln -s /etc /home/ubuntu/.ssh"
    run_as_root(cloud, spoil, instance="links")
    # The guest refuses to follow the links. Whether the instance then works is up to the tenant.
    cloud.finish(cloud.call("POST", "/cluster/restart/links", expect=202).json()["request_id"], status=None)
    followed = [root for root in cloud.roots() if (root / "etc/authorized_keys").exists()]
    cloud.destroy(made["id"])
    assert not followed and Path("/etc/hosts").read_text() == before


@pytest.mark.parametrize("without", ["", "disk-limit"], ids=["one-file", "a-directory"])
def test_destroy_survives_moving_tree(cloud, tmp_path, without):
    """A destroy removes only the instance while directories are renamed and replaced by links. A disk is one
    file to the engine; only without its limit there is a tree to walk."""
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
    with Cloud(tmp_path, without) if without else nullcontext(cloud) as cloud:
        made = cloud.create("moving")
        cloud.ssh("moving", "nohup python3 - >/dev/null 2>&1", answer=race)
        cloud.destroy(made["id"])
        assert not (cloud.data / "instances" / made["instances"][0]["id"]).exists()
    assert sorted(kept.iterdir())[:50] == before


FAKE_GUEST = """
import ctypes, os, select, socket, sys, time
libc = ctypes.CDLL(None, use_errno=True)
# Root inside may trace the guest: it is stopped, and this process replaces it.
assert libc.ptrace(16, 1, 0, 0) == 0 and os.waitpid(1, 0x40000000)
guest = os.pidfd_open(1)
listener = socket.socket(fileno=libc.syscall(438, guest, 3, 0))
listener.setblocking(False)
print("taken", flush=True)
held, begin, served = [], time.monotonic(), 0
while time.monotonic() < begin + 15 or served <= 3 and time.monotonic() < begin + 120:
    if not select.select([listener], [], [], 0.2)[0]:
        continue
    one, _ = listener.accept()
    one.setblocking(True)
    one.settimeout(2)
    held.append(one)
    served += 1
    try:
        for _ in range((1, 200, 0)[served % 3]):
            one.sendall((os.urandom(65536), b"\\xff" * 65536, b"")[served % 3])
    except OSError:
        pass
print(served, flush=True)
"""


def test_fake_guest_affects_only_its_instance(cloud):
    """Root inside may replace the guest. Endless garbage or silence from it affects no other instance."""
    made = cloud.create("impostor")
    cloud.ssh("impostor", "cat > impostor.py", answer=FAKE_GUEST)
    line = ["ssh", *cloud.options(), "impostor@127.0.0.1", "sudo setsid -f sh -c 'exec python3 impostor.py > said 2>&1 < /dev/null'"]
    subprocess.run(line, check=True, timeout=60, capture_output=True)
    (root,) = [root for root in cloud.roots() if (root / "home/ubuntu/impostor.py").exists()]
    said = root / "home/ubuntu/said"
    eventually(lambda: said.exists() and "taken" in said.read_text(), what="a fake guest")
    before = resident_bytes(cloud.process.pid)
    knocks = [subprocess.Popen(["ssh", *cloud.options(), "-o", "ConnectTimeout=60", "impostor@127.0.0.1", "true"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(12)]  # fmt: skip
    try:
        assert cloud.ssh("neighbour", "echo well").out == "well\n"
        assert cloud.call("GET", "/healthz").status_code == 200
        eventually(lambda: said.read_text().splitlines()[1:], seconds=180, what="the end of the fake guest")
        assert int(said.read_text().splitlines()[1]) > 3, "the engine connected"
    finally:
        for knock in knocks:
            knock.kill()
            knock.wait()
    assert resident_bytes(cloud.process.pid) < before + 200 * MIB and "panicked" not in cloud.output()
    cloud.destroy(made["id"])


def resident_bytes(pid: int) -> int:
    """The resident memory of a process in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_busy_instance_does_not_starve_others(cloud):
    """An instance that uses all its processor time, memory and processes does not starve another one."""
    busy_loop = "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; (tail /dev/zero) & sleep 600"
    line = ["ssh", *cloud.options(), "inside@127.0.0.1", busy_loop]
    running = subprocess.Popen(line, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        answers = []
        logins = [threading.Thread(target=lambda: answers.append(cloud.ssh("neighbour", "echo well", code=None).out)) for _ in range(4)]
        for one in logins:
            one.start()
        for one in logins:
            one.join()
        assert answers == ["well\n"] * 4
    finally:
        running.kill()
        running.wait()
        cloud.ssh("inside", "sudo pkill -f '[t]ail /dev/zero'; pkill -u ubuntu -x bash; true", code=None)


def run_as_root(cloud, script: str, instance="inside", **more) -> str:
    """The output of a script that runs as root in an instance. The script must reach its end, whatever its commands
    do."""
    ran = cloud.ssh(instance, "sudo bash -s", answer=f"{script}\necho the end\n", **more)
    assert ran.out.endswith("the end\n"), ran
    return ran.out.removesuffix("the end\n")
