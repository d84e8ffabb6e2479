"""Engines that try to run a command on the user's computer, at once or later through another program: nothing is
run."""

import configparser
import re
import shutil
import subprocess

import pytest

from stub_engine import HOSTILE, case_id, engine, laptop  # noqa: F401

PAYLOAD = "touch pwned"
REFUSED = [
    f"{PAYLOAD}", f"sh -c '{PAYLOAD}'", "/tmp/ssh i-1@127.0.0.1", "./ssh i-1@127.0.0.1", "", " ", "ssh", "ssh ",
    f"ssh i-1@127.0.0.1; {PAYLOAD}", f"ssh i-1@127.0.0.1 && {PAYLOAD}", f"ssh i-1@127.0.0.1 | {PAYLOAD}",
    f"ssh `{PAYLOAD}`@127.0.0.1", f"ssh $({PAYLOAD})@127.0.0.1", f"ssh i-1@127.0.0.1\n{PAYLOAD}",
    f"ssh i-1@127.0.0.1 {PAYLOAD}", "ssh i-1@127.0.0.1 -- id", f"ssh -oProxyCommand='{PAYLOAD}' i-1@127.0.0.1",
    f'ssh "-oProxyCommand={PAYLOAD}" i-1@127.0.0.1', f'ssh "-oProxyCommand={PAYLOAD}"', "ssh i-1@-oProxyCommand=id",
    "ssh -i-1@127.0.0.1", "ssh -F/tmp/evil i-1@127.0.0.1", "ssh -F /tmp/evil i-1@127.0.0.1",
    "ssh -J evil@127.0.0.1 i-1@127.0.0.1", "ssh -L 80:localhost:80 i-1@127.0.0.1", "ssh -A i-1@127.0.0.1",
    "ssh -p 99999 i-1@127.0.0.1", "ssh -p 22", "ssh -p", "ssh -o", 'ssh "i-1@127.0.0.1', "ssh i-1@", "ssh @127.0.0.1",
    "ssh i-1", "ssh i-1@127.0.0.1\x00", f"ssh {HOSTILE}@127.0.0.1", f"ssh i-1@{HOSTILE}", "ssh i-1@127.0.0.1%eth0;id",
    "ssh i-1@127.0.0.1\r", "ssh\ti-1@127.0.0.1\t-A",
    f'ssh -o "KnownHostsCommand=/bin/sh -c {PAYLOAD}" i-1@127.0.0.1',
    'ssh -o "KnownHostsCommand=/bin/echo tarn a" i-1@127.0.0.1',
    'ssh -o "KnownHostsCommand=/bin/echo tarn ssh-ed25519 AAAA;id" i-1@127.0.0.1',
]  # fmt: skip
HARMLESS = 'ssh -p 7022 -o "KnownHostsCommand=/bin/echo tarn ssh-ed25519 AAAA" i-1@127.0.0.1'


def cluster_of(command=HARMLESS, *, name="box", node_name="box-0", instance="i-1") -> dict:
    """A cluster of one instance, as the engine describes it."""
    node = {"id": instance, "name": node_name, "status": "RUNNING", "ssh_command": command}
    return {"id": "c-000000000001", "name": name, "status": "RUNNING", "instances": [node]}


@pytest.fixture
def offer(engine):
    """Makes the engine return these clusters, and the first one as `box`."""

    def set_clusters(*clusters):
        numbered = [cluster | {"id": f"c-{number}"} for number, cluster in enumerate(clusters)]
        engine.set_response("/cluster/list", {"clusters": numbered, "next_cursor": None, "message": ""})
        engine.set_response("/cluster/info/box", {"cluster_info": clusters[0], "message": ""})

    return set_clusters


@pytest.fixture(autouse=True)
def nothing_was_run(laptop, tmp_path):
    """Checks that the payload of the engine was not run."""
    yield
    assert not list(tmp_path.rglob("pwned"))


