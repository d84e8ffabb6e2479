"""The limits of any S3 server on this host: one stream over loopback, and the MD5 of an ETag on one core."""

import hashlib
import statistics
import time
from dataclasses import dataclass

from bench.objects import client

PIECE = bytes(64 << 20)


@dataclass
class Limits:
    """Bytes per second."""

    loopback: float
    md5: float


def measure_limits(rounds: int, seconds: float) -> Limits:
    """The medians of some runs."""
    return Limits(
        loopback=statistics.median(client.call("loopback", seconds)["bytes_per_second"] for _ in range(rounds)),
        md5=statistics.median(md5(seconds) for _ in range(rounds)),
    )


def md5(seconds: float) -> float:
    """OpenSSL's MD5 through Python, in pieces so large that Python itself does not matter."""
    began, done = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        hashlib.md5(PIECE, usedforsecurity=False).digest()
        done += len(PIECE)
    return done / (time.monotonic() - began)
