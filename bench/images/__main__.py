"""`python -m bench.images`: container images beside the baselines; writes its section into docs/benchmarks.md."""

import argparse
import os
import shutil
import sys
import tempfile
from pathlib import Path

from bench import document
from bench.images import pulls, registry, report, starts
from bench.instances import ssh_client
from bench.instances.tarn import Tarn
from bench.progress import step


def main():
    """Everything from one registry."""
    parser = argparse.ArgumentParser(prog="bench.images", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=20, help="starts of each kind")
    parser.add_argument("--rounds", type=int, default=3, help="pulls of each kind")
    parser.add_argument("--megabytes", type=int, default=500, help="size of the image that is pulled, unpacked")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench.images: machines need root; nothing was measured")
    # Nothing of the host is ever mounted in here.
    work = Path(tempfile.mkdtemp(prefix="bench-images-", dir="target")).resolve()
    try:
        text = run(work, options)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    document.replace("images", text)
    print(text)


def run(work: Path, options) -> str:
    """All figures, as the section that shows them."""
    key = ssh_client.identity(work / "key")
    with registry.Registry(work) as source:
        small = source.push("small", [registry.layer(1, 64)])
        large = source.push("large", step("making an image", registry.layers, options.megabytes))
        with Tarn(work, key) as engine:
            times = step("starts", starts.take_turns, engine, small, options.repetitions)
        figures = step("pulls", pulls.take_turns, work, key, large, options.rounds)
    return report.render(times, figures, options)


if __name__ == "__main__":
    main()
