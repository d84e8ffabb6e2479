"""The clock of the host jumps: nothing that waits fails, and the times that users see become right again."""

import json
from datetime import datetime, timedelta, timezone

import pytest

from clocks import SettableClock
from doctors import doctor_of_engine
from support import Server, eventually

DAY = 86_400


@pytest.fixture
def clock(tmp_path):
    """The clock of the engine."""
    return SettableClock(tmp_path)


@pytest.fixture
def engine(tmp_path, clock):
    """An engine that sees that clock, with one claim that runs and one that waits."""
    with Server(tmp_path / "data", environment=clock.environment) as running:
        running.finish(create(running, "8xH100"))
        yield running
        running.stop()


def create(server, kind) -> str:
    """Creates a cluster and returns the id of its request."""
    return server.call("POST", "/cluster/create", json={"instance_type": kind}, expect=202).json()["request_id"]


def waits(server, request) -> bool:
    """Whether the request still waits; it must not have ended."""
    seen = server.call("GET", f"/request/info/{request}", expect=200).json()
    assert seen["status"] not in ("COMPLETED", "FAILED"), seen
    return seen["status"] == "PENDING"


def engine_time(server) -> datetime:
    """The time of the engine, as a new object shows it."""
    made = server.call("POST", "/storage/create", json={"size": 1}, expect=202).json()
    info = server.call("GET", f"/request/info/{made['request_id']}", expect=200).json()
    return datetime.fromisoformat(info["created_at"].replace("Z", "+00:00"))


def wait_until_followed(server, seconds, times):
    """Waits until the engine has followed so many jumps; then it shows the time of a clock that is so far ahead."""
    eventually(lambda: server.output().count("the time follows") == times, what="the engine following a jump")
    expected = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    assert abs(engine_time(server) - expected) < timedelta(seconds=60)


@pytest.mark.parametrize("seconds", [DAY + 60, 400 * DAY, -DAY - 60], ids=["day", "year", "back"])
def test_jump_fails_no_waiting_claim(engine, clock, seconds):
    """A claim that waits goes on waiting while the clock jumps, and when it is set right again."""
    waiting = create(engine, "8xH100")
    eventually(lambda: waits(engine, waiting), what="the claim waiting")
    for times, ahead in enumerate((seconds, 0), start=1):
        clock.set(ahead)
        wait_until_followed(engine, ahead, times)
        assert waits(engine, waiting)
    assert "the clock of this host jumped" in engine.output()


def test_jump_while_engine_is_down(engine, clock):
    """A claim survives a jump while the engine is down, also after kill -9, and is served when capacity is free."""
    waiting = create(engine, "8xH100")
    eventually(lambda: waits(engine, waiting), what="the claim waiting")
    engine.kill()
    clock.set(3 * DAY)
    engine.start()
    assert waits(engine, waiting)
    wait_until_followed(engine, 3 * DAY, 1)
    assert waits(engine, waiting)
    clusters = engine.call("GET", "/cluster/list", expect=200).json()["clusters"]
    (running,) = [each["id"] for each in clusters if each["status"] == "RUNNING"]
    engine.call("DELETE", f"/cluster/{running}", expect=202)
    engine.finish(waiting)


def test_doctor_reports_jump(engine, clock):
    """The doctor says that the clock jumped."""
    clock.set(2 * DAY + 1800)
    wait_until_followed(engine, 2 * DAY + 1800, 1)
    report = doctor_of_engine(engine)
    report.expect_level("warning", "database.clock_jumps")
    assert "forward by 2d" in json.dumps(report.found["database.clock_jumps"]), report.found["database.clock_jumps"]
