"""A SLURM of one node on this machine, of the distribution's packages (slurm-wlm, slurmdbd, munge, mariadb-server).

It lives in one folder and ends with the test: its own keys, ports, database and configuration; nothing of the system's
is touched. Jobs in the partition ``low`` are preempted by jobs in ``high`` after a grace time.
"""

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PROGRAMS = ("munged", "mariadbd", "mariadb-install-db", "slurmdbd", "slurmctld", "slurmd", "sbatch", "srun", "sacct")
PATH = f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin"
GRACE = 60  # seconds that a preempted job has
SECONDS = 60.0  # that a part may take to start


def missing() -> str | None:
    """What is not installed here."""
    lacking = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"no {', '.join(lacking)} here" if lacking else None


class Cluster:
    """The processes of a cluster and the folder that they share."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # a short path: sockets have short names
        self.folder.chmod(0o755)
        self.user = pwd.getpwuid(os.getuid()).pw_name
        self.host = socket.gethostname().partition(".")[0]
        self.environment = os.environ | {"PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf")}
        self.parts: list[tuple[str, subprocess.Popen[bytes]]] = []

    def __enter__(self) -> "Cluster":
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if len(self.parts) == 5:  # all were started: no job may outlive its cluster
            self.call("scancel", "--user", self.user)
            end = time.monotonic() + 20
            while self.call("squeue", "--noheader") and time.monotonic() < end:
                time.sleep(0.5)
        for _, process in reversed(self.parts):
            process.terminate()
        for _, process in reversed(self.parts):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def call(self, *words: str) -> str:
        """What a command of SLURM says; nothing if it fails or does not answer."""
        try:
            answer = subprocess.run(words, env=self.environment, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return ""
        return answer.stdout if answer.returncode == 0 else ""

    def why(self) -> str:
        """The last lines of every part, for whoever wonders."""
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in self.folder.glob("*.log"))

    def _start(self) -> None:
        at = self.folder
        (at / "key").write_bytes(os.urandom(1024))
        (at / "key").chmod(0o600)
        munge = at / "munge.socket"
        self._part("munged", "--foreground", "--force", f"--key-file={at}/key", f"--socket={munge}",
                   f"--pid-file={at}/munged.pid", f"--seed-file={at}/seed", f"--log-file={at}/munge.log")  # fmt: skip
        install = ["mariadb-install-db", "--no-defaults", f"--datadir={at}/db", f"--user={self.user}"]
        install += ["--auth-root-authentication-method=normal"]
        subprocess.run(install, env=self.environment, check=True, capture_output=True)
        database = at / "db.socket"
        self._part("mariadbd", "--no-defaults", f"--user={self.user}", f"--datadir={at}/db", "--skip-networking",
                   "--skip-grant-tables", f"--socket={database}", f"--pid-file={at}/db.pid")  # fmt: skip
        self._until(munge.exists)
        self._until(database.exists)
        ports = _free_ports(3)
        self._write(
            "slurmdbd.conf",
            f"""
            AuthType=auth/munge
            AuthInfo=socket={munge}
            DbdHost=localhost
            DbdPort={ports[0]}
            SlurmUser={self.user}
            LogFile={at}/dbd-own.log
            PidFile={at}/dbd.pid
            StorageType=accounting_storage/mysql
            StorageUser={self.user}
            StorageLoc=slurm""",
        )
        (at / "state").mkdir()
        (at / "spool").mkdir()
        self._write(
            "slurm.conf",
            f"""
            ClusterName=one
            SlurmctldHost={self.host}(127.0.0.1)
            SlurmUser={self.user}
            SlurmdUser={self.user}
            AuthType=auth/munge
            AuthInfo=socket={munge}
            SlurmctldPort={ports[1]}
            SlurmdPort={ports[2]}
            StateSaveLocation={at}/state
            SlurmdSpoolDir={at}/spool
            SlurmctldPidFile={at}/ctld.pid
            SlurmdPidFile={at}/d.pid
            ProctrackType=proctrack/linuxproc
            TaskPlugin=task/none
            MpiDefault=none
            MailProg=/bin/true
            ReturnToService=2
            KillWait=5
            BatchStartTimeout=60
            SelectType=select/cons_tres
            SelectTypeParameters=CR_Core
            PreemptType=preempt/partition_prio
            PreemptMode=REQUEUE
            AccountingStorageType=accounting_storage/slurmdbd
            AccountingStorageHost=localhost
            AccountingStoragePort={ports[0]}
            AccountingStoragePass={munge}
            JobAcctGatherType=jobacct_gather/none
            NodeName={self.host} NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
            PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime={GRACE}
            PartitionName=high Nodes=ALL PriorityTier=9 PreemptMode=OFF""",
        )
        self._part("slurmdbd", "-D", socket=database)
        self._until(lambda: self.call("sacctmgr", "--noheader", "--immediate", "add", "cluster", "one") != ""
                    or "one" in self.call("sacctmgr", "--noheader", "list", "cluster"))  # fmt: skip
        self._part("slurmctld", "-D")
        self._part("slurmd", "-D", "-N", self.host)
        self._until(lambda: "idle" in self.call("sinfo", "--noheader", "--partition", "low", "--format", "%t"))

    def _part(self, program: str, *words: str, socket: Path | None = None) -> None:
        log = (self.folder / f"{program}.log").open("wb")
        environment = self.environment | ({"MYSQL_UNIX_PORT": str(socket)} if socket else {})
        process = subprocess.Popen([program, *words], env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.parts.append((program, process))

    def _until(self, ready: object) -> None:
        assert callable(ready)
        end = time.monotonic() + SECONDS
        while not ready():
            for program, process in self.parts:
                if process.poll() is not None:
                    raise OSError(f"{program} has ended: {self.why()}")
            if time.monotonic() > end:
                raise OSError(f"the cluster does not start: {self.why()}")
            time.sleep(0.2)

    def _write(self, name: str, text: str) -> None:
        file = self.folder / name
        file.write_text("\n".join(line.strip() for line in text.strip().splitlines()) + "\n")
        file.chmod(0o600 if name == "slurmdbd.conf" else 0o644)


def _free_ports(number: int) -> list[int]:
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
