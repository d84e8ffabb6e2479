"""Files to and from engines that lie, refuse and break, in directories with unusual files."""

import gzip
import io
import os
import signal
import socket
import tarfile
import threading

import pytest

from stub_engine import HOSTILE, SECONDS, case_id, error_line, finish
from stub_engine import engine, laptop, other_server, unprivileged_laptop  # noqa: F401
from support import eventually

CONFIG = 'commands = ["true"]\n'


def files_below(directory) -> dict[str, bytes]:
    """All files below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def offer(engine, other_server):
    """Gives a job these outputs, on another server."""

    def set_outputs(*paths, url=None):
        where = {path: url or f"{other_server.url}/{number}" for number, path in enumerate(paths)}
        engine.set_response("/job/pull/j-000000000001", {"download_map": where, "message": "there they are"})

    other_server.set_response("*", b"content")
    return set_outputs


AWAY = ["../x", "/x", "a/../../x", "..", ".", "", "/", "./../x", "a/b/../../../x", "~/../x", "a\0b", "//x", "../work/x"]


@pytest.mark.parametrize("path", AWAY, ids=case_id)
def test_outputs_stay_below_directory(laptop, offer, tmp_path, path):
    """A pull writes nothing outside the directory, whatever the paths of the outputs are."""
    before = files_below(tmp_path)
    offer(path if path != "/x" else f"{tmp_path}/x")
    laptop.fails(1, "job", "pull", "j-000000000001")
    laptop.fails(1, "job", "pull", "j-000000000001", "--force")
    assert files_below(tmp_path) == before, "nothing is written anywhere"


def test_pull_follows_no_links(laptop, offer, tmp_path):
    """A pull does not write through a symbolic link that the user has in the directory."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("mine")
    (laptop.work / "link").symlink_to(outside)
    (laptop.work / "file").symlink_to(outside / "kept")
    (laptop.work / "dangling").symlink_to(outside / "new")
    for path in ("link/x", "link/deep/x", "link/kept", "dangling", "file"):
        offer(path)
        for force in ([], ["--force"]):
            laptop.run("job", "pull", "j-000000000001", *force)
            assert files_below(outside) == {"kept": b"mine"}, path


def test_output_names_cannot_control_terminal(laptop, offer):
    """Outputs with hostile names are pulled and shown without control characters."""
    offer(f"a{HOSTILE}b".replace("\0", ""), "two\nlines")
    laptop.works("job", "pull", "j-000000000001", "--dry-run")
    laptop.works("job", "pull", "j-000000000001")
    assert len(files_below(laptop.work)) == 2
    (laptop.work / "two\nlines").unlink()
    (laptop.work / "two\nlines").mkdir()
    laptop.fails(1, "job", "pull", "j-000000000001", "--force")


NO_ADDRESSES = ["file:///etc/hostname", "ftp://127.0.0.1/x", "//x", "x", "", "data:,x", "http://[::1", HOSTILE]


@pytest.mark.parametrize("url", NO_ADDRESSES, ids=case_id)
def test_invalid_transfer_urls_are_refused(laptop, engine, offer, url):
    """Download and upload URLs that are not HTTP are refused."""
    offer("x", url=url or " ")
    laptop.fails(1, "job", "pull", "j-000000000001")
    (laptop.work / "job.tp.toml").write_text(CONFIG)
    engine.set_response("/job/create", {"job_id": "j-000000000001", "upload_url": url, "message": "made"}, status=201)
    laptop.fails(1, "job", "push", "job.tp.toml", "box")
    assert set(files_below(laptop.work)) == {"job.tp.toml"}
    assert "/job/start/j-000000000001" not in engine.paths("POST")


def test_signed_urls_get_no_key(laptop, engine, offer, other_server):
    """Signed URLs get no API key, not even those of the engine: the signature is the authorization."""
    engine.set_response("/signed", b"content")
    offer("mine", url=f"{engine.url}/signed")
    laptop.works("job", "pull", "j-000000000001")
    assert "authorization" not in engine.calls[-1].headers and engine.calls[-1].path == "/signed"
    assert "authorization" in engine.calls[0].headers
    offer("theirs")
    laptop.works("job", "pull", "j-000000000001")
    assert len(other_server.calls) == 1 and set(files_below(laptop.work)) == {"mine", "theirs"}


def test_refused_download_hides_signature(laptop, offer, other_server):
    """The error is about the files, not about the engine's address, and does not show the signature."""
    offer("x", "y", url=f"{other_server.url}/x?signature=do-not-show")
    for status, kind in ((403, "application/xml"), (404, "text/html"), (500, "text/plain"), (302, "text/plain")):
        page = "<Error><Code>AccessDenied</Code></Error>"
        other_server.set_response("*", page, status=status, kind=kind, Location="http://127.0.0.1:1/")
        line = laptop.fails(1, "job", "pull", "j-000000000001")
        assert str(status) in line and "do-not-show" not in line, line
        assert "not from an engine" not in line and laptop.variables["TENSORPOOL_ENGINE"] not in line, line
        assert not list(laptop.work.iterdir())


