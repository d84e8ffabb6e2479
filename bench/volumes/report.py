"""The section that a run leaves in docs/benchmarks.md."""

import statistics

from bench import document
from bench.instances.report import shown
from bench.volumes import changes, fio

COMMANDS = """
    changes  POST /storage/create of {size} GB, …, each from the accepted request to COMPLETED, median of {repetitions}
    fio      --direct=1 --ioengine=libaio --iodepth=16 on a file of {file} MiB, {seconds} s, median of {rounds} that take turns
    host     truncate, mkfs.xfs, losetup, mount on the same disk, as mount -o loop does it
    direct   the same with losetup --direct-io=on: past the host's page cache
    volume   the same fio in an instance of two processors, on its volume
"""
KINDS = {
    "create": "create", "live attach": "attach, live", "live grow": "grow, attached", "live detach": "detach, live",
    "restart": "restart of the cluster, one node", "attach": "attach with restart", "detach": "detach with restart",
    "destroy": "destroy",
}  # fmt: skip


def render(times: dict, rates: dict, options) -> str:
    """The whole section."""
    commands = COMMANDS.format(
        size=changes.GIGABYTES, repetitions=options.repetitions, file=fio.MEBIBYTES, seconds=options.seconds, rounds=options.rounds
    )
    medians = {name: {place: statistics.median(all_) for place, all_ in places.items()} for name, places in rates.items()}
    parts = [
        "## Volumes",
        document.circumstances(),
        commands.strip("\n"),
        "### Changes, in milliseconds (median, least and most)",
        "\n".join(["| change | ms |", "|-|-|", *(f"| {name} | {' '.join(shown(times[kind]))} |" for kind, name in KINDS.items())]),
        "### Bytes",
        bytes_table(medians),
        "### Targets",
        targets(times, medians),
    ]
    return "\n\n".join(parts)


def bytes_table(medians: dict) -> str:
    """Sequential rates in mebibytes, random ones in operations."""
    lines = ["| pattern | host | host, direct | volume | |", "|-|-|-|-|-|"]
    for name, places in medians.items():
        unit, size = ("op/s", 4 << 10) if "4 KiB" in name else ("MiB/s", 1 << 20)
        figures = (f"{places[place] / size:,.0f}" for place in ("host", "host, direct", "volume"))
        lines.append(f"| {name} | {' | '.join(figures)} | {unit} |")
    return "\n".join(lines)


def targets(times: dict, medians: dict) -> str:
    """Each target with the result."""
    create, live = times["create"][0] * 1000, times["live attach"][0] * 1000
    more = (times["attach"][0] - times["restart"][0]) * 1000
    verdict = {True: "reached", False: "NOT REACHED", None: "for comparison"}
    rows = [
        (f"create of {changes.GIGABYTES} GB under 150 ms", f"{create:.0f} ms", create < 150),
        ("live attach under 100 ms", f"{live:.0f} ms", live < 100),
        ("attach with restart at most one restart plus 100 ms", f"{more:+.0f} ms", more <= 100),
    ]
    for name, places in medians.items():
        ratio = places["volume"] / places["host"]
        rows.append((f"{name} at least 0.9 of the host's", f"{ratio:.2f} ×", ratio >= 0.9))
    for name, places in medians.items():
        ratio = places["volume"] / places["host, direct"]
        rows.append((f"{name}, beside the host's past its page cache", f"{ratio:.2f} ×", None))
    lines = [f"| {what} | {reached} | {verdict[good]} |" for what, reached, good in rows]
    return "\n".join(["| target | measured | |", "|-|-|-|", *lines])
