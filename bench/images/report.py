"""The section that a run leaves in docs/benchmarks.md."""

import statistics

from bench import document
from bench.images.registry import LAYERS

COMMANDS = """
    start   POST /cluster/create of one node until COMPLETED, from an image that is there and from the machine's own, {repetitions} of each that take turns
    pull    the same from an image of {megabytes} MB in {layers} layers (gzip) that is not there, from docker-registry on loopback; synced to disk
    podman  podman pull of the same into an empty store; not synced
    memory  the most that a process which unpacks has held
"""


def render(times: dict, figures: dict, options) -> str:
    """The whole section."""
    commands = COMMANDS.format(repetitions=options.repetitions, megabytes=options.megabytes, layers=LAYERS)
    host, image = (statistics.median(times[kind]) * 1000 for kind in ("host", "image"))
    own, podman = (statistics.median(figures[kind]) for kind in ("tarn", "podman"))
    memory = max(figures["memory"])
    verdict = {True: "reached", False: "NOT REACHED"}
    rows = [
        ("start from a cached image as fast as from `host`", f"{image:.0f} ms, {host:.0f} ms", image <= host * 1.1),
        ("pull at least as fast as podman's", f"{own:.1f} s, {podman:.1f} s", own <= podman),
        ("unpacking under 64 MiB", f"{memory:.0f} MiB", memory < 64),
    ]
    lines = [f"| {what} | {measured} | {verdict[good]} |" for what, measured, good in rows]
    table = "\n".join(["| target | measured | |", "|-|-|-|", *lines])
    return "\n\n".join(["## Images", document.circumstances(), commands.strip("\n"), "### Targets", table])
