"""What the scanner remembers of lines, to be fast, changes no verdict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ncdiag.logs import scan
from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream

CASES = sorted(path for path in (Path(__file__).parent / "cases").glob("*.log") if b"NCCL INFO" in path.read_bytes())
RAY = b"\x1b[36m(RayWorkerWrapper pid=4001, ip=192.0.2.1)\x1b[0m "


def _said(raw: bytes) -> list[object]:
    causes = of_streams([Stream("job.log", iter([raw]), raw[:60000])]).verdict.causes
    return [(c.cause, c.confidence, c.where, [(e.line, e.text) for e in c.evidence]) for c in causes]


@pytest.mark.parametrize("prefix", [b"", RAY], ids=["bare", "ray"])
@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_memory_changes_nothing(path: Path, prefix: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = b"".join(prefix + line + b"\n" for line in path.read_bytes().split(b"\n") for _ in (1, 2))
    with_memory = _said(raw)
    monkeypatch.setattr(scan, "MESSAGES_LIMIT", 0)
    monkeypatch.setattr(scan, "_RAY_PREFIX", re.compile(rb"(?!)"))
    assert with_memory == _said(raw)
