"""NCCL's choice of interface, as a table over its rules and versions."""

from __future__ import annotations

import pytest

from ncdiag.nccl.interfaces import Address, bootstrap, nature, parse, transport

OLD, NEW = (2, 27, 7), (2, 28, 3)


def machine(*entries: str) -> list[Address]:
    """`eth0=192.0.2.1/24`, with `!` behind it when the interface is not RUNNING, in getifaddrs order."""
    found = []
    for entry in entries:
        name, _, rest = entry.partition("=")
        address, _, prefix = rest.rstrip("!").partition("/")
        found.append(Address(name, address, int(prefix or 24), not entry.endswith("!")))
    return found


PLAIN = machine(
    "lo=127.0.0.1/8",
    "eth0=192.0.2.1",
    "eth1=198.51.100.1",
    "eth10=203.0.113.1",
    "docker0=172.17.0.1/16",
    "lo=::1/128",
    "eth0=fe80::1/64",
)


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        ("eth", ["eth0", "eth1", "eth10"]),
        ("eth1", ["eth1", "eth10"]),
        ("=eth1", ["eth1"]),
        ("=eth", []),
        ("=eth1,eth0", ["eth0", "eth1"]),
        ("^docker,lo", ["eth0", "eth1", "eth10"]),
        ("^=eth1,lo,docker0", ["eth0", "eth10"]),
        ("^eth1", ["lo", "eth0", "docker0"]),
        ("eth0,^eth1", ["eth0"]),
        ("eth0,=eth1", ["eth0"]),
        ("=^eth0", []),
        ("eth1:5", ["eth1", "eth10"]),
        ("=eth1:5", ["eth1"]),
        (":5", ["lo", "eth0", "eth1", "eth10", "docker0"]),
        ("^", ["eth0", "eth1", "eth10"]),
        ("e", ["eth0", "eth1", "eth10"]),
        ("", ["eth0", "eth1", "eth10"]),
        ("^,", []),
        (",,", ["lo", "eth0", "eth1", "eth10", "docker0"]),
        ("eth0, eth1", ["eth0"]),
        ("ETH0", []),
        ("lo", ["lo"]),
        ("ib0", []),
        ("eth2,docker", ["docker0"]),
    ],
)
@pytest.mark.parametrize("version", [(2, 18, 1), OLD, NEW, (2, 30, 7)])
def test_ifname(value: str, chosen: list[str], version: tuple[int, int, int]) -> None:
    choice = transport(PLAIN, {"NCCL_SOCKET_IFNAME": value}, version)
    assert [address.name for address in choice.chosen] == chosen
    assert choice.error == (None if chosen else "Bootstrap : no socket interface found")


