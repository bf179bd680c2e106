"""The GID index that NCCL takes on each RoCE port is a routable RoCE v2 address, and nodes agree.

The index is where a port's address stands in a table that the driver fills as addresses come and go. NCCL from 2.21 looks for the
first IPv4 RoCE v2 entry itself; before, it takes index 0, and a copied NCCL_IB_GID_INDEX=3 is right only for one shape of the
table. An empty, v1 or link-local index ends in `ibv_modify_qp failed` or a connection that never forms.

Source: /sys/class/infiniband/<device>/ports/<n>/{gids,gid_attrs}; NCCL user guide, NCCL_IB_GID_INDEX; net_ib of 2.18 to 2.30.
"""

from __future__ import annotations

import time
from typing import Dict, Iterator, List, Mapping, Optional, Set, Tuple, TypedDict

from ncdiag.host import Host, HostError
from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn
from ncdiag.nccl import gid as gids
from ncdiag.nccl import machine
from ncdiag.nccl.node import release
from ncdiag.nccl.sysfs import names, numbered, word
from ncdiag.nccl.version import NEWEST_READ, dotted

CLASS = "/sys/class/infiniband"
WINDOW_S = 0.5  # between two readings
MAX_ENTRIES = 1024  # slots a port that are read; rxe has that many, mlx5 256 at most


class Entry(TypedDict):
    """A filled slot of one table."""

    index: int
    gid: str  # eight groups, as in gids/<index>
    type: Optional[str]  # `RoCE v2`, `IB/RoCE v1`; None: EINVAL, as for another network namespace
    netdev: Optional[str]  # gid_attrs/ndevs/<index>; None likewise


class Table(TypedDict):
    device: str
    port: int
    slots: int  # size of the table
    entries: List[Entry]
    unread: int  # slots whose GID could not be read
    types: Optional[bool]  # gid_attrs/types can be listed; None: facts of an older ncdiag
    inet6: Optional[List[str]]  # interfaces with a link-local address, /proc/net/if_inet6; None: not readable
    changed: List[int]  # slots that held something else WINDOW_S later


def collect(host: Host) -> List[Table]:
    tables: List[Table] = []
    host.list("/sys/class")  # without it nothing can be said
    for device in host.names(CLASS):
        for port in numbered(host, f"{CLASS}/{device}/ports"):
            base = f"{CLASS}/{device}/ports/{port}"
            if word(host, f"{base}/link_layer") == "Ethernet":
                tables.append(_table(host, device, port, base))
    if any(table["entries"] for table in tables) and not host.recorded:
        time.sleep(WINDOW_S)
    inet6 = _inet6(host) if tables else None
    for table in tables:
        table["changed"], table["inet6"] = _changed(host, table), inet6
    return tables


def _inet6(host: Host) -> Optional[List[str]]:
    lines = (word(host, "/proc/net/if_inet6") or "").splitlines()
    names_of = {line.split()[-1] for line in lines if line.startswith("fe80")}
    return sorted(names_of) if host.exists("/proc/net/if_inet6") else None


def _changed(host: Host, table: Table) -> List[int]:
    """Looks again at the filled slots and the next two: a new address takes the first free one."""
    base = f"{CLASS}/{table['device']}/ports/{table['port']}/gids"
    before = {one["index"]: one["gid"] for one in table["entries"]}
    behind = max(before, default=-1) + 1
    found = []
    for index in (*before, *range(behind, min(behind + 2, table["slots"]))):
        try:
            now = gids.parse_gid(host.value(f"{base}/{index}") or "")
        except (HostError, ValueError):
            continue
        if int(now) != int(gids.parse_gid(before.get(index, "::"))):
            found.append(index)
    return found


def _table(host: Host, device: str, port: int, base: str) -> Table:
    slots = sorted(int(name) for name in names(host, f"{base}/gids") if name.isdecimal())
    entries: List[Entry] = []
    unread = 0
    for index in slots[:MAX_ENTRIES]:
        try:
            text = host.value(f"{base}/gids/{index}") or ""
            address = gids.parse_gid(text)
        except (HostError, ValueError):
            unread += 1
            continue
        if int(address):
            kind, netdev = word(host, f"{base}/gid_attrs/types/{index}"), word(host, f"{base}/gid_attrs/ndevs/{index}")
            entries.append({"index": index, "gid": text, "type": kind or None, "netdev": netdev or None})
    return {
        "device": device,
        "port": port,
        "slots": len(slots),
        "entries": entries,
        "unread": unread,
        "inet6": None,
        "types": bool(names(host, f"{base}/gid_attrs/types")),
        "changed": [],
    }


