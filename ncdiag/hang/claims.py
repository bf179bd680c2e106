"""A claim: one cause that one rule found, with who it names and what shows it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Dict, List, Optional, Sequence

from ncdiag.hang.scene import View
from ncdiag.hang.verdict import Wait
from ncdiag.model import Cause, Evidence
from ncdiag.placeholders import filled
from ncdiag.stages.threads import is_user

SURE, LIKELY, POSSIBLE = "sure", "likely", "possible"

REMEDIES = {
    "rank-stopped": "continue the process (kill -CONT PID), detach the debugger, or thaw its cgroup; then find who "
    "stopped it",
    "rank-died": "read the end of that rank's log and the kernel log of its node; restart all ranks together",
    "rank-missing": "start the ranks that are missing, or look at their node for why they never started; then restart "
    "all ranks together",
    "rank-layout-wrong": "give every node the same parallel sizes and number of nodes, and each its own node rank",
    "bootstrap-blocked-firewall": "allow TCP in both directions between the nodes, high ports included, and the port of "
    "the store",
    "bootstrap-peer-unreachable": "test the route and the port between the two nodes (ping HOST, nc -vz HOST PORT); correct "
    "the address or port, or repair the link",
    "socket-ifname-wrong": "set NCCL_SOCKET_IFNAME and GLOO_SOCKET_IFNAME on that node to the interface that reaches "
    "the peers, or unset them",
    "hostname-resolves-to-loopback": "give the node's name its real address in /etc/hosts or DNS, or set "
    "GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME",
    "node-ip-wrong-interface": "set VLLM_HOST_IP (Ray: --node-ip-address, torch: MASTER_ADDR) to the address at which "
    "the other nodes reach it",
    "dns-unresponsive": "repair the resolver of that node (/etc/resolv.conf), or put the names into /etc/hosts",
    "mtu-mismatch": "give both interfaces and the path between them the same MTU (ping -M do -s SIZE HOST)",
    "rank-stuck-outside-collective": "look at what that rank waits for; the other ranks only wait for it",
    "storage-slow": "copy the weights to local disk, or start with longer time limits",
    "collective-desync": "make every rank call the same collectives in the same order with the same sizes; look at "
    "branches that depend on the rank",
    "ray-resources-infeasible": "compare `ray status` with what the engine asks for; start the missing Ray nodes",
    "ray-gcs-unreachable": "open the head's port to this node, and correct RAY_ADDRESS or --address",
    "ptrace-denied": "run ncdiag as root on the machine, or give it CAP_SYS_PTRACE; the evidence names what is missing here",
    "slow-not-hung": "wait; look again if nothing moves",
    "healthy": "",
    "unresolved": "collect what is named under `next`, and look again",
}
"""Cause -> the first thing to do, where no log rule says it better."""


@dataclass
class Claim:
    """One cause, with whom it names."""

    cause: Cause
    culprits: List[View] = field(default_factory=list)
    absent: List[int] = field(default_factory=list)
    """Numbers of ranks that are named although no process of theirs was seen."""
    waits: List[Wait] = field(default_factory=list)


def claim(
    slug: str,
    confidence: str,
    summary: str,
    evidence: Sequence[Evidence] = (),
    *,
    culprits: Sequence[View] = (),
    absent: Sequence[int] = (),
    waits: Sequence[Wait] = (),
    where: Optional[Dict[str, Any]] = None,
    known: Optional[Dict[str, Any]] = None,
) -> Claim:
    """`where` is taken from the first culprit when it is not given; `known`: words of the remedy that are to be filled in (HOST, PORT, PID)."""
    if where is None and culprits:
        first = culprits[0]
        where = {"node": first.state.node, "rank": first.rank, "stage": first.stage}
    if where is None and absent:
        where = {"rank": absent[0]}
    place = {key: value for key, value in (where or {}).items() if value is not None}
    cause = Cause(slug, confidence, summary, place, list(evidence), [], filled(REMEDIES.get(slug, ""), known or {}))
    return Claim(cause, list(culprits), list(absent), list(waits))


_CHOICES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "VLLM_HOST_IP", "MASTER_ADDR")


def chosen(view: View) -> List[Evidence]:
    """The settings of a process that choose its address."""
    return [
        Evidence(f"environment of {view.name}", f"{key}={view.state.settings[key]}")
        for key in _CHOICES
        if key in view.state.settings
    ]


def at_own_line(view: View) -> str:
    """` at main (train.py:12)`: the caller's own code; empty where it is not known."""
    frame = next((frame for frame in view.stack if is_user(frame)), None)
    return f" at {frame.name} ({frame.file.rsplit('/', 1)[-1]}:{frame.line})" if frame is not None else ""


def seen(view: View) -> Evidence:
    """The frame, or the process state, that says where a process is."""
    frame = view.match.why
    where = f"{frame.name} ({frame.file}:{frame.line})" if frame is not None else f"state {view.state.state or '?'}"
    return Evidence(f"stack of {view.name}", where)


def names(views: Sequence[View], most: int = 4) -> str:
    """`rank 0 (a, pid 1) and rank 2 (b, pid 3)`; the rest is counted."""
    texts = [view.name for view in views[:most]]
    if len(views) > most:
        texts.append(f"{len(views) - most} more")
    return ", ".join(texts[:-1]) + " and " + texts[-1] if len(texts) > 1 else "".join(texts)


def everybody(views: Sequence[View]) -> str:
    """`all 4 ranks wait`, `rank 0 (a, pid 1) waits`"""
    return f"all {len(views)} ranks wait" if len(views) > 1 else f"{names(views)} waits"


def only_wait(views: Sequence[View]) -> str:
    """`rank 0 (a, pid 1) only waits`"""
    return f"{names(views)} only {'wait' if len(views) > 1 else 'waits'}"


def numbers(ranks: Sequence[int], most: int = 8) -> str:
    """`rank 3` or `ranks 3, 5 and 2 more`."""
    head = ", ".join(str(rank) for rank in ranks[:most])
    rest = f" and {len(ranks) - most} more" if len(ranks) > most else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {head}{rest}"
