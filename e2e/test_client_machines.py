"""Our own client on real machines: `ssh`, `cp`, `ssh-config` and what it makes possible, and `cluster create --ssh`."""

import os
import shutil
import stat
import subprocess

import pytest

from client import Client
from machines import Machines, needs_root
from support import ENVIRONMENT, eventually

MISSING = [program for program in ("ssh", "ssh-agent", "scp", "sftp", "rsync") if not shutil.which(program)]
pytestmark = [needs_root, pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}")]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One cloud with a cluster of two machines for the whole file."""
    with Machines(tmp_path_factory.mktemp("client-machines")) as running:
        running.create("box", nodes=2)
        yield running


@pytest.fixture(scope="module")
def agent(server, tmp_path_factory):
    """The socket of an agent that holds the person's key: OpenSSH looks for keys in the home of the account, wherever HOME is."""
    socket = tmp_path_factory.mktemp("agent") / "socket"
    command = ["setpriv", "--pdeathsig", "KILL", "ssh-agent", "-D", "-a", str(socket)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        # Its socket is there a moment before anybody listens.
        add, told = ["ssh-add", "-q", str(server.identity)], ENVIRONMENT | {"SSH_AUTH_SOCK": str(socket)}
        eventually(lambda: subprocess.run(add, env=told, stderr=subprocess.DEVNULL).returncode == 0, what="the agent")
        yield socket
    finally:
        process.kill()
        process.wait()


@pytest.fixture
def tarn(server, agent, tmp_path) -> Client:
    """Our client, of somebody who has an agent."""
    return Client(server, tmp_path / "our-home", SSH_AUTH_SOCK=agent)


def test_ssh_by_every_name(tarn, server):
    cluster = server.info("box")
    first, second = cluster["instances"]
    names = {"box": first, cluster["id"]: first, first["id"]: first, second["id"]: second, second["name"]: second}
    for name, machine in names.items():
        assert tarn(f"ssh {name} hostname").text.strip() == machine["name"]
    assert tarn.json("ssh box") == first
    assert tarn.json(f"ssh {second['name']} hostname") == second, "nobody logs in"
    known = tarn.home / ".config/tarn/known_hosts"
    assert len(known.read_text().splitlines()) == 1 and stat.S_IMODE(known.stat().st_mode) == 0o600


def test_ctrl_c_ends_a_copy(tarn, server):
    with open(tarn.home / "big", "wb") as file:
        file.truncate(1 << 30)
    with tarn.terminal("cp big box:") as terminal:
        terminal.until("%")
        terminal.type("\x03")
        assert "not everything was copied" in terminal.ends(130)
    server.ssh("box", "rm", "-f", "big")


def test_what_runs_there_ends_here(tarn):
    assert tarn("ssh box exit 7", code=7, loud=True).text == ""
    said = tarn("ssh box", "echo out; echo err >&2", loud=True)
    assert (said.text, said.errors) == ("out\n", "err\n")
    assert tarn("ssh box cat", answer="in and out").text == "in and out"
    assert tarn("ssh box -o LogLevel=ERROR -- echo", "-n", "--json", "'two  words'").text == "--json two  words"
    assert tarn("ssh box -o SetEnv=LC_TARN=hello", "echo $LC_TARN").text.strip() == "hello"


def test_a_shell_at_a_terminal(tarn, server):
    with tarn.terminal("ssh box") as terminal:
        terminal.type("echo $((6 * 7)) $(hostname); exit 5\n")
        terminal.until(f"42 {server.info('box')['instances'][0]['name']}")
        terminal.ends(5)


def test_who_cannot_come_in(tarn, server, user):
    assert "no cluster or instance" in tarn("ssh nobody", code=3).errors
    assert tarn.json("ssh nobody", code=3)["message"]
    stranger = user("stranger@example.com", "elsewhere")
    tarn("ssh box true", key=stranger, code=3)
    tarn(f"ssh {server.info('box')['id']} true", key=stranger, code=1)
    gone = server.create("gone")
    server.destroy(gone["id"])
    tarn("ssh gone true", code=3)
    said = tarn(f"ssh {gone['id']} true", code=1).errors
    assert "DESTROYED" in said or "RUNNING" in said
    assert tarn("ssh box true", SSH_AUTH_SOCK=None, code=255, loud=True).errors, "OpenSSH says that no key fits"
    # It is said which program is missing.
    assert "ssh is not installed" in tarn("ssh box true", code=1, PATH="/nonexistent").errors


def test_a_changed_host_key_is_taken_from_the_engine(tarn):
    tarn("ssh box true")
    known = tarn.home / ".config/tarn/known_hosts"
    alias, kind, _ = known.read_text().split()
    changed = "AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 43
    known.write_text(f"other ssh-ed25519 AAAA\n{alias} {kind} {changed}\n")
    tarn("ssh box true")
    assert known.read_text().startswith("other ssh-ed25519 AAAA\n") and len(known.read_text().splitlines()) == 2


def test_copies_both_ways(tarn, tmp_path):
    tree = tarn.home / "tree"
    (tree / "deep").mkdir(parents=True)
    (tree / "deep/leaf with space").write_bytes(content := os.urandom(300_000))
    (tarn.home / "a:b").write_text("colon")
    assert tarn("cp tree box:copied").text == ""
    assert "leaf with space" in tarn("ssh box ls copied/deep").text
    tarn("cp ./a:b tree/deep box:", loud=True)
    assert tarn("ssh box cat a:b").text == "colon"
    tarn("cp box:copied", tmp_path / "back")
    assert (tmp_path / "back/deep/leaf with space").read_bytes() == content
    (tarn.home / "into").mkdir()
    tarn("cp", "box:copied/deep/leaf with space", "box:a:b", "into")
    assert (tarn.home / "into/leaf with space").read_bytes() == content and (tarn.home / "into/a:b").read_text() == "colon"
    assert tarn.json("cp ./a:b box:again")["message"]


def test_copies_that_are_refused(tarn, server):
    assert "NAME:PATH" in tarn("cp here there", code=2).errors
    second = server.info("box")["instances"][1]["name"]
    assert "one side must be local" in tarn(f"cp box:x {second}:y", code=2).errors
    tarn(f"cp box:x {second}:y .", code=2)
    said = tarn("cp box:absent .", code=1).errors
    assert "absent" in said and said.splitlines()[-1].startswith("tarn: ")
    tarn("cp absent box:", code=1)
    tarn("cp nobody:x .", code=3)
    assert tarn.json("cp box:absent .", code=1)["message"]


def test_progress_of_a_copy_at_a_terminal(tarn):
    (tarn.home / "large").write_bytes(os.urandom(5 << 20))
    with tarn.terminal("cp large box:") as terminal:
        assert "100%" in terminal.ends()


@pytest.fixture
def configured(tarn):
    """Runs a program of OpenSSH's family with the configuration that our client wrote."""
    config = tarn.home / ".ssh/config"
    config.parent.mkdir(mode=0o700)
    config.write_text("Host elsewhere\n    User somebody\n")
    said = tarn("ssh-config").text
    assert "box" in said
    assert config.read_text().endswith("Host elsewhere\n    User somebody\n") and config.read_text().startswith("Include ")

    def run(program, *arguments, answer=None, code=0) -> str:
        done = subprocess.run(
            [program, *map(str, arguments)], env=tarn.environment(), cwd=tarn.home, input=answer,
            capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == code, done
        return done.stdout

    run.config = config
    return run


def test_plain_ssh_knows_the_machines(tarn, server, configured):
    cluster = server.info("box")
    first, second = cluster["instances"]
    names = {"box": first, "box-0": first, "box-1": second, first["name"]: first, second["name"]: second, second["id"]: second}
    for name, machine in names.items():
        assert configured("ssh", "-F", configured.config, "-o", "BatchMode=yes", name, "hostname").strip() == machine["name"]
    configured("ssh", "-F", configured.config, "box", "exit 9", code=9)
    (tarn.home / "file").write_text("hello")
    configured("scp", "-F", configured.config, "file", "box:by-scp")
    configured("scp", "-F", configured.config, "box:by-scp", "back")
    assert (tarn.home / "back").read_text() == "hello"
    configured("sftp", "-F", configured.config, "-b", "-", "box-1", answer="put file by-sftp\n")
    assert configured("ssh", "-F", configured.config, "box-1", "cat by-sftp") == "hello"
    configured("rsync", "-a", "-e", f"ssh -F {configured.config}", f"{tarn.home}/file", "box:by-rsync")
    assert configured("ssh", "-F", configured.config, "box", "cat by-rsync") == "hello"


def test_ssh_config_follows_what_there_is(tarn, server, configured):
    before = configured.config.read_text()
    assert "late" not in tarn("ssh-config --print").text
    late = server.create("late")
    printed = tarn("ssh-config --print").text
    assert "Host late late-0" in printed and "late" not in (tarn.home / ".config/tarn/ssh_config").read_text()
    body = tarn.json("ssh-config")
    assert {"box", "late"} <= set(body["hosts"]) and body["ssh_config"].strip() == printed.strip()
    assert configured("ssh", "-F", configured.config, "late", "hostname").strip() == late["instances"][0]["name"]
    assert configured.config.read_text() == before, "it is included once"
    server.destroy(late["id"])
    tarn("ssh-config")
    assert "late" not in (tarn.home / ".config/tarn/ssh_config").read_text()
    assert stat.S_IMODE((tarn.home / ".config/tarn/ssh_config").stat().st_mode) == 0o600


def test_a_home_with_a_space_in_it(server, agent, tmp_path):
    tarn = Client(server, tmp_path / "a home", SSH_AUTH_SOCK=agent)
    assert tarn("ssh box echo hello").text == "hello\n"
    (tarn.home / "a file").write_text("content")
    tarn("cp", "a file", "box:a file")
    tarn("cp", "box:a file", tarn.home / "another file")
    assert (tarn.home / "another file").read_text() == "content"
    tarn("ssh-config")
    command = ["ssh", "-F", str(tarn.home / ".ssh/config"), "box", "echo hello"]
    done = subprocess.run(command, env=tarn.environment(), capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, "hello\n"), done


def test_a_home_without_ssh_gets_it(tarn):
    tarn("ssh-config")
    config = tarn.home / ".ssh/config"
    assert stat.S_IMODE(config.parent.stat().st_mode) == 0o700 and stat.S_IMODE(config.stat().st_mode) & 0o022 == 0
    assert config.read_text() == f'Include "{tarn.home}/.config/tarn/ssh_config"\n'


def test_from_nothing_to_a_shell(tarn, server):
    public = server.identity.with_suffix(".pub")
    said = tarn(f"cluster create tiny -i {public} --name fresh --ssh", answer="hostname\nexit 6\n", code=6, loud=True)
    assert said.text.strip() == server.info("fresh")["instances"][0]["name"]
    with tarn.terminal(f"cluster create tiny -i {public} --name second --ssh") as terminal:
        terminal.until("is being created")
        terminal.type("echo here $((1 + 1)); exit\n")
        terminal.until("here 2")
        terminal.ends(0)
    assert server.info("second")["status"] == "RUNNING", "who logs out keeps the cluster"
    tarn("cluster create 9xUNICORN --ssh", code=2)
    assert "--json" in tarn.json("cluster create tiny --ssh", code=2)["message"]
    for name in ("fresh", "second"):
        server.destroy(server.info(name)["id"])
