"""`tarn doctor` on healthy and on damaged engines and their data. Other failures of the host that runs the tests do
not count: each test checks only its own findings."""

import json
import os
import re
import sqlite3
import subprocess
from pathlib import Path

from doctors import Report, doctor, doctor_of_engine, doctor_without_engine, documented, run_doctor
from instances import needs_root
from support import BINARY, ENVIRONMENT, Server, free_port

LEVELS = {"ok", "note", "warning", "failure", "skipped"}


def files(directory: Path) -> set[str]:
    return {str(path.relative_to(directory)) for path in directory.rglob("*")}


def test_healthy_engine_is_ok(server):
    """A healthy engine passes all checks, and the doctor writes nothing into its data."""
    before = files(server.data)
    report = doctor_of_engine(server)
    report.expect_level("ok", "engine.answers", "engine.version", "engine.clock", "database.opens", "database.schema")
    report.expect_level("ok", "database.integrity", "database.master_key", "keys.data", "keys.secret")
    report.expect_level("ok", "ports.api", "ports.s3", "drift.instances", "drift.volumes", "drift.requests", "drift.jobs")
    report.expect_level("ok", "drift.counts")
    # The key is still in its file: the doctor says how to save it.
    report.expect_level("note", "keys.admin")
    assert f"process {server.process.pid}" in report.found["ports.api"]["found"]
    assert report.body["configuration"]["listen"] == f"127.0.0.1:{server.port}"
    assert files(server.data) == before, "it writes nothing into the data"


def test_body_matches_documentation(server):
    """The JSON body has the fields and check names that the documentation lists."""
    report = doctor_of_engine(server)
    body = report.body
    assert set(body) == {"version", "tarn", "healthy", "counts", "findings", "trial", "configuration"}
    assert body["version"] == 1 and body["trial"] is None and set(body["counts"]) == LEVELS
    for finding in body["findings"]:
        assert set(finding) == {"area", "check", "level", "found", "todo"} and finding["level"] in LEVELS, finding
        assert finding["check"] in documented() and finding["check"].startswith(finding["area"] + "."), finding
        assert finding["level"] not in ("failure", "warning") or finding["todo"], f"nothing to do: {finding}"
    assert sum(body["counts"].values()) == len(body["findings"])
    assert body["healthy"] == (body["counts"]["failure"] == 0) == (report.code == 0)


def test_text_report_lists_findings(server):
    """Without `--json` the doctor prints a list and a summary."""
    done = run_doctor(*server.command[2:])
    assert re.search(r"^  ok       database\.opens +SQLite ", done.stdout, re.M), done.stdout
    assert "\x1b" not in done.stdout and "The configuration in effect" in done.stdout
    assert re.search(r"\d+ ok, \d+ notes?, \d+ warnings?, \d+ failures?, \d+ skipped\.$", done.stdout.strip())


def test_doctor_before_first_start_creates_nothing(tmp_path):
    """Before the first start the doctor creates no data directory."""
    report = doctor_without_engine(tmp_path / "data")
    report.expect_level("note", "engine.answers", "database.opens", "keys.data")
    report.expect_level("ok", "ports.api", "ports.ssh", "ports.s3")
    assert not (tmp_path / "data").exists()


def test_data_path_that_is_a_file_is_one_failure(tmp_path):
    """A data path that is a file is one failure, and dependent checks are left out."""
    (tmp_path / "data").write_text("")
    report = doctor_without_engine(tmp_path / "data")
    report.expect_level("failure", "configuration.readable")
    assert "is not a directory" in report.found["configuration.readable"]["found"] and report.code == 1
    assert not {"keys.data", "space.data", "database.opens", "network.addresses"} & set(report.found)
    assert (tmp_path / "data").read_text() == ""


def test_stopped_engine_database_is_checked(tmp_path):
    """The database of a stopped engine is checked without changing a file."""
    with Server(tmp_path / "data") as server:
        server.stop()
    before = files(server.data)
    report = doctor(*server.command[2:])
    report.expect_level("ok", "database.opens", "database.integrity", "database.master_key", "ports.api", "drift.instances")
    report.expect_level("note", "engine.answers")
    assert files(server.data) == before


def test_wrong_counts_are_found_and_corrected(tmp_path):
    """Counts that differ from what exists are a failure, and the next start of the engine corrects them."""
    with Server(tmp_path / "data") as server:
        server.finish(server.call("POST", "/storage/create", json={"name": "v", "size": 7}, expect=202).json()["request_id"])
        server.stop()
        with sqlite3.connect(server.data / "tarn.db") as database:
            database.execute("update usage_counters set volumes = 5")
        report = doctor(*server.command[2:])
        report.expect_level("failure", "drift.counts")
        assert "volumes by 4" in report.found["drift.counts"]["found"]
        server.start()
        me = server.call("GET", "/me", expect=200).json()
        assert (me["volumes"], me["used"]["volume_gb"]) == (1, 7)
        assert "counts in the database were wrong" in server.output()
        doctor_of_engine(server).expect_level("ok", "drift.counts")
        server.stop()


