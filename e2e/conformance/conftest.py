"""Fixtures of the conformance tests: an engine, the stock client, access to an instance, object storage."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from jobs import Jobs
from objects import Account, remove_bucket
from stock import StockClient
from stock_proofs import verify_proofs
from support import Server
from volumes import SETTINGS

from .engine import EXTERNAL_ENGINE, TIMEOUT_SECONDS, Engine
from .instance_access import InstanceAccess


@contextmanager
def own_engine(directory: Path):
    """An engine of ours, when none is named: with real instances as root, and with the fake driver otherwise."""
    if os.geteuid() == 0:
        with Jobs(directory, settings=SETTINGS) as server:
            yield Engine(server.url, server.key, directory, kind="worker")
    else:
        with Server(directory / "data") as server:
            yield Engine(server.url, server.key, directory, kind="1xH100")


@contextmanager
def external_engine(directory: Path):
    """The named engine of another operator."""
    key = os.environ.get("TARN_CONFORMANCE_KEY") or os.environ.get("TENSORPOOL_KEY")
    if not key:
        pytest.exit(f"set TENSORPOOL_KEY to the key for {EXTERNAL_ENGINE}", returncode=2)
    try:
        engine = Engine(EXTERNAL_ENGINE, key, directory, kind=os.environ.get("TARN_CONFORMANCE_TYPE"))
        answer = engine.call("GET", "/user/info")
    except (requests.RequestException, ValueError) as failure:
        pytest.exit(f"no engine responds at {EXTERNAL_ENGINE}: {failure}", returncode=2)
    if not answer.ok:
        pytest.exit(f"{EXTERNAL_ENGINE} refuses the key: {answer.json()['message']}", returncode=2)
    yield engine


@pytest.fixture(scope="package")
def engine(tmp_path_factory):
    """The engine under test. What the run creates there is removed at its end, also after a failure."""
    directory = tmp_path_factory.mktemp("conformance")
    with (external_engine if EXTERNAL_ENGINE else own_engine)(directory) as engine:
        try:
            yield engine
        finally:
            engine.clean()


@pytest.fixture
def tp(engine, tmp_path, request):
    """The stock client with the engine's key."""
    client = StockClient(engine.url, engine.key, tmp_path / "home", environment=engine.environment, seconds=TIMEOUT_SECONDS)
    yield from verify_proofs(client, request)


@pytest.fixture(scope="package")
def cluster(engine) -> dict:
    """A running cluster that tests share."""
    return engine.create()


@pytest.fixture(scope="package")
def access(engine, cluster) -> InstanceAccess:
    """SSH access to the instance of that cluster."""
    told = engine.call("GET", f"/ssh/{cluster['instances'][0]['id']}", expect=200).json().get("message") or ""
    if "fake driver" in told:
        pytest.skip(f"no instance to log in to: {told}")
    for program in ("ssh", "scp", "sftp", "rsync"):
        if not shutil.which(program):
            pytest.skip(f"{program} is missing here")
    return InstanceAccess(engine, cluster["instances"][0]["id"])


@pytest.fixture(scope="package")
def account(engine) -> Account:
    """Object storage, enabled for the time of the run if it was off."""
    engine.skip_unless_offered("POST", "/object-storage/enable")
    off = engine.call("GET", "/object-storage/credentials").status_code == 404
    answer = engine.call("POST", "/object-storage/enable")
    if answer.status_code in (403, 503):
        pytest.skip(f"no object storage for this account: {answer.json()['message']}")
    assert answer.status_code == 200, answer.text
    engine.enabled, told = off, answer.json()
    return Account(told["endpoint"], told["access_key_id"], told["secret_access_key"], told["region"])


@pytest.fixture
def bucket(engine, account):
    """The name of a bucket, which is emptied and removed at the end if it was created."""
    name = engine.name()
    yield name
    remove_bucket(account.client(), name)
