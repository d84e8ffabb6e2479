"""The unchanged `tp` 0.0.9 against Tarn: volumes and their attachment to clusters."""

import re

import pytest

STORAGE_ID = re.compile(r"\bs-[0-9a-hjkmnp-tv-z]{12}\b")
NO_VOLUME = "s-000000000000"


@pytest.fixture
def create(tp):
    """Creates a volume through the client and returns its id from the client's last line."""

    def run(size, *options):
        return STORAGE_ID.search(tp("storage", "create", size, *options, "--wait").text)[0]

    return run


@pytest.fixture
def cluster(tp, server, public_key):
    """The id of a running cluster."""
    tp("cluster", "create", "1xCPU", "-i", public_key, "--name", "host-of-volumes", "--wait")
    return server.call("GET", "/cluster/info/host-of-volumes", expect=200).json()["cluster_info"]["id"]


def test_volume_create_edit_destroy(tp, server, create):
    """A volume is created, listed, shown, changed and destroyed."""
    volume = create(3, "--name", "data")
    listed, info = tp("storage", "list").text, tp("storage", "info", volume).text
    for shown in (volume, "data", "READY"):
        assert shown in listed
        assert shown in info

    tp("storage", "edit", volume, "-s", "5", "--name", "more-data")
    operations = server.call("GET", "/request/list", params={"type": "STORAGE_EDIT"}, expect=200).json()["requests"]
    for operation in operations:
        server.finish(operation["request_id"])
    seen = server.call("GET", f"/storage/info/{volume}", expect=200).json()["storage_info"]
    assert (seen["size_gb"], seen["name"], seen["status"]) == (5, "more-data", "READY")

    tp("storage", "destroy", volume, "--no-input", "--wait")
    assert volume not in tp("storage", "ls").text


def test_create_without_wait_names_volume(tp):
    """Without `--wait` the message names the volume."""
    assert STORAGE_ID.search(tp("storage", "create", "1").text)


def test_volume_refusals(tp, create):
    """Wrong sizes, taken or invalid names, shrinking and a protected volume are refused."""
    volume = create(4, "--name", "taken", "--deletion-protection")
    for size in ("0", "-1", "999999999999", "99999999999999999999999"):
        tp("storage", "create", size, refused=True)
    tp("storage", "create", "1", "--name", "taken", refused=True)
    tp("storage", "create", "1", "--name", "Bad Name", refused=True)
    tp("storage", "edit", volume, "-s", "3", refused=True)
    assert "protect" in tp("storage", "destroy", volume, "--no-input", refused=True).text.lower()
    tp("storage", "edit", volume, "--deletion-protection", "false")
    assert "cancelled" in tp("storage", "destroy", volume, refused=True).text
    tp("storage", "rm", volume, "--no-input", "--wait")


def test_wrong_ids_are_refused(tp, cluster):
    """Wrong IDs are refused."""
    for wrong in (NO_VOLUME, "not-an-id", "c-000000000000"):
        tp("storage", "info", wrong, refused=True)
        tp("storage", "edit", wrong, "--name", "other", refused=True)
        tp("storage", "destroy", wrong, "--no-input", refused=True)
        tp("cluster", "attach", cluster, wrong, refused=True)
        tp("cluster", "detach", cluster, wrong, refused=True)


def test_attach_and_detach(tp, server, create, cluster):
    """A volume is attached and detached; repeated or mismatched calls are refused."""
    volume, other = create(1), create(1)
    tp("cluster", "attach", cluster, volume, "--wait")
    info = server.call("GET", f"/cluster/info/{cluster}", expect=200).json()["cluster_info"]
    assert info["status"] == "RUNNING" and volume in info["storage"]
    assert cluster in tp("storage", "info", volume).text
    assert volume in tp("cluster", "info", cluster).text

    tp("cluster", "attach", cluster, volume, refused=True)
    tp("cluster", "attach", cluster, other, refused=True)
    tp("cluster", "attach", "c-000000000000", other, refused=True)
    tp("storage", "destroy", volume, "--no-input", refused=True)
    tp("cluster", "detach", cluster, other, refused=True)

    tp("cluster", "detach", cluster, volume, "--wait")
    seen = server.call("GET", f"/storage/info/{volume}", expect=200).json()["storage_info"]
    assert (seen["status"], seen["attached_clusters"]) == ("READY", [])
    tp("storage", "destroy", volume, "--no-input", "--wait")


def test_destroyed_volume_is_read_only(tp, create, cluster):
    """A destroyed volume can be shown, and every change is refused; a destroyed cluster takes no volume."""
    volume, gone = create(1), create(1)
    tp("storage", "destroy", gone, "--no-input", "--wait")
    assert "DESTROYED" in tp("storage", "info", gone).text
    for said in (
        tp("storage", "destroy", gone, "--no-input", refused=True),
        tp("storage", "edit", gone, "--name", "again", refused=True),
        tp("cluster", "attach", cluster, gone, refused=True),
    ):
        assert "destroyed" in said.text.lower(), said
    tp("cluster", "detach", cluster, gone, refused=True)
    tp("cluster", "destroy", cluster, "--no-input", "--wait")
    assert "destroyed" in tp("cluster", "attach", cluster, volume, refused=True).text.lower()
    tp("cluster", "detach", cluster, volume, refused=True)


def test_cluster_destroy_keeps_volume(tp, server, create, cluster):
    """Destroying a cluster detaches its volume and keeps it."""
    volume = create(1)
    tp("cluster", "attach", cluster, volume, "--wait")
    tp("cluster", "destroy", cluster, "--no-input", "--wait")
    seen = server.call("GET", f"/storage/info/{volume}", expect=200).json()["storage_info"]
    assert (seen["status"], seen["attached_clusters"]) == ("READY", [])


def test_org_lists_volumes_of_members(tp, server, create, user):
    """`--org` lists the volumes of all members, and none of another organization."""
    organization = server.call("GET", "/user/organization/info", expect=200).json()["org_name"]
    member, stranger = user("member@example.org", organization), user("stranger@example.com", "elsewhere")
    volume = create(1)
    assert volume not in tp("storage", "list", key=member).text
    assert volume in tp("storage", "list", "--org", key=member).text
    assert volume not in tp("storage", "list", "--org", key=stranger).text
    tp("storage", "info", volume, key=stranger, refused=True)
    tp("storage", "destroy", volume, "--no-input", key=stranger, refused=True)


def test_member_keeps_volume_of_others(tp, server, create, user):
    """Another member may use a volume, and learns from the refusal who can destroy it."""
    info = server.call("GET", "/user/organization/info", expect=200).json()
    member = user("member@example.org", info["org_name"])
    volume = create(1)
    tp("storage", "info", volume, key=member)
    said = tp("storage", "destroy", volume, "--no-input", key=member, refused=True).text
    assert "can destroy storage" in said and server.call("GET", "/me", expect=200).json()["email"] in said
    assert volume in tp("storage", "list").text
