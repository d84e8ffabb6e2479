"""Large output: a job that writes text at a given rate, and whether every byte is kept."""

import base64
import datetime
import hashlib
import http.client
import random
from contextlib import closing
from dataclasses import dataclass

from bench.jobs.tarn import Tarn

BLOCK = 1 << 20
# The clock sets the pace; a write that blocks makes it late, which shows in the rate.
WRITER = """\
import base64, os, random, sys, time
blocks, rate = int(sys.argv[1]), float(sys.argv[2])
line = base64.b64encode(random.Random(6).randbytes(96)) + b"\\n"
text = (line * 10000)[: (1 << 20) - 17]
began = time.monotonic()
for number in range(blocks):
    block = f"{number:016}\\n".encode() + text
    while block:
        block = block[os.write(1, block):]
    time.sleep(max(0, began + (number + 1) * (1 << 20) / rate - time.monotonic()))
took = time.monotonic() - began
open("rate", "w").write(str(blocks * (1 << 20) / took))
"""


@dataclass
class FloodResult:
    """The result of a run."""

    size: int
    written_rate: float
    kept_rate: float


def measure(tarn: Tarn, mebibytes: int, rate: float) -> FloodResult:
    """Writes this much at this many bytes a second, and compares what was kept with what was written."""
    job = tarn.job('python3 -c "$WRITER" ' + f"{mebibytes} {rate}", outputs=["rate"], env={"WRITER": WRITER})
    seen = tarn.wait(job)
    times = [datetime.datetime.fromisoformat(seen[name]) for name in ("started_at", "ended_at")]
    url = tarn.call("GET", f"/job/pull/{job}")["download_map"]["rate"]
    status, text = tarn.get(url.split(f":{tarn.port}", 1)[1], {})
    assert status == 200, (status, text)
    assert digest(tarn, job) == expected(mebibytes), "what was kept is not what was written"
    tarn.get(f"/job/delete/{job}", tarn.headers, method="DELETE")
    return FloodResult(mebibytes * BLOCK, float(text), mebibytes * BLOCK / (times[1] - times[0]).total_seconds())


def digest(tarn: Tarn, job: str) -> str:
    """The SHA-256 of a log, read piece by piece."""
    found = hashlib.sha256()
    with closing(http.client.HTTPConnection("127.0.0.1", tarn.port, timeout=60)) as connection:
        connection.request("GET", f"/job/logs/{job}", headers=tarn.headers)
        answer = connection.getresponse()
        assert answer.status == 200, answer.status
        while piece := answer.read(BLOCK):
            found.update(piece)
    return found.hexdigest()


def expected(mebibytes: int) -> str:
    """The SHA-256 of what the writer writes."""
    line = base64.b64encode(random.Random(6).randbytes(96)) + b"\n"
    text, found = (line * 10000)[: BLOCK - 17], hashlib.sha256()
    for number in range(mebibytes):
        found.update(f"{number:016}\n".encode() + text)
    return found.hexdigest()
