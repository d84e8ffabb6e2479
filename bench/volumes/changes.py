"""The seconds of volume changes, each from the accepted request to its end as a client sees it.

The driver's work is a part of that; the rest is the engine's steps, each of them committed, and the client's polling.
"""

import statistics
import time

from bench.instances.tarn import Tarn

GIGABYTES = 20


def take_turns(tarn: Tarn, repetitions: int) -> dict[str, list[float]]:
    """Median, minimum and maximum by kind. The kinds take turns, so that a disturbance affects all; the first round
    is a warm-up."""
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
    """Creates, attaches, detaches and destroys one volume."""
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
    """Makes a call and waits for the end of its request."""
    return until(tarn, tarn.call(method, path, body))


def until(tarn: Tarn, accepted: dict) -> float:
    """Seconds from now to the end of an accepted request."""
    began = time.monotonic()
    tarn.finish(request(accepted))
    return time.monotonic() - began


def request(accepted: dict) -> str:
    """The one request of a response; an attach could have several."""
    return accepted.get("request_id") or accepted["request_ids"][0]
