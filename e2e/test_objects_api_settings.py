"""Settings of buckets: tags, rules for browsers, and rules for the life of objects."""

from datetime import UTC, datetime

import pytest
import requests

from objects import EXTERNAL_ENDPOINT, bucket, keys_of, new_bucket, put, refused, s3, storage  # noqa: F401
from support import eventually

ORIGIN = "https://app.example.org"
CORS = {
    "CORSRules": [
        {
            "AllowedOrigins": ["https://*.example.org"], "AllowedMethods": ["GET", "PUT"], "AllowedHeaders": ["x-amz-*"],
            "ExposeHeaders": ["ETag"], "MaxAgeSeconds": 60,
        }
    ]
}  # fmt: skip


@pytest.fixture
def browser():
    """An HTTP client without a key."""
    with requests.Session() as session:
        session.trust_env = False
        yield session


def test_bucket_tags_set_and_delete(s3, bucket):
    """Tags of a bucket are set, replaced and deleted."""
    with refused(404, "NoSuchTagSet"):
        s3.get_bucket_tagging(Bucket=bucket)
    for tags in ([{"Key": "a", "Value": "1"}, {"Key": "b", "Value": ""}], [{"Key": "c + d", "Value": "ü"}]):
        s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": tags})
        assert s3.get_bucket_tagging(Bucket=bucket)["TagSet"] == tags
    with refused(400, "InvalidTag"):
        s3.put_bucket_tagging(Bucket=bucket, Tagging={"TagSet": [{"Key": "k", "Value": "?"}]})
    s3.delete_bucket_tagging(Bucket=bucket)
    with refused(404, "NoSuchTagSet"):
        s3.get_bucket_tagging(Bucket=bucket)


def test_cors_rules_apply_to_scripts(s3, bucket, browser):
    """Scripts of the origins in a rule may send calls with signed URLs and read the responses."""
    with refused(404, "NoSuchCORSConfiguration"):
        s3.get_bucket_cors(Bucket=bucket)
    put(s3, bucket, "key")
    url = s3.generate_presigned_url("get_object", Params={"Bucket": bucket, "Key": "key"})
    asks = {"Origin": ORIGIN, "Access-Control-Request-Method": "GET"}
    assert browser.options(url, headers=asks).status_code == 403
    s3.put_bucket_cors(Bucket=bucket, CORSConfiguration=CORS)
    assert s3.get_bucket_cors(Bucket=bucket)["CORSRules"] == CORS["CORSRules"]
    allowed = browser.options(url, headers=asks | {"Access-Control-Request-Headers": "x-amz-date"})
    assert (allowed.status_code, allowed.content) == (200, b"")
    assert allowed.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert allowed.headers["Access-Control-Allow-Headers"] == "x-amz-date"
    for wrong in ({"Origin": "https://evil.org"}, {"Access-Control-Request-Method": "DELETE"},
                  {"Access-Control-Request-Headers": "range"}):  # fmt: skip
        assert browser.options(url, headers=asks | wrong).status_code == 403, wrong
    seen = browser.get(url, headers={"Origin": ORIGIN})
    assert (seen.content, seen.headers["Access-Control-Allow-Origin"]) == (b"key", ORIGIN)
    assert seen.headers["Access-Control-Expose-Headers"] == "ETag"
    assert "Access-Control-Allow-Origin" not in browser.get(url, headers={"Origin": "https://evil.org"}).headers
    s3.delete_bucket_cors(Bucket=bucket)
    assert "Access-Control-Allow-Origin" not in browser.get(url, headers={"Origin": ORIGIN}).headers


def test_lifecycle_rules_are_kept(s3, bucket):
    """Rules for the life of objects are returned as they were set."""
    with refused(404, "NoSuchLifecycleConfiguration"):
        s3.get_bucket_lifecycle_configuration(Bucket=bucket)
    tags = [{"Key": "a", "Value": "1"}, {"Key": "b", "Value": "2"}]
    rules = [
        {"ID": "days", "Status": "Enabled", "Filter": {"Prefix": "log/"}, "Expiration": {"Days": 30}},
        {"ID": "tags", "Status": "Disabled", "Filter": {"And": {"Prefix": "t", "Tags": tags}}, "Expiration": {"Days": 1}},
        {"ID": "old", "Status": "Enabled", "Filter": {"Prefix": ""}, "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 2},
         "NoncurrentVersionExpiration": {"NoncurrentDays": 3, "NewerNoncurrentVersions": 4}},
        {"ID": "plain", "Status": "Enabled", "Prefix": "p", "Expiration": {"Date": datetime(2090, 1, 1, tzinfo=UTC)}},
    ]  # fmt: skip
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    assert s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"] == rules
    wrong = [rules[0] | {"Expiration": {"Days": 0}}]
    with refused(400, "InvalidArgument"):
        s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": wrong})
    s3.delete_bucket_lifecycle(Bucket=bucket)
    with refused(404, "NoSuchLifecycleConfiguration"):
        s3.get_bucket_lifecycle_configuration(Bucket=bucket)


@pytest.mark.skipif(bool(EXTERNAL_ENDPOINT), reason="others apply rules once a day")
def test_lifecycle_rule_removes_objects(s3, bucket):
    """Objects are removed by a rule that is due, and others stay."""
    put(s3, bucket, "log/a", "log/b", "kept")
    s3.put_object_tagging(Bucket=bucket, Key="log/b", Tagging={"TagSet": [{"Key": "keep", "Value": "yes"}]})
    s3.put_object(Bucket=bucket, Key="tagged", Body=b"x", Tagging="temporary=yes")
    past = {"Date": datetime(2020, 1, 1, tzinfo=UTC)}
    rules = [
        {"ID": "log", "Status": "Enabled", "Filter": {"Prefix": "log/a"}, "Expiration": past},
        {"ID": "tag", "Status": "Enabled", "Filter": {"Tag": {"Key": "temporary", "Value": "yes"}}, "Expiration": past},
    ]
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": rules})
    eventually(lambda: keys_of(s3.list_objects_v2(Bucket=bucket)) == ["kept", "log/b"], what="the rules")
