"""Every command and flag of the stock client works unchanged, whatever the program is called."""

import re

import pytest

from client import Client
from support import BINARY

# In this order on one engine; `{name}` is the last ID of its kind in the output so far. The number is the exit code.
LINES = [
    (0, "-v"), (0, "--version"), (0, "me"), (0, "me preferences"),
    (0, "me sshkey add {public_key} --name laptop"), (0, "me sshkey list"), (0, "me sshkey ls --org"),
    (0, "me sshkey list --organization"), (0, "me sshkey remove {k}"), (3, "me sshkey rm {k}"),
    (0, "cluster create 1xH100 -i {public_key} --name one -n 2 --deletion-protection --wait"),
    (0, "cluster list"), (0, "cluster ls --org"), (0, "cluster list --organization"), (0, "cluster list --instances"),
    (0, "cluster info {c}"), (4, "cluster destroy {c} --no-input --wait"),
    (0, "cluster edit {c} --name two --deletion-protection false"), (0, "cluster edit {c} --deletion-protection True"),
    (0, "cluster edit {c} --deletion-protection FALSE"), (0, "storage create 1 --name data --deletion-protection --wait"),
    (0, "storage list"), (0, "storage ls --org"), (0, "storage info {s}"),
    (0, "storage edit {s} --name other --deletion-protection false --size 2"), (0, "request wait {r}"),
    (0, "storage edit {s} -s 3"), (0, "request wait {r}"),
    (0, "cluster attach {c} {s} --wait"), (4, "storage destroy {s} --no-input"), (0, "cluster detach {c} {s} --wait"),
    (0, "storage destroy {s} --no-input --wait"), (3, "storage rm s-000000000000 --no-input"),
    (0, "object-storage enable"), (0, "object-storage credentials"), (0, "object-storage configure rclone"),
    (0, "object-storage bucket create photos"), (0, "object-storage bucket list"), (0, "object-storage bucket ls"),
    (0, "object-storage bucket delete photos"), (3, "object-storage bucket rm photos"), (0, "object-storage disable --no-input"),
    (0, "job init"), (0, "job push job.tp.toml {c}"), (0, "job list"), (0, "job ls --org"), (0, "job list --organization"),
    (0, "job info {j}"), (1, "job listen {j}"), (0, "job pull {j} -i {public_key} --force"),
    (0, "job pull {j} --private-key {public_key}"), (4, "job cancel {j} --no-input --wait"), (0, "job delete {j} --no-input"),
    (0, "job push job.tp.toml {c} --teardown"), (1, "job listen {j}"),
    (0, "cluster create 1xCPU --public-key {public_key} --num-nodes 1 --container example.org/image:1 --wait"),
    (0, "cluster rm {c} --no-input --wait"), (3, "ssh i-000000000000 -v"), (0, "--no-input me"), (0, "me --no-input"),
]  # fmt: skip
ID = re.compile(r"\b([a-z])-[0-9a-hjkmnp-tv-z]{12}\b")


@pytest.mark.parametrize("name", ["tarn", "tp"])
def test_tp_commands_work_under_both_names(server, tmp_path, public_key, name):
    """Every command line of the stock client works, as `tarn` and as `tp`."""
    (tmp_path / name).symlink_to(BINARY)
    client = Client(server, tmp_path / "home", tmp_path / name)
    known = {"public_key": public_key}
    for code, line in LINES:
        said = client(line.format(**known), code=code)
        if code == 0 and " edit " not in line:
            known |= {found[1]: found[0] for found in ID.finditer(said.text)}
        elif code == 0:
            known["r"] = server.call("GET", "/request/list", expect=200).json()["requests"][0]["request_id"]
