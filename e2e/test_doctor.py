"""`tarn doctor` on machines and engines that are well, and on some that are not. Other failures of the machine that runs this do not
count: each test looks at the checks that it is about."""

import base64
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from machines import needs_root
from support import BINARY, ENVIRONMENT, Server, eventually, free_port
from volumes import Volumes

PAGE = Path(__file__).resolve().parent.parent / "docs/operating/doctor.md"
DISK_MIB = 64
# Nothing here leaves the machine: the way out ends at a port where nobody listens.
ELSEWHERE = {"HTTPS_PROXY": "http://127.0.0.1:9", "NO_PROXY": "127.0.0.1,localhost"}
LEVELS = {"ok", "note", "warning", "failure", "skipped"}


class Report:
    """What the doctor said, by the names of the checks."""

    def __init__(self, done: subprocess.CompletedProcess):
        assert "panicked" not in done.stderr, done.stderr
        self.code, self.body = done.returncode, json.loads(done.stdout)
        self.found = {each["check"]: each for each in self.body["findings"]}
        self.steps = {each["step"]: each for each in self.body["trial"] or ()}

    def level(self, check: str) -> str:
        return self.found[check]["level"]

    def has(self, level: str, *checks: str):
        """Whether all of these have that level."""
        wrong = {check: self.found.get(check) for check in checks if (self.found.get(check) or {}).get("level") != level}
        assert not wrong, json.dumps(wrong, indent=1)


def run(*options, prefix=(), environment=None, seconds=240, **more) -> subprocess.CompletedProcess:
    command = [*map(str, prefix), str(BINARY), "doctor", *map(str, options)]
    return subprocess.run(
        command, env=ENVIRONMENT | ELSEWHERE | (environment or {}), stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=seconds, **more,
    )  # fmt: skip


def doctor(*options, **more) -> Report:
    return Report(run("--json", *options, **more))


def beside(server: Server, *options, **more) -> Report:
    """The doctor with the options of an engine, and with the key of its administrator."""
    return doctor(*server.command[2:], *options, environment={"TENSORPOOL_KEY": server.key}, **more)


def alone(data: Path, *options, **more) -> Report:
    """The doctor where no engine runs, on ports that are free."""
    ports = [part for name in ("listen", "ssh-listen", "s3-listen") for part in (f"--{name}", f"127.0.0.1:{free_port()}")]
    return doctor("--data", data, *ports, *options, **more)


def documented() -> set[str]:
    return set(re.findall(r"^\| `([a-z_]+\.[a-z_0-9]+)` \|", PAGE.read_text(), re.M))


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_a_healthy_engine(server):
    before = files(server.data)
    report = beside(server)
    report.has("ok", "engine.answers", "engine.version", "engine.clock", "database.opens", "database.schema")
    report.has("ok", "database.integrity", "database.master_key", "keys.data", "keys.secret", "keys.admin")
    report.has("ok", "ports.api", "ports.s3", "drift.instances", "drift.volumes", "drift.requests", "drift.jobs")
    assert f"process {server.process.pid}" in report.found["ports.api"]["found"]
    assert report.body["configuration"]["listen"] == f"127.0.0.1:{server.port}"
    assert files(server.data) == before, "it writes nothing into the data"


def test_the_body_is_as_the_page_says(server):
    report = beside(server)
    body = report.body
    assert set(body) == {"version", "tarn", "healthy", "counts", "findings", "trial", "configuration"}
    assert body["version"] == 1 and body["trial"] is None and set(body["counts"]) == LEVELS
    for finding in body["findings"]:
        assert set(finding) == {"area", "check", "level", "found", "todo"} and finding["level"] in LEVELS, finding
        assert finding["check"] in documented() and finding["check"].startswith(finding["area"] + "."), finding
        assert finding["level"] not in ("failure", "warning") or finding["todo"], f"nothing to do: {finding}"
    assert sum(body["counts"].values()) == len(body["findings"])
    assert body["healthy"] == (body["counts"]["failure"] == 0) == (report.code == 0)


def test_people_read_a_list(server):
    done = run(*server.command[2:])
    assert re.search(r"^  ok       database\.opens +SQLite ", done.stdout, re.M), done.stdout
    assert "\x1b" not in done.stdout and "The configuration in effect" in done.stdout
    assert re.search(r"\d+ ok, \d+ notes?, \d+ warnings?, \d+ failures?, \d+ skipped\.$", done.stdout.strip())


def test_before_the_first_start_nothing_is_made(tmp_path):
    report = alone(tmp_path / "data")
    report.has("note", "engine.answers", "database.opens", "keys.data")
    report.has("ok", "ports.api", "ports.ssh", "ports.s3")
    assert not (tmp_path / "data").exists()


