"""The client's files: homes that are not writable, damaged files, invalid keys and addresses."""

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
    """An engine with valid responses."""
    engine.set_response("/user/info", ME)
    engine.set_response("/cluster/list", {"clusters": [CLUSTER], "next_cursor": None, "message": ""})
    engine.set_response("/cluster/info/box", {"cluster_info": CLUSTER, "message": ""})
    engine.set_response("/object-storage/configure/rclone", {"remote_name": "tp", "rclone_config": "[tp]\ntype = s3\n"})
    engine.set_response("/job/init", {"empty_tp_config": "commands = []\n", "message": None})


WRITING = [["login", "--stdin"], ["ssh-config"], ["object-storage", "configure", "rclone"], ["job", "init"]]


@pytest.mark.parametrize("command", WRITING, ids=" ".join)
def test_unwritable_home_is_named(unprivileged_laptop, command):
    """The error names the file that cannot be written."""
    line = unprivileged_laptop.fails(1, *command, answer=f"{KEY}\n")
    assert str(unprivileged_laptop.home) in line or str(unprivileged_laptop.work) in line, line
    assert not any(unprivileged_laptop.home.rglob("*")) and not any(unprivileged_laptop.work.rglob("*"))


def test_ssh_with_unwritable_home(unprivileged_laptop):
    """`tarn ssh` starts `ssh` or names the file in the way, and changes nothing in the home."""
    recorded = unprivileged_laptop.canary("ssh")
    recorded.touch(mode=0o666)
    recorded.chmod(0o666)
    said = unprivileged_laptop.run("ssh", "box")
    if said.code != 0:
        assert str(unprivileged_laptop.home) in error_line(said, 1)
    assert (said.code == 0) == bool(recorded.read_text()), said
    assert not any(unprivileged_laptop.home.rglob("*"))


def test_reading_works_with_unwritable_home(unprivileged_laptop):
    """Commands that only read need no writable home."""
    assert ME["email"] in unprivileged_laptop.works("me")


def test_engine_and_key_need_no_home(unprivileged_laptop):
    """With engine and key in the environment the client needs nothing from the home."""
    unprivileged_laptop.home.chmod(0)
    assert ME["email"] in unprivileged_laptop.works("me")


def test_missing_home_is_reported(laptop):
    """Without a usable `HOME` reading works, and writing says what is missing."""
    laptop.variables["HOME"] = "not/absolute"
    assert ME["email"] in laptop.works("me")
    for command in (["login", "--stdin"], ["ssh-config"], ["object-storage", "configure", "rclone"]):
        assert "HOME" in laptop.fails(1, *command, answer=f"{KEY}\n")
    assert not any(laptop.work.iterdir())
    # The client then uses the home from the user database, which a test should not write to.
    laptop.variables["HOME"] = ""
    assert ME["email"] in laptop.works("me")
    del laptop.variables["HOME"]
    assert ME["email"] in laptop.works("me")


def test_removed_working_directory_is_tolerated(laptop):
    """The client works in a directory that was removed."""
    gone = laptop.work / "gone"
    gone.mkdir()
    process = laptop.start("me", cwd=gone, env=laptop.variables, preexec_fn=gone.rmdir)
    assert ME["email"] in finish(process).text


@pytest.mark.parametrize("key", ["a\nb", "a\r\nX-Evil: 1", "\x1b[2J", "a\x7fb"], ids=case_id)
def test_malformed_keys_are_refused(laptop, engine, key):
    """Malformed keys are not shown and not sent."""
    laptop.variables["TENSORPOOL_KEY"] = key
    line = laptop.fails(1, "me")
    assert "key" in line and key not in line and "tarn login" in line
    del laptop.variables["TENSORPOOL_KEY"]
    if "\n" not in key:
        laptop.fails(1, "login", "--stdin", answer=f"{key}\n")
    assert not engine.calls and not (laptop.configuration / "profiles.toml").exists()


def test_missing_key_is_reported(laptop, engine):
    """Without a key the error says how to give one, and nothing is sent."""
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
def test_env_without_key_counts_as_none(laptop, engine, content):
    """A `.env` without a usable key counts as none, and the error says what to do."""
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


def test_env_that_is_a_pipe_is_not_read(laptop):
    """A `.env` that is no regular file is not read: reading a pipe would block."""
    os.mkfifo(laptop.work / ".env")
    assert ME["email"] in laptop.works("me")
    del laptop.variables["TENSORPOOL_KEY"]
    laptop.fails(1, "me")


NO_PROFILES = [
    b"current = [", b"\xff\xfe", b"current = 7\n", b"[profiles.default]\nengine = 7\n",
    b'[profiles.default]\nengine = "http://127.0.0.1"\n', b"x" * 5_000_000, f'"{HOSTILE}'.encode(), "directory",
]  # fmt: skip


