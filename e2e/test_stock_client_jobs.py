"""The unchanged `tp` 0.0.9 and jobs on real instances: init, push, listen, list, info, pull, cancel, delete, and
teardown."""

import hashlib
import json
import os
import tomllib
from pathlib import Path

import pytest

from jobs import JOB_ID, NO_JOB, Jobs, config
from instances import needs_root

pytestmark = needs_root
# Prints the SHA-256 of every file below, by its name in hexadecimal digits, because names may contain anything.
MANIFEST = """\
import hashlib, json, os
seen = {}
for place, _, names in os.walk(b"."):
    for name in names:
        path = os.path.join(place, name)
        seen[os.path.relpath(path, b".").hex()] = hashlib.sha256(open(path, "rb").read()).hexdigest()
print(json.dumps(seen))
"""
ODD_NAMES = [
    b"plain.txt", b"with space.txt", b"it's.txt", b'a "quote".txt', b"$(touch pwned)", b"`touch pwned`", b"back\\slash",
    "grüße-世界-🦀".encode(), b"two\nlines", b"-rf", b"--help", b"-", b"a;b", b"star*", b"#hash", b"!bang", b" lead", b"trail ",
    b"caf\xe9-latin", b".hidden", b"deep/er/and deeper/file", b"@at", b"tab\there", b"percent%41", b"=C:\\x",
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """An engine with real instances; it replaces the engine with the fake driver for the client's fixture."""
    with Jobs(tmp_path_factory.mktemp("client-jobs")) as running:
        running.create("box", kind="worker")
        yield running


@pytest.fixture
def project(tmp_path) -> Path:
    """The project directory."""
    place = tmp_path / "project"
    place.mkdir()
    return place


@pytest.fixture
def push(tp, project):
    """Pushes the project with a job file of these keys; returns the id of the job."""

    def run(*commands, teardown=False, cluster="box", **keys) -> str:
        (project / "job.tp.toml").write_text(config(*commands, **keys))
        options = ["--teardown"] if teardown else []
        said = tp("job", "push", "job.tp.toml", cluster, *options, where=project, loud=True)
        [job] = set(JOB_ID.findall(said.text))
        assert f"tp job listen {job}" in said.text
        return job

    return run


def write(project: Path, name: bytes | str, content: bytes):
    """Writes a file of the project."""
    path = os.path.join(os.fsencode(project), os.fsencode(name))
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)


def test_init_writes_pushable_file(tp, server, project):
    """`tp job init` writes a file that can be pushed."""
    for name in ("job.tp.toml", "job1.tp.toml"):
        assert name in tp("job", "init", where=project).text
        keys = tomllib.loads((project / name).read_text())
        assert {"commands", "outputs", "ignore"} <= keys.keys()
    said = tp("job", "push", "job.tp.toml", "box", where=project, loud=True)
    server.wait(JOB_ID.search(said.text)[0], None)


def test_failed_job_is_reported(tp, push):
    """A failed job is reported with its exit code."""
    job = push("echo before", "exit 3", "echo after")
    heard = tp("job", "listen", job, refused=True).text
    assert "before" in heard and "after" not in heard and "exit code 3" in heard
    info = tp("job", "info", job).text
    assert "error" in info and "exit code 3" in info
    assert "No changed files" not in tp("job", "pull", job).text, "the engine says that there is nothing to pull"


def test_unusual_file_names_are_uploaded(server, push, project):
    """Files with unusual names, links and modes are uploaded."""
    for number, name in enumerate(ODD_NAMES):
        write(project, name, f"{number}\n".encode() * (number + 1))
    (project / "empty directory").mkdir()
    os.symlink("plain.txt", project / "link")
    (project / "plain.txt").chmod(0o750)
    write(project, "manifest.py", MANIFEST.encode())
    job = push("stat -c %a plain.txt; readlink link", "rm link; python3 manifest.py", venv=False)
    mode, target, manifest = server.text(job).splitlines()
    assert (mode, target) == ("750", "plain.txt")
    sent = {
        os.path.relpath(path, os.fsencode(project)).hex(): hashlib.sha256(open(path, "rb").read()).hexdigest()
        for place, _, names in os.walk(os.fsencode(project))
        for path in (os.path.join(place, name) for name in names)
        if not os.path.islink(path)
    }
    assert json.loads(manifest) == sent
    assert b"pwned" not in os.listdir(os.fsencode(project)), "a name is not a command"


def test_unusual_output_names_are_pulled(tp, server, push, project):
    """Outputs with unusual names are pulled."""
    names = [name.decode() for name in ODD_NAMES if b"\xe9" not in name]
    for name in names:
        write(project, f"out/{name}", name.encode() * 3)
    job = push("cp -r out kept", outputs=["kept"], venv=False)
    server.wait(job)
    there = project.parent / "elsewhere"
    there.mkdir()
    tp("job", "pull", job, where=there, loud=True)
    for name in names:
        assert (there / "kept" / name).read_bytes() == name.encode() * 3, name


