"""The pages: their examples work, every command is on one of them, and their links resolve."""

import re
import shutil
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from instances import needs_root
from pages import ROOT, Cloud, Step, output_matches, steps, strip_comment
from support import BINARY, tarn

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
SHOWN = [page for page in PAGES if steps(page.read_text())]
# On these pages the user is new to the engine. On the others the user is registered.
FIRST = ("README.md", "client.md")
STOCK = Path(sys.executable).with_name("tp")
TOOLS = ("curl", "rclone", "rsync", "ssh", "scp")
SVG = "{http://www.w3.org/2000/svg}"


@needs_root
@pytest.mark.parametrize("page", SHOWN, ids=lambda page: page.stem)
def test_page_examples_run(page, tmp_path):
    """The examples of a page run and print what the page shows."""
    typed_here = " ".join(step.command for step in steps(page.read_text()))
    for program in TOOLS:
        if program in typed_here.split() and not shutil.which(program):
            pytest.skip(f"{program} is not installed: the page was not run")
    with Cloud(tmp_path, BINARY, (STOCK,)) as cloud:
        known = {} if page.name in FIRST else cloud.register_user()
        wrong = cloud.run(steps(page.read_text()), **known)
        assert not wrong, f"{page.name}, " + "\n\n".join(wrong)


@needs_root
def test_wrong_example_is_found(tmp_path):
    """A wrong example fails, so the test above can fail."""
    with Cloud(tmp_path / "cloud", BINARY) as cloud:
        true, lie = Step(1, "echo heron", ["her…"]), Step(2, "echo heron", ["crane"])
        assert "it printed:\nheron" in cloud.run([true, lie])[0]


def test_output_patterns_match():
    """`…` matches within a line, or any number of lines, and nothing else does."""
    for expected, printed in (
        (["one", "two"], "one  \ntwo\n\n"),
        (["c-… RUNNING"], "c-7k2m RUNNING\n"),
        (["first", "…", "last"], "first\nsecond\nthird\nlast\n"),
        (["first", "…"], "first\n"),
        ([], ""),
    ):
        assert output_matches(expected, printed), (expected, printed)
    for expected, printed in (
        (["one"], "one\ntwo\n"),
        (["one", "two"], "one\n"),
        (["c-… RUNNING"], "c-7k2m FAILED\n"),
        (["c-…"], "c-7k2m\nc-9xny\n"),
        (["a.c"], "abc\n"),
        ([], "something\n"),
    ):
        assert not output_matches(expected, printed), (expected, printed)


def test_every_command_is_documented():
    """Every command is on a page."""
    said = "\n".join(page.read_text() for page in PAGES)
    missing = [command for command in commands() if command not in said]
    assert not missing


def commands(*above: str) -> list[str]:
    """Every command of the program, as it is typed."""
    help_text = tarn(*above, "--help").stdout
    listed = re.search(r"^Commands:\n(.*?)\n\n", help_text, re.MULTILINE | re.DOTALL)
    names = re.findall(r"^  ([a-z-]+)", listed[1], re.MULTILINE) if listed else []
    below = [commands(*above, name) for name in names if name != "help"]
    return sum(below, []) if below else [" ".join(("tarn", *above))]


def test_recording_shows_tour():
    """The recording shows the tour of README.md; scripts/record makes a new one."""
    shown = [text.text for text in ElementTree.parse(ROOT / "docs/first-ten-minutes.svg").iter(f"{SVG}text")]
    tour = [strip_comment(step.command) for step in steps((ROOT / "README.md").read_text())]
    assert [command for command in tour if command not in shown] == []


def test_links_resolve():
    """The links between pages resolve."""
    wrong = []
    for page in PAGES:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            target = (page.parent / path).resolve() if path else page
            if ":" not in path and not (target.exists() and (not anchor or anchor in anchors(target))):
                wrong.append(f"{page.relative_to(ROOT)}: {link}")
    assert not wrong


def anchors(page: Path) -> set[str]:
    """The headings of a page, as links name them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-") for heading in headings}
