"""docs/benchmarks.md: sections between markers, each rewritten by its own run.

Usage: `python -m bench.document SECTION [DOCUMENT] < TEXT`
"""

import datetime
import subprocess
import sys
from pathlib import Path

from bench import machine

DOCUMENT = Path("docs/benchmarks.md")
TITLE = """# Benchmarks

`make bench` and `make soak` rewrite the sections below; nothing here is written by hand.
"""


def replace(name: str, text: str, document: Path = DOCUMENT):
    """Puts `text` between the section's markers and leaves all others alone."""
    start, end = f"<!-- {name}:start -->", f"<!-- {name}:end -->"
    old = document.read_text() if document.exists() else TITLE
    section = f"{start}\n{text.strip()}\n{end}"
    before, found, rest = old.partition(start)
    if found:
        _, closed, after = rest.partition(end)
        if not closed:
            raise RuntimeError(f"{document} has {start} without {end}")
        new = before + section + after
    else:
        new = f"{old.rstrip()}\n\n{section}\n"
    document.parent.mkdir(exist_ok=True)
    fresh = document.with_suffix(".new")
    fresh.write_text(new)
    fresh.replace(document)


def circumstances() -> str:
    """When, of what and where: figures without them mean nothing. A tree that differs from its commit says so."""
    done = subprocess.run(["git", "describe", "--always", "--dirty"], capture_output=True, text=True)
    return f"{datetime.date.today()}, commit {done.stdout.strip() or 'unknown'}, {machine.description()}."


if __name__ == "__main__":
    replace(sys.argv[1], sys.stdin.read(), *map(Path, sys.argv[2:]))
