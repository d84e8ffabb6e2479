"""The client's output: terminals of any width, control characters, closed pipes, full disks."""

import json
import re
import signal
import subprocess

import pytest

from stub_engine import HOSTILE, SECONDS, Terminal, check_plain, engine, error_line, finish, laptop  # noqa: F401
from support import BINARY, eventually

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
INSTANCE = {"id": "i-1", "name": "box-0", "status": "RUNNING", "private_ip": "10.0.0.2"}
CLUSTER = {
    "id": "c-0123456789ab", "name": "a-rather-long-name-of-a-cluster", "status": "RUNNING", "instance_type": "1xH100",
    "num_nodes": 1, "instances": [INSTANCE], "storage": [], "hourly_rate": 1.5,
    "explanation": "it runs since a while and does what it should do",
}  # fmt: skip
JOB = {"id": "j-000000000001", "name": "try", "status": "completed", "exit_code": 0, "explanation": "it is done"}
LOG = b"".join(b"line %d of many\n" % number for number in range(50_000))


@pytest.fixture(autouse=True)
def valid_engine(engine):
    """An engine that has a cluster and a job."""
    engine.set_response("/cluster/list", {"clusters": [CLUSTER] * 3, "next_cursor": None, "message": ""})
    engine.set_response("/cluster/info/box", {"cluster_info": CLUSTER, "message": ""})
    engine.set_response("/job/info/j-000000000001", {"job_info": JOB, "message": ""})
    engine.set_response("/job/logs/j-000000000001", LOG, kind="text/plain", X_Log_Ended="true", X_Log_Size=len(LOG))


def with_hostile_texts(value):
    """The same value with a hostile text in place of every text."""
    if isinstance(value, dict):
        return {name: with_hostile_texts(each) for name, each in value.items()}
    if isinstance(value, list):
        return [with_hostile_texts(each) for each in value]
    return f"{value}{HOSTILE}\n{HOSTILE}" if isinstance(value, str) else value


SHOWN = """
cluster list --instances
cluster info c-000000000009
cluster types
cluster create 1xCPU
cluster create 1xCPU --wait
cluster destroy c-000000000009 --no-input
cluster edit c-000000000009 --name y
cluster restart c-000000000009 --no-input
storage list
storage info s-000000000001
storage create 1
job list
job info j-000000000009
job cancel j-000000000009 --no-input
job delete j-000000000009
job pull j-000000000009 --dry-run
job pull j-000000000009
request list
request info r-000000000001
request wait r-000000000001
me
me preferences
me sshkey list
object-storage credentials
object-storage enable
object-storage usage
object-storage bucket list
object-storage keys list
object-storage keys create
object-storage bucket create x
job push job.tp.toml box
login --stdin
ssh-config --print
ssh box
job listen j-000000000009
admin user list
admin user create someone@example.org
admin org info
admin key list
admin events
""".strip().splitlines()


@pytest.fixture
def hostile_engine(engine, laptop):
    """An engine with control characters in every text; only what ends a wait is valid."""
    texts = (
        "id name email org_name org_id user_id explanation instance_type request_type object_id created_at private_ip "
        "fingerprint gpu_model cluster_name access_key_id secret_access_key endpoint region message "
        "nodes api_key actor verb object at uid"
    ).split()
    lists = ["commands", "outputs", "storage", "attached_clusters"]
    row = dict.fromkeys(texts, "x") | dict.fromkeys(lists, ["x"])
    row = with_hostile_texts(row) | {"status": f"RUNNING{HOSTILE}", "cluster_id": f"c-000000000001{HOSTILE}"}
    row |= {"instances": [dict(row)], "request_id": "r-000000000001", "job_id": f"j-000000000001{HOSTILE}"}
    lists = dict.fromkeys("clusters volumes jobs requests types keys users events members".split(), [row])
    infos = {"cluster_info": row, "storage_info": row, "job_info": row, "buckets": [HOSTILE], "download_map": {}}
    engine.script.clear()
    engine.set_response("*", row | lists | infos | {"next_cursor": None, "upload_url": f"{engine.url}/up"})
    engine.set_response("/job/pull/j-000000000009", {"download_map": {}, "message": HOSTILE})
    engine.set_response("/request/info/r-000000000001", row | {"status": "COMPLETED"})
    engine.set_response("/job/info/j-000000000009", {"job_info": row | {"status": "error"}})
    engine.set_response("/job/logs/j-000000000009", b"", X_Log_Ended="true")
    (laptop.work / "job.tp.toml").write_text('commands = ["true"]\n')
    return engine


