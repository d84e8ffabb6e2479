"""Starts of a cluster from a cached image, beside those from the host image."""

import time

from bench.instances.tarn import Tarn


def take_turns(engine: Tarn, reference: str, repetitions: int) -> dict[str, list[float]]:
    """Seconds from the call to COMPLETED. The two take turns, so that both run under the same conditions."""
    start(engine, "warm", reference)
    times = {"host": [], "image": []}
    for number in range(repetitions):
        times["host"].append(start(engine, f"host-{number}", None))
        times["image"].append(start(engine, f"image-{number}", reference))
    return times


def start(engine: Tarn, name: str, reference: str | None) -> float:
    """Creates one cluster and destroys it."""
    body = {"instance_type": "tiny", "tp_cluster_name": name, "public_keys": [], "save_keys": False}
    body["public_keys"] = [engine.key.with_suffix(".pub").read_text()]
    began = time.monotonic()
    accepted = engine.call("POST", "/cluster/create", body | ({"container": reference} if reference else {}))
    engine.finish(accepted["request_id"])
    took = time.monotonic() - began
    engine.destroy(accepted["cluster_id"])
    return took
