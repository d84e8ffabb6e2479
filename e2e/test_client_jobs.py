"""The `tarn` client and jobs on real instances: init, push, logs, outputs, cancel, and `job run`."""

import os
import tomllib

import pytest

from client import interrupt
from jobs import JOB_ID, Jobs, config
from instances import needs_root
from support import eventually

pytestmark = needs_root


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One engine with one cluster for the whole file."""
    with Jobs(tmp_path_factory.mktemp("client-jobs")) as running:
        running.create("box", kind="worker", jobs_parallel=4)
        yield running


@pytest.fixture
def project(tarn):
    """The project directory, in which the client runs."""
    place = tarn.home / "project"
    place.mkdir()
    return place


@pytest.fixture
def job(tarn, project):
    """Pushes a job of these commands and returns its id."""

    def push(*commands, **keys) -> str:
        (project / "job.tp.toml").write_text(config(*commands, **keys))
        return tarn.json("job push job.tp.toml box", where=project)["job_id"]

    return push


def files_below(place) -> set[str]:
    """The files below a directory."""
    return {str(path.relative_to(place)) for path in place.rglob("*") if path.is_file()}


def test_init_writes_template(tarn, project):
    """`job init` writes a template and overwrites no file."""
    for name in ("job.tp.toml", "job1.tp.toml"):
        assert name in tarn("job init", where=project).text
    assert "train.tp.toml" in tarn("job init train", where=project).text
    assert "other.tp.toml" in tarn("job init other.tp.toml", where=project).text
    for path in project.iterdir():
        assert {"commands", "outputs", "ignore"} <= tomllib.loads(path.read_text()).keys()
    assert "train.tp.toml" in tarn("job init train", where=project, code=1).errors, "nothing is overwritten"
    before = files_below(project)
    assert tarn.json("job init", where=project)["empty_tp_config"] == (project / "job.tp.toml").read_text()
    assert files_below(project) == before


def test_job_push_listen_pull_delete(tarn, server, project):
    """A job is pushed, followed, listed, pulled and deleted."""
    (project / "data").mkdir()
    (project / "data/weights").write_bytes(weights := os.urandom(300_000))
    (project / "data/secret").write_text("not uploaded")
    (project / "job.tp.toml").write_text(config(
        "echo first; echo second >&2", "ls data", "mkdir -p out/deep && cp data/weights out/deep/copy && echo fine > out/note",
        outputs=["out/"], ignore=["secret"], name="first-try",
    ))  # fmt: skip
    said = tarn("job push job.tp.toml box --listen", where=project).text
    [job] = set(JOB_ID.findall(said))
    assert said.endswith("first\nsecond\nweights\n"), "the output of the job is the output of the client"
    log = server.log_of(job).decode()
    for line in (f"job logs {job}", f"job logs -f {job}", f"job listen {job}"):
        assert tarn(line).text == log
    for told in (tarn("job list").text, tarn("job ls --org").text, tarn(f"job info {job}").text):
        assert job in told and "first-try" in told and "completed" in told
    assert tarn("job info first-try").text == tarn(f"job info {job}").text, "a name works as well"
    assert tarn("job logs first-try").text == log

    assert tarn(f"job pull {job} --dry-run").text.splitlines() == ["out/deep/copy", "out/note"]
    assert tarn.json(f"job pull {job} --dry-run")["download_map"] == {"out/deep/copy": None, "out/note": None}
    assert "1 file" in tarn(f"job pull {job} --dir some --files out/note").text
    assert files_below(tarn.home / "some") == {"out/note"}
    assert "2 files" in tarn(f"job pull {job} --dir", tarn.home / "all").text
    assert (tarn.home / "all/out/deep/copy").read_bytes() == weights
    (tarn.home / "all/out/note").write_text("mine")
    assert "--force" in tarn(f"job pull {job}", where=tarn.home / "all").text
    assert (tarn.home / "all/out/note").read_text() == "mine"
    assert set(tarn.json(f"job pull {job} --force", where=tarn.home / "all")["download_map"]) == {"out/deep/copy", "out/note"}
    assert (tarn.home / "all/out/note").read_text() == "fine\n"
    tarn(f"job pull {job} --files out/absent", code=3)

    assert "ended" in tarn(f"job cancel {job} --no-input", code=4).errors
    tarn(f"job delete {job}")
    for line in (f"job info {job}", f"job listen {job}", f"job logs {job}", f"job pull {job}", f"job delete {job}"):
        tarn(line, code=3)


def test_job_commands_print_json(tarn, server, project, job):
    """The commands print JSON, and the job's output goes to the error stream."""
    first = job("echo one; echo two >&2")
    assert server.text(first) == "one\ntwo\n"
    said = tarn(f"--json job listen {first}")
    assert said.errors == "one\ntwo\n", "the job's output goes to the error stream"
    for body in (tarn.json(f"job listen {first}"), tarn.json(f"job logs -f {first}"), tarn.json(f"job logs {first}")):
        assert body == tarn.json(f"job info {first}") and body["job_info"]["status"] == "completed"
    assert first in [each["id"] for each in tarn.json("job list")["jobs"]]
    assert tarn.json("job push job.tp.toml box --listen", where=project)["job_info"]["exit_code"] == 0
    assert tarn.json(f"job delete {first}")["message"]
    (project / "job.tp.toml").write_text(config("echo before", "exit 3"))
    failed = tarn.json("job push job.tp.toml box --listen", where=project, code=1)["job_info"]
    assert (failed["status"], failed["exit_code"]) == ("error", 3)
    assert tarn.json(f"job listen {failed['id']}", code=1)["job_info"] == failed
    assert tarn.json(f"job logs --follow {failed['id']}", code=1)["job_info"] == failed
    assert tarn.json(f"job logs {failed['id']}")["job_info"] == failed, "printing a log succeeds whatever the job did"


