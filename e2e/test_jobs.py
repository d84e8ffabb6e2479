"""Jobs on real instances over the REST API: start, run, logs, outputs, end, and what survives a crash."""

import io
import zipfile

import pytest

from jobs import Jobs, archive, config, printed_text
from instances import needs_root
from support import eventually

pytestmark = needs_root
# Every node sends its rank to the first one, which returns the sum of all ranks.
RENDEZVOUS = """\
import os, socket
rank, nodes = int(os.environ["NODE_RANK"]), int(os.environ["NNODES"])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
hosts = open(os.environ["TP_HOSTFILE"]).read().split()
assert len(hosts) == nodes and socket.gethostname() == hosts[rank], hosts
if rank == 0:
    with socket.create_server(("", address[1])) as server:
        others = [server.accept()[0] for _ in range(nodes - 1)]
        total = sum(int(other.makefile().readline()) for other in others)
        for other in others:
            other.sendall(f"{total}\\n".encode())
else:
    while True:
        try:
            server = socket.create_connection(address, timeout=30)
            break
        except ConnectionRefusedError:
            pass
    server.sendall(f"{rank}\\n".encode())
    total = int(server.makefile().readline())
print(f"rank {rank} of {nodes}: {total}")
"""


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """One engine for the whole file, with an instance that runs one job at a time."""
    with Jobs(tmp_path_factory.mktemp("jobs")) as running:
        running.create("box", kind="worker")
        yield running


@pytest.fixture(scope="module")
def pair(cloud):
    """A cluster of two nodes."""
    return cloud.create("pair", nodes=2, kind="worker")


def test_create_upload_start(cloud):
    """A job is created, gets its files once, starts and returns its outputs."""
    text = config("cat in/put.txt", "echo out > result.txt", outputs=["result.txt"], venv=False, name="by-hand")
    made = cloud.submit("box", text)
    job = made["job_id"]
    assert cloud.job(job)["status"] == "pending" and cloud.job(job)["name"] == "by-hand"
    refused = cloud.call("POST", f"/job/start/{job}", expect=409).json()
    assert refused["message"], "its files have not been uploaded"
    files = archive({"in/put.txt": b"hello\n"})
    assert cloud.upload(made["upload_url"].replace(job, "j-000000000000"), files).status_code in (401, 403, 404)
    assert cloud.upload(made["upload_url"][:-1] + "x", files).status_code in (400, 401, 403)
    assert cloud.upload(made["upload_url"], files).status_code in (200, 201, 204)
    assert cloud.upload(made["upload_url"], files).status_code == 409, "files are accepted once"
    for _ in range(2):
        assert cloud.call("POST", f"/job/start/{job}", expect=202).json()["job_id"] == job
    assert cloud.text(job) == "hello\n"
    seen = cloud.job(job)
    assert seen["exit_code"] == 0 and seen["created_at"] <= seen["started_at"] <= seen["ended_at"]
    assert seen["instance_type"] == "worker" and seen["cluster_id"] == cloud.info("box")["id"]
    assert cloud.pull(job, dry_run=True) == {"result.txt": None}
    assert cloud.fetch(cloud.pull(job)["result.txt"]) == b"out\n"


def test_idempotency_key_creates_one_job(cloud):
    """Two calls with the same idempotency key create one job."""
    body = {"tp_config": config("true", venv=False), "cluster_id": "box", "files": False, "start": True}
    key = {"Idempotency-Key": "once-only"}
    answers = [cloud.call("POST", "/job/create", json=body, headers=key, expect=201).json()["job_id"] for _ in range(2)]
    assert answers[0] == answers[1]
    cloud.wait(answers[0])


