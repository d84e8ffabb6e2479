"""The engine opens the data of an older version and continues the work in progress."""

from pathlib import Path

import pytest
from instances import needs_root
from objects import Account
from upgrades import LARGE, PART, Upgrades, schema_of

pytestmark = needs_root
FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("schema-*.tar.xz"), key=schema_of)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name.split(".")[0])
def test_older_data_is_upgraded(tmp_path, fixture):
    """The engine opens the data of an older version and continues its work."""
    cloud, schema = Upgrades(tmp_path), schema_of(fixture)
    facts = cloud.unpack(fixture)
    with cloud:
        # The cluster returns with its disk and its volume.
        cloud.wait_for_cluster_status(facts["box"], "RUNNING")
        assert cloud.ssh("box", "cat file").out == "on the disk\n"
        assert cloud.ssh("box", f"cat /mnt/{facts['volume']}/file").out == "on the volume\n"
        # Requests continue: one was running, one waits for capacity that does not exist.
        cloud.finish(facts["coming"]["request_id"])
        assert cloud.info(facts["waiting"]["cluster_id"])["status"] == "PENDING"
        if schema >= 5:
            check_jobs(cloud, facts)
        check_objects(cloud, facts)
        # Users keep their keys.
        assert cloud.call("GET", "/user/info", key=facts["user_key"], expect=200).json()["email"] == "ada@example.org"
        check_defaults(cloud, facts, is_older=schema < 9)


def check_jobs(cloud: Upgrades, facts: dict):
    """Jobs continue: the interrupted one has its second attempt, the next one runs after it, and drafts wait."""
    assert cloud.text(facts["ended"]) == "ended\n"
    (result,) = cloud.pull(facts["ended"]).values()
    assert cloud.fetch(result) == b"42\n"
    assert cloud.text(facts["running"]) == "attempt 1\nattempt 2\ndone\n"
    assert cloud.text(facts["pending"]) == "on the disk\n"
    cloud.call("POST", f"/job/start/{facts['draft']}", expect=202)
    assert cloud.text(facts["draft"]) == "started\n"
    assert "Waits for its files" in cloud.job(facts["without_files"])["explanation"]


def check_objects(cloud: Upgrades, facts: dict):
    """Objects exist, and a multipart upload is completed."""
    s3 = Account(cloud.s3_url, facts["access_key"], facts["secret_key"], "us-east-1").client()
    assert s3.get_object(Bucket="bucket", Key="small")["Body"].read() == b"small object\n"
    assert s3.get_object(Bucket="bucket", Key="large")["Body"].read() == LARGE
    parts = {"Parts": [{"PartNumber": 1, "ETag": facts["tag"]}]}
    s3.complete_multipart_upload(Bucket="bucket", Key="parts", UploadId=facts["upload"], MultipartUpload=parts)
    assert s3.get_object(Bucket="bucket", Key="parts")["Body"].read() == PART


def check_defaults(cloud: Upgrades, facts: dict, *, is_older: bool):
    """An installation from before stricter defaults keeps the earlier ones, and the log says how to end that."""
    # Private networks stay open.
    assert ('set network.private to "closed"' in cloud.output()) == is_older
    # Members still may destroy what others created.
    assert ("members_may_destroy = false" in cloud.output()) == is_older
    body = {"email": "member@example.org", "org_name": "default"}
    member = cloud.call("POST", "/admin/user/create", json=body, expect=200).json()["api_key"]
    cloud.call("DELETE", f"/cluster/{facts['waiting']['cluster_id']}", key=member, expect=202 if is_older else 403)