def test_failed_job_sets_exit_code(tarn, project, job):
    """A failed job is reported with its exit code, and its log stays readable."""
    failed = job("echo before", "exit 3", "echo after")
    said = tarn(f"job listen {failed}", code=1)
    assert said.text == "before\n" and "exit code 3" in said.errors and said.errors.count("\n") == 1
    assert "3" in next(row for row in tarn("job list").text.splitlines() if failed in row).split()
    assert tarn(f"job logs {failed}").text == "before\n"
    assert tarn(f"job pull {failed}").text, "the engine says that there is nothing to pull"
    tarn("job push job.tp.toml nobody", where=project, code=3)
    (project / "job.tp.toml").write_text("commands = []")
    assert "commands" in tarn("job push job.tp.toml box", where=project, code=2).errors


ODD_NAMES = [
    "with space", "-dash", "two\nlines", "grüße-世界", "per%41cent", "q?x=1&y#z", "deep/er/'quote'", ".hidden", "a\\b", "a,b",
]  # fmt: skip


def test_unusual_file_names_round_trip(tarn, server, project, job):
    """Files with unusual names are uploaded and pulled under the same names."""
    for name in ODD_NAMES:
        (project / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (project / "in" / name).write_text(name)
    (project / "in/link").symlink_to("with space")
    made = job("test -L in/link && rm in/link", "mv in out", outputs=["out/"])
    server.wait(made)
    tarn(f"job pull {made} --dir back")
    assert files_below(tarn.home / "back/out") == set(ODD_NAMES)
    for number, name in enumerate(ODD_NAMES):
        tarn(f"job pull {made} --dir {number} --files", f"out/{name}")
        assert (tarn.home / str(number) / "out" / name).read_text() == name


def test_ctrl_c_leaves_job_running(tarn, server, project, job):
    """Ctrl-C ends the listening; the job continues."""
    running = job("rm -f /tmp/go; echo begun", "while [ ! -e /tmp/go ]; do sleep 0.1; done", "echo done")
    server.wait_until_running(running, b"begun")
    for line in (f"job listen {running}", f"job logs -f {running}"):
        with tarn.running(line) as client:
            assert client.stdout.readline() == "begun\n"
            said = interrupt(client)
        assert said.code == 130 and f"tarn job listen {running}" in said.errors
    assert tarn(f"job logs {running}").text == "begun\n"
    assert server.job(running)["status"] == "running"
    with tarn.terminal(f"job listen {running}") as terminal:
        terminal.read_until("begun")
        server.ssh("box", "touch /tmp/go")
        assert "done" in terminal.wait_for_end(0)


def test_cancel_ends_job(tarn, server, job):
    """A job is canceled after a confirmation, or with `--no-input`."""
    first, second = job("sleep 1000"), job("sleep 1000")
    server.wait_until_running(first)
    assert "--no-input" in tarn(f"job cancel {first}", code=2).errors
    assert "canceled" in tarn(f"job cancel {first} --no-input --wait").text
    tarn(f"job listen {first}", code=1)
    assert tarn.json(f"job cancel {second} --no-input")["status"] in ("canceling", "canceled")
    assert server.wait(second, None)["status"] == "canceled"
    assert tarn.json(f"job cancel {second} --no-input", code=4)["code"]
    third = job("sleep 1000")
    with tarn.terminal(f"job cancel {third} --wait") as terminal:
        terminal.read_until("[y/N]")
        terminal.type("y\n")
        terminal.wait_for_end(0)
    fourth = job("sleep 1000")
    assert tarn.json(f"job cancel {fourth} --no-input --wait")["job_info"]["status"] == "canceled"


def other_clusters(server) -> list[str]:
    """All clusters except the one of this file."""
    return [each["id"] for each in server.call("GET", "/cluster/list", expect=200).json()["clusters"] if each["name"] != "box"]


def wait_for_no_other_cluster(server):
    """Waits until only the cluster of this file is left."""
    eventually(lambda: not other_clusters(server), what="the end of the other clusters")


def test_job_run_creates_and_destroys_cluster(tarn, server, project):
    """`job run` creates a cluster, runs the job, pulls the outputs and destroys the cluster."""
    (project / "input").write_text("from here\n")
    command = "echo hello; mkdir out; echo kept > out/file; ls"
    said = tarn("job run --on worker --timeout 1m --output", "out/*", command, loud=True)
    assert said.text == "hello\nout\n" and (tarn.home / "out/file").read_text() == "kept\n"
    assert "input" not in said.text, "nothing is uploaded unless it is requested"
    said = tarn("job run", "cat input; hostname", "--on", "worker", "--dir", "project", "-n", 2, loud=True)
    assert said.text.count("from here") == 2
    wait_for_no_other_cluster(server)
    tarn("job run --on worker --keep true", loud=True)
    [kept] = other_clusters(server)
    server.destroy(kept)
    body = tarn.json("job run --on worker --container host", "echo hello")
    assert body["job_info"]["status"] == "completed"
    wait_for_no_other_cluster(server)


def test_failed_job_run_pulls_outputs(tarn, server):
    """A `job run` that fails still pulls the outputs and destroys the cluster."""
    said = tarn("job run --on worker --output", "*.txt", "echo kept > a.txt; echo before; exit 3", code=1)
    assert said.text == "before\n" and "exit code 3" in said.errors.splitlines()[-1]
    assert (tarn.home / "a.txt").read_text() == "kept\n", "outputs are kept in any case"
    assert "--force" in tarn("job run --on worker --output", "*.txt", "echo new > a.txt", loud=True).errors
    assert (tarn.home / "a.txt").read_text() == "kept\n", "existing files are kept"
    tarn("job run --force --on worker --output", "*.txt", "echo new > a.txt", loud=True)
    assert (tarn.home / "a.txt").read_text() == "new\n"
    assert tarn.json("job run --on worker", "exit 4", code=1)["job_info"]["exit_code"] == 4
    assert "worker" in tarn("job run true --on 9xUNICORN", code=2).errors
    tarn("job run true --on worker --timeout nonsense", code=2)
    assert "leave out https://" in tarn("job run true --on worker --container https://example.org/image", code=2).errors
    tarn("job run true --on worker --dir absent", code=2)
    assert "stopped after its timeout" in tarn("job run --on worker --timeout 1s", "sleep 1000", code=1).errors
    wait_for_no_other_cluster(server)


def test_ctrl_c_during_job_run_destroys_cluster(tarn, server):
    """Ctrl-C during `job run` destroys the cluster."""
    with tarn.running("job run --on worker", "echo begun; sleep 1000") as client:
        assert client.stdout.readline() == "begun\n"
        said = interrupt(client)
    assert said.code == 130 and "destroyed" in said.errors.splitlines()[-1]
    wait_for_no_other_cluster(server)


def test_push_with_teardown_destroys_cluster(tarn, server, project):
    """`job push --teardown` destroys the cluster after the job."""
    server.create("brief", kind="worker")
    (project / "job.tp.toml").write_text(config("echo last words"))
    said = tarn("job push job.tp.toml brief --teardown --listen", where=project)
    assert said.text.endswith("last words\n")
    wait_for_no_other_cluster(server)
