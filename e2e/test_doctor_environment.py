"""`tarn doctor` and the environment of an engine: registries, certificates, PostgreSQL, ports and limits."""

import base64
import json
import os
import signal
import socket
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from doctors import Report, doctor, doctor_of_engine, doctor_without_engine
from support import ENVIRONMENT, Server, eventually, free_port


class Registry(BaseHTTPRequestHandler):
    """A registry that accepts one login and refuses all others."""

    def do_GET(self):
        is_known = self.headers["Authorization"] == "Basic " + base64.b64encode(b"someone:s3cr3t").decode()
        self.send_response(404 if self.path != "/v2/" else 200 if is_known else 401)
        self.send_header("WWW-Authenticate", 'Basic realm="registry"')
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


def test_registries_are_checked(tmp_path):
    """Configured registries are checked for reachability and for their logins."""
    config = tmp_path / "tarn.toml"

    def report(port: int, password: str | None = None) -> Report:
        login = f'username = "someone"\npassword = "{password}"\n' if password else ""
        config.write_text(f'[[images.registries]]\nhost = "127.0.0.1:{port}"\n{login}')
        return doctor_without_engine(tmp_path / "data", "--config", config)

    lost = report(free_port(), "s3cr3t")
    lost.expect_level("failure", "registries.reachable")
    assert "s3cr3t" not in json.dumps(lost.body)
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as registry:
        threading.Thread(target=registry.serve_forever, daemon=True).start()
        port = registry.server_address[1]
        well, nobody, stranger = report(port, "s3cr3t"), report(port), report(port, "m1st4k3")
        registry.shutdown()
    well.expect_level("ok", "registries.settings", "registries.reachable")
    nobody.expect_level("ok", "registries.reachable")
    stranger.expect_level("failure", "registries.reachable")
    assert "rejects the login of someone" in stranger.found["registries.reachable"]["found"]
    assert "m1st4k3" not in json.dumps(stranger.body)
    # Without a configured registry the default one is checked, and an unreachable one is no failure.
    config.write_text("")
    usual = doctor_without_engine(tmp_path / "data", "--config", config)
    usual.expect_level("warning", "registries.reachable")
    assert "docker.io" in usual.found["registries.reachable"]["found"]
    config.write_text('[images]\nallowed_registries = ["127.0.0.1:1"]\n')
    doctor_without_engine(tmp_path / "data", "--config", config).expect_level("ok", "registries.reachable")


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


def test_certificates_are_checked(tmp_path):
    """Certificates are checked for their names, their age and their key file."""
    well = certificate(tmp_path, 90)
    report = doctor_without_engine(tmp_path / "data", *well, "--public-url", "https://cloud.example.org")
    report.expect_level("ok", "certificate.usable", "certificate.valid", "certificate.names", "certificate.key_file")
    report = doctor_without_engine(tmp_path / "data", *well, "--public-url", "https://other.example.org")
    report.expect_level("failure", "certificate.names")
    (tmp_path / "key.pem").chmod(0o644)
    report = doctor_without_engine(tmp_path / "data", *certificate(tmp_path, 2)[:2], "--tls-key", tmp_path / "key.pem")
    report.expect_level("warning", "certificate.valid")
    (tmp_path / "cert.pem").write_text("this is no certificate")
    report = doctor_without_engine(tmp_path / "data", *well)
    report.expect_level("failure", "certificate.usable")
    assert report.code == 1


