from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import Finding, NodeFacts, Plan, Snapshot
from ncdiag.tree import open_tree
from tests.probes.judging import PROBES, interfaces, judged
from tests.probes.namespaces import namespace, needs_root, python_in, settled

TREES = Path(__file__).parent.parent / "trees"
WRONG = "socket-ifname-wrong"


def node(
    *entries: str,
    nccl: dict[str, str] | None = None,
    other: dict[str, str] | None = None,
    name: str = "gpu",
    resolves: list[str] | None = None,
    source: str | None = None,
    routes: list[dict[str, Any]] | None = None,
    read: bool = True,
) -> dict[str, Any]:
    local = interfaces("lo=127.0.0.1/8", *entries)
    own = next(
        (entry["address"] for entry in local["addresses"] if entry["interface"][:3] in ("eth", "eno", "br0")),
        "127.0.0.1",
    )
    return {
        "interfaces": local,
        "nccl-environment": {
            "environ": (nccl or {}) if read else None,
            "reason": None if read else "it was not recorded",
            "absent": [],
        },
        "nccl-conf-files": {"files": []},
        "framework-environment": {"environ": other or {}, "reason": None, "absent": []},
        "host-name": {
            "name": name,
            "addresses": resolves if resolves is not None else [own],
            "error": None,
            "failed": "",
            "took_s": 0.001,
            "hosts": [],
            "nameservers": [],
        },
        "default-route": {
            "source": "rtnetlink",
            "routes": routes or [],
            "sources": {"inet": source or own, "inet6": None},
        },
    }


def found(nodes: dict[str, dict[str, Any]], plan: Plan | None = None) -> list[tuple[str, str | None]]:
    return [
        (finding.status.value, finding.cause)
        for finding in judged("bootstrap-interface", nodes, plan or Plan(nccl_version="2.28.9"))
    ]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (node("eth0=192.0.2.1"), [("ok", None)]),
        (node("docker0=172.17.0.1/16", "eth0=192.0.2.1"), [("ok", None)]),
        (node("br-1a2b@bridge=172.18.0.1/16", "eth0=192.0.2.1"), [("warn", WRONG)]),
        (node("docker0=172.17.0.1/16"), [("ok", None)]),
        (node("eth0=192.0.2.1", nccl={"NCCL_SOCKET_IFNAME": "ib"}), [("fail", WRONG)]),
        (node("eth0=192.0.2.1", nccl={"NCCL_SOCKET_IFNAME": "docker"}), [("fail", WRONG)]),
        (
            node("eth0=192.0.2.1", "tailscale0@tun=203.0.113.7/32", nccl={"NCCL_SOCKET_IFNAME": "tailscale0"}),
            [("warn", WRONG)],
        ),
        (node("eth0=192.0.2.1!", "eth1=198.51.100.1", nccl={"NCCL_SOCKET_IFNAME": "eth0"}), [("fail", WRONG)]),
        (node("eth0=192.0.2.1", other={"GLOO_SOCKET_IFNAME": "ens5"}), [("fail", WRONG)]),
        (node("eth0=192.0.2.1", "docker0=172.17.0.1/16", resolves=["172.17.0.1"]), [("warn", WRONG)]),
        (
            node("eth0=192.0.2.1", "wg0@wireguard=203.0.113.7", source="203.0.113.7"),
            [("warn", "node-ip-wrong-interface")],
        ),
        (node("eth0=192.0.2.1", nccl={"NCCL_COMM_ID": "head:4000"}), [("unknown", None)]),
        (node("eth0=192.0.2.1", read=False), [("unknown", None)]),
        (node("br-1a2b@bridge=172.18.0.1/16", "eth0=192.0.2.1", read=False), [("warn", WRONG)]),
        (node("br0@bridge=192.0.2.1"), [("ok", None)]),
    ],
)
def test_one_node(facts: dict[str, Any], expected: list[tuple[str, str | None]]) -> None:
    assert found({"a": facts}) == expected


def test_a_bridge_that_holds_the_card() -> None:
    facts = node("br0@bridge=192.0.2.1", "eno1+mlx5_core", "docker0=172.17.0.1/16")
    next(link for link in facts["interfaces"]["links"] if link["name"] == "eno1")["master"] = "br0"
    assert found({"a": facts}) == [("ok", None)]


def test_old_and_new_nccl_differ_and_the_release_is_not_known() -> None:
    facts = node("virbr0=192.0.2.1", "eno1=198.51.100.1")
    assert found({"a": facts}, Plan(tp=2)) == [("warn", WRONG)]
    assert found({"a": facts}, Plan(nccl_version="2.28.3")) == [("ok", None)]
    assert found({"a": facts}, Plan(nccl_version="2.27.5")) == [("warn", WRONG)]
    facts["nccl-library"] = {"libraries": [{"version": "2.28.3+cuda12.9"}]}
    assert found({"a": facts}, Plan(tp=2)) == [("ok", None)]


