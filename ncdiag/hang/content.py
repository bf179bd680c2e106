"""Everything that one hang dump read, as plain data: what is judged, saved in a bundle, and judged again elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.hang.infer import infer
from ncdiag.hang.verdict import Verdict
from ncdiag.logs.diagnose import of_streams
from ncdiag.logs.intake import Stream
from ncdiag.model import Cause, RankState
from ncdiag.processes.stacks import SPARED

PIDS = 6
"""Process ids that are listed of a group with the same reason."""


@dataclass
class DumpContent:
    """What was read of one engine, on one node or on several."""

    states: list[RankState] = field(default_factory=list)
    ras: list[dict[str, Any]] = field(default_factory=list)
    """NCCL RAS reports, in the shape of its JSON."""
    flight: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Global rank -> flight-recorder dump."""
    logs: dict[str, list[str]] = field(default_factory=dict)
    """Name of a log file -> its last lines."""
    notes: list[str] = field(default_factory=list)
    """What could not be read of the machine as a whole, each with the way out."""
    meta: dict[str, Any] = field(default_factory=dict)
    """`version`, `node`, `pids`, `created` (UTC), `took_s`, and `asked`: what is to be known of the pids, in sentences."""

    kept: Verdict | None = field(default=None, repr=False, compare=False)
    """The answer, where it was asked for already (`conclude`)."""

    def conclude(self) -> None:
        """Asks now for what `verdict` will answer. Raises what values of a wrong kind lead to."""
        self.kept = self.verdict()

    def verdict(self, logs: Sequence[Cause] = ()) -> Verdict:
        """The inference's answer; the same wherever it is asked. `logs`: what further logs led to."""
        if self.kept is not None and not logs:
            return self.kept
        own = of_streams(
            Stream(name, iter([raw]), raw)
            for name, lines in sorted(self.logs.items())
            if (raw := "\n".join(lines).encode())
        )
        told = infer(self.states, ras=self.ras, flight=self.flight, logs=[*own.verdict.causes, *logs])
        told.asked = list(self.meta.get("asked") or ())
        return told

    @classmethod
    def together(cls, contents: Sequence[DumpContent]) -> DumpContent:
        """The dumps of several nodes as one."""
        whole = cls(meta=dict(contents[0].meta)) if contents else cls()
        for content in contents:
            whole.states.extend(content.states)
            whole.ras.extend(content.ras)
            whole.flight.update(content.flight)
            whole.logs.update(
                {
                    (f"{content.meta.get('node')}:{name}" if len(contents) > 1 else name): lines
                    for name, lines in content.logs.items()
                }
            )
            whole.notes.extend(content.notes)
        return whole

    def not_read(self) -> list[str]:
        """What could not be read, equal reasons folded: `pids 12, 13: why`. What was spared by design is left out."""
        folded: dict[str, list[int]] = {}
        for state in self.states:
            for reason in [*([state.stack_error] if state.stack_error else []), *state.notes]:
                if not reason.startswith(SPARED):
                    folded.setdefault(reason.replace(f"process {state.pid} ", "it "), []).append(state.pid)
        return [*self.notes, *(f"{_pids(pids)}: {reason}" for reason, pids in folded.items())]


def _pids(pids: list[int]) -> str:
    shown = ", ".join(str(pid) for pid in pids[:PIDS])
    more = f" and {len(pids) - PIDS} more" if len(pids) > PIDS else ""
    return f"{'pid' if len(pids) == 1 else 'pids'} {shown}{more}"
