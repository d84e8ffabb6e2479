"""Seconds that changes of volumes take, each from the accepted request to its end as a client sees it.

What the driver does is a part of that; the rest is the engine's own steps, each of them committed, and the client's asking.
"""

import statistics
import time

from bench.instances.tarn import Tarn

GIGABYTES = 20


def take_turns(tarn: Tarn, repetitions: int) -> dict[str, list[float]]:
    """Median, least and most by kind. The kinds take turns, so that a disturbance meets them all; the first round warms up."""
    accepted = tarn.ask("changes", "whole")
    tarn.finish(accepted["request_id"])
    cluster = accepted["cluster_id"]
    found: dict[str, list[float]] = {}
    for number in range(repetitions + 1):
        round_ = one_round(tarn, cluster, f"changes-{number}")
        if number:
            for kind, seconds in round_.items():
                found.setdefault(kind, []).append(seconds)
    tarn.destroy(cluster)
    return {kind: [statistics.median(values), min(values), max(values)] for kind, values in found.items()}


def one_round(tarn: Tarn, cluster: str, name: str) -> dict[str, float]:
    """The life of one volume."""
    created = tarn.call("POST", "/storage/create", {"name": name, "size": GIGABYTES})
    volume, times = created["storage_id"], {"create": until(tarn, created)}
    attach = {"storage_id": volume, "cluster_ids": [cluster]}
    detach = {"storage_id": volume, "cluster_id": cluster}
    times["live attach"] = timed(tarn, "POST", "/storage/attach", attach | {"live": True})
    times["live grow"] = timed(tarn, "PATCH", f"/storage/edit/{volume}", {"size_gb": GIGABYTES + 1})
    times["live detach"] = timed(tarn, "POST", "/storage/detach", detach | {"live": True})
    times["restart"] = timed(tarn, "POST", f"/cluster/restart/{cluster}")
    times["attach"] = timed(tarn, "POST", "/storage/attach", attach)
    times["detach"] = timed(tarn, "POST", "/storage/detach", detach)
    times["destroy"] = timed(tarn, "DELETE", f"/storage/{volume}")
    return times


def timed(tarn: Tarn, method: str, path: str, body=None) -> float:
    """Asks for something and waits for its end."""
    return until(tarn, tarn.call(method, path, body))


def until(tarn: Tarn, accepted: dict) -> float:
    """Seconds from here to the end of an accepted request."""
    began = time.monotonic()
    tarn.finish(request(accepted))
    return time.monotonic() - began


def request(accepted: dict) -> str:
    """The one request of an answer; an attach could have several."""
    return accepted.get("request_id") or accepted["request_ids"][0]
