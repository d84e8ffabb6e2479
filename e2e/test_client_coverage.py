"""Every command and every flag of the `tarn` client has a test. Walks `--help` and reads the tests beside this file."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from client_schemas import OPERATIONS, command_of
from support import tarn
from test_client_names import LINES
from test_client_refusals import OPEN, REFUSED, USAGE
from test_client_terminal import WATCHED

# These belong to the engine (test_doctor*.py, test_backups.py, test_migrate.py, test_two_engines.py), or print nothing
# that could fail.
NOT_OURS = {"serve", "doctor", "backup", "restore", "migrate", "driver", "openapi", "help"}
# These print a shell script, the output of `scp` or a body of the client, and no body of the API.
NO_BODY = {"cp", "ssh-config", "completion", "admin key reset"}
# It needs PostgreSQL.
NO_FLAGS = {"admin key reset"}
COMMAND = re.compile(r"^  ([a-z][a-z-]+)  ", re.M)
FLAG = re.compile(r"^ +(?:-\w, )?--([a-z-]+)", re.M)


@cache
def commands() -> dict[str, set[str]]:
    """Every command that does something, and its flags."""
    found = {}

    def walk_help(words: tuple[str, ...]):
        text = tarn(*words, "--help").stdout
        own, _, _ = text.partition("\nEverywhere:")
        below, usage = COMMAND.findall(own), re.search(r"^Usage: .*$", text, re.M)[0]
        for name in set(below) - NOT_OURS:
            walk_help((*words, name))
        # A command with optional subcommands does something itself, too.
        if words and (not below or "[COMMAND]" in usage):
            found[" ".join(words)] = set(FLAG.findall(own)) - {"help", "version"}

    walk_help(())
    return found


@cache
def lines_in_tests() -> list[tuple[str, bool, bool]]:
    """Every line that a test gives to the client: the line, whether it must succeed, and whether it prints JSON."""
    lines = [(line, code == 0, False) for code, line in LINES]
    lines += [(line, True, False) for line in WATCHED]
    lines += [(line, False, is_json) for _, line in REFUSED for is_json in (False, True)]
    lines += [(line, False, is_json) for line in OPEN for is_json in (False, True)]
    lines += [(line, False, False) for line in USAGE]
    for path in Path(__file__).parent.glob("test_client_*.py"):
        for call in ast.walk(ast.parse(path.read_text())):
            if isinstance(call, ast.Call) and call.args and client_method(call) and (line := line_of_call(call)):
                code = next((keyword.value for keyword in call.keywords if keyword.arg == "code"), None)
                is_success = code is None or isinstance(code, ast.Constant) and code.value == 0
                lines.append((line, is_success, client_method(call) == "json"))
    return lines


def client_method(call: ast.Call) -> str | None:
    """How a call runs the client, if it does."""
    match call.func:
        case ast.Name("tarn"):
            return "tarn"
        case ast.Attribute(ast.Name("tarn"), name):
            return name
    return None


def line_of_call(call: ast.Call) -> str | None:
    """The line of a call; a value that is only known at run time is the word X."""
    words = []
    for argument in call.args:
        match argument:
            case ast.Constant(str(text)):
                words.append(text)
            case ast.JoinedStr(parts):
                words.append("".join(part.value if isinstance(part, ast.Constant) else "X" for part in parts))
            case _:
                words.append("X")
    return " ".join(words)


def lines_of(command: str) -> list[tuple[str, bool, bool]]:
    """The lines that run a command."""
    return [each for each in lines_in_tests() if command_of(each[0], commands()) == command]


def test_help_lists_commands():
    """The walk through `--help` finds the commands and their flags."""
    assert len(commands()) > 50 and "job run" in commands() and "me" in commands()
    assert {"wait", "ssh", "container"} <= commands()["cluster create"]


@pytest.mark.parametrize("command", sorted(commands()))
def test_command_and_flags_have_tests(command):
    """Each command has a test that works, a test that fails, and a test of each flag."""
    lines = lines_of(command)
    assert any(is_success for _, is_success, _ in lines), f"no test of `tarn {command}` that works"
    assert any(not is_success for _, is_success, _ in lines), f"no test of `tarn {command}` that fails"
    short = {"num-nodes": "-n", "public-key": "-i", "private-key": "-i", "size": "-s", "follow": "-f"}
    for flag in commands()[command] if command not in NO_FLAGS else ():
        given = {f"--{flag}", short.get(flag)}
        assert any(given & set(line.split()) for line, *_ in lines), f"no test of `tarn {command} --{flag}`"


@pytest.mark.parametrize("command", sorted(commands().keys() - NO_BODY))
def test_command_has_json_tests(command):
    """Each command has a test with `--json` that works and one that fails."""
    assert command in OPERATIONS, f"OPERATIONS lists no operation for `tarn {command}`"
    lines = lines_of(command)
    for kind in (True, False):
        said = "works" if kind else "fails"
        assert any(is_json and is_success == kind for _, is_success, is_json in lines), f"no `tarn {command} --json` that {said}"
