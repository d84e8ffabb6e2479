"""`python -m bench.instances`: instances beside the baselines; writes its section into docs/benchmarks.md."""

import argparse
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

from bench import document, servers
from bench.instances import baselines, ssh_client, report, tarn, throughput
from bench.progress import step


def main():
    """The kinds take turns, so that a disturbance of the host affects all of them."""
    parser = argparse.ArgumentParser(prog="bench.instances", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=12, help="machines of each kind")
    parser.add_argument("--transfers", type=int, default=3, help="transfers of each kind")
    parser.add_argument("--crowd", type=int, default=50, help="clusters at once")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("bench.instances: machines need root; nothing was measured")
    work = Path(tempfile.mkdtemp(prefix="bench-instances-", dir="target")).resolve()
    try:
        text = run(work, options)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    document.replace("instances", text)
    print(text)


def run(work: Path, options) -> str:
    """All figures, as the section that shows them."""
    key = ssh_client.identity(work / "key")
    step("a root for the baselines", baselines.prepare, key)
    with tarn.Tarn(work, key) as engine:
        starts = step("starts", take_turns, work, key, engine, options.repetitions)
        all_running = step("a crowd", tarn.seconds_to_run_all, engine, options.crowd)
        resident = step("memory", tarn.guest_resident, engine)
        bytes_ = step("bytes", throughput.compare, work, key, engine, options.transfers)
    return report.render(starts, all_running, options.crowd, resident, bytes_)


def take_turns(work: Path, key: Path, engine: tarn.Tarn, repetitions: int) -> dict[str, list[float]]:
    """Seconds until the SSH banner and until the first command, by kind; the first round is a warm-up."""
    found: dict[str, list[float]] = {}
    for number in range(repetitions + 1):
        round_ = {}
        for name, kind in {"unshare": baselines.unshare, "podman": baselines.podman}.items():
            words, command = baselines.measure(kind, work / f"{name}-{number}", key, servers.free_port())
            round_ |= {f"{name} words": words, f"{name} command": command}
        round_["tarn words"] = tarn.seconds_to_banner(engine, f"words-{number}")
        round_["tarn command"] = tarn.seconds_to_first_command(engine, f"command-{number}")
        for name, seconds in round_.items():
            if number:
                found.setdefault(name, []).append(seconds)
    return {name: [statistics.median(values), min(values), max(values)] for name, values in found.items()}


if __name__ == "__main__":
    main()