def test_expired_certificate_is_failure(tmp_path):
    """An expired certificate is a failure."""
    cert, key = certificate(tmp_path, 90)[1::2]
    request = ["openssl", "req", "-new", "-key", key, "-subj", "/CN=tarn-test", "-out", tmp_path / "request.pem"]
    subprocess.run(request, check=True, capture_output=True)
    # The dates are given to an authority, because not every openssl lets a self-signed certificate begin in the past.
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
    report = doctor_without_engine(tmp_path / "data", "--tls-cert", cert, "--tls-key", key)
    report.expect_level("failure", "certificate.valid")
    assert "expired on 2021-01-01" in report.found["certificate.valid"]["found"]


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_renewed_certificate_is_served(tmp_path):
    """A renewed certificate is served after SIGHUP, and the doctor sees it."""
    options = certificate(tmp_path, 90)
    server = Server(tmp_path / "data", *options, verify=tmp_path / "cert.pem")
    # The certificate is not for this address, and the doctor checks which one is served.
    server.session.verify = False
    with server:
        doctor_of_engine(server).expect_level("ok", "certificate.served", "certificate.valid")
        certificate(tmp_path, 365)
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: doctor_of_engine(server).found["certificate.served"]["level"] == "ok", what="it is served")


@pytest.mark.skipif("TARN_TEST_POSTGRES" not in os.environ, reason="needs scripts/with-postgres")
def test_postgresql_is_checked(tmp_path):
    """A PostgreSQL database is checked, and missing rights are named."""
    base, _, _ = os.environ["TARN_TEST_POSTGRES"].rpartition("/")
    name, reader = f"doctor_{os.getpid()}", f"doctor_reader_{os.getpid()}"

    def sql(database: str, text: str):
        subprocess.run(["psql", f"{base}/{database}", "-q", "-v", "ON_ERROR_STOP=1", "-c", text], check=True, env=ENVIRONMENT)

    sql("postgres", f"create database {name}")
    with Server(tmp_path / "data", "--database", f"{base}/{name}") as server:
        report = doctor_of_engine(server)
        report.expect_level("ok", "database.opens", "database.schema", "database.server", "database.clock", "database.master_key")
        report.expect_level("ok", "engine.answers", "drift.requests", "drift.jobs")
        sql(name, f"create role {reader} login; grant select on all tables in schema public to {reader}")
        try:
            other = base.replace("postgres@", f"{reader}@")
            report = doctor("--data", server.data, "--database", f"{other}/{name}", "--driver", "fake")
            report.expect_level("failure", "database.server")
            assert "requests" in report.found["database.server"]["found"]
        finally:
            sql(name, f"drop owned by {reader}; drop role {reader}")
        server.stop()
    doctor_without_engine(tmp_path / "data", "--database", f"{base}/nowhere_{name}").expect_level("failure", "database.opens")


def test_engine_process_limits_are_checked(tmp_path):
    """The limits of the engine's own process are checked, not those of the doctor."""
    server = Server(tmp_path / "data")
    server.command = ["sh", "-c", 'ulimit -n 512 && exec "$@"', "sh", *server.command]
    with server:
        # The doctor may open many files, but the engine may not.
        report = doctor(*server.command[6:])
        report.expect_level("warning", "limits.files")
        assert "the engine may have only 512 files" in report.found["limits.files"]["found"]


def test_trial_with_fake_driver_skips_job(server):
    """The trial on the fake driver waits for no job."""
    report = doctor_of_engine(server, "--full", seconds=100)
    assert "fake driver" in report.steps["job run"]["message"] and report.steps["job run"]["ok"]
    wrong = [step for step in report.steps.values() if not step["ok"]]
    assert not wrong and {"cluster destroy", "volume detach", "volume destroy", "bucket delete"} <= set(report.steps), wrong


def test_taken_port_names_process(tmp_path):
    """A port that another process holds is a failure that names the process."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        report = doctor("--data", tmp_path / "data", "--listen", f"127.0.0.1:{taken.getsockname()[1]}")
    report.expect_level("failure", "ports.api")
    assert f"process {os.getpid()}" in report.found["ports.api"]["found"] and report.code == 1
    elsewhere = doctor("--data", tmp_path / "data", "--listen", "192.0.2.7:7070")
    elsewhere.expect_level("failure", "ports.api")


def test_unreachable_engine_is_failure(tmp_path):
    """An engine that does not respond at the given address is a failure."""
    report = doctor_without_engine(tmp_path / "data", "--engine", f"http://127.0.0.1:{free_port()}")
    report.expect_level("failure", "engine.answers")
