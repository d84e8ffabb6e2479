"""Tags of objects, and their limits."""

import pytest

from objects import bucket, new_bucket, put, refused, s3, storage  # noqa: F401
from objects_wire import Wire


def tags_of(s3, bucket: str) -> dict[str, str]:
    """The tags of `key`."""
    return {tag["Key"]: tag["Value"] for tag in s3.get_object_tagging(Bucket=bucket, Key="key")["TagSet"]}


def set_tags(s3, bucket: str, tags: list[tuple[str, str]]):
    """Replaces the tags of `key`."""
    listed = [{"Key": key, "Value": value} for key, value in tags]
    s3.put_object_tagging(Bucket=bucket, Key="key", Tagging={"TagSet": listed})


def test_tags_set_and_delete(s3, bucket):
    """Tags are set, replaced and deleted."""
    put(s3, bucket, "key")
    assert tags_of(s3, bucket) == {}
    assert "TagCount" not in s3.get_object(Bucket=bucket, Key="key")
    for tags in ({"a": "1", "b": ""}, {"c + d": "ü=:/@"}):
        set_tags(s3, bucket, list(tags.items()))
        assert tags_of(s3, bucket) == tags
        assert s3.get_object(Bucket=bucket, Key="key")["TagCount"] == len(tags)
        head = s3.head_object(Bucket=bucket, Key="key")["ResponseMetadata"]["HTTPHeaders"]
        assert head["x-amz-tagging-count"] == str(len(tags))
    s3.delete_object_tagging(Bucket=bucket, Key="key")
    assert tags_of(s3, bucket) == {}


def test_tags_up_to_limits_are_accepted(s3, bucket):
    """Ten tags of the maximum length are accepted."""
    put(s3, bucket, "key")
    tags = [(f"{number}" + "k" * 127, "v" * 256) for number in range(10)]
    set_tags(s3, bucket, tags)
    assert tags_of(s3, bucket) == dict(tags)


@pytest.mark.parametrize(
    "tags",
    [
        [(f"{number}", "v") for number in range(11)], [("k" * 129, "v")], [("k", "v" * 257)], [("same", "1"), ("same", "2")],
        [("k", "!")], [("k?", "v")], [("*", "v")],
    ],
    ids=["eleven", "long key", "long value", "twice", "!", "?", "*"],
)  # fmt: skip
def test_tags_beyond_limits_are_refused(s3, bucket, tags):
    """Tags beyond the limits are refused, and the old ones are kept."""
    put(s3, bucket, "key")
    set_tags(s3, bucket, [("old", "1")])
    with refused(400, "InvalidTag", "BadRequest", "MalformedXML"):
        set_tags(s3, bucket, tags)
    assert tags_of(s3, bucket) == {"old": "1"}


def test_put_sets_tags(s3, bucket):
    """A put sets tags, and the next put replaces them."""
    s3.put_object(Bucket=bucket, Key="key", Body=b"x", Tagging="a=1&b%20c=%C3%BC&d")
    assert tags_of(s3, bucket) == {"a": "1", "b c": "ü", "d": ""}
    put(s3, bucket, "key")
    assert tags_of(s3, bucket) == {}, "a new object has its own tags"
    with refused(400, "InvalidTag", "InvalidArgument", "BadRequest"):
        s3.put_object(Bucket=bucket, Key="other", Body=b"x", Tagging="&".join(f"{number}=v" for number in range(11)))
    with refused(404):
        s3.head_object(Bucket=bucket, Key="other")


def test_tags_of_missing_object_are_refused(s3, bucket):
    """Tags of a missing object are refused."""
    with refused(404, "NoSuchKey"):
        tags_of(s3, bucket)
    with refused(404, "NoSuchKey"):
        set_tags(s3, bucket, [("a", "1")])


def test_malformed_tags_are_refused(storage, s3, bucket):
    """Malformed tag bodies are refused."""
    put(s3, bucket, "key")
    for body in (b"<Tagging>", b"<Tagging><TagSet><Tag><Key>a</Key></TagSet></Tagging>", b"<Other/>"):
        answer = Wire(storage.account).call("PUT", f"/{bucket}/key", "tagging=", body=body)
        assert answer.outcome == (400, "MalformedXML"), body
