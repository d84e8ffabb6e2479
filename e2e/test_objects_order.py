"""Acknowledged means durable: the system calls, in their order, while an object is written."""

import os
import re
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from objects import own_storage, put, upload_parts
from support import eventually

pytestmark = pytest.mark.skipif(not shutil.which("strace"), reason="this needs strace")
CALLS = "fsync,fdatasync,write,writev,sendto,sendmsg"


@dataclass
class Call:
    """A system call: its name, its arguments, and the lines of the trace in which it began and ended."""

    name: str
    text: str
    began: int
    ended: int


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    """A separate server, which is traced."""
    with own_storage(tmp_path_factory.mktemp("order")) as running:
        running.account.client().create_bucket(Bucket="order")
        yield running


def trace_syscalls(storage, directory: Path, work) -> list[Call]:
    """The system calls of the server while `work` runs."""
    file, said = directory / "trace", directory / "said"
    with open(said, "wb") as output:
        tracer = subprocess.Popen(
            ["strace", "-f", "-y", "-s", "64", "-e", f"trace={CALLS}", "-o", file, "-p", str(storage.server.process.pid)],
            stdin=subprocess.DEVNULL, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        eventually(lambda: "attached" in said.read_text() or tracer.poll() is not None, what="a running strace")
        if tracer.poll() is not None:
            pytest.skip(f"strace is not permitted here: {said.read_text()}")
        work()
    finally:
        if tracer.poll() is None:
            # strace detaches from the server and ends.
            tracer.send_signal(signal.SIGINT)
            tracer.wait(60)
    return parse_trace(file.read_text(errors="replace"))


def parse_trace(text: str) -> list[Call]:
    """The calls of a trace. A call that was interrupted by calls of other threads has two lines."""
    calls, open_ = [], {}
    for number, line in enumerate(text.splitlines()):
        if begun := re.match(r"(\d+) +(\w+)\((.*)", line):
            thread, name, rest = begun.groups()
            call = Call(name, rest, number, number)
            calls.append(call)
            if rest.endswith("<unfinished ...>"):
                # The call has no end until it is found.
                call.ended = len(text)
                open_[thread] = call
        elif (resumed := re.match(r"(\d+) +<\.\.\. (\w+) resumed>", line)) and (call := open_.pop(resumed[1], None)):
            call.ended = number
    return calls


def first_call_after(calls: list[Call], before: Call | None, names: str, what: str) -> Call:
    """The first call with one of these names and this text that began after another one had ended."""
    earliest = before.ended if before else -1
    found = [call for call in calls if call.began > earliest and re.fullmatch(names, call.name) and re.search(what, call.text)]
    assert found, f"no {names} of {what} after {before}:\n" + "\n".join(f"{call.name}({call.text}" for call in calls)
    return found[0]


SYNC = "fsync|fdatasync"
FILE, DIRECTORY = r"/objects/\w\w/[\w-]+>", r"/objects/\w\w>"
DATABASE = r"/tarn\.db-wal>"


def check_sync_order(calls: list[Call], steps: list[str]):
    """Checks that the steps are synced one after the other, and that the response begins only then."""
    last = None
    for step in steps:
        last = first_call_after(calls, last, SYNC, step)
    answer = first_call_after(calls, None, "write|writev|sendto|sendmsg", r"HTTP/1\.1 200")
    assert last.ended < answer.began, f"{answer} came before {last} had ended"


def test_put_syncs_file_directory_row_before_response(storage, tmp_path):
    """A large put syncs the file, its directory and the row before the response."""
    s3 = storage.account.client()
    check_sync_order(trace_syscalls(storage, tmp_path, lambda: put(s3, "order", "large", body=os.urandom(100_000))), [FILE, DIRECTORY, DATABASE])


def test_inline_put_syncs_row_before_response(storage, tmp_path):
    """A small put syncs the row before the response."""
    s3 = storage.account.client()
    check_sync_order(trace_syscalls(storage, tmp_path, lambda: put(s3, "order", "small", body=b"small")), [DATABASE])


def test_part_is_synced_before_response(storage, tmp_path):
    """A part is synced before its response."""
    s3 = storage.account.client()
    upload, _ = upload_parts(s3, "order", "parts", [])

    def work():
        s3.upload_part(Bucket="order", Key="parts", UploadId=upload, PartNumber=1, Body=os.urandom(100_000))

    check_sync_order(trace_syscalls(storage, tmp_path, work), [FILE, DIRECTORY, DATABASE])


def test_copy_syncs_directory_before_row(storage, tmp_path):
    """A copy syncs the directory of its new name before the row."""
    s3 = storage.account.client()
    put(s3, "order", "original", body=os.urandom(100_000))
    work = lambda: s3.copy_object(Bucket="order", Key="copy", CopySource="order/original")  # noqa: E731
    check_sync_order(trace_syscalls(storage, tmp_path, work), [DIRECTORY, DATABASE])
