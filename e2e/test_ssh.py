"""OpenSSH's own programs through the gateway, without a jump host or configuration."""

import hashlib
import os
import socket
import subprocess
import threading

import pytest

from instances import Instances, make_identity, needs_root
from support import ENVIRONMENT, eventually, free_port

pytestmark = needs_root
HOST = "box@127.0.0.1"


@pytest.fixture(scope="module")
def cloud(tmp_path_factory):
    """One engine with one instance for the whole file."""
    with Instances(tmp_path_factory.mktemp("ssh")) as running:
        running.create("box", kind="1xCPU")
        yield running


def run(cloud, program, *arguments, answer=None, code=0, seconds=120):
    """Runs an OpenSSH program with the options of this engine."""
    done = subprocess.run(
        [program, *cloud.options(), *map(str, arguments)], input=answer, env=ENVIRONMENT,
        capture_output=True, timeout=seconds,
    )  # fmt: skip
    assert code in (None, done.returncode), f"{program} {arguments}: {done}"
    return done


def checksum(path) -> str:
    """The checksum of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def large(tmp_path):
    """A file of some megabytes without repetitions."""
    path = tmp_path / "large"
    path.write_bytes(os.urandom(20 << 20))
    return path


def test_commands_keep_streams_and_exit_code(cloud):
    """Commands keep their streams, exit codes and environment."""
    assert cloud.ssh("box", "exit 7", code=7).code == 7
    assert cloud.ssh("box", "kill -TERM $$", code=None).code == 255, "OpenSSH exits with 255 for a signal"
    split = cloud.ssh("box", "echo out; echo err >&2")
    assert (split.out, split.errors) == ("out\n", "err\n")
    assert cloud.ssh("box", "cat", answer="in and out").out == "in and out"
    assert cloud.ssh("box", "wc -c", answer="x" * 3_000_000).out.strip() == "3000000"
    assert len(cloud.ssh("box", "head -c 30000000 /dev/zero | tr '\\0' x").out) == 30_000_000
    assert cloud.ssh("box", "echo $TERM", options=["-tt"]).out.strip()
    assert cloud.ssh("box", "echo $LC_TARN", options=["-o", "SetEnv=LC_TARN=hello"]).out.strip() == "hello"


def test_terminal_is_allocated(cloud):
    """A terminal is allocated on request."""
    assert cloud.ssh("box", "stty size < /dev/tty", options=["-tt"]).out.split() == ["0", "0"]
    assert cloud.ssh("box", "test -t 0 && test -t 1 && tty", options=["-tt"]).out.startswith("/dev/pts/")


@pytest.mark.parametrize("protocol", [[], ["-O"]], ids=["sftp", "legacy"])
def test_scp_copies_both_ways(cloud, large, tmp_path, protocol):
    """scp copies files and directories both ways."""
    run(cloud, "scp", *protocol, "-p", large, f"{HOST}:there")
    run(cloud, "scp", *protocol, "-p", f"{HOST}:there", tmp_path / "back")
    assert checksum(large) == checksum(tmp_path / "back")
    (tmp_path / "tree/deep").mkdir(parents=True)
    (tmp_path / "tree/deep/leaf").write_text("leaf")
    run(cloud, "scp", *protocol, "-r", tmp_path / "tree", f"{HOST}:")
    assert cloud.ssh("box", "cat tree/deep/leaf; rm -r tree there").out == "leaf"
    assert run(cloud, "scp", *protocol, f"{HOST}:absent", tmp_path, code=None).returncode != 0


def test_sftp_commands_work(cloud, large):
    """The commands of sftp work."""
    batch = f"""
put {large} one
rename one two
symlink two link
chmod 600 two
mkdir dir
ls -l
cd dir
put {large} three
rename three ../four
ln ../four five
cd ..
rm link
df
"""
    said = run(cloud, "sftp", "-b", "-", HOST, answer=batch.encode()).stdout.decode()
    assert "two" in said
    facts = cloud.ssh("box", "stat -c '%a %s' two; sha256sum < four; stat -c %h dir/five; ls link; rm -r dir two four", code=None)
    assert facts.out.splitlines()[0] == f"600 {large.stat().st_size}"
    assert facts.out.split()[2] == checksum(large)
    assert "2" in facts.out.splitlines()[2]
    assert "link" in facts.errors


def test_rsync_copies_changes(cloud, tmp_path):
    """rsync copies a tree and its changes."""
    source = tmp_path / "source"
    source.mkdir()
    for number in range(50):
        (source / f"file {number}").write_text(str(number) * number)
    shell = " ".join(["ssh", *cloud.options()])
    for changed in ("first", "second"):
        (source / "file 1").write_text(changed)
        done = subprocess.run(["rsync", "-a", "--delete", "-e", shell, f"{source}/", f"{HOST}:copy/"], env=ENVIRONMENT, timeout=120)
        assert done.returncode == 0
    assert cloud.ssh("box", "ls copy | wc -l; cat 'copy/file 1'; rm -r copy").out.split() == ["50", "second"]


def test_local_forwarding_works(cloud):
    """`ssh -L` reaches a port inside."""
    port = free_port()
    cloud.ssh("box", "nohup python3 -c \"import socket; s = socket.create_server(('127.0.0.1', 9000))\nwhile True:\n  c, _ = s.accept(); c.sendall(b'from inside:' + c.recv(100)); c.close()\" >/dev/null 2>&1 & echo ok")
    tunnel = subprocess.Popen(["ssh", *cloud.options(), "-N", "-L", f"127.0.0.1:{port}:localhost:9000", HOST], env=ENVIRONMENT)
    try:
        assert eventually(lambda: call_port(port) == b"from inside:hello", what="a response through the tunnel")
    finally:
        tunnel.terminate()
        tunnel.wait()


def call_port(port: int) -> bytes:
    """The response at a port."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.sendall(b"hello")
            return connection.makefile("rb").read()
    except OSError:
        return b""


