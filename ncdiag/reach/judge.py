"""From the agents' reports to findings: who cannot reach whom, one way or both, refused or dropped. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from ncdiag.check import way_back
from ncdiag.model import Finding, Status, fail, unknown, warn
from ncdiag.nodeset import fold
from ncdiag.reach import coverage, rdma_judge, wording
from ncdiag.reach.infer import Fault, Trial, faults
from ncdiag.reach.seen import Run, trials

FIREWALL, PATH, MTU = "bootstrap-blocked-firewall", "bootstrap-peer-unreachable", "mtu-mismatch"
HEAD = "ray-gcs-unreachable"


def judge(run: Run) -> Iterator[Finding]:
    """At least one finding."""
    names = run.names
    source = f"ncdiag reach, {run.what}"
    for number, why in run.silent.items():
        yield unknown(f"its part in the reachability test gave nothing: {why}", names[number], source=source,
                      remedy=way_back(why))  # fmt: skip
    found = [*_tcp(run), *_mtu(run), *_ports(run), *_services(run), *rdma_judge.judge(run)]
    for finding in found:
        yield replace(finding, source=source)
    yield from coverage.covered(run, source, any(finding.status is not Status.UNKNOWN for finding in found))


def _tcp(run: Run) -> Iterator[Finding]:
    told = trials(run, "tcp")
    doubled = {frozenset((trial.target, int(trial.detail))): trial for trial in told if _is_doubled(run, trial)}
    for trial in doubled.values():
        yield _double(run, trial)
    for fault in faults(_without_echoes(told, {node for pair in doubled for node in pair})):
        yield _finding(
            run, fault, "", PATH if fault.outcome in ("unreachable", "stranger") or fault.kind == "both" else FIREWALL
        )


def _is_doubled(run: Run, trial: Trial) -> bool:
    return trial.outcome == "stranger" and trial.detail.isdecimal() and int(trial.detail) < len(run.members)


def _double(run: Run, trial: Trial) -> Finding:
    """Another node of the run answers at the target's address."""
    target, answered = run.members[trial.target], run.members[int(trial.detail)]
    at = f"{target.address} on {target.interface}"
    if target.address == answered.address:
        summary = f"{fold((target.name, answered.name))} have one address, {at}: who asks for the one gets the other"
    else:
        summary = f"{answered.name} ({answered.address}) answers at the address of {target.name}, {at}"
    return fail(summary,
                target.name, observed={"nodes": target.name, "peers": answered.name, "outcome": "stranger"}, expected="one machine an address",
                cause=PATH, remedy=f"give one of them another address, then test again; see who answers: arping -D -I {target.interface} {target.address}",
                device=target.interface, peer=answered.name)  # fmt: skip


def _without_echoes(told: Sequence[Trial], doubled: Set[int]) -> list[Trial]:
    """Where two machines have one address, answers go astray: all failures of these two are consequences."""
    return [trial for trial in told if not (trial.failed and doubled & {trial.source, trial.target})]


def _finding(run: Run, fault: Fault, port: str, cause: str) -> Finding:
    names = run.names
    near, far = fold(names[node] for node in fault.nodes), fold(names[node] for node in fault.others)
    if fault.local:
        cause = FIREWALL if fault.detail == "EPERM" else PATH
    member = run.members[fault.nodes[0]]
    on = f"{port}{member.interface} ({member.address})"
    summary = wording.summary(run, fault, on)
    cause = MTU if fault.outcome == "stuck" else cause
    peer = {"peer": far} if fault.kind in ("border", "link") else {}
    return fail(summary, names[fault.nodes[0]] if len(fault.nodes) == 1 else None, observed={"nodes": near, "peers": far or "all", "outcome": fault.outcome,
                "failed": fault.failed, "tested": fault.tested, "one_way": fault.one_way}, expected="a connection both ways", cause=cause,
                remedy=_remedy(run, fault, cause, near), device=member.interface, **peer)  # fmt: skip


