"""Where the client writes to: terminals of any width, which nobody else commands, closed pipes, full disks."""

import json
import re
import signal
import subprocess

import pytest

from false_engine import HOSTILE, SECONDS, Terminal, check_plain, complaint, engine, finish, laptop  # noqa: F401
from support import BINARY, eventually

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
MACHINE = {"id": "i-1", "name": "box-0", "status": "RUNNING", "private_ip": "10.0.0.2"}
CLUSTER = {
    "id": "c-0123456789ab", "name": "a-rather-long-name-of-a-cluster", "status": "RUNNING", "instance_type": "1xH100",
    "num_nodes": 1, "instances": [MACHINE], "storage": [], "hourly_rate": 1.5,
    "explanation": "it runs since a while and does what it should do",
}  # fmt: skip
JOB = {"id": "j-000000000001", "name": "try", "status": "completed", "exit_code": 0, "explanation": "it is done"}
LOG = b"".join(b"line %d of many\n" % number for number in range(50_000))


@pytest.fixture(autouse=True)
def honest(engine):
    """An engine that has a cluster and a job."""
    engine.says("/cluster/list", {"clusters": [CLUSTER] * 3, "next_cursor": None, "message": ""})
    engine.says("/cluster/info/box", {"cluster_info": CLUSTER, "message": ""})
    engine.says("/job/info/j-000000000001", {"job_info": JOB, "message": ""})
    engine.says("/job/logs/j-000000000001", LOG, kind="text/plain", X_Log_Ended="true", X_Log_Size=len(LOG))


def hostile(value):
    """The same with a hostile text in the place of every text."""
    if isinstance(value, dict):
        return {name: hostile(each) for name, each in value.items()}
    if isinstance(value, list):
        return [hostile(each) for each in value]
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
def villain(engine, laptop):
    """An engine of which every text commands the terminal; only what ends a wait is as it should be."""
    texts = (
        "id name email org_name org_id user_id explanation instance_type request_type object_id created_at private_ip "
        "fingerprint gpu_model cluster_name access_key_id secret_access_key endpoint region message "
        "nodes api_key actor verb object at uid"
    ).split()
    lists = ["commands", "outputs", "storage", "attached_clusters"]
    row = dict.fromkeys(texts, "x") | dict.fromkeys(lists, ["x"])
    row = hostile(row) | {"status": f"RUNNING{HOSTILE}", "cluster_id": f"c-000000000001{HOSTILE}"}
    row |= {"instances": [dict(row)], "request_id": "r-000000000001", "job_id": f"j-000000000001{HOSTILE}"}
    lists = dict.fromkeys("clusters volumes jobs requests types keys users events members".split(), [row])
    infos = {"cluster_info": row, "storage_info": row, "job_info": row, "buckets": [HOSTILE], "download_map": {}}
    engine.script.clear()
    engine.says("*", row | lists | infos | {"next_cursor": None, "upload_url": f"{engine.url}/up"})
    engine.says("/job/pull/j-000000000009", {"download_map": {}, "message": HOSTILE})
    engine.says("/request/info/r-000000000001", row | {"status": "COMPLETED"})
    engine.says("/job/info/j-000000000009", {"job_info": row | {"status": "error"}})
    engine.says("/job/logs/j-000000000009", b"", X_Log_Ended="true")
    (laptop.work / "job.tp.toml").write_text('commands = ["true"]\n')
    return engine


@pytest.mark.parametrize("line", SHOWN)
def test_nobody_else_commands_the_terminal(laptop, villain, line):
    """Neither through a pipe, which somebody may look at later, nor on a terminal."""
    command = line.split()
    said = laptop.run(*command, answer="tp-x\n")
    assert "panicked" not in said.errors
    check_plain(said.text)
    check_plain(said.errors)
    _, written = laptop.terminal(*command, columns=200) if command[0] != "login" else (0, "")
    # Colours and the line that shows how far it is are the client's own.
    ours = re.sub(r"\x1b\[[0-9;]*[mKGAB]|\x1b\[\?25[hl]|\r", "", written)
    check_plain(ours)
    assert "owned\x07" not in written and "\x1b]" not in written


def test_json_is_escaped(laptop, villain):
    """A program reads the very text; a person who looks at it is safe all the same."""
    for command in (["cluster", "list"], ["cluster", "info", "x"], ["request", "wait", "r-000000000001"]):
        text = laptop.run(*command, "--json").text
        assert HOSTILE in deep(json.loads(text)), "to the letter"
        check_plain(text)
    villain.says("*", {"message": HOSTILE}, status=409)
    said = laptop.run("me", "--json")
    assert json.loads(said.text) == {"message": HOSTILE} and not said.errors
    check_plain(said.text)


def deep(value) -> str:
    """All texts of a body, one after the other."""
    if isinstance(value, dict):
        return "".join(map(deep, value.values()))
    return "".join(map(deep, value)) if isinstance(value, list) else str(value)


