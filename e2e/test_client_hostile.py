"""The client against servers that are no engine, broken, older or newer: one clear line and the right exit code."""

import json
import signal
import socket
import threading

import pytest

from stub_engine import HOSTILE, SECONDS, case_id, engine, error_line, finish, laptop, other_server  # noqa: F401
from support import eventually, free_port

HTML = "<html><head><title>502 Bad Gateway</title></head>\n<body><h1>502 Bad Gateway</h1><hr>some proxy</body></html>"
# One command for each way to read responses: a body, a list, a log, an accepted request, a URL for files.
COMMANDS = [
    ["me"], ["cluster", "list"], ["job", "logs", "j-000000000001"], ["cluster", "create", "1xCPU"],
    ["job", "pull", "j-000000000001"],
]  # fmt: skip


def test_no_server_is_reported(laptop):
    """When no server listens, the error names the address and the variable it comes from."""
    laptop.variables["TENSORPOOL_ENGINE"] = f"http://127.0.0.1:{free_port()}"
    for command in (*COMMANDS, ["job", "listen", "j-000000000001"], ["ssh", "box"], ["ssh-config"]):
        line = laptop.fails(1, *command)
        assert laptop.variables["TENSORPOOL_ENGINE"] in line and "TENSORPOOL_ENGINE" in line
    assert not any(laptop.home.iterdir())


def test_unknown_host_is_named(laptop):
    """The error names a host that does not resolve."""
    laptop.variables["TENSORPOOL_ENGINE"] = "http://nobody.invalid:7070"
    assert "nobody.invalid" in laptop.fails(1, "me")


def test_https_to_plain_http_is_reported(laptop, engine):
    """An https address of a plain HTTP server is reported with the address."""
    laptop.variables["TENSORPOOL_ENGINE"] = engine.url.replace("http://", "https://")
    assert engine.url.removeprefix("http://") in laptop.fails(1, "me")


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 999999 ?\r\n\r\n", b"\x00" * 4096])
def test_other_protocol_is_reported(laptop, greeting):
    """A server that speaks another protocol, or closes the connection, causes one clear line."""
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


def test_ctrl_c_ends_call_without_response(laptop, engine):
    """Ctrl-C ends a call that gets no response at once."""
    engine.set_handler("*", lambda connection: engine.stopped.wait(SECONDS))
    commands = ("me", "job logs j-000000000001", "job listen j-000000000001", "request wait r-000000000001")
    for number, command in enumerate(commands, 1):
        process = laptop.start(*command.split())
        eventually(lambda: len(engine.calls) >= number, what="the call")
        process.send_signal(signal.SIGINT)
        said = finish(process)
        assert said.code in (130, -signal.SIGINT) and not said.text, said


def test_truncated_response_is_reported(laptop, engine):
    """A response that ends too early is reported."""
    def half(connection):
        connection.send_head(200, {"Content-Type": "application/json", "Content-Length": 4096})
        connection.wfile.write(b'{"message": "almost')

    engine.set_handler("*", half)
    for command in (["me"], ["cluster", "list"], ["cluster", "create", "1xCPU"], ["job", "pull", "j-000000000001"]):
        laptop.fails(1, *command)


@pytest.mark.parametrize("status", [200, 403, 404, 500, 502, 503])
def test_web_page_is_reported(laptop, engine, status):
    """A web page instead of a response is reported with the address and the status."""
    engine.set_response("*", HTML, status=status, kind="text/html")
    for command in COMMANDS:
        line = laptop.fails(1, *command)
        assert engine.url in line and str(status) in line, line


NO_BODIES = ["[]", "7", "null", '"text"', '{"message": "al', "", "\ufeff{}", "[" * 5000, b"\xff\xfe{}"]


@pytest.mark.parametrize("body", NO_BODIES, ids=case_id)
def test_invalid_body_is_reported(laptop, engine, body):
    """A body that is no JSON object is reported."""
    for status in (200, 500):
        engine.set_response("*", body, status=status)
        laptop.fails(1, "me")


@pytest.mark.parametrize("kind", ["page", "message", "detail"])
def test_long_error_is_shortened(laptop, engine, kind):
    """An error of ten megabytes is shortened to one line."""
    long = "long " * 2_000_000
    engine.set_response("*", HTML + long if kind == "page" else {kind: long}, status=500)
    laptop.fails(1, "me")
    laptop.fails(1, "job", "logs", "j-000000000001")


