"""Load by wrk: 64 connections from 2 threads, and its cost for the server."""

import json
import re
import resource
import statistics
import subprocess
import tempfile
from dataclasses import dataclass

from bench import host

CONNECTIONS = 64
THREADS = 2
# Every thread of wrk has its own state, and so an address that distinguishes it from the others.
NOVEL = """
local asked, self = 0, tostring({}):sub(8)
function request()
  asked = asked + 1
  return wrk.format(nil, wrk.path .. "?novel=" .. self .. asked)
end
"""
MILLISECONDS = {"us": 1e-3, "ms": 1, "s": 1e3, "m": 6e4}


@dataclass
class Call:
    """One kind of call to one server."""

    server: object
    path: str
    headers: dict
    method: str = "GET"
    body: str = ""
    # Whether each call is new, so that no response can come from a cache.
    novel: bool = False


@dataclass
class Sample:
    """The result of one run of wrk, or the median of several."""

    rate: float
    p50_ms: float
    p99_ms: float
    cpu_us: float
    resident_mib: float
    others_percent: float


def run(call: Call, seconds: float) -> Sample:
    """One run. A response that is not a success makes it worthless, so that is an error."""
    url = call.server.url + call.path
    command = ["wrk", "-t", str(THREADS), "-c", str(CONNECTIONS), "-d", f"{seconds}s", "--latency", "--timeout", "30s"]
    for name, value in call.headers.items():
        command += ["-H", f"{name}: {value}"]
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        if call.method != "GET":
            script.write(f"wrk.method = {json.dumps(call.method)}\nwrk.body = {json.dumps(call.body)}\n")
            script.flush()
            command += ["-s", script.name]
        if call.novel:
            script.write(NOVEL)
            script.flush()
            command += ["-s", script.name]
        pid = call.server.pid
        server, whole, client = host.cpu_seconds(pid), host.busy_seconds(), children_seconds()
        done = subprocess.run([*command, url], capture_output=True, text=True, timeout=seconds + 60)
        server = host.cpu_seconds(pid) - server
        client = children_seconds() - client
        busy, had = (after - before for after, before in zip(host.busy_seconds(), whole, strict=True))
    text = done.stdout
    if done.returncode or "Non-2xx" in text or "Socket errors" in text:
        raise RuntimeError(f"{call.method} {url} did not work:\n{text}{done.stderr}")
    return Sample(
        rate=float(re.search(r"Requests/sec:\s+([\d.]+)", text)[1]),
        p50_ms=percentile(text, 50),
        p99_ms=percentile(text, 99),
        cpu_us=server / int(re.search(r"(\d+) requests in", text)[1]) * 1e6,
        resident_mib=host.resident_mib(pid),
        others_percent=100 * max(0, busy - server - client) / max(had, 0.01),
    )


def compare(calls: list[Call], *, seconds: int, repetitions: int) -> list[Sample]:
    """The median of each call's runs. They take turns, so that a disturbance affects all of them alike."""
    for call in calls:
        run(call, 1)
    turns = [[] for _ in calls]
    for number in range(repetitions):
        # Each call is once at every place of the order.
        for at in range(len(calls)):
            place = (at + number) % len(calls)
            turns[place].append(run(calls[place], seconds))
    return [median(samples) for samples in turns]


def median(samples) -> Sample:
    """The median of every figure by itself."""
    names = Sample.__dataclass_fields__
    return Sample(**{name: statistics.median(getattr(sample, name) for sample in samples) for name in names})


def percentile(text: str, percent: int) -> float:
    """A latency from wrk's distribution, in milliseconds."""
    number, unit = re.search(rf"^\s+{percent}%\s+([\d.]+)(us|ms|s|m)\s*$", text, re.M).groups()
    return float(number) * MILLISECONDS[unit]


def children_seconds() -> float:
    """Processor time of the runs of wrk so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