def test_a_name_cannot_pass_for_a_field(laptop, engine):
    """A text of two lines does not become two lines that look like the client's own."""
    engine.says("/cluster/info/box", {"cluster_info": CLUSTER | {"name": "box\nStatus       DESTROYED"}})
    lines = laptop.works("cluster", "info", "box").splitlines()
    assert len([line for line in lines if line.startswith("Status")]) == 1, lines
    engine.says("/cluster/list", {"clusters": [CLUSTER | {"name": "box\nmine  c-1  RUNNING"}], "next_cursor": None})
    assert len(laptop.works("cluster", "list").splitlines()) == 2


@pytest.mark.parametrize("columns", [1, 2, 7, 20, 79, 65535])
def test_terminals_of_any_width(laptop, columns):
    for command in (["cluster", "list", "--instances"], ["cluster", "info", "box"], ["job", "info", "j-000000000001"]):
        code, written = laptop.terminal(*command, columns=columns, NO_COLOR="1")
        assert code == 0, written
        assert "panicked" not in written and "\x1b" not in written
        words = re.sub(r"\s", "", written)
        assert ("j-000000000001" if command[0] == "job" else CLUSTER["id"]) in words, "an ID can be copied, whole"
        if columns == 20 and command[1] == "list":
            # An ID or a name may be longer than the line; the terminal breaks it, and nothing else is wider than it.
            for line in written.splitlines():
                assert len(line) <= columns or max(map(len, line.split())) > columns - 10, line


def test_a_narrow_terminal_gets_errors_whole(laptop, engine):
    engine.says("*", {"message": "there are too many moons in the sky for this"}, status=409)
    code, written = laptop.terminal("cluster", "info", "y", columns=20)
    assert code == 4 and "too many moons in the sky" in written.replace("\r\n", " "), written


def test_colours_are_for_terminals_that_want_them(laptop):
    _, written = laptop.terminal("cluster", "list", NO_COLOR="1")
    assert "\x1b" not in written, written
    _, written = laptop.terminal("cluster", "list")
    assert COLOUR.search(written), "status words have colours"
    assert "\x1b" not in COLOUR.sub("", written), "and nothing else"
    assert "\x1b" not in laptop.works("cluster", "list"), "a pipe has none"


READ = ["cluster list", "cluster list --json", "job logs j-000000000001", "job listen j-000000000001", "--help"]


@pytest.mark.parametrize("line", READ)
@pytest.mark.parametrize("reader", ["head -c 0", "head -1", "true"])
def test_who_reads_no_further(laptop, line, reader):
    """Is not complained to, and does not have to wait."""
    process = laptop.start(*line.split())
    read = subprocess.Popen(reader.split(), stdin=process.stdout, stdout=subprocess.DEVNULL)
    process.stdout.close()
    process.stdout = None
    said = finish(process)
    assert read.wait(SECONDS) == 0
    assert said.code in (0, -signal.SIGPIPE) and not said.errors, said


@pytest.mark.parametrize("line", ["cluster list --watch", "job listen j-000000000002", "job logs -f j-000000000002"])
def test_what_goes_on_ends_with_its_reader(laptop, engine, line):
    """`tarn job logs -f … | head -1` gives the prompt back although the job goes on, and `--watch` as well."""
    state = {"count": 0}

    def list_clusters(connection):
        state["count"] += 1
        connection.answer({"clusters": [CLUSTER | {"num_nodes": state["count"]}], "next_cursor": None, "message": ""})

    def log(connection):
        state["count"] += 1
        headers = {"X-Log-Ended": "false", "X-Log-Size": "1000000"}
        connection.answer(b"another line\n", kind="text/plain", headers=headers)

    engine.does("/cluster/list", list_clusters, takes_all=True)
    engine.does("/job/logs/j-000000000002", log, takes_all=True)
    engine.says("/job/info/j-000000000002", {"job_info": JOB | {"id": "j-000000000002", "status": "running"}})
    process = laptop.start(*line.split())
    assert process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    said = finish(process)
    assert said.code in (0, -signal.SIGPIPE) and not said.errors, said


@pytest.mark.parametrize("line", [*READ[:-1], "ssh-config --print"])
def test_a_full_disk(laptop, line):
    """What could not be written is not passed for written."""
    with open("/dev/full", "wb") as full:
        said = laptop.run(*line.split(), stdout=full)
    complaint(said, 1)


def test_a_closed_output(laptop):
    """There is nobody to tell; nothing breaks, and no connection is taken for the output."""
    for command in ("cluster list", "job logs j-000000000001", "me"):
        done = subprocess.run(
            ["sh", "-c", f'exec "$0" {command} >&-', str(BINARY)], env=laptop.variables, cwd=laptop.work,
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=SECONDS,
        )  # fmt: skip
        assert done.returncode in (0, 1, 3) and "panicked" not in done.stderr, done