@pytest.mark.parametrize("line", SHOWN)
def test_engine_texts_cannot_control_terminal(laptop, hostile_engine, line):
    """Texts of the engine contain no control characters, neither in a pipe nor on a terminal."""
    command = line.split()
    said = laptop.run(*command, answer="tp-x\n")
    assert "panicked" not in said.errors
    check_plain(said.text)
    check_plain(said.errors)
    _, written = laptop.terminal(*command, columns=200) if command[0] != "login" else (0, "")
    # Colors and the progress line are the client's own.
    ours = re.sub(r"\x1b\[[0-9;]*[mKGAB]|\x1b\[\?25[hl]|\r", "", written)
    check_plain(ours)
    assert "owned\x07" not in written and "\x1b]" not in written


def test_json_escapes_control_characters(laptop, hostile_engine):
    """A program reads the exact text from JSON, and the output is still safe on a terminal."""
    for command in (["cluster", "list"], ["cluster", "info", "x"], ["request", "wait", "r-000000000001"]):
        text = laptop.run(*command, "--json").text
        assert HOSTILE in all_texts(json.loads(text)), "unchanged"
        check_plain(text)
    hostile_engine.set_response("*", {"message": HOSTILE}, status=409)
    said = laptop.run("me", "--json")
    assert json.loads(said.text) == {"message": HOSTILE} and not said.errors
    check_plain(said.text)


def all_texts(value) -> str:
    """All texts of a body, joined."""
    if isinstance(value, dict):
        return "".join(map(all_texts, value.values()))
    return "".join(map(all_texts, value)) if isinstance(value, list) else str(value)


def test_name_with_newline_stays_one_line(laptop, engine):
    """A name with a newline does not print a second line that looks like a field."""
    engine.set_response("/cluster/info/box", {"cluster_info": CLUSTER | {"name": "box\nStatus       DESTROYED"}})
    lines = laptop.works("cluster", "info", "box").splitlines()
    assert len([line for line in lines if line.startswith("Status")]) == 1, lines
    engine.set_response("/cluster/list", {"clusters": [CLUSTER | {"name": "box\nmine  c-1  RUNNING"}], "next_cursor": None})
    assert len(laptop.works("cluster", "list").splitlines()) == 2


@pytest.mark.parametrize("columns", [1, 2, 7, 20, 79, 65535])
def test_output_fits_any_terminal_width(laptop, columns):
    """Output works at every terminal width, and IDs stay whole."""
    for command in (["cluster", "list", "--instances"], ["cluster", "info", "box"], ["job", "info", "j-000000000001"]):
        code, written = laptop.terminal(*command, columns=columns, NO_COLOR="1")
        assert code == 0, written
        assert "panicked" not in written and "\x1b" not in written
        words = re.sub(r"\s", "", written)
        assert ("j-000000000001" if command[0] == "job" else CLUSTER["id"]) in words, "an ID can be copied whole"
        if columns == 20 and command[1] == "list":
            # An ID or a name may be longer than the line and is broken by the terminal; nothing else is wider.
            for line in written.splitlines():
                assert len(line) <= columns or max(map(len, line.split())) > columns - 10, line


def test_narrow_terminal_shows_whole_error(laptop, engine):
    """A narrow terminal shows the whole error."""
    engine.set_response("*", {"message": "there are too many moons in the sky for this"}, status=409)
    code, written = laptop.terminal("cluster", "info", "y", columns=20)
    assert code == 4 and "too many moons in the sky" in written.replace("\r\n", " "), written


