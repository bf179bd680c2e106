from __future__ import annotations

import errno
import json
import subprocess
from pathlib import Path

import pytest

from ncdiag.host import Host, Recorded, Unreadable
from ncdiag.tree import MemoryTree, open_tree
from tests.probes.judging import collected
from tests.probes.namespaces import facts_in, namespace, needs_root, python_in

TREES = Path(__file__).parent.parent / "trees"

GETIFADDRS = """
import ctypes, json, socket, struct
class Entry(ctypes.Structure): pass
Entry._fields_ = [("next", ctypes.POINTER(Entry)), ("name", ctypes.c_char_p), ("flags", ctypes.c_uint), ("addr", ctypes.c_void_p)]
libc = ctypes.CDLL(None)
head = ctypes.POINTER(Entry)()
assert libc.getifaddrs(ctypes.byref(head)) == 0
found = []
while head:
    entry = head.contents
    if entry.addr:
        family = struct.unpack("=H", ctypes.string_at(entry.addr, 2))[0]
        if family == socket.AF_INET:
            found.append([entry.name.decode(), socket.inet_ntop(family, ctypes.string_at(entry.addr + 4, 4)), bool(entry.flags & 0x40)])
        elif family == socket.AF_INET6:
            found.append([entry.name.decode(), socket.inet_ntop(family, ctypes.string_at(entry.addr + 8, 16)), bool(entry.flags & 0x40)])
    head = entry.next
print(json.dumps(found))
"""

CROWD = [
    "link add docker0 type bridge",
    "addr add 10.77.1.1/24 dev docker0",
    "link set docker0 up",
    "link add eth0 type veth peer name far0",
    "addr add 10.77.2.1/24 dev eth0",
    "addr add 10.77.2.2/24 dev eth0 label eth0:1",
    "link set eth0 up",
    "link set far0 up",
    "link set far0 master docker0",
    "link add eth1 type veth peer name far1",
    "addr add 10.77.3.1/24 dev eth1",
    "link set eth1 up",
    "link add eth2 type ifb",
    "addr add 10.77.4.1/24 dev eth2",
    "link add vx0 type vxlan id 9 dstport 4789 local 10.77.2.1",
    "link set vx0 up",
    "addr add 2001:db8::1/64 dev vx0",
]


def _seen(facts: dict) -> list[list[object]]:
    running = {link["name"]: "RUNNING" in link["flags"] for link in facts["links"]}
    return [[entry["name"], entry["address"], running[entry["interface"]]] for entry in facts["addresses"]]


@pytest.mark.lab
def test_names_order_and_running_are_those_of_getifaddrs() -> None:
    needs_root()
    with namespace("ncdiag-ifs", CROWD) as name:
        facts = facts_in(name, "interfaces")
        assert isinstance(facts, dict)
        assert facts["source"] == "rtnetlink"
        assert _seen(facts) == python_in(name, GETIFADDRS)
        links = {link["name"]: link for link in facts["links"]}
        assert (
            links["docker0"]["kind"] == "bridge"
            and links["vx0"]["kind"] == "vxlan"
            and links["far0"]["master"] == "docker0"
        )
        assert (
            links["eth0"]["lower"] == "far0"
            and links["eth1"]["operstate"] == "LOWERLAYERDOWN"
            and "RUNNING" not in links["eth1"]["flags"]
        )
        assert links["eth0"]["counters"]["rx_errors"] == 0


@pytest.mark.lab
def test_ip_shows_the_same_as_netlink() -> None:
    needs_root()
    program = (
        "import json\nfrom ncdiag import rtnetlink, registry\nfrom ncdiag.host import Host\n"
        "links, addresses = rtnetlink.from_ip_json(json.loads(Host().run(['ip', '-j', 'addr']).out))\n"
        "print(json.dumps({'links': links, 'addresses': addresses}))"
    )
    with namespace("ncdiag-ifs", CROWD) as name:
        mine, ip = facts_in(name, "interfaces"), python_in(name, program)
        assert isinstance(mine, dict) and isinstance(ip, dict)
        assert _seen(mine) == _seen(ip)
        assert mine["addresses"] == ip["addresses"]
        for ours, theirs in zip(mine["links"], ip["links"], strict=True):
            assert sorted(ours["flags"]) == sorted(theirs["flags"])
            assert all(
                ours[key] == theirs[key] for key in ("index", "name", "mtu", "mac", "lower", "master", "operstate")
            ), (ours, theirs)


