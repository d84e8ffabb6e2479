"""Registries as they are in the world: with logins, with encryption, sending on to others, and what people are told when an image
cannot be had there. What a registry may do wrong beyond that is in the driver's own tests."""

import base64
import json
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import requests

from machines import Machines, needs_root
from registry import LOGIN, Layer, Registry, needs_registry
from support import free_port

pytestmark = [needs_root, needs_registry]


class Forwarding:
    """A way to a registry, with encryption or without, that sends on whoever asks for a blob: `onto` is the address."""

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
        """Nobody comes any more."""
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def registry(tmp_path_factory):
    """A registry without a login."""
    with Registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
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
    """Three ways to the registry: encrypted; plain and sent on to that; encrypted and sent on in plain."""
    encrypted = Forwarding(registry, certificate)
    up = Forwarding(registry, onto=f"https://{encrypted.host}")
    down = Forwarding(registry, certificate, onto=f"http://{registry.host}")
    yield {"encrypted": encrypted, "up": up, "down": down}
    for each in (encrypted, up, down):
        each.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory, closed, certificate, forwarding):
    """A cloud that has two logins in a file of `docker login`: the right one for a registry, and a wrong one for its other name."""
    place = tmp_path_factory.mktemp("registries")
    login = lambda *pair: {"auth": base64.b64encode(":".join(pair).encode()).decode()}  # noqa: E731
    auths = {f"http://{closed.host}/v2/": login(*LOGIN), f"localhost:{closed.port}": login(LOGIN[0], "wrong")}
    (place / "config.json").write_text(json.dumps({"auths": auths}))
    settings = f'[images]\nregistry_auth_file = "{place / "config.json"}"\n'
    for name in ("encrypted", "down"):
        settings += f'[[images.registries]]\nhost = "{forwarding[name].host}"\nplain_http = false\n'
    machines = Machines(place, settings=settings)
    machines.environment["SSL_CERT_FILE"] = str(certificate[0])
    with machines as running:
        yield running


@pytest.fixture
def refuse(server):
    """Asks for a cluster that cannot be; answers why, as the request and the cluster say it."""

    def run(image: str) -> str:
        body = {"instance_type": "1xCPU", "container": image}
        accepted = server.call("POST", "/cluster/create", json=body, expect=202).json()
        said = server.finish(accepted["request_id"], status="FAILED")["message"]
        cluster = server.info(accepted["cluster_id"])
        assert cluster["status"] == "FAILED" and said in cluster["explanation"]
        server.destroy(cluster["id"])
        return said

    return run


def small(word: str) -> bytes:
    """A layer that no other image has."""
    return Layer().add("word", word.encode()).bytes()


def test_what_cannot_be_pulled_says_which(server, registry, refuse):
    registry.push("small", small("small"))
    for name in ("no-such:1", "small:no-such-tag"):
        whole = f"{registry.host}/{name}"
        assert f"there is no image {whole}: {registry.host} has no such repository, tag or digest" in refuse(whole)
    other = registry.push("other", small("other"), architecture="s390x")
    assert f"{other} is not for this host, which is linux/" in (said := refuse(other)) and said.endswith("available: linux/s390x"), said
    nowhere = f"127.0.0.1:{free_port()}"
    assert f"the registry {nowhere} cannot be reached: Connection refused" in refuse(f"{nowhere}/small")
    for wrong, why in (("Debian", "capital letters"), ("a:b:c", "no tag"), ("a@sha256:1", "64 hexadecimal"), ("a b", "in it"), ("[::1]:5000/a", "IPv6")):
        refused = server.call("POST", "/cluster/create", json={"instance_type": "1xCPU", "container": wrong}, expect=400)
        assert refused.json()["code"] == "invalid_container" and why in refused.text, refused.text


def test_logins_are_those_of_the_file(server, closed, refuse, tmp_path):
    image = closed.push("small", small("closed"))
    assert server.create("known", container=image)["container"] == image
    server.destroy("known")
    # The same registry under the name for which the file has a wrong password.
    image = image.replace("127.0.0.1", "localhost")
    assert f"localhost:{closed.port} rejects the login that this cloud has for it" in refuse(image)
    with Registry(tmp_path / "other", login=True) as other:
        said = refuse(other.push("small", small("other login")))
        assert f"{other.host} has no public small, and this cloud has no login there" in said


def test_digests_name_images_exactly(server, registry):
    image = registry.push("exact", small("exact"), tag="1")
    first, repository = registry.digest, image.removesuffix(":1")
    registry.push("exact", small("moved"), tag="1")
    for name in (f"{repository}@{first}", f"{repository}:1@{first}"):
        assert server.create("exact", container=name)["image"] == f"{repository}@{first}"
        server.destroy("exact")


def test_what_is_encrypted_stays_so_and_what_is_not_may_become_so(server, registry, forwarding, refuse):
    for name in ("encrypted", "up"):
        image = registry.push(name, small(name)).replace(registry.host, forwarding[name].host)
        server.create(name, container=image)
        server.destroy(name)
    image = registry.push("down", small("down")).replace(registry.host, forwarding["down"].host)
    assert f"{forwarding['down'].host} does not respond like a registry: it redirects to an address that is not allowed" in refuse(image)
