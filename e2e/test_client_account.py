"""The `tarn` client and users: the caller, SSH keys, preferences, requests, and administration."""

import re
import subprocess

import pytest

from support import ENVIRONMENT

API_KEY = re.compile(r"^API key: (tp-\w{40})$", re.M)


def test_me_shows_caller(tarn, user):
    """`tarn me` and its preferences describe the caller."""
    said = tarn("me").text
    assert "admin@localhost" in said and "default" in said and "$0.00" in said
    body = tarn.json("me")
    assert body["email"] == "admin@localhost" and body["user_id"] in said
    assert "ann@example.org" in tarn("me", key=user("ann@example.org")).text
    assert "no" in tarn("me preferences").text.split()
    assert tarn.json("me preferences")["autopay_enabled"] is False


def test_sshkey_add_list_remove(tarn, public_key):
    """SSH keys are added, listed and removed; a private key is refused."""
    assert "no saved keys" in tarn("me sshkey list").text
    key = tarn.json(f"me sshkey add {public_key} --name laptop")["key_id"]
    for listed in (tarn("me sshkey list").text, tarn("me sshkey ls").text, tarn("me sshkey list --org").text):
        assert "laptop" in listed and key in listed
    assert [each["id"] for each in tarn.json("me sshkey list --organization")["keys"]] == [key]
    assert tarn(f"me sshkey add {public_key}", code=4).errors
    assert tarn(f"me sshkey remove {key}").text
    tarn(f"me sshkey rm {key}", code=3)
    assert tarn.json(f"me sshkey remove {key}", code=3)["code"] == "not_found"
    tarn("me sshkey add", "~/key.pub", code=1)
    (tarn.home / "key.pub").write_bytes(public_key.read_bytes())
    assert "was added" in tarn("me sshkey add", "~/key.pub").text
    [again] = tarn.json("me sshkey list")["keys"]
    assert tarn.json(f"me sshkey rm {again['id']}")["message"]
    (tarn.home / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    assert "private key" in tarn("me sshkey add id", code=2).errors


def test_sshkey_prove(tarn, user, tmp_path):
    """`ssh-keygen` proves a saved key, by its private or its public file; other files are refused."""
    for name, kind in (("mine", "ed25519"), ("old", "rsa"), ("other", "ecdsa")):
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-f", tmp_path / name], check=True, env=ENVIRONMENT)
    mine, old, other = (tmp_path / name for name in ("mine", "old", "other"))
    said = tarn(f"me sshkey prove {mine}", code=3).errors
    assert f"tarn me sshkey add {mine}.pub" in said and "SHA256:" in said
    for path in (mine, old):
        tarn(f"me sshkey add {path}.pub")
    assert "is proven" in tarn(f"me sshkey prove {mine}").text
    assert "is proven" in tarn.json(f"me sshkey prove {mine}.pub")["message"]
    assert "is proven" in tarn(f"me sshkey prove {old}").text
    verbs = [each["verb"] for each in tarn.json("admin events")["events"]]
    assert verbs.count("ssh_key.prove") == 2, verbs
    # Another user has the public half only.
    stranger = user("stranger@example.com", "elsewhere")
    public = tmp_path / "copied.pub"
    public.write_bytes((tmp_path / "mine.pub").read_bytes())
    tarn(f"me sshkey add {public}", key=stranger)
    assert "did not sign" in tarn(f"me sshkey prove {public}", key=stranger, code=1).errors
    assert "not saved" in tarn.json(f"me sshkey prove {other}", code=3)["message"]
    (tmp_path / "text").write_text("hello")
    assert "not the file of an SSH key" in tarn(f"me sshkey prove {tmp_path / 'text'}", code=2).errors
    tarn(f"me sshkey prove {tmp_path / 'absent'}", code=2)


def test_request_list_info_wait(tarn, user):
    """Requests of the caller and of the organization are listed and shown, but not to another tenant."""
    assert "no requests" in tarn("request list").text
    ended = tarn.json("cluster create 1xCPU --name box --wait")
    request = ended["request_id"]
    assert ended == tarn.json(f"request info {request}") == tarn.json(f"request wait {request}")
    for said in (tarn("request list").text, tarn("request ls").text, tarn(f"request info {request}").text):
        assert request in said and "CLUSTER_CLAIM" in said and "COMPLETED" in said and ended["object_id"] in said
    assert [each["request_id"] for each in tarn.json("request list")["requests"]] == [request]
    theirs = tarn.json("storage create 1 --wait", key=user("member@example.org", "default"))["request_id"]
    assert theirs not in tarn("request list").text
    assert theirs in tarn("request list --org").text and theirs in tarn("request list --organization").text
    stranger = user("stranger@example.com", "elsewhere")
    tarn(f"request info {request}", key=stranger, code=1)
    assert tarn.json(f"request wait {request}", key=stranger, code=1)["code"]


def test_list_reads_every_page(tarn, server):
    """A list shows all jobs, although they need more than one page."""
    tarn("cluster create 1xCPU --name box --wait")
    body = {"tp_config": 'commands = ["true"]', "cluster_id": "box", "files": True}
    jobs = {server.call("POST", "/job/create", json=body, expect=201).json()["job_id"] for _ in range(105)}
    listed = tarn.json("job list")
    assert {job["id"] for job in listed["jobs"]} == jobs and listed["next_cursor"] is None
    assert len(tarn("job list").text.splitlines()) == 106


def test_user_create_list_disable(tarn, server):
    """Administrators create, list, disable and enable users; a disabled user cannot call."""
    said = tarn("admin user create ann@example.org --org lab").text
    key = API_KEY.search(said)[1]
    me = tarn.json("me", key=key)
    assert (me["email"], me["org_name"]) == ("ann@example.org", "lab")
    made = tarn.json("admin user create bob@example.org")
    assert made["api_key"] and made["org_id"] is None
    listed = tarn("admin user list").text
    assert tarn("admin user ls").text == listed
    assert all(word in listed for word in ("ann@example.org", "lab", made["user_id"]))
    assert {each["email"] for each in tarn.json("admin user list")["users"]} > {"ann@example.org", "bob@example.org"}
    assert "already" in tarn("admin user create ann@example.org", code=4).errors
    assert tarn.json("admin user create ann@example.org", code=4)["code"]

    tarn(f"admin user disable {me['user_id']}")
    tarn("me", key=key, code=1)
    assert "yes" in next(row for row in tarn("admin user list").text.splitlines() if "ann@" in row).split()
    tarn(f"admin user enable {me['user_id']}")
    tarn("me", key=key)
    assert tarn.json(f"admin user disable {made['user_id']}")["message"]
    assert tarn.json(f"admin user enable {made['user_id']}")["message"]
    tarn(f"admin user disable {tarn.json('me')['user_id']}", code=4)


def test_api_key_create_list_revoke(tarn):
    """API keys are created, listed without their secret, and revoked."""
    user = tarn.json("admin user create ann@example.org")["user_id"]
    second = API_KEY.search(tarn(f"admin key create {user}").text)[1]
    tarn("me", key=second)
    third = tarn.json(f"admin key create {user}")
    rows = tarn(f"admin key list --user {user}").text.splitlines()
    assert len(rows) == 4 and all(user in row for row in rows[1:])
    assert len(tarn("admin key list").text.splitlines()) == len(tarn("admin key ls").text.splitlines()) == 5
    assert second not in tarn("admin key list").text, "a key is shown once"
    [known] = [key for key in tarn.json(f"admin key list --user {user}")["keys"] if key["key_id"] == third["key_id"]]
    assert tarn(f"admin key revoke {known['key_id']}").text
    tarn("me", key=third["api_key"], code=1)
    other = tarn.json(f"admin key list --user {user}")["keys"][0]["key_id"]
    assert tarn.json(f"admin key revoke {other}")["message"]


def test_key_reset_replaces_lost_key(tarn, server):
    """`tarn admin key reset` replaces the administrator's key, and the old one is refused."""
    old = server.key
    assert "new key" in tarn(f"admin key reset --data {server.data}").text
    assert server.key != old
    tarn("me", key=old, code=1)
    tarn("me")


def test_grant_changes_balance(tarn):
    """A grant changes the balance of an organization or a user."""
    organization, user = tarn.json("me")["org_id"], tarn.json("admin user create ann@example.org")["user_id"]
    assert tarn(f"admin grant {organization} 25.50 --description gift").text
    assert "$25.50" in tarn("me").text and tarn.json("me")["balance"] == 25.5
    assert "$25.50" in tarn("admin org info").text and tarn.json("admin org info")["balance"] == 25.5
    assert tarn.json(f"admin grant {organization} -5.5")["message"]
    assert "$20.00" in tarn("me").text
    assert tarn.json(f"admin grant {user} 1")["message"]
    assert tarn.json(f"admin grant {user} 1e30", code=2)["message"]


def test_limits_set_show_clear(tarn, user):
    """Limits of an organization or a user are set, enforced, shown and cleared."""
    organization, loner = tarn.json("me")["org_id"], tarn.json("admin user create ann@example.org")["user_id"]
    assert "No organization or user has its own limits" in tarn("admin limits list").text
    said = tarn(f"admin limits set {organization} --gpus 4 --instances 3").text
    assert organization in said and "GPUs" in said and "no limit" in said
    more = tarn.json(f"admin limits set {organization} --cpus 2.5 --volume-gb 10 --object-gb 0.5 --job-gb 2")
    own = {"instances": 3, "cpus": 2.5, "gpus": 4, "volume_gb": 10, "object_gb": 0.5, "waiting": None, "job_gb": 2.0}
    assert more["own"] == own and more["limits"]["waiting"] == 16, more
    assert tarn.json(f"admin limits set {organization} --waiting 3")["own"] == own | {"waiting": 3}
    tarn("cluster create 1xH100 --name box --wait")
    refused = tarn("cluster create 4xH100", code=4).errors
    assert "may have 4 GPUs, has 1 and this asks for 4" in refused, refused
    assert tarn.json("storage create 11", code=4)["code"] == "limit_reached"
    shown = tarn.json(f"admin limits show {organization}")
    assert shown["used"]["gpus"] == 1 and shown["limits"]["gpus"] == 4 and "1" in tarn(f"admin limits show {organization}").text
    assert tarn.json("me")["limits"]["instances"] == 3 and tarn.json("me")["used"]["instances"] == 1
    assert [each["scope"] for each in tarn.json("admin limits list")["limits"]] == [organization]
    assert organization in tarn("admin limits ls").text
    assert tarn.json("admin limits show default")["scope"] == organization, "a name works as well"
    assert tarn.json("admin limits set ann@example.org --gpus 1")["scope"] == loner
    assert "neither the id of an organization" in tarn("admin limits show nobody@example.org", code=2).errors
    assert tarn(f"admin limits clear {organization}").text
    assert tarn.json(f"admin limits clear {loner}")["own"]["gpus"] is None
    tarn("cluster create 4xH100 --name more --wait")
    assert "limits.change" in tarn("admin events").text


def test_org_info_lists_members(tarn, user):
    """`tarn admin org info` lists the members of the caller's organization."""
    user("member@example.org", "default")
    assert "member@example.org" in tarn("admin org info").text
    assert {member["email"] for member in tarn.json("admin org info")["members"]} == {"admin@localhost", "member@example.org"}
    assert tarn.json("admin org info", key=user("loner@example.org"), code=3)["code"]


def test_events_follow_a_number(tarn):
    """Events are listed, all of them or those after a given number."""
    tarn("admin user create ann@example.org")
    said = tarn("admin events").text
    assert "user.create" in said
    events = tarn.json("admin events")["events"]
    later = tarn.json(f"admin events --after {events[0]['number']}")["events"]
    assert later == events[1:]
    assert "no events" in tarn(f"admin events --after {events[-1]['number']}").text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_script(tarn, shell):
    """The completion script of each shell contains the commands and flags."""
    script = tarn(f"completion {shell}", TENSORPOOL_KEY=None).text
    assert "object-storage" in script and "deletion-protection" in script


def test_bash_completes_a_command(tarn):
    """Bash calls the completion function with the words so far and reads its result, as it does after Tab."""
    (tarn.home / "script").write_text(tarn("completion bash").text)
    ask = """
        source ./script
        COMP_WORDS=(tarn cluster cr); COMP_CWORD=2
        $(complete -p tarn | sed 's/.*-F \\(\\S*\\).*/\\1/') tarn cr cluster
        echo "${COMPREPLY[@]}"
    """
    done = subprocess.run(["bash", "--norc", "-c", ask], cwd=tarn.home, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("create\n", ""), done
