"""Our own client and clusters: every command, as it succeeds and as it fails."""

import re

import pytest

from client import ended, interrupt
from support import eventually

CLUSTER_ID = re.compile(r"\bc-[0-9a-hjkmnp-tv-z]{12}\b")
REQUEST_ID = re.compile(r"\br-[0-9a-hjkmnp-tv-z]{12}\b")


def seen(server, cluster: str) -> dict:
    """The cluster as the API shows it."""
    return server.call("GET", f"/cluster/info/{cluster}", expect=200).json()["cluster_info"]


def test_a_cluster_lives_and_ends(tarn, server, public_key):
    said = tarn(f"cluster create 1xH100 -i {public_key} --name first-light --num-nodes 2 --wait").text
    [cluster] = CLUSTER_ID.findall(said)
    assert said.splitlines()[-1] == "The cluster is running."
    assert seen(server, cluster)["num_nodes"] == 2
    for listed in (tarn("cluster list").text, tarn("cluster ls").text):
        head, row = listed.splitlines()
        assert head.split()[:5] == ["NAME", "ID", "STATUS", "TYPE", "NODES"]
        assert row.split()[:5] == ["first-light", cluster, "RUNNING", "1xH100", "2"]
    machines = tarn("cluster list --instances").text
    info = tarn(f"cluster info {cluster}").text
    for instance in seen(server, cluster)["instances"]:
        assert instance["id"] in machines and instance["name"] in machines and instance["id"] in info
    assert tarn("cluster info first-light").text == info
    assert "is being destroyed" in tarn("cluster destroy first-light --no-input --wait").text
    assert "no clusters" in tarn("cluster list").text
    assert seen(server, cluster)["status"] == "DESTROYED"


def test_a_cluster_in_json(tarn, server, public_key):
    accepted = tarn.json(f"cluster create 1xCPU --public-key {public_key} --name box -n 1")
    server.finish(accepted["request_id"])
    assert tarn.json("cluster info box")["cluster_info"]["id"] == accepted["cluster_id"]
    [listed] = tarn.json("cluster list --instances")["clusters"]
    assert [instance["id"] for instance in listed["instances"]] == accepted["instance_ids"]
    assert tarn.json("cluster restart box --wait")["status"] == "COMPLETED"
    assert tarn.json("cluster edit box --name bin")["request_id"]
    assert tarn.json("cluster destroy bin --no-input --wait")["request_type"] == "CLUSTER_RELEASE"
    assert tarn.json("cluster list")["clusters"] == []
    assert {kind["name"] for kind in tarn.json("cluster types")["types"]} >= {"1xCPU", "8xH100"}


def test_what_is_said_without_waiting_leads_on(tarn):
    said = tarn("cluster create 1xCPU").text
    assert CLUSTER_ID.search(said)
    assert tarn(f"request wait {REQUEST_ID.search(said)[0]}").text == "The cluster is running.\n"


def test_options_of_create_arrive(tarn, server):
    tarn("cluster create 1xCPU --name one --deletion-protection --jobs-parallel 3 --container example.org/image:1 --wait")
    cluster = seen(server, "one")
    assert cluster["deletion_protection"] is True and cluster["container"] == "example.org/image:1"
    # How many jobs it takes is not shown anywhere, but a number that cannot be is refused.
    assert "jobs_parallel" in tarn("cluster create 1xCPU --jobs-parallel 0", code=2).errors


def test_what_cannot_be_created(tarn, server, public_key, tmp_path):
    tarn("cluster create 1xCPU --name taken --wait")
    assert "8xH100" in tarn("cluster create 9xUNICORN", code=2).errors, "it says what there is"
    assert "num_nodes" in tarn("cluster create 1xCPU -n 0", code=2).errors
    assert "taken by cluster" in tarn("cluster create 1xCPU --name taken", code=4).errors
    tarn("cluster create 1xCPU --name", "Not A Name\a", code=2)
    assert "absent.pub" in tarn("cluster create 1xCPU -i absent.pub", code=1).errors
    private = tmp_path / "id"
    private.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nsecret\n")
    said = tarn(f"cluster create 1xCPU -i {private}", code=2).errors
    assert "private key" in said and ".pub" in said
    private.write_text("ssh-ed25519 hello")
    tarn(f"cluster create 1xCPU -i {private}", code=2)
    assert len(server.call("GET", "/cluster/list", expect=200).json()["clusters"]) == 1


def test_edit_and_deletion_protection(tarn, server):
    tarn("cluster create 1xCPU --name guarded --deletion-protection --wait")
    assert "protect" in tarn("cluster destroy guarded --no-input", code=4).errors
    assert tarn.json("cluster rm guarded --no-input", code=4)["code"] == "deletion_protected"
    tarn("cluster edit guarded --name renamed --deletion-protection false")
    assert seen(server, "renamed")["deletion_protection"] is False
    tarn("cluster edit renamed --deletion-protection true")
    tarn("cluster edit renamed --deletion-protection false")
    tarn("cluster create 1xCPU --name other --wait")
    assert "name is taken" in tarn("cluster edit renamed --name other", code=4).errors
    tarn("cluster edit renamed --name bad_name!", code=2)
    assert "--name" in tarn("cluster edit renamed", code=2).errors
    tarn("cluster rm renamed --no-input --wait")


