from __future__ import annotations

import errno
import json
import subprocess
import time
from typing import Any

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.model import Plan
from ncdiag.nccl.filter_rules import parse_iptables, parse_nft
from ncdiag.nccl.packet_filter import Flow, walk
from ncdiag.tree import MemoryTree
from tests.probes.judging import collected, interfaces, judged
from tests.probes.namespaces import facts_in, namespace, needs_root, python_in

RULES = """
table inet filter {
  set peers { type ipv4_addr; flags interval; elements = { 10.77.6.0/24, 10.9.0.1 } }
  chain input { type filter hook input priority 0; policy drop;
    ct state vmap { established : accept, related : accept, invalid : drop }
    iifname "lo" accept
    tcp flags & (fin | syn | rst | ack) != syn ct state new drop
    ip protocol icmp accept
    tcp dport { 22, 6379, 8000-8003 } ct state new counter accept
    ip saddr 10.77.5.2 tcp dport 9100 reject
    ip saddr @peers tcp dport 9200 accept
    tcp dport 9300 jump trusted
    iifname "eth*" tcp dport 9400 goto trusted
    meta mark & 0x00008000 == 0x00008000 tcp dport 9500 drop
    tcp dport != 1-9599 tcp dport 9600 accept comment "in the end, accept"
    udp dport 4791 accept
  }
  chain trusted { ip saddr 10.77.5.0/24 accept; return; }
  chain output { type filter hook output priority 0; policy accept; tcp dport 25 drop; }
}
"""
IPTABLES = [
    ["-P", "INPUT", "DROP"],
    ["-N", "MINE"],
    ["-A", "INPUT", "-i", "lo", "-j", "ACCEPT"],
    ["-A", "INPUT", "-m", "conntrack", "--ctstate", "ESTABLISHED,RELATED", "-j", "ACCEPT"],
    [
        "-A",
        "INPUT",
        "-p",
        "tcp",
        "-m",
        "multiport",
        "--dports",
        "22,8000:8003",
        "-m",
        "comment",
        "--comment",
        "drop it, -j DROP",
        "-j",
        "ACCEPT",
    ],
    [
        "-A",
        "INPUT",
        "-s",
        "10.77.5.2/32",
        "-p",
        "tcp",
        "-m",
        "tcp",
        "--dport",
        "9100",
        "-j",
        "REJECT",
        "--reject-with",
        "icmp-port-unreachable",
    ],
    ["-A", "INPUT", "!", "-s", "10.99.0.0/16", "-p", "tcp", "--dport", "9300", "-j", "MINE"],
    ["-A", "INPUT", "-p", "tcp", "-m", "mark", "--mark", "0x8000/0x8000", "-j", "DROP"],
    ["-A", "INPUT", "-i", "eth+", "-p", "tcp", "--dport", "9600:9700", "-j", "ACCEPT"],
    ["-A", "MINE", "-s", "10.77.5.0/24", "-j", "ACCEPT"],
]
PORTS = [22, 6379, 8003, 8004, 9100, 9200, 9300, 9400, 9500, 9600, 9650, 9701, 40000]

LISTEN = """
import socket, sys, time
for port in map(int, sys.argv[1:]):
    s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("0.0.0.0", port)); s.listen(); globals()["s%d" % port] = s
print("ready", flush=True)
time.sleep(60)
"""
CONNECT = """
import json, socket, sys
waiting = {}
for port in map(int, sys.argv[1:]):
    s = socket.socket(); s.setblocking(False); s.connect_ex(("10.77.5.1", port)); waiting[port] = s
import time; time.sleep(1)
def state(s):
    try:
        s.getpeername(); return True
    except OSError:
        return False
print(json.dumps([port for port, s in waiting.items() if state(s)]))
"""


def flow(
    port: int, proto: str = "tcp", direction: str = "in", source: str = "10.77.5.2", interface: str = "eth0"
) -> Flow:
    return Flow(direction, proto, port, interface, source, "10.77.5.1")


