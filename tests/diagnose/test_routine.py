"""Passing over the steps of a training and the answers of a server changes no verdict, and is fast."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.logs.routine import ENDS, GROWTHS_LIMIT, Routine

OWN = sorted((Path(__file__).parent / "cases").glob("*.log"))
REAL = sorted((Path(__file__).parents[1] / "logs").rglob("*.log"))
SHARED = Path(__file__).parents[3] / "shared" / "cases" / "incidents"
GIVEN = sorted(path for path in SHARED.glob("*/*.log")) if SHARED.is_dir() else []

Step = Callable[[int], bytes]
STEPS: tuple[Step, ...] = (
    lambda i: b" iteration %8d/  500000 | elapsed time per iteration (ms): 30%d.1 | lm loss: 2.1%d |" % (i, i % 90, i),
    lambda i: b"{'loss': 1.%d, 'grad_norm': 0.%d, 'learning_rate': 5.4e-05, 'epoch': 0.%02d}" % (i, i, i % 100),
    lambda i: b'INFO:     192.0.2.7:%d - "POST /v1/completions HTTP/1.1" 200 OK' % (40000 + i),
    lambda i: b"Engine 000: Avg generation throughput: %s tokens/s, Running: 1" % (b"%d.5" % i if i % 7 else b"0.0"),
    lambda i: b"10:00:%02d | train | step %d loss 0.%d tokens/s 62734.1" % (i % 60, i, i + 1),
)

BARS: tuple[Step, ...] = (
    lambda i: b"%3d%%|%-10s| %d/4000 [%02d:%02d<1:10:00,  1.21s/it]" % (i // 40 % 101, b"#" * (i // 400 % 11), i, i // 60, i % 60),
    lambda i: "Map: {:3d}%|{:10}| {}/40 [0{}:00<00:10, 1.2s/it]".format(i % 41 * 5 // 2, "█" * (i % 41 // 4) + "▌", i % 41, i % 9).encode(),
    lambda i: b"Downloading shards: %3d%% Completed | %d/9 [00:%02d<00:10, 1.2s/it]" % (i % 10 * 100 // 9, i % 10, i % 60),
)  # fmt: skip


def said(raw: bytes) -> list[object]:
    causes = of_streams([Stream("job.log", iter([raw]), raw[:60000])]).verdict.causes
    return [(c.cause, c.confidence, c.summary, c.where, [(e.line, e.text) for e in c.evidence]) for c in causes]


def with_steps(raw: bytes, chance: random.Random) -> bytes:
    """Rows of steps at some places; after some of them the count goes back."""
    lines, out, step = raw.split(b"\n"), list[bytes](), 0
    kinds = chance.sample(STEPS + BARS, 4)
    places = {chance.randrange(len(lines) + 1) for _ in range(3)}
    for index in range(len(lines) + 1):
        if index in places:
            for _ in range(chance.randrange(1, 40)):
                step = step + 1 if chance.random() < 0.97 else step // 2
                out.append(chance.choice(kinds)(step))
        out.extend(lines[index : index + 1])
    return b"\n".join(out)


def of_hosts(raw: bytes) -> bytes:
    """The same lines as two hosts print them in turn, behind their names."""
    return b"\n".join(b"gpu%02d: %s" % (7 + (number // 3) % 2, line) for number, line in enumerate(raw.split(b"\n")))


@pytest.mark.parametrize("path", [*OWN, *REAL, *GIVEN], ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_passing_over_changes_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = path.read_bytes()[:200_000]
    steps = with_steps(whole, random.Random(path.name))
    inputs = [whole, steps, of_hosts(steps)]
    short = [said(raw) for raw in inputs]
    monkeypatch.setattr(Routine, "know", lambda *_: None)
    assert short == [said(raw) for raw in inputs]


@pytest.mark.parametrize("step", STEPS)
def test_most_lines_are_passed_over(step: Step) -> None:
    read: list[int] = []
    routine = Routine()
    routine.know(step(1), b"shape")
    assert all(routine.takes(step(number), b"shape", number, float(number)) for number in range(1, 1000, 7))
    read = [number for _, number, _ in routine.over()]
    assert len(read) <= 2 * ENDS and read == sorted(read)
    assert list(routine.over()) == []


@pytest.mark.parametrize("bar", BARS[:2])
def test_of_a_bar_every_percentage_is_read(bar: Step) -> None:
    routine = Routine()
    routine.know(bar(1), b"shape %| /")
    lines = [bar(number) for number in range(200)]
    assert all(routine.takes(line, b"shape %| /", number, float(number)) for number, line in enumerate(lines))
    read = [number for _, number, _ in routine.over()]
    shown = [line.partition(b"%")[0].strip() for line in lines]
    growths = [number for number in range(200) if number == 0 or shown[number] != shown[number - 1]]
    assert {*growths, 197, 198, 199} <= {*read}


def test_bars_of_many_processes_in_turn_are_read_one_by_one() -> None:
    routine = Routine()
    lines = [b" %d%%|##  | %d/900 [00:10<00:10, 1.2s/it]" % (number % 8 + 10, number) for number in range(2000)]
    routine.know(lines[0], b"shape %| /")
    places = enumerate(lines)
    refused = next(number for number, line in places if not routine.takes(line, b"shape %| /", number, float(number)))
    assert refused == len(list(routine.over())) == GROWTHS_LIMIT


def test_a_training_with_a_bar_is_read_quickly() -> None:
    raw = b"\n".join(step(number) for number in range(30_000) for step in (STEPS[1], BARS[0]))
    begin = time.process_time()
    said(raw)
    assert time.process_time() - begin < len(raw) / 6e6


def test_lines_around_a_count_that_goes_back_are_read() -> None:
    routine, step = Routine(), STEPS[4]
    routine.know(step(1), b"shape")
    counts = [*range(10, 50), *range(20, 60)]
    for number, count in enumerate(counts):
        routine.takes(step(count), b"shape", number, float(number))
    assert {39, 40} <= {number for _, number, _ in routine.over()}


@pytest.mark.parametrize("step", [STEPS[0], STEPS[2], lambda i: STEPS[3](7 * i + 1), STEPS[4]])  # a server that is busy
def test_a_long_run_is_read_quickly(step: Step) -> None:
    raw = b"\n".join(step(number) for number in range(60_000))
    begin = time.process_time()
    said(raw)
    assert time.process_time() - begin < len(raw) / 8e6  # it is three to ten times as fast; one by one it was a third
