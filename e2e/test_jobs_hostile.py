"""Malicious jobs, and jobs whose clients vanish: nothing outside the job is affected, and nothing is left of them."""

import base64
import gzip
import hashlib
import json
import os
import socket
import struct
import subprocess
import tarfile
import zlib
from pathlib import Path

import pytest
from websockets.sync.client import connect

from jobs import Jobs, archive, archive_of, config, printed_text, receive_frames
from instances import needs_root
from support import FAILED, Server, eventually

pytestmark = needs_root
MIB, GIB = 1 << 20, 1 << 30


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """One engine and one instance for the whole file: each test must leave them as they were."""
    with Jobs(tmp_path_factory.mktemp("hostile")) as running:
        running.create("box", kind="worker")
        yield running


@pytest.fixture(scope="module", autouse=True)
def unharmed(cloud):
    """After all tests the instance runs jobs and accepts logins, the engine responds, and no job process is left."""
    yield
    check_unharmed(cloud)


@pytest.fixture(autouse=True)
def unharmed_by_failure(cloud, request):
    """The same after a failed test, so that the test that did the damage is named."""
    yield
    if request.node.stash[FAILED]:
        check_unharmed(cloud)


def check_unharmed(cloud):
    """Fails if a test has done damage that outlives it."""
    assert cloud.text(cloud.run("box", "echo well", venv=False)) == "well\n"
    assert cloud.ssh("box", "echo well").out == "well\n"
    eventually(lambda: not cloud.processes(), what="no process of any job")
    assert "panicked" not in cloud.output()


def entry(name: str, kind: bytes = tarfile.REGTYPE, content: bytes = b"", **more) -> tuple[tarfile.TarInfo, bytes]:
    """An archive entry of any kind."""
    info = tarfile.TarInfo(name)
    info.type, info.size, info.mode = kind, len(content), 0o644
    for field, value in more.items():
        setattr(info, field, value)
    return info, content


HOSTILE = {
    "absolute": [entry("/tmp/planted", content=b"x")],
    "upwards": [entry("../planted", content=b"x")],
    "upwards in the midst": [entry("a/../../planted", content=b"x")],
    "device": [entry("disk", tarfile.BLKTYPE, devmajor=254, devminor=0)],
    "character device": [entry("null", tarfile.CHRTYPE, devmajor=1, devminor=3)],
    "pipe": [entry("pipe", tarfile.FIFOTYPE)],
    "hard link out": [entry("shadow", tarfile.LNKTYPE, linkname="/etc/shadow")],
    "hard link up": [entry("shadow", tarfile.LNKTYPE, linkname="../../../../etc/shadow")],
    "symbolic link out": [entry("out", tarfile.SYMTYPE, linkname="/tmp"), entry("out/planted", content=b"x")],
    "symbolic link up": [entry("up", tarfile.SYMTYPE, linkname=".."), entry("up/planted", content=b"x")],
}


@pytest.mark.parametrize("entries", HOSTILE.values(), ids=HOSTILE.keys())
def test_archive_entries_outside_are_refused(cloud, entries):
    """Archive entries that lead outside the directory are refused."""
    refuse_archive(cloud, archive_of(entries))


@pytest.mark.parametrize("cut", [0, 5, 100, -30, -9, -1])
def test_truncated_archive_is_refused(cloud, cut):
    """A truncated archive is refused."""
    refuse_archive(cloud, archive({"a": os.urandom(1000), "b": b"x" * 5000})[:cut])


@pytest.mark.parametrize("body", [b"nonsense" * 100, b"\x1f\x8b" + b"\0" * 100, zlib.compress(b"x" * 10_000)])
def test_non_archive_is_refused(cloud, body):
    """A body that is no archive is refused."""
    refuse_archive(cloud, body)


def test_corrupted_archive_is_refused(cloud):
    """An archive with a changed byte is refused."""
    body = bytearray(archive({"a": os.urandom(5000)}))
    body[2500] ^= 1
    refuse_archive(cloud, bytes(body))


