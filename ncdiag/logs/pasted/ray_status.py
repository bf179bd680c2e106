"""`ray status`: demands that are larger than all that the cluster has; `ray list placement-groups`: which ones were made. Source: Ray 2.0 to 2.50."""

from __future__ import annotations

import re

from ncdiag.logs.model import Line
from ncdiag.model import Evidence

_USAGE = re.compile(r"^\s*(?P<used>\d+(?:\.\d+)?)/(?P<total>\d+(?:\.\d+)?) (?P<name>CPU|GPU)\b")
_DEMAND = re.compile(r"^\s*(?P<bundles>\{.*\}.*): \d+\+ pending (?:placement groups|tasks/actors)")
_BUNDLE = re.compile(r"(?P<what>\{[^}]*\})(?: \* (?P<times>\d{1,6}))?")
_NEED = re.compile(r"'(?P<name>CPU|GPU)': (?P<n>\d{1,9}(?:\.\d+)?)")


_CREATED = re.compile(r"^\s*\d+\s+(?P<id>[0-9a-f]{28,40})\s+(?:(?P<name>\S+)\s+)?(?P<job>[0-9a-f]{8})\s+CREATED\b")


class RayStatus:
    """Totals and demands of the last table."""

    triggers = (" CREATED", ".0 CPU", ".0 GPU", "pending placement groups", "pending tasks/actors")

    def __init__(self) -> None:
        self._totals: dict[str, tuple[float, Line]] = {}
        self._used: dict[str, float] = {}
        self._demands: list[Line] = []
        self.created: list[tuple[str, Line]] = []
        """Placement groups that `ray list placement-groups` shows as made, by name or id and job."""

    def take(self, line: Line) -> bool:
        usage = _USAGE.match(line.text)
        if usage:
            self._totals[usage["name"]] = float(usage["total"][:9]), line
            self._used[usage["name"]] = float(usage["used"][:9])
        elif (group := _CREATED.match(line.text)) and len(self.created) < 100:
            self.created.append((f"{group['name'] or group['id']} of job {group['job']}", line))
        elif _DEMAND.match(line.text) and len(self._demands) < 100:
            self._demands.append(line)
        return False

    def end(self, source: str) -> None:
        pass

    def signals(self) -> tuple[()]:
        return ()

    def gpus(self) -> Line | None:
        """Where the last table says that the cluster has GPUs."""
        total, line = self._totals.get("GPU", (0.0, None))
        return line if total > 0 else None

    def unused(self) -> Line | None:
        """Where the last table says that the cluster has GPUs, and nobody uses one."""
        return self.gpus() if self._used.get("GPU") == 0 else None

    def enough(self) -> bool:
        """Whether the cluster has free what every demand asks for, as far as the last table says."""
        free = {name: total - self._used.get(name, total) for name, (total, _) in self._totals.items()}
        wanted = [self._need(line) for line in self._demands]
        return bool(wanted) and all(
            name in free and amount <= free[name] for need in wanted for name, amount in need.items() if amount
        )

    def short(self) -> tuple[str, str, list[Evidence]] | None:
        """Which resource no waiting for others brings: `(name, sentence, lines)`."""
        for line in self._demands:
            for name, wanted in self._need(line).items():
                total, at = self._totals.get(name, (wanted, line))
                if wanted > total:
                    sentence = (
                        f"the bundles need {wanted:g} {name}s together, and all nodes of the Ray cluster have {total:g}"
                    )
                    return name, sentence, [line.evidence(), at.evidence()]
        return None

    @staticmethod
    def _need(line: Line) -> dict[str, float]:
        """What the bundles of a demand ask for together."""
        need = {"CPU": 0.0, "GPU": 0.0}
        match = _DEMAND.match(line.text)
        for bundle in _BUNDLE.finditer(match["bundles"] if match else ""):
            for part in _NEED.finditer(bundle["what"]):
                need[part["name"]] += float(part["n"]) * int(bundle["times"] or 1)
        return need