def test_log_ranges(cloud):
    """A log is read in ranges of bytes; invalid ranges are refused."""
    job = cloud.run("box", "seq 1 20000", venv=False)
    whole = "".join(f"{number}\n" for number in range(1, 20001)).encode()
    assert cloud.text(job).encode() == whole
    assert cloud.log_of(job, offset=5) == whole[5:]
    assert cloud.log_of(job, offset=1000, limit=77) == whole[1000:1077]
    assert cloud.log_of(job, offset=len(whole)) == cloud.log_of(job, offset=len(whole) + 10**6) == b""
    for wrong in ({"offset": -1}, {"offset": "x"}, {"limit": -1}):
        cloud.call("GET", f"/job/logs/{job}", params=wrong, expect=422)


def test_log_keeps_bytes_listener_gets_text(cloud):
    """The log keeps every byte; a listener gets lines of text."""
    bytes_ = r"printf 'a\0b\377\n'; printf '10%%\r20%%\r30%%\n'; printf 'gr\303'; printf '\274\303\237e\n'; printf 'no end'"
    job = cloud.run("box", bytes_, venv=False)
    cloud.wait(job)
    assert cloud.log_of(job) == b"a\0b\xff\n10%\r20%\r30%\n" + "grüße\n".encode() + b"no end"
    frames, code = cloud.listen(job)
    assert printed_text(frames).splitlines() == ["ab\N{REPLACEMENT CHARACTER}", "30%", "grüße", "no end"]
    assert frames[-1]["status"] == "success" and code == 1000


def test_commands_share_one_shell(cloud):
    """All commands run in one shell, and a syntax error ends the job."""
    commands = ["cd /tmp", "export WORD='a b'", "shout() { echo \"$1!\"; }", "pwd; echo $WORD; shout hey", "echo error >&2"]
    assert cloud.text(cloud.run("box", *commands, venv=False)) == "/tmp\na b\nhey!\nerror\n"
    broken = cloud.run("box", "echo one", "if then", "echo two", venv=False)
    assert cloud.wait(broken, "error")["exit_code"] not in (0, None)
    assert cloud.log_of(broken).startswith(b"one\n") and b"two" not in cloud.log_of(broken)


@pytest.mark.parametrize(
    "command, code, words", [("exit 42", 42, "42"), ("false", 1, "1"), ("kill -9 $$", 137, "KILL"), ("nonsense-program", 127, "127")]
)
def test_failed_command_sets_exit_code(cloud, command, code, words):
    """A failed command sets the exit code and the explanation."""
    ended = cloud.wait(cloud.run("box", command, "echo not reached", venv=False), "error")
    assert ended["exit_code"] == code and words in ended["message"] + ended["explanation"], ended


def test_out_of_memory_is_explained(cloud):
    """A job that exceeds its memory fails with an explanation."""
    ended = cloud.wait(cloud.run("box", "python3 -c \"b'x' * (1 << 30)\"", venv=False), "error")
    assert ended["exit_code"] == 137 and "ran out of memory (limit 0.5 GiB)" in ended["explanation"], ended


def test_jobs_run_in_order(cloud):
    """Jobs run in the order of their start, and each says what it waits for."""
    first = cloud.run("box", "rm -f ~/go; echo here; until [ -e ~/go ]; do sleep 0.05; done", venv=False)
    others = [cloud.run("box", "true", venv=False) for _ in range(3)]
    cloud.wait_until_running(first, b"here")
    assert [cloud.job(job)["status"] for job in others] == ["pending"] * 3
    assert "3" in cloud.job(others[2])["explanation"], "the number of jobs before it"
    running = cloud.job(first)["explanation"]
    assert running.startswith("Runs on ") and " since " in running and "; last output at " in running, running
    cloud.ssh("box", "touch go")
    ended = [cloud.wait(job) for job in [first, *others]]
    for before, after in zip(ended, ended[1:]):
        assert before["ended_at"] <= after["started_at"]


