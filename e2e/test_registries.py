"""Real registries: logins, TLS, redirects, and the errors when an image cannot be pulled. Further faults of
registries are in the driver's tests."""

import base64
import json
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from instances import Instances, needs_root
from registry import LOGIN, Layer, Registry, needs_registry
from support import free_port

pytestmark = [needs_root, needs_registry]


class RedirectingProxy:
    """A proxy to a registry, with or without TLS, that redirects calls for blobs to the address `onto`."""

    def __init__(self, registry: Registry, certificate=None, onto=""):
        def get(handler):
            if onto and "/blobs/" in handler.path:
                handler.send_response(307)
                handler.send_header("Location", onto + handler.path)
                handler.send_header("Content-Length", "0")
                handler.end_headers()
                return
            accepted = {"Accept": handler.headers.get("Accept", "*/*")}
            given = requests.get(f"http://{registry.host}{handler.path}", headers=accepted, timeout=60)
            handler.send_response(given.status_code)
            handler.send_header("Content-Length", str(len(given.content)))
            handler.end_headers()
            handler.wfile.write(given.content)

        quiet = {"do_GET": get, "log_message": lambda *_: None}
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (BaseHTTPRequestHandler,), quiet))
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.host = f"127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        """Stops the proxy."""
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    """A registry without a login."""
    with Registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def registry_with_login(tmp_path_factory):
    """A registry with a login."""
    with Registry(tmp_path_factory.mktemp("closed"), login=True) as running:
        yield running


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate for the loopback address, and its key."""
    place = tmp_path_factory.mktemp("certificate")
    cert, key = place / "cert.pem", place / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1",
         "-addext", "basicConstraints=critical,CA:FALSE", "-keyout", str(key), "-out", str(cert)],
        check=True, capture_output=True,
    )  # fmt: skip
    return cert, key


@pytest.fixture(scope="module")
def forwarding(registry, certificate):
    """Three proxies to the registry: TLS; plain with a redirect to that; TLS with a redirect to plain HTTP."""
    encrypted = RedirectingProxy(registry, certificate)
    up = RedirectingProxy(registry, onto=f"https://{encrypted.host}")
    down = RedirectingProxy(registry, certificate, onto=f"http://{registry.host}")
    yield {"encrypted": encrypted, "up": up, "down": down}
    for each in (encrypted, up, down):
        each.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory, registry_with_login, certificate, forwarding):
    """An engine with two logins in a file of `docker login`: a right one for a registry, and a wrong one for its
    other name."""
    place = tmp_path_factory.mktemp("registries")
    login = lambda *pair: {"auth": base64.b64encode(":".join(pair).encode()).decode()}  # noqa: E731
    auths = {f"http://{registry_with_login.host}/v2/": login(*LOGIN), f"localhost:{registry_with_login.port}": login(LOGIN[0], "wrong")}
    (place / "config.json").write_text(json.dumps({"auths": auths}))
    settings = f'registry_auth_file = "{place / "config.json"}"\n'  # In the section of `IMAGES`.
    for name in ("encrypted", "down"):
        settings += f'[[images.registries]]\nhost = "{forwarding[name].host}"\nplain_http = false\n'
    instances = Instances(place, settings=settings)
    instances.environment["SSL_CERT_FILE"] = str(certificate[0])
    with instances as running:
        yield running


@pytest.fixture
def refused_create(server):
    """Requests a cluster whose create fails; returns the reason, which the request and the cluster both show."""

    def run(image: str) -> str:
        body = {"instance_type": "1xCPU", "container": image}
        accepted = server.call("POST", "/cluster/create", json=body, expect=202).json()
        said = server.finish(accepted["request_id"], status="FAILED")["message"]
        cluster = server.info(accepted["cluster_id"])
        assert cluster["status"] == "FAILED" and said in cluster["explanation"]
        server.destroy(cluster["id"])
        return said

    return run