def test_data_that_is_a_file_is_one_failure(tmp_path):
    (tmp_path / "data").write_text("")
    report = alone(tmp_path / "data")
    report.has("failure", "configuration.readable")
    assert "is not a directory" in report.found["configuration.readable"]["found"] and report.code == 1
    assert not {"keys.data", "space.data", "database.opens", "network.addresses"} & set(report.found)
    assert (tmp_path / "data").read_text() == ""


def test_after_a_stop_the_database_is_read_and_left_alone(tmp_path):
    with Server(tmp_path / "data") as server:
        server.stop()
    before = files(server.data)
    report = doctor(*server.command[2:])
    report.has("ok", "database.opens", "database.integrity", "database.master_key", "ports.api", "drift.instances")
    report.has("note", "engine.answers")
    assert files(server.data) == before


def test_a_killed_engine_leaves_a_log_that_is_read(tmp_path):
    with Server(tmp_path / "data") as server:
        accepted = server.call("POST", "/storage/create", json={"name": "v", "size": 1}, expect=202).json()
        server.finish(accepted["request_id"])
        server.process.kill()
        server.process.wait()
        report = doctor(*server.command[2:])
        report.has("ok", "database.opens", "database.integrity", "drift.volumes", "drift.requests")
        report.has("note", "engine.answers")
        server.start()
        server.stop()


def test_a_schema_that_this_program_does_not_know(tmp_path):
    with Server(tmp_path / "data") as server:
        server.stop()
    options = server.command[2:]

    def change(sql: str):
        with sqlite3.connect(server.data / "tarn.db") as database:
            database.execute(sql)
        database.close()

    change("insert into migrations (version) values (999)")
    newer = doctor(*options)
    newer.has("failure", "database.schema")
    newer.has("skipped", "drift.instances")
    assert newer.code == 1 and not newer.body["healthy"]
    change("delete from migrations where version > 3")
    older = doctor(*options)
    older.has("note", "database.schema")


def test_a_database_that_is_damaged(tmp_path):
    with Server(tmp_path / "data") as server:
        server.stop()
    # Otherwise all that matters may still be in the log beside it.
    with sqlite3.connect(server.data / "tarn.db") as database:
        database.execute("pragma wal_checkpoint(truncate)")
    database.close()
    with open(server.data / "tarn.db", "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    report = doctor(*server.command[2:])
    assert "failure" in (report.found.get("database.integrity") or report.found["database.opens"])["level"]
    assert report.code == 1


def test_a_configuration_that_is_wrong(tmp_path):
    config = tmp_path / "tarn.toml"
    config.write_text("lisen = '127.0.0.1:1'\n")
    report = doctor("--config", config)
    report.has("failure", "configuration.readable")
    assert "unknown field" in report.found["configuration.readable"]["found"] and report.code == 1
    assert "kernel.version" in report.found and "database.opens" not in report.found


def test_secrets_are_not_shown(tmp_path):
    report = alone(tmp_path / "data", environment={"TARN_DATABASE": f"postgres://tarn:s3cr3t@127.0.0.1:{free_port()}/tarn"})
    report.has("failure", "database.opens")
    assert "s3cr3t" not in json.dumps(report.body)
    assert report.body["configuration"]["database"].startswith("postgres://tarn:(hidden)@")


class Registry(BaseHTTPRequestHandler):
    """Lets somebody in by his password, and says to everybody else what every registry says."""

    def do_GET(self):
        is_known = self.headers["Authorization"] == "Basic " + base64.b64encode(b"someone:s3cr3t").decode()
        self.send_response(404 if self.path != "/v2/" else 200 if is_known else 401)
        self.send_header("WWW-Authenticate", 'Basic realm="registry"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_registries(tmp_path):
    config = tmp_path / "tarn.toml"

    def report(port: int, password: str | None = None) -> Report:
        login = f'username = "someone"\npassword = "{password}"\n' if password else ""
        config.write_text(f'[[images.registries]]\nhost = "127.0.0.1:{port}"\n{login}')
        return alone(tmp_path / "data", "--config", config)

    lost = report(free_port(), "s3cr3t")
    lost.has("failure", "registries.reachable")
    assert "s3cr3t" not in json.dumps(lost.body)
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as registry:
        threading.Thread(target=registry.serve_forever, daemon=True).start()
        port = registry.server_address[1]
        well, nobody, stranger = report(port, "s3cr3t"), report(port), report(port, "m1st4k3")
        registry.shutdown()
    well.has("ok", "registries.settings", "registries.reachable")
    nobody.has("ok", "registries.reachable")
    stranger.has("failure", "registries.reachable")
    assert "refuses the login of someone" in stranger.found["registries.reachable"]["found"]
    assert "m1st4k3" not in json.dumps(stranger.body)
    # Without a word about any, the usual one is asked, and nothing fails because of it.
    config.write_text("")
    usual = alone(tmp_path / "data", "--config", config)
    usual.has("warning", "registries.reachable")
    assert "docker.io" in usual.found["registries.reachable"]["found"]
    config.write_text('[images]\nallowed_registries = ["127.0.0.1:1"]\n')
    alone(tmp_path / "data", "--config", config).has("ok", "registries.reachable")


def certificate(directory: Path, days: int) -> list:
    cert, key = directory / "cert.pem", directory / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", str(days),
         "-subj", "/CN=tarn-test", "-addext", "subjectAltName=DNS:cloud.example.org",
         "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", cert],
        check=True, capture_output=True,
    )  # fmt: skip
    key.chmod(0o600)
    return ["--tls-cert", cert, "--tls-key", key]


