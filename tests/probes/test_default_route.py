from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.tree import open_tree
from tests.probes.judging import collected, interfaces, judged
from tests.probes.namespaces import facts_in, namespace, needs_root

TREES = Path(__file__).parent.parent / "trees"


def route(interface: str, metric: int = 0, bits: int = 0) -> dict[str, Any]:
    return {
        "family": "inet",
        "table": 254,
        "to": "0.0.0.0",
        "bits": bits,
        "gateway": "192.0.2.1",
        "interface": interface,
        "source": None,
        "metric": metric,
    }


@pytest.mark.parametrize(
    ("routes", "sources", "status"),
    [
        ([route("eth0")], {"inet": "192.0.2.5", "inet6": None}, "ok"),
        ([route("eth0"), route("eth1", 100)], {"inet": "192.0.2.5", "inet6": None}, "ok"),
        ([route("eth0", 100), route("eth1", 100)], {"inet": "192.0.2.5", "inet6": None}, "warn"),
        ([route("eth0", bits=24)], {"inet": None, "inet6": None}, "warn"),
        ([], None, "unknown"),
        ([], {"inet": "192.0.2.5", "inet6": None}, "ok"),
    ],
)
def test_judging(routes: list[dict[str, Any]], sources: dict[str, Any] | None, status: str) -> None:
    (finding,) = judged(
        "default-route", {"a": {"default-route": {"source": "rtnetlink", "routes": routes, "sources": sources}}}
    )
    assert finding.status.value == status


def test_live() -> None:
    assert collected("default-route", Host())["source"] == "rtnetlink"


def test_captured_tree() -> None:
    facts = collected("default-route", Recorded(open_tree(str(TREES / "pci-switches-numa-8rail.tar.gz"))))
    assert facts["source"] == "/proc/net/route" and facts["sources"] is None
    assert {entry["interface"] for entry in facts["routes"]} >= {"eth0", "eth7"}


@pytest.mark.lab
def test_real_routes() -> None:
    needs_root()
    with namespace(
        "ncdiag-rt",
        [
            "link add eth0 type veth peer name far0",
            "addr add 10.77.2.1/24 dev eth0",
            "link set eth0 up",
            "link set far0 up",
        ],
    ) as name:
        bare = facts_in(name, "default-route")
        assert isinstance(bare, dict)
        assert bare["sources"] == {"inet": None, "inet6": None}
    with namespace(
        "ncdiag-rt",
        [
            "link add eth0 type veth peer name far0",
            "addr add 10.77.2.1/24 dev eth0",
            "link set eth0 up",
            "link set far0 up",
            "addr add 10.77.3.1/24 dev far0",
            "route add default via 10.77.2.9 metric 7",
            "route add 10.77.8.0/24 nexthop via 10.77.2.3 nexthop via 10.77.3.3",
        ],
    ) as name:
        facts = facts_in(name, "default-route")
        assert isinstance(facts, dict)
        assert facts["sources"]["inet"] == "10.77.2.1"
        default = next(entry for entry in facts["routes"] if entry["bits"] == 0)
        assert (default["interface"], default["gateway"], default["metric"]) == ("eth0", "10.77.2.9", 7)
        assert next(entry for entry in facts["routes"] if entry["to"] == "10.77.8.0")["gateway"] == "10.77.2.3"


def test_the_remedies_name_address_and_route() -> None:
    def remedy(*routes: dict[str, Any]) -> str:
        told = {"source": "rtnetlink", "routes": list(routes), "sources": {"inet": None, "inet6": None}}
        local = interfaces("lo=127.0.0.1/8", "eth0=192.0.2.5/24")
        (finding,) = judged("default-route", {"a": {"default-route": told, "interfaces": local}})
        return finding.remedy or ""

    assert "VLLM_HOST_IP=192.0.2.5 (each node its own), and start Ray with --node-ip-address=192.0.2.5" in remedy()
    assert remedy(route("eth0"), route("eth1")).endswith("ip route replace default via 192.0.2.1 dev eth1 metric 100")