@pytest.mark.parametrize("command", REFUSED, ids=case_id)
def test_unsafe_ssh_commands_are_refused(laptop, engine, offer, command):
    """An `ssh_command` that is not a plain ssh is refused, and nothing of it is run or written."""
    recorded = [laptop.canary(name) for name in ("ssh", "scp", "touch", "id")]
    offer(cluster_of(command))
    accepted = {"cluster_id": "box", "request_id": "r-000000000001", "message": "accepted"}
    engine.set_response("/cluster/create", accepted, status=202)
    engine.set_response("/request/info/r-000000000001", {"status": "COMPLETED", "message": "it runs"})
    laptop.fails(1, "ssh", "box")
    said = laptop.run("cluster", "create", "1xCPU", "--ssh")
    assert said.code == 1, said
    laptop.fails(1, "cp", "box:/etc/hostname", ".")
    assert not any(path.exists() for path in recorded), "nothing is started"
    laptop.run("ssh-config")
    written = "".join(path.read_text() for path in laptop.home.rglob("*") if path.is_file())
    for word in ("Proxy", "KnownHostsCommand", PAYLOAD, "evil"):
        assert word not in written, written


@pytest.mark.parametrize("wrong", [7, None, [], {"ssh": 1}, ["ssh", "i-1@127.0.0.1"]], ids=case_id)
def test_non_text_ssh_command_is_refused(laptop, offer, wrong):
    """An `ssh_command` that is no text is refused."""
    recorded = laptop.canary("ssh")
    offer(cluster_of(wrong))
    laptop.fails(1, "ssh", "box")
    assert not recorded.exists()


def test_ssh_options_of_engine_are_dropped(laptop, offer):
    """Of the options in an `ssh_command` only the port and the host key are used."""
    recorded, copied = laptop.canary("ssh"), laptop.canary("scp")
    extra = [
        f'-o "ProxyCommand={PAYLOAD}"', f'-o "LocalCommand={PAYLOAD}"', "-o PermitLocalCommand=yes",
        "-o ForwardAgent=yes", "-o StrictHostKeyChecking=no", "-o UserKnownHostsFile=/dev/null", "-o SendEnv=*",
        "-o Include=/tmp/evil",
    ]  # fmt: skip
    offer(cluster_of(HARMLESS.replace("ssh ", f"ssh {' '.join(extra)} ", 1)))
    assert laptop.run("ssh", "box", "uptime", "-p").code == 0
    assert laptop.run("cp", "box:/etc/hostname", ".").code == 0
    for words in (recorded.read_text().splitlines(), copied.read_text().splitlines()):
        for bad in ("Command", "Forward", "SendEnv", "Include", "StrictHostKeyChecking=no", "=/dev/null\n"):
            assert not [word for word in words if bad in f"{word}\n" and "GlobalKnownHostsFile" not in word], words
        assert "StrictHostKeyChecking=yes" in words and "Port=7022" in words
    assert recorded.read_text().splitlines()[-3:] == ["i-1@127.0.0.1", "uptime", "-p"]


BAD_NAMES = [
    "*", "!*", "?", "-oProxyCommand=id", "a b", "a\nHost *", "a\n    ProxyCommand id", "a\rHost *", '"', "a#b", "a,b",
    "../../x", "", " ", "%h", "$(id)", "a" * 5000, HOSTILE, "github.com", "127.0.0.1", "login.example.org",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES, ids=case_id)
def test_names_cannot_inject_ssh_config(laptop, offer, name):
    """Names add nothing else to the SSH configuration, and take no host of the user: `ssh github.com` is unchanged."""
    offer(cluster_of(name=name), cluster_of(name="good", instance="i-2", node_name="good-0"), cluster_of(node_name=name), cluster_of(instance=name))
    laptop.works("ssh-config", "--print")
    laptop.works("ssh-config")
    written = (laptop.configuration / "ssh_config").read_text()
    for line in written.splitlines():
        words = line.split()
        assert not words or line.startswith("#") or words[0] in OURS, line
        if words[:1] == ["Host"]:
            assert name not in words[1:], f"{name!r} must not come from an engine"
            assert all(re.fullmatch("[a-z0-9][a-z0-9-]{0,252}", word) for word in words[1:]), line
    assert any(line.startswith("Host good good-0") for line in written.splitlines()), written
    for host, expected in (("good", "127.0.0.1"), ("github.com", "github.com"), ("anything", "anything")):
        assert resolve_ssh_host(laptop, host)["hostname"] == expected


