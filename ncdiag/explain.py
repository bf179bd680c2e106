"""Signals from logs, stacks, sockets and facts -> one ranked list of causes.

A signal says how much it says. The order of the list follows from that alone, never from the order in which rules were tried:

1. what ends the job before what only slows it or may matter later;
2. what names its cause (`NAMED`) before what usually means it (`STRONG`) before what fits it among others (`HINT`);
3. what brings about the other (`FOLLOWS`) before what follows;
4. what was seen first.

`SYMPTOM` (a time-out, a closed connection) is never a cause: alone it gives `unresolved` with candidates. `CASCADE` is folded under what is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag.model import Cause, Evidence

EVIDENCE_LIMIT = 8  # lines shown for one cause
SECONDARY_LIMIT = 12
ATTACH_LIMIT = 2000  # signals beside the causes that are looked at
POSSIBLE_LIMIT = 4  # causes of confidence `possible` that are listed


class Says(enum.IntEnum):
    """How much a signal says about its cause."""

    CASCADE = 0
    """Follows from another error; the line itself or its software says so."""
    SYMPTOM = 1
    """An error that a dozen causes share."""
    HINT = 2
    """Fits this cause, and others."""
    STRONG = 3
    """Usually this cause."""
    NAMED = 4
    """The software names the cause."""


CONFIDENCE = {Says.NAMED: "sure", Says.STRONG: "likely", Says.HINT: "possible", Says.SYMPTOM: "possible"}


@dataclass
class Signal:
    """One thing that was seen."""

    cause: str
    """Slug; "" for a symptom or a cascade."""
    says: Says
    summary: str
    evidence: list[Evidence]
    where: dict[str, Any] = field(default_factory=dict)
    condition: bool = False
    """It slows the job or may matter later, but does not end it."""
    candidates: tuple[str, ...] = ()
    """Causes that a symptom fits, most usual first."""
    order: float = 0.0
    """When or at which line it was seen; only compared."""
    remedy: str = ""
    """A more precise one than the cause's own."""
    count: int = 1
    until: float = 0.0
    """Where it was seen last, when that was more often than is kept."""
    doubted: bool = False
    """Another fact speaks against it, which changes what is sure and not what comes first."""
    kind: str = ""
    """What was seen, where other signals ask for that; "" where none does."""


@dataclass
class Verdict:
    causes: list[Cause]
    next: list[str]


_GENERIC = frozenset(
    {
        "rank-died",
        "rank-missing",
        "engine-exception",
        "bootstrap-peer-unreachable",
        "ray-node-lost",
        "collective-desync",
        "slow-load-peer-timeout",
        "framework-version-bug",
        "ib-path-unreachable",
    }
)

