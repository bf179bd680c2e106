"""Findings that say the same of several nodes, as one."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from ncdiag.model import Finding
from ncdiag.nodeset import fold
from ncdiag.report.plain import one_line

SEVERAL = 3
"""So many groups that differ in their numbers only are still shown one by one."""
_NUMBER = re.compile(r"\d+(?:\.\d+)?")


def unnamed(text: str, node: str) -> str:
    """`text` with a NUL where it names the node: as a word, since a node may be called `a` or `n1`."""
    return _name(node).sub("\0", text) if node and node in text else text


@functools.lru_cache(maxsize=4096)
def _name(node: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.-]){re.escape(node)}(?![\w-])")


def folded(findings: Iterable[Finding]) -> list[list[Finding]]:
    """Groups that differ in the node only, or, where these would be many, in numbers and in the numbers of their devices too; in the order of their first member."""
    groups: dict[tuple[Any, ...], list[Finding]] = {}
    findings = list(findings)
    said = Counter((finding.probe, finding.summary) for finding in findings)
    for finding in findings:
        node = str(finding.where.get("node", ""))
        rest = tuple((key, str(value)) for key, value in finding.where.items() if key != "node")
        alone = said[finding.probe, finding.summary] == 1
        summary = unnamed(finding.summary, node) if alone else finding.summary
        groups.setdefault((finding.status, finding.probe, summary, rest, finding.cause), []).append(finding)
    if len(groups) <= SEVERAL:
        return list(groups.values())
    alike: dict[tuple[Any, ...], list[list[Finding]]] = {}
    for (status, probe, summary, rest, cause), group in groups.items():
        places = tuple((key, _NUMBER.sub("#", value)) for key, value in rest)
        alike.setdefault((status, probe, _NUMBER.sub("#", summary), places, cause), []).append(group)
    out = []
    for several in alike.values():
        out.extend(several if len(several) <= SEVERAL else [[finding for group in several for finding in group]])
    return out


def gravest(findings: Iterable[Finding]) -> list[Finding]:
    """The gravest first, as in the JSON."""
    return sorted(findings, key=lambda finding: -finding.status.severity)


def apart(alike: Sequence[Finding]) -> int:
    """How many of the group say it with other numbers than the first."""
    if len({finding.summary for finding in alike}) == 1:
        return 0
    said = [unnamed(finding.summary, str(finding.where.get("node", ""))) for finding in alike]
    return sum(summary != said[0] for summary in said)


def nodes_of(alike: Iterable[Finding], nodes: Sequence[str] = ()) -> str:
    """Their nodes as a node set, `all 16 nodes`, `all but gpu07`; empty where they name none."""
    named = {str(finding.where["node"]) for finding in alike if "node" in finding.where}
    if len(named) > 2 and named == set(nodes):
        return f"all {len(named)} nodes"
    shown = fold(named)
    if len(named) > max(2, len(nodes) / 2):
        shown = min(shown, f"all but {fold(set(nodes) - named)}", key=len)
    return one_line(shown)


def rest_of(alike: Sequence[Finding]) -> str:
    """Devices, ranks, peers and whatever else says where they are, besides the node."""
    values: dict[str, dict[str, None]] = {}
    for finding in alike:
        for key, value in finding.where.items():
            if key != "node":
                values.setdefault(key, {})[str(value)] = None
    return one_line(" ".join(fold(several) if len(several) > 1 else next(iter(several)) for several in values.values()))


def place(alike: Sequence[Finding], nodes: Sequence[str]) -> str:
    """Node set (where there are several nodes) and the other places, as one text."""
    shown = nodes_of(alike, nodes) if len(nodes) > 1 else ""
    return f"{shown} {rest_of(alike)}".strip()
