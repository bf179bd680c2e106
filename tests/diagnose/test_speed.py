"""Ordinary logs of many shapes are read at about the speed of a log that says the same again and again.

Measured as a ratio within one run, and with room: the machine may do other things meanwhile.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable

import pytest

from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream

SIZE = 1 << 20  # bytes of each log
ROOM = 8.0  # times the plain log's time; before literals were looked for in one pass, prose took fifteen
WORDS = [
    "the",
    "of",
    "data",
    "model",
    "shard",
    "layer",
    "init",
    "cache",
    "tensor",
    "worker",
    "engine",
    "config",
    "loading",
    "value",
    "status",
    "request",
    "module",
    "step",
    "build",
    "memory",
    "device",
    "group",
    "parallel",
    "index",
    "chunk",
    "token",
    "batch",
]
_chance = random.Random(7)


def prose(count: int) -> str:
    return " ".join(_chance.choice(WORDS) for _ in range(count))


def word() -> str:
    return _chance.choice(WORDS)


def step(number: int) -> str:
    return f"step {number}/100000 | loss {_chance.random() * 9:.4f} | lr 1.5e-05 | tokens/s {number % 977}"


def plain(number: int) -> str:
    return f"2026-06-01 10:{number // 60 % 60:02d}:{number % 60:02d},{number % 1000:03d} INFO {prose(8)} {number}"


SHAPES: dict[str, Callable[[int], str]] = {
    "one word in front": lambda number: f"myjob: {plain(number)}",
    "many words in front": lambda number: f"worker{number % 64}: {plain(number)}",
    "hosts in front of steps": lambda number: f"gpu{number % 8:02d}: {step(number)}",
    "steps": step,
    "prose": plain,
    "JSON": lambda number: json.dumps({"ts": number, "level": "INFO", "logger": word(), "message": f"{prose(8)} {number}"}),
    "access": lambda number: f'INFO:     192.0.2.{number % 256}:{30000 + number} - "GET /{word()}/{number:x} HTTP/1.1" 404 Not Found',
    "answers": lambda number: f'INFO:     192.0.2.{number % 256}:{30000 + number} - "POST /v1/completions HTTP/1.1" 200 OK',
    "CRI": lambda number: f"2026-06-01T10:00:{number % 60:02d}.{number:09d}Z stdout F {plain(number)}",
    "logging with file and line": lambda number: f"2026-06-01 10:00:00,{number % 1000:03d} - {word()} - DEBUG - {word()}.py:{number % 999} - {prose(7)}",
    "loguru": lambda number: f"2026-06-01 10:00:00.{number % 1000:03d} | INFO     | {word()}.{word()}:{word()}:{number % 999} - {prose(7)}",
    "NeMo": lambda number: f"[NeMo I 2026-06-01 10:00:{number % 60:02d} {word()}:{number % 999}] {prose(6)}",
    "Ray": lambda number: f"(RayWorkerWrapper pid={1000 + number % 16}, ip=192.0.2.{number % 16}) INFO 06-01 10:00:00 {word()}.py:{number % 999}] {prose(6)}",
    "journal": lambda number: f"Jun 01 10:00:{number % 60:02d} gpu07 kubelet[{number % 9999}]: {prose(9)}",
    "mpirun": lambda number: f"[1,{number % 64}]<stdout>: {plain(number)}",
    "lines of 50 kB": lambda number: f"INFO prompt={prose(8000)} id={number}",
    "a bar without newlines": lambda number: f"\rEpoch 0: {number % 100:3d}%|{'█' * (number % 10)}| {number}/1000000 [00:10<10:00, 9.{number % 99}it/s]",
}  # fmt: skip


def log(line: Callable[[int], str], end: str) -> bytes:
    lines, size = list[str](), 0
    while size < SIZE:
        lines.append(line(len(lines)) + end)
        size += len(lines[-1].encode())
    return "".join(lines).encode()


def seconds(raw: bytes) -> float:
    """Of the processor, the best of three."""
    times = []
    for _ in range(3):
        start = time.process_time()
        of_streams([Stream("a.log", iter([raw]), raw[:65536])])
        times.append(time.process_time() - start)
    return min(times)


@pytest.fixture(scope="module")
def usual() -> float:
    """Of a log whose lines differ in numbers only."""
    return seconds(log(lambda number: f"2026-06-01 10:00:00,{number:06d} INFO loading shard {number} of the model on device {number % 8} {number}", "\n"))  # fmt: skip


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_is_no_trap(shape: str, usual: float) -> None:
    took = seconds(log(SHAPES[shape], "" if shape.startswith("a bar") else "\n"))
    assert took < ROOM * usual + 0.02, f"{took / usual:.1f} times the usual {usual * 1000:.0f} ms"
