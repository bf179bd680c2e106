"""Bandwidth by message size: one row a size, and a curve an operation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.report.html.timeline import TONES
from ncdiag.report.plain import one_line
from ncdiag.report.result import Step

ROWS = 400
WIDTH, HEIGHT, LEFT, BOTTOM, TOP, RIGHT = 360, 190, 40, 24, 10, 16
"""Units of the drawing, and its margins."""


def view(steps: Sequence[Step]) -> Mapping[str, Any] | None:
    """None without figures."""
    if not steps:
        return None
    table: dict[tuple[str, str, int], dict[bool, Step]] = {}
    for step in steps:
        table.setdefault((step.file, step.op, step.size_bytes), {})[step.in_place] = step
    rows = [_row(file, op, size, both) for (file, op, size), both in table.items()]
    return {
        "rows": rows[:ROWS],
        "more": max(0, len(rows) - ROWS),
        "files": any(step.file for step in steps),
        "places": [place for place in (False, True) if any(step.in_place is place for step in steps)],
        "chart": _chart(steps),
    }


def _row(file: str, op: str, size: int, both: Mapping[bool, Step]) -> Mapping[str, Any]:
    checked = [step.wrong for step in both.values() if step.wrong is not None]
    figures = (
        {
            "busbw": _figure(step.busbw_gbytes_s, 4),
            "width": "" if step.half_width_gbytes_s is None else f"± {_figure(step.half_width_gbytes_s, 2)}",
        }
        if step
        else None
        for step in (both.get(False), both.get(True))
    )
    return {
        "file": file,
        "op": op,
        "size": f"{size:,}",
        "figures": list(figures),
        "wrong": sum(checked) if checked else None,
    }


def _figure(value: float, digits: int) -> str:
    """Without an exponent: `0.00001432`."""
    if value == 0 or value >= 10**digits:
        return f"{value:.0f}"
    return f"{value:.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"


def _chart(steps: Sequence[Step]) -> Mapping[str, Any] | None:
    """Out of place where there are both; None with fewer than two sizes."""
    curves: dict[str, dict[int, float]] = {}
    for step in sorted(steps, key=lambda step: (step.size_bytes, not step.in_place)):
        curves.setdefault(f"{step.file} {step.op}".strip(), {})[max(step.size_bytes, 1)] = step.busbw_gbytes_s
    sizes = [size for curve in curves.values() for size in curve]
    most = max((value for curve in curves.values() for value in curve.values()), default=0.0)
    if len(set(sizes)) < 2 or most <= 0:
        return None
    least, largest, top = math.log2(min(sizes)), math.log2(max(sizes)), most * 1.05

    def x(size: float) -> float:
        return LEFT + (math.log2(size) - least) / (largest - least) * (WIDTH - LEFT - RIGHT)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / top * (HEIGHT - BOTTOM - TOP)

    return {
        "width": WIDTH,
        "height": HEIGHT,
        "floor": HEIGHT - BOTTOM,
        "left": LEFT,
        "right": WIDTH - RIGHT,
        "curves": [
            {
                "name": one_line(name),
                "tone": 2 * number % TONES,
                "points": " ".join(f"{x(size):.1f},{y(max(value, 0.0)):.1f}" for size, value in curve.items()),
            }
            for number, (name, curve) in enumerate(curves.items())
        ],
        "across": [{"y": f"{y(share * most):.1f}", "text": f"{share * most:.3g}"} for share in (0.5, 1.0)],
        "along": [{"x": f"{x(2.0**power):.1f}", "text": _short(2**power)} for power in _powers(least, largest)],
        "most": f"{most:.4g} GB/s",
    }


def _powers(least: float, largest: float) -> list[int]:
    """Five powers of two at most."""
    first, last = math.ceil(least), math.floor(largest)
    step = max(1, -(-(last - first) // 4))
    return list(range(first, last + 1, step))


def _short(size: int) -> str:
    for unit in ("", "K", "M", "G", "T"):
        if size < 1024 or unit == "T":
            return f"{size}{unit}"
        size //= 1024
    return ""
