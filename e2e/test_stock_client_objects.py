"""The unchanged `tp` 0.0.9 against Tarn: object storage and its buckets."""

import re

import pytest

from objects import Account, put

SHOWN = re.compile(
    r"Access Key ID: +(\S+)\nSecret Access Key: +(\S+)\nEndpoint: +(http://127\.0\.0\.1:\d+)\nRegion: +(global)$"
)


def account(text: str) -> Account:
    """The account that the client has shown."""
    access_key, secret_key, endpoint, region = SHOWN.search(text).groups()
    return Account(endpoint, access_key, secret_key, region)


@pytest.fixture
def s3(tp):
    """boto3 with what the client was told when it switched object storage on."""
    return account(tp("object-storage", "enable").text).client()


def test_enable_shows_credentials_that_work(tp):
    first = account(tp("object-storage", "enable").text)
    assert account(tp("object-storage", "enable").text) == first, "a second time changes nothing"
    assert account(tp("object-storage", "credentials").text) == first
    assert first.client().list_buckets()["Buckets"] == []


def test_before_it_is_enabled(tp):
    for command in (("credentials",), ("disable",), ("configure", "rclone"), ("bucket", "list"), ("bucket", "create", "photos"),
                    ("bucket", "delete", "photos")):  # fmt: skip
        said = tp("object-storage", *command, refused=True).text
        assert "enable" in said, "it says what to do"


def test_buckets(tp, s3):
    assert "No buckets found" in tp("object-storage", "bucket", "list").text
    assert "photos" in tp("object-storage", "bucket", "create", "photos").text
    tp("object-storage", "bucket", "create", "logs")
    assert tp("object-storage", "bucket", "ls").text.splitlines() == ["logs", "photos"]
    assert [each["Name"] for each in s3.list_buckets()["Buckets"]] == ["logs", "photos"]
    tp("object-storage", "bucket", "delete", "logs")
    tp("object-storage", "bucket", "rm", "photos")
    assert "No buckets found" in tp("object-storage", "bucket", "list").text


def test_buckets_that_are_refused(tp, s3):
    tp("object-storage", "bucket", "create", "photos")
    assert "with that name" in tp("object-storage", "bucket", "create", "photos", refused=True).text
    for name in ("ab", "Upper", "under_score", "a" * 64, "192.168.5.4", "two..dots"):
        tp("object-storage", "bucket", "create", name, refused=True)
    tp("object-storage", "bucket", "delete", "missing", refused=True)
    put(s3, "photos", "key")
    assert "empty" in tp("object-storage", "bucket", "delete", "photos", refused=True).text
    s3.delete_object(Bucket="photos", Key="key")
    tp("object-storage", "bucket", "delete", "photos")


def test_configure_rclone_writes_its_section(tp, s3, tmp_path):
    file = tmp_path / "home" / ".config" / "rclone" / "rclone.conf"
    file.parent.mkdir(parents=True)
    file.write_text("[mine]\ntype = local\n")
    for _ in range(2):
        assert "Wrote [tp]" in tp("object-storage", "configure", "rclone").text
        text = file.read_text()
        assert text.count("[tp]") == text.count("[mine]") == 1
        assert "type = s3" in text and "type = local" in text


def test_disable(tp, s3):
    tp("object-storage", "bucket", "create", "photos")
    put(s3, "photos", "key")
    assert "force" in tp("object-storage", "disable", refused=True).text
    s3.delete_object(Bucket="photos", Key="key")
    tp("object-storage", "disable")
    with pytest.raises(s3.exceptions.ClientError, match="InvalidAccessKeyId"):
        s3.list_buckets()
    tp("object-storage", "credentials", refused=True)
    again = account(tp("object-storage", "enable").text)
    assert again.client().list_buckets()["Buckets"] == [], "nothing comes back"


def test_without_an_organization(tp, user):
    loner = user("loner@example.org")
    said = tp("object-storage", "enable", key=loner, refused=True).text
    assert "organization" in said
    for command in (("credentials",), ("bucket", "list"), ("disable",)):
        tp("object-storage", *command, key=loner, refused=True)


def test_the_organization_shares_it_and_nobody_else(tp, server, user, s3):
    organization = server.call("GET", "/user/organization/info", expect=200).json()["org_name"]
    member, stranger = user("member@example.org", organization), user("stranger@example.com", "elsewhere")
    tp("object-storage", "bucket", "create", "photos")
    assert tp("object-storage", "bucket", "list", key=member).text == "photos"
    tp("object-storage", "enable", key=stranger)
    assert "No buckets found" in tp("object-storage", "bucket", "list", key=stranger).text
    tp("object-storage", "bucket", "create", "photos", key=stranger)
    put(s3, "photos", "key")
    tp("object-storage", "bucket", "delete", "photos", key=stranger)
    assert tp("object-storage", "bucket", "list").text == "photos"