@pytest.mark.parametrize("chunked", [False, True])
def test_broken_download_leaves_no_partial_file(laptop, offer, other_server, chunked):
    """A download that breaks off leaves the old file or none."""
    def half(connection):
        length = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": 100_000}
        connection.send_head(200, length)
        connection.wfile.write((b"%x\r\n" % 60_000 if chunked else b"") + b"x" * 50_000)

    offer("x")
    other_server.set_handler("*", half)
    for before in ({}, {"x": b"old"}):
        for name, content in before.items():
            (laptop.work / name).write_bytes(content)
        line = laptop.fails(1, "job", "pull", "j-000000000001", "--force")
        assert files_below(laptop.work) == before, "either the old file or the new one"
        assert laptop.variables["TENSORPOOL_ENGINE"] not in line, f"the error blames the engine: {line}"


def test_interrupted_download_leaves_no_partial_file(laptop, offer, other_server):
    """A download that the user interrupts leaves no partial file."""
    def slow(connection):
        connection.send_head(200, {"Content-Length": 100_000})
        connection.wfile.write(b"x" * 50_000)
        other_server.stopped.wait(SECONDS)

    offer("deep/x")
    other_server.set_handler("*", slow)
    process = laptop.start("job", "pull", "j-000000000001")
    eventually(lambda: files_below(laptop.work), what="a partial file")
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.code == 130 and "pull again" in said.errors, said
    assert not files_below(laptop.work)


@pytest.fixture
def target(laptop, engine, other_server):
    """Accepts jobs whose files are uploaded to another server."""
    (laptop.work / "job.tp.toml").write_text(CONFIG)
    url = f"{other_server.url}/up?signature=do-not-show"
    engine.set_response("/job/create", {"job_id": "j-000000000001", "upload_url": url, "message": "made"}, status=201)
    started = {"job_id": "j-000000000001", "status": "pending", "message": "started"}
    engine.set_response("/job/start/j-000000000001", started, status=202)
    engine.set_response("/job/delete/j-000000000001", {"job_id": "j-000000000001", "message": "deleted"})
    other_server.set_response("*", {"job_id": "j-000000000001", "bytes": 1, "message": "taken"})
    return other_server


@pytest.fixture
def names(laptop, target):
    """The members of the last uploaded archive, by name."""

    def read() -> dict[bytes, tarfile.TarInfo]:
        archive = tarfile.open(fileobj=io.BytesIO(gzip.decompress(target.calls[-1].body)), errors="surrogateescape")
        return {os.fsencode(entry.name): entry for entry in archive.getmembers()}

    return read


def check_no_job(engine):
    """Checks that the draft was deleted and not started."""
    assert engine.paths("DELETE") == ["/job/delete/j-000000000001"]
    assert "/job/start/j-000000000001" not in engine.paths("POST")


def push(laptop, code=None, **options):
    arguments = ("job", "push", "job.tp.toml", "box")
    return laptop.works(*arguments, **options) if code is None else laptop.fails(code, *arguments, **options)


def test_push_skips_special_files(laptop, names):
    """A push skips pipes and sockets, keeps links as links, and takes any file name."""
    os.mkfifo(laptop.work / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(laptop.work / "socket"))
    odd = (b"caf\xe9", b"two\nlines", b"-rf", HOSTILE.encode(), b"n" * 255)
    for name in odd:
        with open(os.path.join(os.fsencode(laptop.work), name), "wb") as file:
            file.write(b"content")
    (laptop.work / "loop").symlink_to("loop")
    (laptop.work / "up").symlink_to("/etc")
    assert "started" in push(laptop)
    assert set(names()) == {*odd, b"loop", b"up", b"job.tp.toml"}
    assert names()[b"up"].issym(), "the target of a link is not uploaded"


def test_push_takes_ten_thousand_files(laptop, names):
    """A push takes ten thousand files."""
    for number in range(10_000):
        directory = laptop.work / f"d{number % 10}"
        directory.mkdir(exist_ok=True)
        (directory / f"{number}").write_bytes(b"")
    push(laptop)
    assert len(names()) == 10_011


def test_push_survives_changing_files(laptop, target, names):
    """The archive stays valid while files grow and shrink during the push."""
    over = threading.Event()
    grows, shrinks = laptop.work / "grows", laptop.work / "shrinks"
    grows.write_bytes(os.urandom(3_000_000))
    shrinks.write_bytes(os.urandom(3_000_000))

    def change():
        with open(grows, "ab") as file:
            for size in range(2_900_000, 0, -100_000):
                if over.is_set():
                    return
                file.write(os.urandom(100_000))
                file.flush()
                os.truncate(shrinks, size)

    def read_while_changing(connection):
        call = target.calls[-1]
        changing = threading.Thread(target=change)
        changing.start()
        call.body = connection.read_body()
        over.set()
        changing.join()
        connection.respond({"message": "taken"})

    target.set_handler("*", read_while_changing)
    push(laptop)
    assert {b"grows", b"shrinks"} <= set(names())


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_unreadable_file_is_named(unprivileged_laptop, engine, target, kind):
    """The error names the file that cannot be read and does not blame the engine."""
    (unprivileged_laptop.work / "job.tp.toml").write_text(CONFIG)
    secret = unprivileged_laptop.work / "secret"
    if kind == "file":
        secret.write_text("x")
    else:
        secret.mkdir()
    secret.chmod(0)
    line = push(unprivileged_laptop, 1)
    assert "secret" in line and "ermission denied" in line, line
    assert "cannot reach" not in line and "TENSORPOOL_ENGINE" not in line, line
    if "/job/create" in engine.paths("POST"):
        check_no_job(engine)


