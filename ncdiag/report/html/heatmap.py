"""Bandwidth between every two nodes as a heat map. Of many nodes each cell is the slowest pair of two groups: nothing slow is averaged away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from ncdiag.nodeset import fold
from ncdiag.report.plain import one_line
from ncdiag.report.result import Pair

CELLS = 40
"""Rows and columns at most."""
NUMBERED = 10
"""So many rows at most have their figures in the cells."""
SIZE = 360
"""Units of the whole drawing: about a phone's width in pixels."""
LABEL = 68
"""Units for the names."""
FEWEST, SLOWEST = 5, 20
"""Pairs in the table: those below 85 %, but so many at least and at most."""
BOUNDS = (0.25, 0.5, 0.7, 0.85, 0.95)
"""Shares of the yardstick at which the colour changes."""
WORDS = ("under 25 %", "25 to 50 %", "50 to 70 %", "70 to 85 %", "85 to 95 %", "95 % and more")


class Cell(NamedTuple):
    """The slowest pair between two groups."""

    share: float
    pair: Pair


def view(pairs: Sequence[Pair]) -> Mapping[str, Any] | None:
    """None without pairs."""
    if not pairs:
        return None
    names = sorted({name for pair in pairs for name in (pair.one, pair.other)}, key=_natural)
    per = -(-len(names) // CELLS)
    groups = [names[start : start + per] for start in range(0, len(names), per)]
    place = {name: number // per for number, name in enumerate(names)}
    usual = _usual(pairs)
    cells = _cells(pairs, place, usual)
    size = (SIZE - LABEL) / len(groups)
    return {
        "size": SIZE,
        "label": LABEL,
        "cell": f"{size:.2f}",
        "names": [
            {"text": _label(group, per), "at": f"{LABEL + (number + 0.5) * size:.2f}"}
            for number, group in enumerate(groups)
        ],
        "font": f"{min(11.0, max(5.0, size * 0.7)):.1f}",
        "paths": _paths(cells, size),
        "numbers": _numbers(cells, size) if len(groups) <= NUMBERED else [],
        "legend": [{"tone": tone, "text": text} for tone, text in enumerate(WORDS)],
        "yardstick": f"what is usual here, {usual:.4g} GB/s" if usual else "nothing, as no pair gave a figure",
        "per": per,
        "nodes": len(names),
        "count": len(pairs),
        "silent": sum(pair.gbytes_s is None for pair in pairs),
        "slowest": slowest(pairs),
        "slow": sum(_share(pair, usual) < BOUNDS[3] for pair in pairs),
    }


def _natural(name: str) -> tuple[int, str]:
    return len(name), name


def _share(pair: Pair, usual: float | None) -> float:
    """0 where it gave no figure."""
    yardstick = pair.usual_gbytes_s or usual
    return pair.gbytes_s / yardstick if pair.gbytes_s is not None and yardstick else 0.0


def _cells(pairs: Sequence[Pair], place: Mapping[str, int], usual: float | None) -> dict[tuple[int, int], Cell]:
    cells: dict[tuple[int, int], Cell] = {}
    for pair in pairs:
        share = _share(pair, usual)
        row, column = place[pair.one], place[pair.other]
        for key in {(row, column), (column, row)}:
            if key not in cells or share < cells[key].share:
                cells[key] = Cell(share, pair)
    return cells


def _tone(cell: Cell) -> int | str:
    return "none" if cell.pair.gbytes_s is None else sum(cell.share >= bound for bound in BOUNDS)


def _paths(cells: Mapping[tuple[int, int], Cell], size: float) -> list[Mapping[str, Any]]:
    """One path a colour: many cells in few bytes."""
    drawn: dict[int | str, list[str]] = {}
    for (row, column), cell in cells.items():
        x, y = LABEL + column * size, LABEL + row * size
        drawn.setdefault(_tone(cell), []).append(f"M{x:.1f} {y:.1f}h{size:.2f}v{size:.2f}h-{size:.2f}z")
    return [{"tone": tone, "d": "".join(parts)} for tone, parts in drawn.items()]


def _numbers(cells: Mapping[tuple[int, int], Cell], size: float) -> list[Mapping[str, Any]]:
    return [
        {
            "x": f"{LABEL + (column + 0.5) * size:.1f}",
            "y": f"{LABEL + (row + 0.5) * size:.1f}",
            "tone": _tone(cell),
            "text": "–" if cell.pair.gbytes_s is None else f"{cell.pair.gbytes_s:.3g}",
        }
        for (row, column), cell in cells.items()
    ]


def _label(group: Sequence[str], per: int) -> str:
    shown = one_line(group[0] if per == 1 else fold(group))
    return shown if len(shown) <= 12 else shown[:4] + "…" + shown[-7:]


def slowest(pairs: Sequence[Pair], most: int = SLOWEST) -> list[Mapping[str, str]]:
    """The pairs below 85 % of the yardstick, at least five, at most `most`, the slowest first."""
    usual = _usual(pairs)
    ranked = sorted(((_share(pair, usual), pair) for pair in pairs), key=lambda item: item[0])
    slow = sum(share < BOUNDS[3] for share, _ in ranked)
    return [
        {
            "one": one_line(pair.one),
            "other": one_line(pair.other),
            "measured": "none" if pair.gbytes_s is None else f"{pair.gbytes_s:.4g} GB/s",
            "share": f"{100 * share:.0f} %" if pair.gbytes_s is not None else "",
            "status": "fail" if share < BOUNDS[1] else "warn" if share < BOUNDS[3] else "ok",
            "note": pair.note,
        }
        for share, pair in ranked[: min(max(slow, FEWEST), most)]
    ]


def _usual(pairs: Sequence[Pair]) -> float | None:
    """As the run says, else the median."""
    if pairs and pairs[0].usual_gbytes_s:
        return pairs[0].usual_gbytes_s
    figures = [pair.gbytes_s for pair in pairs if pair.gbytes_s is not None]
    return median(figures) if figures else None
