"""What else than the interfaces' own ports is to be tested: the RDMA ports that NCCL takes, and the ports of a Ray that runs. Pure."""

from __future__ import annotations

import ipaddress
import random
from collections.abc import Mapping
from typing import Any

from ncdiag.model import Snapshot
from ncdiag.nccl import gid, machine
from ncdiag.nccl.node import addresses, release
from ncdiag.nccl.settings import integer


def rdma_ports(snapshot: Snapshot, node: str) -> list[dict[str, Any]]:
    """The node's ports in NCCL's order, with the GID index, traffic class, service level and partition key that NCCL will use."""
    environ, version = machine.values(snapshot, node), release(snapshot, node)
    tables = {(table["device"], table["port"]): table["entries"] for table in snapshot.facts(node, "roce-gid") or []}
    found = []
    for one in machine.used_ports(snapshot, node):
        layer = one.port["link_layer"]
        key = (one.device["name"], one.port["number"])
        choice = gid.choose(gid.from_facts(tables.get(key, [])), layer, environ, version)
        found.append({"device": key[0], "number": key[1], "link_layer": layer, "gid_index": choice.index,
                      "tc": _number(environ, "NCCL_IB_TC"), "sl": _number(environ, "NCCL_IB_SL"), "pkey": _number(environ, "NCCL_IB_PKEY")})  # fmt: skip
    return found


def _number(environ: Mapping[str, str], name: str) -> int:
    return (integer(environ.get(name, "")) or 0) & 0xFF


def ray_address(snapshot: Snapshot, node: str) -> str | None:
    """The address by which Ray knows this node; None where no Ray runs."""
    raylet = _raylet(snapshot, node)
    return raylet["node_ip"] if raylet else None


def ray_services(snapshot: Snapshot, node: str) -> dict[str, int]:
    """Ray's name of a port -> the port that Ray listens on there: the head's GCS, and the raylet's two."""
    raylet = _raylet(snapshot, node)
    if raylet is None:
        return {}
    host, _, port = (raylet["gcs_address"] or "").rpartition(":")
    own = {"Ray's GCS": int(port)} if port.isdecimal() and _same(host, raylet["node_ip"]) else {}
    return {**own, **raylet["ports"]}


def _raylet(snapshot: Snapshot, node: str) -> Mapping[str, Any] | None:
    """The one with an address of this node: a node of Kubernetes also sees the raylets of its pods."""
    own = {address.address for address in addresses(snapshot, node)}
    return next((one for one in snapshot.facts(node, "ray-cluster") or [] if one.get("node_ip") in own), None)


def _same(one: str, other: str) -> bool:
    try:
        return ipaddress.ip_address(one.strip("[]")) == ipaddress.ip_address(other)
    except ValueError:
        return False


def ray_ports(snapshot: Snapshot, source: random.Random) -> dict[int, str]:
    """Further ports to be tested for Ray, and what each stands for.

    Where it runs, one out of the range from which all raylets give their workers theirs; before it is started, the head's of RAY_ADDRESS.
    """
    raylets = [one for node in snapshot.nodes for one in [_raylet(snapshot, node)] if one]
    if not raylets:
        told = [(snapshot.facts(node, "framework-environment") or {}).get("environ") or {} for node in snapshot.nodes]
        ports = {environ.get("RAY_ADDRESS", "").rpartition(":")[2] for environ in told}
        return {
            int(port): "Ray's head, by RAY_ADDRESS" for port in ports if port.isdecimal() and 0 < int(port) < 1 << 16
        }
    ranges = [one["worker_ports"] for one in raylets if one["worker_ports"]]
    low, high = max((one[0] for one in ranges), default=1), min((one[1] for one in ranges), default=0)
    return {source.randint(low, high): f"one of Ray's worker ports {low} to {high}"} if low <= high else {}
