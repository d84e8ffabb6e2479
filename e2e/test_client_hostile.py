"""The client before servers that are no engine, broken, older or newer ones: one clear line, and the right code."""

import json
import signal
import socket
import threading

import pytest

from false_engine import HOSTILE, SECONDS, brief, complaint, elsewhere, engine, finish, laptop  # noqa: F401
from support import eventually, free_port

HTML = "<html><head><title>502 Bad Gateway</title></head>\n<body><h1>502 Bad Gateway</h1><hr>some proxy</body></html>"
# One command of each way by which answers are read: a body, a list, a log, what is accepted, an address for files.
COMMANDS = [
    ["me"], ["cluster", "list"], ["job", "logs", "j-000000000001"], ["cluster", "create", "1xCPU"],
    ["job", "pull", "j-000000000001"],
]  # fmt: skip


def test_no_server(laptop):
    laptop.variables["TENSORPOOL_ENGINE"] = f"http://127.0.0.1:{free_port()}"
    for command in (*COMMANDS, ["job", "listen", "j-000000000001"], ["ssh", "box"], ["ssh-config"]):
        line = laptop.fails(1, *command)
        assert laptop.variables["TENSORPOOL_ENGINE"] in line and "TENSORPOOL_ENGINE" in line
    assert not any(laptop.home.iterdir())


def test_a_name_that_nobody_has(laptop):
    laptop.variables["TENSORPOOL_ENGINE"] = "http://nobody.invalid:7070"
    assert "nobody.invalid" in laptop.fails(1, "me")


def test_not_https_after_all(laptop, engine):
    laptop.variables["TENSORPOOL_ENGINE"] = engine.url.replace("http://", "https://")
    assert engine.url.removeprefix("http://") in laptop.fails(1, "me")


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 999999 ?\r\n\r\n", b"\x00" * 4096])
def test_a_server_of_something_else(laptop, greeting):
    """Whoever listens there speaks another language, or hangs up."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def greet():
            for _ in range(20):
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.sendall(greeting)
                    connection.shutdown(socket.SHUT_WR)
                    connection.recv(65536)

        threading.Thread(target=greet, daemon=True).start()
        laptop.variables["TENSORPOOL_ENGINE"] = f"http://127.0.0.1:{listener.getsockname()[1]}"
        laptop.fails(1, "me")


def test_a_server_that_never_answers_can_be_left(laptop, engine):
    """Nobody has to wait for it: Ctrl-C works at once."""
    engine.does("*", lambda connection: engine.over.wait(SECONDS))
    commands = ("me", "job logs j-000000000001", "job listen j-000000000001", "request wait r-000000000001")
    for number, command in enumerate(commands, 1):
        process = laptop.start(*command.split())
        eventually(lambda: len(engine.asked) >= number, what="the question")
        process.send_signal(signal.SIGINT)
        said = finish(process)
        assert said.code in (130, -signal.SIGINT) and not said.text, said


def test_it_hangs_up_in_the_middle(laptop, engine):
    def half(connection):
        connection.begin(200, {"Content-Type": "application/json", "Content-Length": 4096})
        connection.wfile.write(b'{"message": "almost')

    engine.does("*", half)
    for command in (["me"], ["cluster", "list"], ["cluster", "create", "1xCPU"], ["job", "pull", "j-000000000001"]):
        laptop.fails(1, *command)


@pytest.mark.parametrize("status", [200, 403, 404, 500, 502, 503])
def test_a_web_page(laptop, engine, status):
    engine.says("*", HTML, status=status, kind="text/html")
    for command in COMMANDS:
        line = laptop.fails(1, *command)
        assert engine.url in line and str(status) in line, line


NO_BODIES = ["[]", "7", "null", '"text"', '{"message": "al', "", "\ufeff{}", "[" * 5000, b"\xff\xfe{}"]


@pytest.mark.parametrize("body", NO_BODIES, ids=brief)
def test_what_is_no_body(laptop, engine, body):
    for status in (200, 500):
        engine.says("*", body, status=status)
        laptop.fails(1, "me")


@pytest.mark.parametrize("kind", ["page", "message", "detail"])
def test_a_long_error(laptop, engine, kind):
    """Ten megabytes are no line."""
    long = "long " * 2_000_000
    engine.says("*", HTML + long if kind == "page" else {kind: long}, status=500)
    laptop.fails(1, "me")
    laptop.fails(1, "job", "logs", "j-000000000001")


def test_an_error_without_end(laptop, engine):
    """An answer that does not end is left before it fills the memory."""
    sent = []

    def flood(connection):
        connection.begin(500, {"Content-Type": "text/html", "Transfer-Encoding": "chunked"})
        for _ in range(192):
            connection.wfile.write(b"%x\r\n%s\r\n" % (1 << 20, b"x" * (1 << 20)))
            sent.append(1)
        connection.wfile.write(b"0\r\n\r\n")

    engine.does("*", flood)
    for command in (["me"], ["job", "logs", "j-000000000001"]):
        sent.clear()
        laptop.fails(1, *command)
        assert len(sent) < 100, f"{command} read {len(sent)} MiB of an error"


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (401, 1), (402, 1), (403, 1), (404, 3), (409, 4), (413, 1), (422, 2), (429, 1), (500, 1), (503, 1)],
)
def test_what_is_refused(laptop, engine, status, code):
    """By the engine's own words; a key that is not known by what to do about it."""
    for body in ({"message": "too many moons", "detail": "too many moons"}, {"detail": "too many moons"}):
        engine.says("*", body, status=status, Retry_After="7")
        for command in COMMANDS:
            line = laptop.fails(code, *command)
            assert ("tarn login" if status == 401 else "too many moons") in line, line
    engine.says("*", {}, status=status)
    line = laptop.fails(code, "me")
    assert str(status) in line or status == 401, line