def as_gids(table: Table) -> List[gids.Gid]:
    """The facts of one table for `ncdiag.nccl.gid`."""
    return gids.from_facts(table["entries"])


Chosen = Tuple[str, str, gids.Choice]


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    chosen: List[Chosen] = []
    for node, tables in snapshot.each(PROBE.id):
        used = {(one.device["name"], one.port["number"]) for one in machine.used_ports(snapshot, node)}
        mine = [table for table in tables if (table["device"], table["port"]) in used]
        if not tables:
            yield skip("no RoCE port on this node", node, source=CLASS)
        elif not mine:
            yield skip("NCCL takes no RoCE port of this node", node, source=CLASS)
        for table in mine:
            choice = _choice(snapshot, node, table)
            name = f"{table['device']}:{table['port']}"
            chosen.append((node, name, choice))
            others = any(gids.recommend(as_gids(one)) for one in mine if one is not table)
            yield from _port(snapshot, node, name, table, choice, others)
            yield from _moving(node, name, table)
    yield from _families(chosen)
    yield from _forced(snapshot, chosen)


def _choice(snapshot: Snapshot, node: str, table: Table) -> gids.Choice:
    environ, version = machine.values(snapshot, node), release(snapshot, node)
    return gids.choose(as_gids(table), "Ethernet", environ, version)


def _port(
    snapshot: Snapshot, node: str, name: str, table: Table, choice: gids.Choice, others: bool
) -> Iterator[Finding]:
    """`others`: another port of the node has a routable address."""
    source = f"{CLASS}/{table['device']}/ports/{table['port']}/gids"
    version = release(snapshot, node)
    by = f"NCCL {dotted(version)}" if version else f"NCCL (taken for {dotted(NEWEST_READ)} or near)"
    how = {"set": "NCCL_IB_GID_INDEX sets", "default": f"{by} takes by default", "automatic": f"{by} finds"}[choice.how]
    what = f"{name}: {how} index {choice.index} ({choice.gid or 'empty'})"
    refused = _refused(table, choice)
    gap = _gap(table)
    if gap and (choice.problems or choice.doubts or not table["entries"]):
        yield unknown(
            f"{name}: {gap}", node, source=source, device=table["device"], remedy="run it as root on the node itself"
        )
    elif choice.problems:
        better = gids.recommend(as_gids(table))
        grave = choice.gid is None or choice.gid.empty or better is None
        made = fail if refused or (grave and choice.how != "automatic") else warn
        yield made(
            f"{what}; {'; '.join([*choice.problems, *refused])}",
            node,
            source=source,
            device=table["device"],
            observed={"index": choice.index, "gid": str(choice.gid or "empty")},
            expected=None if better is None else {"index": better.index, "gid": str(better)},
            cause="roce-gid-wrong",
            remedy=_remedy(choice, better, table, machine.values(snapshot, node))
            + (_LEFT_OUT % table["device"] if others and better is None else ""),
        )
    elif choice.doubts:
        yield unknown(f"{what}, but {choice.doubts[0]}", node, source=source, device=table["device"], remedy=_VISIBLE)
    else:
        yield ok(what, node, source=source, device=table["device"], observed=choice.index)


def _refused(table: Table, choice: gids.Choice) -> List[str]:
    """The driver lists a link-local GID even where IPv6 is off; a connection with it is refused."""
    known, gid = table.get("inet6"), choice.gid
    if known is None or gid is None or not gid.link_local or not gid.netdev or gid.netdev in known:
        return []
    return [f"{gid.netdev} has no such address, as IPv6 is off there, so ibv_modify_qp refuses it"]


def _gap(table: Table) -> Optional[str]:
    """What was not read of the table; then an empty slot may be a filled one."""
    if not table["slots"]:
        return "its GID table cannot be read"
    if table["unread"]:
        return f"{table['unread']} of {table['slots']} slots of its GID table cannot be read"
    if table["entries"] and table.get("types") is False:
        return "the types of its GIDs cannot be read"
    return None


_LEFT_OUT = "; or, if it is not meant for NCCL, leave it out on all nodes: NCCL_IB_HCA=^=%s"
_VISIBLE = "run the container with the host's network, or with its own RDMA device (netns exclusive)"


_WISHES = ("NCCL_IB_ADDR_FAMILY", "NCCL_IB_ADDR_RANGE", "NCCL_IB_ROCE_VERSION_NUM")
"""Variables that turn the search for an index away from what is there."""


