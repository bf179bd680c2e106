"""What failed tests have in common: a node, a direction, a border between two sets of nodes, or a single link. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

FAILED = ("refused", "dropped", "unreachable", "reset", "stuck", "stranger", "setup", "local")
"""Outcomes of a test that did not get through; `stuck`: small messages pass, large ones do not; `setup`: an RDMA connection cannot be made;
`local`: the source's own kernel refuses the way."""

ENOUGH = 0.8
"""Share of a node's tests that must fail before the node is named; lost packets on other links stay below it."""


@dataclass(frozen=True)
class Trial:
    """One direction of one pair in one round."""

    source: int
    target: int
    outcome: str
    detail: str = ""

    @property
    def failed(self) -> bool:
        return self.outcome in FAILED


@dataclass
class Fault:
    """What explains some of the failures."""

    kind: str
    """`both` (nobody reaches the node and it reaches nobody), `to`, `from` (one way), `border` (two sets of nodes), `link`."""
    nodes: list[int]
    others: list[int] = field(default_factory=list)
    outcome: str = "dropped"
    failed: int = 0
    """Failed tests that it explains."""
    tested: int = 0
    """Tests of that kind, the passed ones with them."""
    one_way: bool = False
    detail: str = ""
    back: bool = True
    """Of a link: whether the other direction was tested, too."""
    local: list[Trial] = field(default_factory=list)
    """Those of its tests that the source's own kernel refused: they tell where to look."""


def faults(trials: Sequence[Trial]) -> list[Fault]:
    """The fewest faults that explain all failures, the widest first."""
    tally = Tally(trials)
    left = [trial for trial in trials if trial.failed]
    found = []
    while left:
        fault = _border(left, tally) or _node(left, tally) or _link(left, trials)
        found.append(fault)
        left = [trial for trial in left if not explains(fault, trial)]
    return found


End = tuple[str, int]
"""`to` or `from`, and the node."""


class Tally:
    """Tests by the node at each end, counted once."""

    def __init__(self, trials: Iterable[Trial]) -> None:
        self.tested: Counter[End] = Counter()
        self.failed: Counter[End] = Counter()
        for trial in trials:
            for end in _ends(trial):
                self.tested[end] += 1
                self.failed[end] += trial.failed
        self.sets = _joined(trials)
        """Node -> the first node of those that it reaches, directly or over others."""


def _ends(trial: Trial) -> tuple[End, End]:
    return ("to", trial.target), ("from", trial.source)


def explains(fault: Fault, trial: Trial) -> bool:
    """Whether the test is one of those that the fault lets fail."""
    if fault.kind in ("to", "from", "both"):
        return (trial.target in fault.nodes and fault.kind != "from") or (
            trial.source in fault.nodes and fault.kind != "to"
        )
    ends = (
        trial.source in fault.nodes and trial.target in fault.others,
        trial.target in fault.nodes and trial.source in fault.others,
    )
    return ends[0] or (ends[1] and not fault.one_way)


def _node(left: Sequence[Trial], tally: Tally) -> Fault | None:
    """The node and direction with the most failures, where nearly all of its tests with different peers failed."""
    peers: dict[End, set[int]] = {}
    for trial in left:
        peers.setdefault(("to", trial.target), set()).add(trial.source)
        peers.setdefault(("from", trial.source), set()).add(trial.target)
    bad = {end for end, others in peers.items() if len(others) > 1 and tally.failed[end] >= ENOUGH * tally.tested[end]}
    if not bad:
        return None
    both = {end: tally.failed[end] + (tally.failed[_back(end)] if _back(end) in bad else 0) for end in bad}
    kind, node = max(bad, key=lambda end: (both[end], tally.failed[end], -end[1]))
    ends = [end for end in ((kind, node), _back((kind, node))) if end in bad]
    told = [trial for trial in left if any(end in ends for end in _ends(trial))]
    return Fault(
        "both" if len(ends) == 2 else kind,
        [node],
        [],
        _usual(told),
        sum(tally.failed[end] for end in ends),
        sum(tally.tested[end] for end in ends),
        len(ends) == 1,
        _detail(told),
        local=_local(told),
    )


def _back(end: End) -> End:
    return ("from" if end[0] == "to" else "to", end[1])


def _border(left: Sequence[Trial], tally: Tally) -> Fault | None:
    """Nodes that reach each other inside, and none outside; the smallest such set."""
    members: dict[int, list[int]] = {}
    for node, first in tally.sets.items():
        members.setdefault(first, []).append(node)
    sets = sorted((nodes for nodes in members.values() if len(nodes) > 1), key=len)
    for inside in sets[:-1]:
        chosen = set(inside)
        across = [trial for trial in left if (trial.source in chosen) != (trial.target in chosen)]
        if len(across) > 1:
            others = sorted(node for node in tally.sets if node not in chosen)
            return Fault(
                "border", sorted(inside), others, _usual(across), len(across), len(across), False, _detail(across),
                local=_local(across),
            )  # fmt: skip
    return None


def _joined(trials: Iterable[Trial]) -> dict[int, int]:
    above: dict[int, int] = {}

    def root(node: int) -> int:
        while above.setdefault(node, node) != node:
            above[node] = above[above[node]]
            node = above[node]
        return node

    for trial in trials:
        ends = root(trial.source), root(trial.target)
        if not trial.failed:
            above[max(ends)] = min(ends)
    return {node: root(node) for node in list(above)}


def _link(left: Sequence[Trial], trials: Sequence[Trial]) -> Fault:
    """One pair that nothing wider explains."""
    pair = {left[0].source, left[0].target}
    first = next(iter(_local(trial for trial in left if {trial.source, trial.target} == pair)), left[0])
    own = [trial for trial in trials if {trial.source, trial.target} == pair]
    back = [trial for trial in own if trial.source == first.target]
    one_way = bool(back) and not any(trial.failed for trial in back)
    there = [trial for trial in own if trial.source == first.source] if one_way else own
    return Fault(
        "link",
        [first.source],
        [first.target],
        first.outcome,
        sum(trial.failed for trial in there),
        len(there),
        one_way,
        first.detail,
        bool(back),
        _local(own),
    )


def _local(trials: Iterable[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.outcome == "local"]


def _usual(trials: Sequence[Trial]) -> str:
    """The outcome that is told: the source's own word before what the others saw of it."""
    return "local" if _local(trials) else Counter(trial.outcome for trial in trials).most_common(1)[0][0]


def _detail(trials: Sequence[Trial]) -> str:
    usual = _usual(trials)
    return Counter(trial.detail for trial in trials if trial.outcome == usual).most_common(1)[0][0]
