"""`tarn doctor` on what is around an engine: registries, certificates, another database, ports and limits."""

import base64
import json
import os
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from doctors import Report, alone, beside, doctor
from support import ENVIRONMENT, Server, free_port


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
    assert "rejects the login of someone" in stranger.found["registries.reachable"]["found"]
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
