"""What every fleet does: collect facts on its nodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ncdiag.model import NodeFacts, Probe

Progress = Callable[[str, str], None]
"""Called with `(node, probe id or "")` when something of that node is done."""


@dataclass(frozen=True)
class Request:
    """What is to be collected."""

    probes: Sequence[Probe]
    folders: Sequence[str] = ()
    """Folders of the user's own probes; they travel too."""
    python: str | None = None
    """The engine's interpreter."""
    pid: int | None = None
    environment: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    node_timeout_s: float = 60.0


class FleetError(Exception):
    """The fleet as a whole cannot be used; the message is one sentence with the way out."""


class Fleet:
    """Where ncdiag reaches nodes. One that does not answer is a NodeFacts with `unreachable`, never an exception."""

    notes: Sequence[str] = ()
    """What `collect` has to say besides the facts, a sentence each."""

    def names(self) -> list[str] | None:
        """The nodes, where they are known before they are asked."""
        return None

    def collect(self, request: Request, progress: Progress) -> list[NodeFacts]:
        raise NotImplementedError
