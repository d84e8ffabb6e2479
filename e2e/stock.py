"""The unchanged stock client: how it is run, and which commands it has. Start reading at `StockClient`."""

import argparse
import functools
import subprocess
import sys
from pathlib import Path
from unittest import mock

from tensorpool import main as stock

from client import ClientResult
from support import ENVIRONMENT

CLIENT = Path(sys.executable).with_name("tp")


class StockClient:
    """Runs the stock client: `tp("cluster", "list")`. A failure without `refused=True` fails the test. `where` is
    its working directory; `loud` allows progress on the error stream."""

    def __init__(self, url: str, key: str, home: Path, *, environment=ENVIRONMENT, seconds=300):
        home.mkdir(exist_ok=True)
        self.key, self.home, self.seconds = key, home, seconds
        self.environment = environment | {"HOME": str(home), "TENSORPOOL_ENGINE": url}
        self.shown = set()

    def __call__(self, *arguments, key=None, refused=False, with_key=True, answer="", where=None, loud=False) -> ClientResult:
        arguments = list(map(str, arguments))
        environment = self.environment | ({"TENSORPOOL_KEY": key or self.key} if with_key else {})
        done = subprocess.run(
            [str(CLIENT), *arguments], env=environment, cwd=where or self.home,
            input=answer, capture_output=True, text=True, timeout=self.seconds,
        )  # fmt: skip
        # Away from a terminal, the client writes its progress as lines that begin with an asterisk.
        lines = [line for line in done.stdout.splitlines() if not line.startswith("* ")]
        said = ClientResult(done.returncode, "\n".join(lines), "" if loud and done.returncode == 0 else done.stderr)
        (check_refusal if refused else check_success)(said)
        # It sends no key that the engine does not know, which every message would mention.
        assert "unknown key" not in said.text, said
        # A refusal without a key proves nothing about a command.
        if with_key:
            self.shown.add((command_of(arguments), "refused" if refused else "works"))
        return said


def check_success(said: ClientResult):
    """Success is exit code 0 and nothing on the error stream."""
    assert said.code == 0, said
    assert not said.errors, said


def check_refusal(said: ClientResult):
    """A refusal is exit code 1 and a message: no crash, and not the client's text for a missing message."""
    assert said.code == 1, said
    assert len(said.text.split()) >= 3, said
    for bad in ("Traceback", "Status code", "None", "{"):
        assert bad not in said.text + said.errors, said


class Captured(Exception):
    """Carries the client's parser out of its `main`, which does not expose it."""

    def __init__(self, parser: argparse.ArgumentParser):
        self.parser = parser


def capture(parser: argparse.ArgumentParser):
    """Replaces `parse_args`."""
    raise Captured(parser)


@functools.cache
def root_parser() -> argparse.ArgumentParser:
    """The parser of the whole client."""
    try:
        with mock.patch.object(argparse.ArgumentParser, "parse_args", capture):
            stock.main()
    except Captured as captured:
        return captured.parser
    raise AssertionError("the stock client parsed nothing")


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of a command's subcommands, by name and alias."""
    found = [action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return found[0] if found else {}


@functools.cache
def commands() -> dict[str, argparse.ArgumentParser]:
    """Every command that does something, by its full name. `tp me` does, although it has subcommands."""
    found, waiting = {}, [("", root_parser())]
    for name, parser in waiting:
        # An alias is listed after its name.
        first = {id(each): word for word, each in reversed(subcommands(parser).items())}
        waiting += [(f"{name} {word}".strip(), each) for word, each in subcommands(parser).items() if first[id(each)] == word]
        if not subcommands(parser) or name == "me":
            found[name] = parser
    return found


def command_of(arguments: list[str]) -> str:
    """The command that a list of arguments calls, by any alias."""
    parser = root_parser()
    for word in (argument for argument in arguments if not argument.startswith("-")):
        if word not in subcommands(parser):
            break
        parser = subcommands(parser)[word]
    return next((name for name, each in commands().items() if each is parser), "")


def required_arguments(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    """The required arguments of a command."""
    optional = ("*", "?", argparse.REMAINDER, argparse.PARSER)
    return [action for action in parser._get_positional_actions() if action.nargs not in optional]