FOLLOWS: dict[str, frozenset[str]] = {
    "host-memory-oom": frozenset({"ray-gcs-unreachable", "killed-by-scheduler"}),
    "killed-by-scheduler": frozenset({"ray-gcs-unreachable", "ray-resources-infeasible", "ray-placement-group-leaked"}),
    "ray-node-lost": frozenset({"ray-resources-infeasible"}),
    "bootstrap-blocked-firewall": frozenset({"ray-resources-infeasible"}),
    "gpu-hardware-fault": frozenset(
        {
            "cuda-illegal-memory-access",
            "p2p-broken",
            "driver-library-missing",
            "fabric-manager-not-running",
            "gpu-ecc-row-remap",
            "nvswitch-error",
            "nvls-multicast-failure",
            "visible-devices-conflict",
        }
    ),
    "nvswitch-error": frozenset({"cuda-illegal-memory-access", "p2p-broken", "nvls-multicast-failure"}),
    "fabric-manager-not-running": frozenset({"nvls-multicast-failure", "p2p-broken", "driver-library-missing"}),
    "ib-link-or-hca-fault": frozenset({"ib-qp-setup-failed", "rdma-unavailable", "hca-mismatch-between-nodes"}),
    "driver-library-missing": frozenset(
        {"ray-driver-without-gpu", "visible-devices-conflict", "nccl-version-mismatch", "rank-layout-wrong"}
    ),
    "driver-too-old": frozenset(
        {"driver-library-missing", "ray-driver-without-gpu", "visible-devices-conflict", "version-mismatch"}
    ),
    "memlock-limit": frozenset(
        {"launcher-transport", "rdma-memory-registration", "ib-qp-setup-failed", "rdma-unavailable"}
    ),
    "shm-too-small": frozenset({"disk-full", "cumem-failure", "container-isolation", "killed-by-scheduler"}),
    "roce-gid-wrong": frozenset({"ib-qp-setup-failed"}),
    "mixed-hca-fabrics": frozenset({"ib-qp-setup-failed", "hca-mismatch-between-nodes"}),
    "net-plugin-incompatible": frozenset({"net-fallback-slow", "net-plugin-forced-unavailable"}),
    "net-plugin-forced-unavailable": frozenset({"rdma-unavailable"}),
    "rdma-unavailable": frozenset({"net-fallback-slow", "gdr-disabled", "hca-mismatch-between-nodes"}),
    "net-fallback-slow": frozenset({"gdr-disabled"}),
    "ray-version-mismatch": frozenset({"ray-gcs-unreachable", "version-mismatch"}),
    "nccl-version-mismatch": frozenset({"version-mismatch"}),
    "ray-gcs-unreachable": frozenset({"ray-resources-infeasible", "ray-placement-group-leaked"}),
    "port-in-use": frozenset({"ray-gcs-unreachable"}),
    "disk-full": frozenset({"weights-corrupt", "model-path-missing", "ray-gcs-unreachable", "killed-by-scheduler"}),
    "gpu-memory-occupied": frozenset({"gpu-memory-exhausted", "kv-cache-no-memory", "max-len-exceeds-kv-cache"}),
    "gpu-memory-fragmented": frozenset({"gpu-memory-exhausted"}),
    "ray-placement-group-leaked": frozenset({"ray-driver-without-gpu", "ray-resources-infeasible"}),
    "node-ip-wrong-interface": frozenset(
        {"ray-resources-infeasible", "bootstrap-blocked-firewall", "socket-ifname-wrong"}
    ),
    "hostname-resolves-to-loopback": frozenset(
        {"socket-ifname-wrong", "node-ip-wrong-interface", "bootstrap-blocked-firewall"}
    ),
    "socket-ifname-wrong": frozenset({"bootstrap-blocked-firewall"}),
    "clock-skew": frozenset({"ray-node-lost"}),
    "duplicate-gpu": frozenset({"rank-layout-wrong"}),
    "rank-layout-wrong": frozenset({"rank-missing"}),
    "visible-devices-conflict": frozenset({"parallel-size-mismatch", "rank-layout-wrong"}),
    "parallel-size-mismatch": frozenset({"ray-resources-infeasible", "rank-layout-wrong"}),
    "p2p-broken": frozenset({"cuda-illegal-memory-access"}),
    **{
        cause: frozenset({"rank-died", "rank-missing", "bootstrap-peer-unreachable"})
        for cause in (
            "collective-desync",
            "slow-load-peer-timeout",
            "ib-path-unreachable",
            "engine-exception",
            "framework-version-bug",
        )
    },
}
"""Cause -> causes that are its usual consequence. Every cause also brings about the generic ones: a dead, missing or unreachable rank."""


def explain(
    signals: Iterable[Signal],
    remedies: dict[str, str],
    steps: dict[str, tuple[str, ...]],
    follows: Callable[[Signal, Signal], bool],
) -> Verdict:
    """`remedies`: cause -> one line. `steps`: cause -> what to collect to be surer. `follows`: whether the first signal is known to come after the second, in the same job."""
    groups, loose = _group(signals)
    asked = {
        name for signal in loose if signal.says is Says.SYMPTOM and not signal.condition for name in signal.candidates
    }
    ranked = sorted(groups.values(), key=lambda group: _rank(group, asked))
    heads, folded = _fold(ranked)
    causes = [_cause(group, remedies) for group in heads]
    symptoms = sorted((s for s in loose if s.says is Says.SYMPTOM), key=lambda s: s.order)
    _doubt(heads, causes)
    _doubt_late(
        heads,
        causes,
        [*(group[0] for group in ranked if group[0].says >= Says.STRONG and not group[0].condition), *symptoms],
    )
    _beside_good(heads, causes)
    causes.extend(_also(heads, causes, remedies))
    if symptoms and not any(group[0].says >= Says.STRONG and not group[0].condition for group in heads):
        causes = _unresolved(symptoms, causes, remedies, {group[0].cause for group in heads if not group[0].condition})
    if not causes:
        causes = [_nothing(loose)]
    causes = _limit(causes)
    _attach(causes, heads, [*folded, *sorted(loose, key=lambda s: (-s.says, s.order))], follows)
    return Verdict(causes, _next(causes, steps))