def test_endless_error_is_abandoned(laptop, engine):
    """The client stops reading an endless error body before it fills the memory."""
    sent = []

    def flood(connection):
        connection.send_head(500, {"Content-Type": "text/html", "Transfer-Encoding": "chunked"})
        for _ in range(192):
            connection.wfile.write(b"%x\r\n%s\r\n" % (1 << 20, b"x" * (1 << 20)))
            sent.append(1)
        connection.wfile.write(b"0\r\n\r\n")

    engine.set_handler("*", flood)
    for command in (["me"], ["job", "logs", "j-000000000001"]):
        sent.clear()
        laptop.fails(1, *command)
        assert len(sent) < 100, f"{command} read {len(sent)} MiB of an error"


@pytest.mark.parametrize(
    ("status", "code"),
    [(400, 2), (401, 1), (402, 1), (403, 1), (404, 3), (409, 4), (413, 1), (422, 2), (429, 1), (500, 1), (503, 1)],
)
def test_refusal_shows_engine_message(laptop, engine, status, code):
    """A refusal is shown in the engine's words and sets the exit code; an unknown key says how to log in."""
    for body in ({"message": "too many moons", "detail": "too many moons"}, {"detail": "too many moons"}):
        engine.set_response("*", body, status=status, Retry_After="7")
        for command in COMMANDS:
            line = laptop.fails(code, *command)
            assert ("tarn login" if status == 401 else "too many moons") in line, line
    engine.set_response("*", {}, status=status)
    line = laptop.fails(code, "me")
    assert str(status) in line or status == 401, line


def test_message_is_found_in_other_fields(laptop, engine):
    """The message is also found in the fields in which other engines send it."""
    for body in (
        {"message": "", "detail": "too many moons"},
        {"message": None, "error": "too many moons"},
        {"external_message": "too many moons"},
    ):
        engine.set_response("*", body, status=500)
        assert "too many moons" in laptop.fails(1, "me")


def test_validation_errors_are_all_shown(laptop, engine):
    """All validation errors of a body are shown."""
    detail = [
        {"loc": ["body", "num_nodes"], "msg": "must be at least 1", "type": "value_error"},
        {"loc": ["body", "public_keys", 0], "msg": "is no key", "type": "value_error"},
    ]
    for wrong in (detail, [{"loc": None, "msg": None}, *detail], detail + ["text", 7]):
        engine.set_response("*", {"detail": wrong}, status=422)
        line = laptop.fails(2, "cluster", "create", "1xCPU")
        for word in ("num_nodes", "must be at least 1", "public_keys", "is no key"):
            assert word in line, line


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirect_gets_no_key(laptop, engine, other_server, status):
    """The client follows no redirect, so no other server gets the key."""
    other_server.set_response("*", {"email": "someone@example.org", "clusters": []})
    for body in ("", {"message": "moved"}):
        engine.set_response("*", body, status=status, Location=f"{other_server.url}/me")
        for command in (["me"], ["cluster", "list"], ["cluster", "create", "1xCPU"], ["job", "logs", "j-000000000001"]):
            laptop.fails(1, *command)
    assert not other_server.calls


def cluster(**more) -> dict:
    """A cluster as current engines return it."""
    instance = {"id": "i-1", "name": "box-0", "status": "RUNNING", "private_ip": "10.0.0.2"}
    return {
        "id": "c-000000000001", "name": "box", "status": "RUNNING", "instance_type": "1xCPU", "num_nodes": 1,
        "instances": [instance], "storage": ["s-000000000001"], "deletion_protection": False, "hourly_rate": 0.5,
        "created_at": "2026-01-01T00:00:00Z",
    } | more  # fmt: skip


def test_newer_engine_is_tolerated(laptop, engine):
    """Unknown states and fields of a newer engine are shown or ignored, and break nothing."""
    instance = {"id": "i-1", "status": "DREAMING", "x": 1}
    newer = cluster(status="HIBERNATING", moons=[1, {"a": None}], instances=[instance])
    engine.set_response("/cluster/list", {"clusters": [newer], "next": {"page": 2}, "message": ""})
    engine.set_response("/cluster/info/box", {"cluster_info": newer, "warnings": ["x"]})
    assert "HIBERNATING" in laptop.works("cluster", "list", "--instances")
    assert "HIBERNATING" in (text := laptop.works("cluster", "info", "box")) and "DREAMING" in text
    assert json.loads(laptop.works("cluster", "list", "--json"))["clusters"] == [newer]
    assert json.loads(laptop.works("cluster", "info", "box", "--json"))["warnings"] == ["x"]


