from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import Any

import pytest

from ncdiag.host import Host

from .judged import collected, judged, statuses


def process(
    pid: int, parent: int, title: str, part: bool = True, state: str = "S", under: str = "systemd"
) -> dict[str, Any]:
    return {"pid": pid, "parent": parent, "title": title, "state": state, "part": part, "parent_name": under}


def test_whole_engine_is_not_accused() -> None:
    whole = [
        process(10, 1, "python vllm serve /m", part=False),
        process(11, 10, "VLLM::EngineCore"),
        process(12, 11, "VLLM::Worker_TP0"),
    ]
    assert statuses(judged("leftover-processes", {"a": {"processes": whole, "seen": 30}})) == ["ok"]


def test_orphans_are_named() -> None:
    left = [
        process(11, 1, "VLLM::EngineCore"),
        process(12, 11, "VLLM::Worker_TP0"),
        process(13, 1, "VLLM::Worker_TP1", state="Z"),
    ]
    findings = judged("leftover-processes", {"a": {"processes": left, "seen": 30}})
    assert [
        (finding.status.value, finding.where.get("device")) for finding in findings if finding.status.value == "warn"
    ] == [("warn", "pid 11")]


@pytest.mark.parametrize(
    ("parent", "under", "status"),
    [
        (700, "python3", "ok"),
        (700, "rollout", "ok"),
        (1, "python3", "ok"),
        (1, "systemd", "warn"),
        (1, "bash", "warn"),
        (1, "sleep", "warn"),
        (700, "systemd", "warn"),
        (700, "containerd-shim", "warn"),
        (700, "slurmstepd", "warn"),
    ],
)
def test_an_engine_that_any_program_started_is_not_left_over(parent: int, under: str, status: str) -> None:
    """`LLM(...)` in a script of one's own has no `vllm serve` above it."""
    facts = {"processes": [process(11, parent, "VLLM::EngineCore", under=under)], "seen": 30}
    assert statuses(judged("leftover-processes", {"a": facts})) == [status]


def test_ray_workers_belong_to_the_raylet() -> None:
    assert statuses(
        judged("leftover-processes", {"a": {"processes": [process(9, 3, "ray::RayWorkerProc.run")], "seen": 30}})
    ) == ["ok"]


def test_nothing_seen_is_unknown() -> None:
    assert statuses(judged("leftover-processes", {"a": {"processes": [], "seen": 0}})) == ["unknown"]


def test_a_real_orphan() -> None:
    """A process titled as vLLM titles its engine core, whose parent has ended."""
    script = (
        "import os, sys\nif os.fork() == 0:\n    os.setsid()\n    print(os.getpid(), flush=True)\n"
        "    os.execv(sys.executable, ['VLLM::EngineCore', '-c', 'import time; time.sleep(60)'])\n"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout
        pid = int(starter.stdout.readline())
        starter.wait(10)
    try:
        deadline = time.monotonic() + 10
        found: list[Any] = []
        while not found and time.monotonic() < deadline:
            facts = collected("leftover-processes", Host()).facts["leftover-processes"]
            found = [entry for entry in facts["processes"] if entry["pid"] == pid]
        findings = judged("leftover-processes", {"a": facts})
        assert f"pid {pid}" in {finding.where.get("device") for finding in findings}
    finally:
        os.kill(pid, 9)