@pytest.mark.parametrize("content", NO_PROFILES, ids=case_id)
def test_damaged_profiles_are_named_and_kept(laptop, engine, content):
    """The error names the damaged profiles file, which is left for the user to repair."""
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


def test_profiles_become_private_again(laptop):
    """A login makes the profiles file private again, also after its mode was opened."""
    laptop.works("login", "--stdin", answer=f"{KEY}\n")
    path = laptop.configuration / "profiles.toml"
    path.chmod(0o666)
    laptop.works("login", "--stdin", "--profile", "other", answer=f"{KEY}\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in laptop.configuration.iterdir()] == ["profiles.toml"]


FOREIGN = [b"# caf\xe9\nHost x\n", b"# long\n" * 1_000_000, "directory"]


@pytest.mark.parametrize("content", FOREIGN, ids=case_id)
@pytest.mark.parametrize("file", [".ssh/config", ".config/rclone/rclone.conf", ".config/tarn/known_hosts"])
def test_foreign_files_are_kept(laptop, file, content):
    """The rest of another program's file is kept byte for byte, or the error names it and nothing changes."""
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
    assert not [each for each in path.parent.iterdir() if "new" in each.name], "no partial file is left"


def test_unknown_profile_is_refused(laptop, engine):
    """An unknown profile is refused, and nothing is sent."""
    for name in ("work", f"a\n{HOSTILE}"):
        assert "tarn login" in laptop.fails(3, "me", "--profile", name)
    assert not engine.calls


def test_refused_login_stores_nothing(laptop, engine):
    """A refused login stores nothing."""
    for status in (401, 500):
        engine.set_response("/user/info", {"message": "no"}, status=status)
        laptop.fails(1, "login", "--stdin", answer=f"{KEY}\n")
    engine.set_response("/user/info", "<html>Welcome</html>", kind="text/html")
    laptop.fails(1, "login", "--stdin", answer=f"{KEY}\n")
    assert not any(laptop.home.iterdir())


def test_profile_key_goes_only_to_its_engine(laptop, engine, other_server):
    """The key of a profile is not sent to another engine from the command line or the environment."""
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
def test_invalid_engine_addresses_are_refused(laptop, engine, address):
    """Invalid engine addresses are refused before any engine is called."""
    if address.strip():
        laptop.variables["TENSORPOOL_ENGINE"] = address
        laptop.fails(2, "me")
    laptop.fails(2, "me", f"--engine={address}")
    laptop.fails(2, "login", "--stdin", f"--engine={address}", answer=f"{KEY}\n")
    assert not engine.calls and not any(laptop.home.iterdir())


def test_address_with_path_or_password(laptop, engine):
    """An address may have a path and trailing slashes; a password in it is never shown."""
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
def test_address_with_query_is_refused(laptop, engine, more):
    """An address with a query or a fragment is refused."""
    laptop.variables["TENSORPOOL_ENGINE"] = engine.url + more
    laptop.fails(2, "me")
    assert not engine.calls


def test_ctrl_c_at_key_prompt_restores_echo(laptop):
    """Typing is not echoed at the key prompt, and is echoed again after Ctrl-C."""
    with Terminal(laptop, "login") as terminal:
        eventually(lambda: "API key" in terminal.read(), what="the prompt")
        eventually(lambda: not terminal.echoes(), what="a terminal without echo")
        terminal.type("\x03")
        code, written = terminal.end()
        assert code in (130, -signal.SIGINT), written
        assert terminal.echoes()


def test_ctrl_c_ends_key_from_pipe(laptop):
    """Ctrl-C ends `login --stdin` while it waits for the key."""
    process = laptop.start("login", "--stdin", stdin=subprocess.PIPE)
    # The client handles signals before it reads.
    eventually(lambda: b"SigCgt" in process_status(process) and handles_signal(process, signal.SIGINT), what="a client that handles signals")
    process.send_signal(signal.SIGINT)
    # The pipe is closed only then: its end would be input, too.
    process.wait(SECONDS)
    assert finish(process).code == 130


def process_status(process) -> bytes:
    return Path(f"/proc/{process.pid}/status").read_bytes()


def handles_signal(process, kind) -> bool:
    """Whether a process handles this signal."""
    mask = next(line for line in process_status(process).decode().splitlines() if line.startswith("SigCgt:")).split()[1]
    return bool(int(mask, 16) >> (kind - 1) & 1)


def test_ignored_signal_stays_ignored(laptop, engine):
    """A signal that is ignored at the start stays ignored: `nohup tarn …` survives its terminal."""
    engine.set_handler("*", lambda connection: engine.stopped.wait(SECONDS))
    process = laptop.start("me", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN))
    eventually(lambda: engine.calls, what="the call")
    assert handles_signal(process, signal.SIGINT) and not handles_signal(process, signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    finish(process)
