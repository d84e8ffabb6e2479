"""The unchanged `tp` 0.0.9 against Tarn: the caller and the saved SSH keys."""

import re

from conftest import write_public_key

KEY_ID = re.compile(r"\bk-[0-9a-hjkmnp-tv-z]{12}\b")


def test_me_shows_caller(tp, server, user):
    """`tp me` shows the caller and the engine."""
    key = user("ann@example.org", "lake")
    said = tp("me", key=key).text
    assert "ann@example.org" in said and "lake" in said
    # The client adds this line itself when the engine is not the hosted one.
    assert f"TENSORPOOL_ENGINE={server.url}" in said


def test_preferences_are_allowed(tp):
    """`tp me preferences` only prints a link, after the engine has accepted the key."""
    assert "preferences" in tp("me", "preferences").text


def test_sshkey_add_list_remove(tp, server, public_key):
    """SSH keys are added, listed and removed."""
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


def test_create_saves_given_key(tp, server, tmp_path):
    """`tp cluster create -i` saves the key in the account."""
    path = write_public_key(tmp_path / "other.pub")
    tp("cluster", "create", "1xCPU", "-i", path)
    saved = server.call("GET", "/user/ssh-key/list", expect=200).json()["keys"]
    assert path.read_text().split()[1] in [key["public_key"].split()[1] for key in saved]


def test_sshkey_refusals(tp, user, tmp_path, public_key):
    """Invalid key files, unknown IDs and keys of other users are refused."""
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