def test_colors_only_on_willing_terminals(laptop):
    """Colors appear on a terminal without `NO_COLOR`, and nowhere else."""
    _, written = laptop.terminal("cluster", "list", NO_COLOR="1")
    assert "\x1b" not in written, written
    _, written = laptop.terminal("cluster", "list")
    assert COLOUR.search(written), "states have colors"
    assert "\x1b" not in COLOUR.sub("", written), "and nothing else"
    assert "\x1b" not in laptop.works("cluster", "list"), "a pipe has no colors"


READ = ["cluster list", "cluster list --json", "job logs j-000000000001", "job listen j-000000000001", "--help"]


@pytest.mark.parametrize("line", READ)
@pytest.mark.parametrize("reader", ["head -c 0", "head -1", "true"])
def test_closed_pipe_ends_client_quietly(laptop, line, reader):
    """A reader that closes the pipe ends the client at once and without an error."""
    process = laptop.start(*line.split())
    read = subprocess.Popen(reader.split(), stdin=process.stdout, stdout=subprocess.DEVNULL)
    process.stdout.close()
    process.stdout = None
    said = finish(process)
    assert read.wait(SECONDS) == 0
    assert said.code in (0, -signal.SIGPIPE) and not said.errors, said


@pytest.mark.parametrize("line", ["cluster list --watch", "job listen j-000000000002", "job logs -f j-000000000002"])
def test_following_ends_with_reader(laptop, engine, line):
    """`tarn job logs -f … | head -1` and `--watch` end when the reader does, although the job continues."""
    state = {"count": 0}

    def list_clusters(connection):
        state["count"] += 1
        connection.respond({"clusters": [CLUSTER | {"num_nodes": state["count"]}], "next_cursor": None, "message": ""})

    def log(connection):
        state["count"] += 1
        headers = {"X-Log-Ended": "false", "X-Log-Size": "1000000"}
        connection.respond(b"another line\n", kind="text/plain", headers=headers)

    engine.set_handler("/cluster/list", list_clusters, reads_body=True)
    engine.set_handler("/job/logs/j-000000000002", log, reads_body=True)
    engine.set_response("/job/info/j-000000000002", {"job_info": JOB | {"id": "j-000000000002", "status": "running"}})
    process = laptop.start(*line.split())
    assert process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    said = finish(process)
    assert said.code in (0, -signal.SIGPIPE) and not said.errors, said


@pytest.mark.parametrize("line", [*READ[:-1], "ssh-config --print"])
def test_full_disk_is_a_failure(laptop, line):
    """Output that could not be written is a failure."""
    with open("/dev/full", "wb") as full:
        said = laptop.run(*line.split(), stdout=full)
    error_line(said, 1)


def test_closed_stdout_is_tolerated(laptop):
    """A closed standard output breaks nothing, and no connection takes its descriptor."""
    for command in ("cluster list", "job logs j-000000000001", "me"):
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" {command} >&-', str(BINARY)], env=laptop.variables, cwd=laptop.work,
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode in (0, 1, 3) and "panicked" not in done.stderr, done


def test_unwritable_stderr_keeps_exit_code(laptop, engine):
    """An error stream that cannot be written does not change the exit code."""
    engine.set_response("*", {"message": "no"}, status=409)
    with open("/dev/full", "wb") as full:
        assert laptop.run("cluster", "info", "y", stderr=full).code == 4


@pytest.fixture
def job_run_engine(engine):
    """An engine that creates clusters and runs a job on them."""
    made = {"cluster_id": "c-000000000001", "request_id": "r-000000000001", "message": "accepted"}
    engine.set_response("/cluster/create", made, status=202)
    engine.set_response("/request/info/r-000000000001", {"status": "COMPLETED", "message": "it runs"})
    engine.set_response("/job/create", {"job_id": "j-000000000001", "upload_url": None, "message": "started"}, status=201)
    gone = {"cluster_id": "c-000000000001", "request_id": "r-000000000002", "message": "goes"}
    engine.set_response("/cluster/c-000000000001", gone, status=202)
    engine.set_response("/request/info/r-000000000002", {"status": "COMPLETED", "message": "it is gone"})
    return engine