def _group(signals: Iterable[Signal]) -> tuple[dict[str, list[Signal]], list[Signal]]:
    groups: dict[str, list[Signal]] = {}
    loose = []
    for signal in signals:
        if signal.cause and signal.says >= Says.HINT:
            groups.setdefault(signal.cause, []).append(signal)
        else:
            loose.append(signal)
    for group in groups.values():
        group.sort(key=_strength)
    return groups, loose


def _strength(signal: Signal) -> tuple[int, float]:
    return (-_TIER[(signal.says, signal.condition)], signal.order)


GOOD = ("healthy", "slow-not-hung")
ONLY_SLOWS = ("net-fallback-slow", "gdr-disabled")
"""True of jobs that work, too; nothing stands still or ends for it."""
ASIDE = frozenset(
    {"ptrace-denied", "dns-unresponsive", "env-unknown-or-invalid"}
)  # as conditions they do not slow a job that works
GOOD_TIER = 55  # after what slows a job, before what is only possible
_TIER = {
    (Says.NAMED, False): 90,
    (Says.STRONG, False): 80,
    (Says.NAMED, True): 70,
    (Says.STRONG, True): 60,
    (Says.HINT, False): 50,
    (Says.HINT, True): 40,
}


FITTING_TIER = 75  # a condition that a symptom asks for, before those that only slow


def _rank(group: list[Signal], asked: Collection[str] = ()) -> tuple[int, bool, float]:
    """`asked`: causes that fit the symptoms."""
    first = group[0]
    tier = GOOD_TIER if first.cause in GOOD else _TIER[(first.says, first.condition)]
    if first.condition and first.says >= Says.STRONG and first.cause in asked:
        tier = FITTING_TIER
    if first.condition and first.cause in ASIDE:
        tier = _TIER[(Says.HINT, True)]
    return (-tier, first.cause in _GENERIC, min(signal.order for signal in group))


def brings_about(cause: str, other: str) -> bool:
    """Whether `other` usually follows from `cause`."""
    if cause in (*GOOD, "unresolved"):
        return False
    if cause in ONLY_SLOWS and other in _GENERIC:
        return False
    return other in FOLLOWS.get(cause, ()) or (
        other in _GENERIC and cause not in _GENERIC and cause not in FOLLOWS.get(other, ())
    )


def _fold(ranked: Sequence[list[Signal]]) -> tuple[list[list[Signal]], list[Signal]]:
    """The groups that stay causes, and the signals of those that follow from one of them."""
    heads: list[list[Signal]] = []
    folded: list[Signal] = []
    solid = [group for group in ranked if group[0].says >= Says.STRONG]
    for group in ranked:
        cause = group[0].cause
        parents = [
            other
            for other in solid
            if other is not group
            and brings_about(other[0].cause, cause)
            and (not other[0].condition or group[0].condition or group[0].says is Says.HINT)
            and not brings_about(cause, other[0].cause)
        ]
        first = cause == "engine-exception" and all(
            group[0].order < other[0].order and _source(group) == _source(other) for other in parents
        )
        if (
            parents
            and not first
            and (group[0].says < Says.NAMED or cause in _GENERIC or any(p[0].says is Says.NAMED for p in parents))
        ):
            folded.extend(group)
        else:
            heads.append(group)
    return heads, folded


def _cause(group: list[Signal], remedies: dict[str, str]) -> Cause:
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


def _doubt(heads: Sequence[list[Signal]], causes: Sequence[Cause]) -> None:
    """Two causes that both end a job cannot both be the one thing to change: only the earlier one can be sure, and only where one source holds both, as nothing orders sources.
    A condition is a fact, but never surely the cause of what somebody asks about."""
    fatal = [index for index, group in enumerate(heads) if group[0].says is Says.NAMED and not group[0].condition]
    doubted = fatal if len({_source(heads[index]) for index in fatal}) > 1 else fatal[1:]
    for index in (*doubted, *(index for index, group in enumerate(heads) if group[0].condition)):
        if causes[index].confidence == "sure":
            causes[index].confidence = "likely"


def _doubt_late(heads: Sequence[list[Signal]], causes: Sequence[Cause], others: Sequence[Signal]) -> None:
    """What is named after something else went wrong in the same source may be its consequence: a port still held after a crash, the time limit of a job that hung."""
    for group, cause in zip(heads, causes, strict=True):
        source = _source(group)
        if cause.confidence == "sure" and any(
            other.cause != cause.cause
            and _source([other]) == source
            and other.order < min(signal.order for signal in group)
            for other in others
        ):
            cause.confidence = "likely"


