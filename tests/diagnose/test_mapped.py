"""Libraries of NCCL that processes have mapped, beside what is installed."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

WHEEL = "/srv/env/lib/python3.11/site-packages/nvidia/nccl/lib/libnccl.so.2"
SYSTEM = "/usr/lib/x86_64-linux-gnu/libnccl.so.2.21.5"


def mismatch(*lines: str) -> Cause | None:
    raw = "\n".join([*lines, ""]).encode()
    causes = of_streams([Stream("facts.txt", iter([raw]), raw)]).verdict.causes
    return next((cause for cause in causes if cause.cause == "nccl-version-mismatch"), None)


def maps(host: str, path: str, question: str = "grep -o '/.*libnccl.*' /proc/411/maps | sort -u") -> list[str]:
    return [f"{host}$ {question}", path]


def pip(host: str, version: str = "2.27.3", form: str = "nvidia-nccl-cu12     {}") -> list[str]:
    return [f"{host}$ pip list | grep nccl", form.format(version)]


def test_one_preloads_another() -> None:
    loaded = ["teal2$ tr '\\0' '\\n' < /proc/411/environ | grep ^LD_", "LD_PRELOAD=/usr/lib/x86_64-linux-gnu/libnccl.so.2"]  # fmt: skip
    found = mismatch(*pip("teal1"), *maps("teal1", WHEEL), *pip("teal2"), *maps("teal2", SYSTEM), *loaded)
    assert found is not None and (found.confidence, found.where) == ("likely", {"node": "teal2"})
    assert "2.27.3" in found.summary and "2.21.5" in found.summary and "LD_PRELOAD" in found.summary


RAW = "7f0b28000000-7f0b28a00000 r-xp 00000000 08:02 5511 {}"


@pytest.mark.parametrize(
    "lines",
    [
        [*maps("teal1", SYSTEM), *maps("teal2", SYSTEM.replace("21.5", "19.3"))],
        ["teal1$ grep nccl /proc/9/maps", RAW.format(SYSTEM), "teal2$ grep nccl /proc/8/maps", RAW.format("/opt/nccl-2.18.1/lib/libnccl.so.2")],
        [*pip("teal1", form="nvidia-nccl-cu12=={}"), *maps("teal1", WHEEL, "lsof -p 411 | grep nccl"), *maps("teal2", SYSTEM)],
        ["$ pdsh -w teal[1-2] 'grep -oh /.*libnccl.* /proc/*/maps | sort -u'", f"teal1: {SYSTEM}", f"teal2: {SYSTEM}.1"],
    ],
    ids=["names", "raw", "freeze and lsof", "pdsh"],
)  # fmt: skip
def test_other_forms(lines: list[str]) -> None:
    found = mismatch(*lines)
    assert found is not None and found.confidence == "likely"


def test_of_whom_is_not_said() -> None:
    shown = ["$ pip show nvidia-nccl-cu12 | head -2", "Name: nvidia-nccl-cu12", "Version: 2.27.3"]
    found = mismatch(*shown, *maps("", WHEEL)[1:], "$ grep nccl /proc/8/maps", WHEEL, "--- n2", "$ grep nccl /proc/9/maps", SYSTEM)  # fmt: skip
    assert found is not None and (found.confidence, found.where) == ("possible", {"node": "n2"})


@pytest.mark.parametrize(
    "lines",
    [
        [*pip("teal1"), *maps("teal1", WHEEL), *pip("teal2"), *maps("teal2", WHEEL.replace("/srv", "/opt"))],
        [*pip("teal1"), *maps("teal1", WHEEL), *pip("teal2"), *maps("teal2", SYSTEM.replace("21.5", "27.3"))],
        [*maps("teal1", WHEEL), *maps("teal2", SYSTEM)],
        [*maps("teal1", SYSTEM), *maps("teal2", SYSTEM.replace("21.5", "19.3"), "find / -name 'libnccl.so*'")],
        [*pip("teal1"), *pip("teal2"), *maps("teal1", WHEEL), *maps("teal1", SYSTEM, "ldconfig -p | grep nccl")],
    ],
    ids=["the same", "the same elsewhere", "one is not known", "installed only", "one host"],
)
def test_no_difference(lines: list[str]) -> None:
    assert mismatch(*lines) is None
