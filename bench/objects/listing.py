"""Pages of a bucket with very many keys."""

from dataclasses import dataclass
from pathlib import Path

from bench.objects import systems

CONNECTIONS = 32
REQUESTS = 1000


@dataclass
class Pages:
    """Tiny objects per second while the bucket was filled, and the milliseconds of a page of 1,000 keys."""

    filled_rate: float
    p50_ms: float
    p99_ms: float


def measure(work: Path, keys: int, seed: int) -> Pages:
    """Writes all keys through S3, then reads pages at random positions. The data directory is removed with the
    server."""
    with systems.Tarn(work) as tarn:
        client = tarn.client("bench-listing")
        client.run("make")
        filled = client.run("fill", CONNECTIONS, keys)
        listed = client.run("list", keys, REQUESTS, seed)
    return Pages(filled["operations"] / filled["seconds"], listed["p50_ms"], listed["p99_ms"])