def test_decompression_bomb_is_refused(cloud):
    """Ten gibibytes of zeros in ten megabytes are refused; the limit here is one gigabyte."""
    before = cloud.data_bytes()
    refuse_archive(cloud, bomb(10 * GIB))
    assert cloud.data_bytes() < before + 64 * MIB


def test_sparse_bomb_is_refused(cloud):
    """A sparse file of ten gibibytes in a GNU header is refused without taking disk space."""
    info = tarfile.TarInfo("holes")
    info.type, info.size = tarfile.GNUTYPE_SPARSE, 0
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[386:386 + 12] = block[398:398 + 12] = b"00000000000\0"
    block[483:483 + 12] = f"{10 * GIB:011o}\0".encode()
    block[148:156] = b" " * 8
    block[148:156] = f"{sum(block[:512]):06o}\0 ".encode()
    body = zlib.compressobj(wbits=31)
    before = cloud.data_bytes()
    made = cloud.submit("box", config("du -k holes | cut -f1", venv=False))
    answer = cloud.upload(made["upload_url"], body.compress(bytes(block) + b"\0" * 1024) + body.flush())
    assert answer.status_code in (400, 413, 422), f"{answer.status_code} {answer.text}"
    assert cloud.data_bytes() < before + 64 * MIB
    discard(cloud, made["job_id"])


