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


ENDLESS = "9" * 5000
ODD_NUMBERS = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate .8.60 GiB. GPU 3 has a total capacity of 7..9 GiB of which 5.1.2 MiB is free.",
    "# Avg bus bandwidth    : .1.2.3",
    "64 packets transmitted, 6 received, 9.9.9% packet loss",
    "tmpfs 1.1.1G 1G 1G 99% /dev/shm",
    "Checkpoint size: 1.1.1 GiB",
    f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {ENDLESS} GiB.",
    f"tmpfs {ENDLESS} 1 1 {ENDLESS}% /dev/shm",
    f"[rank0]:[E ProcessGroupNCCL.cpp:689] [Rank {ENDLESS}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={ENDLESS}, OpType=ALLREDUCE, NumelIn=1)",
    f"failed (exitcode: -9) local_rank: {ENDLESS} (pid: {ENDLESS}) of binary",
    f"| N/A   30C    P0   70W / 700W | {ENDLESS}MiB / 143771MiB |      0%      Default |",
    f"vm:1:1 [0] NCCL INFO ncclCommInitRank comm 0x1 rank {ENDLESS} nranks {ENDLESS} cudaDev 0 - Init COMPLETE",
    "ulimit -l\n²",
    "cat /sys/bus/pci/devices/0000:17:00.0/current_link_width\n²",
)


@pytest.mark.parametrize("text", ODD_NUMBERS, ids=[text[:24] for text in ODD_NUMBERS])
def test_numbers_that_are_none_do_no_harm(text: str) -> None:
    """Dots that no number has, more digits than Python reads, digits that are no decimals."""
    raw = f"{text}\n".encode()
    assert of_streams([Stream("a.log", iter([raw]), raw)]).verdict.causes
