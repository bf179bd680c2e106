"""Rows in the layout of nccl-tests, so that people and scripts can compare, and what nccl-tests does not print beside it."""

from __future__ import annotations

from collections.abc import Sequence

from ncdiag.bandwidth.sweep import Row

WIDE = 0.1
"""Half of a confidence interval over the mean that people should be told of."""
_TYPES = {"float32": "float", "float16": "half", "bfloat16": "bfloat16"}


def fixed(value: float, width: int) -> str:
    """A number in so many characters, with as many decimals as fit (at most two)."""
    for decimals in (2, 1, 0):
        text = f"{value:{width}.{decimals}f}"
        if len(text) <= width:
            return text
    return f"{value:{width}.1e}"


WIDTH = 118
"""Columns of nccl-tests' layout."""


def nccl_tests(rows: Sequence[Row], columns: int = WIDTH) -> str:
    """One operation's rows: size, count, type, redop, root, then time (µs), algbw, busbw (GB/s), #wrong, out of place and in place.

    With fewer `columns` without count, type, redop and root: 78.
    """
    narrow = columns < WIDTH
    between = "" if narrow else f"  {'':>12}  {'':>8}  {'':>6}  {'':>6}"
    head = f"# {'':>10}{between}           out-of-place                       in-place          \n"
    names = ("time", "algbw", "busbw", "#wrong")
    units = ("(us)", "(GB/s)", "(GB/s)", "")
    for left, right in (
        (("size", "count", "type", "redop", "root"), names),
        (("(B)", "(elements)", "", "", ""), units),
    ):
        half = "  ".join(f"{word:>{width}}" for word, width in zip(right, (7, 6, 6, 6), strict=True))
        between = "" if narrow else f"  {left[1]:>12}  {left[2]:>8}  {left[3]:>6}  {left[4]:>6}"
        head += f"# {left[0]:>10}{between}  {half}  {half}\n"
    by_size: dict[int, dict[bool, Row]] = {}
    for row in rows:
        by_size.setdefault(row.size_bytes, {})[row.in_place] = row
    return head + "".join(_line(size, ways, narrow) for size, ways in sorted(by_size.items()))


def _line(size: int, ways: dict[bool, Row], narrow: bool) -> str:
    row = next(iter(ways.values()))
    redop = "sum" if row.op in ("all_reduce", "reduce_scatter") else "none"
    between = "" if narrow else f"  {row.count:12d}  {_TYPES[row.dtype]:>8}  {redop:>6}  {-1:>6}"
    return f"{size:12d}{between}" + _half(ways.get(False)) + _half(ways.get(True)) + "\n"


def _half(row: Row | None) -> str:
    if row is None:
        return f"  {'N/A':>7}  {'N/A':>6}  {'N/A':>6}  {'N/A':>6}"
    wrong = "N/A" if row.wrong is None else f"{row.wrong:g}"
    return f"  {fixed(row.time_s * 1e6, 7)}  {fixed(row.algbw, 6)}  {fixed(row.busbw, 6)}  {wrong:>6}"


NAMED = 4
"""So many sizes are named one by one."""


def scatter(rows: Sequence[Row]) -> str:
    """One line where the confidence interval of a mean is wide, so that its figure is not taken for a sharp one; empty: of none."""
    wide = [row for row in rows if row.half_width_s is not None and row.half_width_s > WIDE * row.time_s]
    if not wide:
        return ""
    worst = max(wide, key=lambda row: (row.half_width_s or 0.0) / row.time_s)
    share = (worst.half_width_s or 0.0) / worst.time_s
    found, every = sorted({row.size_bytes for row in wide}), {row.size_bytes for row in rows}
    sizes = f"{', '.join(map(str, found))} B" if len(found) <= NAMED else f"{len(found)} of {len(every)} sizes"
    return f"# the means of {sizes} scatter: up to ±{share:.0%} with 95 % confidence; a longer --seconds, or a machine at rest, narrows it\n"


_SPREAD = (9, 5, 7, 6, 7, 7, 7, 7, 6, 5)
"""Widths of the columns of `spread`: 78 with `# ` and one blank between them."""


def spread(rows: Sequence[Row]) -> str:
    """The same rows' confidence and spread: half of the 95 % interval of busbw, min, median and p99 of the time, samples, how far
    the ranks are apart, and which is the slowest."""
    heads = (
        ("size", "place", "busbw", "±", "min", "median", "p99", "samples", "ranks", "slow"),
        ("(B)", "", "(GB/s)", "(%)", "(us)", "(us)", "(us)", "", "(%)", "rank"),
    )
    lines = ["# " + _columns(head) for head in heads]
    for row in sorted(rows, key=lambda row: (row.size_bytes, row.in_place)):
        known = row.half_width_s is not None and row.time_s
        share = fixed((row.half_width_s or 0.0) / row.time_s * 100, 6) if known else "?"
        times = [fixed(value * 1e6, 7) for value in (row.min_s, row.median_s, row.p99_s)]
        place, ranks = "in" if row.in_place else "out", fixed(row.rank_spread * 100, 6)
        cells = [str(row.size_bytes), place, fixed(row.busbw, 7), share, *times, str(row.samples), ranks]
        lines.append("  " + _columns([*cells, str(row.slowest_rank)]))
    in_graphs = [row.size_bytes for row in rows if row.graph]
    if in_graphs:
        lines.append(
            f"# up to {max(in_graphs)} B in CUDA graphs, as engines launch decode steps: a sample is a graph's mean"
        )
    return "\n".join(lines) + "\n"


def _columns(cells: Sequence[str]) -> str:
    return " ".join(f"{cell:>{width}}" for cell, width in zip(cells, _SPREAD, strict=True))
