"""Carriage returns: as line ends, and between the states of a progress bar."""

from __future__ import annotations

import pytest

from ncdiag.logs.diagnose import Diagnosis, of_streams
from ncdiag.logs.intake import Stream
from ncdiag.logs.returns import LINE_LIMIT, shortened, whole_lines
from ncdiag.logs.scan import blocks_of
from ncdiag.model import Cause

FAULT = b"RuntimeError: CUDA error: an illegal memory access was encountered"
MEMORY = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 8.60 GiB. GPU 3 has a total capacity of 79.10 GiB of which 5.12 MiB is free."
NCCL = b"node7:4711:4800 [0] "


def bar(states: int, width: int = 40) -> bytes:
    """What tqdm writes: each state over the one before."""
    full = [state * width // states for state in range(states)]
    return b"".join(
        b"\r%3d%%|%s| %d/%d [00:%02d<01:00, %d.17it/s]"
        % (state * 100 // states, b"\xe2\x96\x88" * full[state] + b" " * (width - full[state]), state, states, state % 60, state % 9 + 1)
        for state in range(1, states)
    )  # fmt: skip


def read(raw: bytes, size: int = 1 << 20) -> Diagnosis:
    chunks = [raw[start : start + size] for start in range(0, len(raw), size)]
    return of_streams([Stream("a.log", iter(chunks), raw[:65536])])


def first(raw: bytes, size: int = 1 << 20) -> Cause:
    return read(raw, size).verdict.causes[0]


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("end", [b"\r", b"\r\n", b"\n"])
def test_any_line_end_tells_lines_apart(end: bytes, size: int) -> None:
    lines = [
        b"INFO one",
        b"INFO two",
        b"Traceback (most recent call last):",
        b'  File "/opt/train.py", line 3, in main',
        MEMORY,
    ]
    cause = first(end.join([*lines, b""]), size)
    assert cause.cause == "gpu-memory-exhausted"
    assert [(item.line, item.text) for item in cause.evidence] == [(5, MEMORY.decode())]


@pytest.mark.parametrize("size", [997, 1 << 20])
@pytest.mark.parametrize(
    ("raw", "line"),
    [
        (b"start\n" + bar(5000) + b"\n" + FAULT + b"\n", 3),
        (b"start\n" + bar(5000) + b"\r" + FAULT + b"\n", 2),
        (b"start\n" + bar(3000) + b"\r" + FAULT + bar(3000) + b"\nend\n", 2),
        (b"start\n" + bar(3000) + b"\r" + FAULT, 2),
    ],
    ids=["after the bar's line", "at its end", "between its states", "without a newline"],
)
def test_what_stands_behind_a_long_bar_is_read(raw: bytes, line: int, size: int) -> None:
    cause = first(raw, size)
    assert cause.cause == "cuda-illegal-memory-access"
    assert [(item.line, item.text) for item in cause.evidence] == [(line, FAULT.decode())]


def test_a_piece_has_the_prefix_of_its_line() -> None:
    cause = first(b"x\n[default3]:" + bar(200) + b"\r" + FAULT + b"\n")
    assert cause.where["rank"] == 3


def test_one_piece_does_not_explain_away_another() -> None:
    """A rule that knows a piece of a line does not make the exception in another piece of it known."""
    lines = (b"RuntimeError: DataLoader worker (pid 77) is killed by signal: Killed.", b"Traceback (most recent call last):",
             b'  File "/opt/train.py", line 3, in main', b"KeyError: 'tokens'")  # fmt: skip
    apart, together = (read(b"a\n" + end.join(lines) + b"\n").verdict.causes for end in (b"\n", b"\r"))
    assert [cause.cause for cause in apart] == [cause.cause for cause in together]


def test_a_growing_bar_at_the_end_moves() -> None:
    cause = first(b"start\n" + bar(20_000)[:-60])
    assert (cause.cause, cause.evidence[0].line) == ("slow-not-hung", 2)
    assert cause.evidence[0].text.startswith("99%|") and len(cause.evidence[0].text) < 120


def test_records_of_nccl_between_states() -> None:
    said = (
        b"NCCL INFO Bootstrap : Using eth0:192.0.2.7<0>",
        b"NCCL INFO ncclCommInitRank comm 0x1 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1000 commId 0x5 - Init START",
    )
    lines = [NCCL + text for text in said]
    apart = read(b"a\n" + b"\n".join(lines) + b"\n").nccl
    together = read(b"a\n" + bar(50) + b"\r" + b"\r".join(lines) + b"\n").nccl
    assert apart.processes[0].bootstrap_address == together.processes[0].bootstrap_address == "192.0.2.7"
    assert [rank.stage_at.line for rank in together.communicators[0].ranks if rank.stage_at] == [2]
    assert together.sources[0].lines == 2


def test_no_line_is_endless() -> None:
    blocks = list(blocks_of([b"one\n", *([bar(4000)] * 40), b"\ntwo\n"]))
    assert sum(len(block) for _, block in blocks) < 5000
    assert b"\n".join(block for _, block in blocks).count(b"\n") == 2
    different = b"\r".join(b"%x line" % (number * 2654435761) for number in range(200_000))
    assert len(shortened(different)) <= LINE_LIMIT


def test_of_alike_states_the_ends_are_kept() -> None:
    line = b"a\r" + b"\r".join(b"%d%% done" % state for state in range(100)) + b"\rlast"
    assert shortened(line).split(b"\r") == [
        b"a",
        b"0% done",
        b"1% done",
        b"2% done",
        b"97% done",
        b"98% done",
        b"99% done",
        b"last",
    ]
    assert shortened(b"\r".join([b"same"] * 6)) == b"\r".join([b"same"] * 6)


@pytest.mark.parametrize("size", [1, 3, 1 << 20])
@pytest.mark.parametrize(
    ("raw", "lines"),
    [
        (b"a\r\nb\rc\n", b"a\nb\rc\n"),
        (b"a\rb\r", b"a\nb\n"),
        (b"a\rb\r\n", b"a\rb\n"),
        (b"\r 10%|x\r 20%|xx\r", b"\r 10%|x\r 20%|xx\r"),
        (b"", b""),
        (b"\r", b"\r"),
        (b"\r\n", b"\n"),
    ],
)
def test_returns_end_lines_where_nothing_else_does(raw: bytes, lines: bytes, size: int) -> None:
    assert b"".join(whole_lines(raw[at : at + size] for at in range(0, len(raw), size))) == lines
