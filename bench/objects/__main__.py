"""`python -m bench.objects`: S3 beside the baselines; writes its section into docs/benchmarks.md."""

import argparse
import secrets
import shutil
import tempfile
from pathlib import Path

from bench import document
from bench.objects import cells, limits, listing, memory, report, systems
from bench.progress import step


def main():
    """All parts in one run. A short run, or one without Tarn, only prints: its figures are not recorded."""
    options = arguments()
    # On the disk of the build, because a temporary directory may be in memory, where fsync costs nothing.
    work = Path(tempfile.mkdtemp(prefix="bench-objects-", dir="target")).resolve()
    try:
        text = run(work, options)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    if not options.quick and not options.baselines_only:
        document.replace("objects", text)
    print(text)


def arguments() -> argparse.Namespace:
    """The arguments; `--quick` changes those that are not given."""
    parser = argparse.ArgumentParser(prog="bench.objects", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short cells, one round, few keys; prints only")
    parser.add_argument("--baselines-only", action="store_true", help="leave Tarn out; prints only")
    parser.add_argument("--seconds", type=float, help="length of one cell (3)")
    parser.add_argument("--rounds", type=int, help="runs of each cell (3)")
    parser.add_argument("--keys", type=int, help="keys in the bucket that is listed (1,000,000)")
    parser.add_argument("--put-mib", type=int, help="object of each of 16 writers when memory is watched (1,024, or 160 without 24 GiB of free disk)")
    parser.add_argument("--get-mib", type=int, help="object of each of 16 readers then (1,024)")
    parser.add_argument("--seed", type=int, default=secrets.randbits(32), help="of the places where listings start")
    options = parser.parse_args()
    short = {"seconds": 0.5, "rounds": 1, "keys": 20_000, "put_mib": 64, "get_mib": 128}
    # Sixteen objects of 1 GiB at a time, where the disk has space for them.
    roomy = shutil.disk_usage("target").free > 24 << 30
    whole = {"seconds": 3, "rounds": 3, "keys": 1_000_000, "put_mib": 1024 if roomy else 160, "get_mib": 1024}
    for name, value in (short if options.quick else whole).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def run(work: Path, options) -> str:
    """All figures, as the section that shows them."""
    bounds = step("limits", limits.measure_limits, options.rounds, options.seconds)
    kinds = {"s3s-fs": systems.S3sFs, "SeaweedFS": systems.SeaweedFs}
    if not options.baselines_only:
        kinds["Tarn"] = systems.Tarn
    table, peaks = step("cells", cells.compare, work, kinds, options.rounds, options.seconds)
    watched = pages = None
    if not options.baselines_only:
        watched = step("memory", memory.watch, work, options.put_mib, options.get_mib)
        pages = step(f"listing, seed {options.seed}", listing.measure, work, options.keys, options.seed)
    return report.render(options, bounds, table, peaks, watched, pages)


if __name__ == "__main__":
    main()
