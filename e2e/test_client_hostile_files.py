"""Files to and from engines that lie, refuse and break, out of directories with everything in them."""

import gzip
import io
import os
import signal
import socket
import tarfile
import threading

import pytest

from false_engine import HOSTILE, SECONDS, brief, complaint, finish
from false_engine import elsewhere, engine, laptop, nobodys  # noqa: F401
from support import eventually

CONFIG = 'commands = ["true"]\n'


def found(directory) -> dict[str, bytes]:
    """All that is below a directory."""
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


@pytest.fixture
def offer(engine, elsewhere):
    """Lets a job have these outputs, which lie elsewhere."""

    def set_outputs(*paths, url=None):
        where = {path: url or f"{elsewhere.url}/{number}" for number, path in enumerate(paths)}
        engine.says("/job/pull/j-000000000001", {"download_map": where, "message": "there they are"})

    elsewhere.says("*", b"content")
    return set_outputs


AWAY = ["../x", "/x", "a/../../x", "..", ".", "", "/", "./../x", "a/b/../../../x", "~/../x", "a\0b", "//x", "../work/x"]


@pytest.mark.parametrize("path", AWAY, ids=brief)
def test_outputs_stay_below_the_directory(laptop, offer, tmp_path, path):
    before = found(tmp_path)
    offer(path if path != "/x" else f"{tmp_path}/x")
    laptop.fails(1, "job", "pull", "j-000000000001")
    laptop.fails(1, "job", "pull", "j-000000000001", "--force")
    assert found(tmp_path) == before, "nothing is written anywhere"


def test_outputs_do_not_leave_through_links(laptop, offer, tmp_path):
    """A link that is here already is for who made it: an engine does not write through it."""
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
            assert found(outside) == {"kept": b"mine"}, path


def test_hostile_names_of_outputs(laptop, offer):
    offer(f"a{HOSTILE}b".replace("\0", ""), "two\nlines")
    laptop.works("job", "pull", "j-000000000001", "--dry-run")
    laptop.works("job", "pull", "j-000000000001")
    assert len(found(laptop.work)) == 2
    (laptop.work / "two\nlines").unlink()
    (laptop.work / "two\nlines").mkdir()
    laptop.fails(1, "job", "pull", "j-000000000001", "--force")


NO_ADDRESSES = ["file:///etc/hostname", "ftp://127.0.0.1/x", "//x", "x", "", "data:,x", "http://[::1", HOSTILE]


@pytest.mark.parametrize("url", NO_ADDRESSES, ids=brief)
def test_addresses_that_are_none(laptop, engine, offer, url):
    offer("x", url=url or " ")
    laptop.fails(1, "job", "pull", "j-000000000001")
    (laptop.work / "job.tp.toml").write_text(CONFIG)
    engine.says("/job/create", {"job_id": "j-000000000001", "upload_url": url, "message": "made"}, status=201)
    laptop.fails(1, "job", "push", "job.tp.toml", "box")
    assert set(found(laptop.work)) == {"job.tp.toml"}
    assert "/job/start/j-000000000001" not in engine.paths("POST")


def test_signed_addresses_get_no_key(laptop, engine, offer, elsewhere):
    """Not even the engine's own: their signature is all the right that they need."""
    engine.says("/signed", b"content")
    offer("mine", url=f"{engine.url}/signed")
    laptop.works("job", "pull", "j-000000000001")
    assert "authorization" not in engine.asked[-1].headers and engine.asked[-1].path == "/signed"
    assert "authorization" in engine.asked[0].headers
    offer("theirs")
    laptop.works("job", "pull", "j-000000000001")
    assert len(elsewhere.asked) == 1 and set(found(laptop.work)) == {"mine", "theirs"}


def test_a_signed_address_that_is_refused(laptop, offer, elsewhere):
    """The line speaks of the files, not of an engine whose address might be wrong; nobody else sees the signature."""
    offer("x", "y", url=f"{elsewhere.url}/x?signature=do-not-show")
    for status, kind in ((403, "application/xml"), (404, "text/html"), (500, "text/plain"), (302, "text/plain")):
        page = "<Error><Code>AccessDenied</Code></Error>"
        elsewhere.says("*", page, status=status, kind=kind, Location="http://127.0.0.1:1/")
        line = laptop.fails(1, "job", "pull", "j-000000000001")
        assert str(status) in line and "do-not-show" not in line, line
        assert "not from an engine" not in line and laptop.variables["TENSORPOOL_ENGINE"] not in line, line
        assert not list(laptop.work.iterdir())