def test_words_are_found_where_other_engines_put_them(laptop, engine):
    for body in (
        {"message": "", "detail": "too many moons"},
        {"message": None, "error": "too many moons"},
        {"external_message": "too many moons"},
    ):
        engine.says("*", body, status=500)
        assert "too many moons" in laptop.fails(1, "me")


def test_all_errors_of_a_body_are_told(laptop, engine):
    detail = [
        {"loc": ["body", "num_nodes"], "msg": "must be at least 1", "type": "value_error"},
        {"loc": ["body", "public_keys", 0], "msg": "is no key", "type": "value_error"},
    ]
    for wrong in (detail, [{"loc": None, "msg": None}, *detail], detail + ["text", 7]):
        engine.says("*", {"detail": wrong}, status=422)
        line = laptop.fails(2, "cluster", "create", "1xCPU")
        for word in ("num_nodes", "must be at least 1", "public_keys", "is no key"):
            assert word in line, line


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_the_key_follows_no_redirect(laptop, engine, elsewhere, status):
    elsewhere.says("*", {"email": "someone@example.org", "clusters": []})
    for body in ("", {"message": "moved"}):
        engine.says("*", body, status=status, Location=f"{elsewhere.url}/me")
        for command in (["me"], ["cluster", "list"], ["cluster", "create", "1xCPU"], ["job", "logs", "j-000000000001"]):
            laptop.fails(1, *command)
    assert not elsewhere.asked


def cluster(**more) -> dict:
    """A cluster as today's engines show it."""
    machine = {"id": "i-1", "name": "box-0", "status": "RUNNING", "private_ip": "10.0.0.2"}
    return {
        "id": "c-000000000001", "name": "box", "status": "RUNNING", "instance_type": "1xCPU", "num_nodes": 1,
        "instances": [machine], "storage": ["s-000000000001"], "deletion_protection": False, "hourly_rate": 0.5,
        "created_at": "2026-01-01T00:00:00Z",
    } | more  # fmt: skip


def test_a_newer_engine(laptop, engine):
    """Words and fields that nobody knew are shown, or nothing; nothing breaks."""
    machine = {"id": "i-1", "status": "DREAMING", "x": 1}
    newer = cluster(status="HIBERNATING", moons=[1, {"a": None}], instances=[machine])
    engine.says("/cluster/list", {"clusters": [newer], "next": {"page": 2}, "message": ""})
    engine.says("/cluster/info/box", {"cluster_info": newer, "warnings": ["x"]})
    assert "HIBERNATING" in laptop.works("cluster", "list", "--instances")
    assert "HIBERNATING" in (text := laptop.works("cluster", "info", "box")) and "DREAMING" in text
    assert json.loads(laptop.works("cluster", "list", "--json"))["clusters"] == [newer]
    assert json.loads(laptop.works("cluster", "info", "box", "--json"))["warnings"] == ["x"]