def test_certificates(tmp_path):
    well = certificate(tmp_path, 90)
    report = alone(tmp_path / "data", *well, "--public-url", "https://cloud.example.org")
    report.has("ok", "certificate.usable", "certificate.valid", "certificate.names", "certificate.key_file")
    report = alone(tmp_path / "data", *well, "--public-url", "https://other.example.org")
    report.has("failure", "certificate.names")
    (tmp_path / "key.pem").chmod(0o644)
    report = alone(tmp_path / "data", *certificate(tmp_path, 2)[:2], "--tls-key", tmp_path / "key.pem")
    report.has("warning", "certificate.valid")
    (tmp_path / "cert.pem").write_text("this is no certificate")
    report = alone(tmp_path / "data", *well)
    report.has("failure", "certificate.usable")
    assert report.code == 1


def test_a_certificate_that_has_expired(tmp_path):
    cert, key = certificate(tmp_path, 90)[1::2]
    request = ["openssl", "req", "-new", "-key", key, "-subj", "/CN=tarn-test", "-out", tmp_path / "request.pem"]
    subprocess.run(request, check=True, capture_output=True)
    # The authority is told the days by themselves, because not every openssl lets a self-signed one begin in the past.
    place = tmp_path / "authority"
    place.mkdir()
    (place / "index").write_text("")
    (place / "serial").write_text("01\n")
    (place / "settings").write_text(
        f"[ca]\ndefault_ca=own\n[own]\ndatabase={place}/index\nserial={place}/serial\nnew_certs_dir={place}\n"
        f"default_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n"
    )
    sign = ["openssl", "ca", "-batch", "-selfsign", "-config", place / "settings", "-keyfile", key, "-in", tmp_path / "request.pem"]
    days = ["-startdate", "20200101000000Z", "-enddate", "20210101000000Z", "-notext", "-out", cert]
    subprocess.run([str(part) for part in [*sign, *days]], check=True, capture_output=True)
    report = alone(tmp_path / "data", "--tls-cert", cert, "--tls-key", key)
    report.has("failure", "certificate.valid")
    assert "expired on 2021-01-01" in report.found["certificate.valid"]["found"]


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_certificate_that_was_renewed_behind_the_engines_back(tmp_path):
    options = certificate(tmp_path, 90)
    server = Server(tmp_path / "data", *options, verify=tmp_path / "cert.pem")
    # Which one it shows is for the doctor to see; it is not for this address.
    server.session.verify = False
    with server:
        beside(server).has("ok", "certificate.served", "certificate.valid")
        certificate(tmp_path, 365)
        report = beside(server)
        report.has("failure", "certificate.served")
        assert "restart the engine" in report.found["certificate.served"]["todo"]
        server.stop()
        server.start()
        beside(server).has("ok", "certificate.served")


