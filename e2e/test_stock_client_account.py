"""The unchanged `tp` 0.0.9 against Tarn: the caller and the saved SSH keys."""

import re

from conftest import write_public_key

KEY_ID = re.compile(r"\bk-[0-9a-hjkmnp-tv-z]{12}\b")


def test_me(tp, server, user):
    key = user("ann@example.org", "lake")
    said = tp("me", key=key).text
    assert "ann@example.org" in said and "lake" in said
    # The client adds this line itself when the engine is not the hosted one.
    assert f"TENSORPOOL_ENGINE={server.url}" in said


def test_preferences_are_elsewhere(tp):
    """The client only says where they are; that it may go on is still for the engine to say."""
    assert "preferences" in tp("me", "preferences").text


def test_ssh_keys(tp, server, public_key):
    added = tp("me", "sshkey", "add", public_key, "--name", "laptop").text
    saved = server.call("GET", "/user/ssh-key/list", expect=200).json()["keys"]
    assert [key["name"] for key in saved] == ["laptop"]
    key_id = saved[0]["id"]
    assert KEY_ID.fullmatch(key_id) and key_id in added

    for text in (tp("me", "sshkey", "list").text, tp("me", "sshkey", "ls", "--org").text):
        assert key_id in text and "laptop" in text

    tp("me", "sshkey", "remove", key_id)
    assert key_id not in tp("me", "sshkey", "list").text
    tp("me", "sshkey", "rm", key_id, refused=True)


def test_a_cluster_saves_the_key_it_was_given(tp, server, tmp_path):
    path = write_public_key(tmp_path / "other.pub")
    tp("cluster", "create", "1xCPU", "-i", path)
    saved = server.call("GET", "/user/ssh-key/list", expect=200).json()["keys"]
    assert path.read_text().split()[1] in [key["public_key"].split()[1] for key in saved]


def test_what_is_refused(tp, user, tmp_path, public_key):
    for number, text in enumerate(("hello", "ssh-ed25519 AAAA", "-----BEGIN OPENSSH PRIVATE KEY-----\nAAAA\n")):
        bad = tmp_path / f"bad-{number}.pub"
        bad.write_text(text)
        tp("me", "sshkey", "add", bad, refused=True)
    tp("me", "sshkey", "add", tmp_path / "absent.pub", refused=True)
    tp("me", "sshkey", "remove", "k-000000000000", refused=True)
    tp("me", "sshkey", "remove", "nonsense", refused=True)

    key_id = KEY_ID.search(tp("me", "sshkey", "add", public_key).text)[0]
    tp("me", "sshkey", "remove", key_id, key=user("bob@example.com", "elsewhere"), refused=True)
    assert key_id in tp("me", "sshkey", "list").text