@pytest.mark.parametrize("chunked", [False, True])
def test_a_download_that_breaks_leaves_no_half_file(laptop, offer, elsewhere, chunked):
    def half(connection):
        length = {"Transfer-Encoding": "chunked"} if chunked else {"Content-Length": 100_000}
        connection.begin(200, length)
        connection.wfile.write((b"%x\r\n" % 60_000 if chunked else b"") + b"x" * 50_000)

    offer("x")
    elsewhere.does("*", half)
    for before in ({}, {"x": b"old"}):
        for name, content in before.items():
            (laptop.work / name).write_bytes(content)
        line = laptop.fails(1, "job", "pull", "j-000000000001", "--force")
        assert found(laptop.work) == before, "either the old or the new"
        assert laptop.variables["TENSORPOOL_ENGINE"] not in line, f"the engine is not who broke off: {line}"


def test_an_interrupted_download_leaves_no_half_file(laptop, offer, elsewhere):
    def slow(connection):
        connection.begin(200, {"Content-Length": 100_000})
        connection.wfile.write(b"x" * 50_000)
        elsewhere.over.wait(SECONDS)

    offer("deep/x")
    elsewhere.does("*", slow)
    process = laptop.start("job", "pull", "j-000000000001")
    eventually(lambda: found(laptop.work), what="the part that has come")
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert said.code == 130 and "pull again" in said.errors, said
    assert not found(laptop.work)


@pytest.fixture
def target(laptop, engine, elsewhere):
    """Lets jobs be made, whose files go elsewhere."""
    (laptop.work / "job.tp.toml").write_text(CONFIG)
    url = f"{elsewhere.url}/up?signature=do-not-show"
    engine.says("/job/create", {"job_id": "j-000000000001", "upload_url": url, "message": "made"}, status=201)
    started = {"job_id": "j-000000000001", "status": "pending", "message": "started"}
    engine.says("/job/start/j-000000000001", started, status=202)
    engine.says("/job/delete/j-000000000001", {"job_id": "j-000000000001", "message": "deleted"})
    elsewhere.says("*", {"job_id": "j-000000000001", "bytes": 1, "message": "taken"})
    return elsewhere


@pytest.fixture
def names(laptop, target):
    """What is in the archive that was uploaded last, by name."""

    def read() -> dict[bytes, tarfile.TarInfo]:
        archive = tarfile.open(fileobj=io.BytesIO(gzip.decompress(target.asked[-1].body)), errors="surrogateescape")
        return {os.fsencode(entry.name): entry for entry in archive.getmembers()}

    return read


def check_no_job(engine):
    """The draft is gone, and was not started."""
    assert engine.paths("DELETE") == ["/job/delete/j-000000000001"]
    assert "/job/start/j-000000000001" not in engine.paths("POST")


def push(laptop, code=None, **options):
    arguments = ("job", "push", "job.tp.toml", "box")
    return laptop.works(*arguments, **options) if code is None else laptop.fails(code, *arguments, **options)


def test_strange_files(laptop, names):
    """What is no file stays here; any name goes."""
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
    assert names()[b"up"].issym(), "what a link leads to is not uploaded"


def test_ten_thousand_files(laptop, names):
    for number in range(10_000):
        directory = laptop.work / f"d{number % 10}"
        directory.mkdir(exist_ok=True)
        (directory / f"{number}").write_bytes(b"")
    push(laptop)
    assert len(names()) == 10_011


def test_a_file_that_grows_and_one_that_shrinks(laptop, target, names):
    """The archive is whole, whatever happens to files meanwhile."""
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

    def take(connection):
        asked = target.asked[-1]
        changing = threading.Thread(target=change)
        changing.start()
        asked.body = connection.take()
        over.set()
        changing.join()
        connection.answer({"message": "taken"})

    target.does("*", take)
    push(laptop)
    assert {b"grows", b"shrinks"} <= set(names())