def test_unknown_status_is_waited_for(laptop, engine):
    """The client keeps waiting while a request has a status that it does not know."""
    words = iter(["PENDING", "DAYDREAMING", "COMPLETED"])
    accepted = {"cluster_id": "c-000000000001", "request_id": "r-000000000001", "message": "accepted", "new": 1}
    engine.set_response("/cluster/create", accepted, status=202)
    info = "/request/info/r-000000000001"
    engine.set_handler(info, lambda connection: connection.respond({"status": next(words), "message": "well"}))
    assert "well" in laptop.works("cluster", "create", "1xCPU", "--wait")


INFOS = {
    "cluster": ("c-000000000001", "cluster_info"), "job": ("j-000000000001", "job_info"),
    "storage": ("s-000000000001", "storage_info"), "request": ("r-000000000001", None),
}  # fmt: skip
LISTS = {"cluster": "clusters", "job": "jobs", "storage": "volumes", "request": "requests"}
FIELDS = [*cluster(), "attempt", "exit_code", "log_bytes", "size_gb", "commands", "explanation", "message", "email"]


@pytest.mark.parametrize("missing", [{"id": "x-1"}, dict.fromkeys(FIELDS)], ids=["missing", "null"])
def test_older_engine_fields_are_left_out(laptop, engine, missing):
    """Fields that an older engine does not send are left out: `null` is never shown."""
    for noun, (name, field) in INFOS.items():
        engine.set_response(f"/{noun}/info/{name}", {field: missing} if field else missing)
        engine.set_response(f"/{noun}/list", {LISTS[noun]: [missing]})
        for command in ("info", "list"):
            text = laptop.works(noun, command, *([name] if command == "info" else []))
            assert "null" not in text.lower() and "()" not in text, (noun, text)
    engine.set_response("/user/info", missing)
    assert "null" not in laptop.works("me")
    engine.set_response("*", {})
    for command in (["me"], ["me", "preferences"], ["cluster", "list", "--instances"], ["cluster", "types"]):
        assert "null" not in laptop.works(*command)


@pytest.mark.parametrize("wrong", [7, -1.5, True, "text", [], [[1]], {}, {"a": {"b": 1}}], ids=ascii)
def test_wrong_field_types_are_tolerated(laptop, engine, wrong):
    """Every field in turn has a wrong type, and the client still works or fails cleanly."""
    row = dict.fromkeys(FIELDS, wrong)
    for noun, (name, field) in INFOS.items():
        engine.set_response(f"/{noun}/info/{name}", {field: row} if field else row)
        engine.set_response(f"/{noun}/list", {LISTS[noun]: [row, wrong], "next_cursor": None})
        laptop.works(noun, "info", name)
        laptop.works(noun, "list")
    engine.set_response("*", dict.fromkeys(["clusters", "cluster_info", "types", "message", "balance", "upload_url"], wrong))
    for command in (["me"], ["cluster", "list", "--instances"], ["cluster", "info", "y"], ["cluster", "types"]):
        laptop.works(*command)
    (laptop.work / "job.tp.toml").write_text('commands = ["true"]\n')
    for command in (["ssh", "box"], ["job", "push", "job.tp.toml", "box"]):
        laptop.fails(1, *command)


def test_listen_survives_engine_restart(laptop, engine):
    """Listening survives a restart of the engine without losing or repeating a byte, also before the first output."""
    job = {"id": "j-000000000001", "status": "completed", "explanation": "done"}
    engine.set_response("/job/info/j-000000000001", {"job_info": job, "message": ""})
    answers = iter(["", None, None, "one\n", None, "two\n"])

    def log(connection):
        piece = next(answers)
        if piece is not None:
            headers = {"X-Log-Ended": str(piece == "two\n").lower(), "X-Log-Size": "8"}
            connection.respond(piece.encode(), kind="text/plain", headers=headers)

    engine.set_handler("/job/logs/j-000000000001", log)
    assert laptop.works("job", "listen", "j-000000000001") == "one\ntwo\n"
    assert [call.query.split("&")[0] for call in engine.calls if "/logs/" in call.path] == ["offset=0"] * 4 + ["offset=4"] * 2


