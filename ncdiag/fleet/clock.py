"""A node's clock against ours: it tells its time as the first thing it does, and we know when we called it and when that came.

Its time lies between the two, whatever the way there took, so the offset has a bound that needs no assumption about the network.
"""

from __future__ import annotations

from typing import Any, NamedTuple

MARK = b"ncdiag-clock "


class Stamp(NamedTuple):
    """Seconds since 1970: `called` and `heard` by our clock, `told` by the node's."""

    called: float
    told: float
    heard: float

    def as_meta(self) -> dict[str, Any]:
        """`offset_s`: how far the node is ahead of us; the truth is within `error_s` of it."""
        return {
            "offset_s": round(self.told - (self.called + self.heard) / 2, 6),
            "error_s": round((self.heard - self.called) / 2, 6),
            "told": self.told,
        }


def read(line: bytes, called: float, heard: float) -> Stamp | None:
    """The stamp in one line of output, None where it holds none."""
    if not line.startswith(MARK):
        return None
    try:
        return Stamp(called, float(line[len(MARK) :]), heard)
    except ValueError:
        return None
