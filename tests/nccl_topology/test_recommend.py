"""Settings from facts: few, with reasons, and nothing that NCCL finds by itself."""

from __future__ import annotations

import json
from typing import Any

from ncdiag import registry
from ncdiag.collect import collect
from ncdiag.model import Plan, Snapshot
from ncdiag.nccl.advice import ALL_NODES, Advice
from ncdiag.nccl.recommend import NEEDS, for_node, recommend, to_unset
from tests.probes.machines import Machine, eight_rails
from tests.probes.smi import addresses, with_gpus


def snapshot(*machines: Machine, version: str | None = None) -> Snapshot:
    everything = registry.load()
    sources = everything.sources(set(NEEDS) & set(everything))
    found = Snapshot(plan=Plan(nccl_version=version))
    for machine in machines:
        node = collect(machine.host(), sources)
        found.nodes[node.node] = node
    return found


def advice(*machines: Machine, version: str | None = None) -> list[Advice]:
    return recommend(snapshot(*machines, version=version))


def named(found: list[Advice], name: str) -> list[tuple[str, str | None]]:
    return [(one.node, one.value) for one in found if one.name == name]


def with_addresses(machine: Machine, *links: tuple[str, str]) -> Machine:
    shown: list[dict[str, Any]] = []
    for number, (name, address) in enumerate(links, 2):
        shown.append({
            "ifindex": number, "ifname": name, "flags": ["UP", "LOWER_UP", "BROADCAST"], "mtu": 1500, "operstate": "UP", "address": f"02:00:00:00:00:{number:02x}",
            "addr_info": [{"family": "inet", "local": address, "prefixlen": 24, "scope": "global", "label": name}],
        })  # fmt: skip
    return machine.command("ip -j addr", json.dumps(shown))


def test_equal_healthy_nodes_need_nothing_for_rdma() -> None:
    assert advice(eight_rails("a"), eight_rails("b")) == []


def test_two_fabrics_take_the_fast_one() -> None:
    def both(name: str) -> Machine:
        machine = eight_rails(name)
        return machine.card("mlx5_8", "0000:60:00.0", layer="Ethernet", netdev="eth0", rate="25 Gb/sec (1X EDR)")

    found = advice(both("a"), both("b"))
    assert named(found, "NCCL_IB_HCA") == [(ALL_NODES, "=" + ",".join(f"mlx5_{i}:1" for i in range(8)))]
    assert "8 x InfiniBand 400 Gb/s" in found[0].why


def test_ports_that_only_some_nodes_have_are_left_out() -> None:
    (value,) = named(advice(eight_rails("a"), eight_rails("b", down=[5])), "NCCL_IB_HCA")
    assert value[0] == ALL_NODES and "mlx5_5" not in (value[1] or "") and "mlx5_4:1" in (value[1] or "")


def test_names_that_differ_are_given_per_node() -> None:
    def pair(name: str, first: str) -> Machine:
        machine = Machine(name).card(f"{first}_0", "0000:10:00.0")
        return machine.card("eno1", "0000:11:00.0", layer="Ethernet", netdev="e1", rate="10 Gb/sec (1X FDR10)")

    found = named(advice(pair("a", "mlx5"), pair("b", "ibp")), "NCCL_IB_HCA")
    assert found == [("a", "=mlx5_0:1"), ("b", "=ibp_0:1")]


def roce(name: str, gids: tuple[tuple[str, int], ...] = (), **environ: str) -> Machine:
    return Machine(name).environ(**environ).card("mlx5_0", "0000:10:00.0", layer="Ethernet", netdev="eth2", gids=gids)


SHORT = (("fe80::1", 2), ("::ffff:192.0.2.9", 2))


def test_gid_index_is_set_for_old_nccl_only() -> None:
    assert named(advice(roce("a"), roce("b"), version="2.18.3"), "NCCL_IB_GID_INDEX") == [(ALL_NODES, "3")]
    assert named(advice(roce("a"), roce("b", SHORT), version="2.18.3"), "NCCL_IB_GID_INDEX") == [("a", "3"), ("b", "1")]
    assert named(advice(roce("a"), roce("b", SHORT), version="2.27.3"), "NCCL_IB_GID_INDEX") == []


def test_gid_index_that_was_copied_is_to_be_unset() -> None:
    found = advice(roce("a", SHORT, NCCL_IB_GID_INDEX="3"), version="2.27.3")
    assert named(found, "NCCL_IB_GID_INDEX") == [("a", None)] and "not where the RoCE v2 entry is" in found[-1].why