OURS = {
    "Host", "HostName", "User", "Port", "HostKeyAlias", "UserKnownHostsFile", "GlobalKnownHostsFile",
    "StrictHostKeyChecking",
}  # fmt: skip


def resolve_ssh_host(laptop, host: str) -> dict[str, str]:
    """How OpenSSH resolves a name with the user's configuration."""
    if not shutil.which("ssh"):
        pytest.skip("OpenSSH's client is not installed")
    config = laptop.home / ".ssh/config"
    done = subprocess.run(["ssh", "-G", "-F", str(config), host], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done
    return dict(line.split(" ", 1) for line in done.stdout.splitlines() if " " in line)


def test_own_ssh_host_takes_precedence(laptop, offer):
    """A host of the user's own configuration takes precedence over a cluster of that name."""
    config = laptop.home / ".ssh/config"
    config.parent.mkdir()
    config.write_text("Host work\n    HostName work.example.org\n    User me\n")
    offer(cluster_of(name="work"))
    laptop.run("ssh-config")
    assert (seen := resolve_ssh_host(laptop, "work"))["hostname"] == "work.example.org" and seen["user"] == "me"
    assert resolve_ssh_host(laptop, "i-1")["hostname"] == "127.0.0.1"


AWS = {
    "credentials_file": "[tp]\naws_access_key_id = a\naws_secret_access_key = b\n",
    "config_file": "[profile tp]\nregion = x\n",
}
RCLONE = {"rclone_config": "[tp]\ntype = s3\nprovider = Other\naccess_key_id = a\nsecret_access_key = b\n"}
GOOD = {"aws": AWS, "rclone": RCLONE}
# AWS programs run the value of `credential_process`, and rclone runs that of `bearer_token_command`.
EXTRA = [
    f"credential_process = {PAYLOAD}\n", f"[default]\ncredential_process = {PAYLOAD}\n",
    "[default]\naws_access_key_id = theirs\n", f"[profile default]\ncredential_process = {PAYLOAD}\n",
    f"bearer_token_command = {PAYLOAD}\n", "[mine]\ntype = alias\nremote = /\n",
    f"x = 1\rcredential_process = {PAYLOAD}\n",
]  # fmt: skip


@pytest.mark.parametrize("extra", EXTRA, ids=case_id)
@pytest.mark.parametrize("program", ["aws", "rclone"])
def test_config_sections_are_restricted(laptop, engine, program, extra):
    """Other programs' files get one section with keys and addresses, and no setting that runs a command."""
    mine = "[default]\naws_access_key_id = mine\n\n[mine]\ntype = local\n"
    files = [".aws/credentials", ".aws/config"] if program == "aws" else [".config/rclone/rclone.conf"]
    for file in files:
        (laptop.home / file).parent.mkdir(parents=True, exist_ok=True)
        (laptop.home / file).write_text(mine)
    for text in ("{good}{extra}", "{extra}{good}", "{extra}"):
        sections = {name: text.format(good=good, extra=extra) for name, good in GOOD[program].items()}
        engine.set_response(f"/object-storage/configure/{program}", sections)
        laptop.run("object-storage", "configure", program)
        for file in files:
            parsed = configparser.ConfigParser(interpolation=None, strict=False)
            parsed.read_string(written := (laptop.home / file).read_text())
            keys = {key for name in parsed.sections() for key in parsed[name]}
            assert not [key for key in keys if "process" in key or "command" in key], written
            assert dict(parsed["default"]) == {"aws_access_key_id": "mine"}, written
            assert dict(parsed["mine"]) == {"type": "local"}, written
            assert set(parsed.sections()) <= {"default", "mine", "tp", "profile tp"}, written