@pytest.mark.lab
@pytest.mark.parametrize("tool", ["nft", "iptables-nft", "iptables-legacy"])
def test_we_say_what_the_kernel_does(tool: str) -> None:
    """Real connections through real rules, against what the walk says of each port."""
    needs_root()
    with (
        namespace(
            "ncdiag-fw-a",
            ["link add eth0 type veth peer name far0", "addr add 10.77.5.1/24 dev eth0", "link set eth0 up"],
        ) as here,
        namespace("ncdiag-fw-b", []) as there,
    ):
        for command in (
            f"-n {here} link set far0 netns {there}",
            f"-n {there} addr add 10.77.5.2/24 dev far0",
            f"-n {there} link set far0 up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        enter = ["ip", "netns", "exec", here]
        if tool == "nft":
            made = subprocess.run([*enter, "nft", "-f", "-"], input=RULES, text=True, capture_output=True, check=False)
        else:
            for rule in IPTABLES:
                made = subprocess.run([*enter, tool, *rule], text=True, capture_output=True, check=False)
        if made.returncode:
            pytest.skip(f"{tool} does not work here: {made.stderr.strip()}")
        with subprocess.Popen([*enter, "python3", "-c", LISTEN, *map(str, PORTS)], stdout=subprocess.PIPE) as listening:
            assert listening.stdout is not None and listening.stdout.readline()
            reached = python_in(there, CONNECT, *map(str, PORTS))
            listening.terminate()
        facts = facts_in(here, "firewall")
    assert isinstance(facts, dict) and not facts["unread"]
    said = [port for port in PORTS if walk(facts["tables"], flow(port)).ends == ("accept",)]
    assert said == reached and 22 in said and 40000 not in said
    assert all(walk(facts["tables"], flow(port)).ends == ("drop",) for port in PORTS if port not in said)


@pytest.mark.parametrize(
    ("rule", "ends"),
    [
        ("tcp dport 5000 drop", ("drop",)),
        ("tcp dport 5001 drop", ("accept",)),
        ("udp dport 5000 drop", ("accept",)),
        ("limit rate 5/second drop", ("accept", "drop")),
        ("ct state new drop", ("drop",)),
        ("ct state established drop", ("accept",)),
        ("ip saddr 10.77.5.0/24 drop", ("drop",)),
        ("ip saddr != 10.77.5.0/24 drop", ("accept",)),
        ("ip6 saddr ::/0 drop", ("accept",)),
        ("ip saddr . tcp dport @pairs drop", ("accept", "drop")),
        ("fib saddr . iif oif missing drop", ("accept", "drop")),
        ('iifname "docker0" drop', ("accept",)),
        ('oifname "eth0" drop', ("accept",)),
        ("meta nfproto ipv6 drop", ("accept",)),
        ("ip saddr @unseen drop", ("accept", "drop")),
        ("icmp type echo-request drop", ("accept",)),
        ("jump nowhere", ("accept",)),
        ('log prefix "drop all" accept', ("accept",)),
        ("meta l4proto tcp reject with tcp reset", ("drop",)),
        ("tcp dport vmap { 5000 : drop, 6000 : accept }", ("drop",)),
        ("tcp sport 1024-65535 drop", ("accept", "drop")),
        ("tcp flags & (fin | syn | rst | ack) != syn drop", ("accept",)),
        ("return", ("accept",)),
        ("counter packets 1 bytes 2 drop", ("drop",)),
    ],
)
def test_single_rules(rule: str, ends: tuple[str, ...]) -> None:
    tables = parse_nft(
        "table inet f {\n\tchain c {\n\t\ttype filter hook input priority filter; policy accept;\n\t\t%s\n\t}\n}\n"
        % rule
    )
    assert walk(tables, flow(5000)).ends == ends


def test_what_is_not_needed_is_not_kept() -> None:
    text = (
        "table ip nat {\n\tchain pre {\n\t\ttype nat hook prerouting priority 0; policy accept;\n\t\tjump big\n\t}\n\tchain big {\n\t\treturn\n\t}\n}\n"
        "table ip f {\n\tchain i {\n\t\ttype filter hook input priority 0; policy accept;\n\t\tjump used\n\t}\n\tchain used {\n\t\treturn\n\t}\n"
        "\tchain unused {\n\t\tdrop\n\t}\n\tchain fw {\n\t\ttype filter hook forward priority 0; policy drop;\n\t}\n}\n"
    )
    assert [(table["name"], sorted(table["chains"])) for table in parse_nft(text)] == [("f", ["i", "used"])]


def node(rules: str = "", unread: list[str] | None = None, rdma: dict[str, Any] | None = None) -> dict[str, Any]:
    tables = parse_iptables(rules) if rules.startswith("*") else parse_nft(rules)
    return {
        "firewall": {"tables": tables, "unread": unread or [], "source": "nft list ruleset"},
        "interfaces": interfaces("lo=127.0.0.1/8", "eth0=192.0.2.1"),
        "nccl-environment": {"environ": {}, "reason": None, "absent": []},
        "nccl-conf-files": {"files": []},
        "ephemeral-ports": {"low": 32768, "high": 60999},
        "rdma-devices": rdma or {"devices": []},
    }


SSH_ONLY = "*filter\n:INPUT DROP [0:0]\n:OUTPUT ACCEPT [0:0]\n-A INPUT -p tcp -m tcp --dport 22 -j ACCEPT\nCOMMIT\n"
ROCE: dict[str, Any] = {"devices": [{"name": "mlx5_0", "ports": [{"link_layer": "Ethernet"}]}]}


@pytest.mark.parametrize(
    ("facts", "plan", "statuses", "word"),
    [
        (node(), Plan(nodes=2), ["ok"], "no packet filter"),
        (node(unread=["nft: only root"]), Plan(nodes=2), ["unknown"], "only root"),
        (node(SSH_ONLY), Plan(nodes=2), ["fail"], "ephemeral"),
        (node(SSH_ONLY), Plan(), ["warn"], "between nodes"),
        (
            node(SSH_ONLY.replace("-A INPUT", "-A INPUT -s 192.0.2.0/24 -j ACCEPT\n-A INPUT")),
            Plan(nodes=2),
            ["ok"],
            "lets",
        ),
        (
            node(SSH_ONLY.replace("COMMIT", "-A INPUT -p tcp --dport 30000:61000 -j ACCEPT\nCOMMIT")),
            Plan(nodes=2),
            ["warn"],
            "Ray",
        ),
        (
            node(SSH_ONLY.replace("COMMIT", "-A INPUT -p tcp -j ACCEPT\nCOMMIT"), rdma=ROCE),
            Plan(nodes=2),
            ["fail"],
            "4791",
        ),
        (node(SSH_ONLY.replace("COMMIT", "-A INPUT -p tcp -j ACCEPT\nCOMMIT")), Plan(nodes=2), ["ok"], "lets"),
        (
            node(SSH_ONLY.replace("COMMIT", "-A INPUT -p tcp -m limit --limit 9/s -j ACCEPT\nCOMMIT")),
            Plan(nodes=2),
            ["unknown"],
            "not understood",
        ),
        (
            node(SSH_ONLY.replace("COMMIT", "-A INPUT -p tcp --dport 1025: -j ACCEPT\nCOMMIT")),
            Plan(nodes=2, ports=(1024,)),
            ["fail"],
            "1024",
        ),
    ],
)
def test_judging(facts: dict[str, Any], plan: Plan, statuses: list[str], word: str) -> None:
    findings = judged("firewall", {"a": facts}, plan)
    assert [finding.status.value for finding in findings] == statuses
    assert word in findings[0].summary


def test_live() -> None:
    begun = time.thread_time()
    facts = collected("firewall", Host())
    assert time.thread_time() - begun < 0.2
    assert facts["unread"] or isinstance(facts["tables"], list)


def test_not_root_is_unknown() -> None:
    tree = MemoryTree()
    tree.add_file(
        "/META.json",
        json.dumps(
            {"answers": {"nftables tables": {"errno": errno.EPERM, "reason": "Operation not permitted"}}}
        ).encode(),
    )
    facts = collected("firewall", Recorded(tree))
    assert "only root" in facts["unread"][0]
    assert "unread" in facts and judged("firewall", {"a": {"firewall": facts}})[0].status.value == "unknown"


def test_not_recorded_is_unknown() -> None:
    facts = collected("firewall", Recorded(MemoryTree()))
    assert [finding.status.value for finding in judged("firewall", {"a": {"firewall": facts}})] == ["unknown"]
