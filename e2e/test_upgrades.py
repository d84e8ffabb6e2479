"""The newest program opens the data of older ones, and carries on with the work that was in progress."""

from pathlib import Path

import pytest
from jobs import archive
from machines import needs_root
from objects import Account
from upgrades import LARGE, PART, Upgrades

pytestmark = needs_root
FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("schema-*.tar.xz"))


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name.split(".")[0])
def test_data_of_older_programs(tmp_path, fixture):
    cloud = Upgrades(tmp_path)
    facts = cloud.unpack(fixture)
    with cloud:
        # What ran comes back, with its disk and its volume.
        cloud.state(facts["box"], "RUNNING")
        assert cloud.ssh("box", "cat file").out == "on the disk\n"
        assert cloud.ssh("box", f"cat /mnt/{facts['volume']}/file").out == "on the volume\n"
        # Requests go on: one was under way, one waits for capacity that does not exist.
        cloud.finish(facts["coming"]["request_id"])
        assert cloud.info(facts["waiting"]["cluster_id"])["status"] == "PENDING"
        # Jobs, too: the one that was cut off has its second attempt, the next one runs after it, and a draft takes its files.
        assert cloud.text(facts["ended"]) == "ended\n"
        (result,) = cloud.pull(facts["ended"]).values()
        assert cloud.fetch(result) == b"42\n"
        assert cloud.text(facts["running"]) == "attempt 1\nattempt 2\ndone\n"
        assert cloud.text(facts["pending"]) == "on the disk\n"
        assert cloud.upload(cloud.url + facts["upload_path"], archive({"message": b"hello\n"})).ok
        cloud.call("POST", f"/job/start/{facts['draft']}", expect=202)
        assert cloud.text(facts["draft"]) == "hello\n"
        # Objects are there, and an upload in parts is completed.
        s3 = Account(cloud.s3_url, facts["access_key"], facts["secret_key"], "us-east-1").client()
        assert s3.get_object(Bucket="bucket", Key="small")["Body"].read() == b"small object\n"
        assert s3.get_object(Bucket="bucket", Key="large")["Body"].read() == LARGE
        parts = {"Parts": [{"PartNumber": 1, "ETag": facts["tag"]}]}
        s3.complete_multipart_upload(Bucket="bucket", Key="parts", UploadId=facts["upload"], MultipartUpload=parts)
        assert s3.get_object(Bucket="bucket", Key="parts")["Body"].read() == PART
        # People keep their keys.
        assert cloud.call("GET", "/user/info", key=facts["user_key"], expect=200).json()["email"] == "ada@example.org"
