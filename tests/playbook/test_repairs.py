"""From `preflight` to `playbook run --apply` on this machine: what a machine can repair is repaired, and proved."""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
from pathlib import Path

import psutil
import pytest

from tests.playbook.test_command_line import ncdiag


def _preflight(folder: Path, probe: str, *options: str) -> tuple[int, Path]:
    file = folder / "findings.json"
    return ncdiag("preflight", "--only", probe, "--format", "json", "-o", str(file), *options).returncode, file


@pytest.mark.parametrize(
    ("variables", "probe", "cause", "left"),
    [
        ("NCCL_SOCKET_IFNAME=nosuchif0\nA=1\n", "bootstrap-interface", "socket-ifname-wrong", "A=1\n"),
        ("NCCL_TIMEOUT=5\nNCCL_IB_DISABLE=off\n", "nccl-environment", "env-unknown-or-invalid", "NCCL_IB_DISABLE=0\n"),
        (
            "export NCCL_NET_GDR_LEVEL=phb\n",
            "nccl-environment",
            "env-unknown-or-invalid",
            "export NCCL_NET_GDR_LEVEL=PHB\n",
        ),
    ],
    ids=["wrong-interface", "dead-name-and-no-number", "lower-case-level"],
)
def test_a_wrong_variable(tmp_path: Path, variables: str, probe: str, cause: str, left: str) -> None:
    env = tmp_path / "job.env"
    env.write_text(variables)
    options = ("--env-file", str(env))
    _, findings = _preflight(tmp_path, probe, *options)
    dry = ncdiag("playbook", "run", "--from", str(findings), *options, "--format", "json")
    assert (json.loads(dry.stdout)["playbook"], env.read_text()) == (cause, variables)
    done = ncdiag("playbook", "run", "--from", str(findings), *options, "--apply", "--yes", "--format", "json")
    assert json.loads(done.stdout)["result"] == "repaired", done.stdout
    assert done.returncode == 0
    assert env.read_text() == left
    assert _preflight(tmp_path, probe, *options)[0] == 0


def test_what_may_be_meant_either_way_is_left_to_a_person(tmp_path: Path) -> None:
    """NCCL reads `true` as 0: RDMA is on now, and nobody but its owner knows whether it should be."""
    env = tmp_path / "job.env"
    env.write_text("NCCL_IB_DISABLE=true\n")
    options = ("--env-file", str(env))
    _, findings = _preflight(tmp_path, "nccl-environment", *options)
    done = ncdiag("playbook", "run", "--from", str(findings), *options, "--apply", "--yes", "--format", "json")
    assert json.loads(done.stdout)["result"] == "to-do" and env.read_text() == "NCCL_IB_DISABLE=true\n"


def test_a_stale_process_only_after_confirmation(tmp_path: Path) -> None:
    """Its risk is medium: --yes alone does not end it, and never without its number."""
    name = "exec -a VLLM::EngineCore sleep 120 >/dev/null 2>&1 &"  # its starter ends at once
    done = subprocess.run(["bash", "-c", f"{name} echo $!"], capture_output=True, text=True, check=True)
    stale = psutil.Process(int(done.stdout))
    try:
        time.sleep(0.2)
        assert _preflight(tmp_path, "leftover-processes", "--fail-on", "warn")[0] == 1
        run = ["playbook", "run", "stale-process", "--format", "json"]
        number = ["--value", f"PID={stale.pid}"]
        for options in (
            ["--apply", "--yes"],
            ["--apply", "--yes", *number],
            number,
            ["--apply", "--yes", "--max-risk", "medium"],
        ):
            ncdiag(*run, *options)
            assert stale.is_running() and stale.status() != psutil.STATUS_ZOMBIE, options
        said = json.loads(ncdiag(*run, "--apply", "--yes", "--max-risk", "medium", *number).stdout)
        stale.wait(5)
        assert next(step for step in said["steps"] if step["id"] == "end")["outcome"] == "applied"
        assert said["result"] in ("repaired", "to-prove"), "others' left-overs may be here"
    finally:
        with contextlib.suppress(psutil.Error):
            stale.kill()
