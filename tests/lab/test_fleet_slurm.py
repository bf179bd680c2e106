"""The fleet through a real Slurm: controller, four slurmd and munge on namespace hosts."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncdiag.drill.hosts import Lab, lab, usable, wait_for

from . import slurms
from .slurms import Slurm

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
    pytest.mark.skipif(slurms.lacks() is not None, reason=str(slurms.lacks())),
]


@pytest.fixture(scope="module")
def slurm() -> Iterator[tuple[Lab, Slurm, str]]:
    with lab("head", "gpu01", "gpu02", "gpu03", "gpu04") as hosts:
        made = Slurm(hosts, "head", "gpu01", "gpu02", "gpu03", "gpu04")
        try:
            made.start()
            submitted = made.run("sbatch", "--parsable", "-N4", "--output=/dev/null", "--wrap", "sleep 600")
            assert submitted.returncode == 0, submitted.stderr
            job = submitted.stdout.strip()
            assert wait_for(lambda: made.run("squeue", "-h", "-j", job, "-o", "%t").stdout.strip() == "R")
            yield hosts, made, job
        finally:
            made.close()


def preflight(slurm: Slurm, *command: str) -> tuple[Any, float]:
    started = time.monotonic()
    done = slurm.run(*command, timeout_s=120, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode in (0, 1, 3), done.stderr
    return json.loads(done.stdout), time.monotonic() - started


def ncdiag(nodes: str, *extra: str) -> list[str]:
    return [
        sys.executable,
        "-m",
        "ncdiag",
        "preflight",
        "--nodes",
        nodes,
        "--format",
        "json",
        "--only",
        "platform",
        *extra,
    ]


def test_running_job_by_its_number(slurm: tuple[Lab, Slurm, str]) -> None:
    _, made, job = slurm
    result, _ = preflight(made, *ncdiag(f"slurm:{job}"))
    assert result["nodes"] == ["gpu01", "gpu02", "gpu03", "gpu04"]
    assert {finding["where"]["node"] for finding in result["findings"] if finding["status"] == "ok"} == set(
        result["nodes"]
    )


def test_current_allocation(slurm: tuple[Lab, Slurm, str]) -> None:
    """Inside the job's own environment, as under salloc."""
    _, made, job = slurm
    done = made.run(
        *ncdiag("slurm"),
        env={"PYTHONPATH": str(ROOT), "SLURM_JOB_ID": job, "SLURM_JOB_NODELIST": "gpu[01-02]", "SLURM_NTASKS": "8"},
    )
    assert json.loads(done.stdout)["nodes"] == ["gpu01", "gpu02"], done.stderr


def test_node_that_hangs_and_node_that_is_down_are_named(slurm: tuple[Lab, Slurm, str]) -> None:
    hosts, made, job = slurm
    stopped, killed = (_slurmd(hosts, name) for name in ("gpu02", "gpu03"))
    os.kill(stopped, signal.SIGSTOP)
    os.kill(killed, signal.SIGKILL)
    try:
        result, took = preflight(made, *ncdiag(f"slurm:{job}", "--timeout", "15"))
    finally:
        os.kill(stopped, signal.SIGCONT)
    lost = {
        finding["where"]["node"]: finding["summary"] for finding in result["findings"] if finding["probe"] == "node"
    }
    assert set(lost) == {"gpu02", "gpu03"}, lost
    assert {finding["where"]["node"] for finding in result["findings"] if finding["status"] == "ok"} == {
        "gpu01",
        "gpu04",
    }
    assert took < 35, "bounded by one node's time"


def test_outside_of_an_allocation_and_unknown_jobs_are_one_line(slurm: tuple[Lab, Slurm, str]) -> None:
    _, made, _ = slurm
    for nodes, word in (("slurm", "not inside an allocation"), ("slurm:99999", "squeue"), ("slurm:x", "number")):
        done = made.run(*ncdiag(nodes), env={"PYTHONPATH": str(ROOT)})
        assert done.returncode == 2 and word in done.stderr and "Traceback" not in done.stderr, done.stderr


def _slurmd(hosts: Lab, name: str) -> int:
    found = []
    for pid in hosts[name].run("ip", "netns", "pids", hosts[name].netns).stdout.split():
        with contextlib.suppress(FileNotFoundError):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "slurmd":
                found.append(int(pid))
    assert found
    return min(found)