def _remedy(run: Run, fault: Fault, cause: str, near: str) -> str:
    member = run.members[fault.nodes[0]]
    if fault.local:
        source, target = run.members[fault.local[0].source], run.members[fault.local[0].target]
        return f"see what {source.name} itself does with it: ip route get {target.address} from {source.address}; ip rule; ip route show table all"
    if cause == MTU:
        return f"bring interface and switch ports of {near} to the MTU of the others, or all to 1500: ip link set {member.interface} mtu …"
    if fault.outcome == "stranger":
        return f"give one of them another address, then test again; see who answers: arping -D -I {member.interface} {member.address}"
    if fault.kind == "border":
        return "see the routes, VLANs and access lists between the two sets of nodes"
    if cause == PATH:
        return f"see link, VLAN and address of {member.interface} on {near}: ip -s link show {member.interface}; ip neigh; ip route"
    low, high = min(run.request["ports"]), max(run.request["ports"])
    return (
        f"allow TCP between the nodes on {member.interface}, all ports from 1024 on (NCCL and gloo take any; tested {low} to {high}): "
        f"nft list ruleset, iptables -S on {near} and its peer"
    )


def _mtu(run: Run) -> Iterator[Finding]:
    """Full-sized packets that do not pass, where small ones do."""
    passed = {(trial.source, trial.target) for trial in trials(run, "tcp") if not trial.failed}
    short = []
    for trial in trials(run, "mtu"):
        if trial.outcome == "ok" and (trial.source, trial.target) in passed:
            small = int(trial.detail) < min(run.members[trial.source].mtu, 9216)
            short.append(replace(trial, outcome="stuck" if small else "ok"))
    for fault in faults(short):
        names = run.names
        member = run.members[fault.nodes[0]]
        near = fold(names[node] for node in fault.nodes)
        own = sorted({run.members[node].mtu for node in fault.nodes})
        where = (
            f"between {near} and {fold(names[node] for node in fault.others)}"
            if fault.others
            else f"to and from {near}"
        )
        yield warn(f"packets {where} are lost above MTU {fault.detail} on {member.interface}, whose own MTU is {own[0]}; the senders' is larger or equal",
                   names[fault.nodes[0]] if len(fault.nodes) == 1 else None, observed=int(fault.detail),
                   expected=max(one.mtu for one in run.members), cause=MTU, device=member.interface,
                   remedy=f"bring {member.interface} of {near} and its switch ports to the MTU of the others: ip link set {member.interface} mtu …")  # fmt: skip


def _ports(run: Run) -> Iterator[Finding]:
    """Named ports that are closed on the way, where others are open."""
    passed = {(trial.source, trial.target) for trial in trials(run, "tcp") if not trial.failed}
    for port in run.request["named"]:
        tested = [trial for trial in trials(run, f"port {port}") if (trial.source, trial.target) in passed]
        label = f" ({run.labels[port]})" if port in run.labels else ""
        for fault in faults(tested):
            yield _finding(run, fault, f"port {port}{label}, ", FIREWALL)


def _services(run: Run) -> Iterator[Finding]:
    """Ports of a program that runs on some node, Ray's: nobody else answers there."""
    passed = {(trial.source, trial.target) for trial in trials(run, "tcp") if not trial.failed}
    for name in dict.fromkeys(name for member in run.members for name in member.services):
        tested = [trial for trial in trials(run, f"service {name}") if (trial.source, trial.target) in passed]
        for fault in faults(tested):
            holder = next(node for node in (*fault.others, *fault.nodes) if name in run.members[node].services)
            port = f"{name}, port {run.members[holder].services[name]}, "
            found = _finding(run, fault, port, HEAD if "GCS" in name else FIREWALL)
            yield replace(found, remedy=f"see that Ray still runs on {run.names[holder]} (ray status) and that no packet filter there or on the "
                                        f"way stops TCP port {run.members[holder].services[name]}: nft list ruleset, iptables -S")  # fmt: skip