def test_ignored_files_are_not_uploaded(server, push, project):
    """Ignored files are not uploaded."""
    for name in ("keep.py", "data/raw/huge.bin", "data/small.csv", "logs/a.log", "logs/important.log", "sub/b.log", "node_modules/x/y.js"):
        write(project, name, b"x")
    ignore = ["data/raw/", "*.log", "!important.log", "/node_modules", "job.tp.toml"]
    job = push("find . -type f | sort", ignore=ignore, venv=False)
    assert server.text(job).split() == ["./data/small.csv", "./keep.py", "./logs/important.log"]


def test_push_without_files(tp, server, project, tmp_path):
    """A push from an empty directory uploads nothing."""
    (tmp_path / "else.tp.toml").write_text(config("ls -A | wc -l", venv=False))
    said = tp("job", "push", "../else.tp.toml", "box", where=project, loud=True)
    assert server.text(JOB_ID.search(said.text)[0]) == "0\n"


def test_cancel_ends_job(tp, server, push):
    """Waiting and running jobs are canceled; the process gets SIGTERM first."""
    job = push("trap 'echo asked' TERM; echo here; while true; do sleep 0.1; done", venv=False)
    server.wait_until_running(job, b"here")
    behind = push("echo never", venv=False)
    assert "pending" in tp("job", "info", behind).text
    assert "canceled" in tp("job", "cancel", behind, "--wait", "--no-input").text
    tp("job", "delete", job, refused=True)
    assert "confirmation" in tp("job", "cancel", job, refused=True).text, "it needs a confirmation, and there is no terminal"
    assert "canceled" in tp("job", "cancel", job, "--wait", "--no-input").text
    assert b"asked\n" in server.log_of(job), "it was asked before it was killed"
    tp("job", "cancel", job, "--no-input", refused=True)
    assert "canceled" in tp("job", "listen", job, refused=True).text


def test_teardown_destroys_cluster(tp, server, push, project):
    """`--teardown` destroys the cluster after the job and keeps log and outputs."""
    cluster = server.create("once", kind="worker")["id"]
    job = push("echo last words > words.txt; cat words.txt; exit 4", outputs=["*.txt"], cluster=cluster, teardown=True, venv=False)
    assert "exit code 4" in tp("job", "listen", job, refused=True).text
    server.wait_until_destroyed(cluster)
    assert "last words" in tp("job", "listen", job, refused=True).text
    there = project.parent / "elsewhere"
    there.mkdir()
    tp("job", "pull", job, where=there, loud=True)
    assert (there / "words.txt").read_text() == "last words\n"


def test_teardown_of_protected_cluster_is_refused(tp, server, project):
    """`--teardown` of a protected cluster is refused."""
    cluster = server.create("safe", deletion_protection=True)["id"]
    (project / "job.tp.toml").write_text(config("true"))
    said = tp("job", "push", "job.tp.toml", cluster, "--teardown", where=project, refused=True)
    assert "protect" in said.text
    assert server.info(cluster)["status"] == "RUNNING"
    server.finish(server.call("PATCH", f"/cluster/edit/{cluster}", json={"deletion_protection": False}, expect=202).json()["request_id"])


@pytest.mark.parametrize(
    "text, words",
    [
        ("commands = [", ["line 1"]),
        ("outputs = []", ["commands"]),
        ("commands = []", ["commands"]),
        ('commands = ["true"]\ncomands = ["x"]', ["line 2", "comands", "commands"]),
        ('commands = "true"', ["line 1", "list"]),
        ('commands = ["true"]\ninstance_type = "1xH100"', ["line 2", "instance_type"]),
        ('commands = ["true"]\noutputs = ["../secret"]', ["line 2", ".."]),
        ('commands = ["true"]\ntimeout = "soon"', ["line 2", "timeout"]),
        ("", ["commands"]),
    ],
)
def test_invalid_job_file_is_refused(tp, server, project, text, words):
    """An invalid job file is refused with the line and the key."""
    before = server.jobs()
    (project / "job.tp.toml").write_text(text)
    said = tp("job", "push", "job.tp.toml", "box", where=project, refused=True).text
    for word in words:
        assert word in said, said
    assert server.jobs() == before


def test_missing_or_foreign_jobs_are_refused(tp, server, user, project):
    """Missing jobs and clusters, and those of another tenant, are refused."""
    for job in (NO_JOB, "nonsense"):
        for command in (["info", job], ["listen", job], ["pull", job], ["cancel", job, "--no-input"], ["delete", job]):
            tp("job", *command, refused=True)
    (project / "job.tp.toml").write_text(config("true"))
    for cluster in ("c-000000000000", "nobodys", "; touch pwned"):
        tp("job", "push", "job.tp.toml", cluster, where=project, refused=True)
    stranger = user("stranger@example.org", "strangers")
    mine = server.run("box", "true", venv=False)
    tp("job", "push", "job.tp.toml", server.info("box")["id"], where=project, key=stranger, refused=True)
    for command in (["info", mine], ["listen", mine], ["pull", mine], ["cancel", mine, "--no-input"], ["delete", mine]):
        tp("job", *command, key=stranger, refused=True)
    assert mine not in tp("job", "list", "--org", key=stranger).text
    tp("job", "push", "job.tp.toml", "box", where=project, with_key=False, refused=True)
    gone = server.create("gone")["id"]
    server.destroy(gone)
    tp("job", "push", "job.tp.toml", gone, where=project, refused=True)