def test_errors_that_cannot_be_written_change_no_code(laptop, engine):
    engine.says("*", {"message": "no"}, status=409)
    with open("/dev/full", "wb") as full:
        assert laptop.run("cluster", "info", "y", stderr=full).code == 4


@pytest.fixture
def costly(engine):
    """Lets clusters be made, which somebody has to pay for until they are destroyed."""
    made = {"cluster_id": "c-000000000001", "request_id": "r-000000000001", "message": "accepted"}
    engine.says("/cluster/create", made, status=202)
    engine.says("/request/info/r-000000000001", {"status": "COMPLETED", "message": "it runs"})
    engine.says("/job/create", {"job_id": "j-000000000001", "upload_url": None, "message": "started"}, status=201)
    gone = {"cluster_id": "c-000000000001", "request_id": "r-000000000002", "message": "goes"}
    engine.says("/cluster/c-000000000001", gone, status=202)
    engine.says("/request/info/r-000000000002", {"status": "COMPLETED", "message": "it is gone"})
    return engine


def test_no_machine_is_left_behind_by_who_cannot_be_told(laptop, costly):
    """`tarn job run` destroys what it made, although nobody can read what it says."""
    with open("/dev/full", "wb") as full:
        for options in ({"stderr": full}, {"stdout": full}, {"stdout": full, "stderr": full}):
            costly.asked.clear()
            laptop.run("job", "run", "true", "--on", "1xCPU", **options)
            assert costly.paths("DELETE") == ["/cluster/c-000000000001"], options


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("when", ["cluster", "job"])
def test_no_machine_is_left_behind_by_who_interrupts(laptop, costly, when, how):
    """While the cluster is made or the job runs; what is said is what is true then."""
    if when == "cluster":
        costly.says("/request/info/r-000000000001", {"status": "PENDING", "message": "waits"})
    costly.says("/job/info/j-000000000001", {"job_info": JOB | {"status": "running"}})
    costly.does("/job/logs/j-000000000001", lambda connection: costly.over.wait(SECONDS), takes_all=True)
    process = laptop.start("job", "run", "true", "--on", "1xCPU")
    awaited = "/request/info/r-000000000001" if when == "cluster" else "/job/logs/j-000000000001"
    eventually(lambda: awaited in costly.paths("GET"), what="the wait")
    process.send_signal(how)
    said = finish(process)
    assert said.code == 130, said
    assert costly.paths("DELETE") == ["/cluster/c-000000000001"]
    assert "continues" not in said.errors, f"nothing goes on without its cluster: {said}"


def test_a_cluster_that_cannot_be_destroyed_yet_is_destroyed_later(laptop, costly):
    """Ctrl-C while it is made: engines refuse to destroy it then."""
    state = {"made": False}

    def look(connection):
        connection.answer({"status": "COMPLETED" if state["made"] else "PROCESSING", "message": "is made"})

    def destroy(connection):
        if state["made"]:
            return connection.answer({"request_id": "r-000000000002", "message": "goes"}, 202)
        state["made"] = True
        return connection.answer({"message": "it is being made", "code": "cluster_busy"}, 409)

    costly.does("/request/info/r-000000000001", look, takes_all=True)
    costly.does("/cluster/c-000000000001", destroy, takes_all=True)
    process = laptop.start("job", "run", "true", "--on", "1xCPU")
    eventually(lambda: "/request/info/r-000000000001" in costly.paths("GET"), what="the wait")
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.code == 130 and "still exists" not in said.errors, said
    assert costly.paths("DELETE") == ["/cluster/c-000000000001"] * 2


def test_who_reads_no_further_of_a_job_in_one_line_is_told_that_it_was_stopped(laptop, costly):
    costly.says("/job/info/j-000000000001", {"job_info": JOB | {"status": "running"}})
    headers = {"X-Log-Ended": "false", "X-Log-Size": "1000000000"}
    costly.does(
        "/job/logs/j-000000000001",
        lambda connection: connection.answer(b"another line\n", kind="text/plain", headers=headers),
        takes_all=True,
    )
    process = laptop.start("job", "run", "true", "--on", "1xCPU")
    assert process.stdout.readline()
    process.stdout.close()
    process.stdout = None
    assert finish(process).code == 1
    assert costly.paths("DELETE") == ["/cluster/c-000000000001"]


def test_ctrl_c_ends_a_wait_on_a_terminal(laptop, engine):
    """The terminal is as it was, and the last line says how to come back."""
    engine.says("/request/info/r-000000000001", {"status": "PENDING", "message": f"waits for {HOSTILE} moons"})
    with Terminal(laptop, "request", "wait", "r-000000000001", columns=60) as terminal:
        eventually(lambda: "moons" in terminal.read(), what="what is waited for")
        terminal.type("\x03")
        code, written = terminal.end()
        assert code == 130 and "tarn request wait r-000000000001" in written.replace("\r\n", ""), written
        assert terminal.echoes() and written.count("\x1b[?25l") == written.count("\x1b[?25h")