def test_remote_forwarding_works(cloud):
    """`ssh -R` reaches a port outside."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        outside = server.getsockname()[1]

        def answer():
            connection, _ = server.accept()
            with connection:
                connection.sendall(b"from outside:" + connection.recv(100))

        threading.Thread(target=answer, daemon=True).start()
        reach = "import socket; c = socket.create_connection(('127.0.0.1', 9100)); c.sendall(b'hi'); print(c.makefile().read())"
        said = cloud.ssh("box", f'python3 -c "{reach}"', options=["-R", f"9100:127.0.0.1:{outside}"])
        assert said.out.strip() == "from outside:hi"


def test_agent_is_forwarded(cloud, tmp_path):
    """The SSH agent is forwarded."""
    agent = subprocess.run(["ssh-agent", "-s", "-a", str(tmp_path / "agent")], env=ENVIRONMENT, capture_output=True, text=True, check=True)
    pid = int(agent.stdout.split("SSH_AGENT_PID=")[1].split(";")[0])
    try:
        environment = ENVIRONMENT | {"SSH_AUTH_SOCK": str(tmp_path / "agent")}
        subprocess.run(["ssh-add", "-q", str(cloud.identity)], env=environment, check=True)
        options = [option for option in cloud.options() if option != "IdentityAgent=none"]
        options = [option for at, option in enumerate(options) if not (option == "-o" and options[at + 1 : at + 2] == ["-o"])]
        done = subprocess.run(["ssh", *options, "-A", HOST, "ssh-add -l"], env=environment, capture_output=True, text=True, timeout=60)
        assert "ED25519" in done.stdout, done
    finally:
        os.kill(pid, 15)


def test_connection_carries_many_sessions(cloud, tmp_path):
    """One connection carries many sessions."""
    shared = ["-o", f"ControlPath={tmp_path}/control", "-o", "ControlMaster=auto", "-o", "ControlPersist=20"]
    assert cloud.ssh("box", "echo first", options=shared).out == "first\n"
    several = [subprocess.Popen(["ssh", *cloud.options(), *shared, HOST, f"sleep 0.2; echo {n}"], env=ENVIRONMENT, stdout=subprocess.PIPE) for n in range(8)]
    assert [int(one.communicate(timeout=60)[0]) for one in several] == list(range(8))
    cloud.ssh("box", options=[*shared, "-O", "exit"], code=None)


def test_api_ssh_command_logs_in(cloud, tmp_path):
    """The command that the API returns logs in without further configuration."""
    import shlex

    instance = cloud.info("box")["instances"][0]["id"]
    command = shlex.split(cloud.call("GET", f"/ssh/{instance}", expect=200).json()["command"])
    assert "StrictHostKeyChecking=yes" in " ".join(command)
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True, mode=0o700)
    done = subprocess.run(
        [*command, "-i", str(cloud.identity), "hostname"], env=ENVIRONMENT | {"HOME": str(home)},
        capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60,
    )  # fmt: skip
    assert done.stdout.strip() == cloud.info("box")["instances"][0]["name"], done


def test_session_and_forward_end_with_the_key(cloud, tmp_path):
    """An open session and its forwarded port end when the key is removed, other sessions go on, and an event says why."""
    identity = make_identity(tmp_path / "other")
    body = {"public_key": identity.with_suffix(".pub").read_text(), "name": "other"}
    key = cloud.call("POST", "/user/ssh-key/add", json=body, expect=200).json()["key_id"]
    options = [str(identity) if option == str(cloud.identity) else option for option in cloud.options()]
    eventually(lambda: run_quietly(["ssh", *options, HOST, "true"]) == 0, what="a login with the new key")
    with socket.create_server(("127.0.0.1", 0)) as server:
        forward = f"9200:127.0.0.1:{server.getsockname()[1]}"
        command = "echo open; exec sleep 600"
        line = ["ssh", *options, "-o", "ExitOnForwardFailure=yes", "-R", forward, HOST, command]
        session = subprocess.Popen(line, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        other = subprocess.Popen(["ssh", *cloud.options(), HOST, command], env=ENVIRONMENT, stdout=subprocess.PIPE)
        try:
            assert session.stdout.readline() == other.stdout.readline() == b"open\n"
            listens = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 9200))\""
            cloud.ssh("box", listens)
            cloud.call("DELETE", f"/user/ssh-key/remove/{key}", expect=200)
            # Seconds are promised; the deadline is for a busy host.
            assert session.wait(timeout=60) == 255
            eventually(lambda: cloud.ssh("box", listens, code=None).code != 0, what="the end of the forwarded port")
            assert other.poll() is None, "the session of another key goes on"
        finally:
            for each in (session, other):
                each.kill()
                each.wait()
    events = lambda: cloud.call("GET", "/admin/event/list?limit=1000", expect=200).json()["events"]  # noqa: E731
    # The session does not wait for its event.
    (ended,) = eventually(lambda: [event for event in events() if event["verb"] == "ssh.end"], what="the event")
    assert ended["detail"]["reason"] == "the SSH key was removed" and ended["address"] == "127.0.0.1"
    assert run_quietly(["ssh", *options, HOST, "true"]) == 255


def run_quietly(command) -> int:
    """The exit code of a command."""
    return subprocess.run(command, env=ENVIRONMENT, capture_output=True, stdin=subprocess.DEVNULL, timeout=60).returncode
