from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from ncdiag import engine
from ncdiag.host import Host

from .environments import environment
from .judged import collected, judged, statuses


def facts(python: str = "3.11.7", **packages: str) -> dict[str, Any]:
    return {
        "python": "/v/bin/python",
        "found_by": "--python",
        "python_version": python,
        "packages": {name.replace("_", "-"): version for name, version in packages.items()},
    }


def test_reads_an_environment_without_importing_it(tmp_path: Path) -> None:
    python = environment(
        tmp_path,
        {
            "vllm": "0.11.0",
            "torch": "2.8.0+cu128",
            "flash-attn": "2.8.3",
            "nvidia-nccl-cu12": "2.27.3",
            "unrelated": "1",
        },
    )
    found = collected("engine-versions", Host(python=python)).facts["engine-versions"]
    assert found["packages"] == {
        "vllm": "0.11.0",
        "torch": "2.8.0+cu128",
        "flash-attn": "2.8.3",
        "nvidia-nccl-cu12": "2.27.3",
    }
    assert found["python_version"] == "3.11.7"


def test_finds_the_interpreter_of_a_script_in_path_and_of_a_process(tmp_path: Path) -> None:
    python = environment(tmp_path / "v", {"vllm": "0.11.0"})
    (tmp_path / "v" / "bin" / "vllm").write_text(f"#!{python}\nimport sys\n")
    found = engine.in_path(Host(environment={"PATH": f"/no:{tmp_path}/v/bin"}))
    assert found and (found.python, found.found_by) == (python, "vllm in PATH")
    with subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout and process.stdout.readline()
        named = engine.find(Host(pid=process.pid))
        process.communicate(b"\n")
    assert named and named.python == sys.executable and named.pid == process.pid


def test_one_node_has_nothing_to_compare_with() -> None:
    assert statuses(judged("engine-versions", {"a": facts(vllm="0.11.0")})) == ["ok", "skip"]
    assert statuses(judged("engine-versions", {"a": facts()})) == ["unknown", "skip"]


def test_differences_name_the_outlier() -> None:
    same = facts(vllm="0.32.0", torch="2.9.0", numpy="2.0")
    findings = judged("engine-versions", {"a": same, "b": same, "c": facts(vllm="0.31.0", torch="2.9.0", numpy="2.1")})
    found = {
        finding.where.get("package"): (finding.status.value, finding.where.get("node"), finding.cause)
        for finding in findings
        if finding.where.get("package")
    }
    assert found == {"vllm": ("fail", "c", "version-mismatch"), "numpy": ("warn", "c", "version-mismatch")}


def test_two_nodes_differ_without_a_culprit() -> None:
    findings = judged("engine-versions", {"a": facts(ray="2.60.0"), "b": facts(ray="2.59.0")})
    graver = [finding for finding in findings if finding.status.value == "fail"]
    assert {finding.cause for finding in graver} == {"ray-version-mismatch"}
    assert {finding.expected for finding in graver} == {None}


def test_python_minor_counts_and_patch_does_not() -> None:
    assert "fail" not in statuses(
        judged("engine-versions", {"a": facts("3.11.7", vllm="1"), "b": facts("3.11.9", vllm="1")})
    )
    assert "fail" in statuses(
        judged("engine-versions", {"a": facts("3.11.7", vllm="1"), "b": facts("3.12.1", vllm="1")})
    )


def test_ray_minds_the_patch_version_of_python() -> None:
    """As Ray 2.60 itself: `check_version_info` compares all three numbers unless the level is `minor`."""
    same = facts("3.10.21", ray="2.60.0")
    findings = judged("engine-versions", {"a": same, "b": same, "c": facts("3.10.19", ray="2.60.0")})
    warned = [finding for finding in findings if finding.status.value == "warn"]
    assert [(one.where, one.cause, one.observed, one.expected) for one in warned] == [
        ({"node": "c", "package": "python"}, "ray-version-mismatch", "3.10.19", "3.10.21")
    ]
    assert not any("same engine packages" in finding.summary for finding in findings)
    without = judged("engine-versions", {"a": facts("3.10.21", vllm="1"), "b": facts("3.10.19", vllm="1")})
    assert "warn" not in statuses(without)


def test_a_process_that_is_no_python_is_told_as_that(tmp_path: Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep
    with subprocess.Popen([sleep, "60"]) as process:
        told = collected("engine-versions", Host(pid=process.pid)).errors["engine-versions"]
        process.kill()
    assert f"process {process.pid}: it runs {os.path.realpath(sleep)}, which is no Python" in told and "ps -ef" in told


def test_too_few_to_compare_is_said_without_a_number() -> None:
    assert [finding.summary for finding in judged("engine-versions", {"a": facts()})][1].startswith(
        "fewer than two nodes"
    )