def test_jobs_parallel_limits_concurrency(cloud):
    """No more jobs run at once than the cluster allows."""
    cluster = cloud.create("wide", kind="worker", jobs_parallel=2)
    meet = "touch ~/{}; until [ -e ~/{} ]; do sleep 0.05; done"
    jobs = [cloud.run("wide", meet.format(*names), venv=False) for names in (("a", "b"), ("b", "a"))]
    third = cloud.run("wide", "true", venv=False)
    ended = [cloud.wait(job) for job in jobs]
    assert cloud.wait(third)["started_at"] >= min(each["ended_at"] for each in ended)
    cloud.destroy(cluster["id"])


def test_nodes_all_runs_on_every_node(cloud, pair):
    """With `nodes = "all"` the job runs on every node, and the nodes reach each other."""
    job = cloud.run("pair", "python3 meet.py", files={"meet.py": RENDEZVOUS.encode()}, nodes="all", venv=False)
    assert sorted(cloud.text(job).splitlines()) == ["rank 0 of 2: 1", "rank 1 of 2: 1"]
    first = cloud.run("pair", "echo $NODE_RANK $NNODES; hostname", venv=False)
    assert cloud.text(first).split()[-1] == pair["instances"][0]["name"]


def test_first_node_failure_ends_job(cloud, pair):
    """The first failure on any node ends the job on all nodes."""
    fails = "if [ $NODE_RANK = 1 ]; then sleep 0.2; exit 7; else sleep 31337; fi"
    ended = cloud.wait(cloud.run("pair", fails, nodes="all", venv=False), "error")
    assert ended["exit_code"] == 7
    eventually(lambda: not cloud.processes(), what="no process of it on any node")


def test_node_lines_stay_whole(cloud, pair):
    """Lines of different nodes are not mixed in the log."""
    line = "seq -f \"$NODE_RANK:%06g:$(printf 'x%.0s' $(seq 100))\" 1 3000"
    lines = cloud.text(cloud.run("pair", line, nodes="all", venv=False)).splitlines()
    for rank in "01":
        mine = [each for each in lines if each.startswith(f"{rank}:")]
        assert mine == [f"{rank}:{number:06}:" + "x" * 100 for number in range(1, 3001)]
    assert len(lines) == 6000


def test_timeout_ends_job(cloud):
    """A job is stopped after its timeout."""
    ended = cloud.wait(cloud.run("box", "echo started; sleep 31337", timeout="1s", venv=False), "error")
    assert ended["exit_code"] == 124 and "timeout" in ended["explanation"], ended


def test_node_restart_retries_or_fails_job(cloud):
    """A restarted node starts the next attempt of a job with retries and fails a job without."""
    script = "echo run >> count; echo attempt $(wc -l < count); [ $(wc -l < count) = 2 ] || sleep 31337; echo done"
    again = cloud.run("box", script, retries=1, venv=False)
    cloud.wait_until_running(again, b"attempt 1")
    cloud.restart("box")
    assert cloud.wait(again)["attempt"] == 2
    assert cloud.log_of(again) == b"attempt 1\nattempt 2\ndone\n"

    once = cloud.run("box", script, venv=False)
    cloud.wait_until_running(once, b"attempt 1")
    cloud.restart("box")
    ended = cloud.wait(once, "failed")
    assert ended["exit_code"] is None and "restarted" in ended["explanation"], ended
    assert cloud.log_of(once) == b"attempt 1\n"


def test_dead_node_fails_job(cloud):
    """The death of a node fails its job and keeps the log."""
    cluster = cloud.create("mortal", kind="worker")
    job = cloud.run("mortal", "echo here; sleep 31337", venv=False)
    cloud.wait_until_running(job, b"here")
    cloud.kill_first_process("mortal")
    ended = cloud.wait(job, "failed")
    assert ended["exit_code"] is None and "node" in ended["explanation"] and cloud.log_of(job) == b"here\n", ended
    cloud.destroy(cluster["id"])


def test_exit_codes_are_retried(cloud):
    """Only the listed exit codes are retried."""
    script = "echo run >> count; [ $(wc -l < count) = 3 ] || exit 75"
    tried = cloud.wait(cloud.run("box", script, retries={"count": 5, "exit_codes": [75]}, venv=False))
    assert tried["attempt"] == 3
    assert cloud.wait(cloud.run("box", "exit 76", retries={"count": 5, "exit_codes": [75]}, venv=False), "error")["attempt"] == 1