def test_the_remedy_can_be_typed() -> None:
    (finding,) = judged(
        "bootstrap-interface",
        {"a": node("eth0=192.0.2.1", "docker0=172.17.0.1/16", nccl={"NCCL_SOCKET_IFNAME": "ib"})},
        Plan(nccl_version="2.28.9"),
    )
    assert finding.remedy == "export NCCL_SOCKET_IFNAME==eth0"
    assert finding.observed["gloo"]["interface"] == "eth0" and finding.observed["agree"] is False


DEFAULT = [
    {
        "family": "inet",
        "table": 254,
        "to": "0.0.0.0",
        "bits": 0,
        "gateway": "192.0.2.254",
        "interface": "eth0",
        "source": None,
        "metric": 0,
    }
]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ({"a": node("eth0=192.0.2.1"), "b": node("eth0=192.0.2.2")}, {}),
        (
            {"a": node("docker0=172.17.0.1/16"), "b": node("docker0=172.17.0.1/16")},
            {"docker0": "fail", "same address": "fail"},
        ),
        (
            {"a": node("eth0=192.0.2.1"), "b": node("eth1=198.51.100.2", "eth0=192.0.2.2")},
            {"no route": "fail", "different networks": "warn"},
        ),
        (
            {"a": node("eth0=192.0.2.1", "eth1=198.51.100.1"), "b": node("eth1=198.51.100.2", "eth0=192.0.2.2")},
            {"different networks": "warn"},
        ),
        ({"a": node("eth0=192.0.2.1", routes=DEFAULT), "b": node("eth0=198.51.100.2", routes=DEFAULT)}, {}),
        ({"a": node("eth0=192.0.2.1"), "b": node("eth0=198.51.100.2")}, {"no route": "fail"}),
        ({"a": node("eth0=192.0.2.1"), "b": node("eth0=192.0.2.1")}, {"same address": "fail"}),
        (
            {"a": node("eth0=192.0.2.1"), "b": node("eth0=192.0.2.2", resolves=["127.0.1.1"])},
            {"gloo will advertise 127.0.1.1, a loopback": "fail"},
        ),
        ({"a": node("eth0=192.0.2.1"), "b": node("eth0=fe80::2/64")}, {"link-local": "fail"}),
    ],
)
def test_between_nodes(nodes: dict[str, dict[str, Any]], expected: dict[str, str]) -> None:
    findings = [
        finding
        for finding in judged("bootstrap-interface", nodes, Plan(nccl_version="2.28.9"))
        if finding.status.value != "ok"
    ]
    for words, status in expected.items():
        assert status in [finding.status.value for finding in findings if words in finding.summary], (
            words,
            [f.summary for f in findings],
        )
    assert bool(findings) == bool(expected)


def test_captured_tree_without_an_environment() -> None:
    chosen = PROBES.chosen(["bootstrap-interface"])
    facts = collect(Recorded(open_tree(str(TREES / "pci-switches-numa-8rail.tar.gz"))), PROBES.sources(chosen))
    assert "would take eth0" in check(Snapshot({facts.node: facts}), chosen)[0].summary


# the real thing: what the three really take in a network of our making

PREFLIGHT = """
import json, sys
from dataclasses import asdict
from ncdiag import registry
from ncdiag.collect import collect
from ncdiag.host import Host
probes = registry.load()
print(json.dumps(asdict(collect(Host(), probes.sources(["bootstrap-interface"])))))
"""


def _preflight(name: str, environ: dict[str, str]) -> Finding:
    program = "import os\nos.environ.update(%r)\n" % environ + PREFLIGHT
    told = python_in(name, program)
    assert isinstance(told, dict)
    return check(
        Snapshot({"a": NodeFacts(**told)}, Plan(nccl_version="2.28.9")), registry.load().chosen(["bootstrap-interface"])
    )[0]


CROWD = [
    "link add docker0 type bridge",
    "addr add 10.77.1.1/24 dev docker0",
    "link set docker0 up",
    "link add eth0 type veth peer name far0",
    "addr add 10.77.2.1/24 dev eth0",
    "link set eth0 up",
    "link set far0 up",
    "link add eth1 type veth peer name far1",
    "addr add 10.77.3.1/24 dev eth1",
    "link set eth1 up",
    "link set far1 up",
    "route add default via 10.77.3.9",
]


@pytest.mark.lab
def test_in_a_real_network() -> None:
    needs_root()
    with namespace("ncdiag-boot", CROWD) as name:
        folder = Path("/etc/netns") / name
        folder.mkdir(parents=True)
        try:
            (folder / "hosts").write_text("127.0.0.1 localhost\n10.77.2.1 %s\n" % os.uname().nodename)
            seen = _preflight(name, {}).observed
            assert (
                seen["nccl"]["interface"] == "eth0"
                and seen["gloo"]["address"] == "10.77.2.1"
                and seen["vllm"]["address"] == "10.77.3.1"
            )
            seen = _preflight(
                name,
                {"NCCL_SOCKET_IFNAME": "^eth0,docker,lo", "GLOO_SOCKET_IFNAME": "eth1", "VLLM_HOST_IP": "10.77.2.1"},
            ).observed
            assert [seen[who]["interface"] for who in ("nccl", "gloo", "vllm")] == ["eth1", "eth1", "eth0"]
        finally:
            shutil.rmtree(folder)