@pytest.mark.parametrize(
    ("local", "environ", "version", "chosen"),
    [
        (machine("lo=127.0.0.1/8", "eno1=192.0.2.1", "ib0=198.51.100.1"), {}, OLD, "ib0"),
        (machine("lo=127.0.0.1/8", "docker0=172.17.0.1", "eno1=192.0.2.1"), {}, OLD, "eno1"),
        (machine("lo=127.0.0.1/8", "docker0=172.17.0.1"), {}, OLD, "docker0"),
        (machine("lo=127.0.0.1/8"), {}, OLD, "lo"),
        (machine("lo=127.0.0.1/8", "virbr0=192.0.2.1", "eno1=198.51.100.1"), {}, OLD, "virbr0"),
        (machine("lo=127.0.0.1/8", "virbr0=192.0.2.1", "eno1=198.51.100.1"), {}, NEW, "eno1"),
        (machine("lo=127.0.0.1/8", "virbr0=192.0.2.1"), {}, NEW, "lo"),
        (machine("virbr0=192.0.2.1"), {}, NEW, "virbr0"),
        (machine("lo=127.0.0.1/8", "eno1=192.0.2.1!", "eno2=198.51.100.1"), {}, OLD, "eno1"),
        (machine("lo=127.0.0.1/8", "eno1=192.0.2.1!", "eno2=198.51.100.1"), {}, NEW, "eno2"),
        (machine("lo=127.0.0.1/8", "eno1=192.0.2.1!"), {"NCCL_SOCKET_IFNAME": "eno"}, OLD, "eno1"),
        (machine("lo=127.0.0.1/8", "eno1=192.0.2.1!"), {"NCCL_SOCKET_IFNAME": "eno"}, NEW, None),
        (machine("lo=127.0.0.1/8", "cni0=192.0.2.1", "eno1=198.51.100.1"), {}, NEW, "cni0"),
        (machine("lo=127.0.0.1/8", "br-1a2b=192.0.2.1", "eno1=198.51.100.1"), {}, NEW, "br-1a2b"),
        (machine("lo=127.0.0.1/8", "eno2=192.0.2.1", "lo=::1/128", "eno1=2001:db8::1/64"), {}, NEW, "eno2"),
        (
            machine("lo=127.0.0.1/8", "eno2=192.0.2.1", "lo=::1/128", "eno1=2001:db8::1/64"),
            {"NCCL_SOCKET_FAMILY": "AF_INET6"},
            NEW,
            "eno1",
        ),
        (
            machine("lo=127.0.0.1/8", "eno2=192.0.2.1", "lo=::1/128", "eno1=2001:db8::1/64"),
            {"NCCL_SOCKET_FAMILY": "inet6"},
            NEW,
            "eno2",
        ),
        (machine("lo=127.0.0.1/8", "lo=::1/128", "eno1=fe80::1/64"), {}, NEW, "eno1"),
        (machine("lo=127.0.0.1/8", "lo=::1/128", "eno1=fe80::1/64"), {"NCCL_SOCKET_FAMILY": "AF_INET"}, NEW, "lo"),
        (machine("lo=::1/128"), {}, NEW, None),
        (machine("lo=::1/128"), {"NCCL_SOCKET_IFNAME": "lo"}, NEW, None),
        ([], {}, NEW, None),
        (machine("eno1=192.0.2.1", "eno2=198.51.100.1"), {"NCCL_COMM_ID": "198.51.100.7:4000"}, NEW, "eno2"),
        (
            machine("eno1=192.0.2.1", "eno2=198.51.100.1"),
            {"NCCL_COMM_ID": "198.51.100.7:4000", "NCCL_SOCKET_IFNAME": "eno1"},
            NEW,
            "eno2",
        ),
        (machine("eno1=192.0.2.1", "ib0=198.51.100.1"), {"NCCL_COMM_ID": "192.0.2.7:4000"}, NEW, "eno1"),
        (machine("eno1=192.0.2.1"), {"NCCL_COMM_ID": "203.0.113.7:4000"}, NEW, None),
        (machine("eno1=192.0.2.1", "eno2=2001:db8::1/64"), {"NCCL_COMM_ID": "[2001:db8::7]:4000"}, NEW, "eno2"),
        (machine("eth0:1=192.0.2.1", "eth1=198.51.100.1"), {"NCCL_SOCKET_IFNAME": "=eth0"}, NEW, None),
    ],
)
def test_bootstrap(
    local: list[Address], environ: dict[str, str], version: tuple[int, int, int], chosen: str | None
) -> None:
    choice = bootstrap(local, environ, version)
    assert [address.name for address in choice.chosen] == ([chosen] if chosen else [])
    assert (choice.error is None) == bool(chosen)
    assert choice.rule


def test_a_comm_id_that_names_a_host_is_not_guessed() -> None:
    choice = bootstrap(PLAIN, {"NCCL_COMM_ID": "head.example:4000"}, NEW)
    assert not choice.chosen and choice.error is None and "names a host" in choice.rule


def test_transport_takes_all_but_the_bootstrap_takes_the_first() -> None:
    assert len(transport(PLAIN, {}, NEW).chosen) == 3
    assert [address.address for address in bootstrap(PLAIN, {}, NEW).chosen] == ["192.0.2.1"]


def test_at_most_sixteen_names_and_interfaces() -> None:
    many = machine(*(f"p{number}=192.0.2.{number}" for number in range(1, 40)))
    assert len(transport(many, {}, NEW).chosen) == 16
    assert len(parse("=" + ",".join(f"p{number}" for number in range(40))).names) == 16


@pytest.mark.parametrize(
    ("name", "kind", "virtual"),
    [
        ("docker0", "bridge", True),
        ("br-0f3a", "bridge", True),
        ("cali12ab", "veth", True),
        ("cni0", "bridge", True),
        ("flannel.1", "vxlan", True),
        ("virbr0", "bridge", True),
        ("tailscale0", "tun", True),
        ("wg0", "wireguard", True),
        ("ztabcdef", "tun", True),
        ("kube-ipvs0", "dummy", True),
        ("vxlan.calico", "vxlan", True),
        ("tun0", None, True),
        ("veth9", None, True),
        ("corp", "tun", True),
        ("eth0", None, False),
        ("eth0", "veth", False),
        ("ens5", None, False),
        ("bond0", "bond", False),
        ("bond0.100", "vlan", False),
        ("ib0", "ipoib", False),
        ("ibp24s0", None, False),
        ("net1", "macvlan", False),
        ("enp1s0f0np0", None, False),
        ("br0", "bridge", True),
    ],
)
def test_virtual(name: str, kind: str | None, virtual: bool) -> None:
    assert bool(nature(name, kind)) == virtual


def test_a_bridge_with_a_card_in_it_reaches_others() -> None:
    assert nature("br0", "bridge", ["eno1"], ["eno1"]) is None
    assert nature("br0", "bridge", ["vnet0"], ["eno1"])