def test_killed_engine_wal_is_read(tmp_path):
    """The write-ahead log of a killed engine is read."""
    with Server(tmp_path / "data") as server:
        accepted = server.call("POST", "/storage/create", json={"name": "v", "size": 1}, expect=202).json()
        server.finish(accepted["request_id"])
        server.process.kill()
        server.process.wait()
        report = doctor(*server.command[2:])
        report.expect_level("ok", "database.opens", "database.integrity", "drift.volumes", "drift.requests")
        report.expect_level("note", "engine.answers")
        server.start()
        server.stop()


def test_unknown_schema_is_reported(tmp_path):
    """A newer schema is a failure and an older one a note."""
    with Server(tmp_path / "data") as server:
        server.stop()
    options = server.command[2:]

    def change(sql: str):
        with sqlite3.connect(server.data / "tarn.db") as database:
            database.execute(sql)
        database.close()

    change("insert into migrations (version) values (999)")
    newer = doctor(*options)
    newer.expect_level("failure", "database.schema")
    newer.expect_level("skipped", "drift.instances")
    assert newer.code == 1 and not newer.body["healthy"]
    change("delete from migrations where version > 3")
    older = doctor(*options)
    older.expect_level("note", "database.schema")


def test_damaged_database_is_failure(tmp_path):
    """A damaged database is a failure."""
    with Server(tmp_path / "data") as server:
        server.stop()
    # Otherwise everything that matters may still be in the write-ahead log.
    with sqlite3.connect(server.data / "tarn.db") as database:
        database.execute("pragma wal_checkpoint(truncate)")
    database.close()
    with open(server.data / "tarn.db", "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * 8192)
    report = doctor(*server.command[2:])
    assert "failure" in (report.found.get("database.integrity") or report.found["database.opens"])["level"]
    assert report.code == 1


def test_invalid_configuration_is_failure(tmp_path):
    """An invalid configuration is a failure, and checks that do not need it still run."""
    config = tmp_path / "tarn.toml"
    config.write_text("lisen = '127.0.0.1:1'\n")
    report = doctor("--config", config)
    report.expect_level("failure", "configuration.readable")
    assert "unknown field" in report.found["configuration.readable"]["found"] and report.code == 1
    assert "kernel.version" in report.found and "database.opens" not in report.found


def test_secrets_are_hidden(tmp_path):
    """The report hides passwords."""
    report = doctor_without_engine(tmp_path / "data", environment={"TARN_DATABASE": f"postgres://tarn:s3cr3t@127.0.0.1:{free_port()}/tarn"})
    report.expect_level("failure", "database.opens")
    assert "s3cr3t" not in json.dumps(report.body)
    assert report.body["configuration"]["database"].startswith("postgres://tarn:(hidden)@")


@needs_root
def test_unprivileged_user_sees_skipped_checks(server):
    """For an unprivileged user the report lists the checks that were skipped."""
    server.data.chmod(0o700)
    program = os.open(BINARY, os.O_RDONLY)
    try:
        command = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", f"/proc/self/fd/{program}", "doctor"]
        done = subprocess.run(
            [*command, "--json", *server.command[2:]], env=ENVIRONMENT | {"HOME": "/"}, stdin=subprocess.DEVNULL, cwd="/",
            capture_output=True, text=True, timeout=120, pass_fds=(program,),
        )  # fmt: skip
    finally:
        os.close(program)
    report = Report(done)
    report.expect_level("skipped", "process.root", "kernel.idmapped_mounts", "network.firewall", "database.opens", "drift.instances")
    report.expect_level("ok", "engine.answers")
    assert report.code == (0 if report.body["counts"]["failure"] == 0 else 1)


def test_open_private_networks_are_reported(tmp_path):
    """An installation older than the rule for private networks is warned until its operator chooses one."""
    with Server(tmp_path / "data") as server:
        server.stop()
    config = tmp_path / "tarn.toml"

    def change(sql: str):
        database = sqlite3.connect(server.data / "tarn.db")
        with database:
            database.execute(sql)
        database.close()

    doctor_without_engine(server.data).expect_level("ok", "network.private")
    # What the migration of an older installation writes.
    change("insert into installation (key, value) values ('permissive_defaults', 'kept')")
    older = doctor_without_engine(server.data)
    older.expect_level("warning", "network.private")
    assert 'network.private to "closed"' in older.found["network.private"]["todo"]
    for rule, level in (("closed", "ok"), ("open", "note")):
        config.write_text(f'[network]\nprivate = "{rule}"\n')
        doctor_without_engine(server.data, "--config", config).expect_level(level, "network.private")
    # Data that is not migrated yet.
    change("delete from installation where key = 'permissive_defaults'")
    change("delete from migrations where version > 8")
    doctor_without_engine(server.data).expect_level("warning", "network.private")
