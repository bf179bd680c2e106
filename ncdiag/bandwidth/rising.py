"""Whether the largest size was large enough: bandwidth that still rises there has not come to its peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ncdiag.bandwidth.sweep import LARGE_BYTES, Row

STEP = 8
"""How many times as large a size is advised."""


@dataclass(frozen=True)
class Rising:
    """The two largest sizes of one operation."""

    before: Row
    last: Row

    @property
    def peak_gbytes_s(self) -> float:
        """Where busbw goes when each byte more takes as long as those between the two sizes; the rest of the time is the same for any size."""
        took = self.last.time_s - self.before.time_s
        more = self.last.size_bytes - self.before.size_bytes
        return self.last.busbw * (more / took) / (self.last.size_bytes / self.last.time_s) if took > 0 else 0.0

    @property
    def larger(self) -> int:
        return self.last.size_bytes * STEP


def large(rows: Sequence[Row]) -> list[Row]:
    """Those that measure a bandwidth."""
    return [row for row in rows if row.size_bytes >= LARGE_BYTES]


def rising(best: Row, rows: Sequence[Row]) -> Rising | None:
    """`best`: the fastest of the rows. None where it is not of the largest size, or nothing smaller was measured in the same way."""
    if best.size_bytes < max(row.size_bytes for row in rows):
        return None
    alike = [row for row in rows if (row.op, row.in_place, row.graph) == (best.op, best.in_place, best.graph)]
    before = max(
        (row for row in alike if row.size_bytes < best.size_bytes), key=lambda row: row.size_bytes, default=None
    )
    return Rising(before, best) if before is not None else None