def test_ipv6_only_fabric() -> None:
    six = (("fe80::1", 1), ("fe80::1", 2), ("2001:db8::1", 1), ("2001:db8::1", 2))
    assert named(advice(roce("a", six), roce("b", six)), "NCCL_IB_ADDR_FAMILY") == [(ALL_NODES, "AF_INET6")]


def test_traffic_class_of_the_protected_priority() -> None:
    def protected(name: str) -> Machine:
        machine = roce(name)
        machine.meta["answers"]["ethtool statistics of eth2"] = {"rx_prio3_pause": 0, "tx_prio3_pause": 0}
        return machine

    found = advice(protected("a"), protected("b"))
    assert named(found, "NCCL_IB_TC") == [(ALL_NODES, "104")]
    assert "NCCL_IB_TC" not in for_node(found, "a"), "it rests on an assumption"


def test_the_network_that_all_share() -> None:
    def node(name: str, last: int) -> Machine:
        return with_addresses(
            Machine(name), ("docker0", "172.17.0.1"), ("eth0", f"192.0.2.{last}"), ("eth1", f"198.51.100.{last}")
        )

    def route(machine: Machine) -> Machine:
        machine.meta["answers"]["rtnetlink routes"] = [
            {
                "family": "inet",
                "table": 254,
                "to": "0.0.0.0",
                "bits": 0,
                "gateway": "198.51.100.254",
                "interface": "eth1",
                "source": None,
                "metric": 0,
            }
        ]
        return machine

    found = advice(route(node("a", 1)), route(node("b", 2)))
    assert named(found, "NCCL_SOCKET_IFNAME") == [(ALL_NODES, "=eth1")]
    assert named(found, "GLOO_SOCKET_IFNAME") == [(ALL_NODES, "eth1")]
    assert named(found, "VLLM_HOST_IP") == [("a", "198.51.100.1"), ("b", "198.51.100.2")]
    assert for_node(found, "b")["VLLM_HOST_IP"] == "198.51.100.2"


def test_one_node_needs_no_addresses_and_no_shared_network_gives_none() -> None:
    assert not named(advice(with_addresses(Machine("a"), ("eth0", "192.0.2.1"))), "VLLM_HOST_IP")
    apart = advice(
        with_addresses(Machine("a"), ("eth0", "192.0.2.1")), with_addresses(Machine("b"), ("eth0", "203.0.113.1"))
    )
    assert not named(apart, "NCCL_SOCKET_IFNAME")


def test_interface_names_that_differ() -> None:
    found = advice(
        with_addresses(Machine("a"), ("eth0", "192.0.2.1")), with_addresses(Machine("b"), ("ens3", "192.0.2.2"))
    )
    assert named(found, "NCCL_SOCKET_IFNAME") == [("a", "=eth0"), ("b", "=ens3")]


def flat(**environ: str) -> Machine:
    machine = Machine("a").driver().environ(**environ)
    machine.gpu("0000:05:00.0").card("mlx5_0", "0000:06:00.0")
    return with_gpus(machine, ["0000:05:00.0"])


def test_gdr_level_is_only_worth_a_try() -> None:
    found = advice(flat())
    assert named(found, "NCCL_NET_GDR_LEVEL") == [(ALL_NODES, "PHB")] and not found[0].sure
    assert not named(advice(with_gpus(eight_rails("a"), addresses())), "NCCL_NET_GDR_LEVEL")
    assert named(advice(flat(NCCL_NET_GDR_LEVEL="phb")), "NCCL_NET_GDR_LEVEL")[-1] == ("a", "PHB")


def test_what_was_left_on() -> None:
    found = advice(
        eight_rails("a").environ(NCCL_P2P_DISABLE="1", NCCL_IB_DISABLE="1", NCCL_SHM_DISABLE="0", NCCL_NET="Socket")
    )
    assert to_unset(found, "a") == ["NCCL_IB_DISABLE", "NCCL_NET", "NCCL_P2P_DISABLE"]
    assert not advice(Machine("a").environ(NCCL_IB_DISABLE="1")), "without RDMA it does no harm"


def test_bare_machines_and_plain_data() -> None:
    assert advice(Machine("a"), Machine("b")) == [] and recommend(Snapshot()) == []
    json.dumps([one.as_dict() for one in advice(flat())])