@pytest.mark.skipif("TARN_TEST_POSTGRES" not in os.environ, reason="needs scripts/with-postgres")
def test_postgresql(tmp_path):
    base, _, _ = os.environ["TARN_TEST_POSTGRES"].rpartition("/")
    name, reader = f"doctor_{os.getpid()}", f"doctor_reader_{os.getpid()}"

    def sql(database: str, text: str):
        subprocess.run(["psql", f"{base}/{database}", "-q", "-v", "ON_ERROR_STOP=1", "-c", text], check=True, env=ENVIRONMENT)

    sql("postgres", f"create database {name}")
    with Server(tmp_path / "data", "--database", f"{base}/{name}") as server:
        report = beside(server)
        report.has("ok", "database.opens", "database.schema", "database.server", "database.clock", "database.master_key")
        report.has("ok", "engine.answers", "drift.requests", "drift.jobs")
        sql(name, f"create role {reader} login; grant select on all tables in schema public to {reader}")
        try:
            other = base.replace("postgres@", f"{reader}@")
            report = doctor("--data", server.data, "--database", f"{other}/{name}", "--driver", "fake")
            report.has("failure", "database.server")
            assert "requests" in report.found["database.server"]["found"]
        finally:
            sql(name, f"drop owned by {reader}; drop role {reader}")
        server.stop()
    alone(tmp_path / "data", "--database", f"{base}/nowhere_{name}").has("failure", "database.opens")


def test_the_process_of_the_engine_is_looked_at(tmp_path):
    server = Server(tmp_path / "data")
    server.command = ["sh", "-c", 'ulimit -n 512 && exec "$@"', "sh", *server.command]
    with server:
        # The doctor itself may open many files, the engine may not.
        report = doctor(*server.command[6:])
        report.has("warning", "limits.files")
        assert "the engine may have only 512 files" in report.found["limits.files"]["found"]


def test_with_made_up_machines_no_job_is_waited_for(server):
    report = beside(server, "--full", seconds=100)
    assert "fake driver" in report.steps["job run"]["message"] and report.steps["job run"]["ok"]
    wrong = [step for step in report.steps.values() if not step["ok"]]
    assert not wrong and {"cluster destroy", "volume detach", "volume destroy", "bucket delete"} <= set(report.steps), wrong


