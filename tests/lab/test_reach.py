"""Reachability between namespace hosts over real sshd, with faults of the network made by the kernel."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ncdiag.drill.hosts import Lab, lab, usable
from ncdiag.drill.sshd import Ssh

ROOT = Path(__file__).parent.parent.parent
NODES = ("gpu01", "gpu02", "gpu03", "gpu04")
pytestmark = [
    pytest.mark.lab,
    pytest.mark.skipif(usable() is not None, reason=str(usable())),
    pytest.mark.skipif(
        shutil.which("sshd", path="/usr/sbin:/usr/bin") is None, reason="openssh-server is not installed"
    ),
    pytest.mark.skipif(shutil.which("nft", path="/usr/sbin:/usr/bin") is None, reason="nft is not installed"),
]
OPEN = "table inet lab { chain i { type filter hook input priority 0; tcp dport 22 accept; tcp flags & (syn | ack) != syn accept; %s; }; }"
"""New connections are what `%s` decides on; packets of those that this host began pass. Without connection tracking, which the kernel may lack."""


@pytest.fixture(scope="module")
def hosts() -> Iterator[tuple[Lab, Ssh]]:
    with lab("head", *NODES) as made:
        ssh = Ssh(made)
        for name in NODES:
            ssh.serve(made[name])
        yield made, ssh


def reach(hosts: tuple[Lab, Ssh], *extra: str, nodes: str = "gpu[01-04]", code: tuple[int, ...] = (0, 1, 3)) -> Any:
    made, ssh = hosts
    argv = [
        sys.executable,
        "-m",
        "ncdiag",
        "reach",
        "--nodes",
        f"ssh:{nodes}",
        "--ssh-config",
        str(ssh.config),
        "--format",
        "json",
        *extra,
    ]
    done = made["head"].run(*argv, env={"PYTHONPATH": str(ROOT)}, timeout_s=120)
    assert done.returncode in code, done.stderr
    return json.loads(done.stdout)


def concluded(result: Any) -> list[tuple[str, str | None, str | None]]:
    return [(finding["status"], finding["where"].get("node"), finding.get("cause")) for finding in result["findings"]]


def rules(host: Any, text: str) -> None:
    host.mount(f"nft flush ruleset; nft '{OPEN % text}'")


def test_all_reach_each_other_and_nothing_is_left(hosts: tuple[Lab, Ssh]) -> None:
    started = time.monotonic()
    result = reach(hosts, "--port", "29500")
    assert concluded(result) == [("ok", None, None)], result["findings"]
    assert (
        "6 of 6 pairs in 3 rounds" in result["findings"][0]["summary"] and "29500" in result["findings"][0]["summary"]
    )
    assert time.monotonic() - started < 40
    listening = hosts[0]["gpu01"].run("ss", "-ltnuH").stdout.splitlines()
    assert [line.split()[4] for line in listening if ":22" not in line] == []


def test_one_way_firewall_names_the_node_and_the_way(hosts: tuple[Lab, Ssh]) -> None:
    rules(hosts[0]["gpu03"], "drop")
    try:
        (finding,) = reach(hosts)["findings"]
    finally:
        hosts[0]["gpu03"].mount("nft flush ruleset")
    assert (finding["where"]["node"], finding["cause"], finding["observed"]["one_way"]) == (
        "gpu03",
        "bootstrap-blocked-firewall",
        True,
    )
    assert (
        "nobody reaches gpu03" in finding["summary"]
        and "dropped" in finding["summary"]
        and "what it sends arrives" in finding["summary"]
    )


def test_rejected_is_told_from_dropped(hosts: tuple[Lab, Ssh]) -> None:
    rules(hosts[0]["gpu03"], "meta l4proto tcp reject with tcp reset")
    try:
        (finding,) = reach(hosts)["findings"]
    finally:
        hosts[0]["gpu03"].mount("nft flush ruleset")
    assert finding["where"]["node"] == "gpu03" and "refused" in finding["summary"]


def test_single_link_one_way(hosts: tuple[Lab, Ssh]) -> None:
    rules(hosts[0]["gpu02"], f"ip saddr {hosts[0]['gpu04'].address} drop")
    try:
        (finding,) = reach(hosts)["findings"]
    finally:
        hosts[0]["gpu02"].mount("nft flush ruleset")
    assert finding["where"] == {"node": "gpu04", "device": "eth0", "peer": "gpu02"}
    assert "gpu04 cannot reach gpu02" in finding["summary"] and "the way back works" in finding["summary"]


def test_named_port_alone_is_blocked(hosts: tuple[Lab, Ssh]) -> None:
    rules(hosts[0]["gpu04"], "tcp dport 29500 drop")
    try:
        (finding,) = reach(hosts, "--port", "29500", "--port", "6379")["findings"]
    finally:
        hosts[0]["gpu04"].mount("nft flush ruleset")
    assert finding["where"]["node"] == "gpu04" and "port 29500" in finding["summary"]


def test_mtu_1500_among_9000_is_named(hosts: tuple[Lab, Ssh]) -> None:
    for name in NODES:
        hosts[0].link(name, mtu=9000)
    hosts[0]["gpu02"].mount("ip link set eth0 mtu 1500")
    try:
        found = reach(hosts)["findings"]
    finally:
        for name in NODES:
            hosts[0].link(name, mtu=1500)
    assert [(finding["where"]["node"], finding["cause"], finding["observed"]) for finding in found] == [
        ("gpu02", "mtu-mismatch", 1500)
    ], found


def test_path_that_swallows_large_packets(hosts: tuple[Lab, Ssh]) -> None:
    """The interfaces agree, a link in between does not: TCP comes up and then stands still."""
    chain = "type filter hook input priority 0; tcp dport 22 accept; meta length > 1000 drop;"
    hosts[0]["gpu01"].mount(f"nft flush ruleset; nft 'table inet lab {{ chain i {{ {chain} }}; }}'")
    try:
        found = reach(hosts)["findings"]
    finally:
        hosts[0]["gpu01"].mount("nft flush ruleset")
    assert {(finding["where"].get("node"), finding["cause"]) for finding in found} == {("gpu01", "mtu-mismatch")}, found


def test_node_that_cannot_be_reached_does_not_stop_the_others(hosts: tuple[Lab, Ssh]) -> None:
    result = reach(hosts, nodes="gpu[01-02,09]")
    assert ("ok", None, None) in concluded(result)
    lost = [finding for finding in result["findings"] if finding["where"].get("node") == "gpu09"]
    assert [finding["status"] for finding in lost] == ["unknown"] and result["exit"] == 3, result["findings"]


def test_chosen_sets_are_tested_fully_and_nothing_else(hosts: tuple[Lab, Ssh]) -> None:
    rules(hosts[0]["gpu02"], f"ip saddr {hosts[0]['gpu04'].address} drop")
    try:
        found = [
            reach(hosts, "--between", *sets)["findings"] for sets in (("gpu01", "gpu[02-04]"), ("gpu04", "gpu[01-02]"))
        ]
    finally:
        hosts[0]["gpu02"].mount("nft flush ruleset")
    assert [finding["status"] for finding in found[0]] == ["ok"] and "3 of 3 pairs in 3 rounds" in found[0][0][
        "summary"
    ]
    assert [(finding["where"].get("node"), finding["where"].get("peer")) for finding in found[1]] == [
        ("gpu04", "gpu02")
    ]


def test_few_rounds_say_what_they_can_miss_and_all_pairs_do_not(hosts: tuple[Lab, Ssh]) -> None:
    (short,) = reach(hosts, "--budget", "2.5")["findings"]
    assert "2 of 6 pairs in 1 rounds" in short["summary"] and "--pairs all" in short["summary"], short
    (whole,) = reach(hosts, "--budget", "2.5", "--pairs", "all")["findings"]
    assert "6 of 6 pairs in 3 rounds" in whole["summary"] and "can be missed" not in whole["summary"], whole


def test_a_set_that_names_no_node_is_one_line(hosts: tuple[Lab, Ssh]) -> None:
    made, ssh = hosts
    argv = [
        sys.executable,
        "-m",
        "ncdiag",
        "reach",
        "--nodes",
        "ssh:gpu[01-02]",
        "--ssh-config",
        str(ssh.config),
        "--between",
        "gpu01",
        "gpu07",
    ]
    done = made["head"].run(*argv, env={"PYTHONPATH": str(ROOT)}, timeout_s=60)
    assert done.returncode == 2 and "gpu07 is none of the nodes under test, which are gpu[01-02]" in done.stderr, (
        done.stderr
    )
