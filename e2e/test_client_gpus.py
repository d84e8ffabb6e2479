"""Our own client about the host and its GPUs: what is not well or drained is not given to anybody, and everybody is told why."""

import pytest

from support import Server, eventually, free_port

CONFIG = "[gpus]\nlook_every_seconds = 0.2\nrecovery_seconds = 0.0\n"


@pytest.fixture
def faults(tmp_path):
    """The script of faults."""
    return tmp_path / "faults.toml"


@pytest.fixture
def metrics(tmp_path) -> int:
    """The port of the metrics."""
    return free_port()


@pytest.fixture
def server(tmp_path, faults, metrics):
    """A cloud with eight GPUs, to which something may happen."""
    config = tmp_path / "tarn.toml"
    config.write_text(CONFIG)
    options = ["--config", config, "--simulated-gpu-faults", faults, "--metrics-listen", f"127.0.0.1:{metrics}"]
    with Server(tmp_path / "data", *options) as running:
        yield running
        running.stop()


def gpu(tarn, number: int) -> dict:
    """What is known of a GPU."""
    return tarn.json("admin gpu list")["gpus"][number]


def test_the_host(tarn):
    said = tarn("admin host").text
    assert "takes on new clusters" in said and "simulated-H100-7" in said and "H100 (simulated)" in said
    host = tarn.json("admin host")["host"]
    assert (host["drained"], host["cpus_held"], len(host["gpus"])) == (False, 0, 8)
    tarn("cluster create 1xH100 --name runs --wait")
    assert tarn.json("admin host")["host"]["cpus_held"] > 0

    assert "no new clusters" in tarn("admin host drain --reason", "a new kernel").text
    host = tarn.json("admin host")["host"]
    assert (host["drained"], host["drain_reason"]) == (True, "a new kernel") and host["drained_since"]
    assert tarn.json("cluster types")["types"][0]["available"] == 0
    tarn("cluster create 1xCPU --name waits")
    eventually(lambda: "a new kernel" in (tarn.json("cluster info waits")["cluster_info"]["explanation"] or ""), seconds=60)
    assert tarn.json("cluster info runs")["cluster_info"]["status"] == "RUNNING"
    assert "new clusters again" in tarn("admin host undrain").text
    eventually(lambda: tarn.json("cluster info waits")["cluster_info"]["status"] == "RUNNING", seconds=60)
    assert tarn.json("admin host drain")["message"] and tarn.json("admin host undrain")["message"]


def test_gpus_are_drained(tarn):
    listed = tarn("admin gpu list").text
    assert tarn("admin gpu ls").text == listed and listed.count("GOOD") == 8
    assert "not offered: drained by an operator" in tarn("admin gpu drain simulated-H100-0 --reason", "a new fan").text
    assert "a new fan" in gpu(tarn, 0)["withheld"] and "a new fan" in tarn("admin gpu list").text
    tarn("cluster create 1xH100 --name box --wait")
    [instance] = tarn.json("cluster info box")["cluster_info"]["instances"]
    [own] = instance["gpus"]
    assert own["id"] == "simulated-H100-1" and own["simulated"] and own["health"] == "GOOD" and own["memory_gb"] == 80
    assert "simulated-H100-1 GOOD" in tarn("cluster info box").text
    assert gpu(tarn, 1)["instance_id"] == instance["id"] and instance["id"] in tarn("admin gpu list").text
    assert "keeps it" in tarn.json("admin gpu drain simulated-H100-1")["message"]
    assert "is offered" in tarn("admin gpu undrain simulated-H100-0").text
    assert tarn.json("admin gpu undrain simulated-H100-1")["message"]
    assert not any(each["withheld"] for each in tarn.json("admin gpu list")["gpus"])


def test_what_is_not_well_is_not_offered(tarn, server, faults, metrics):
    faults.write_text('[[gpu]]\nid = "simulated-H100-3"\nuncorrected_errors = 2\ntemperature_celsius = 91\n')
    eventually(lambda: gpu(tarn, 3)["health"] == "BAD", seconds=60)
    types = {each["name"]: each["available"] for each in tarn.json("cluster types")["types"]}
    assert types["1xH100"] == 7 and types["8xH100"] == 0
    tarn("cluster create 8xH100 --name all")
    words = "1 of 8 H100 GPUs is not offered: simulated-H100-3: 2 memory errors could not be corrected"
    eventually(lambda: words in (tarn.json("cluster info all")["cluster_info"]["explanation"] or ""), seconds=60)
    samples = server.session.get(f"http://127.0.0.1:{metrics}/metrics", timeout=60).text.splitlines()
    hot = [each for each in samples if each.startswith("tarn_gpu_temperature_celsius{") and "simulated-H100-3" in each]
    assert len(hot) == 1 and hot[0].endswith(" 91"), hot
    faults.write_text("")
    eventually(lambda: tarn.json("cluster info all")["cluster_info"]["status"] == "RUNNING", seconds=60)

    faults.write_text('[[gpu]]\nid = "simulated-H100-3"\nxids = [79]\n')
    eventually(lambda: gpu(tarn, 3)["health"] == "FATAL", seconds=60)
    info = tarn.json("cluster info all")["cluster_info"]
    assert info["status"] == "RUNNING" and "Xid 79" in info["explanation"]
    assert [each["health"] for each in info["instances"][0]["gpus"]].count("FATAL") == 1
    assert "gpu.fatal" in tarn("admin events").text
    tarn("cluster destroy all --no-input --wait")
    assert "Xid 79" in gpu(tarn, 3)["withheld"], "nobody else gets it"
    faults.write_text("")
    assert "is not offered: watched for a while" in tarn("admin gpu clear simulated-H100-3").text
    assert tarn.json("admin gpu clear simulated-H100-3", code=4)["code"] == "gpu_not_fatal"
    eventually(lambda: gpu(tarn, 3)["withheld"] is None, seconds=60)
    faults.write_text('[[gpu]]\nid = "simulated-H100-3"\nlost = true\n')
    eventually(lambda: gpu(tarn, 3)["health"] == "FATAL", seconds=60)
    faults.write_text("")
    # What is still lost at the next look is fatal again: it is cleared when it is seen to be there.
    eventually(lambda: gpu(tarn, 3)["temperature_celsius"] == 35, seconds=60)
    assert tarn.json("admin gpu clear simulated-H100-3")["message"]


def test_slices(tarn, faults):
    faults.write_text('[[gpu]]\nid = "simulated-H100-0"\nmig = ["1g.10gb", "1g.10gb"]\n')
    eventually(lambda: len(tarn.json("admin gpu list")["gpus"]) == 9, seconds=60)
    tarn("cluster create 2xH100MIG1G10GB --name slices --wait")
    [instance] = tarn.json("cluster info slices")["cluster_info"]["instances"]
    assert [each["id"] for each in instance["gpus"]] == ["simulated-H100-0-mig-0", "simulated-H100-0-mig-1"]
    types = {each["name"]: each["available"] for each in tarn.json("cluster types")["types"]}
    assert types["1xH100MIG1G10GB"] == 0
    whole = [each["id"] for each in tarn.json("admin gpu list")["gpus"] if each["model"] == "H100"]
    assert "simulated-H100-0" not in whole and len(whole) == 7, "a divided one is not given away as a whole"
