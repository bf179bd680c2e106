"""What one run of `ncdiag bringup` on a bench gave."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass
class Run:
    """What one run gave."""

    result: dict[str, Any]
    code: int | None
    words: str
    a: str
    b: str
    started: float
    acted_at: float | None

    @property
    def outcome(self) -> str:
        return str(self.result["outcome"])

    @property
    def cause(self) -> dict[str, Any]:
        """The first cause, or the first warning of a start that came up; empty where there is none."""
        warnings = (self.result.get("summary") or {}).get("warnings") or []
        return dict(next(iter([*self.result["causes"], *warnings]), {}))

    def finding(self, probe: str) -> dict[str, Any]:
        """The first that a probe had against the start before it began; empty where there is none."""
        return dict(next((item for item in self.result.get("preflight", ()) if item["probe"] == probe), {}))

    @property
    def stage(self) -> str:
        return str(self.cause.get("where", {}).get("stage", ""))

    @property
    def verdict_s(self) -> float:
        """From when nothing moved any more, or from the fault where it was one of the middle, to the verdict."""
        stalls = self.result["stalls"]
        if self.acted_at is not None:
            at = stalls[-1]["at_s"] if stalls else self.result["took_s"]
            return round(self.result.get("started_at", self.started) + at - self.acted_at, 1)
        return float(stalls[-1]["quiet_s"]) if stalls else 0.0


def result(path: Path, started: float) -> dict[str, Any]:
    """ncdiag's JSON; one without an outcome where it wrote none, or was ended while it wrote."""
    try:
        return dict(json.loads(path.read_text()))
    except (OSError, ValueError):
        nothing: dict[str, Any] = {"outcome": "none", "causes": [], "stalls": [], "timeline": {"rows": []}}
        return {**nothing, "took_s": time.time() - started}
