"""Channel lines that were cut out of a log, without any initialisation."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause

SENDS = "kite{0}:41{0}:5{0} [0] NCCL INFO Channel 00/0 : {1}[0] -> {2}[0] [send] via {3}"
RECEIVES = "kite{0}:41{0}:5{0} [0] NCCL INFO Channel 00/0 : {2}[0] -> {1}[0] [receive] via {3}"
DIRECT, BARE = "NET/IB/0/GDRDMA", "NET/IB/0"


def causes(*lines: str) -> list[Cause]:
    raw = "\n".join([*lines, "# Avg bus bandwidth    : 11.4", ""]).encode()
    return of_streams([Stream("job.log", iter([raw]), raw)]).verdict.causes


def gdr(*lines: str) -> Cause | None:
    return next((cause for cause in causes(*lines) if cause.cause == "gdr-disabled"), None)


def ring(*vias: str) -> list[str]:
    """Each node of a ring sends and receives in its own way."""
    count = len(vias)
    return [
        form.format(node + 1, node * 8, (node + step) % count * 8, via)
        for node, via in enumerate(vias)
        for form, step in ((SENDS, 1), (RECEIVES, count - 1))
    ]


def test_one_node_does_without() -> None:
    found = causes(*ring(DIRECT, DIRECT, BARE))[0]
    assert (found.cause, found.confidence, found.where) == ("gdr-disabled", "likely", {"node": "kite3"})


def test_nobody_has_it() -> None:
    found = gdr(*ring(BARE, BARE))
    assert found is not None and found.where.get("node") is None


@pytest.mark.parametrize(
    "lines",
    [
        ring(DIRECT, DIRECT, DIRECT),
        ring("NET/Socket/0", "NET/Socket/0"),
        ring("P2P/CUMEM", "SHM/direct/direct"),
        [SENDS.format(1, 0, 8, BARE), RECEIVES.format(2, 8, 0, DIRECT)],
        [SENDS.format(1, 0, 8, BARE), SENDS.format(2, 8, 0, BARE)],
        [
            line.format(node, node * 8, 8 * (3 - node), via)
            for node in (1, 2)
            for line, via in ((SENDS, BARE), (RECEIVES, DIRECT))
        ],
    ],
    ids=["all with it", "sockets", "one node", "each end in its own way", "what is sent only", "sent without"],
)
def test_no_difference_between_nodes(lines: list[str]) -> None:
    assert gdr(*lines) is None


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (builder)"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 03:02:28 UTC 2025"


@pytest.mark.parametrize("form", ["kite{}: {}", "kite{}$ head -1 /proc/driver/nvidia/version\n{}"])
def test_kernel_modules_of_two_kinds(form: str) -> None:
    found = gdr(form.format(1, OPEN), form.format(2, OPEN), form.format(3, CLOSED))
    assert found is not None and (found.confidence, found.where) == ("possible", {"node": "kite3"})
    assert gdr(form.format(1, OPEN), form.format(2, OPEN)) is None
    assert gdr(form.format(1, CLOSED), form.format(2, CLOSED)) is None
