"""Runs the agents on a fleet and gathers their reports."""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace

from ncdiag import payload
from ncdiag.check import check
from ncdiag.fleet.base import FleetError, Progress
from ncdiag.fleet.remote import Answer, RemoteFleet, reason
from ncdiag.model import Finding, Snapshot, unknown
from ncdiag.nodeset import fold
from ncdiag.reach import schedule
from ncdiag.reach.judge import judge
from ncdiag.reach.seen import Member, Run
from ncdiag.reach.targets import ray_address, ray_services, rdma_ports
from ncdiag.registry import ProbeSet

SLOT_S = 2.5
"""A round: longer than the tests of one pair may take, and than what the nodes' clocks may be wrong by."""

START_S = 3.0
START_A_NODE_S = 0.03
"""How long agents have to come up before the first round: a constant, and the cost of one more connection for us."""

RDMA_START_S = 2.0
"""More, where drivers of RDMA cards have to come up."""

EPHEMERAL = (32768, 60999)
"""Linux's default range, in which NCCL's and gloo's ports lie."""

RDMA_SLOT_S = 4.5
"""A round with RDMA: also long enough for an address that nobody resolves (1 s) and for messages that are sent again (lanes.SEND_S)."""

WANTED = ("bootstrap-interface", "rdma-hca-selection", "roce-gid", "ray-cluster")
"""Probes whose facts say which addresses and ports are under test."""

ROLES = (("NCCL", "nccl"), ("gloo", "gloo"), ("vLLM and Ray", "vllm"))


@dataclass(frozen=True)
class Wanted:
    """What is to be tested."""

    ports: Sequence[int] = ()
    """TCP ports besides the ephemeral ones."""
    budget_s: float = 60.0
    """For each set of interfaces; the time to come up is not counted. Does not hold for `every` and `between`."""
    every: bool = False
    """All pairs, however long that takes."""
    between: tuple[Set[str], Set[str]] | None = None
    """Two sets of nodes: each of the one with each of the other."""


def members(snapshot: Snapshot, probes: ProbeSet, interface: str | None = None) -> dict[str, list[Member]]:
    """Whose addresses (NCCL, gloo, vLLM and Ray) -> the nodes with them; a role with NCCL's addresses is not listed again.

    `interface`: that one on every node instead. Raises FleetError when fewer than two nodes have an address.
    """
    if interface is not None:
        chosen = [member for name in snapshot.nodes for member in _on(snapshot, name, interface)]
        return _with_targets(snapshot, {interface: _enough(chosen, interface)})
    seen = {
        finding.where["node"]: finding.observed
        for finding in check(snapshot, probes.chosen(WANTED))
        if isinstance(finding.observed, Mapping) and "nccl" in finding.observed and "node" in finding.where
    }
    found: dict[str, list[Member]] = {}
    for what, role in ROLES:
        chosen = [
            member
            for name, told in seen.items()
            if told[role]["address"]
            for member in _on(snapshot, name, told[role]["interface"], told[role]["address"])
        ]
        if len(chosen) > 1 and not any(_covers(known, chosen) for known in found.values()):
            found[what] = chosen
    if not found:
        _enough([], "NCCL's")
    ray = [member for name in snapshot.nodes for member in _holding(snapshot, name, ray_address(snapshot, name))]
    if len(ray) > 1 and not any(_covers(known, ray) for known in found.values()):
        found["Ray"] = ray
    return _with_targets(snapshot, found)


def left_out(snapshot: Snapshot, found: Mapping[str, Sequence[Member]], wanted: Wanted) -> Iterator[Finding]:
    """The nodes that are in no test although they were asked for, each with the reason: what is not tested is not said to be well."""
    tested = {member.name for chosen in found.values() for member in chosen}
    asked = set(snapshot.nodes) if wanted.between is None else wanted.between[0] | wanted.between[1]
    for name in snapshot.nodes:
        if name in asked - tested:
            why = snapshot.nodes[name].unreachable or f"it has no address on an interface of {', '.join(found)}"
            yield unknown(f"takes no part in the reachability test: {why}", name, source="ncdiag reach",
                          remedy="see that the node can be reached and what its interfaces are: ncdiag preflight --only bootstrap-interface")  # fmt: skip


def _covers(known: Sequence[Member], wanted: Sequence[Member]) -> bool:
    return {one.address for one in wanted} <= {other.address for other in known}


def _with_targets(snapshot: Snapshot, found: dict[str, list[Member]]) -> dict[str, list[Member]]:
    """RDMA goes with the first role, Ray's ports with the addresses that Ray has."""
    first = next(iter(found))
    for what, chosen in found.items():
        found[what] = [
            replace(
                member,
                rdma=rdma_ports(snapshot, member.name) if what == first else (),
                services=ray_services(snapshot, member.name)
                if ray_address(snapshot, member.name) == member.address
                else {},
            )
            for member in chosen
        ]
    return found


