"""The unchanged `tp` 0.0.9 against Tarn: clusters, and calls without a valid key."""

import re
import shlex

import pytest

CLUSTER_ID = re.compile(r"\bc-[0-9a-hjkmnp-tv-z]{12}\b")
NO_CLUSTER = "c-000000000000"


@pytest.fixture
def create(tp, server, public_key):
    """Creates a running cluster through the client and returns its info from the API."""

    def run(name, *options, kind="1xH100", key=None):
        tp("cluster", "create", kind, "-i", public_key, "--name", name, *options, "--wait", key=key)
        return server.call("GET", f"/cluster/info/{name}", key=key, expect=200).json()["cluster_info"]

    return run


def test_cluster_create_list_info_destroy(tp, server, create):
    """A cluster is created, listed, shown and destroyed."""
    cluster = create("first-light", "-n", "2")
    assert cluster["status"] == "RUNNING"
    assert len(cluster["instances"]) == 2
    assert CLUSTER_ID.fullmatch(cluster["id"])

    for text in (tp("cluster", "list").text, tp("cluster", "ls").text):
        for shown in (cluster["id"], "first-light", "1xH100", "RUNNING"):
            assert shown in text
    instances = tp("cluster", "list", "--instances").text
    info = tp("cluster", "info", cluster["id"]).text
    for instance in cluster["instances"]:
        assert instance["id"] in instances
        assert instance["id"] in info
    assert tp("cluster", "info", "first-light").text == info

    assert tp("cluster", "destroy", cluster["id"], "--no-input", "--wait").text
    assert cluster["id"] not in tp("cluster", "list").text
    seen = server.call("GET", f"/cluster/info/{cluster['id']}", expect=200).json()["cluster_info"]
    assert seen["status"] == "DESTROYED"


def test_create_without_wait_names_cluster(tp, public_key):
    """Without `--wait` the message names the cluster."""
    said = tp("cluster", "create", "1xCPU", "-i", public_key)
    assert CLUSTER_ID.search(said.text), "the message is all the user gets, so it must name the cluster"


def test_create_refusals(tp, server, public_key, tmp_path, create):
    """Unknown types, wrong counts, taken or invalid names and unusable keys are refused."""
    create("taken")
    for options in (
        ["9xUNICORN"],
        ["1xH100", "-n", "0"],
        ["1xH100", "-n", "99"],
        ["1xH100", "--name", "taken"],
        ["1xH100", "--name", "Not A Name\u0007"],
    ):
        tp("cluster", "create", *options, "-i", public_key, refused=True)
    not_a_key = tmp_path / "not-a-key.pub"
    not_a_key.write_text("ssh-ed25519 hello")
    tp("cluster", "create", "1xH100", "-i", not_a_key, refused=True)
    tp("cluster", "create", "1xH100", "-i", tmp_path / "absent.pub", refused=True)
    assert len(server.call("GET", "/cluster/list", expect=200).json()["clusters"]) == 1


def test_edit_changes_name_and_protection(tp, create):
    """An edit changes the name and the deletion protection, which refuses to destroy."""
    cluster = create("guarded", "--deletion-protection")
    said = tp("cluster", "destroy", cluster["id"], "--no-input", refused=True)
    assert "protect" in said.text.lower()
    tp("cluster", "edit", cluster["id"], "--name", "renamed", "--deletion-protection", "false")
    assert "renamed" in tp("cluster", "list").text
    tp("cluster", "rm", "renamed", "--no-input", "--wait")


def test_edit_refusals(tp, create):
    """Taken, invalid and missing names and unknown clusters are refused."""
    create("one")
    create("two")
    tp("cluster", "edit", "two", "--name", "one", refused=True)
    tp("cluster", "edit", "two", "--name", "bad_name!", refused=True)
    tp("cluster", "edit", NO_CLUSTER, "--name", "three", refused=True)
    assert "--name" in tp("cluster", "edit", "two", refused=True).text, "there is nothing to change"


def test_wrong_ids_are_refused(tp):
    """Wrong IDs are refused."""
    for wrong in (NO_CLUSTER, "no-such-name", "s-000000000000"):
        tp("cluster", "info", wrong, refused=True)
        tp("cluster", "destroy", wrong, "--no-input", refused=True)
    tp("ssh", "i-000000000000", refused=True)


def test_destroyed_cluster_is_read_only(tp, create):
    """A destroyed cluster can be shown, and every change or login is refused."""
    cluster = create("gone")
    tp("cluster", "destroy", cluster["id"], "--no-input", "--wait")
    assert "DESTROYED" in tp("cluster", "info", cluster["id"]).text
    for said in (
        tp("cluster", "destroy", cluster["id"], "--no-input", refused=True),
        tp("cluster", "edit", cluster["id"], "--name", "again", refused=True),
        tp("ssh", cluster["instances"][0]["id"], refused=True),
    ):
        assert "destroyed" in said.text.lower(), said


def test_declined_destroy_keeps_cluster(tp, create):
    """A destroy that is not confirmed keeps the cluster."""
    cluster = create("kept")
    assert "cancelled" in tp("cluster", "destroy", cluster["id"], refused=True).text
    assert cluster["id"] in tp("cluster", "list").text
    tp("cluster", "destroy", cluster["id"], "--wait", answer="y\n")


def test_org_lists_clusters_of_members(tp, server, create, user):
    """`--org` lists the clusters of all members, and none of another organization."""
    organization = server.call("GET", "/user/organization/info", expect=200).json()["org_name"]
    member, stranger = user("member@example.org", organization), user("stranger@example.com", "elsewhere")
    cluster = create("shared", key=member)
    assert cluster["id"] not in tp("cluster", "list").text
    assert cluster["id"] in tp("cluster", "list", "--org").text
    assert cluster["id"] not in tp("cluster", "list", "--organization", key=stranger).text
    tp("cluster", "info", cluster["id"])
    tp("cluster", "info", cluster["id"], key=stranger, refused=True)
    tp("cluster", "destroy", cluster["id"], "--no-input", key=stranger, refused=True)


def test_full_cloud_explains_wait(tp, server, create, public_key):
    """A cluster that waits for capacity says what it waits for."""
    create("everything", kind="8xH100")
    tp("cluster", "create", "2xH100", "-i", public_key, "--name", "patient")
    info = server.call("GET", "/cluster/info/patient", expect=200).json()["cluster_info"]
    assert info["status"] == "PENDING"
    text = tp("cluster", "info", "patient").text
    assert "PENDING" in text
    assert re.search(r"waits for 2 .*GPUs, 0 are free, 1st in line", text, re.I)
    tp("cluster", "destroy", "patient", "--no-input", "--wait")


def test_ssh_command_is_executable(server, create):
    """The client can split and execute the command; the fake driver has no instance to log in to."""
    instance = create("reachable")["instances"][0]
    for system in ("Linux", "linux", "Darwin", "Windows"):
        answer = server.call("GET", f"/ssh/{instance['id']}", params={"system": system}, expect=200).json()
        assert shlex.split(answer["command"])[0] == "ssh"
        assert not set(answer["command"]) & set("|&;<>$`~")


def test_invalid_keys_are_refused(tp):
    """Unknown, malformed and missing keys are refused."""
    tp("cluster", "list", key="tp-" + "x" * 40, refused=True)
    tp("me", key="nonsense", refused=True)
    assert tp("cluster", "list", with_key=False, refused=True)
