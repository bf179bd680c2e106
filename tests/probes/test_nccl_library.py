from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ncdiag.host import Host
from ncdiag.probes.nccl_library import literal_version

from .judged import collected, judged, statuses


def library(version: str | None, by: str = "torch's wheel", path: str = "/v/libnccl.so.2") -> dict[str, Any]:
    return {"path": path, "by": by, "version": version}


def facts(
    *libraries: dict[str, Any], torch: str | None = "2.9.0+cu129", unreadable: dict[str, str] | None = None
) -> dict[str, Any]:
    return {"libraries": list(libraries), "torch": torch, "unreadable": unreadable or {}}


def test_one_library() -> None:
    assert statuses(judged("nccl-library", {"a": facts(library("2.27.5+cuda12.9"))})) == ["ok"]
    assert statuses(judged("nccl-library", {"a": facts(library(None))})) == ["unknown"]
    assert statuses(judged("nccl-library", {"a": facts()})) == ["unknown"]
    assert statuses(judged("nccl-library", {"a": facts(torch="2.13.0+cpu")})) == ["skip"]


def test_a_variable_that_puts_another_one_first() -> None:
    (finding,) = judged("nccl-library", {"a": facts(library("2.21.5", "LD_LIBRARY_PATH"), library("2.27.5"))})
    assert (finding.status.value, finding.cause) == ("warn", "nccl-version-mismatch")


def test_nodes_that_differ_and_a_named_file_that_is_gone() -> None:
    findings = judged(
        "nccl-library", {"a": facts(library("2.27.5")), "b": facts(library("2.27.5")), "c": facts(library("2.26.2"))}
    )
    assert [finding.where.get("node") for finding in findings if finding.status.value == "fail"] == ["c"]
    findings = judged(
        "nccl-library",
        {
            "a": facts(
                library("2.27.5"), unreadable={"/x/libnccl.so.2": "No such file or directory (VLLM_NCCL_SO_PATH)"}
            )
        },
    )
    assert statuses(findings) == ["fail", "ok"]


def test_version_is_read_from_the_file(tmp_path: Path) -> None:
    """The literal as NCCL's binaries carry it; the library itself has 200 MB and needs a GPU's driver."""
    (tmp_path / "libnccl.so.2").write_bytes(
        b"\x7fELF" + bytes(5000) + b"NCCL version %d.%d.%d\0" + b"NCCL version 2.27.5+cuda12.9\0" + bytes(5000)
    )
    host = Host(environment={"LD_LIBRARY_PATH": f"/no/such:{tmp_path}", "VLLM_NCCL_SO_PATH": str(tmp_path / "gone.so")})
    found = collected("nccl-library", host).facts["nccl-library"]
    assert found["libraries"][0] == {
        "path": f"{tmp_path}/libnccl.so.2",
        "by": "LD_LIBRARY_PATH",
        "version": "2.27.5+cuda12.9",
    }
    assert list(found["unreadable"]) == [str(tmp_path / "gone.so")]


@pytest.mark.skipif(not os.environ.get("NCDIAG_LAB_NCCL"), reason="NCDIAG_LAB_NCCL names no real library")
def test_version_of_real_libraries() -> None:
    paths = os.environ["NCDIAG_LAB_NCCL"].split(":")
    for path in paths:
        version = literal_version(path)
        assert version and version.split("+")[0] in path
