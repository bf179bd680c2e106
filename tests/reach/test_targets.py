"""What is tested besides the interfaces' own ports."""

from __future__ import annotations

import random
from typing import Any

from ncdiag.model import NodeFacts, Snapshot
from ncdiag.reach import targets


def snapshot(*raylets: dict[str, Any], environ: dict[str, str] | None = None) -> Snapshot:
    """A node for each raylet (None: none runs there), with the address 192.0.2.<number>."""
    nodes = {}
    for number, raylet in enumerate(raylets, 1):
        entry = {"name": "eth0", "interface": "eth0", "address": f"192.0.2.{number}", "prefix": 24}
        facts = {
            "interfaces": {"links": [], "addresses": [entry]},
            "ray-cluster": [raylet] if raylet else [],
            "framework-environment": {"environ": environ or {}},
        }
        nodes[f"gpu{number}"] = NodeFacts(f"gpu{number}", facts)
    return Snapshot(nodes)


def raylet(address: str, workers: list[int] | None = None, head: str = "192.0.2.1:6379") -> dict[str, Any]:
    return {"node_ip": address, "gcs_address": head, "ports": {"Ray's node manager": 8060}, "worker_ports": workers}


def test_the_head_is_the_node_with_the_address_of_the_gcs() -> None:
    made = snapshot(raylet("192.0.2.1"), raylet("192.0.2.2"))
    assert targets.ray_services(made, "gpu1") == {"Ray's GCS": 6379, "Ray's node manager": 8060}
    assert targets.ray_services(made, "gpu2") == {"Ray's node manager": 8060}
    assert targets.ray_address(made, "gpu2") == "192.0.2.2"


def test_a_raylet_of_a_container_is_not_the_nodes_own() -> None:
    made = snapshot(raylet("198.51.100.7"))
    assert targets.ray_address(made, "gpu1") is None and targets.ray_services(made, "gpu1") == {}


def test_a_worker_port_that_all_have_in_common() -> None:
    made = snapshot(raylet("192.0.2.1", [10002, 19999]), raylet("192.0.2.2", [19990, 29999]))
    (port,) = (found := targets.ray_ports(made, random.Random(1)))
    assert 19990 <= port <= 19999 and found[port] == "one of Ray's worker ports 19990 to 19999"
    assert targets.ray_ports(snapshot(raylet("192.0.2.1")), random.Random(1)) == {}
    apart = snapshot(raylet("192.0.2.1", [10002, 10100]), raylet("192.0.2.2", [20000, 20100]))
    assert targets.ray_ports(apart, random.Random(1)) == {}


def test_before_ray_is_started_the_port_of_ray_address() -> None:
    made = snapshot({}, {}, environ={"RAY_ADDRESS": "192.0.2.1:6380"})
    assert targets.ray_ports(made, random.Random(1)) == {6380: "Ray's head, by RAY_ADDRESS"}
    for text in ("auto", "", "192.0.2.1", "ray://192.0.2.1:70000"):
        assert targets.ray_ports(snapshot({}, environ={"RAY_ADDRESS": text}), random.Random(1)) == {}
