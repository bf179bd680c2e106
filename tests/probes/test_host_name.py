from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from ncdiag.host import Host, Recorded
from ncdiag.tree import MemoryTree
from tests.probes.judging import collected, interfaces, judged
from tests.probes.namespaces import facts_in, namespace, needs_root

LOCAL = interfaces("lo=127.0.0.1/8", "eth0=192.0.2.5/24", "eth0=fe80::5/64")


def facts(**changes: Any) -> dict[str, Any]:
    return {
        "name": "gpu1",
        "addresses": ["192.0.2.5"],
        "error": None,
        "failed": "",
        "took_s": 0.001,
        "hosts": [],
        "nameservers": [],
        **changes,
    }


@pytest.mark.parametrize(
    ("changes", "status", "cause"),
    [
        ({}, "ok", None),
        (
            {"addresses": ["127.0.1.1"], "hosts": [{"line": 2, "text": "127.0.1.1 gpu1"}]},
            "warn",
            "hostname-resolves-to-loopback",
        ),
        ({"addresses": ["::1"]}, "warn", "hostname-resolves-to-loopback"),
        (
            {"addresses": None, "failed": "unknown-name", "error": "Name or service not known"},
            "warn",
            "hostname-resolves-to-loopback",
        ),
        ({"addresses": ["198.51.100.9"]}, "warn", "node-ip-wrong-interface"),
        (
            {
                "addresses": None,
                "failed": "no-answer",
                "error": "no answer within 2 s",
                "nameservers": ["203.0.113.53"],
            },
            "fail",
            "dns-unresponsive",
        ),
        ({"took_s": 1.4}, "warn", "dns-unresponsive"),
        ({"addresses": None, "failed": "not-asked"}, "unknown", None),
        (
            {"addresses": None, "failed": "not-asked", "hosts": [{"line": 3, "text": "127.0.1.1 gpu1"}]},
            "warn",
            "hostname-resolves-to-loopback",
        ),
    ],
)
def test_one_node(changes: dict[str, Any], status: str, cause: str | None) -> None:
    (finding,) = judged("host-name", {"a": {"host-name": facts(**changes), "interfaces": LOCAL}})
    assert (finding.status.value, finding.cause) == (status, cause)


def test_between_nodes_loopback_is_fatal_and_the_line_is_named() -> None:
    bad = facts(addresses=["127.0.1.1"], hosts=[{"line": 2, "text": "127.0.1.1 gpu1"}])
    good = facts(name="gpu2", addresses=["192.0.2.6"])
    found = judged(
        "host-name",
        {
            "a": {"host-name": bad, "interfaces": LOCAL},
            "b": {"host-name": good, "interfaces": interfaces("eth0=192.0.2.6")},
        },
    )
    assert [finding.status.value for finding in found] == ["fail", "ok"]
    assert found[0].source == "/etc/hosts line 2: 127.0.1.1 gpu1"
    assert "192.0.2.5 gpu1" in (found[0].remedy or "")


def test_names_and_addresses_that_nodes_share() -> None:
    nodes = {name: {"host-name": facts(), "interfaces": LOCAL} for name in ("a", "b")}
    found = [finding for finding in judged("host-name", nodes) if finding.status.value != "ok"]
    assert [(finding.status.value, finding.observed["nodes"]) for finding in found] == [
        ("warn", ["a", "b"]),
        ("fail", ["a", "b"]),
    ]


def test_live() -> None:
    found = collected("host-name", Host())
    assert found["name"] and found["took_s"] < 5


def test_recorded_hosts_file_is_enough_to_see_loopback() -> None:
    tree = MemoryTree()
    tree.add_file("/META.json", b'{"node": "gpu1"}')
    tree.add_file("/etc/hosts", b"127.0.0.1 localhost\n# 127.0.0.1 gpu1\n127.0.1.1 gpu1.example gpu1\n")
    found = collected("host-name", Recorded(tree))
    assert [entry["line"] for entry in found["hosts"]] == [3]
    (finding,) = judged("host-name", {"gpu1": {"host-name": found}})
    assert finding.status.value == "warn" and finding.source == "/etc/hosts line 3"


@pytest.mark.lab
def test_a_silent_name_server_does_not_hold_us_up() -> None:
    """`ip netns exec` puts /etc/netns/NAME/* over /etc: a name server on the other end of a link that drops everything."""
    needs_root()
    commands = [
        "link add eth0 type veth peer name far0",
        "addr add 10.77.9.1/24 dev eth0",
        "link set eth0 up",
        "link set far0 up",
        "neigh add 10.77.9.9 lladdr 02:00:00:00:00:09 dev eth0",
    ]
    with namespace("ncdiag-dns", commands) as name:
        folder = Path("/etc/netns") / name
        folder.mkdir(parents=True)
        try:
            (folder / "resolv.conf").write_text("nameserver 10.77.9.9\n")
            (folder / "hosts").write_text("127.0.0.1 localhost\n")
            (folder / "nsswitch.conf").write_text("hosts: files dns\n")
            found = facts_in(name, "host-name")
        finally:
            shutil.rmtree(folder)
    assert isinstance(found, dict)
    assert found["failed"] == "no-answer" and found["took_s"] < 3
    (finding,) = judged("host-name", {"a": {"host-name": found, "interfaces": LOCAL}})
    assert finding.cause == "dns-unresponsive" and "10.77.9.9" in (finding.remedy or "")


def test_gloo_is_told_its_interface() -> None:
    told: dict[str, Any] = {"environ": {"GLOO_SOCKET_IFNAME": "eth0"}, "reason": None, "absent": []}
    node = {"interfaces": LOCAL, "host-name": facts(addresses=["127.0.1.1"]), "framework-environment": told}
    (finding,) = judged("host-name", {"a": node})
    assert finding.status.value == "ok" and "GLOO_SOCKET_IFNAME=eth0" in finding.summary


@pytest.mark.parametrize(
    ("more", "typed"),
    [
        (("docker0=172.17.0.1/16",), "192.0.2.5 gpu1; or export GLOO_SOCKET_IFNAME=eth0"),
        (
            ("ib0=198.51.100.5/24",),
            "<one of 192.0.2.5, 198.51.100.5> gpu1; or export GLOO_SOCKET_IFNAME=<one of eth0, ib0>",
        ),
    ],
)
def test_the_remedy_names_the_address_that_was_read(more: tuple[str, ...], typed: str) -> None:
    local = interfaces("lo=127.0.0.1/8", "eth0=192.0.2.5/24", *more)
    for changes in ({"addresses": ["127.0.1.1"]}, {"addresses": None, "failed": "unknown-name", "error": "?"}):
        (finding,) = judged("host-name", {"a": {"host-name": facts(**changes), "interfaces": local}})
        assert (finding.remedy or "").endswith(typed)