def _remedy(choice: gids.Choice, better: Optional[gids.Gid], table: Table, environ: Mapping[str, str]) -> str:
    wishes = [name for name in _WISHES if environ.get(name)]
    if better is None:
        if any(one["type"] is None for one in table["entries"]):
            return _VISIBLE
        return f"give the interface of {table['device']} an IPv4 address; the table then gets a RoCE v2 entry for it"
    if choice.how == "set":
        return f"unset NCCL_IB_GID_INDEX (NCCL from 2.21 finds the index), or set it to {better.index} on this port"
    if choice.how == "automatic" and wishes:
        told = ", ".join(f"{name}={environ[name]}" for name in wishes)
        return f"unset {' and '.join(wishes)} (with {told} no entry fits); index {better.index} is {better}"
    if choice.how == "automatic" and better.ipv4 is None:
        return "set NCCL_IB_ADDR_FAMILY=AF_INET6 on all nodes, or give the interface an IPv4 address"
    return f"set NCCL_IB_GID_INDEX={better.index}, or use NCCL 2.21 or newer, which finds it"


def _moving(node: str, name: str, table: Table) -> Iterator[Finding]:
    if table.get("changed"):
        yield warn(
            f"{name}: index {', '.join(map(str, table['changed']))} of the GID table changed within {WINDOW_S:g} s",
            node,
            source=f"{CLASS}/{table['device']}/ports/{table['port']}/gids",
            device=table["device"],
            observed=table["changed"],
            expected="a table that stays",
            cause="roce-gid-wrong",
            remedy="find what changes the interface's addresses (DHCP, NetworkManager, IPv6 privacy addresses): ip monitor address",
        )


def _families(chosen: List[Chosen]) -> Iterator[Finding]:
    """IPv4 on one node and IPv6 or link-local on another cannot connect."""
    kinds: Dict[str, Dict[str, None]] = {}
    for node, _, choice in chosen:
        if choice.gid is not None and not choice.gid.empty and choice.gid.roce is not None:
            kinds.setdefault(f"{choice.gid.family} RoCE v{choice.gid.roce}", {})[node] = None
    everybody = {node for nodes in kinds.values() for node in nodes}
    if len(kinds) < 2 or len(everybody) < 2:
        return
    usual = max(kinds, key=lambda kind: len(kinds[kind]))
    for kind, nodes in kinds.items():
        for node in nodes:
            if kind != usual and len(nodes) < len(everybody):  # what every node has is no difference between them
                yield fail(
                    f"NCCL takes a GID of kind {kind} here, {usual} on most nodes; they cannot connect",
                    node,
                    source=f"{CLASS}/*/ports/*/gids",
                    observed=kind,
                    expected=usual,
                    cause="roce-gid-wrong",
                    remedy="give the interfaces of all nodes the same kinds of address, and the same NCCL_IB_ADDR_FAMILY",
                )


def _forced(snapshot: Snapshot, chosen: List[Chosen]) -> Iterator[Finding]:
    """One index cannot fit ports whose tables differ."""
    wanted: Dict[int, List[str]] = {}
    names: Dict[str, Set[str]] = {}
    for node, name, choice in chosen:
        if choice.how == "set":
            names.setdefault(node, set()).add(name)
    for node, tables in snapshot.each(PROBE.id):
        names_of = names.get(node, set())
        for table in [table for table in tables if f"{table['device']}:{table['port']}" in names_of]:
            better = gids.recommend(as_gids(table))
            if better is not None:
                wanted.setdefault(better.index, []).append(f"{node}/{table['device']}")
    if len(wanted) > 1:
        shown = "; ".join(f"{index} on {', '.join(sorted(where)[:4])}" for index, where in sorted(wanted.items()))
        yield warn(
            f"NCCL_IB_GID_INDEX is one number, but the RoCE v2 entry is at index {shown}",
            source=f"{CLASS}/*/ports/*/gids",
            observed={str(index): where for index, where in wanted.items()},
            cause="roce-gid-wrong",
            remedy="unset NCCL_IB_GID_INDEX and use NCCL 2.21 or newer, or bring the tables into the same order",
        )


PROBE = Probe(
    "roce-gid",
    "The GID index that NCCL takes is a routable RoCE v2 address",
    judge,
    collect,
    needs=("rdma-devices", "nccl-environment", "nccl-conf-files"),
    timeout_s=20.0,
)
