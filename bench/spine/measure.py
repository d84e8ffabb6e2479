"""What is measured, part by part; every part starts its own servers with its own data, and removes them."""

import json
import shutil
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from bench import host, servers
from bench.spine import rows
from bench.spine.load import Call, Sample, compare, run

OWN_CLUSTERS = 20
MANY_CLUSTERS = 10_000
FEW_OTHER_ROWS = 100
STARTS = 10
# Capacity for the tenant's clusters; the GPUs are simulated, as always with the fake driver.
OPTIONS = ("--simulated-gpus", "32xH100")
TOKEN = {"Authorization": "Bearer token-7"}
TOKEN_ROW = "/db/1007"


@dataclass
class Plan:
    """The duration and number of runs, and the maximum number of other tenants' rows."""

    directory: Path
    seconds: int
    repetitions: int
    other_tenants: int

    @property
    def counts(self) -> tuple[int, int]:
        """The minimum and maximum number of other tenants' rows."""
        return FEW_OTHER_ROWS, self.other_tenants

    def compare(self, calls: dict[str, Call]) -> dict[str, Sample]:
        """The named calls in turn."""
        samples = compare(list(calls.values()), seconds=self.seconds, repetitions=self.repetitions)
        return dict(zip(calls, samples, strict=True))


def prepare(plan: Plan, program: Path = servers.TARN) -> Path:
    """A data directory in which the administrator has twenty running clusters; the parts work on copies of it."""
    data = plan.directory / "base"
    with servers.tarn(data, *OPTIONS, program=program) as server:
        for _ in range(OWN_CLUSTERS):
            status, answer = server.get("/cluster/create", key(data), method="POST", body=claim())
            if status != 202:
                raise RuntimeError(f"a cluster was refused: {status} {answer!r}")
        deadline = time.monotonic() + 120
        while [one["status"] for one in clusters(server, data)] != ["RUNNING"] * OWN_CLUSTERS:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not every cluster came to run: {clusters(server, data)}")
            time.sleep(0.1)
    return data


def reads(plan: Plan, base: Path) -> dict[str, Sample]:
    """One object and a list of twenty, from all three."""
    database = plan.directory / "baseline.sqlite"
    rows.baseline(database)
    with ExitStack() as stack:
        fastapi = stack.enter_context(servers.fastapi(database))
        limit = stack.enter_context(servers.axum_limit(database))
        tarn = stack.enter_context(servers.tarn(base, *OPTIONS))
        calls = {
            "info fastapi": Call(fastapi, TOKEN_ROW, TOKEN),
            "info fastapi async": Call(fastapi, "/a" + TOKEN_ROW, TOKEN),
            "info axum": Call(limit, TOKEN_ROW, TOKEN),
            "info tarn": info(tarn, base),
            "list fastapi": Call(fastapi, "/list", TOKEN),
            "list fastapi async": Call(fastapi, "/a/list", TOKEN),
            "list axum": Call(limit, "/list", TOKEN),
            "list tarn": Call(tarn, "/cluster/list", key(base)),
            "info tarn novel": replace(info(tarn, base), novel=True),
            "list tarn novel": Call(tarn, "/cluster/list", key(base), novel=True),
        }
        return plan.compare(calls)


def creates(plan: Plan) -> dict[str, Sample]:
    """Durable writes: a create of several rows against an insert of one."""
    database, data = plan.directory / "inserts.sqlite", plan.directory / "creates"
    rows.baseline(database)
    with ExitStack() as stack:
        limit = stack.enter_context(servers.axum_limit(database, sync="FULL"))
        tarn = stack.enter_context(servers.tarn(data, *OPTIONS))
        return plan.compare(
            {
                "create axum": Call(limit, "/insert", TOKEN, "POST"),
                "create tarn": Call(tarn, "/cluster/create", key(data), "POST", claim()),
            }
        )


def growth(plan: Plan, base: Path) -> dict[str, Sample]:
    """The same two reads, never cached, while other tenants have few rows and many."""
    few, many = plan.directory / "few", plan.directory / "many"
    for data, count in zip((few, many), plan.counts, strict=True):
        shutil.copytree(base, data)
        rows.other_tenants(data, count)
    with servers.tarn(few, *OPTIONS) as one, servers.tarn(many, *OPTIONS) as other:
        calls = {}
        for count, server, data in zip(plan.counts, (one, other), (few, many), strict=True):
            calls[f"info {count}"] = replace(info(server, data), novel=True)
            calls[f"list {count}"] = Call(server, "/cluster/list", key(data), novel=True)
        return plan.compare(calls)


def memory(plan: Plan, base: Path) -> tuple[float, list[float]]:
    """Resident MiB with many clusters after some work, and the seconds of its starts on that database."""
    data = plan.directory / "ten-thousand"
    shutil.copytree(base, data)
    rows.other_tenants(data, MANY_CLUSTERS)
    server = servers.tarn(data, *OPTIONS)
    starts = []
    for _ in range(STARTS):
        starts.append(server.start(path="/me", headers=key(data)))
        server.stop()
    with server:
        run(Call(server, "/cluster/list", key(data)), plan.seconds)
        run(info(server, data), plan.seconds)
        return host.resident_mib(server.pid), [statistics.median(starts), min(starts), max(starts)]


def key(data: Path) -> dict:
    """The administrator's header. The stock client always sends a JSON content type."""
    return {"Authorization": f"Bearer {(data / 'admin.key').read_text().strip()}", "Content-Type": "application/json"}


def claim() -> str:
    """The body of a create."""
    return json.dumps({"instance_type": "1xH100"})


def clusters(server, data: Path) -> list[dict]:
    """The administrator's clusters."""
    return json.loads(server.get("/cluster/list", key(data))[1])["clusters"]


def info(server, data: Path) -> Call:
    """A call for one of the administrator's clusters."""
    return Call(server, f"/cluster/info/{clusters(server, data)[0]['id']}", key(data))
