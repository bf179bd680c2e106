from __future__ import annotations

import pytest

from ncdiag.probes.gpu_p2p import parse
from tests.probes.machines import Machine, eight_rails, graver, judged, statuses
from tests.probes.smi import addresses, with_gpus


def matrix(count: int, odd: dict[tuple[int, int], str] | None = None, every: str = "OK") -> str:
    rows = [" \t" + "\t".join(f"GPU{i}" for i in range(count))]
    for i in range(count):
        rows.append(f" GPU{i}\t" + "\t".join("X" if i == j else (odd or {}).get((i, j), every) for j in range(count)))
    return "\n".join(
        [*rows, "", "Legend:", "", "  X    = Self", "  OK   = Status Ok", "  CNS  = Chipset not supported"]
    )


def machine(read: str, write: str | None = None, links: int = 18) -> Machine:
    node = with_gpus(eight_rails(), addresses(), links=links)
    return node.command("nvidia-smi topo -p2p r", read).command("nvidia-smi topo -p2p w", write or read)


def test_matrix() -> None:
    pairs = parse(matrix(3, {(0, 2): "CNS"}))
    assert len(pairs) == 6 and pairs["0-2"] == "CNS" and pairs["2-0"] == "OK"
    assert parse("") == {} and parse("NVIDIA-SMI has failed") == {}


@pytest.mark.parametrize(
    ("node", "status"),
    [
        (machine(matrix(8)), "ok"),
        (machine(matrix(8, {(0, 5): "NS", (5, 0): "NS"})), "fail"),
        (machine(matrix(8, {(0, 5): "CNS", (5, 0): "CNS"}), links=0), "warn"),
        (machine(matrix(8, every="CNS"), links=0), "skip"),
        (machine(matrix(8, every="DR"), links=0), "warn"),
        (with_gpus(eight_rails(), addresses()), "unknown"),
        (Machine(), "skip"),
    ],
)
def test_statuses(node: Machine, status: str) -> None:
    findings = [finding for finding in judged("gpu-p2p", node) if "could not be read" not in finding.summary]
    assert statuses(findings) == [status]
    graver(findings)