def test_a_word_that_is_no_end_yet_is_waited_for(laptop, engine):
    words = iter(["PENDING", "DAYDREAMING", "COMPLETED"])
    accepted = {"cluster_id": "c-000000000001", "request_id": "r-000000000001", "message": "accepted", "new": 1}
    engine.says("/cluster/create", accepted, status=202)
    info = "/request/info/r-000000000001"
    engine.does(info, lambda connection: connection.answer({"status": next(words), "message": "well"}))
    assert "well" in laptop.works("cluster", "create", "1xCPU", "--wait")


INFOS = {
    "cluster": ("c-000000000001", "cluster_info"), "job": ("j-000000000001", "job_info"),
    "storage": ("s-000000000001", "storage_info"), "request": ("r-000000000001", None),
}  # fmt: skip
LISTS = {"cluster": "clusters", "job": "jobs", "storage": "volumes", "request": "requests"}
FIELDS = [*cluster(), "attempt", "exit_code", "log_bytes", "size_gb", "commands", "explanation", "message", "email"]


@pytest.mark.parametrize("missing", [{"id": "x-1"}, dict.fromkeys(FIELDS)], ids=["missing", "null"])
def test_an_older_engine(laptop, engine, missing):
    """What is missing is left out: nobody wants to read `null`."""
    for noun, (name, field) in INFOS.items():
        engine.says(f"/{noun}/info/{name}", {field: missing} if field else missing)
        engine.says(f"/{noun}/list", {LISTS[noun]: [missing]})
        for command in ("info", "list"):
            text = laptop.works(noun, command, *([name] if command == "info" else []))
            assert "null" not in text.lower() and "()" not in text, (noun, text)
    engine.says("/user/info", missing)
    assert "null" not in laptop.works("me")
    engine.says("*", {})
    for command in (["me"], ["me", "preferences"], ["cluster", "list", "--instances"], ["cluster", "types"]):
        assert "null" not in laptop.works(*command)


@pytest.mark.parametrize("wrong", [7, -1.5, True, "text", [], [[1]], {}, {"a": {"b": 1}}], ids=ascii)
def test_wrong_types(laptop, engine, wrong):
    """Everything that is to be a text or a number or a list is something else, once after the other."""
    row = dict.fromkeys(FIELDS, wrong)
    for noun, (name, field) in INFOS.items():
        engine.says(f"/{noun}/info/{name}", {field: row} if field else row)
        engine.says(f"/{noun}/list", {LISTS[noun]: [row, wrong], "next_cursor": None})
        laptop.works(noun, "info", name)
        laptop.works(noun, "list")
    engine.says("*", dict.fromkeys(["clusters", "cluster_info", "types", "message", "balance", "upload_url"], wrong))
    for command in (["me"], ["cluster", "list", "--instances"], ["cluster", "info", "y"], ["cluster", "types"]):
        laptop.works(*command)
    (laptop.work / "job.tp.toml").write_text('commands = ["true"]\n')
    for command in (["ssh", "box"], ["job", "push", "job.tp.toml", "box"]):
        laptop.fails(1, *command)


def test_who_listens_outlives_a_restart_of_the_engine(laptop, engine):
    """Also before the job has printed anything, and without losing or repeating a byte."""
    job = {"id": "j-000000000001", "status": "completed", "explanation": "done"}
    engine.says("/job/info/j-000000000001", {"job_info": job, "message": ""})
    answers = iter(["", None, None, "one\n", None, "two\n"])

    def log(connection):
        piece = next(answers)
        if piece is not None:
            headers = {"X-Log-Ended": str(piece == "two\n").lower(), "X-Log-Size": "8"}
            connection.answer(piece.encode(), kind="text/plain", headers=headers)

    engine.does("/job/logs/j-000000000001", log)
    assert laptop.works("job", "listen", "j-000000000001") == "one\ntwo\n"
    assert [asked.query.split("&")[0] for asked in engine.asked if "/logs/" in asked.path] == ["offset=0"] * 4 + ["offset=4"] * 2