@pytest.mark.lab
def test_a_decoy_on_one_of_two_real_nodes() -> None:
    """Two machines on one cable; on one of them a bridge made before the network card wins NCCL's default order."""
    needs_root()
    chosen = PROBES.chosen(["bootstrap-interface"])
    with (
        namespace(
            "ncdiag-two-a",
            ["link add eth0 type veth peer name far0", "addr add 10.77.6.1/24 dev eth0", "link set eth0 up"],
        ) as one,
        namespace(
            "ncdiag-two-b",
            [
                "link add br-77 type bridge",
                "addr add 10.77.7.1/24 dev br-77",
                "link add v0 type veth peer name v1",
                "link set v0 master br-77",
                "link set v0 up",
                "link set v1 up",
                "link set br-77 up",
            ],
        ) as two,
    ):
        for command in (
            f"-n {one} link set far0 netns {two}",
            f"-n {two} link set far0 name eth0",
            f"-n {two} addr add 10.77.6.2/24 dev eth0",
            f"-n {two} link set eth0 up",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        settled(one)
        settled(two)
        nodes = {}
        for node_name, place in (("a", one), ("b", two)):
            told = python_in(
                place,
                "import os\nos.environ.update({'VLLM_HOST_IP': '10.77.6.%d', 'GLOO_SOCKET_IFNAME': 'eth0'})\n"
                % (1 + (node_name == "b"))
                + PREFLIGHT,
            )
            assert isinstance(told, dict)
            nodes[node_name] = NodeFacts(**told)
    findings = check(Snapshot(nodes, Plan(nccl_version="2.27.5")), chosen)
    failed = [finding for finding in findings if finding.status.value == "fail"]
    assert [(finding.where["node"], finding.cause) for finding in failed] == [("b", WRONG), ("a", WRONG)]
    assert "br-77 (10.77.7.1)" in failed[0].summary and failed[0].remedy == "export NCCL_SOCKET_IFNAME==eth0"
    assert "no route to 10.77.7.1" in failed[1].summary


def _lab_python() -> str:
    """An interpreter with torch and vLLM: this one, or the one that NCDIAG_LAB_PYTHON names."""
    python = os.environ.get("NCDIAG_LAB_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import torch.distributed"], capture_output=True, check=False).returncode:
        pytest.skip("no torch in this interpreter; name one that has it in NCDIAG_LAB_PYTHON")
    return python


REAL_GLOO = """
import json, os, socket, struct
import torch.distributed as dist
name = os.environ.get("GLOO_SOCKET_IFNAME", "")
try:
    device = dist.ProcessGroupGloo.create_device(interface=name) if name else dist.ProcessGroupGloo.create_default_device()
    lines = [line.split() for line in open("/proc/self/net/tcp").read().splitlines()[1:]]
    print(json.dumps([socket.inet_ntoa(struct.pack("=I", int(line[1].split(":")[0], 16))) for line in lines if line[3] == "0A"]))
except RuntimeError as error:
    print(json.dumps(str(error)))
"""
"""Where gloo's device listens, or its error."""


@pytest.mark.lab
@pytest.mark.vllm
@pytest.mark.parametrize(
    ("environ", "own_address"),
    [
        ({}, "10.77.2.1"),
        ({}, "127.0.1.1"),
        ({}, None),
        ({"GLOO_SOCKET_IFNAME": "eth1"}, "10.77.2.1"),
        ({"GLOO_SOCKET_IFNAME": "eth"}, "10.77.2.1"),
        ({"GLOO_SOCKET_IFNAME": "^docker0"}, "10.77.2.1"),
    ],
)
def test_gloo_really_takes_what_we_say(environ: dict[str, str], own_address: str | None) -> None:
    needs_root()
    python = _lab_python()
    with namespace("ncdiag-gloo", CROWD) as name:
        folder = Path("/etc/netns") / name
        folder.mkdir(parents=True)
        try:
            (folder / "hosts").write_text(
                "127.0.0.1 localhost\n" + ("%s %s\n" % (own_address, os.uname().nodename) if own_address else "")
            )
            (folder / "nsswitch.conf").write_text("hosts: files\n")
            real = python_in(name, "import os\nos.environ.update(%r)\n" % environ + REAL_GLOO, python=python)
            ours = _preflight(name, environ).observed["gloo"]
        finally:
            shutil.rmtree(folder)
    if isinstance(real, str):
        assert ours["address"] is None and ours["error"] in real
    else:
        assert real == [ours["address"]]