def bomb(size: int) -> bytes:
    """A tar.gz of one file of zeros. The pieces between full flushes are independent, so one is made and repeated."""
    info = tarfile.TarInfo("zeros")
    info.size = size
    pack = zlib.compressobj(9, wbits=-15)
    head = pack.compress(info.tobuf(tarfile.GNU_FORMAT)) + pack.flush(zlib.Z_FULL_FLUSH)
    piece = pack.compress(b"\0" * (16 * MIB)) + pack.flush(zlib.Z_FULL_FLUSH)
    tail = pack.compress(b"\0" * 1024) + pack.flush()
    start = b"\x1f\x8b\x08\0\0\0\0\0\0\x03"
    return start + head + piece * (size // (16 * MIB)) + tail + struct.pack("<II", 0, (size + 1536) & 0xFFFFFFFF)


def refuse_archive(cloud, body: bytes):
    """Checks that the upload is refused with a message, the job cannot start, and nothing of the upload is kept."""
    made = cloud.submit("box", config("true", venv=False))
    answer = cloud.upload(made["upload_url"], body)
    assert answer.status_code in (400, 413, 422), f"{answer.status_code} {answer.text}"
    assert len(answer.json()["message"].split()) >= 3 and str(cloud.data) not in answer.text
    cloud.call("POST", f"/job/start/{made['job_id']}", expect=409)
    assert not {key for key in cloud.object_keys() if key.startswith(made["job_id"])}
    discard(cloud, made["job_id"])
    cloud.ssh("box", "! ls /tmp/planted ~/planted ~/jobs/planted 2>/dev/null")


def discard(cloud, job: str):
    """Deletes a job that was never started."""
    cloud.delete(job)
    eventually(lambda: job not in cloud.rows(), what=f"no row of {job}")


def test_outputs_outside_are_not_collected(cloud):
    """Outputs outside the job's directory are not collected."""
    links = ["ln -s /etc/shadow direct", "ln -s / all", "ln -s ../../../../etc/passwd up", "mkfifo pipe", "ln -s in/side inner"]
    outputs = ["direct", "all/etc/hostname", "up", "pipe", "in", "inner", "all"]
    job = cloud.run("box", *links, "mkdir in", "echo fine > in/side", outputs=outputs, venv=False)
    cloud.wait(job)
    files = cloud.pull(job)
    assert {"in/side"} <= files.keys() <= {"in/side", "inner"}, files
    assert all(cloud.fetch(url) == b"fine\n" for url in files.values())
    for pattern in ("/etc/shadow", "../x", "a/../../x", "~/x"):
        cloud.submit("box", config("true", outputs=[pattern]), files=False, start=True, expect=422)


def test_moving_link_never_leads_outside(cloud):
    """A link that changes its target all the time never leads outside."""
    moving = "(while true; do ln -sfn real d; ln -sfn /etc d; done) &"
    # The link has pointed both ways before the outputs are collected.
    moves = 'for to in real /etc; do until [ "$(readlink d)" = $to ]; do sleep 0.01; done; done; echo ready'
    commands = ["rm -f ~/end; mkdir real; echo fine > real/passwd", moving, moves, "until [ -e ~/end ]; do sleep 0.05; done"]
    job = cloud.run("box", *commands, outputs=["d/passwd", "real/passwd"], venv=False)
    cloud.wait_until_running(job, b"ready")
    try:
        for _ in range(10):
            for url in cloud.pull(job).values():
                answer = cloud.session.get(url, timeout=60)
                assert b"root:" not in answer.content
    finally:
        cloud.ssh("box", "touch end")
    cloud.wait(job)


def test_fork_bomb_is_canceled(cloud):
    """A fork bomb is canceled. It has its own instance, so that a failure costs only that instance."""
    cluster = cloud.create("crowded", kind="worker")
    job = cloud.run("crowded", "echo boom; bomb() { bomb | bomb & }; bomb; sleep 31337", venv=False)
    try:
        cloud.wait_until_running(job, b"boom")
        eventually(lambda: cloud.process_count("crowded") > 1000, what="many processes")
        assert cloud.ssh("box", "echo alive").out == "alive\n", "other instances are not affected"
        eventually(lambda: cloud.ssh("crowded", "echo alive", code=None).out == "alive\n", what="a login meanwhile")
        cloud.cancel(job)
        assert eventually(lambda: cloud.process_count("crowded") < 20, what="few processes")
        assert cloud.text(cloud.run("crowded", "echo well", venv=False)) == "well\n"
    except BaseException:
        cloud.kill_first_process("crowded")
        raise
    cloud.destroy(cluster["id"])


def test_only_guest_has_high_priority(cloud):
    """The guest has the highest priority in its instance, to be able to end a bomb; its children do not."""
    first = "ps -o ni= -p 1; nice; sudo nice; sudo nice -n -5 nice 2>/dev/null"
    assert cloud.ssh("box", first).out.split() == ["-20", "0", "0", "0"]
    assert cloud.text(cloud.run("box", first, venv=False)).split() == ["-20", "0", "0", "0"]


def test_large_log_is_kept_whole(cloud):
    """A log of 200 MiB is kept whole."""
    line = "all work and no play makes jack a dull boy"
    job = cloud.run("box", f"yes '{line}' | head -c 200M", venv=False)
    cloud.wait(job, seconds=300)
    whole = hashlib.sha256((f"{line}\n".encode() * (200 * MIB // (len(line) + 1) + 1))[: 200 * MIB]).hexdigest()
    assert cloud.job(job)["log_bytes"] == 200 * MIB
    assert hashlib.sha256(cloud.log_of(job)).hexdigest() == whole
    cloud.delete(job)


def test_endless_log_is_canceled(cloud):
    """A job with endless output is canceled, and its log stays consistent."""
    job = cloud.run("box", "yes", venv=False)
    eventually(lambda: cloud.job(job)["log_bytes"] > 20 * MIB, seconds=180, what="20 MiB of output")
    assert cloud.call("GET", "/healthz").status_code == 200
    cloud.cancel(job)
    log = cloud.log_of(job)
    assert log.replace(b"y\n", b"") in (b"", b"y") and len(log) == cloud.job(job)["log_bytes"]
    cloud.delete(job)


def test_daemons_end_with_job(cloud):
    """Daemons that a job starts end with the job."""
    twice = "import os\nif os.fork(): os._exit(0)\nos.setsid()\nif os.fork(): os._exit(0)\n"
    daemon = twice + "os.environ.clear()\nos.execve('/bin/sleep', ['sleep', '31337'], {})\n"
    commands = ["setsid nohup sleep 31337 >/dev/null 2>&1 &", "python3 daemon.py", "(trap '' TERM HUP; sleep 31337) & disown", "echo done"]
    job = cloud.run("box", *commands, files={"daemon.py": daemon.encode()}, venv=False)
    assert cloud.text(job).endswith("done\n")
    left = cloud.ssh("box", "pgrep -fx 'sleep 31337'", code=None)
    assert left.code == 1, left


def test_stdin_is_empty(cloud):
    """The standard input of a job is empty."""
    commands = ["cat", "read word || echo nothing", "python3 -c 'import sys; print(repr(sys.stdin.read()))'"]
    assert cloud.text(cloud.run("box", *commands, venv=False)) == "nothing\n''\n"


def test_long_lines_and_control_characters(cloud):
    """Long lines and control characters are logged, and reach listeners in frames of limited size."""
    script = "head -c 3000000 /dev/zero | tr '\\0' x; echo; printf '\\033[31mred\\033[0m\\a\\b\\n'; head -c 100000 /dev/urandom"
    job = cloud.run("box", script, venv=False)
    cloud.wait(job)
    assert len(cloud.log_of(job)) > 3_100_000
    # The client accepts only frames of less than 1 MiB and ends otherwise.
    frames, code = cloud.listen(job)
    assert code == 1000 and frames[-1]["status"] == "success"
    assert printed_text(frames).replace("\n", "").startswith("x" * 3_000_000)


@pytest.mark.parametrize(
    "text",
    [
        config(*["true"] * 10_000),
        config("x" * 200_000),
        config("true", outputs=["x"] * 2000),
        config("true", env={"A B": "c"}),
        config("true", env={"A": "c\0"}),
        config("true\0"),
        config("true", retries=-1),
        config("true", timeout=0),
        config("true", nodes="some"),
        "commands = [\"true\"]\n" + "#" * 300_000,
        "[" * 5000,
        "\ufeff\0",
    ],
    ids=range(12),
)  # fmt: skip
def test_excessive_job_files_are_refused(cloud, text):
    """Job files that exceed the limits are refused, over REST and over the WebSocket."""
    before = cloud.rows()
    answer = cloud.submit("box", text, files=False, start=True, expect=422)
    assert len(answer["message"].split()) >= 3
    with cloud.socket("/job/push") as connection:
        connection.send(json.dumps({"tp_config": text, "system": "Linux", "cluster_id": "box", "teardown_cluster": False}))
        frames = receive_frames(connection)
        assert connection.close_code == 4422 and frames[-1]["status"] == "error" and frames[-1]["message"]
        assert len(connection.close_reason.encode()) <= 123
    assert cloud.rows() <= before


def test_invalid_socket_messages_are_refused(cloud):
    """Invalid messages on the WebSocket end it with an error and a close code."""
    push = {"tp_config": config("true"), "system": "Linux", "cluster_id": "c-000000000000", "teardown_cluster": False}
    with cloud.socket("/job/push") as connection:
        connection.send(json.dumps(push))
        assert receive_frames(connection)[-1]["status"] == "error" and connection.close_code == 4404
    with cloud.socket("/job/push", key="tp-" + "x" * 40) as connection:
        assert receive_frames(connection)[-1]["status"] == "error" and connection.close_code == 4401
    for word in ("no json", "[]", "{}", '{"tp_config": 3}', "{" * 10_000):
        with cloud.socket("/job/push") as connection:
            connection.send(word)
            assert receive_frames(connection)[-1]["status"] == "error" and 4400 <= connection.close_code < 4500
    frames, code = cloud.listen("j-000000000000")
    assert frames[-1]["status"] == "error" and code == 4404


def test_engine_stops_while_patterns_are_matched(tmp_path):
    """SIGTERM ends an engine that compares many long names with as many wildcards as a job file may have."""
    patterns = ["".join("*" + "ab"[number >> at % 8 & 1] for at in range(16)) + "????" for number in range(200)]
    names = b"".join(b"./%d" % number + bytes(os.urandom(1000).hex()[:1000], "ascii") + b"\0" for number in range(20_000))
    listed = base64.b64encode(gzip.compress(names, 1)).decode()
    with Server(tmp_path / "engine") as engine:
        created = engine.call("POST", "/cluster/create", json={"instance_type": "1xCPU", "tp_cluster_name": "box"}).json()
        engine.finish(created["request_id"])
        with connect(engine.url.replace("http", "ws", 1) + "/job/push", proxy=None, max_size=None) as connection:
            connection.send(json.dumps({"TENSORPOOL_KEY": engine.key}))
            push = {"tp_config": config("true", ignore=patterns), "system": "Linux", "cluster_id": "box"}
            connection.send(json.dumps(push))
            next_command(connection)
            before = cpu_seconds(engine.process.pid)
            connection.send(json.dumps({"exit_code": 0, "command_stdout": listed}))
            eventually(lambda: cpu_seconds(engine.process.pid) > before + 3, what="names are being compared")
            # This fails if the watchdog had to end the process.
            engine.stop()


def cpu_seconds(process: int) -> float:
    """How long a process has computed."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.parametrize("moment", ["before the listing", "after the listing", "after the upload"])
def test_vanished_client_leaves_no_job(cloud, tmp_path, moment):
    """A client that vanishes during a push leaves no job and no object."""
    (tmp_path / "large.bin").write_bytes(os.urandom(5 * MIB))
    before, objects = cloud.rows(), cloud.object_keys()
    with cloud.socket("/job/push") as connection:
        push = {"tp_config": config("true"), "system": "Linux", "cluster_id": "box", "teardown_cluster": False}
        connection.send(json.dumps(push))
        command = next_command(connection)
        if moment != "before the listing":
            done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0, done
            answer = {"type": "command_result", "command": command, "exit_code": 0, "command_stdout": done.stdout, "command_stderr": ""}
            connection.send(json.dumps(answer))
            command = next_command(connection)
        if moment == "after the upload":
            done = subprocess.run(command, shell=True, cwd=tmp_path, capture_output=True, text=True)
            assert done.returncode == 0 and cloud.object_keys() - objects, done
        assert cloud.rows() - before, "the job existed"
        # As when the network fails: the connection is reset without a close frame.
        connection.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.socket.close()
    # Rows and objects of earlier jobs may disappear meanwhile.
    eventually(lambda: cloud.rows() <= before and cloud.object_keys() <= objects, what="nothing of the job")
    assert not list(tmp_path.glob("*.gz")) and len(list(tmp_path.iterdir())) == 1


def next_command(connection) -> str:
    """The next command that the engine asks the client to run."""
    while True:
        if command := json.loads(connection.recv(timeout=60)).get("command"):
            return command


def test_aborted_upload_can_be_repeated(cloud):
    """An aborted upload can be repeated."""
    made = cloud.submit("box", config("true", venv=False))
    path = made["upload_url"].split(f":{cloud.port}", 1)[1]
    body = archive({"a": os.urandom(4 * MIB)})
    with socket.create_connection(("127.0.0.1", cloud.port)) as connection:
        head = f"PUT {path} HTTP/1.1\r\nHost: 127.0.0.1:{cloud.port}\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body[: len(body) // 2])
    cloud.call("POST", f"/job/start/{made['job_id']}", expect=409)
    # The upload may be repeated, because it never completed.
    eventually(lambda: cloud.upload(made["upload_url"], body).status_code in (200, 201, 204), what="an upload that is accepted")
    cloud.call("POST", f"/job/start/{made['job_id']}", expect=202)
    cloud.wait(made["job_id"])


def test_deleted_jobs_leave_nothing(cloud):
    """After all jobs are deleted nothing is left of them."""
    for job in cloud.jobs():
        cloud.delete(job["id"])
    cloud.wait_until_nothing_left("box")
