"""Jobs that write while the engine is killed, nodes are restarted and jobs are canceled. Start reading at the test;
`Work` is what the test knows of a job, and `check` what must be true of it afterwards."""

import os
import random
import sqlite3
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from jobs import ENDED, Jobs, config
from instances import needs_root
from support import eventually

pytestmark = needs_root
COUNT = int(os.environ.get("TARN_JOBS_ROUNDS", "50"))
SEED = int(os.environ.get("TARN_JOBS_SEED", "6"))
CLUSTERS, PARALLEL, OPEN = ("one", "two"), 4, 14
# Each attempt writes a piece to its output and only then the same piece to its own file.
WRITER = """\
import glob, os, random, sys, time
seed, count, code = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
attempt = len(glob.glob("wrote.*"))
file = os.open(f"wrote.{attempt:03}", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
chance = random.Random(f"{seed}.{attempt}")
for _ in range(count):
    piece = chance.randbytes(chance.randint(1, 20000))
    rest = piece
    while rest:
        rest = rest[os.write(1, rest):]
    os.write(file, piece)
    time.sleep(chance.random() * 0.08)
sys.exit(code)
"""


@dataclass
class Work:
    """A job, and what was done to it."""

    job: str
    cluster: str
    seed: str
    pieces: int
    code: int
    retries: int
    canceled: bool = False
    disturbed: bool = False
    ended: str | None = None

    def piece(self, attempt: int, number: int) -> bytes:
        """The piece of an attempt with this number; empty after the last one."""
        chance = random.Random(f"{self.seed}.{attempt}")
        for each in range(self.pieces):
            piece = chance.randbytes(chance.randint(1, 20000))
            chance.random()
            if each == number:
                return piece
        return b""


def test_jobs_survive_crashes_cancels_and_restarts(tmp_path):
    """Every job ends once, as what was done to it allows, and its log holds what it wrote."""
    print(f"seed {SEED}, {COUNT} jobs")
    chance, works, done = random.Random(SEED), [], {"crash": 0, "cancel": 0, "restart": 0}
    with Jobs(tmp_path) as cloud:
        for cluster in CLUSTERS:
            cloud.create(cluster, kind="worker", jobs_parallel=PARALLEL)
        while len(works) < COUNT or unfinished(cloud, works):
            if len(works) < COUNT and len(unfinished(cloud, works)) < OPEN:
                works += start_job(cloud, chance, len(works))
            elif what := disturb_jobs(cloud, chance, works, done):
                done[what] += 1
            time.sleep(chance.random() * 0.1)
        # The last restart may still be running, and the disk is readable only after it.
        for cluster in CLUSTERS:
            eventually(lambda: cloud.info(cluster)["status"] == "RUNNING", what=f"{cluster} runs, seed {SEED}")
        for work in works:
            check_job(cloud, work)
        check_leftovers(cloud, works)
        for work in works:
            cloud.delete(work.job)
        cloud.wait_until_nothing_left(*CLUSTERS)
        assert "panicked" not in cloud.output()
    ends = {status: sum(work.ended == status for work in works) for status in ENDED}
    print(f"{done}, {ends}")
    assert all(done.values()) and ends["completed"], "a test in which nothing happens proves nothing"


def start_job(cloud: Jobs, chance: random.Random, number: int) -> list[Work]:
    """Starts a job with or without files; returns nothing when its cluster is not running."""
    work = Work("", chance.choice(CLUSTERS), f"{SEED}.{number}", chance.randint(1, 60), chance.choice([0, 0, 0, 5]), chance.choice([0, 2]))
    arguments = f"{work.seed} {work.pieces} {work.code}"
    with_files = chance.random() < 0.5
    if cloud.info(work.cluster)["status"] != "RUNNING":
        return []
    try:
        if with_files:
            work.job = cloud.run(
                work.cluster, f"python3 writer.py {arguments}", files={"writer.py": WRITER.encode()}, retries=work.retries, venv=False
            )
        else:
            env = {"WRITER": WRITER}
            work.job = cloud.run(work.cluster, f'python3 -c "$WRITER" {arguments}', env=env, retries=work.retries, venv=False)
    except AssertionError as refused:
        assert "cluster_not_running" in str(refused), refused
        return []
    return [work]


def unfinished(cloud: Jobs, works: list[Work]) -> list[Work]:
    """The jobs that have not ended. The first final status is recorded, and must not change."""
    for work in works:
        if not work.ended and (status := cloud.job(work.job)["status"]) in ENDED:
            work.ended = status
    return [work for work in works if not work.ended]