def test_who_waits_outlives_a_restart_of_the_engine(laptop, engine):
    engine.says("/cluster/create", {"request_id": "r-000000000001", "message": "accepted"}, status=202)
    answers = iter([None, 503, 200])

    def look(connection):
        if status := next(answers):
            connection.answer({"status": "COMPLETED", "message": "it runs"}, status)

    engine.does("/request/info/r-000000000001", look)
    assert "it runs" in laptop.works("cluster", "create", "1xCPU", "--wait")


def test_a_program_learns_which_request_it_did_not_see_the_end_of(laptop, engine):
    engine.says("/cluster/create", {"request_id": "r-000000000001", "message": "accepted"}, status=202)
    engine.says("/request/info/r-000000000001", "<html>", status=500)
    said = laptop.run("cluster", "create", "1xCPU", "--wait", "--json")
    assert said.code == 1 and json.loads(said.text)["request_id"] == "r-000000000001", said


def test_limits_come_in_pages(engine, laptop):
    def page(connection):
        after = connection.path.partition("after=")[2].partition("&")[0]
        scope, following = {"": ("o-1", "o-1"), "o-1": ("o-2", "o-2"), "o-2": (None, None)}[after]
        rows, message = ([{"scope": scope}], f"SCOPE  GPUS\n{scope}    0/4") if scope else ([], "No organization or user has its own limits.")
        connection.answer({"limits": rows, "next_after": following, "message": message})

    engine.does("/admin/limits", page, takes_all=True)
    assert laptop.works("admin", "limits", "list").splitlines() == ["SCOPE  GPUS", "o-1    0/4", "o-2    0/4"]
    listed = json.loads(laptop.works("admin", "limits", "list", "--json"))
    assert [each["scope"] for each in listed["limits"]] == ["o-1", "o-2"] and listed["next_after"] is None


def test_a_list_that_leads_to_itself(laptop, engine):
    """A list that never ends is left at some time."""
    engine.says("/cluster/list", {"clusters": [cluster()], "next_cursor": "again", "message": ""})
    said = laptop.run("cluster", "list")
    assert said.code in (0, 1) and len(engine.asked) <= 1000, said


TYPED = ["", ".", "..", "../user/info", "a/b", "a?b=c#d", "a b", "a\nb", HOSTILE, "%2e%2e", "x" * 5000]


@pytest.mark.parametrize("name", TYPED, ids=brief)
def test_whatever_is_typed_stays_one_part_of_a_path(laptop, engine, name):
    """Names do not lead to something else of the engine's, least of all when something is to be destroyed."""
    for command, below in (
        (["cluster", "info"], "/cluster/info/"),
        (["cluster", "destroy", "--no-input"], "/cluster/"),
        (["job", "logs"], "/job/logs/"),
        (["request", "wait"], "/request/info/"),
    ):
        engine.asked.clear()
        said = laptop.run(*command, name)
        assert complaint(said, said.code) and said.code in (2, 3), "refused here, or not found there"
        # It may be looked up by its name before.
        for asked in [asked for asked in engine.asked if asked.path != "/job/list"]:
            part = asked.path.removeprefix(below)
            assert asked.path.startswith(below) and part and "/" not in part and "b=c" not in asked.query, asked


def test_a_request_of_a_strange_name_stays_one_part_of_a_path(laptop, engine):
    accepted = {"cluster_id": "c-000000000001", "request_id": "../../user/info?x", "message": "accepted"}
    engine.says("/cluster/create", accepted, status=202)
    laptop.run("cluster", "create", "1xCPU", "--wait")
    assert [path.count("/") for path in engine.paths("GET")] == [3], engine.paths("GET")


def test_an_argument_that_is_no_text(laptop, engine):
    for command in (["cluster", "info", b"\xff"], ["cluster", "create", "1xCPU", "--name", b"\xff"], [b"\xff"]):
        said = finish(laptop.start(*command))
        assert said.code == 2 and not said.text and "panicked" not in said.errors, said
    assert not engine.asked


def test_hostile_words_in_errors(laptop, engine):
    detail = [{"loc": [HOSTILE], "msg": HOSTILE}]
    for body in ({"message": f"no\n{HOSTILE}\ntarn: fine"}, {"detail": detail}, HOSTILE, f"<h1>{HOSTILE}"):
        engine.says("*", body, status=422 if isinstance(body, dict) else 502)
        for command in COMMANDS:
            laptop.fails(2 if isinstance(body, dict) else 1, *command)
