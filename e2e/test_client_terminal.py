"""The `tarn` client with and without a terminal: `--watch`, colors, widths and progress."""

import contextlib
import json
import re

import pytest

from client import interrupt, wait_for_end
from support import eventually

CLEAR = "\x1b[2J"
COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def watched(tarn, server) -> dict[str, str]:
    """One object of each kind that can be watched."""
    cluster = tarn.json("cluster create 1xCPU --name box --wait")
    volume = tarn.json("storage create 1 --wait")["object_id"]
    body = {"tp_config": 'commands = ["true"]', "cluster_id": "box", "files": True}
    job = server.call("POST", "/job/create", json=body, expect=201).json()["job_id"]
    # It waits for capacity, which the other cluster holds.
    request = tarn.json("cluster create 8xH100 --name patient")["request_id"]
    return {"cluster": cluster["object_id"], "storage": volume, "job": job, "request": request}


def change_objects(tarn, server, watched):
    """Changes each of these objects."""
    tarn("cluster edit box --name bin")
    tarn(f"storage edit {watched['storage']} --name bin")
    server.call("POST", f"/job/cancel/{watched['job']}")
    server.call("DELETE", f"/job/delete/{watched['job']}")
    tarn("cluster destroy patient --no-input")


WATCHED = ["cluster list --watch", "cluster info {cluster} --watch", "storage list --watch", "storage info {storage} --watch",
           "job list --watch", "request list --watch", "request info {request} --watch"]  # fmt: skip


def test_watch_shows_changes(tarn, server, watched):
    """`--watch` shows each change, at a terminal, in a pipe and as JSON documents."""
    lines = [line.format(**watched) for line in WATCHED]
    with contextlib.ExitStack() as stack:
        people = [stack.enter_context(tarn.terminal(line)) for line in lines]
        pipes = [stack.enter_context(tarn.running(line)) for line in lines]
        programs = [stack.enter_context(tarn.running(f"--json {line}")) for line in lines]
        titles = [pipe.stdout.readline().split()[0] for pipe in pipes]
        for program in programs:
            assert program.stdout.readline() == "{\n"
        for terminal in people:
            terminal.read_until(CLEAR)
        change_objects(tarn, server, watched)
        for line, terminal in zip(lines, people, strict=True):
            terminal.read_until(CLEAR)
            terminal.type("\x03")
            assert "panicked" not in terminal.wait_for_end(0), line
        for line, title, pipe in zip(lines, titles, pipes, strict=True):
            seen = read_until(pipe, lambda text, title=title: text.startswith((title, "There are no")))
            said = interrupt(pipe)
            assert said.code == 0 and not said.errors, (line, said)
            assert "\x1b" not in seen + said.text, "nothing is cleared or colored in a pipe"
        for line, program in zip(lines, programs, strict=True):
            seen = "{\n" + read_until(program, lambda text: text == "{\n")
            said = interrupt(program)
            documents = json_documents(seen + said.text)
            assert said.code == 0 and documents[0] != documents[1], line


def read_until(process, is_meant) -> str:
    """Reads lines until one matches."""
    seen = ""
    while line := process.stdout.readline():
        seen += line
        if is_meant(line):
            return seen
    raise AssertionError(f"it ended before: {seen}")


def json_documents(text: str) -> list[dict]:
    """Consecutive JSON documents."""
    documents, decoder = [], json.JSONDecoder()
    while text := text.strip():
        document, end = decoder.raw_decode(text)
        documents.append(document)
        text = text[end:]
    return documents


def test_job_info_watch_shows_job(tarn, server, watched):
    """`job info --watch` shows the job until Ctrl-C."""
    with tarn.terminal(f"job info {watched['job']} --watch") as terminal:
        assert watched["job"] in terminal.read_until("Commands")
        terminal.type("\x03")
        terminal.wait_for_end(0)


def test_watch_of_missing_object_is_refused(tarn):
    """`--watch` of a missing object, or with an unknown key, is refused."""
    for line in ("cluster info nobody", "storage info s-000000000000", "job info j-000000000000", "request info r-000000000000"):
        tarn(f"{line} --watch", code=3)
    for noun in ("cluster", "storage", "job", "request"):
        tarn(f"{noun} list --watch", code=1, key="tp-wrong")


def test_status_is_colored_only_at_terminal(tarn):
    """States are colored at a terminal without `NO_COLOR`, and not in a pipe."""
    tarn("cluster create 1xCPU --name box --wait")
    with tarn.terminal("cluster list") as terminal:
        coloured = terminal.wait_for_end()
    assert re.search(r"\x1b\[[0-9;]+m *RUNNING *\x1b\[", coloured), coloured
    with tarn.terminal("cluster list", NO_COLOR="1") as terminal:
        assert terminal.wait_for_end() == COLOUR.sub("", coloured)
    assert "\x1b" not in tarn("cluster list").text


@pytest.mark.parametrize("columns", [20, 40, 60, 80, 120])
def test_tables_fit_terminal(tarn, columns):
    """Tables are no wider than the terminal, and IDs stay whole."""
    cluster = tarn.json("cluster create 1xCPU --name a-rather-long-name-of-a-cluster-that-somebody-chose --wait")["object_id"]
    tarn("storage create 1 --wait")
    for line in ("cluster list --instances", "storage list", "request list", "cluster types", "admin user list"):
        with tarn.terminal(line, columns=columns) as terminal:
            shown = COLOUR.sub("", terminal.wait_for_end())
        titles = {row.split()[0] for row in shown.splitlines() if row}
        # Where a table does not fit, fields are shown one below the other, and the terminal breaks long values.
        is_table = not all(re.fullmatch(r"[A-Z$/-]+", title) for title in titles)
        assert not is_table or all(len(row) <= columns for row in shown.splitlines()), f"{line}: {shown}"
        if line.startswith("cluster list"):
            assert cluster in shown and "RUNNING" in shown, "an ID can be copied"


def test_progress_only_at_terminal(tarn):
    """Progress is drawn at a terminal, and is plain lines in a pipe."""
    tarn("cluster create 8xH100 --name everything --wait")
    with tarn.terminal("cluster create 8xH100 --name patient --wait") as terminal:
        terminal.read_until("is being created")
        terminal.read_until("1st in line")
        terminal.type("\x03")
        assert "tarn request wait r-" in terminal.wait_for_end(130)
    with tarn.running("cluster create 8xH100 --name third --wait") as client:
        client.stdout.readline()
        eventually(lambda: tarn.json("cluster info third")["cluster_info"]["status"] == "PENDING", what="the third cluster")
        tarn("cluster destroy third --no-input --wait")
        said = wait_for_end(client)
    # After some seconds without a change the client prints what it waits for.
    *waits, why = said.errors.splitlines()
    assert said.code == 1 and said.text == "" and "\r" not in said.errors and why.startswith("tarn: "), said
    assert all(line.startswith("Waits for 8 H100 GPUs") for line in waits), said


def test_json_at_terminal_is_only_json(tarn):
    """With `--json` a terminal shows nothing but JSON."""
    with tarn.terminal("cluster create 1xCPU --wait --json") as terminal:
        assert json.loads(terminal.wait_for_end())["status"] == "COMPLETED"
    with tarn.terminal("cluster destroy nobody --json") as terminal:
        assert "--no-input" in json.loads(terminal.wait_for_end(2))["message"]
