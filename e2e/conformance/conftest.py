"""Fixtures of the conformance tests: an engine, the stock client, a machine, object storage."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

from jobs import Jobs
from objects import Account, remove_bucket
from stock import StockClient
from stock_proofs import held_to
from support import Server
from volumes import SETTINGS

from .engine import ELSEWHERE, PATIENCE, Engine
from .machine import Machine


@contextmanager
def started(directory: Path):
    """An engine of our own, when none was named: with real machines if that is possible here, which needs root."""
    if os.geteuid() == 0:
        with Jobs(directory, settings=SETTINGS) as server:
            yield Engine(server.url, server.key, directory, kind="worker")
    else:
        with Server(directory / "data") as server:
            yield Engine(server.url, server.key, directory, kind="1xH100")


@contextmanager
def named(directory: Path):
    """The engine that somebody else runs."""
    key = os.environ.get("TARN_CONFORMANCE_KEY") or os.environ.get("TENSORPOOL_KEY")
    if not key:
        pytest.exit(f"say in TENSORPOOL_KEY with which key to call {ELSEWHERE}", returncode=2)
    try:
        engine = Engine(ELSEWHERE, key, directory, kind=os.environ.get("TARN_CONFORMANCE_TYPE"))
        answer = engine.call("GET", "/user/info")
    except (requests.RequestException, ValueError) as failure:
        pytest.exit(f"no engine answers at {ELSEWHERE}: {failure}", returncode=2)
    if not answer.ok:
        pytest.exit(f"{ELSEWHERE} refuses the key: {answer.json()['message']}", returncode=2)
    yield engine


@pytest.fixture(scope="package")
def engine(tmp_path_factory):
    """The engine under test. What the run makes there is taken away at its end, also after a failure."""
    directory = tmp_path_factory.mktemp("conformance")
    with (named if ELSEWHERE else started)(directory) as engine:
        try:
            yield engine
        finally:
            engine.clean()


@pytest.fixture
def tp(engine, tmp_path, request):
    """The stock client, as somebody with the key runs it."""
    client = StockClient(engine.url, engine.key, tmp_path / "home", environment=engine.environment, seconds=PATIENCE)
    yield from held_to(client, request)


@pytest.fixture(scope="package")
def cluster(engine) -> dict:
    """A running cluster that tests share."""
    return engine.create()


@pytest.fixture(scope="package")
def machine(engine, cluster) -> Machine:
    """A way into the machine of that cluster."""
    told = engine.call("GET", f"/ssh/{cluster['instances'][0]['id']}", expect=200).json().get("message") or ""
    if "fake driver" in told:
        pytest.skip(f"no machine to log in to: {told}")
    for program in ("ssh", "scp", "sftp", "rsync"):
        if not shutil.which(program):
            pytest.skip(f"{program} is missing here")
    return Machine(engine, cluster["instances"][0]["id"])


@pytest.fixture(scope="package")
def account(engine) -> Account:
    """Object storage, switched on for as long as the run takes if it was off."""
    engine.offers("POST", "/object-storage/enable")
    off = engine.call("GET", "/object-storage/credentials").status_code == 404
    answer = engine.call("POST", "/object-storage/enable")
    if answer.status_code in (403, 503):
        pytest.skip(f"no object storage for this account: {answer.json()['message']}")
    assert answer.status_code == 200, answer.text
    engine.enabled, told = off, answer.json()
    return Account(told["endpoint"], told["access_key_id"], told["secret_access_key"], told["region"])


@pytest.fixture
def bucket(engine, account):
    """The name for a bucket, which is emptied and removed at the end if it was made."""
    name = engine.name()
    yield name
    remove_bucket(account.client(), name)
