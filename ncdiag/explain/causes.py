"""The entries of the list: what a group of signals amounts to, what fits beside it, and what stands there when nothing is named."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.explain.consequences import GOOD, ONLY_SLOWS
from ncdiag.explain.signals import CONFIDENCE, Says, Signal
from ncdiag.model import Cause, Evidence
from ncdiag.placeholders import filled

EVIDENCE_LIMIT = 8  # lines shown for one cause
POSSIBLE_LIMIT = 4  # causes of confidence `possible` that are listed


def cause_of(group: list[Signal], remedies: dict[str, str]) -> Cause:
    first = group[0]
    evidence: list[Evidence] = []
    for signal in group:
        evidence.extend(item for item in signal.evidence if item not in evidence)
    return Cause(
        first.cause,
        CONFIDENCE[min(first.says, Says.STRONG) if first.doubted else first.says],
        first.summary,
        _where(group),
        evidence[:EVIDENCE_LIMIT],
        remedy=first.remedy or remedies.get(first.cause, ""),
    )


_WHO = ("rank", "local_rank", "pid")


def _where(group: Sequence[Signal]) -> dict[str, Any]:
    """Where the first signal saw it, completed by what the others say of the same process: never one's rank beside another's pid."""
    where = dict(group[0].where)
    named = any(key in where for key in _WHO)
    for signal in group[1:]:
        shared = [key for key in (*_WHO, "node") if key in where and key in signal.where]
        other = any(where[key] != signal.where[key] for key in shared)
        same = any(key in _WHO for key in shared) and not other
        for key, value in signal.where.items():
            alone = all(one.where.get(key, value) == value for one in group)
            fits = alone and not named if key in _WHO else alone and not other if key == "node" else alone or not other
            if same or fits:
                where.setdefault(key, value)
    return where


_PEER = re.compile(
    r"\[?(?P<host>[\w.-]*[A-Za-z.][\w.-]*|[0-9a-fA-F]*:[0-9a-fA-F:.]*:[0-9a-fA-F.]*)\]?(?:[:<](?P<port>\d+)>?)?"
)
"""An address or a name, with or without a port: `192.0.2.7:29500`, `[2001:db8::7]:29500`, `gpu07`, `192.0.2.7<41239>`; no rank."""


def words(where: Mapping[str, Any]) -> dict[str, Any]:
    """What stands in remedies in capitals, and is known here. No pid: a log has that of its container, or of who tells."""
    peer = _PEER.fullmatch(str(where.get("peer") or ""))
    return {"PEER": peer["host"]} if peer else {}


def _fitting(name: str, words: str, signal: Signal, remedies: dict[str, str]) -> Cause:
    """A cause that a signal leaves possible."""
    where, evidence = dict(signal.where), list(signal.evidence[:3])
    return Cause(name, "possible", words + signal.summary, where, evidence, remedy=remedies.get(name, ""))


def also(heads: Sequence[list[Signal]], causes: Sequence[Cause], remedies: dict[str, str]) -> list[Cause]:
    """Other causes that fit the same lines of the first cause, where its software does not name it."""
    if not heads or heads[0][0].says is Says.NAMED or heads[0][0].condition:
        return []
    known = {cause.cause for cause in causes}
    first = heads[0][0]
    return [_fitting(name, "fits, too: ", first, remedies) for name in first.candidates if name not in known]


def unresolved(
    symptoms: Sequence[Signal], causes: list[Cause], remedies: dict[str, str], strong: set[str]
) -> list[Cause]:
    """Symptoms without a cause: a condition that is only possible, or only slows what did not work, comes after `unresolved`, unless it fits the symptoms.

    `strong`: what ends jobs."""
    first = symptoms[0]
    known = {cause.cause for cause in causes}
    slows = () if known & set(GOOD) else ONLY_SLOWS
    candidates = [name for symptom in symptoms for name in symptom.candidates]
    fitting = [
        cause
        for cause in causes
        if (cause.confidence != "possible" and cause.cause not in slows)
        or cause.cause in candidates
        or cause.cause in strong
    ]
    rest = [cause for cause in causes if cause not in fitting and cause.cause not in GOOD]
    head = Cause(
        "unresolved",
        "possible",
        first.summary,
        dict(first.where),
        list(first.evidence[:EVIDENCE_LIMIT]),
        remedy="collect what is listed under next; do not change settings on this evidence alone",
    )
    named = []
    for name in dict.fromkeys(candidates):
        if name not in known:
            symptom = next(s for s in symptoms if name in s.candidates)
            named.append(_fitting(name, "fits: ", symptom, remedies))
    return [*fitting, head, *(rest if rest else []), *named]


def nothing(loose: Sequence[Signal]) -> Cause:
    if loose:
        first = min(loose, key=lambda s: s.order)
        return Cause(
            "unresolved",
            "possible",
            "only consequences of another error are in what was given: " + first.summary,
            dict(first.where),
            list(first.evidence[:EVIDENCE_LIMIT]),
        )
    return Cause("unresolved", "possible", "nothing in what was given says that something is wrong, or that it works")


def limited(causes: list[Cause]) -> list[Cause]:
    kept, possible = [], 0
    for cause in causes:
        possible += cause.confidence == "possible"
        if cause.confidence != "possible" or possible <= POSSIBLE_LIMIT:
            kept.append(cause)
    return kept


def next_steps(causes: Sequence[Cause], steps: dict[str, tuple[str, ...]]) -> list[str]:
    """What would make the first causes surer; nothing where the first one is sure or nothing is wrong."""
    if not causes or causes[0].confidence == "sure" or causes[0].cause in GOOD:
        return []
    wanted = [filled(step, words(cause.where)) for cause in causes[:3] for step in steps.get(cause.cause, ())]
    return list(dict.fromkeys(wanted))[:6]
