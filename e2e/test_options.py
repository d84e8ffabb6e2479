"""The options of `tarn serve`: TLS, metrics, the configuration file, and refusals of invalid ones."""

import re
import signal
import socket
import ssl
import stat
import subprocess
from pathlib import Path

import pytest
import requests

from client import Client
from support import ENVIRONMENT, Server, eventually, free_port, refused_start, tarn


def write_certificate(certificate, key):
    """Writes a new certificate for 127.0.0.1 and its key."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=tarn-test", "-addext", "subjectAltName=IP:127.0.0.1",
         "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", key, "-out", certificate],
        check=True, capture_output=True,
    )  # fmt: skip


def test_tls_is_served(tmp_path):
    """With a certificate the engine serves only TLS; half a configuration is refused."""
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    write_certificate(certificate, key)
    with Server(tmp_path / "data", "--tls-cert", certificate, "--tls-key", key, verify=certificate) as server:
        server.call("GET", "/me", expect=200)
        with pytest.raises(requests.RequestException):
            requests.get(f"http://127.0.0.1:{server.port}/healthz", timeout=5).raise_for_status()
        client = Client(server, tmp_path / "home")
        assert "SSL_CERT_FILE" in client("me", code=1).errors, "the certificate is not trusted"
        assert "admin@localhost" in client("me", SSL_CERT_FILE=certificate).text
        server.stop()
    refused_start(tmp_path / "other", "--tls-cert", certificate)
    refused_start(tmp_path / "other", "--tls-cert", certificate, "--tls-key", tmp_path / "missing.pem")


def test_changed_certificate_is_served(tmp_path):
    """SIGHUP reads the certificate again, for the API and for S3; one that cannot be used leaves the old one."""
    certificate, key, other = tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "other.pem"
    write_certificate(certificate, key)
    with Server(tmp_path / "data", "--tls-cert", certificate, "--tls-key", key, verify=certificate) as server:

        def served():
            return {ssl.get_server_certificate(("127.0.0.1", port), timeout=5) for port in (server.port, server.s3_port)}

        first = served()
        write_certificate(other, key)
        other.replace(certificate)
        server.process.send_signal(signal.SIGHUP)
        [second] = eventually(lambda: served() if len(served()) == 1 and served() != first else None)
        assert ssl.PEM_cert_to_DER_cert(certificate.read_text()) == ssl.PEM_cert_to_DER_cert(second)
        certificate.write_text("broken")
        server.process.send_signal(signal.SIGHUP)
        eventually(lambda: "the previous certificate stays in use" in server.output())
        assert served() == {second}
        server.stop()


def test_plain_http_must_be_allowed(tmp_path):
    """A new installation serves plain HTTP on other addresses than loopback only if that is allowed."""
    for option in ("--listen", "--s3-listen"):
        said = refused_start(tmp_path / "data", option, f"0.0.0.0:{free_port()}")
        assert "--tls-cert" in said and "--insecure-http" in said and f"{option} 0.0.0.0" in said, said
        assert not (tmp_path / "data").exists(), "nothing is created"
    with Server(tmp_path / "data", "--s3-listen", f"0.0.0.0:{free_port()}", "--insecure-http") as server:
        server.stop()
    refused_start(tmp_path / "data", "--s3-listen", f"0.0.0.0:{free_port()}")


def test_stop_does_not_wait_for_clients(tmp_path):
    """SIGTERM ends the engine within ten seconds although clients hang; the engine keeps its data and memory private."""
    data = tmp_path / "data"
    data.mkdir(mode=0o755)
    data.chmod(0o755)
    with Server(data) as server:
        assert stat.S_IMODE(data.stat().st_mode) == 0o700 and "had the mode 0755" in server.output()
        limits = open(f"/proc/{server.process.pid}/limits").read()
        assert re.search(r"Max core file size +0 ", limits), limits
        head = f"Host: x\r\nAuthorization: Bearer {server.key}\r\nContent-Length: 100\r\n\r\n{{"
        with socket.create_connection(("127.0.0.1", server.port)) as hanging, socket.create_connection(
            ("127.0.0.1", server.s3_port)
        ) as silent:
            hanging.sendall(f"POST /storage/create HTTP/1.1\r\n{head}".encode())
            silent.sendall(b"PUT /bucket/key HTT")
            assert server.stop() < 10


def test_metrics_have_own_listener(tmp_path):
    """Metrics are served on their own listener only."""
    port = free_port()
    with Server(tmp_path / "data", "--metrics-listen", f"127.0.0.1:{port}") as server:
        server.call("GET", "/cluster/list", expect=200)
        answer = server.session.get(f"http://127.0.0.1:{port}/metrics", timeout=60)
        assert answer.status_code == 200
        assert answer.headers["Content-Type"].startswith("text/plain")
        samples = [line for line in answer.text.splitlines() if line and not line.startswith("#")]
        assert samples, "a server that has responded to a call has counted it"
        for sample in samples:
            assert re.fullmatch(r"[a-zA-Z_:][\w:]*(\{.*\})? [-+.\deEnaifN]+", sample), sample
        assert server.call("GET", "/metrics").status_code == 404
        server.stop()


def test_s3_address_options(tmp_path):
    """The S3 listener and its public address are options, and `none` switches it off."""
    with Server(tmp_path / "data", "--public-s3", "https://s3.example.org/") as server:
        enabled = server.call("POST", "/object-storage/enable", expect=200).json()
        assert enabled["endpoint"] == "https://s3.example.org", "the address that clients get"
        assert server.session.get(server.s3_url, timeout=60).status_code == 403, "where it listens"
        said = refused_start(tmp_path / "other", "--s3-listen", f"127.0.0.1:{server.s3_port}")
        assert "--s3-listen" in said, f"the error names the option to change: {said}"
        server.stop()
    with Server(tmp_path / "data", "--s3-listen", "none") as server:
        assert server.call("GET", "/object-storage/credentials").status_code == 503
        assert server.call("GET", "/object-storage/usage", expect=200).json()["enabled"]
        with pytest.raises(requests.ConnectionError):
            server.session.get(server.s3_url, timeout=60)
        server.stop()


def test_configuration_file_is_read(tmp_path):
    """Values of the configuration file are used."""
    config = tmp_path / "tarn.toml"
    config.write_text('simulated_gpus = "2xL40S"\n')
    environment = {name: value for name, value in ENVIRONMENT.items() if name != "TARN_SIMULATED_GPUS"}
    with Server(tmp_path / "data", environment=environment) as server:
        # The option is removed, so that the value of the file is used.
        at = server.command.index("--simulated-gpus")
        server.stop()
        server.command[at : at + 2] = ["--config", str(config)]
        server.start()
        server.call("GET", "/cluster/quote", params={"instance_type": "1xL40S", "num_nodes": 1}, expect=200)
        server.stop()


@pytest.mark.parametrize("text", ["no_such_key = 1\n", "[no_such_table]\nx = 1\n", "this is not toml"])
def test_invalid_configuration_is_refused(tmp_path, text):
    """An invalid configuration file is refused and named."""
    config = tmp_path / "tarn.toml"
    config.write_text(text)
    said = refused_start(tmp_path / "data", "--config", config)
    assert "tarn.toml" in said, said
    if "no_such" in text:
        assert "no_such" in said, said


def test_configuration_is_checked_without_data(tmp_path):
    """`--check` reports that the configuration is valid, or everything that is wrong with it, and creates nothing."""
    config, data = tmp_path / "tarn.toml", tmp_path / "data"
    config.write_text(f'data = "{data}"\nsimulated_gpus = "2xL40S"\n')
    valid = tarn("serve", "--check", "--config", config)
    assert valid.returncode == 0 and "The configuration is valid" in valid.stdout and str(data) in valid.stdout, valid
    config.write_text('log = "no such filter=["\nlisten = "0.0.0.0:7070"\n[[types]]\nname = "?"\ncpus = 1\nmemory_mib = 1\n')
    wrong = tarn("serve", "--check", "--config", config, "--data", data)
    assert wrong.returncode == 1, wrong
    for part in ("--log", "the name of the type", "--insecure-http"):
        assert part in wrong.stderr, (part, wrong.stderr)
    other = tarn("serve", "--check", "--database", "mysql://a@b/c")
    assert other.returncode == 1 and "--database must be" in other.stderr, other
    config.write_text("no_such_key = 1\n")
    assert "no_such_key" in tarn("serve", "--check", "--config", config).stderr
    assert sorted(tmp_path.iterdir()) == [config], "nothing was created"


def test_example_configuration_is_valid(tmp_path):
    """The example that packages install is valid, also with every line of it in effect."""
    example = (Path(__file__).parents[1] / "docs/operating/tarn.toml").read_text()
    write_certificate(tmp_path / "cert.pem", tmp_path / "key.pem")
    for text in (example, re.sub(r"^#(?=\S)", "", example, flags=re.M).replace("/etc/tarn", str(tmp_path))):
        config = tmp_path / "tarn.toml"
        config.write_text(text)
        checked = tarn("serve", "--check", "--config", config, "--data", tmp_path / "data")
        assert checked.returncode == 0, checked


def test_invalid_options_are_refused(tmp_path):
    """Invalid options are refused."""
    for options in (
        ["--config", tmp_path / "missing.toml"],
        ["--listen", "nonsense"],
        ["--driver", "nonsense"],
        ["--simulated-gpus", "many"],
        ["--s3-listen", "nonsense"],
        ["--public-s3", "s3.example.org"],
        ["--database", "mysql://127.0.0.1/x"],
        ["--no-such-option"],
    ):
        refused_start(tmp_path / "data", *options)