def test_live() -> None:
    facts = collected("interfaces", Host())
    assert any(entry["address"] == "127.0.0.1" and entry["interface"] == "lo" for entry in facts["addresses"])
    assert next(link for link in facts["links"] if link["name"] == "lo")["counters"]


def test_captured_tree_with_ip_addr() -> None:
    facts = collected("interfaces", Recorded(open_tree(str(TREES / "pci-switches-numa-8rail.tar.gz"))))
    assert facts["source"] == "ip -j addr"
    eth0 = next(link for link in facts["links"] if link["name"] == "eth0")
    assert eth0["driver"] == "virtio_net" and "RUNNING" in eth0["flags"] and eth0["counters"]["rx_packets"] >= 0


def test_only_proc_and_sys() -> None:
    tree = MemoryTree()
    for name, flags, index, state in (
        ("lo", "0x9", 1, "unknown"),
        ("eth0", "0x1003", 2, "up"),
        ("eth1", "0x1003", 3, "down"),
    ):
        for file, content in (
            ("flags", flags),
            ("ifindex", str(index)),
            ("mtu", "1500"),
            ("operstate", state),
            ("address", "02:00:00:00:00:01"),
        ):
            tree.add_file(f"/sys/class/net/{name}/{file}", (content + "\n").encode())
    tree.add_file(
        "/proc/net/route",
        b"Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        b"eth0\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\n"
        b"eth0\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n",
    )
    tree.add_file(
        "/proc/net/fib_trie",
        b"Main:\n  |-- 127.0.0.1\n        /32 host LOCAL\n  |-- 192.0.2.5\n        /32 host LOCAL\n"
        b"  |-- 192.0.2.255\n        /32 link BROADCAST\n",
    )
    tree.add_file("/proc/net/if_inet6", b"20010db8000000000000000000000001 02 40 00 80     eth0\n")
    facts = collected("interfaces", Recorded(tree))
    assert facts["source"] == "/proc/net and /sys/class/net"
    assert [(entry["name"], entry["address"], entry["prefix"]) for entry in facts["addresses"]] == [
        ("lo", "127.0.0.1", 8),
        ("eth0", "192.0.2.5", 24),
        ("eth0", "2001:db8::1", 64),
    ]
    assert [link["name"] for link in facts["links"] if "RUNNING" in link["flags"]] == ["lo", "eth0"]


def test_nothing_readable_names_all_three_reasons() -> None:
    tree = MemoryTree()
    tree.add_file("/sys/class/net/eth0/flags", b"")
    tree.add_file("/META.json", json.dumps({"errors": {"/sys/class/net/eth0/flags": errno.EACCES}}).encode())
    with pytest.raises(Exception, match=r"rtnetlink .*ip -j addr.*/proc/net/route"):
        collected("interfaces", Recorded(tree))


@pytest.mark.lab
@pytest.mark.parametrize("probe", ["interfaces", "default-route", "firewall", "interface-link"])
def test_the_network_of_another_namespace_is_not_taken_for_ours(probe: str) -> None:
    needs_root()
    with (
        namespace("ncdiag-other", []) as name,
        subprocess.Popen(
            ["ip", "netns", "exec", name, "sh", "-c", "echo up; read line"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as engine,
    ):
        assert engine.stdout is not None and engine.stdout.readline()
        with pytest.raises(Unreadable, match="nsenter"):
            collected(probe, Host(pid=engine.pid))
        engine.communicate(b"end\n")
