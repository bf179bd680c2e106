"""Which nodes carry RDMA to which: from the lanes' tests to findings. Pure.

Source: ibv_modify_qp(3), enum ibv_wc_status; the errors of RoCE set-ups as they were seen on real (soft) RoCE devices.
"""

from __future__ import annotations

import errno
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from ncdiag.model import Finding, fail, unknown
from ncdiag.nodeset import counted, fold
from ncdiag.reach.infer import Fault, Trial, faults
from ncdiag.reach.lanes import ETHERNET
from ncdiag.reach.seen import Run, tests

GID, PATH, SETUP, MTU = "roce-gid-wrong", "ib-path-unreachable", "ib-qp-setup-failed", "mtu-mismatch"
NO_WAY = (errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ENETUNREACH)


@dataclass(frozen=True)
class Refusal:
    """A queue pair that one node could not bring up."""

    node: int
    peer: int
    why: str
    code: int


@dataclass
class Lane:
    """All tests of one lane."""

    number: int
    trials: list[Trial]
    refusals: list[Refusal]


def judge(run: Run) -> Iterator[Finding]:
    """Nothing where RDMA works or is not there at all; unknown for what could not be tried."""
    yield from _not_tried(run)
    told: dict[tuple[Any, ...], list[tuple[Lane, Fault]]] = {}
    for lane in lanes(run):
        for fault in faults(lane.trials):
            key = (fault.kind, *fault.nodes, "to", *fault.others, fault.outcome, fault.one_way)
            told.setdefault(key, []).append((lane, fault))
    for alike in told.values():
        yield _finding(run, alike)


def lanes(run: Run) -> list[Lane]:
    found: dict[int, Lane] = {}
    for number, partner, what, outcome, detail in tests(run):
        words = what.split()
        if words[0] != "rdma" or outcome == "none":
            continue
        lane = found.setdefault(int(words[1]), Lane(int(words[1]), [], []))
        ends = (partner, number) if words[-1] == "back" else (number, partner)
        lane.trials.append(Trial(*ends, outcome, "" if outcome == "setup" else detail or ""))
        if outcome == "setup" and words[-1] != "back":
            for side, said in detail.items():
                node, peer = (partner, number) if int(side) else (number, partner)
                lane.refusals.append(Refusal(node, peer, said["why"], said["code"]))
    return [found[number] for number in sorted(found)]


def _finding(run: Run, alike: list[tuple[Lane, Fault]]) -> Finding:
    lane, fault = alike[0]
    names = run.names
    near, far = fold(names[node] for node in fault.nodes), fold(names[node] for node in fault.others)
    ports = ", ".join(dict.fromkeys(_port(run, fault.nodes[0], one.number) for one, _ in alike))
    said, cause = _reason(run, lane, fault)
    where = {
        "both": f"to and from {near}",
        "to": f"to {near}, from any node",
        "from": f"from {near}, to any node",
        "border": f"between {near} and the other {counted(len(fault.others), 'node')}",
        "link": f"from {near} to {far}" if fault.one_way else f"between {near} and {far}",
    }[fault.kind]
    back = "; the way back carries data" if fault.kind == "link" and fault.one_way else ""
    peer = {"peer": far} if fault.kind in ("border", "link") else {}
    device = run.members[fault.nodes[0]].rdma[lane.number % len(run.members[fault.nodes[0]].rdma)]["device"]
    return fail(
        f"RDMA {where} fails on {ports} while TCP works: {said}{back} ({fault.failed} of {counted(fault.tested, 'test')})",
        names[fault.nodes[0]] if len(fault.nodes) == 1 else None,
        observed={"nodes": near, "peers": far or "all", "outcome": fault.outcome, "reason": said, "ports": ports,
                  "failed": fault.failed, "tested": fault.tested, "one_way": fault.one_way},
        expected="messages of 64 bytes and of 16 KiB both ways", cause=cause, remedy=_remedy(run, fault, lane, cause, near), device=device, **peer,
    )  # fmt: skip


def _port(run: Run, node: int, lane: int) -> str:
    own = run.members[node].rdma
    port = own[lane % len(own)]
    index = f" (GID index {port['gid_index']})" if port["link_layer"] == ETHERNET else ""
    return f"{port['device']}:{port['number']}{index}"


