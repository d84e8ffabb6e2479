"""`python -m bench.compare BEFORE…`: this program and older ones in turns, in one sitting; writes its section into
docs/benchmarks.md."""

import argparse
import functools
import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from bench import document, servers
from bench.objects import cells, report, systems
from bench.progress import step
from bench.spine import load, measure

# What a change may cost: the median of the calls per second, or the processor time of a call.
LEAST_RATE, MOST_CPU = 0.95, 1.03
# The name of the program that is compared with each of the others.
AFTER = "after"
# Large objects measure the disk, not the program.
LARGEST = 1 << 20


def main():
    """The calls of the spine, then S3."""
    parser = argparse.ArgumentParser(prog="bench.compare", description=__doc__)
    parser.add_argument("before", type=Path, nargs="+", help="older programs, oldest first")
    parser.add_argument("--after", type=Path, default=servers.TARN)
    parser.add_argument("--seconds", type=int, default=5, help="length of one run")
    parser.add_argument("--repetitions", type=int, default=5, help="runs of each program")
    options = parser.parse_args()
    programs = {program.name: program.resolve() for program in options.before} | {AFTER: options.after.resolve()}
    # On the disk of the build, because a temporary directory may be in memory, where fsync costs nothing.
    with tempfile.TemporaryDirectory(prefix="bench-compare-", dir="target") as directory:
        work = Path(directory).resolve()
        rows = step("spine", spine, work, programs, options)
        rows |= step("object storage", object_storage, work, programs, options)
    text = render(rows, programs, options)
    document.replace("compare", text)
    print(text)


def spine(work: Path, programs: dict, options) -> dict[str, dict]:
    """Reads from the cache, reads that are new, and creates; each program has a copy of the same data."""
    plan = measure.Plan(work, options.seconds, options.repetitions, 0)
    base = measure.prepare(plan, program=next(iter(programs.values())))
    calls = {}
    with ExitStack() as stack:
        for name, program in programs.items():
            data = work / name
            shutil.copytree(base, data)
            server = stack.enter_context(servers.tarn(data, *measure.OPTIONS, program=program))
            info, listing = measure.info(server, data), load.Call(server, "/cluster/list", measure.key(data))
            calls["info", name], calls["list", name] = info, listing
            calls["info, new", name], calls["list, new", name] = replace(info, novel=True), replace(listing, novel=True)
            calls["create", name] = load.Call(server, "/cluster/create", measure.key(data), "POST", measure.claim())
        # One kind of call at a time: a list that grows with every create must not be read in between.
        found = {}
        for kind in dict.fromkeys(kind for kind, _ in calls):
            pair = {name: calls[kind, name] for name in programs}
            found[kind] = plan.compare(pair)
    return found


def object_storage(work: Path, programs: dict, options) -> dict[str, dict]:
    """PUT and GET of small objects."""
    kinds = {name: functools.partial(systems.Tarn, program=program) for name, program in programs.items()}
    sizes = [size for size in cells.SIZES if size <= LARGEST]
    table, _ = cells.compare(work, kinds, options.repetitions, options.seconds, sizes)
    return {report.label(cell): by for cell, by in table.items()}


def render(rows: dict, programs: dict, options) -> str:
    """The whole section: a table for each older program."""
    *older, after = programs
    tables = [text for name in older for text in (f"From {name}, {servers.version(programs[name])}:", table(rows, name))]
    return "\n\n".join(
        [
            "## Before and after",
            document.circumstances(),
            f"    python -m bench.compare BEFORE…    after: {servers.version(programs[after])}",
            f"Medians of {options.repetitions} runs of {options.seconds} s each, in turns. A row holds if its rate is at least "
            f"{LEAST_RATE} of before, or its processor time per call at most {MOST_CPU}.",
            *tables,
        ]
    )


def table(rows: dict, name: str) -> str:
    """The program and an older one, call by call."""
    lines = ["| call | before/s | after/s | ratio | CPU µs before | after | ratio | |", "|-" * 8 + "|"]
    for what, by in rows.items():
        before, after = by[name], by[AFTER]
        rate, cpu = after.rate / before.rate, after.cpu_us / before.cpu_us
        verdict = "held" if rate >= LEAST_RATE or cpu <= MOST_CPU else "NOT HELD"
        figures = f"{before.rate:,.0f} | {after.rate:,.0f} | {rate:.2f} | {before.cpu_us:,.0f} | {after.cpu_us:,.0f} | {cpu:.2f}"
        lines.append(f"| {what} | {figures} | {verdict} |")
    return "\n".join(lines)



if __name__ == "__main__":
    main()
