"""Where the client lives: homes that cannot be written, damaged files, keys and addresses that are none."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from stub_engine import HOSTILE, KEY, SECONDS, Terminal, case_id, error_line, finish
from stub_engine import engine, laptop, other_server, unprivileged_laptop  # noqa: F401
from support import eventually

ME = {"email": "someone@example.org", "user_id": "u-1"}
WAY = 'ssh -o "KnownHostsCommand=/bin/echo tarn ssh-ed25519 AAAA" i-1@127.0.0.1'
INSTANCE = {"id": "i-1", "name": "box-0", "status": "RUNNING", "ssh_command": WAY}
CLUSTER = {"id": "c-000000000001", "name": "box", "status": "RUNNING", "instances": [INSTANCE]}


@pytest.fixture(autouse=True)
def valid_engine(engine):
    """This time it is not the engine that is strange."""
    engine.set_response("/user/info", ME)
    engine.set_response("/cluster/list", {"clusters": [CLUSTER], "next_cursor": None, "message": ""})
    engine.set_response("/cluster/info/box", {"cluster_info": CLUSTER, "message": ""})
    engine.set_response("/object-storage/configure/rclone", {"remote_name": "tp", "rclone_config": "[tp]\ntype = s3\n"})
    engine.set_response("/job/init", {"empty_tp_config": "commands = []\n", "message": None})


WRITING = [["login", "--stdin"], ["ssh-config"], ["object-storage", "configure", "rclone"], ["job", "init"]]


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_a_home_that_cannot_be_written(unprivileged_laptop, command):
    """The line names the file that cannot be written."""
    line = unprivileged_laptop.fails(1, *command, answer=f"{KEY}\n")
    assert str(unprivileged_laptop.home) in line or str(unprivileged_laptop.work) in line, line
    assert not any(unprivileged_laptop.home.rglob("*")) and not any(unprivileged_laptop.work.rglob("*"))


def test_logging_in_to_a_machine_needs_no_home_that_can_be_written(unprivileged_laptop):
    """Either `ssh` is started all the same, or the line says which file is in the way; the home stays as it is."""
    recorded = unprivileged_laptop.canary("ssh")
    recorded.touch(mode=0o666)
    recorded.chmod(0o666)
    said = unprivileged_laptop.run("ssh", "box")
    if said.code != 0:
        assert str(unprivileged_laptop.home) in error_line(said, 1)
    assert (said.code == 0) == bool(recorded.read_text()), said
    assert not any(unprivileged_laptop.home.rglob("*"))


def test_reading_needs_no_home_that_can_be_written(unprivileged_laptop):
    assert ME["email"] in unprivileged_laptop.works("me")


def test_a_home_that_cannot_be_entered(unprivileged_laptop):
    """Who brings engine and key along needs nothing from there."""
    unprivileged_laptop.home.chmod(0)
    assert ME["email"] in unprivileged_laptop.works("me")


def test_no_home(laptop):
    laptop.variables["HOME"] = "not/absolute"
    assert ME["email"] in laptop.works("me")
    for command in (["login", "--stdin"], ["ssh-config"], ["object-storage", "configure", "rclone"]):
        assert "HOME" in laptop.fails(1, *command, answer=f"{KEY}\n")
    assert not any(laptop.work.iterdir())
    # The system knows another one then, which is nothing that a test should write to.
    laptop.variables["HOME"] = ""
    assert ME["email"] in laptop.works("me")
    del laptop.variables["HOME"]
    assert ME["email"] in laptop.works("me")


def test_a_directory_that_is_gone(laptop):
    gone = laptop.work / "gone"
    gone.mkdir()
    process = laptop.start("me", cwd=gone, env=laptop.variables, preexec_fn=gone.rmdir)
    assert ME["email"] in finish(process).text


@pytest.mark.parametrize("key", ["a\nb", "a\r\nX-Evil: 1", "\x1b[2J", "a\x7fb"], ids=case_id)
def test_keys_that_are_none(laptop, engine, key):
    """They are not shown, and nothing is sent."""
    laptop.variables["TENSORPOOL_KEY"] = key
    line = laptop.fails(1, "me")
    assert "key" in line and key not in line and "tarn login" in line
    del laptop.variables["TENSORPOOL_KEY"]
    if "\n" not in key:
        laptop.fails(1, "login", "--stdin", answer=f"{key}\n")
    assert not engine.calls and not (laptop.configuration / "profiles.toml").exists()


def test_no_key(laptop, engine):
    for value in ("", None):
        laptop.variables["TENSORPOOL_KEY"] = value
        if value is None:
            del laptop.variables["TENSORPOOL_KEY"]
        line = laptop.fails(1, "me")
        assert "TENSORPOOL_KEY" in line and "tarn login" in line
    laptop.fails(2, "login", "--stdin", answer="")
    laptop.fails(2, "login", "--stdin", answer=" \n")
    assert not engine.calls


NO_ENVS = [
    b"", b"\xff\xfeTENSORPOOL_KEY=x\n", b"X=1\n" * 2_000_000, b"TENSORPOOL_KEY\n", b"TENSORPOOL_KEY=''\n", "directory",
    "dangling",
]  # fmt: skip


@pytest.mark.parametrize("content", NO_ENVS, ids=case_id)
def test_a_damaged_env(laptop, engine, content):
    """A file `.env` without a key is like none; the line says what to do."""
    del laptop.variables["TENSORPOOL_KEY"]
    if content == "directory":
        (laptop.work / ".env").mkdir()
    elif content == "dangling":
        (laptop.work / ".env").symlink_to("nowhere")
    else:
        (laptop.work / ".env").write_bytes(content)
    assert "TENSORPOOL_KEY" in laptop.fails(1, "me")
    assert not engine.calls
    laptop.variables["TENSORPOOL_KEY"] = KEY
    assert ME["email"] in laptop.works("me")


def test_an_env_that_never_ends(laptop):
    """One that is no file is not read: nobody would write to the other side of a pipe."""
    os.mkfifo(laptop.work / ".env")
    assert ME["email"] in laptop.works("me")
    del laptop.variables["TENSORPOOL_KEY"]
    laptop.fails(1, "me")


NO_PROFILES = [
    b"current = [", b"\xff\xfe", b"current = 7\n", b"[profiles.default]\nengine = 7\n",
    b'[profiles.default]\nengine = "http://127.0.0.1"\n', b"x" * 5_000_000, f'"{HOSTILE}'.encode(), "directory",
]  # fmt: skip


@pytest.mark.parametrize("content", NO_PROFILES, ids=case_id)
def test_damaged_profiles(laptop, engine, content):
    """The line names the file, which stays as it is: somebody may want to mend it."""
    path = laptop.configuration / "profiles.toml"
    path.parent.mkdir(parents=True)
    if content == "directory":
        path.mkdir()
    else:
        path.write_bytes(content)
    del laptop.variables["TENSORPOOL_KEY"]
    for said in (laptop.run("me"), laptop.run("login", "--stdin", answer=f"{KEY}\n")):
        assert not said.text and str(path) in error_line(said, said.code) and said.code in (1, 2)
    assert path.is_dir() or path.read_bytes() == content
    assert not engine.calls


def test_profiles_are_for_their_owner(laptop):
    """Also if somebody had opened them to others."""
    laptop.works("login", "--stdin", answer=f"{KEY}\n")
    path = laptop.configuration / "profiles.toml"
    path.chmod(0o666)
    laptop.works("login", "--stdin", "--profile", "other", answer=f"{KEY}\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in laptop.configuration.iterdir()] == ["profiles.toml"]


FOREIGN = [b"# caf\xe9\nHost x\n", b"# long\n" * 1_000_000, "directory"]


@pytest.mark.parametrize("content", FOREIGN, ids=case_id)
@pytest.mark.parametrize("file", [".ssh/config", ".config/rclone/rclone.conf", ".config/tarn/known_hosts"])
def test_files_of_others_that_are_not_understood_stay(laptop, file, content):
    """Either the rest of it is kept, byte for byte, or the line names it and nothing was changed."""
    path = laptop.home / file
    path.parent.mkdir(parents=True)
    if content == "directory":
        path.mkdir()
    else:
        path.write_bytes(content)
    said = laptop.run(*(["object-storage", "configure", "rclone"] if "rclone" in file else ["ssh-config"]))
    if said.code == 0:
        assert path.is_file() and content.strip() in path.read_bytes()
    else:
        assert not said.text and str(path) in error_line(said, said.code)
        assert path.is_dir() or path.read_bytes() == content
    assert not [each for each in path.parent.iterdir() if "new" in each.name], "nothing half is left"


def test_a_profile_that_is_not_there(laptop, engine):
    for name in ("work", f"a\n{HOSTILE}"):
        assert "tarn login" in laptop.fails(3, "me", "--profile", name)
    assert not engine.calls


def test_a_login_that_is_refused_keeps_nothing(laptop, engine):
    for status in (401, 500):
        engine.set_response("/user/info", {"message": "no"}, status=status)
        laptop.fails(1, "login", "--stdin", answer=f"{KEY}\n")
    engine.set_response("/user/info", "<html>Welcome</html>", kind="text/html")
    laptop.fails(1, "login", "--stdin", answer=f"{KEY}\n")
    assert not any(laptop.home.iterdir())


def test_the_key_of_a_profile_is_for_its_engine(laptop, engine, other_server):
    """Another engine on the command line or in the environment does not get what was kept for this one."""
    laptop.works("login", "--stdin", answer=f"{KEY}\n")
    del laptop.variables["TENSORPOOL_KEY"], laptop.variables["TENSORPOOL_ENGINE"]
    assert ME["email"] in laptop.works("me")
    assert ME["email"] in laptop.works("me", "--engine", engine.url + "/")
    laptop.fails(1, "me", "--engine", other_server.url)
    laptop.variables["TENSORPOOL_ENGINE"] = other_server.url
    laptop.fails(1, "me")


NO_ADDRESSES = [
    "", "   ", "127.0.0.1:7070", "localhost", "ftp://127.0.0.1", "http://", "https:///x", "http://a b", "http://[::1",
    "http://127.0.0.1:99999", "javascript:1", f"http://{HOSTILE}", "http://a\nb", "unix:/run/x", "-x",
]  # fmt: skip


@pytest.mark.parametrize("address", NO_ADDRESSES, ids=case_id)
def test_addresses_that_are_none(laptop, engine, address):
    """They are refused as what they are: no engine has to be looked for."""
    if address.strip():
        laptop.variables["TENSORPOOL_ENGINE"] = address
        laptop.fails(2, "me")
    laptop.fails(2, "me", f"--engine={address}")
    laptop.fails(2, "login", "--stdin", f"--engine={address}", answer=f"{KEY}\n")
    assert not engine.calls and not any(laptop.home.iterdir())


def test_an_address_with_more(laptop, engine):
    """Below a path an engine is found, with any number of slashes behind it; a password is not for the screen."""
    engine.set_response("/cloud/user/info", ME)
    for path in ("/cloud", "/cloud/", "/cloud//"):
        laptop.variables["TENSORPOOL_ENGINE"] = engine.url + path
        assert ME["email"] in laptop.works("me")
    for address in (engine.url.replace("://", "://someone:do-not-show@"), "http://someone:do-not-show@127.0.0.1:1"):
        laptop.variables["TENSORPOOL_ENGINE"] = address
        said = laptop.run("me")
        assert "do-not-show" not in said.text + said.errors, said
        assert said.code == 0 or error_line(said, said.code)


@pytest.mark.parametrize("more", ["?x=1", "#x", "/?x=1#y"])
def test_an_address_with_a_question(laptop, engine, more):
    laptop.variables["TENSORPOOL_ENGINE"] = engine.url + more
    laptop.fails(2, "me")
    assert not engine.calls


def test_who_leaves_the_question_for_the_key_has_his_terminal_back(laptop):
    """What is typed is not shown while it is asked for, and is again after Ctrl-C."""
    with Terminal(laptop, "login") as terminal:
        eventually(lambda: "API key" in terminal.read(), what="the question")
        eventually(lambda: not terminal.echoes(), what="a terminal that shows nothing")
        terminal.type("\x03")
        code, written = terminal.end()
        assert code in (130, -signal.SIGINT), written
        assert terminal.echoes()


def test_who_leaves_the_pipe_for_the_key(laptop):
    process = laptop.start("login", "--stdin", stdin=subprocess.PIPE)
    # It listens for signals before it reads.
    eventually(lambda: b"SigCgt" in status(process) and caught(process, signal.SIGINT), what="a client that listens")
    process.send_signal(signal.SIGINT)
    # Only then is the pipe closed: its end would be an answer, too.
    process.wait(SECONDS)
    assert finish(process).code == 130


def status(process) -> bytes:
    return Path(f"/proc/{process.pid}/status").read_bytes()


def caught(process, kind) -> bool:
    """Whether a process has something to do when it gets this signal."""
    mask = next(line for line in status(process).decode().splitlines() if line.startswith("SigCgt:")).split()[1]
    return bool(int(mask, 16) >> (kind - 1) & 1)


def test_what_is_to_be_ignored_stays_so(laptop, engine):
    """`nohup tarn …` goes on when its terminal is closed."""
    engine.set_handler("*", lambda connection: engine.stopped.wait(SECONDS))
    process = laptop.start("me", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    eventually(lambda: engine.calls, what="the question")
    assert caught(process, signal.SIGINT) and not caught(process, signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    finish(process)
