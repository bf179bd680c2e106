"""Two results: what is new, what is fixed, what is unchanged, and what nobody looked at again.

Unread is not healthy: what was wrong and is not in the newer result counts as fixed only where the newer one judged that
node with that probe.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ncdiag.model import Status
from ncdiag.report.causes import GOOD
from ncdiag.report.headline import KINDS, status_of
from ncdiag.report.result import Result

_NUMBER = re.compile(r"\d+(?:\.\d+)?")


class Item(NamedTuple):
    """Something that is wrong, or could be."""

    status: Status
    kind: str
    """`finding` or `cause`."""
    what: str
    """The probe's id or the cause's slug."""
    node: str
    rest: str
    """Device, rank and what else says where."""
    summary: str

    def as_dict(self) -> dict[str, Any]:
        data = {**self._asdict(), "status": self.status.value}
        return {key: value for key, value in data.items() if value}


@dataclass
class Comparison:
    against: str
    """The name of the older file."""
    new: list[Item] = field(default_factory=list)
    fixed: list[Item] = field(default_factory=list)
    unchanged: list[Item] = field(default_factory=list)
    not_judged: list[Item] = field(default_factory=list)

    def lists(self) -> list[tuple[str, list[Item]]]:
        """Name and items of each."""
        return [
            ("new", self.new),
            ("fixed", self.fixed),
            ("unchanged", self.unchanged),
            ("not_judged", self.not_judged),
        ]

    def as_dict(self) -> dict[str, Any]:
        return {"against": self.against, **{name: [item.as_dict() for item in items] for name, items in self.lists()}}


def compare(old: Sequence[Result], new: Sequence[Result], against: str) -> Comparison:
    """Findings that are not ok, and causes. The same thing is: the same probe or cause, at the same place, said in the same words apart from numbers."""
    before, after = _items(old), _items(new)
    judged = _Judged(new)
    comparison = Comparison(against)
    for key, item in after.items():
        (comparison.unchanged if key in before else comparison.new).append(item)
    for key, item in before.items():
        if key not in after:
            (comparison.fixed if judged(item) else comparison.not_judged).append(item)
    return comparison


def _items(results: Iterable[Result]) -> dict[tuple[str, ...], Item]:
    found: dict[tuple[str, ...], Item] = {}
    for result in results:
        for finding in result.findings:
            if finding.status.severity >= Status.UNKNOWN.severity:
                item = Item(finding.status, "finding", finding.probe, *_where(finding.where), finding.summary)
                found.setdefault(_key(item, finding.cause or ""), item)
        for cause in result.causes:
            if cause.cause not in (*GOOD, "unresolved"):
                item = Item(status_of(cause), "cause", cause.cause, *_where(cause.where), cause.summary)
                found.setdefault((item.kind, item.what, item.node, item.rest), item)
    return found


def _where(where: Any) -> tuple[str, str]:
    rest = " ".join(
        f"{value}" for key, value in where.items() if key not in ("node", "stage") and value not in (None, "")
    )
    return str(where.get("node") or ""), rest


def _key(item: Item, cause: str) -> tuple[str, ...]:
    return (item.kind, item.what, item.node, item.rest, cause, _NUMBER.sub("#", item.summary))


class _Judged:
    """Whether the newer results looked at what an item is about."""

    def __init__(self, results: Sequence[Result]) -> None:
        every = [finding for result in results for finding in result.findings]
        places = [(finding.status is Status.UNKNOWN, finding.probe, *_where(finding.where)) for finding in every]
        self.blind = {(probe, node, rest) for blind, probe, node, rest in places if blind}
        self.probes = {probe for blind, probe, _, _ in places if not blind}
        self.reached = {node for result in results for node in result.nodes}
        self.answered = any(_answered(result) for result in results)

    def __call__(self, item: Item) -> bool:
        if item.kind == "cause":
            return self.answered
        if item.node and item.node not in self.reached:
            return False
        if self.blind & {(item.what, item.node, item.rest), (item.what, item.node, ""), (item.what, "", "")}:
            return False
        return item.what in self.probes


def _answered(result: Result) -> bool:
    """Whether a newer result says what is the matter, or that nothing is."""
    if result.kind:
        return KINDS.get(result.kind) is not Status.UNKNOWN
    return bool(result.causes) and result.causes[0].cause != "unresolved" and result.causes[0].confidence != "possible"