def test_a_restart(tarn, server):
    tarn("cluster create 1xCPU --name box --wait")
    assert REQUEST_ID.search(tarn("cluster restart box --wait").text)
    assert seen(server, "box")["status"] == "RUNNING"
    tarn("cluster destroy box --no-input --wait")
    tarn(f"cluster restart {server.call('GET', '/cluster/list?all=true').json()['clusters'][0]['id']}", code=4)


def test_volumes_come_and_go(tarn, server):
    tarn("cluster create 1xCPU --name box --wait")
    volume = tarn.json("storage create 1 --name data --wait")["object_id"]
    assert tarn(f"cluster attach box {volume} --wait").text.splitlines()[-1]
    assert seen(server, "box")["storage"] == [volume]
    assert volume in tarn("cluster info box").text
    tarn(f"cluster attach box {volume}", code=4)
    tarn(f"cluster detach box {volume} --wait")
    assert seen(server, "box")["storage"] == []
    tarn(f"cluster detach box {volume}", code=4)
    tarn("cluster attach box data --wait")
    tarn("cluster detach box data --wait")
    assert tarn.json(f"cluster attach box {volume} --live --wait")["request_type"] == "STORAGE_ATTACH"
    assert tarn.json(f"cluster attach box {volume}", code=4)["code"]
    [request] = [tarn.json(f"cluster detach box {volume} --live")["request_id"]]
    server.finish(request)


def test_the_organization_sees_what_its_members_made(tarn, user):
    member, stranger = user("member@example.org", "default"), user("stranger@example.com", "elsewhere")
    cluster = tarn.json("cluster create 1xCPU --name shared --wait", key=member)["object_id"]
    assert cluster not in tarn("cluster list").text
    assert cluster in tarn("cluster list --org").text and cluster in tarn("cluster list --organization").text
    assert cluster not in tarn("cluster list --org", key=stranger).text
    tarn(f"cluster info {cluster}")
    tarn(f"cluster info {cluster}", key=stranger, code=1)
    tarn("cluster info shared", key=stranger, code=3)


def test_ctrl_c_ends_the_wait_and_nothing_else(tarn, server):
    tarn("cluster create 8xH100 --name everything --wait")
    with tarn.running("cluster create 8xH100 --name patient --wait") as client:
        request = REQUEST_ID.search(client.stdout.readline())[0]
        said = interrupt(client)
    assert said.code == 130
    assert f"tarn request wait {request}" in said.errors
    assert tarn.json(f"request info {request}")["status"] not in ("COMPLETED", "FAILED")
    explained = tarn("cluster info patient").text
    assert "PENDING" in explained and "1st in line" in explained
    with tarn.running(f"request wait {request}") as client:
        assert client.stderr.readline().startswith("Waits for 8 H100 GPUs, 0 are free"), "a log says what it waits for"
        tarn("cluster destroy everything --no-input --wait")
        said = ended(client)
        assert (said.code, said.text) == (0, "The cluster is running.\n")


def test_a_wait_for_what_fails(tarn, server):
    tarn("cluster create 8xH100 --name everything --wait")
    with tarn.running("cluster create 8xH100 --name patient --wait") as client:
        request = REQUEST_ID.search(client.stdout.readline())[0]
        tarn("cluster destroy patient --no-input --wait")
        said = ended(client)
    assert said.code == 1 and said.errors.splitlines()[-1].startswith("tarn: ")
    assert "keeps its name" not in said.errors, "it is gone"
    assert tarn.json(f"request wait {request}", code=1)["status"] == "FAILED"
    tarn(f"request wait {request}", code=1)
    assert "FAILED" in tarn(f"request info {request}").text


def test_what_a_failed_creation_leaves_is_said(tarn):
    said = tarn("cluster create 1xH100 --name broken --container fault.invalid/image --wait", code=1).errors
    cluster = tarn.json("cluster info broken")["cluster_info"]
    assert cluster["status"] == "FAILED" and "registry. The GPUs are simulated" in cluster["explanation"], cluster
    assert f"cluster broken is FAILED and keeps its name; destroy it with `tarn cluster destroy {cluster['id']}`" in said
    tarn(f"cluster destroy {cluster['id']} --no-input --wait")


@pytest.mark.parametrize("answer, code", [("y", 0), ("YES", 0), ("n", 1), ("", 1)])
def test_what_is_destroyed_is_asked_for_at_a_terminal(tarn, server, answer, code):
    tarn("cluster create 1xCPU --name box --wait")
    with tarn.terminal("cluster destroy box --wait") as terminal:
        assert "Destroy cluster box" in terminal.until("[y/N]")
        terminal.type(answer + "\n")
        shown = terminal.ends(code)
    gone = not server.call("GET", "/cluster/list", expect=200).json()["clusters"]
    assert gone == (code == 0) and ("nothing was done" in shown) == (code == 1)


def test_where_nobody_can_be_asked_nothing_is_destroyed(tarn, server):
    tarn("cluster create 1xCPU --name box --wait")
    assert "--no-input" in tarn("cluster destroy box", code=2).errors
    assert "--no-input" in tarn.json("cluster destroy box", code=2)["message"]
    cluster = seen(server, "box")
    assert cluster["status"] == "RUNNING"
    tarn("--no-input cluster destroy box")
    eventually(lambda: seen(server, cluster["id"])["status"] == "DESTROYED", what="the end of the cluster")
