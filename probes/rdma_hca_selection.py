"""NCCL_IB_HCA names ports that exist, are up, and are the ones that were meant.

The value is a list of prefixes: `mlx5_1` also takes mlx5_10 to mlx5_19; `^` excludes, `=` wants whole names. A list that leaves no
usable port is no error for NCCL: it falls back to sockets, and the job is only slow. Nodes that take different numbers of ports
wait for each other.

Source: NCCL user guide, NCCL_IB_HCA; src/misc/utils.cc (parseStringList, matchIfList) and ncclIbInit of 2.18 to 2.30.
"""

from __future__ import annotations

from collections import Counter
from typing import Dict, Iterator, List, Optional, Set

from ncdiag.model import Finding, Probe, Snapshot, fail, ok, skip, unknown, warn
from ncdiag.nccl import hca, machine
from ncdiag.nccl.environment import Setting
from ncdiag.nccl.node import release, settings
from ncdiag.nccl.uneven import uneven
from ncdiag.nodeset import counted

MAX_PORTS = 32
"""MAX_IB_DEVS: ports that NCCL takes; the rest is passed over."""


def judge(snapshot: Snapshot) -> Iterator[Finding]:
    counts: Dict[str, int] = {}
    used: Dict[str, List[machine.UsedPort]] = {}
    for node, _ in snapshot.each("rdma-devices"):
        ports = [one.for_filter for one in machine.ports(snapshot, node)]
        if not ports:
            yield skip("no RDMA port on this node", node, source="/sys/class/infiniband")
            continue
        yield from _node(snapshot, node, settings(snapshot, node), ports)
        used[node] = machine.used_ports(snapshot, node)
        counts[node] = len(used[node])
    yield from uneven(
        fail,
        counts,
        "RDMA ports that NCCL takes: {own} here, {others} on the other nodes",
        source="/sys/class/infiniband and NCCL_IB_HCA",
        cause="hca-mismatch-between-nodes",
        remedy="bring the missing port up, or set NCCL_IB_HCA on every node to the ports that all have",
    )
    yield from uneven(
        fail,
        {node: layers.pop() for node, layers in _layers(used).items() if len(layers) == 1},
        "NCCL takes {own} ports here and {others} on the other nodes; they cannot connect",
        source="/sys/class/infiniband/*/ports/*/link_layer",
        cause="mixed-hca-fabrics",
        remedy="name the devices of one fabric on every node with NCCL_IB_HCA, or use nodes of one fabric",
    )
    yield from _unlike(used)


def _layers(used: Dict[str, List[machine.UsedPort]]) -> Dict[str, Set[str]]:
    """Of each node; one with both is what the probe rdma-port warns of."""
    return {node: {str(one.port["link_layer"]) for one in ports} for node, ports in used.items()}


def _unlike(used: Dict[str, List[machine.UsedPort]]) -> Iterator[Finding]:
    """Nodes with cards of another kind and speed; cards of one kind are compared by the probe rdma-port."""
    speeds = {
        node: ", ".join(f"{counted(times, 'port')} of {rate:g} Gb/s" for rate, times in sorted(found.items()))
        for node, ports in used.items()
        for found in [Counter(one.port["rate_gbits_s"] for one in ports if one.port["rate_gbits_s"])]
        if found
    }
    boards = {node: {one.device["board"] for one in ports} for node, ports in used.items()}
    if (
        len({frozenset(found) for found in boards.values()}) > 1
        and len({len(ports) for ports in used.values() if ports}) == 1
    ):
        yield from uneven(
            warn,
            speeds,
            "the cards have {own} here, {others} on the other nodes: the slowest sets the pace",
            source="/sys/class/infiniband/*/{board_id,ports/*/rate}",
            cause="hca-mismatch-between-nodes",
            remedy="use nodes with cards of one kind for one engine",
        )


def _node(
    snapshot: Snapshot, node: str, known: Optional[Dict[str, Setting]], ports: List[hca.Port]
) -> Iterator[Finding]:
    values = machine.values(snapshot, node)
    origin = {name: setting.origin for name, setting in (known or {}).items()}
    given = values.get("NCCL_IB_HCA")
    source = f"{origin.get('NCCL_IB_HCA', 'environment')} NCCL_IB_HCA"
    if hca.disabled(values):
        yield warn(
            f"NCCL_IB_DISABLE={values['NCCL_IB_DISABLE']}: {counted(len(ports), 'RDMA port')} of this node {'stays' if len(ports) == 1 else 'stay'} unused, "
            "NCCL takes sockets",
            node,
            source=f"{origin['NCCL_IB_DISABLE']} NCCL_IB_DISABLE",
            observed=values["NCCL_IB_DISABLE"],
            cause="net-fallback-slow",
            remedy="unset NCCL_IB_DISABLE (it is often left over from a test)",
        )
        return
    selection = hca.select(ports, given, release(snapshot, node))
    problems = [_note(note, node, given, source) for note in selection.notes]
    usable = [port for port in ports if port.active and port.link_layer in ("InfiniBand", "Ethernet")]
    if not selection.taken and usable and given:
        names = ", ".join(f"{port.device}:{port.number}" for port in usable)
        problems.append(
            fail(
                f"NCCL_IB_HCA={given} leaves none of the usable ports {names}; NCCL will use sockets",
                node,
                source=source,
                observed=given,
                cause="rdma-unavailable",
                remedy="unset NCCL_IB_HCA, or name these ports",
                setting="NCCL_IB_HCA",
            )
        )
    yield from problems
    if not selection.taken and not usable:
        yield skip("no port is ACTIVE with InfiniBand or Ethernet, so there is nothing to select", node, source=source)
    elif not problems and known is None:
        names = ", ".join(f"{port.device}:{port.number}" for port in selection.taken)
        yield unknown(
            f"whether NCCL_IB_HCA is set is not known, as the environment was not read; without it NCCL takes {names}",
            node,
            source=source,
            remedy="name a running process of the engine with --pid, or its variables with --env-file",
        )
    elif not problems:
        yield _taken(node, given, source, selection)
    if len(selection.taken) > MAX_PORTS:
        yield warn(
            f"{len(selection.taken)} ports are selected, NCCL takes {MAX_PORTS}",
            node,
            source=source,
            observed=len(selection.taken),
            expected=MAX_PORTS,
            cause="env-unknown-or-invalid",
            remedy="name the ports in NCCL_IB_HCA",
        )


def _note(note: str, node: str, given: object, source: str) -> Finding:
    return warn(
        f"NCCL_IB_HCA={given}: {note}",
        node,
        source=source,
        observed=given,
        cause="env-unknown-or-invalid",
        remedy="name exact ports: NCCL_IB_HCA==device:port,… (`=` first, then the list)",
        setting="NCCL_IB_HCA",
    )


def _taken(node: str, given: object, source: str, selection: hca.Selection) -> Finding:
    names = ", ".join(f"{port.device}:{port.number}" for port in selection.taken)
    how = f"NCCL_IB_HCA={given}" if given else "NCCL_IB_HCA is not set"
    left = f"; left out: {', '.join(selection.left_out)}" if selection.left_out else ""
    return ok(f"{how}: NCCL takes {names}{left}", node, source=source, observed=names)


PROBE = Probe(
    "rdma-hca-selection",
    "NCCL_IB_HCA selects the ports that were meant",
    judge,
    needs=("rdma-devices", "nccl-environment", "nccl-conf-files"),
)