@pytest.mark.parametrize("kind", ["file", "directory"])
def test_what_may_not_be_read(nobodys, engine, target, kind):
    """The line names the file; the engine is not to blame."""
    (nobodys.work / "job.tp.toml").write_text(CONFIG)
    secret = nobodys.work / "secret"
    if kind == "file":
        secret.write_text("x")
    else:
        secret.mkdir()
    secret.chmod(0)
    line = push(nobodys, 1)
    assert "secret" in line and "ermission denied" in line, line
    assert "cannot reach" not in line and "TENSORPOOL_ENGINE" not in line, line
    if "/job/create" in engine.paths("POST"):
        check_no_job(engine)


def test_an_upload_that_is_interrupted(laptop, engine, target):
    target.does("*", lambda connection: target.over.wait(SECONDS))
    process = laptop.start("job", "push", "job.tp.toml", "box")
    eventually(lambda: target.asked, what="the upload")
    process.send_signal(signal.SIGINT)
    said = finish(process)
    assert not said.text and "interrupted" in complaint(said, 130)
    check_no_job(engine)


@pytest.mark.parametrize("status", [403, 413, 500])
@pytest.mark.parametrize("hangs_up", [True, False])
def test_an_upload_that_is_refused_in_the_middle(laptop, engine, target, status, hangs_up):
    """What the other side said is told, although not all was sent."""
    (laptop.work / "large").write_bytes(os.urandom(20_000_000))

    def refuse(connection):
        connection.rfile.read(100_000)
        connection.answer({"message": "too many moons"}, status)
        connection.wfile.flush()
        if not hangs_up:
            # Polite servers read on for a while, so that who sends can hear them.
            connection.connection.settimeout(SECONDS)
            try:
                while connection.connection.recv(1 << 20):
                    pass
            except OSError:
                pass

    target.does("*", refuse)
    line = push(laptop, 1)
    assert "do-not-show" not in line
    if not hangs_up:
        assert "too many moons" in line, line
    assert "check that it is running" not in line, f"the engine does run: {line}"
    check_no_job(engine)


def test_an_upload_that_breaks(laptop, engine, target):
    (laptop.work / "large").write_bytes(os.urandom(5_000_000))
    target.does("*", lambda connection: connection.rfile.read(100_000))
    line = push(laptop, 1)
    assert engine.url not in line, f"the engine is not who broke off: {line}"
    check_no_job(engine)


def test_a_page_instead_of_a_receipt(laptop, engine, target):
    """A proxy that takes the files with a friendly page has not taken them."""
    target.says("*", "<html>Welcome</html>", kind="text/html")
    push(laptop, 1)
    check_no_job(engine)


def test_a_start_that_is_refused(laptop, engine, target):
    engine.says("/job/start/j-000000000001", {"message": "the cluster is gone"}, status=409)
    assert "the cluster is gone" in push(laptop, 4)
    assert engine.paths("DELETE") == ["/job/delete/j-000000000001"], "a job that did not start is none"


def test_a_start_of_which_nothing_is_heard(laptop, engine, target):
    """The line names the job: it may run."""
    engine.does("/job/start/j-000000000001", lambda connection: None)
    assert "j-000000000001" in push(laptop, 1)
    assert not engine.paths("DELETE")


def test_the_key_is_not_uploaded(laptop, names):
    """`.env` is where the stock client keeps it; who wants it on the machine says so."""
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
    assert b".env" in names(), "without a key it is a file like any other"


NO_JOBS = [b"commands = [", b"\xff\xfe", b'ignore = ["[z-a]"]', b"\0", b"x" * 5_000_000]


@pytest.mark.parametrize("text", NO_JOBS, ids=brief)
def test_a_file_that_is_none(laptop, engine, target, text):
    """It is refused here, before the engine hears of it."""
    path = laptop.work / "job.tp.toml"
    path.write_bytes(text)
    said = laptop.run("job", "push", "job.tp.toml", "box")
    assert complaint(said, said.code) and said.code in (1, 2)
    path.unlink()
    assert str(path) in laptop.fails(1, "job", "push", "job.tp.toml", "box")
    laptop.fails(1, "job", "push", ".", "box")
    assert not engine.asked
