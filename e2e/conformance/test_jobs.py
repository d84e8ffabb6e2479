"""The stock client's jobs: push, listen, info, pull, cancel, delete."""

import os
import tomllib
from pathlib import Path

import pytest

from jobs import JOB_ID, config
from support import eventually

from .engine import TIMEOUT_SECONDS

TRAIN = """\
import sys
print("step", 1, flush=True)
print("step", 2, file=sys.stderr)
open("model_1.pth", "wb").write(b"x" * 70000)
"""


@pytest.fixture
def project(tmp_path) -> Path:
    """The project directory."""
    place = tmp_path / "project"
    place.mkdir()
    return place


@pytest.fixture
def push(tp, engine, access, cluster, project):
    """Pushes the project with a job file of these keys; returns the id of the job."""
    engine.skip_unless_offered("GET", "/job/init")

    def run(*commands, **keys) -> str:
        (project / "job.tp.toml").write_text(config(*commands, **keys))
        said = tp("job", "push", "job.tp.toml", cluster["id"], where=project, loud=True)
        [job] = set(JOB_ID.findall(said.text))
        engine.jobs.add(job)
        return job

    return run


def test_init_writes_template(tp, engine, project):
    """`tp job init` writes a template."""
    engine.skip_unless_offered("GET", "/job/init")
    for name in ("job.tp.toml", "job1.tp.toml"):
        assert name in tp("job", "init", where=project).text
        assert {"commands", "outputs", "ignore"} <= tomllib.loads((project / name).read_text()).keys()


def test_job_push_listen_pull_delete(tp, push, project):
    """A job is pushed, followed, listed, pulled and deleted."""
    (project / "train.py").write_text(TRAIN)
    (project / "data").mkdir()
    (project / "data/weights.bin").write_bytes(weights := os.urandom(300_000))
    job = push(
        "python train.py", "mkdir -p out/deep && cp data/weights.bin out/deep/copy && echo fine > out/note.txt",
        outputs=["model_*.pth", "out/"],
    )  # fmt: skip
    heard = tp("job", "listen", job).text
    assert "step 1\nstep 2\n" in heard and "completed" in heard.splitlines()[-1]
    assert tp("job", "listen", job).text == heard, "a late listener gets the same"
    for said in (tp("job", "list").text, tp("job", "info", job).text):
        assert job in said and "completed" in said

    there = project.parent / "elsewhere"
    there.mkdir()
    assert "pulled" in tp("job", "pull", job, where=there, loud=True).text
    assert {str(path.relative_to(there)) for path in there.rglob("*") if path.is_file()} == {
        "model_1.pth", "out/deep/copy", "out/note.txt",
    }  # fmt: skip
    assert (there / "out/deep/copy").read_bytes() == weights
    (there / "out/note.txt").write_text("mine")
    assert "Skipping out/note.txt" in tp("job", "pull", job, where=there, loud=True).text
    assert (there / "out/note.txt").read_text() == "mine"
    assert "Overwriting out/note.txt" in tp("job", "pull", job, "--force", where=there, loud=True).text
    assert (there / "out/note.txt").read_text() == "fine\n"

    tp("job", "delete", job)
    assert job not in tp("job", "list").text
    for command in (["info", job], ["listen", job], ["pull", job], ["delete", job]):
        tp("job", *command, refused=True)


def test_failed_job_is_reported(tp, engine, push):
    """A failed job is reported with its exit code."""
    job = push("echo before", "exit 3", "echo after")
    heard = tp("job", "listen", job, refused=True).text
    assert "before" in heard and "after" not in heard
    seen = engine.call("GET", f"/job/info/{job}", expect=200).json()["job_info"]
    assert (seen["status"], seen["exit_code"]) == ("error", 3)


def test_cancel_ends_job(tp, engine, push):
    """A running job is canceled."""
    job = push("sleep 3600")
    status = lambda: engine.call("GET", f"/job/info/{job}", expect=200).json()["job_info"]["status"]  # noqa: E731
    eventually(lambda: status() == "running", seconds=TIMEOUT_SECONDS, what=f"{job} running")
    tp("job", "delete", job, refused=True)
    tp("job", "cancel", job, "--wait", "--no-input")
    assert status() == "canceled"
    tp("job", "cancel", job, "--no-input", refused=True)


def test_missing_jobs_are_refused(tp, engine, project):
    """Missing jobs and clusters are refused."""
    engine.skip_unless_offered("GET", "/job/init")
    for command in (["info"], ["listen"], ["pull"], ["cancel", "--no-input"], ["delete"]):
        tp("job", *command, "j-000000000000", refused=True)
    (project / "job.tp.toml").write_text(config("true"))
    tp("job", "push", "job.tp.toml", "c-000000000000", where=project, refused=True)
