"""`python -m bench.client`: commands of the client beside the stock one; writes its section into docs/benchmarks.md."""

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from bench import document, servers
from bench.progress import step

STOCK = Path(sys.executable).with_name("tp")
BARE = Path("target/bench/bare").resolve()
TARGETS_MS = {"tarn --help": 10, "tarn me": 15}
COMMANDS = """
    each     started by posix_spawn with its output to /dev/null, until it has ended; {repetitions} times, taking turns
    engine   tarn serve --driver fake on this machine, with one user
    bare     a Rust program that prints a line and ends
"""


def main():
    """One engine, and all programs in turns, so that a disturbance affects all of them."""
    parser = argparse.ArgumentParser(prog="bench.client", description=__doc__)
    parser.add_argument("--repetitions", type=int, default=40, help="runs of each command")
    options = parser.parse_args()
    work = Path(tempfile.mkdtemp(prefix="bench-client-", dir="target")).resolve()
    try:
        text = render(step("client", measure, work, options.repetitions), options.repetitions)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    document.replace("client", text)
    print(text)


def measure(work: Path, repetitions: int) -> dict[str, list[float]]:
    """Milliseconds of each run of each command."""
    with servers.tarn(work / "data") as engine:
        key = (work / "data/admin.key").read_text().strip()
        environment = servers.ENVIRONMENT | {"TENSORPOOL_ENGINE": engine.url, "TENSORPOOL_KEY": key, "HOME": str(work)}
        tarn, tp = servers.TARN, STOCK
        commands = {
            "bare": [BARE], "tarn --help": [tarn, "--help"], "tarn me": [tarn, "me"], "tarn cluster list": [tarn, "cluster", "list"],
            "tp --help": [tp, "--help"], "tp me": [tp, "me"], "tp cluster list": [tp, "cluster", "list"],
        }  # fmt: skip
        times = {name: [] for name in commands}
        # The first round fills the caches and does not count.
        for turn in range(repetitions + 1):
            for name, command in commands.items():
                took = run(command, environment)
                if turn:
                    times[name].append(took)
    return times


def run(command: list, environment: dict) -> float:
    """Milliseconds from the start of a program to its end."""
    words = [os.fspath(word) for word in command]
    output = [(os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0), (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0)]
    began = time.perf_counter()
    process = os.posix_spawn(words[0], words, environment, file_actions=output)
    _, status = os.waitpid(process, 0)
    took = time.perf_counter() - began
    if code := os.waitstatus_to_exitcode(status):
        raise subprocess.CalledProcessError(code, words)
    return took * 1000


def render(times: dict[str, list[float]], repetitions: int) -> str:
    """The whole section."""
    rows = [
        f"| `{name}` | {statistics.median(all_):.1f} | {min(all_):.1f} | {max(all_):.1f} |" if name != "bare"
        else f"| a bare program | {statistics.median(all_):.1f} | {min(all_):.1f} | {max(all_):.1f} |"
        for name, all_ in times.items()
    ]  # fmt: skip
    targets = [
        f"| `{name}` | under {limit} ms | {statistics.median(times[name]):.1f} ms | "
        f"{'reached' if statistics.median(times[name]) < limit else 'missed'} |"
        for name, limit in TARGETS_MS.items()
    ]
    return "\n\n".join([
        "## The client",
        document.circumstances(),
        COMMANDS.format(repetitions=repetitions).strip("\n"),
        "\n".join(["| command | median ms | least | most |", "|-|-|-|-|", *rows]),
        "### Targets",
        "\n".join(["| command | target | measured | |", "|-|-|-|-|", *targets]),
    ])  # fmt: skip


if __name__ == "__main__":
    main()
