"""`python -m bench.spine`: runs all parts, prints the section and writes it into docs/benchmarks.md."""

import argparse
import tempfile
from pathlib import Path

from bench import document
from bench.progress import step
from bench.spine import measure, report


def main():
    """The parts one after the other: two at a time would disturb each other."""
    parser = argparse.ArgumentParser(prog="bench.spine", description=__doc__)
    parser.add_argument("--seconds", type=int, default=5, help="length of one run")
    parser.add_argument("--repetitions", type=int, default=3, help="runs of each call")
    parser.add_argument("--strangers", type=int, default=1_000_000, help="rows of other tenants at most")
    options = parser.parse_args()
    # On the disk of the build, because a temporary directory may be in memory, where fsync costs nothing.
    with tempfile.TemporaryDirectory(prefix="bench-data-", dir="target") as directory:
        plan = measure.Plan(Path(directory).resolve(), options.seconds, options.repetitions, options.strangers)
        base = step("prepare", measure.prepare, plan)
        reads = step("reads", measure.reads, plan, base)
        creates = step("creates", measure.creates, plan)
        growth = step("growth", measure.growth, plan, base)
        resident, starts = step("memory and start", measure.memory, plan, base)
    text = report.render(plan, reads, creates, growth, resident, starts)
    document.replace("spine", text)
    print(text)


if __name__ == "__main__":
    main()
