"""The nodes of a Slurm allocation: one step of one task a node, each on its own, so that a bad node cannot take the others along.

`slurm` is the allocation that ncdiag runs in (salloc, sbatch), `slurm:JOBID` a running job. Steps share the job's CPUs and GPUs
(`--overlap`, Slurm 20.11 or newer), so that it works beside a running engine.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Set

from ncdiag.fleet.base import FleetError, Progress
from ncdiag.fleet.fanout import fan_out
from ncdiag.fleet.names import expand
from ncdiag.fleet.remote import Answer, RemoteFleet, command

ASK_TIMEOUT_S = 15.0
"""How long squeue may take to say which nodes a job has."""

STEP = "exec srun --quiet --overlap --jobid={job} --nodes=1 --ntasks=1 --nodelist=%h --chdir=/ --kill-on-bad-exit=0 --mpi=none --job-name=ncdiag"
"""`%h` is the node (ClusterShell). `--mpi=none`: a site's PMI plugin would wait for an MPI program."""


class SlurmFleet(RemoteFleet):
    """`job` empty: the allocation around this process."""

    def __init__(self, job: str = "") -> None:
        self.job = job or os.environ.get("SLURM_JOB_ID", "")
        if not self.job:
            raise FleetError(
                "--nodes slurm: not inside an allocation; run it under salloc or sbatch, or name a running job: --nodes slurm:JOBID"
            )
        if not self.job.isdecimal():
            raise FleetError(f"--nodes slurm:{self.job}: a job's number is wanted; see squeue --me")
        if shutil.which("srun") is None:
            raise FleetError("--nodes slurm: srun is not installed here; run it on a node that can submit jobs")
        inside = not job or job == os.environ.get("SLURM_JOB_ID")
        names = os.environ.get("SLURM_JOB_NODELIST", "") if inside else ""
        self.nodes = _expand(names or _nodes_of(self.job), self.job)

    def names(self) -> list[str]:
        return self.nodes

    def run(
        self,
        packed: bytes,
        timeout_s: float,
        progress: Progress,
        *,
        only: Set[str] | None = None,
        together: bool = False,
    ) -> dict[str, Answer]:
        step = f"{STEP.format(job=self.job)} {command().replace('%', '%%')}"
        chosen = [name for name in self.nodes if only is None or name in only]
        return fan_out(chosen, step, packed, timeout_s, progress, together=together)


def _nodes_of(job: str) -> str:
    """The node list of a running job. Raises FleetError."""
    asked = ["squeue", "--noheader", f"--jobs={job}", "--states=running", "--format=%N"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise FleetError(f"--nodes slurm:{job}: squeue gave no answer ({error}); try: {shlex.join(asked)}") from error
    names = done.stdout.strip()
    if done.returncode or not names:
        said = (done.stderr.strip().splitlines() or ["no running job has that number"])[-1]
        raise FleetError(f"--nodes slurm:{job}: {said}; try: {shlex.join(asked)}")
    return names


def _expand(names: str, job: str) -> list[str]:
    try:
        return expand(names)
    except FleetError as error:
        raise FleetError(f"--nodes slurm:{job}: {error}") from error
