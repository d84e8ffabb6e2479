"""The `tarn` client when it fails: for every command wrong ids, no key, an unknown key, and usage errors."""

import pytest

from client import Client
from conftest import write_public_key
from support import Server

# The exit code of each of these on an engine without objects. All of them reach the engine.
REFUSED = [
    (2, "cluster create 9xUNICORN"),
    (3, "cluster destroy c-000000000000 --no-input"),
    (3, "cluster info c-000000000000"),
    (3, "cluster info no-such-name"),
    (3, "cluster info ../admin/user/list"),
    (3, "cluster edit c-000000000000 --name other"),
    (3, "cluster attach c-000000000000 s-000000000000 --live"),
    (3, "cluster attach c-000000000000 nonsense"),
    (3, "cluster detach c-000000000000 s-000000000000"),
    (3, "cluster detach c-000000000000 nonsense"),
    (3, "cluster restart c-000000000000 --wait"),
    (2, "storage create 0"),
    (3, "storage destroy s-000000000000 --no-input --wait"),
    (3, "storage destroy nonsense --no-input"),
    (3, "storage info s-000000000000"),
    (3, "storage info ../list"),
    (3, "storage edit s-000000000000 --size 2 --wait"),
    (3, "storage edit nonsense --size 2"),
    (3, "object-storage disable --no-input"),
    (3, "object-storage credentials"),
    (3, "object-storage configure aws"),
    (3, "object-storage configure rclone"),
    (3, "object-storage keys list"),
    (3, "object-storage keys create"),
    (3, "object-storage keys revoke TARNAAAAAAAAAAAAAAAA"),
    (3, "object-storage keys retire-legacy"),
    (3, "object-storage bucket list"),
    (2, "object-storage bucket create ab"),
    (3, "object-storage bucket delete missing"),
    (2, "job run true --on 9xUNICORN"),
    (3, "job info j-000000000000"),
    (3, "job info nonsense"),
    (3, "job cancel j-000000000000 --no-input --wait"),
    (3, "job delete j-000000000000"),
    (3, "job listen j-000000000000"),
    (3, "job logs j-000000000000"),
    (3, "job logs --follow j-000000000000"),
    (3, "job pull j-000000000000 --dry-run"),
    (3, "request info r-000000000000"),
    (2, "request info nonsense"),
    (3, "request wait r-000000000000"),
    (2, "request wait ../../me"),
    (3, "me sshkey remove k-000000000000"),
    (2, "me sshkey remove nonsense"),
    (3, "ssh no-such-machine"),
    (3, "cp no-such-machine:there here"),
    (2, "admin user create nonsense"),
    (3, "admin user disable u-000000000000"),
    (3, "admin user enable u-000000000000"),
    (3, "admin key create u-000000000000"),
    (3, "admin key revoke a-000000000000"),
    (3, "admin grant u-000000000000 5"),
    (3, "admin limits show o-000000000001"),
    (3, "admin limits set u-000000000000 --gpus 1"),
    (3, "admin limits clear u-000000000000"),
    (2, "admin limits show nonsense"),
    (2, "admin grant nonsense 5"),
    (2, f"admin host drain --reason {'x' * 201}"),
    (3, "admin gpu drain nonsense"),
    (3, "admin gpu undrain nonsense"),
    (3, "admin gpu clear nonsense"),
    (4, "admin gpu clear simulated-H100-7"),
]
# These succeed there, and fail only without a valid key.
OPEN = [
    "cluster list", "cluster types", "storage list", "object-storage enable", "object-storage usage", "job init", "job list",
    "request list", "me", "me preferences", "me sshkey list", "ssh-config", "admin user list", "admin org info", "admin events",
    "admin key list", "admin limits list", "admin host", "admin host undrain", "admin gpu list",
]  # fmt: skip
# These are usage errors, so that no engine is called.
USAGE = [
    "nonsense", "cluster", "cluster nonsense", "cluster create", "cluster create 1xCPU -n many", "cluster create 1xCPU --colour",
    "cluster destroy", "cluster list extra", "cluster info", "cluster edit box --deletion-protection perhaps", "cluster edit box",
    "cluster attach box", "cluster detach box", "cluster restart", "cluster types extra", "storage create", "storage create much",
    "storage create -1", "storage destroy", "storage list extra", "storage info", "storage edit s-000000000000", "object-storage",
    "object-storage enable now", "object-storage configure", "object-storage configure nonsense", "object-storage bucket create",
    "object-storage keys", "object-storage keys revoke",
    "object-storage bucket delete", "object-storage usage extra", "job push", "job push one.tp.toml", "job run true",
    "job run --on 1xCPU", "job list extra", "job info", "job cancel", "job delete", "job listen", "job logs", "job pull",
    "request list extra", "request info", "request wait", "me nonsense", "me preferences extra", "me sshkey", "me sshkey add",
    "me sshkey list extra", "me sshkey remove", "ssh", "cp", "cp here", "cp here there",
    "ssh-config extra", "login extra", "admin user create", "admin user list extra", "admin user disable", "admin user enable",
    "admin org info extra", "admin grant", "admin grant u-000000000000", "admin grant u-000000000000 much",
    "admin limits show", "admin limits set u-000000000000", "admin limits set u-000000000000 --gpus -1", "admin limits clear",
    "admin events --after yesterday", "admin key create", "admin key list --user", "admin key revoke", "admin key reset extra",
    "admin host nonsense", "admin host drain extra", "admin host undrain extra", "admin gpu", "admin gpu list extra", "admin gpu drain",
    "admin gpu undrain", "admin gpu clear", "completion", "completion nonsense", "cluster list --engine", "me --engine ftp://nowhere", "me --engine nonsense",
]  # fmt: skip


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One engine for the whole file, which no test changes."""
    with Server(tmp_path_factory.mktemp("refusals") / "data") as running:
        yield running


@pytest.mark.parametrize("code, line", REFUSED)
def test_refusal_is_one_line(tarn, code, line):
    """A refusal of the engine is one line on the error stream and one body in JSON."""
    said = tarn(line, code=code)
    assert said.text == "" and said.errors.count("\n") == 1, "one line, and only on the error stream"
    assert tarn.json(line, code=code)["message"] in said.errors


@pytest.mark.parametrize("line", [*OPEN, *(line for _, line in REFUSED)])
def test_command_needs_valid_key(tarn, line):
    """No command works without a key or with an unknown one."""
    said = tarn(line, code=1, TENSORPOOL_KEY=None)
    assert "TENSORPOOL_KEY" in said.errors and "tarn login" in said.errors and said.text == ""
    assert tarn.json(line, code=1, key="tp-" + "0" * 40)["code"] == "invalid_key"


def test_unknown_key_says_how_to_log_in(tarn):
    """An unknown key is reported with the way to log in."""
    said = tarn("me", code=1, key="tp-" + "0" * 40)
    assert "does not accept the API key" in said.errors and "tarn login" in said.errors and said.text == ""
    assert "TENSORPOOL_KEY" in tarn.json("me", code=1, TENSORPOOL_KEY=None)["message"]


@pytest.mark.parametrize("line", USAGE)
def test_usage_error_exits_with_2(tarn, line):
    """A line that cannot be parsed is a usage error."""
    said = tarn(line, code=2)
    assert said.errors and said.text == ""


def test_admin_commands_need_administrator(tarn, user):
    """Administration commands are refused to other users."""
    key = user("someone@example.org", "elsewhere")
    lines = ["admin user list", "admin events", "admin key list", "admin user create a@example.org", "admin grant u-000000000000 5"]
    lines += ["admin host", "admin host drain", "admin host undrain", "admin gpu list", "admin gpu drain simulated-H100-0"]
    for line in lines:
        assert "administrator" in tarn(line, key=key, code=1).errors
    assert "organization" in tarn("admin org info", key=user("loner@example.org"), code=3).errors
    assert "organization" in tarn("object-storage enable", key=user("hermit@example.org"), code=1).errors


def test_missing_or_invalid_files_are_reported(tarn, tmp_path):
    """Files that are missing or invalid are reported."""
    for line in ("me sshkey add absent.pub", "cluster create 1xCPU -i absent.pub", "job push absent.tp.toml box"):
        assert "cannot read" in tarn(line, code=1).errors
        assert "cannot read" in tarn.json(line, code=1)["message"]
    write_public_key(tmp_path / "key.pub")
    tarn(f"me sshkey add {tmp_path / 'key.pub'}")
    assert tarn.json(f"me sshkey add {tmp_path / 'key.pub'}", code=4)["code"]
    for text, code in (("commands = [", 2), ('commands = "true"', 2), ('commands = ["true"]', 3)):
        (tarn.home / "job.tp.toml").write_text(text)
        tarn("job push job.tp.toml box", code=code)
        tarn.json("job push job.tp.toml box", code=code)


def test_key_reset_without_database_is_refused(server, tarn, tmp_path):
    """`admin key reset` is refused where there is no database."""
    assert "no database" in tarn(f"admin key reset --data {tmp_path / 'nowhere'}", code=1).errors


def test_unreachable_engine_is_one_line(tarn):
    """An unreachable engine is reported in one line."""
    for line in OPEN:
        said = tarn(line, "--engine", "http://127.0.0.1:1", code=1)
        assert "cannot reach http://127.0.0.1:1" in said.errors and said.errors.count("\n") == 1


@pytest.mark.parametrize("name", ["tarn", "tp", "anything"])
def test_help_shows_program_name(server, tmp_path, name):
    """Help and version work under every program name."""
    (tmp_path / name).symlink_to(Client(server, tmp_path / "home").program)
    client, own = Client(server, tmp_path / "home", tmp_path / name), Client(server, tmp_path / "home")
    assert client("--help").text == client("help").text == own("--help").text.replace("Usage: tarn ", f"Usage: {name} ")
    assert client("--version").text == client("-v").text == own("--version").text
