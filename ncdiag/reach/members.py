"""Which nodes are under test, on which of their addresses; and those that are not, each with the reason. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

from ncdiag.check import check, way_back
from ncdiag.fleet.base import FleetError
from ncdiag.model import Finding, Snapshot, unknown
from ncdiag.nodeset import fold
from ncdiag.reach.seen import Member
from ncdiag.reach.targets import ray_address, ray_services, rdma_ports
from ncdiag.registry import ProbeSet

WANTED = ("bootstrap-interface", "rdma-hca-selection", "roce-gid", "ray-cluster")
"""Probes whose facts say which addresses and ports are under test."""

SOURCE = "ncdiag reach"
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
    interface: str | None = None
    """This one on every node, in place of those that NCCL, gloo, vLLM and Ray will take."""

    def nodes(self, snapshot: Snapshot) -> set[str]:
        """Those that are to be tested."""
        return set(snapshot.nodes) if self.between is None else set(self.between[0] | self.between[1])


def must_name_pairs(names: Sequence[str], between: tuple[Set[str], Set[str]] | None) -> None:
    """Raises FleetError where the nodes that were named have no pair to test."""
    if len(names) < 2:
        raise FleetError(f"reachability is tested between two nodes or more, and --nodes names {fold(names) or 'none'}")
    for side in between or ():
        if not side <= set(names):
            raise FleetError(
                f"--between: {fold(side - set(names))} is none of the nodes under test, which are {fold(names)}"
            )
    if between is not None and not _has_pair(names, between):
        raise FleetError(f"--between: {fold(between[0])} and {fold(between[1])} have no pair of two different nodes")


def _has_pair(names: Iterable[str], between: tuple[Set[str], Set[str]] | None) -> bool:
    first, second = between or (set(names), set(names))
    first, second = first & set(names), second & set(names)
    return bool(first and second) and len(first | second) > 1


def members(snapshot: Snapshot, probes: ProbeSet, wanted: Wanted) -> tuple[dict[str, list[Member]], set[str]]:
    """Whose addresses (NCCL, gloo, vLLM and Ray) -> the nodes with them, and all nodes that have one.

    A role with the addresses of another is not listed again, and none without a pair to test: there may be no role at all.
    """
    asked = wanted.nodes(snapshot)
    able: set[str] = set()
    found: dict[str, list[Member]] = {}
    for what, nodes in _candidates(snapshot, probes, wanted.interface):
        chosen = [one for one in nodes if one.name in asked]
        able.update(one.name for one in chosen)
        new = not any(_covers(known, chosen) for known in found.values())
        if new and _has_pair([one.name for one in chosen], wanted.between):
            found[what] = chosen
    return _with_targets(snapshot, found), able


def _candidates(snapshot: Snapshot, probes: ProbeSet, interface: str | None) -> Iterator[tuple[str, Sequence[Member]]]:
    """Whose addresses, and the nodes that have one."""
    if interface is not None:
        yield interface, [member for name in snapshot.nodes for member in _on(snapshot, name, interface)]
        return
    seen = {
        finding.where["node"]: finding.observed
        for finding in check(snapshot, probes.chosen(WANTED))
        if isinstance(finding.observed, Mapping) and "nccl" in finding.observed and "node" in finding.where
    }
    for what, role in ROLES:
        yield (
            what,
            [
                member
                for name, told in seen.items()
                if told[role]["address"]
                for member in _on(snapshot, name, told[role]["interface"], told[role]["address"])
            ],
        )
    yield "Ray", [member for name in snapshot.nodes for member in _holding(snapshot, name, ray_address(snapshot, name))]


def left_out(
    snapshot: Snapshot, found: Mapping[str, Sequence[Member]], able: Set[str], wanted: Wanted
) -> Iterator[Finding]:
    """The nodes that are in no test although they were asked for, each with the reason: what is not tested is not said to be well."""
    tested = {member.name for chosen in found.values() for member in chosen}
    for name in sorted(wanted.nodes(snapshot) - tested, key=list(snapshot.nodes).index):
        why, remedy = _why(snapshot, name, found, able, wanted)
        yield unknown(f"takes no part in the reachability test: {why}", name, source=SOURCE, remedy=remedy)
    if not found:
        yield unknown(f"no pair of nodes was tested: {fold(able) or 'no node'} can take part", source=SOURCE)


def _why(
    snapshot: Snapshot, name: str, found: Mapping[str, Sequence[Member]], able: Set[str], wanted: Wanted
) -> tuple[str, str | None]:
    """The reason, and what to do."""
    reason = snapshot.nodes[name].unreachable
    if reason:
        return reason, way_back(reason)
    if name in able:
        return "there is no other node to test it with", None
    there = ", ".join(
        f"{member.interface} ({member.address})" + (f", which {member.link}" if member.link else "")
        for member in _addresses(snapshot, name)
    )
    what = wanted.interface or "an interface of " + (", ".join(found) or "NCCL, gloo, vLLM or Ray")
    return (
        f"it has no address on {what}; there is {there or 'none that others may reach'}",
        "see which interfaces are there and which is taken: ncdiag preflight --only bootstrap-interface",
    )


def _covers(known: Sequence[Member], wanted: Sequence[Member]) -> bool:
    return {one.address for one in wanted} <= {other.address for other in known}


def _with_targets(snapshot: Snapshot, found: dict[str, list[Member]]) -> dict[str, list[Member]]:
    """RDMA goes with the first role, Ray's ports with the addresses that Ray has."""
    first = next(iter(found), "")
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
            link: Mapping[str, Any] = next((one for one in told["links"] if one["name"] == entry["interface"]), {})
            yield Member(name, str(meta.get("hostname", name)), entry["address"], link.get("mtu") or 1500, entry["interface"],
                         (meta.get("clock") or {}).get("offset_s"), link=_ill(link))  # fmt: skip


def _ill(link: Mapping[str, Any]) -> str:
    """Source: netdevice(7), IFF_UP and IFF_RUNNING."""
    flags = link.get("flags")
    if flags is None or {"UP", "RUNNING"} <= {*flags}:
        return ""
    return "has no carrier" if "UP" in flags else "is down"
