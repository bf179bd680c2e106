"""Runs of real vLLM and Ray with real faults: the whole run folder, its logs alone, and the logs cut short."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from ncdiag.exits import of_cause
from ncdiag.logs.diagnose import diagnose
from tests.diagnose.test_variants import no_other_sure

EVIDENCE = Path(__file__).parents[3] / "shared" / "lab" / "vllm-cpu" / "evidence"
RUNS = sorted(path for path in EVIDENCE.glob("*") if path.is_dir()) if EVIDENCE.is_dir() else []
pytestmark = pytest.mark.skipif(not RUNS, reason="the evidence of the lab is not beside this checkout")

TRUTH: dict[str, tuple[str, ...]] = {
    "F-f01_": ("bootstrap-blocked-firewall",),
    "F-f01c": ("bootstrap-peer-unreachable", "rank-layout-wrong"),
    "F-f01d": ("node-ip-wrong-interface", "bootstrap-peer-unreachable"),
    "F-f02a": ("socket-ifname-wrong",),
    "F-f02i": ("socket-ifname-wrong",),
    "F-f02j": ("socket-ifname-wrong",),
    "F-f02": ("healthy",),
    "F-f03": ("node-ip-wrong-interface",),
    "F-f04": ("rank-missing", "unresolved"),
    "F-f05d": ("rank-died",),
    "F-f05": ("rank-stopped",),
    "F-f06a": ("model-path-missing",),
    "F-f06c": ("weights-corrupt",),
    "F-f06d": ("model-path-missing",),
    "F-f07": ("version-mismatch",),
    "F-f08a": ("storage-slow", "slow-not-hung", "unresolved"),
    "F-f08c": ("healthy", "slow-not-hung"),
    "F-f09a": ("shm-too-small",),
    "F-f09c": ("healthy",),
    "F-f10": ("bootstrap-blocked-firewall",),
    "F-f11": ("dns-unresponsive", "unresolved"),
    "F-f13": ("healthy",),
    "F-f14": ("unresolved",),
    "F-r07": ("bootstrap-blocked-firewall",),
    "F-r08": ("version-mismatch",),
    "F-r09": ("rank-stopped", "ray-node-lost"),
    "F-r": ("healthy",),
    "ray1-noplat": ("version-mismatch",),
    "rayexp": ("rank-stopped", "ray-nested-environment", "unresolved"),
    "": ("healthy", "engine-exception", "framework-version-bug"),
}
"""Beginning of a run's name -> what may come out first, most special first. PP=2 runs end in a bug of the CPU back end."""


def truth(run: Path) -> tuple[str, ...]:
    return next(causes for name, causes in TRUTH.items() if run.name.startswith(name))


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_run(run: Path) -> None:
    causes = diagnose([str(run)]).verdict.causes
    assert causes[0].cause in truth(run), [(cause.cause, cause.confidence, cause.summary) for cause in causes]
    assert {cause.cause for cause in causes if cause.confidence == "sure"} <= set(truth(run))
    if "healthy" in truth(run) and len(truth(run)) == 1:
        assert of_cause(causes[0].cause, causes[0].confidence) == 0


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_logs_alone_and_cut(run: Path) -> None:
    files = {path.name: gzip.decompress(path.read_bytes()).decode(errors="replace") for path in run.glob("*.log.gz")}
    no_other_sure(files, set(truth(run)))