def test_interrupted_upload_deletes_job(laptop, engine, target):
    """An upload that the user interrupts deletes the draft of the job."""
    target.set_handler("*", lambda connection: target.stopped.wait(SECONDS))
    process = laptop.start("job", "push", "job.tp.toml", "box")
    eventually(lambda: target.calls, what="the upload")
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert not said.text and "interrupted" in error_line(said, 130)
    check_no_job(engine)


@pytest.mark.parametrize("status", [403, 413, 500])
@pytest.mark.parametrize("hangs_up", [True, False])
def test_refusal_during_upload_is_shown(laptop, engine, target, status, hangs_up):
    """A refusal during the upload is shown, although not everything was sent."""
    (laptop.work / "large").write_bytes(os.urandom(20_000_000))

    def refuse(connection):
        connection.rfile.read(100_000)
        connection.respond({"message": "too many moons"}, status)
        connection.wfile.flush()
        if not hangs_up:
            # Some servers read on for a while, so that the client can receive the response.
            connection.connection.settimeout(SECONDS)
            try:
                while connection.connection.recv(1 << 20):
                    pass
            except OSError:
                pass

    target.set_handler("*", refuse)
    line = push(laptop, 1)
    assert "do-not-show" not in line
    if not hangs_up:
        assert "too many moons" in line, line
    assert "check that it is running" not in line, f"the engine is running: {line}"
    check_no_job(engine)


def test_broken_upload_deletes_job(laptop, engine, target):
    """A broken upload is not blamed on the engine and deletes the draft."""
    (laptop.work / "large").write_bytes(os.urandom(5_000_000))
    target.set_handler("*", lambda connection: connection.rfile.read(100_000))
    line = push(laptop, 1)
    assert engine.url not in line, f"the error blames the engine: {line}"
    check_no_job(engine)


def test_web_page_after_upload_is_failure(laptop, engine, target):
    """A web page as the response to an upload is a failure: a proxy has taken the files."""
    target.set_response("*", "<html>Welcome</html>", kind="text/html")
    push(laptop, 1)
    check_no_job(engine)


def test_refused_start_deletes_job(laptop, engine, target):
    """A refused start deletes the draft of the job."""
    engine.set_response("/job/start/j-000000000001", {"message": "the cluster is gone"}, status=409)
    assert "the cluster is gone" in push(laptop, 4)
    assert engine.paths("DELETE") == ["/job/delete/j-000000000001"], "a job that did not start is deleted"


def test_unanswered_start_names_job(laptop, engine, target):
    """When the start gets no response, the error names the job, because it may run."""
    engine.set_handler("/job/start/j-000000000001", lambda connection: None)
    assert "j-000000000001" in push(laptop, 1)
    assert not engine.paths("DELETE")


def test_env_file_with_key_is_not_uploaded(laptop, names):
    """A `.env` with a key is not uploaded unless the job's file includes it."""
    (laptop.work / ".env").write_text("X=1\nTENSORPOOL_KEY=tp-secret\n")
    (laptop.work / "deep").mkdir()
    (laptop.work / "deep/.env").write_text("TENSORPOOL_KEY=tp-other\n")
    said = laptop.run("job", "push", "job.tp.toml", "box")
    assert said.code == 0 and ".env" in said.errors and "tp-secret" not in said.errors, said
    assert set(names()) == {b"job.tp.toml", b"deep", b"deep/.env"}
    (laptop.work / "job.tp.toml").write_text(CONFIG + 'ignore = ["!.env"]\n')
    push(laptop)
    assert b".env" in names()
    (laptop.work / "job.tp.toml").write_text(CONFIG)
    (laptop.work / ".env").write_text("X=1\n")
    push(laptop)
    assert b".env" in names(), "without a key it is uploaded like any other file"


NO_JOBS = [b"commands = [", b"\xff\xfe", b'ignore = ["[z-a]"]', b"\0", b"x" * 5_000_000]


@pytest.mark.parametrize("text", NO_JOBS, ids=case_id)
def test_invalid_job_file_is_refused_locally(laptop, engine, target, text):
    """An invalid job file is refused before the engine is called."""
    path = laptop.work / "job.tp.toml"
    path.write_bytes(text)
    said = laptop.run("job", "push", "job.tp.toml", "box")
    assert error_line(said, said.code) and said.code in (1, 2)
    path.unlink()
    assert str(path) in laptop.fails(1, "job", "push", "job.tp.toml", "box")
    laptop.fails(1, "job", "push", ".", "box")
    assert not engine.calls
