"""The fleet through the Kubernetes API: the real client against a local server that speaks pods and exec (tests/lab/kube.py)."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .kube import Kube, pod

ROOT = Path(__file__).parent.parent.parent
pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("kubernetes") is None, reason="the kubernetes client is not installed (extra k8s)"
    )
]
PODS = [
    pod("vllm-0", address="10.77.0.1"),
    pod("vllm-1", address="10.77.0.2"),
    pod("vllm-2", phase="Pending", address="", reason="ImagePullBackOff"),
    pod("vllm-3"),
    pod("vllm-4"),
]


def wrap(name: str, argv: list[str]) -> list[str]:
    """vllm-1 greets and says good-bye, vllm-3 never reads or answers, vllm-4 has no shell."""
    if name == "vllm-1":
        return ["sh", "-c", 'echo Welcome; "$@"; echo bye', "-", *argv]
    return {
        "vllm-3": ["sleep", "60"],
        "vllm-4": ["sh", "-c", "echo 'exec: \"sh\": executable file not found' >&2; exit 126"],
    }.get(name, argv)


@pytest.fixture
def kube() -> Iterator[Kube]:
    made = Kube(PODS, wrap)
    yield made
    made.close()


def preflight(config: Path, nodes: str, *extra: str) -> subprocess.CompletedProcess[str]:
    argv = [
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
    return subprocess.run(
        argv,
        env={**os.environ, "KUBECONFIG": str(config)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_pods_answer_and_each_that_does_not_is_named(kube: Kube, tmp_path: Path) -> None:
    started = time.monotonic()
    done = preflight(kube.config(tmp_path / "config"), "k8s:llm/app=vllm", "--timeout", "8")
    assert done.returncode == 3, done.stderr
    result: Any = json.loads(done.stdout)
    assert result["nodes"] == [one["metadata"]["name"] for one in PODS]
    lost = {
        finding["where"]["node"]: finding["summary"] for finding in result["findings"] if finding["probe"] == "node"
    }
    assert set(lost) == {"vllm-2", "vllm-3", "vllm-4"}
    assert (
        "Pending (ImagePullBackOff)" in lost["vllm-2"]
        and "no answer within 8 s" in lost["vllm-3"]
        and "executable file not found" in lost["vllm-4"]
    )
    assert {
        finding["where"]["node"]
        for finding in result["findings"]
        if finding["status"] == "ok" and "node" in finding["where"]
    } == {"vllm-0", "vllm-1"}
    assert time.monotonic() - started < 25
    assert all("container=engine" in path for path in kube.asked if "/exec" in path), (
        "the first container, not the sidecar"
    )


def test_a_broken_connection_loses_nothing_that_was_said(tmp_path: Path) -> None:
    """A server may be gone while the payload is still written, or while the end is answered: reset before and after the status."""
    names = ("whole", "after", "before", "silent", "no-shell")
    fails = ["sh", "-c", "echo 'sh: Python went away' >&2; exit 126"]
    argvs = {"after": fails, "before": fails, "silent": ["true"], "no-shell": ["/nowhere/sh"]}
    breaks = {"whole": "after", "after": "after", "before": "before", "silent": "before"}
    made = Kube([pod(name) for name in names], argvs.get, breaks)
    try:
        done = preflight(made.config(tmp_path / "config"), "k8s:llm/app=vllm", "--timeout", "20")
    finally:
        made.close()
    result: Any = json.loads(done.stdout)
    lost = {one["where"]["node"]: one["summary"] for one in result["findings"] if one["probe"] == "node"}
    assert set(lost) == set(names) - {"whole"}
    assert "ended with status 126: sh: Python went away" in lost["after"]
    assert lost["before"].endswith("gave nothing: sh: Python went away")
    assert "the connection to the pod" in lost["silent"]
    assert "executable file not found" in lost["no-shell"]


@pytest.mark.parametrize(
    "nodes, token, words",
    [
        ("k8s:llm/app=other", None, "no pod matches; try: kubectl -n llm get pods -l 'app=other'"),
        ("k8s:kube-system/app=vllm", None, "pods is forbidden"),
        ("k8s:llm/app=vllm", "wrong", "Unauthorized"),
        ("k8s:llm", None, "NAMESPACE/SELECTOR is wanted"),
    ],
)
def test_what_cannot_be_asked_is_one_line(
    kube: Kube, tmp_path: Path, nodes: str, token: str | None, words: str
) -> None:
    done = preflight(kube.config(tmp_path / "config", token), nodes)
    assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_no_api_server(kube: Kube, tmp_path: Path) -> None:
    config = kube.config(tmp_path / "config")
    kube.close()
    done = preflight(config, "k8s:llm/app=vllm")
    assert done.returncode == 2 and "API server cannot be reached" in done.stderr, done.stderr


def test_no_configuration(tmp_path: Path) -> None:
    done = preflight(tmp_path / "none", "k8s:llm/app=vllm")
    assert done.returncode == 2 and "KUBECONFIG" in done.stderr and "Traceback" not in done.stderr, done.stderr
