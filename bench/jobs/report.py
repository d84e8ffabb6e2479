"""The section that a run leaves in docs/benchmarks.md: the figures, and each target with whether it was reached."""

import os
import statistics
from dataclasses import dataclass, field

from bench import document
from bench.jobs import slurm, tarn
from bench.jobs.flood import FloodResult

COMMANDS = """
    limit   forkexec {limit} {cores}: /bin/true by fork and exec, nothing written down, no isolation
    Slurm   munged, slurmctld, slurmd of Debian on one node of {cpus} slots,
            {parameters}
            (completions in a text file, states saved behind them, no accounting, no isolation)
    Tarn    POST /job/create of `true` from 8 connections on a cluster with jobs_parallel = {parallel}, venv = false
            (each job, its states, its output and its end on the disk; in an instance with its own network and limits)
    load    {jobs:,} jobs for Tarn, {few:,} for each way of Slurm, {rounds} rounds that take turns, medians
    first   srun: from its start to its first line; Tarn: from before the call to the first frame at a listener that is opened
            after the answer; {repetitions} times, one at a time
    print   the time that the job printed against the time at which the line came
"""


@dataclass
class Figures:
    """The figures; rates are per second, times are in seconds."""

    limit: float
    slurm_rates: dict[str, list[float]] = field(default_factory=dict)
    accepted: list[float] = field(default_factory=list)
    completed: list[float] = field(default_factory=list)
    slurm_firsts: list[float] = field(default_factory=list)
    slurm_prints: list[float] = field(default_factory=list)
    srun: float = 0.0
    firsts: list[float] = field(default_factory=list)
    prints: list[float] = field(default_factory=list)
    flood: FloodResult | None = None
    many_listeners: list[float] = field(default_factory=list)
    many_listeners_seconds: float = 0.0

    def best_of_slurm(self) -> float:
        """The fastest way to submit jobs."""
        return max(statistics.median(rates) for rates in self.slurm_rates.values())


def render(options, found: Figures) -> str:
    """The whole section; without Tarn, only what there is."""
    about = {"limit": options.jobs * 2, "cores": os.cpu_count(), "cpus": slurm.CPUS, "parameters": slurm.PARAMETERS}
    about |= {"parallel": tarn.PARALLEL, "jobs": options.jobs, "few": options.jobs // 4, "rounds": options.rounds}
    parts = [
        "## Jobs",
        document.circumstances(),
        COMMANDS.format(**about, repetitions=options.repetitions).strip("\n"),
        "### Trivial jobs on one warm cluster, completed each second (median, least and most)",
        rates(found),
        "### How soon, in milliseconds",
        delays(found),
    ]
    if found.flood:
        parts += ["### Targets", targets(options, found)]
    return "\n\n".join(parts)


def rates(found: Figures) -> str:
    """Completed jobs by way."""
    rows = {"the limit: fork and exec": [found.limit]}
    rows |= {f"Slurm, {way}": values for way, values in found.slurm_rates.items()}
    if found.completed:
        rows |= {"Tarn": found.completed, "Tarn, accepted": found.accepted}
    lines = [f"| {name} | {statistics.median(values):,.0f} ({min(values):,.0f}–{max(values):,.0f}) |" for name, values in rows.items()]
    return "\n".join(["| way | jobs/s |", "|-|-|", *lines])


def delays(found: Figures) -> str:
    """First lines and prints."""
    rows = {
        "start to first line, srun": found.slurm_firsts,
        "start to first line, Tarn": found.firsts,
        "print to srun's output, one listener": found.slurm_prints,
        "print to listener, Tarn, 100 listeners": found.prints,
        "print to listener, Tarn, all listeners of the crowd": found.many_listeners,
    }
    lines = []
    for name, values in rows.items():
        if values:
            figures = [f"{quantile(values, q) * 1000:,.1f}" for q in (0.5, 0.99, 1)]
            lines.append(f"| {name} | {' | '.join(figures)} |")
    lines.append(f"| srun /bin/true, from start to end | {found.srun * 1000:,.1f} | | |")
    return "\n".join(["| way | p50 | p99 | most |", "|-|-|-|-|", *lines])


def quantile(values: list[float], part: float) -> float:
    """The value below which this share of the values is."""
    return sorted(values)[int((len(values) - 1) * part)]


def targets(options, found: Figures) -> str:
    """Each target with the result."""
    more = statistics.median(found.completed) / found.best_of_slurm()
    sooner = statistics.median(found.firsts) / statistics.median(found.slurm_firsts)
    slowest = quantile(found.prints, 0.99) * 1000
    size, written, kept = found.flood.size / 1e6, found.flood.written_rate / 1e6, found.flood.kept_rate / 1e6
    rows = [
        ("trivial jobs at least 4 × Slurm's best way", f"{more:.1f} ×", more >= 4),
        ("start to first line at most srun's", f"{sooner:.2f} ×", sooner <= 1),
        ("print to listener, 100 listeners: p99 under 50 ms", f"{slowest:.1f} ms", slowest < 50),
        (
            "100 MB/s of output kept without loss (SHA-256)",
            f"{size:,.0f} MB written at {written:.0f} MB/s; kept, to the end of the job, at {kept:.0f} MB/s",
            written >= 99,
        ),
        (f"{options.listeners:,} listeners of one job hear every line once", f"in {found.many_listeners_seconds:.1f} s", True),
    ]
    lines = [f"| {what} | {reached} | {'reached' if good else 'NOT REACHED'} |" for what, reached, good in rows]
    return "\n".join(["| target | measured | |", "|-|-|-|", *lines])