def _enough(found: list[Member], what: str) -> list[Member]:
    if len(found) < 2:
        raise FleetError(
            f"{len(found)} node with an address on {what} interface; reachability needs two or more (see ncdiag preflight)"
        )
    return found


def _on(snapshot: Snapshot, name: str, interface: str | None, address: str | None = None) -> Iterator[Member]:
    """The node with its address on one interface, the first one where several are there; none where there is none."""
    for member in _addresses(snapshot, name):
        if member.interface == (interface or "").partition(":")[0] and address in (None, member.address):
            yield member
            return


def _holding(snapshot: Snapshot, name: str, address: str | None) -> Iterator[Member]:
    """The node with one of its addresses, on whatever interface."""
    yield from [member for member in _addresses(snapshot, name) if member.address == address][:1]


def _addresses(snapshot: Snapshot, name: str) -> Iterator[Member]:
    """The node with each of its addresses that others may reach."""
    told = snapshot.facts(name, "interfaces") or {"addresses": [], "links": []}
    meta = snapshot.nodes[name].meta
    for entry in told["addresses"]:
        if not entry["address"].startswith(("127.", "fe80:")) and entry["address"] != "::1":
            mtu = next((link["mtu"] for link in told["links"] if link["name"] == entry["interface"]), None)
            yield Member(name, str(meta.get("hostname", name)), entry["address"], mtu or 1500, entry["interface"],
                         (meta.get("clock") or {}).get("offset_s"))  # fmt: skip


def narrowed(nodes: Sequence[Member], between: tuple[Set[str], Set[str]]) -> list[Member]:
    """The members of the two sets. Raises FleetError for one that names no node, or for a pair of one node with itself."""
    names = {one.name for one in nodes}
    for chosen in between:
        if not chosen <= names:
            raise FleetError(
                f"--between: {fold(chosen - names)} is none of the nodes under test, which are {fold(names)}"
            )
    return _enough([one for one in nodes if one.name in between[0] | between[1]], "the sets of --between: that")


def test(
    fleet: RemoteFleet,
    what: str,
    nodes: Sequence[Member],
    wanted: Wanted,
    progress: Progress,
    *,
    labels: Mapping[int, str] | None = None,
    seed: int | None = None,
) -> list[Finding]:
    """Tests the nodes against each other. `labels`: further ports to test, and what each stands for. Raises FleetError."""
    source = random.Random(seed)
    if wanted.between is not None:
        nodes = narrowed(nodes, wanted.between)
    slot_s = RDMA_SLOT_S if any(one.rdma for one in nodes) else SLOT_S
    sides = (
        None
        if wanted.between is None
        else [[number for number, one in enumerate(nodes) if one.name in side] for side in wanted.between]
    )
    limit = None if wanted.every or sides else max(1, int(wanted.budget_s / slot_s))
    lead = START_S + START_A_NODE_S * len(nodes) + (RDMA_START_S if slot_s == RDMA_SLOT_S else 0.0)
    request = {
        "token": secrets.token_hex(16),
        "nodes": [
            {"address": one.address, "mtu": one.mtu, "offset_s": one.offset_s, "hostname": one.hostname, "rdma": list(one.rdma),
             "services": dict(one.services)}
            for one in nodes
        ],
        "ports": source.sample(range(*EPHEMERAL), 3),
        "named": sorted({*wanted.ports, *(labels or {})}),
        "limit": limit,
        "between": sides,
        "seed": source.randrange(1 << 30),
        "start": time.time() + lead,
        "slot_s": slot_s,
    }  # fmt: skip
    rounds = len(schedule.rounds(len(nodes), limit, between=sides))
    timeout_s = lead + rounds * slot_s + 10.0
    answers = fleet.run(payload.pack_call("ncdiag.reach.agent", request), timeout_s, progress, together=True)
    return list(judge(_gathered(what, nodes, request, answers, timeout_s, labels or {})))


def _gathered(
    what: str,
    nodes: Sequence[Member],
    request: Mapping[str, object],
    answers: Mapping[str, Answer],
    timeout_s: float,
    labels: Mapping[int, str],
) -> Run:
    reports, silent = {}, {}
    for number, member in enumerate(nodes):
        answer = answers.get(member.name)
        if answer is None:
            silent[number] = "the fleet no longer has it"
            continue
        try:
            report = json.loads(payload.unwrap("\n" + answer.out))
        except ValueError as error:
            silent[number] = reason(answer, str(error), timeout_s)
            continue
        if report["number"] is None:
            silent[number] = f"no interface there holds {member.address} any more"
        elif report["port"] is None:
            silent[number] = f"no port to listen on was free ({request['ports']})"
        else:
            reports[number] = report
    return Run(what, nodes, request, reports, silent, labels)