def test_cluster_destroy_fails_jobs(cloud):
    """Destroying the cluster fails its running and waiting jobs and keeps their logs."""
    cluster = cloud.create("doomed", kind="worker")
    running = cloud.run("doomed", "echo some; sleep 31337", venv=False)
    waiting = cloud.run("doomed", "echo none", venv=False)
    cloud.wait_until_running(running, b"some")
    cloud.destroy(cluster["id"])
    for job in (running, waiting):
        ended = cloud.wait(job, "failed")
        assert "destroyed" in ended["explanation"], ended
    assert cloud.log_of(running) == b"some\n" and cloud.log_of(waiting) == b""
    assert printed_text(cloud.listen(running)[0]) == "some\n"
    assert not cloud.processes(*(node["id"] for node in cluster["instances"]))
    cloud.submit("doomed", config("true"), files=False, start=True, expect=404)
    assert cloud.submit(cluster["id"], config("true"), files=False, start=True, expect=409)["code"]


def wheel() -> bytes:
    """A Python package that needs no build and no dependencies."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("tiny_thing.py", "word = 'imported'\n")
        file.writestr("tiny_thing-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-thing\nVersion: 1.0\n")
        file.writestr("tiny_thing-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        names = ("tiny_thing.py", "tiny_thing-1.0.dist-info/METADATA", "tiny_thing-1.0.dist-info/WHEEL", "tiny_thing-1.0.dist-info/RECORD")
        file.writestr("tiny_thing-1.0.dist-info/RECORD", "".join(f"{name},,\n" for name in names))
    return out.getvalue()


def test_venv_belongs_to_one_job(cloud):
    """The virtual environment of a job belongs to this job only."""
    name = "tiny_thing-1.0-py3-none-any.whl"
    install = f"pip install --quiet --no-index --disable-pip-version-check ./{name}"
    show = "python -c 'import sys, tiny_thing; print(tiny_thing.word, sys.prefix == sys.base_prefix, sys.prefix)'"
    word, same, prefix = cloud.text(cloud.run("box", install, show, files={name: wheel()})).split()[-3:]
    assert (word, same) == ("imported", "False") and prefix.startswith("/")
    other = cloud.run("box", "python3 -c 'import tiny_thing'")
    assert cloud.wait(other, "error")["exit_code"] == 1, "the next job does not see the package"
    cloud.ssh("box", "! python3 -c 'import tiny_thing' 2>/dev/null")
    plain = cloud.run("box", "python3 -c 'import sys; print(sys.prefix == sys.base_prefix)'; echo ${VIRTUAL_ENV:-none}", venv=False)
    assert cloud.text(plain) == "True\nnone\n"


def test_job_user_and_directory(cloud):
    """A job runs as the user `ubuntu`, in its own directory and without a terminal."""
    job = cloud.run("box", "whoami; pwd; sudo -n id -u; echo $TP_JOB_ID; tty || true", venv=False)
    assert cloud.text(job).splitlines() == ["ubuntu", f"/home/ubuntu/jobs/{job}", "0", job, "not a tty"]


def test_environment_variables_reach_job(cloud):
    """Variables of the job's file reach the job, and stay out of the engine's log."""
    env = {"PLAIN": "x", "QUOTED": "it's \"$HOME\" `id` \\ grüße", "NUMBER": 3, "FLAG": True}
    script = "printf '%s\\n' \"$PLAIN\" \"$QUOTED\" \"$NUMBER\" \"$FLAG\"; set -a; . ./.env; echo $SECRET"
    job = cloud.run("box", script, files={".env": b"SECRET=from-a-file\n"}, env=env, venv=False)
    assert cloud.text(job).splitlines() == ["x", env["QUOTED"], "3", "true", "from-a-file"]
    assert "it's" not in cloud.output() and "from-a-file" not in cloud.output(), "variables stay out of the log"


def test_outputs_during_and_after_run(cloud):
    """Outputs are pulled while the job runs and after it ended, by signed URLs."""
    script = "rm -f ~/on; mkdir -p out/deep; echo first > out/deep/a.txt; echo ready; until [ -e ~/on ]; do sleep 0.05; done; echo second > out/b.txt; exit 9"
    job = cloud.run("box", script, outputs=["out/**", "missing-*"], venv=False)
    cloud.wait_until_running(job, b"ready")
    assert cloud.pull(job, dry_run=True) == {"out/deep/a.txt": None}
    assert cloud.fetch(cloud.pull(job, system="linux")["out/deep/a.txt"]) == b"first\n"
    cloud.ssh("box", "touch on")
    assert cloud.wait(job, "error")["exit_code"] == 9
    files = cloud.pull(job)
    assert {path: cloud.fetch(url) for path, url in files.items()} == {"out/deep/a.txt": b"first\n", "out/b.txt": b"second\n"}
    assert cloud.pull(job, files=["out/b.txt"]).keys() == {"out/b.txt"}
    cloud.call("GET", f"/job/pull/{job}", params={"files": ["nothing"]}, expect=404)
    part = cloud.session.get(files["out/b.txt"], headers={"Range": "bytes=2-4"}, timeout=60)
    assert (part.status_code, part.content) == (206, b"con")
    assert cloud.session.get(files["out/b.txt"][:-1] + "x", timeout=60).status_code in (400, 401, 403)
    assert cloud.session.get(files["out/b.txt"].replace("b.txt", "c.txt"), timeout=60).status_code in (400, 401, 403)


def test_job_survives_engine_kills(cloud):
    """A job survives a killed engine without losing or repeating a byte."""
    # However long the engine takes to return, the job has not ended before the last crash.
    waits = "[ $i != 45 ] || until [ -e ~/last ]; do sleep 0.05; done"
    writes = f"rm -f ~/last; for i in $(seq 1 60); do echo line $i; sleep 0.05; {waits}; done; echo result > r.txt"
    job = cloud.run("box", writes, outputs=["r.txt"], venv=False)
    for line in (5, 20, 35):
        cloud.wait_until_running(job, f"line {line}\n".encode())
        cloud.crash()
    cloud.ssh("box", "touch last")
    whole = "".join(f"line {number}\n" for number in range(1, 61))
    assert cloud.text(job) == whole
    frames, _ = cloud.listen(job)
    assert printed_text(frames) == whole and frames[-1]["status"] == "success"
    assert cloud.job(job)["attempt"] == 1
    assert cloud.fetch(cloud.pull(job)["r.txt"]) == b"result\n"


def test_listener_follows_output(cloud):
    """A listener gets the output as it is written."""
    job = cloud.run("box", "rm -f ~/two; echo one; until [ -e ~/two ]; do sleep 0.05; done; echo two", venv=False)
    with cloud.socket(f"/job/listen/{job}") as connection:
        assert '"one"' in connection.recv(timeout=60)
        cloud.ssh("box", "touch two")
        assert '"two"' in connection.recv(timeout=60)
        assert '"success"' in connection.recv(timeout=60)


def test_delete_leaves_nothing(cloud):
    """A deleted job leaves no directory, object, file or row."""
    job = cloud.run("box", "echo text; echo kept > kept.txt", outputs=["kept.txt"], files={"a": b"b"}, venv=False)
    cloud.wait(job)
    assert job in cloud.directories("box") and any(key.startswith(job) for key in cloud.object_keys())
    url = cloud.pull(job)["kept.txt"]
    for each in cloud.jobs():
        cloud.delete(each["id"])
    cloud.call("GET", f"/job/info/{job}", expect=404)
    assert cloud.session.get(url, timeout=60).status_code in (403, 404)
    cloud.wait_until_nothing_left("box")
