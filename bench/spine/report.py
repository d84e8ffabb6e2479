"""The section that a run leaves in docs/benchmarks.md: the figures, and each target with whether it was reached."""

import os

from bench import document
from bench.spine.load import CONNECTIONS, THREADS, Sample

NAMES = {
    "fastapi": "(a) FastAPI + SQLite, threads",
    "fastapi async": "(a) FastAPI + SQLite, event loop",
    "axum": "(b) axum + rusqlite",
    "tarn": "Tarn",
    "tarn novel": "Tarn, each question new",
}
COMMANDS = """
    (a)   uvicorn bench.spine.fastapi_app:app --workers {cores} --no-access-log
    (b)   SYNC=NORMAL|FULL axum_limit PORT DATABASE {cores}
    Tarn  TARN_RATE_LIMIT_PER_SECOND=0 TARN_LIMITS_WAITING=0 tarn serve --driver fake --simulated-gpus 32xH100
    load  wrk -t {threads} -c {connections} -d {seconds}s --latency, median of {repetitions} runs that take turns
"""


def render(plan, reads: dict, creates: dict, growth: dict, resident: float, starts: list[float]) -> str:
    """The whole section."""
    settings = {"cores": os.cpu_count(), "threads": THREADS, "connections": CONNECTIONS}
    settings |= {"seconds": plan.seconds, "repetitions": plan.repetitions}
    parts = [
        "## The spine",
        document.circumstances(),
        COMMANDS.format(**settings).strip("\n"),
        "### `GET /cluster/info` and `GET /cluster/list` of 20 clusters",
        "An answer is remembered until something is written (docs/decisions/0006). Where each question is new, none is.",
        table({label(name): sample for name, sample in reads.items()}),
        "### Durable `POST /cluster/create` against one fsynced insert",
        "The first 32 clusters come to run, all others wait in line; each answer is on the disk before it is sent.",
        table({label(name): sample for name, sample in creates.items()}),
        "### Reads beside the rows of other tenants",
        table({f"{name} rows": sample for name, sample in growth.items()}),
        "### Targets",
        targets(plan, reads, creates, growth, resident, starts),
    ]
    return "\n\n".join(parts)


def table(samples: dict[str, Sample]) -> str:
    """The figures of some calls."""
    lines = [
        "| call | requests/s | p50 ms | p99 ms | server CPU µs/request | RSS MiB | CPU of others |",
        "|-|-|-|-|-|-|-|",
    ]
    for name, one in samples.items():
        figures = [f"{one.rate:,.0f}", f"{one.p50_ms:.2f}", f"{one.p99_ms:.2f}", f"{one.cpu_us:.1f}"]
        figures += [f"{one.resident_mib:.0f}", f"{one.others_percent:.0f}%"]
        lines.append(f"| {name} | {' | '.join(figures)} |")
    return "\n".join(lines)


def targets(plan, reads, creates, growth, resident, starts) -> str:
    """One line for each target."""
    lines = ["| target | measured | |", "|-|-|-|"]

    def judge(words: str, value: float, unit: str, holds: bool | None):
        verdict = {True: "reached", False: "missed", None: "for comparison"}[holds]
        lines.append(f"| {words} | {value:.2f} {unit} | {verdict} |")

    for what in ("info", "list"):
        tarn, limit, other = (reads[f"{what} {server}"] for server in ("tarn", "axum", "fastapi"))
        judge(f"{what}: requests/s at least 8 × (a)", tarn.rate / other.rate, "×", tarn.rate >= 8 * other.rate)
        judge(f"{what}: requests/s at least 0.5 × (b)", tarn.rate / limit.rate, "×", tarn.rate >= limit.rate / 2)
        judge(
            f"{what}: CPU/request at most 0.1 × (a)", tarn.cpu_us / other.cpu_us, "×", tarn.cpu_us <= other.cpu_us / 10
        )
        tuned = reads[f"{what} fastapi async"]
        novel = reads[f"{what} tarn novel"]
        judge(f"{what}, each question new: requests/s × (a)", novel.rate / other.rate, "×", None)
        judge(f"{what}, each question new: requests/s × (b)", novel.rate / limit.rate, "×", None)
        judge(f"{what}, each question new: CPU/request × (a)", novel.cpu_us / other.cpu_us, "×", None)
        judge(f"{what}: requests/s × (a) on the event loop", tarn.rate / tuned.rate, "×", None)
        judge(f"{what}: CPU/request × (a) on the event loop", tarn.cpu_us / tuned.cpu_us, "×", None)
    ratio = creates["create tarn"].rate / creates["create axum"].rate
    judge("create: requests/s at least 1 × (b) inserting one row", ratio, "×", ratio >= 1)
    judge("RSS with 10,000 clusters under 64 MiB", resident, "MiB", resident < 64)
    for what in ("info", "list"):
        few, many = (growth[f"{what} {count}"] for count in (min(plan.counts), max(plan.counts)))
        worse = max(few.rate / many.rate, many.cpu_us / few.cpu_us)
        words = f"{what}: cost from {min(plan.counts):,} to {max(plan.counts):,} rows of others within 1.2 ×"
        judge(words, worse, "×", worse <= 1.2)
    middle, least, most = (value * 1000 for value in starts)
    judge(f"start to first answer under 100 ms ({least:.0f} to {most:.0f})", middle, "ms", middle < 100)
    return "\n".join(lines)


def label(name: str) -> str:
    """The label of a row, such as `info axum`, for readers."""
    what, _, server = name.partition(" ")
    return f"{what}, {NAMES[server]}"
