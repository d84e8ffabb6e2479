"""`python -m bench.volumes`: volumes beside the baselines; writes its section into docs/benchmarks.md."""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from bench import document
from bench.instances import ssh_client
from bench.instances.tarn import Tarn
from bench.progress import step
from bench.volumes import changes, fio, report


def main():
    """Everything in one engine."""
    parser = argparse.ArgumentParser(prog="bench.volumes", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=12, help="changes of each kind")
    parser.add_argument("--rounds", type=int, default=5, help="runs of fio of each kind")
    parser.add_argument("--seconds", type=int, default=3, help="length of one run of fio")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench.volumes: machines need root; nothing was measured")
    # Nothing of the host is ever mounted in here.
    work = Path(tempfile.mkdtemp(prefix="bench-volumes-", dir="target")).resolve()
    try:
        text = run(work, options)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    document.replace("volumes", text)
    print(text)


def run(work: Path, options) -> str:
    """All figures, as the section that shows them."""
    key = ssh_client.identity(work / "key")
    with Tarn(work, key) as engine:
        times = step("changes", changes.take_turns, engine, options.repetitions)
        rates = step("bytes", fio.compare, engine, options.rounds, options.seconds)
    return report.render(times, rates, options)


if __name__ == "__main__":
    main()