def test_job_run_destroys_cluster_without_output(laptop, job_run_engine):
    """`tarn job run` destroys its cluster although its output cannot be written."""
    with open("/dev/full", "wb") as full:
        for options in ({"stderr": full}, {"stdout": full}, {"stdout": full, "stderr": full}):
            job_run_engine.calls.clear()
            laptop.run("job", "run", "true", "--on", "1xCPU", **options)
            assert job_run_engine.paths("DELETE") == ["/cluster/c-000000000001"], options


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("when", ["cluster", "job"])
def test_job_run_destroys_cluster_on_signal(laptop, job_run_engine, when, how):
    """A signal during the create or the job destroys the cluster, and the messages say so."""
    if when == "cluster":
        job_run_engine.set_response("/request/info/r-000000000001", {"status": "PENDING", "message": "waits"})
    job_run_engine.set_response("/job/info/j-000000000001", {"job_info": JOB | {"status": "running"}})
    job_run_engine.set_handler("/job/logs/j-000000000001", lambda connection: job_run_engine.stopped.wait(SECONDS), reads_body=True)
    process = laptop.start("job", "run", "true", "--on", "1xCPU")
    awaited = "/request/info/r-000000000001" if when == "cluster" else "/job/logs/j-000000000001"
    eventually(lambda: awaited in job_run_engine.paths("GET"), what="the wait")
    process.send_signal(how)
    said = finish(process)
    assert said.code == 130, said
    assert job_run_engine.paths("DELETE") == ["/cluster/c-000000000001"]
    assert "continues" not in said.errors, f"nothing continues without its cluster: {said}"


def test_job_run_retries_refused_destroy(laptop, job_run_engine):
    """A destroy that the engine refuses while it creates the cluster is tried again."""
    state = {"made": False}

    def look(connection):
        connection.respond({"status": "COMPLETED" if state["made"] else "PROCESSING", "message": "is made"})

    def destroy(connection):
        if state["made"]:
            return connection.respond({"request_id": "r-000000000002", "message": "goes"}, 202)
        state["made"] = True
        return connection.respond({"message": "it is being made", "code": "cluster_busy"}, 409)

    job_run_engine.set_handler("/request/info/r-000000000001", look, reads_body=True)
    job_run_engine.set_handler("/cluster/c-000000000001", destroy, reads_body=True)
    process = laptop.start("job", "run", "true", "--on", "1xCPU")
    eventually(lambda: "/request/info/r-000000000001" in job_run_engine.paths("GET"), what="the wait")
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.code == 130 and "still exists" not in said.errors, said
    assert job_run_engine.paths("DELETE") == ["/cluster/c-000000000001"] * 2


def test_job_run_fails_when_reader_closes(laptop, job_run_engine):
    """`tarn job run` whose reader closes the pipe destroys the cluster and fails."""
    job_run_engine.set_response("/job/info/j-000000000001", {"job_info": JOB | {"status": "running"}})
    headers = {"X-Log-Ended": "false", "X-Log-Size": "1000000000"}
    job_run_engine.set_handler(
        "/job/logs/j-000000000001",
        lambda connection: connection.respond(b"another line\n", kind="text/plain", headers=headers),
        reads_body=True,
    )
    process = laptop.start("job", "run", "true", "--on", "1xCPU")
    assert process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert finish(process).code == 1
    assert job_run_engine.paths("DELETE") == ["/cluster/c-000000000001"]


def test_ctrl_c_restores_terminal_after_wait(laptop, engine):
    """Ctrl-C during a wait restores the terminal, and the last line says how to wait again."""
    engine.set_response("/request/info/r-000000000001", {"status": "PENDING", "message": f"waits for {HOSTILE} moons"})
    with Terminal(laptop, "request", "wait", "r-000000000001", columns=60) as terminal:
        eventually(lambda: "moons" in terminal.read(), what="what is waited for")
        terminal.type("\x03")
        code, written = terminal.end()
        assert code == 130 and "tarn request wait r-000000000001" in written.replace("\r\n", ""), written
        assert terminal.echoes() and written.count("\x1b[?25l") == written.count("\x1b[?25h")