def test_wait_survives_engine_restart(laptop, engine):
    """Waiting for a request survives a restart of the engine."""
    engine.set_response("/cluster/create", {"request_id": "r-000000000001", "message": "accepted"}, status=202)
    answers = iter([None, 503, 200])

    def look(connection):
        if status := next(answers):
            connection.respond({"status": "COMPLETED", "message": "it runs"}, status)

    engine.set_handler("/request/info/r-000000000001", look)
    assert "it runs" in laptop.works("cluster", "create", "1xCPU", "--wait")


def test_failed_wait_names_request_in_json(laptop, engine):
    """When a wait breaks off, the JSON output names the request."""
    engine.set_response("/cluster/create", {"request_id": "r-000000000001", "message": "accepted"}, status=202)
    engine.set_response("/request/info/r-000000000001", "<html>", status=500)
    said = laptop.run("cluster", "create", "1xCPU", "--wait", "--json")
    assert said.code == 1 and json.loads(said.text)["request_id"] == "r-000000000001", said


def test_limits_list_reads_every_page(engine, laptop):
    """`admin limits list` reads all pages and prints one table."""
    def page(connection):
        after = connection.path.partition("after=")[2].partition("&")[0]
        scope, following = {"": ("o-1", "o-1"), "o-1": ("o-2", "o-2"), "o-2": (None, None)}[after]
        rows, message = ([{"scope": scope}], f"SCOPE  GPUS\n{scope}    0/4") if scope else ([], "No organization or user has its own limits.")
        connection.respond({"limits": rows, "next_after": following, "message": message})

    engine.set_handler("/admin/limits", page, reads_body=True)
    assert laptop.works("admin", "limits", "list").splitlines() == ["SCOPE  GPUS", "o-1    0/4", "o-2    0/4"]
    listed = json.loads(laptop.works("admin", "limits", "list", "--json"))
    assert [each["scope"] for each in listed["limits"]] == ["o-1", "o-2"] and listed["next_after"] is None


def test_endless_list_is_abandoned(laptop, engine):
    """The client stops reading a list whose pages never end."""
    engine.set_response("/cluster/list", {"clusters": [cluster()], "next_cursor": "again", "message": ""})
    said = laptop.run("cluster", "list")
    assert said.code in (0, 1) and len(engine.calls) <= 1000, said


TYPED = ["", ".", "..", "../user/info", "a/b", "a?b=c#d", "a b", "a\nb", HOSTILE, "%2e%2e", "x" * 5000]


@pytest.mark.parametrize("name", TYPED, ids=case_id)
def test_typed_name_stays_one_path_segment(laptop, engine, name):
    """A typed name never addresses another route, above all not when something is to be destroyed."""
    for command, below in (
        (["cluster", "info"], "/cluster/info/"),
        (["cluster", "destroy", "--no-input"], "/cluster/"),
        (["job", "logs"], "/job/logs/"),
        (["request", "wait"], "/request/info/"),
    ):
        engine.calls.clear()
        said = laptop.run(*command, name)
        assert error_line(said, said.code) and said.code in (2, 3), "refused by the client, or not found by the engine"
        # A job may be looked up by its name first.
        for call in [call for call in engine.calls if call.path != "/job/list"]:
            part = call.path.removeprefix(below)
            assert call.path.startswith(below) and part and "/" not in part and "b=c" not in call.query, call


def test_request_id_stays_one_path_segment(laptop, engine):
    """A request ID of the engine never addresses another route."""
    accepted = {"cluster_id": "c-000000000001", "request_id": "../../user/info?x", "message": "accepted"}
    engine.set_response("/cluster/create", accepted, status=202)
    laptop.run("cluster", "create", "1xCPU", "--wait")
    assert [path.count("/") for path in engine.paths("GET")] == [3], engine.paths("GET")


def test_non_utf8_argument_is_refused(laptop, engine):
    """An argument that is not UTF-8 is a usage error."""
    for command in (["cluster", "info", b"\xff"], ["cluster", "create", "1xCPU", "--name", b"\xff"], [b"\xff"]):
        said = finish(laptop.start(*command))
        assert said.code == 2 and not said.text and "panicked" not in said.errors, said
    assert not engine.calls


def test_error_text_cannot_control_terminal(laptop, engine):
    """Control characters in an error never reach the terminal."""
    detail = [{"loc": [HOSTILE], "msg": HOSTILE}]
    for body in ({"message": f"no\n{HOSTILE}\ntarn: fine"}, {"detail": detail}, HOSTILE, f"<h1>{HOSTILE}"):
        engine.set_response("*", body, status=422 if isinstance(body, dict) else 502)
        for command in COMMANDS:
            laptop.fails(2 if isinstance(body, dict) else 1, *command)
