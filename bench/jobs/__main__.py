"""`python -m bench.jobs`: jobs beside Slurm; writes its section into docs/benchmarks.md."""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import document
from bench.jobs import flood, report, slurm, tarn
from bench.progress import step

FORKEXEC = Path("target/bench/forkexec")


def main():
    """All parts in one run. A short run, or one without Tarn, only prints: its figures are not recorded."""
    options = arguments()
    if os.geteuid() != 0:
        sys.exit("bench.jobs: machines need root; nothing was measured")
    # On the disk of the build, because a temporary directory may be in memory, where fsync costs nothing.
    work = Path(tempfile.mkdtemp(prefix="bench-jobs-", dir="target")).resolve()
    try:
        text = run(work, options)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if not options.quick and not options.baselines_only:
        document.replace("jobs", text)
    print(text)


def arguments() -> argparse.Namespace:
    """The arguments; `--quick` changes those that are not given."""
    parser = argparse.ArgumentParser(prog="bench.jobs", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few jobs, one round, little output; prints only")
    parser.add_argument("--baselines-only", action="store_true", help="leave Tarn out; prints only")
    parser.add_argument("--jobs", type=int, help="trivial jobs of one run (2,000; Slurm gets a quarter)")
    parser.add_argument("--rounds", type=int, help="runs of trivial jobs, taking turns (3)")
    parser.add_argument("--repetitions", type=int, help="jobs whose first line is waited for (20)")
    parser.add_argument("--lines", type=int, help="lines for 100 listeners (500)")
    parser.add_argument("--flood-mib", type=int, help="output of the job that writes 100 MB/s (1,000)")
    parser.add_argument("--listeners", type=int, help="listeners of one job (1,000)")
    options = parser.parse_args()
    short = {"jobs": 400, "rounds": 1, "repetitions": 5, "lines": 100, "flood_mib": 200, "listeners": 1000}
    whole = {"jobs": 2000, "rounds": 3, "repetitions": 20, "lines": 500, "flood_mib": 1000, "listeners": 1000}
    for name, value in (short if options.quick else whole).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def run(work: Path, options) -> str:
    """All figures, as the section that shows them."""
    found = report.Figures(limit=step("the limit", forkexec, options.jobs))
    with slurm.Slurm(work / "slurm") as baseline:
        if options.baselines_only:
            step("Slurm", measure_slurm, baseline, found, options)
            return report.render(options, found)
        with tarn.Tarn(work) as engine:
            for number in range(options.rounds):
                step(f"trivial jobs, round {number + 1}", trivial, baseline, engine, found, options)
            found.slurm_firsts, found.slurm_prints = step("first lines of srun", slurm.first_line, baseline, options.repetitions)
            found.srun = slurm.srun(baseline, options.repetitions)
            found.firsts = step("first lines", tarn.first_line, engine, options.repetitions)
    # Slurm has ended and all data is on the disk, so that the rest has the host for itself.
    os.sync()
    with tarn.Tarn(work) as engine:
        found.prints, _ = step("100 listeners", tarn.prints, engine, 100, options.lines, 0.02)
        found.flood = step("much output", flood.measure, engine, options.flood_mib, 100e6)
        found.many_listeners, found.many_listeners_seconds = step("many listeners", tarn.prints, engine, options.listeners, 100, 0.1)
    return report.render(options, found)


def trivial(baseline, engine, found, options):
    """The two take turns."""
    for way, rate in slurm.throughput(baseline, options.jobs // 4).items():
        found.slurm_rates.setdefault(way, []).append(rate)
    accepted, completed = tarn.throughput(engine, options.jobs, 8)
    found.accepted.append(accepted)
    found.completed.append(completed)


def measure_slurm(baseline, found, options):
    """Only the figures that need no Tarn."""
    for way, rate in slurm.throughput(baseline, options.jobs // 4).items():
        found.slurm_rates.setdefault(way, []).append(rate)
    found.slurm_firsts, found.slurm_prints = slurm.first_line(baseline, options.repetitions)
    found.srun = slurm.srun(baseline, options.repetitions)


def forkexec(count: int) -> float:
    """Processes that can be started each second, on all cores at once."""
    done = subprocess.run([FORKEXEC, str(count * 2), str(os.cpu_count())], capture_output=True, text=True, check=True)
    return float(done.stdout)


if __name__ == "__main__":
    main()