def _beside_good(heads: Sequence[list[Signal]], causes: Sequence[Cause]) -> None:
    """What does not slow a job that works is no likely cause of anything there."""
    if not heads or heads[0][0].cause not in GOOD:
        return
    for group, cause in zip(heads, causes, strict=True):
        if group[0].condition and group[0].cause in ASIDE:
            cause.confidence = "possible"


def _source(group: Sequence[Signal]) -> str:
    return group[0].evidence[0].source if group[0].evidence else ""


def _also(heads: Sequence[list[Signal]], causes: Sequence[Cause], remedies: dict[str, str]) -> list[Cause]:
    """Other causes that fit the same lines of the first cause, where its software does not name it."""
    if not heads or heads[0][0].says is Says.NAMED or heads[0][0].condition:
        return []
    known = {cause.cause for cause in causes}
    first = heads[0][0]
    return [
        Cause(
            name,
            "possible",
            "fits, too: " + first.summary,
            dict(first.where),
            list(first.evidence[:3]),
            remedy=remedies.get(name, ""),
        )
        for name in first.candidates
        if name not in known
    ]


def _unresolved(
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
            named.append(
                Cause(
                    name,
                    "possible",
                    "fits: " + symptom.summary,
                    dict(symptom.where),
                    list(symptom.evidence[:3]),
                    remedy=remedies.get(name, ""),
                )
            )
    return [*fitting, head, *(rest if rest else []), *named]


def _nothing(loose: Sequence[Signal]) -> Cause:
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


def _attach(
    causes: Sequence[Cause],
    heads: Sequence[list[Signal]],
    signals: Sequence[Signal],
    follows: Callable[[Signal, Signal], bool],
) -> None:
    """What follows from a cause goes to the first one that it is known to follow from; the rest was only seen, too."""
    roots = [(cause, _Root(group)) for cause in causes for group in heads if _brings(cause, group)]
    seen = {(item.source, item.line) for cause in causes for item in cause.evidence}
    for signal in signals[:ATTACH_LIMIT]:
        parent = next((cause for cause, root in roots if root.brings(signal, follows)), None)
        place = causes[0].also_seen if parent is None else parent.secondary
        for item in signal.evidence[:2]:
            if (item.source, item.line) not in seen and len(place) < SECONDARY_LIMIT:
                seen.add((item.source, item.line))
                place.append(item)


def _brings(cause: Cause, group: list[Signal]) -> bool:
    """Whether it is claimed that a cause, which `group` speaks for, brought something about."""
    return group[0].cause == cause.cause not in GOOD and cause.confidence != "possible"


class _Root:
    """The signals of one cause that others may follow from: the strongest, and the first one of each source."""

    def __init__(self, group: Sequence[Signal]) -> None:
        self._main = group[0]
        self._first: dict[str, Signal] = {}
        for signal in sorted(group, key=lambda one: one.order):
            if signal.evidence and signal.condition == self._main.condition:
                self._first.setdefault(signal.evidence[0].source, signal)

    def brings(self, signal: Signal, follows: Callable[[Signal, Signal], bool]) -> bool:
        if not self._fits(signal):
            return False
        near = self._first.get(_source([signal]), self._main)
        return follows(signal, near) or (near is not self._main and follows(signal, self._main))

    def _fits(self, signal: Signal) -> bool:
        """Whether it is something that the cause brings about. What ends a job makes ranks die and others miss them, in whatever words; what only slows it ends none."""
        names = (signal.cause,) if signal.cause else signal.candidates
        if not self._main.condition:
            return not names or any(name in _GENERIC or self._of(name) for name in names)
        return any(map(self._of, names)) and (signal.condition or signal.says <= Says.HINT)

    def _of(self, name: str) -> bool:
        return name == self._main.cause or brings_about(self._main.cause, name)


def _limit(causes: list[Cause]) -> list[Cause]:
    kept, possible = [], 0
    for cause in causes:
        possible += cause.confidence == "possible"
        if cause.confidence != "possible" or possible <= POSSIBLE_LIMIT:
            kept.append(cause)
    return kept


def _next(causes: Sequence[Cause], steps: dict[str, tuple[str, ...]]) -> list[str]:
    """What would make the first causes surer; nothing where the first one is sure or nothing is wrong."""
    if not causes or causes[0].confidence == "sure" or causes[0].cause in GOOD:
        return []
    wanted = [step for cause in causes[:3] for step in steps.get(cause.cause, ())]
    return list(dict.fromkeys(wanted))[:6]