def disturb_jobs(cloud: Jobs, chance: random.Random, works: list[Work], done: dict[str, int]) -> str | None:
    """Sometimes kills the engine, cancels a job or restarts a cluster; each of these at least once in the second
    half."""
    what = chance.choices([None, "crash", "cancel", "restart"], [60, 20, 14, 6])[0]
    if len(works) >= COUNT // 2:
        what = next((each for each, times in done.items() if not times), what)
    if what == "crash":
        cloud.crash()
    elif what == "cancel":
        if not (some := unfinished(cloud, works)):
            return None
        work = chance.choice(some)
        work.canceled = True
        answer = cloud.call("POST", f"/job/cancel/{work.job}")
        assert answer.status_code in (202, 409), answer.text
    elif what == "restart":
        cluster = chance.choice(CLUSTERS)
        # Waiting jobs count as well: they may start while the node is stopping.
        for work in unfinished(cloud, works):
            work.disturbed |= work.cluster == cluster
        answer = cloud.call("POST", f"/cluster/restart/{cluster}")
        assert answer.status_code in (202, 409), answer.text
    return what


def check_job(cloud: Jobs, work: Work):
    """Checks that the job ended once, as what was done to it allows, and that its log is complete."""
    where = f"seed {SEED}: {work}"
    seen, log, files = cloud.job(work.job), cloud.log_of(work.job), recorded_output(cloud, work.job)
    assert seen["status"] == work.ended, f"{where}: {seen}"
    assert len(log) == seen["log_bytes"], f"{where}: {len(log)} bytes, {seen}"
    undisturbed = {"completed"} if work.code == 0 else {"error"}
    allowed = undisturbed | ({"canceled"} if work.canceled else set()) | ({"failed"} if work.disturbed else set())
    assert seen["status"] in allowed, f"{where}: {seen}"
    if not work.disturbed:
        assert seen["attempt"] == 1 and len(files) <= 1, f"{where}: {seen}"
    if seen["status"] in ("completed", "error"):
        assert files, f"{where}: its directory is gone, {cloud.directories(work.cluster)}, its log has {len(log)} bytes, {seen}"
        assert len(files[-1]) == sum(len(work.piece(len(files) - 1, number)) for number in range(work.pieces)), where
        assert log.endswith(files[-1]), where
        assert seen["exit_code"] == work.code, f"{where}: {seen}"
    left = match_log(log, files, work, where)
    assert seen["status"] not in ("completed", "error") or not left, f"{where}: {len(left)} bytes too many"


def match_log(log: bytes, files: list[bytes], work: Work, where: str) -> bytes:
    """Follows the log along the files of all attempts. An attempt that was cut off may have logged a part of one
    more piece than it recorded; returns what is left of it after the last attempt."""
    place = 0
    for attempt, content in enumerate(files):
        assert log[place : place + len(content)] == content, f"{where}: attempt {attempt} differs after byte {place} of {len(log)}"
        place += len(content)
        more = work.piece(attempt, count_recorded_pieces(work, attempt, content))
        following = files[attempt + 1] if attempt + 1 < len(files) else None
        if following is None:
            assert more.startswith(log[place:]), f"{where}: {len(log) - place} bytes at the end that no attempt wrote"
        elif following:
            fits = [n for n in range(len(more) + 1) if log[place : place + n] == more[:n] and log[place + n :].startswith(following[:64])]
            assert fits, f"{where}: what follows attempt {attempt} at byte {place} was not written there"
            place += fits[0]
    return log[place:]


def count_recorded_pieces(work: Work, attempt: int, content: bytes) -> int:
    """The number of pieces that an attempt has recorded."""
    number = length = 0
    while length < len(content):
        length += len(work.piece(attempt, number))
        number += 1
    assert length == len(content)
    return number


def recorded_output(cloud: Jobs, job: str) -> list[bytes]:
    """The records of the attempts of a job, in order, from the disk of the instance."""
    found = [path for root in cloud.roots() for path in (root / "home/ubuntu/jobs" / job).glob("wrote.*")]
    return [path.read_bytes() for path in sorted(found, key=lambda path: path.name)]


def check_leftovers(cloud: Jobs, works: list[Work]):
    """Checks that nothing runs, and that everything left belongs to a known job, which ended once."""
    eventually(lambda: not cloud.processes(), what=f"no process of any job, seed {SEED}")
    known = {work.job for work in works}
    assert cloud.rows() == known, f"seed {SEED}"
    assert {key.split("/")[0] for key in cloud.object_keys()} <= known, f"seed {SEED}"
    for cluster in CLUSTERS:
        assert cloud.directories(cluster) <= known, f"seed {SEED}"
    with closing(sqlite3.connect(f"file:{Path(cloud.data) / 'tarn.db'}?mode=ro", uri=True)) as db:
        ends = dict(db.execute("select object, count(*) from events where verb = 'job.ended' group by object"))
    canceled_in_line = {work.job for work in works if work.ended == "canceled"}
    assert {job: count for job, count in ends.items() if count != 1} == {}, f"seed {SEED}"
    assert known - canceled_in_line <= ends.keys(), f"seed {SEED}"