def _reason(run: Run, lane: Lane, fault: Fault) -> tuple[str, str]:
    if fault.outcome == "stuck":
        return "a packet of 64 bytes arrives, full-sized ones do not", MTU
    if fault.outcome != "setup":
        status = f" ({fault.detail})" if fault.detail else ""
        return f"nothing arrives{status}", PATH
    concerned = {*fault.nodes, *fault.others}
    said = [one for one in lane.refusals if concerned & {one.node, one.peer}]
    own = [one for one in said if one.code == errno.ENODATA] or [one for one in said if one.node in fault.nodes] or said
    (node, why, code), _ = Counter((one.node, one.why, one.code) for one in own).most_common(1)[0]
    text = f"{why} on {run.names[node]}"
    if code == errno.ENODATA:
        return f"{text}: {_port(run, node, lane.number)} has no such GID, or an empty one", GID
    if code in NO_WAY:
        return f"{text}: the peer's address is not resolved", PATH
    over_ip = run.members[node].rdma[lane.number % len(run.members[node].rdma)]["link_layer"] == ETHERNET
    if over_ip and code == errno.EINVAL:
        return (
            f"{text}: the two GIDs do not fit together (IPv4 with IPv6 or link-local, RoCE v1 with v2, another VLAN)",
            GID,
        )
    return text, SETUP


def _remedy(run: Run, fault: Fault, lane: Lane, cause: str, near: str) -> str:
    member = run.members[fault.nodes[0]]
    port = member.rdma[lane.number % len(member.rdma)]
    over_ip = port["link_layer"] == ETHERNET
    by_hand = f"by hand: ibv_rc_pingpong -d {port['device']} -i {port['number']}" + (
        f" -g {port['gid_index']}" if over_ip else ""
    )
    if cause == MTU:
        return f"bring the ports of {near} and their switch ports to the MTU of the others; {by_hand} -s 16384"
    if cause == GID:
        return f"compare the GIDs (ncdiag preflight --only roce-gid) and give all nodes a RoCE v2 IPv4 entry; {by_hand}"
    if cause == SETUP:
        return f"see dmesg and the port's state on {near}: ibv_devinfo -d {port['device']} -v; {by_hand}"
    if over_ip:
        return f"let UDP port 4791 pass between the nodes (nft list ruleset, access lists of the switches), and see VLAN and routes of {near}; {by_hand}"
    return f"see the subnet manager and the partition keys: sminfo, ibstat {port['device']}, ibping; {by_hand}"


def _not_tried(run: Run) -> Iterator[Finding]:
    """Never ok by silence: which nodes could not take part, and why."""
    if not any(member.rdma for member in run.members):
        return
    reasons: dict[str, set[int]] = {}
    for number, report in run.reports.items():
        if report["rdma"]:
            reasons.setdefault(report["rdma"], set()).add(number)
        elif not run.members[number].rdma:
            reasons.setdefault("NCCL takes no RDMA port there", set()).add(number)
    known = {number for numbers in reasons.values() for number in numbers}
    for number, partner, what, outcome, detail in tests(run):
        if what.split()[0] == "rdma" and outcome == "none" and not known & {number, partner}:
            why, node = (
                (detail["why"], partner if detail["side"] else number) if isinstance(detail, dict) else (detail, number)
            )
            reasons.setdefault(why, set()).add(node)
    for why, numbers in reasons.items():
        names = fold(run.names[number] for number in numbers)
        yield unknown(f"RDMA was not tried with {names}: {why}", names if len(numbers) == 1 else None,
                      remedy="install libibverbs and the card's driver there (ibv_devinfo must list the ports), or see ncdiag preflight --only verbs-access")  # fmt: skip


def coverage(run: Run) -> str:
    """What was tested, for a run without faults."""
    if not any(member.rdma for member in run.members):
        return "; RDMA not tried: NCCL takes no RDMA port"
    pairs = {frozenset((one.source, one.target)) for lane in lanes(run) for one in lane.trials if not one.failed}
    return f"; RDMA on {counted(len(pairs), 'pair')}" if pairs else "; RDMA not tried"
