"""What an environment lacks, has otherwise, or should not have, against what its node needs. Pure.

A setting counts by what it does there: NCCL_SOCKET_IFNAME=eth0 is as good as =eth0 where no other link begins with eth0.
"""

from __future__ import annotations

import copy
from typing import Iterator, List, Mapping, Optional, Set

from ncdiag.model import Finding, NodeFacts, Snapshot, fail, unknown, warn
from ncdiag.nccl import hca, interfaces, machine
from ncdiag.nccl.advice import ALL_NODES, Advice
from ncdiag.nccl.environment import LOOKS_LIKE_NCCL, effective, table
from ncdiag.nccl.node import addresses
from ncdiag.nccl.settings import integer

CAUSES = {
    "NCCL_SOCKET_IFNAME": "socket-ifname-wrong",
    "GLOO_SOCKET_IFNAME": "socket-ifname-wrong",
    "VLLM_HOST_IP": "node-ip-wrong-interface",
    "NCCL_IB_HCA": "mixed-hca-fabrics",
    "NCCL_IB_GID_INDEX": "roce-gid-wrong",
    "NCCL_IB_ADDR_FAMILY": "roce-gid-wrong",
    "NCCL_IB_TC": "roce-lossless-missing",
    "NCCL_NET_GDR_LEVEL": "gdr-disabled",
}
"""What goes wrong without the setting."""

Values = Mapping[str, Optional[str]]
"""NAME -> value; None: it is given at start, and not to be seen yet."""


def with_environment(snapshot: Snapshot, given: Mapping[str, Values]) -> Snapshot:
    """The same nodes as if their engines were started with these variables (node -> values) and no others."""
    nodes = {}
    for name, node in snapshot.nodes.items():
        known = {key: value for key, value in given.get(name, {}).items() if value is not None}
        nccl = {key: value for key, value in known.items() if LOOKS_LIKE_NCCL.match(key)}
        facts = dict(node.facts)
        facts["nccl-environment"] = {"environ": nccl, "reason": None, "absent": []}
        facts["framework-environment"] = {"environ": known, "reason": None, "absent": []}
        errors = {key: why for key, why in node.errors.items() if key not in facts}
        nodes[name] = NodeFacts(name, facts, errors, copy.copy(node.meta), node.unreachable)
    return Snapshot(nodes, snapshot.plan)


def differences(snapshot: Snapshot, advice: List[Advice], node: str, given: Values) -> Iterator[Finding]:
    """One finding for each setting of `advice` that `given` does not have as it should on `node`."""
    files = (snapshot.facts(node, "nccl-conf-files") or {}).get("files", ())
    from_files = {name: setting.value for name, setting in effective({}, files).items()}
    holds: Values = {**from_files, **given}
    for one in advice:
        if one.node not in (ALL_NODES, node) or not one.sure:
            continue
        if one.value is None:
            if one.name in holds:
                yield _superfluous(one, node, holds[one.name])
        elif one.name not in holds:
            yield _missing(one, node)
        else:
            yield from _otherwise(snapshot, one, node, holds[one.name])


def _superfluous(one: Advice, node: str, value: Optional[str]) -> Finding:
    return warn(
        f"{one.name}{'' if value is None else '=' + value} should not be set: {one.why}",
        node,
        source=one.derived_from,
        observed=value,
        expected="not set",
        cause=CAUSES.get(one.name, "env-unknown-or-invalid"),
        remedy=f"unset {one.name}",
        setting=one.name,
    )


def _missing(one: Advice, node: str) -> Finding:
    return warn(
        f"{one.name} is not set; it should be {one.value}: {one.why}",
        node,
        source=one.derived_from,
        observed="not set",
        expected=one.value,
        cause=CAUSES.get(one.name, "env-unknown-or-invalid"),
        remedy=f"export {one.name}={one.value}",
        setting=one.name,
    )


def _otherwise(snapshot: Snapshot, one: Advice, node: str, value: Optional[str]) -> Iterator[Finding]:
    wanted = str(one.value)
    if value is None:
        yield unknown(
            f"{one.name} is given at start and cannot be compared; it should be {wanted}",
            node,
            source="the environment given",
            remedy="compare the running process: --pid",
            setting=one.name,
        )
    elif not same(snapshot, node, one.name, value, wanted):
        yield fail(
            f"{one.name}={value} should be {wanted}: {one.why}",
            node,
            source=one.derived_from,
            observed=value,
            expected=wanted,
            cause=CAUSES.get(one.name, "env-unknown-or-invalid"),
            remedy=f"export {one.name}={wanted}",
            setting=one.name,
        )


def same(snapshot: Snapshot, node: str, name: str, value: str, wanted: str) -> bool:
    """Whether two values do the same on that node."""
    if value == wanted:
        return True
    if name == "NCCL_SOCKET_IFNAME":
        links = {address.name for address in addresses(snapshot, node)}
        return bool(links) and _let(value, links) == _let(wanted, links) != set()
    if name == "NCCL_IB_HCA":
        every = [one.for_filter for one in machine.ports(snapshot, node)]
        return bool(every) and hca.select(every, value).taken == hca.select(every, wanted).taken
    variable = table().get(name)
    return variable is not None and variable.kind == "int" and integer(value) == integer(wanted)


def _let(value: str, links: Set[str]) -> Set[str]:
    accepts = interfaces.parse(value)
    return {link for link in links if accepts.lets(link)}
