"""The baseline: Debian's Slurm as one private node on the loopback interface, tuned for throughput, without
accounting."""

import contextlib
import os
import socket
import statistics
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from bench import servers

# The number of slots that is fastest here, and a scheduler that does not wait: with its defaults Slurm completes 3 jobs
# a second.
CPUS = 64
PARAMETERS = "batch_sched_delay=0,sched_min_interval=1,sched_interval=1,bf_interval=1,default_queue_depth=10000"
CONFIG = """\
ClusterName=bench
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
SlurmctldPort={controller_port}
SlurmdPort={node_port}
AuthType=auth/munge
AuthInfo=socket={work}/munge/sock
CryptoType=crypto/munge
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={work}/slurmd.pid
SlurmctldLogFile={work}/log/slurmctld.log
SlurmdLogFile={work}/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/backfill
SchedulerParameters={parameters}
ReturnToService=2
MaxJobCount=50000
MinJobAge=10
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobCompType=jobcomp/filetxt
JobCompLoc={work}/jobcomp.txt
MpiDefault=none
SlurmdParameters=config_overrides
SwitchType=switch/none
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=8000 State=UNKNOWN
PartitionName=p Nodes={host} Default=YES MaxTime=60 State=UP OverSubscribe=NO
"""
TRIVIAL = "#!/bin/sh\ntrue\n"
# Ten lines that contain the time at which they were printed.
TALKATIVE = "#!/bin/sh\nfor i in 1 2 3 4 5 6 7 8 9 10; do date +%s.%N; sleep 0.05; done\n"


class Slurm:
    """A running Slurm; a context manager that ends it by the ids of its processes."""

    def __init__(self, work: Path):
        self.work, self.processes = work, []
        self.environment = servers.ENVIRONMENT | {"SLURM_CONF": str(work / "slurm.conf")}

    def __enter__(self):
        for name in ("state", "spool", "log", "munge"):
            (self.work / name).mkdir(parents=True)
        (self.work / "munge").chmod(0o700)
        key = self.work / "munge/key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        ports = {"controller_port": servers.free_port(), "node_port": servers.free_port()}
        text = CONFIG.format(work=self.work, host=socket.gethostname(), cpus=CPUS, parameters=PARAMETERS, **ports)
        (self.work / "slurm.conf").write_text(text)
        (self.work / "trivial.sh").write_text(TRIVIAL)
        (self.work / "talkative.sh").write_text(TALKATIVE)
        try:
            files = {f"--{name}-file": self.work / "munge" / name for name in ("key", "pid", "log", "seed")}
            files["--socket"] = self.work / "munge/sock"
            self.start("munged", "-F", "-f", *(f"{option}={path}" for option, path in files.items()))
            until(lambda: (self.work / "munge/sock").exists(), "munged")
            self.start("slurmctld", "-D", "-f", self.work / "slurm.conf")
            self.start("slurmd", "-D", "-f", self.work / "slurm.conf")
            until(lambda: self.run("sinfo", "-h", "-o", "%T", check=False).strip() in ("idle", "mixed"), "an idle node")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_):
        self.stop()

    def start(self, *command):
        """Starts one of its daemons in the foreground; it ends with the benchmark."""
        with open(self.work / "log" / f"{command[0]}.out", "wb") as log:
            line = ["setpriv", "--pdeathsig", "TERM", *map(str, command)]
            self.processes.append(subprocess.Popen(line, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def stop(self):
        """Stops the daemons, the last one first."""
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def run(self, *command, check=True) -> str:
        """The output of one of its programs."""
        done = subprocess.run([*map(str, command)], env=self.environment, capture_output=True, text=True, check=check)
        return done.stdout

    def completed(self) -> int:
        """How many jobs have ended, from its completion log."""
        with contextlib.suppress(OSError), open(self.work / "jobcomp.txt", "rb") as file:
            return sum(1 for _ in file)
        return 0

    def submit(self, *options):
        """One trivial job, or an array of them."""
        self.run("sbatch", "-Q", "--parsable", "-o", "/dev/null", "-n1", *options, self.work / "trivial.sh")


def throughput(slurm: Slurm, count: int) -> dict[str, float]:
    """Trivial jobs completed each second, by the way in which they were submitted."""
    return {
        "sbatch, one after the other": rate(slurm, count, lambda: [slurm.submit() for _ in range(count)]),
        "sbatch, 8 at once": rate(slurm, count, lambda: at_once(slurm, count)),
        "sbatch --array": rate(slurm, count, lambda: slurm.submit(f"--array=1-{count}")),
    }


def at_once(slurm: Slurm, count: int):
    """Makes this many submissions with eight submitters."""
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: slurm.submit(), range(count)))


def rate(slurm: Slurm, count: int, submit) -> float:
    """Jobs completed each second, from before the first submission."""
    target, began = slurm.completed() + count, time.monotonic()
    submit()
    until(lambda: slurm.completed() >= target, "the end of all jobs", seconds=600)
    return count / (time.monotonic() - began)


def first_line(slurm: Slurm, repetitions: int) -> tuple[list[float], list[float]]:
    """Seconds from the start of `srun` to its first line, and from each print to the line at the client."""
    firsts, prints = [], []
    for _ in range(repetitions):
        began, first = time.time(), None
        command = ["srun", "-Q", "-n1", "--unbuffered", "sh", str(slurm.work / "talkative.sh")]
        with subprocess.Popen(command, env=slurm.environment, stdout=subprocess.PIPE, text=True) as process:
            for line in process.stdout:
                now = time.time()
                prints.append(now - float(line))
                first = first or now - began
        firsts.append(first)
    return firsts, prints


def srun(slurm: Slurm, repetitions: int) -> float:
    """Seconds that `srun /bin/true` takes, the median."""
    taken = []
    for _ in range(repetitions):
        began = time.monotonic()
        slurm.run("srun", "-Q", "-n1", "/bin/true")
        taken.append(time.monotonic() - began)
    return statistics.median(taken)


def until(seen, what: str, seconds=60):
    """Waits for a condition."""
    deadline = time.monotonic() + seconds
    while not seen():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what} was not seen within {seconds} s")
        time.sleep(0.02)