def test_a_port_that_somebody_else_has(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        report = doctor("--data", tmp_path / "data", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    report.has("failure", "ports.api")
    assert f"process {os.getpid()}" in report.found["ports.api"]["found"] and report.code == 1
    elsewhere = doctor("--data", tmp_path / "data", "--listen", "192.0.2.7:7070")
    elsewhere.has("failure", "ports.api")


def test_no_engine_at_an_address_that_was_given(tmp_path):
    report = alone(tmp_path / "data", "--engine", f"http://127.0.0.1:{free_port()}")
    report.has("failure", "engine.answers")


@needs_root
def test_another_user_is_told_what_was_not_looked_at(server):
    server.data.chmod(0o700)
    program = os.open(BINARY, os.O_RDONLY)
    try:
        command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", f"/proc/self/fd/{program}", "doctor"]
        done = subprocess.run(
            [*command, "--json", *server.command[2:]], env=ENVIRONMENT | {"HOME": "/"}, stdin=subprocess.DEVNULL, cwd="/",
            capture_output=True, text=True, timeout=120, pass_fds=(program,),
        )  # fmt: skip
    finally:
        os.close(program)
    report = Report(done)
    report.has("skipped", "process.root", "kernel.idmapped_mounts", "network.firewall", "database.opens", "drift.instances")
    report.has("ok", "engine.answers")
    assert report.code == (0 if report.body["counts"]["failure"] == 0 else 1)


@needs_root
def test_a_disk_that_is_nearly_full(small_disk):
    report = alone(small_disk)
    report.has("failure", "space.data")
    assert report.code == 1


@needs_root
def test_rules_of_others_and_the_rule_that_mends_them(tmp_path):
    (tmp_path / "data").mkdir(mode=0o700)
    (tmp_path / "data/installation").write_text("abc123")
    chain = "nft add table inet mine; nft add chain inet mine through '{ type filter hook forward priority 0; policy drop; }'"
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    todo = """python3 -c 'import json, sys; print(next(f["todo"] for f in json.load(open(sys.argv[1]))["findings"] if f["check"] == "network.firewall"))'"""
    script = f"""
    set -u
    ip link add uplink type veth peer name elsewhere
    ip address add 192.0.2.1/24 dev uplink
    ip link set uplink up
    ip route add default via 192.0.2.2
    {chain}
    "$@" > {before}
    rule=$({todo} {before})
    sh -ec "$rule"
    "$@" > {after}
    """
    command = ["unshare", "--net", "sh", "-c", script, "sh", BINARY, "doctor", "--json", "--data", tmp_path / "data"]
    subprocess.run([str(part) for part in command], env=ENVIRONMENT, stdin=subprocess.DEVNULL, timeout=120)
    first, second = (
        {each["check"]: each for each in json.loads(path.read_text())["findings"]} for path in (before, after)
    )
    assert first["network.firewall"]["level"] == "failure", first["network.firewall"]
    assert "inet mine through" in first["network.firewall"]["found"]
    assert "uplink" in first["network.firewall"]["todo"], "only the way to other machines is opened"
    assert second["network.firewall"]["level"] == "ok", second["network.firewall"]


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """A real engine with machines and volumes."""
    with Volumes(tmp_path_factory.mktemp("doctor")) as running:
        yield running


@needs_root
def test_a_real_engine_and_a_whole_trial(cloud):
    report = beside(cloud, "--full")
    report.has("ok", "kernel.idmapped_mounts", "kernel.links", "kernel.nf_tables", "ports.ssh", "engine.answers")
    report.has("ok", "drift.instances", "drift.volumes", "drift.leftovers", "drift.promises")
    wrong = [step for step in report.steps.values() if not step["ok"]]
    assert not wrong, wrong
    expected = {"cluster create", "volume create", "volume attach", "job run", "job output", "object put", "object get"}
    assert expected | {"cluster destroy", "volume destroy", "bucket delete", "job delete"} <= set(report.steps)
    assert report.body["trial"] and documented() - set(report.found) <= {
        "certificate.valid", "certificate.names", "certificate.served", "certificate.key_file", "database.server", "database.clock", "engine.metrics",
    }  # fmt: skip
    left_by(cloud)


def left_by(cloud):
    """Nothing is left of a trial."""
    names = [each["name"] for each in cloud.call("GET", "/cluster/list", expect=200).json()["clusters"] + cloud.volumes()]
    assert not [name for name in names if name.startswith("doctor-")]
    assert not cloud.call("GET", "/job/list", expect=200).json()["jobs"]


@needs_root
def test_a_trial_that_is_interrupted_leaves_nothing(cloud):
    command = [str(BINARY), "doctor", *cloud.command[2:], "--full"]
    process = subprocess.Popen(
        command, env=ENVIRONMENT | {"TENSORPOOL_KEY": cloud.key}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True
    )
    try:
        # As soon as there is a key, there will be a cluster.
        for line in process.stdout:
            if re.match(r"  ok +key ", line):
                break
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read()
        assert process.wait(120) == 130, rest
    finally:
        process.kill()
        process.wait()
    left_by(cloud)


@needs_root
def test_what_belongs_to_no_instance_is_told(cloud):
    top = Path("/sys/fs/cgroup")
    top = top if (top / "cgroup.controllers").exists() else top / "memory"
    group = top / f"tarn-{(cloud.data / 'installation').read_text().strip()}/i-000000000000"
    made = [path for path in (group, group.parent) if not path.exists()]
    group.mkdir(parents=True)
    try:
        report = beside(cloud)
    finally:
        for path in made:
            path.rmdir()
    report.has("warning", "drift.leftovers")
    assert "i-000000000000" in report.found["drift.leftovers"]["found"]


@needs_root
def test_a_volume_whose_file_is_gone_is_told(cloud):
    volume = cloud.make_volume("lost")
    file = cloud.data / f"volumes/{volume}/data.xfs"
    file.rename(file.with_name("away"))
    try:
        report = beside(cloud)
        report.has("failure", "drift.volumes")
        assert volume in report.found["drift.volumes"]["found"] and report.code == 1
    finally:
        file.with_name("away").rename(file)
    eventually(lambda: cloud.volume(volume)["status"] == "READY", seconds=60, what="a volume that is right again")
    cloud.destroy_volume(volume)


@needs_root
def test_an_engine_that_was_killed_and_its_machine(cloud):
    cluster = cloud.create("alive")
    cloud.process.kill()
    cloud.process.wait()
    report = doctor(*cloud.command[2:])
    report.has("note", "engine.answers")
    report.has("ok", "drift.instances", "drift.leftovers", "database.integrity", "ports.ssh")
    full = doctor(*cloud.command[2:], "--full")
    assert "tarn serve" in full.found["full"]["todo"] and full.code == 1
    cloud.start()
    cloud.destroy(cluster["id"])


@needs_root
def test_a_trial_says_which_step_failed(cloud):
    cloud.stop()
    usual = cloud.command
    at = usual.index("--s3-listen") + 1
    cloud.command = [*usual[:at], "none", *usual[at + 1 :]]
    try:
        cloud.start()
        report = beside(cloud, "--full")
        failed = [name for name, step in report.steps.items() if not step["ok"]]
        assert failed == ["object storage keys"], report.body["trial"]
        assert report.code == 1 and report.steps["object storage keys"]["message"]
        left_by(cloud)
        cloud.stop()
    finally:
        cloud.kill()
        cloud.command = usual
        cloud.start()
