from __future__ import annotations

from pathlib import Path

import pytest

from ncdiag.host import Host

from .environments import environment
from .judged import collected, judged


def look(folder: Path, packages: dict[str, str], requires: dict[str, list[str]]) -> list[tuple[str, str | None]]:
    node = collected("engine-requirements", Host(python=environment(folder, packages, requires)))
    findings = judged("engine-requirements", {"a": node.facts["engine-requirements"]})
    return [(finding.status.value, finding.where.get("package")) for finding in findings]


@pytest.mark.parametrize(
    ("packages", "requires", "expected"),
    [
        ({"vllm": "0.11.0", "torch": "2.8.0+cu128"}, {"vllm": ["torch==2.8.0"]}, [("ok", None)]),
        ({"vllm": "0.11.0", "torch": "2.9.0+cu129"}, {"vllm": ["torch==2.8.0"]}, [("fail", "vllm")]),
        ({"vllm": "0.11.0"}, {"vllm": ["torch==2.8.0"]}, [("fail", "vllm")]),
        (
            {"vllm": "0.11.0", "torch": "2.8.0"},
            {"vllm": ["torch==2.8.0", "xformers==0.0.32; platform_system == 'Darwin'"]},
            [("ok", None)],
        ),
        (
            {"vllm": "0.11.0", "torch": "2.8.0"},
            {"vllm": ["torch==2.8.0", "fastapi[all]>=0.1", "ray[cgraph]>=2.48; extra == 'ray'"]},
            [("ok", None)],
        ),
        (
            {"torch": "2.8.0", "nvidia-nccl-cu12": "2.21.5"},
            {"torch": ["nvidia-nccl-cu12==2.27.3"]},
            [("fail", "torch")],
        ),
        (
            {"vllm": "0.11.0", "torch": "2.8.0", "setuptools": "60"},
            {"vllm": ["torch==2.8.0", "setuptools>=77"]},
            [("warn", "vllm")],
        ),
        ({"numpy": "1"}, {}, [("skip", None)]),
        ({"vllm": "0.11.0", "torch": "nonsense"}, {"vllm": ["torch==2.8.0", "((("]}, [("ok", None)]),
    ],
)
def test_table(
    tmp_path: Path, packages: dict[str, str], requires: dict[str, list[str]], expected: list[tuple[str, str | None]]
) -> None:
    assert look(tmp_path / "v", packages, requires) == expected


def test_the_remedy_names_the_version_that_is_installed(tmp_path: Path) -> None:
    python = environment(tmp_path, {"vllm": "0.11.0", "torch": "2.9.0"}, {"vllm": ["torch==2.8.0"]})
    node = collected("engine-requirements", Host(python=python))
    (finding,) = judged("engine-requirements", {"a": node.facts["engine-requirements"]})
    assert "pip install 'vllm==0.11.0' in" in (finding.remedy or "")
