"""A real Slurm over the lab's hosts: one controller, one slurmd a host, munge for all of them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from ncdiag.drill.hosts import Lab, LabHost, end, wait_for

PROGRAMS = ("slurmctld", "slurmd", "munged")


def lacks() -> str | None:
    """None where Slurm can be run, else what is missing."""
    missing = [name for name in PROGRAMS if shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin") is None]
    return f"{', '.join(missing)} not installed (Debian: slurm-wlm munge)" if missing else None


class Slurm:
    """Controller on `head`, slurmd on the others."""

    def __init__(self, hosts: Lab, head: str, *nodes: str) -> None:
        self._lab, self._head, self._nodes = hosts, head, nodes
        self._folder = hosts.folder / "slurm"
        self._folder.mkdir(mode=0o755)
        self.conf = self._folder / "slurm.conf"
        self._munge: subprocess.Popen[bytes] | None = None
        self.environment = {"SLURM_CONF": str(self.conf)}

    def start(self) -> None:
        self._start_munge()
        self.conf.write_text(self._configuration())
        (self._folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n")
        self._serve(self._lab[self._head], "/usr/sbin/slurmctld", "-D", "-c")
        for name in self._nodes:
            (self._folder / f"spool-{name}").mkdir()
            self._serve(self._lab[name], "/usr/sbin/slurmd", "-D", "-N", name)
        idle = f"{len(self._nodes)} idle"
        if not wait_for(lambda: idle in self.run("sinfo", "-h", "-o", "%D %t").stdout, 40):
            logs = "\n".join(path.read_text()[-1500:] for path in self._folder.glob("*.log"))
            raise RuntimeError(f"{self.run('sinfo', '-N').stdout}\n{logs}")

    def run(
        self, *argv: str, timeout_s: float = 60.0, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return self._lab[self._head].run(*argv, timeout_s=timeout_s, env={**self.environment, **(env or {})})

    def close(self) -> None:
        if self._munge is not None:
            end(self._munge)

    def _serve(self, host: LabHost, *argv: str) -> None:
        host.start(*argv, "-f", str(self.conf), log=self._folder / f"{host.name}.log", env=self.environment)

    def _start_munge(self) -> None:
        """A munged of this lab's own, with a key of its own."""
        for name in ("munge", "run"):
            (self._folder / name).mkdir(mode=0o755)
        key = self._folder / "munge" / "key"
        key.write_bytes(os.urandom(64))
        key.chmod(0o600)
        socket = self._folder / "run" / "munge.socket"
        self._munge = subprocess.Popen(
            [
                "/usr/sbin/munged",
                "--foreground",
                "--force",
                f"--key-file={key}",
                f"--socket={socket}",
                f"--pid-file={self._folder}/run/munged.pid",
                f"--seed-file={self._folder}/munge/seed",
                f"--log-file={self._folder}/munge/log",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        if not wait_for(socket.exists, 10):
            raise RuntimeError("munged did not start: " + Path(self._folder / "munge" / "log").read_text())
        self._socket = socket

    def _configuration(self) -> str:
        nodes = "\n".join(
            f"NodeName={name} NodeAddr={self._lab[name].address} CPUs=2 RealMemory=100 State=UNKNOWN"
            for name in self._nodes
        )
        return (
            f"ClusterName=lab\nSlurmctldHost={self._head}({self._lab[self._head].address})\nSlurmUser=root\nSlurmdUser=root\n"
            f"AuthType=auth/munge\nAuthInfo=socket={self._socket}\nCredType=cred/munge\n"
            f"StateSaveLocation={self._folder}/state\nSlurmdSpoolDir={self._folder}/spool-%n\nSlurmctldPidFile={self._folder}/run/ctld.pid\n"
            f"SlurmdPidFile={self._folder}/run/%n.pid\nProctrackType=proctrack/linuxproc\nTaskPlugin=task/none\nMpiDefault=none\n"
            "JobAcctGatherType=jobacct_gather/none\nSelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nReturnToService=2\n"
            "SlurmdParameters=config_overrides\nSlurmdTimeout=300\nInactiveLimit=0\nKillWait=2\nMessageTimeout=10\n"
            f"{nodes}\nPartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP\n"
        )
