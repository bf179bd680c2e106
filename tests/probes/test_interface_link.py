from __future__ import annotations

import subprocess
import time
from typing import Any

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.tree import MemoryTree
from tests.probes.judging import collected, interfaces, judged
from tests.probes.namespaces import facts_in, namespace, needs_root


def node(*entries: str, grown: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    told = interfaces("lo=127.0.0.1/8", *(entries or ("eth0+mlx5_core=192.0.2.1",)))
    for link in told["links"]:
        if link["name"] == "eth0":
            link.update({"counters": {"rx_packets": 10**9, "tx_packets": 10**9, "rx_errors": 0}, **changes})
    return {"interfaces": told, "interface-link": {"window_s": 0.5, "grown": grown or {}}}


def found(*nodes: dict[str, Any]) -> list[tuple[str, str | None]]:
    return [
        (finding.status.value, finding.cause)
        for finding in judged("interface-link", {f"n{number}": facts for number, facts in enumerate(nodes)})
    ]


FAULT = "ib-link-or-hca-fault"


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (node(), [("ok", None)]),
        (node("eth0+mlx5_core=192.0.2.1!"), [("warn", FAULT)]),
        (node(flags=["UP"], operstate="DOWN"), [("warn", FAULT)]),
        (node(counters={"rx_packets": 10**9, "rx_crc_errors": 5000}), [("warn", FAULT)]),
        (node(counters={"rx_packets": 10**9, "rx_crc_errors": 50}), [("ok", None)]),
        (node(counters={"rx_packets": 10**6, "rx_dropped": 5000}), [("warn", FAULT)]),
        (node(counters={"rx_packets": 10**9, "rx_dropped": 5000}), [("ok", None)]),
        (node(grown={"eth0": {"rx_crc_errors": 1, "rx_packets": 10**6}}), [("warn", FAULT)]),
        (node(grown={"eth0": {"rx_dropped": 3, "rx_packets": 10**6}}), [("ok", None)]),
        (node(grown={"eth0": {"rx_dropped": 30000, "rx_packets": 10**6}}), [("warn", FAULT)]),
        (node(carrier_changes=150), [("warn", FAULT)]),
        (node(counters={}), [("unknown", None)]),
        (node("docker0@bridge=172.17.0.1/16"), [("skip", None)]),
        (node("docker0@bridge=172.17.0.1/16", "eth0+mlx5_core=192.0.2.1"), [("ok", None)]),
    ],
)
def test_one_node(facts: dict[str, Any], expected: list[tuple[str, str | None]]) -> None:
    assert found(facts) == expected


def test_a_vlan_larger_than_its_parent() -> None:
    facts = node("eth0+mlx5_core=192.0.2.1", "eth0.7@vlan=198.51.100.1")
    facts["interfaces"]["links"][2].update(lower="eth0", mtu=9000)
    assert found(facts) == [("warn", "mtu-mismatch")]


def test_nodes_of_one_network_differ() -> None:
    nodes = [node(f"eth0+mlx5_core=192.0.2.{number}", mtu=9000, speed_mbits=100000) for number in (1, 2)]
    assert found(*nodes) == [("ok", None)] * 2
    assert found(*nodes, node("eth0+mlx5_core=192.0.2.3", mtu=1500, speed_mbits=100000))[3:] == [
        ("warn", "mtu-mismatch")
    ]
    assert found(*nodes, node("eth0+mlx5_core=192.0.2.3", mtu=9000, speed_mbits=25000))[3:] == [("warn", FAULT)]
    assert found(*nodes, node("eth0+mlx5_core=198.51.100.3", mtu=1500, speed_mbits=1000)) == [("ok", None)] * 3


def test_live_costs_no_time_of_the_processor() -> None:
    begun = time.thread_time()
    facts = collected("interface-link", Host())
    assert facts["window_s"] == 0.5 and time.thread_time() - begun < 0.1


def test_recorded_tree_has_no_growth() -> None:
    assert collected("interface-link", Recorded(MemoryTree())) == {"window_s": None, "grown": {}}


@pytest.mark.lab
def test_growth_of_real_counters() -> None:
    needs_root()
    with namespace(
        "ncdiag-link",
        [
            "link add eth0 type veth peer name far0",
            "addr add 10.77.2.1/24 dev eth0",
            "link set eth0 up",
            "link set far0 up",
            "neigh add 10.77.2.9 lladdr 02:00:00:00:00:09 dev eth0",
        ],
    ) as name:
        talk = "import socket, time\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\nfor _ in range(200):\n    s.sendto(b'x', ('10.77.2.9', 9)); time.sleep(0.01)"
        with subprocess.Popen(["ip", "netns", "exec", name, "python3", "-c", talk]) as talking:
            facts = facts_in(name, "interface-link")
            talking.terminate()
    assert isinstance(facts, dict)
    assert facts["grown"]["eth0"]["tx_packets"] > 5
