"""Our own client and volumes: every command, as it succeeds and as it fails."""

import re

STORAGE_ID = re.compile(r"\bs-[0-9a-hjkmnp-tv-z]{12}\b")


def test_a_volume_lives_and_ends(tarn, server):
    said = tarn("storage create 3 --name data --wait").text
    [volume] = STORAGE_ID.findall(said)
    assert said.splitlines()[-1] == "The storage is ready."
    for listed in (tarn("storage list").text, tarn("storage ls").text):
        head, row = listed.splitlines()
        assert head.split()[:4] == ["NAME", "ID", "STATUS", "SIZE"]
        assert row.split()[:3] == ["data", volume, "READY"] and "3 GB" in row
    info = tarn(f"storage info {volume}").text
    assert all(word in info for word in ("data", volume, "READY", "3 GB"))
    assert tarn("storage info data").text == info, "a name does as well"
    tarn("storage edit data --size 4 --wait")
    assert "4 GB" in tarn(f"storage info {volume}").text
    assert "is being destroyed" in tarn("storage destroy data --no-input --wait").text
    assert "no volumes" in tarn("storage list").text
    assert "DESTROYED" in tarn(f"storage info {volume}").text


def test_a_volume_in_json(tarn, server):
    accepted = tarn.json("storage create 1 --name data --deletion-protection")
    server.finish(accepted["request_id"])
    volume = accepted["storage_id"]
    assert tarn.json(f"storage info {volume}")["storage_info"]["deletion_protection"] is True
    assert tarn.json(f"storage destroy {volume} --no-input", code=4)["code"] == "deletion_protected"
    assert tarn.json(f"storage edit {volume} --name other --deletion-protection false")["request_id"]
    assert tarn.json(f"storage edit {volume} -s 2 --wait")["request_type"] == "STORAGE_EDIT"
    [listed] = tarn.json("storage list")["volumes"]
    assert (listed["name"], listed["size_gb"]) == ("other", 2)
    assert tarn.json(f"storage destroy {volume} --no-input --wait")["status"] == "COMPLETED"
    assert tarn.json("storage list")["volumes"] == []


def test_what_a_volume_refuses(tarn):
    volume = tarn.json("storage create 2 --name data --wait")["object_id"]
    assert "grow" in tarn(f"storage edit {volume} --size 1", code=4).errors
    assert "taken" in tarn("storage create 1 --name data", code=4).errors
    tarn(f"storage edit {volume} --name bad_name!", code=2)
    tarn("cluster create 1xCPU --name box --wait")
    tarn(f"cluster attach box {volume} --wait")
    assert "attached" in tarn(f"storage rm {volume} --no-input", code=4).errors
    assert "--no-input" in tarn(f"storage destroy {volume}", code=2).errors


def test_a_volume_is_asked_for_before_it_goes(tarn):
    volume = tarn.json("storage create 1 --wait")["object_id"]
    for answer, code in (("n", 1), ("y", 0)):
        with tarn.terminal(f"storage destroy {volume} --wait") as terminal:
            assert f"Destroy volume {volume} and its data?" in terminal.until("[y/N]")
            terminal.type(f"{answer}\n")
            terminal.ends(code)
        assert (volume in tarn("storage list").text) == (code == 1)


def test_the_organization_shares_volumes(tarn, user):
    member, stranger = user("member@example.org", "default"), user("stranger@example.com", "elsewhere")
    volume = tarn.json("storage create 1 --wait", key=member)["object_id"]
    assert volume not in tarn("storage list").text
    assert volume in tarn("storage list --org").text and volume in tarn("storage list --organization").text
    assert volume not in tarn("storage list --org", key=stranger).text
    tarn(f"storage info {volume}", key=stranger, code=1)
    tarn(f"storage destroy {volume} --no-input", key=stranger, code=1)