def small_layer(word: str) -> bytes:
    """A layer that no other image has."""
    return Layer().add("word", word.encode()).bytes()


def test_failed_pull_names_image_and_reason(server, registry, refused_create):
    """A failed pull names the image and the reason."""
    registry.push("small", small_layer("small"))
    for name in ("no-such:1", "small:no-such-tag"):
        whole = f"{registry.host}/{name}"
        assert f"there is no image {whole}: {registry.host} has no such repository, tag or digest" in refused_create(whole)
    other = registry.push("other", small_layer("other"), architecture="s390x")
    assert f"{other} is not for this host, which is linux/" in (said := refused_create(other)) and said.endswith("available: linux/s390x"), said
    for wrong, why in (("Debian", "capital letters"), ("a:b:c", "is not a tag"), ("a@sha256:1", "64 hexadecimal"), ("a b", "in it"), ("[::1]:5000/a", "IPv6")):
        refused = server.call("POST", "/cluster/create", json={"instance_type": "1xCPU", "container": wrong}, expect=400)
        assert refused.json()["code"] == "invalid_container" and why in refused.text, refused.text


def test_registry_logins_come_from_file(server, registry_with_login, refused_create, tmp_path):
    """Registry logins come from the file, and a wrong or missing one is reported."""
    image = registry_with_login.push("small", small_layer("closed"))
    assert server.create("known", container=image)["container"] == image
    server.destroy("known")
    # The same registry under the name with the wrong password.
    image = image.replace("127.0.0.1", "localhost")
    assert f"localhost:{registry_with_login.port} rejects the login that this cloud has for it" in refused_create(image)
    with Registry(tmp_path / "other", login=True) as other:
        said = refused_create(other.push("small", small_layer("other login")))
        assert f"{other.host} has no public small, and this cloud has no login there" in said


def test_digest_selects_exact_image(server, registry):
    """A digest selects exactly that image."""
    image = registry.push("exact", small_layer("exact"), tag="1")
    first, repository = registry.digest, image.removesuffix(":1")
    registry.push("exact", small_layer("moved"), tag="1")
    for name in (f"{repository}@{first}", f"{repository}:1@{first}"):
        assert server.create("exact", container=name)["image"] == f"{repository}@{first}"
        server.destroy("exact")


def test_redirect_never_drops_tls(server, registry, forwarding, refused_create):
    """A redirect may change from plain HTTP to TLS, and never from TLS to plain HTTP."""
    for name in ("encrypted", "up"):
        image = registry.push(name, small_layer(name)).replace(registry.host, forwarding[name].host)
        server.create(name, container=image)
        server.destroy(name)
    image = registry.push("down", small_layer("down")).replace(registry.host, forwarding["down"].host)
    assert f"this cloud does not reach a registry at {forwarding['down'].host};" in refused_create(image)
    assert "it redirects to an address that is not encrypted" in server.output()


def test_unlisted_private_address_is_not_called(server, refused_create):
    """A registry at a private address that the operator does not list is not called. The message is the same as for a
    port that is closed, and the log names the setting."""
    calls, nowhere = [], f"127.0.0.1:{free_port()}"
    quiet = {"do_GET": lambda handler: calls.append(handler.path), "log_message": lambda *_: None}
    with ThreadingHTTPServer(("127.0.0.3", 0), type("Handler", (BaseHTTPRequestHandler,), quiet)) as private:
        threading.Thread(target=private.serve_forever, daemon=True).start()
        host = f"127.0.0.3:{private.server_address[1]}"
        said = refused_create(f"{host}/small")
        private.shutdown()
    assert f"{host}/small:latest cannot be pulled: this cloud does not reach a registry at {host};" in said
    assert calls == []
    assert refused_create(f"{nowhere}/small") == said.replace(host, nowhere)
    line = next(line for line in server.output().splitlines() if "images.private_registries" in line)
    assert "a pull was refused" in line and host in line, line
