"""Reachability between namespace hosts over real sshd, with faults of the network made by the kernel."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
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
LISTENER = (
    "import socket\ns = socket.create_server(('{address}', 22))\nkeep = []\nwhile True:\n    keep.append(s.accept())\n"
)
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


@pytest.fixture(scope="module")
def mixed(hosts: tuple[Lab, Ssh]) -> Iterator[tuple[Lab, Ssh]]:
    """bad01 accepts and says nothing, bad02 has another key, bad03 has no sshd, bad04 prints garbage, bad05 does not want us."""
    with lab("head", "gpu01", "gpu02", "bad01", "bad02", "bad03", "bad04", "bad05") as made:
        ssh = Ssh(made)
        ssh.serve(made["gpu01"])
        ssh.serve(made["gpu02"])
        made["bad01"].start(sys.executable, "-c", LISTENER.format(address=made["bad01"].address))
        ssh.serve(made["bad02"], known=False)
        ssh.serve(made["bad04"], extra="ForceCommand echo nothing but this")
        ssh.serve(made["bad05"], extra="PubkeyAuthentication no")
        yield made, ssh


def test_nodes_that_cannot_take_part_are_named_and_the_others_tested(mixed: tuple[Lab, Ssh]) -> None:
    started = time.monotonic()
    result = reach(mixed, "--timeout", "15", nodes="gpu[01-02],bad[01-05],gone", code=(3,))
    assert time.monotonic() - started < 45
    told = {finding["where"].get("node"): (finding["status"], finding["summary"]) for finding in result["findings"]}
    for node, words in {
        "bad01": "no SSH server spoke at the end of the way there", "bad02": "Host key verification failed", "bad03": "Connection refused",
        "bad04": "its output holds no facts", "bad05": "Permission denied", "gone": "gone",
    }.items():  # fmt: skip
        assert told[node][0] == "unknown" and words in told[node][1], told[node]
    assert told[None][0] == "ok" and "1 of 1 pair" in told[None][1]
    assert len(result["findings"]) == 7 and result["exit"] == 3


def test_no_pair_is_left_to_test(mixed: tuple[Lab, Ssh]) -> None:
    result = reach(mixed, "--timeout", "15", nodes="gpu01,bad[03-04]", code=(3,))
    assert [finding["status"] for finding in result["findings"]] == ["unknown"] * 4
    assert result["findings"][-1]["summary"] == "no pair of nodes was tested: gpu01 can take part"
    between = reach(mixed, "--timeout", "15", "--between", "gpu01", "bad03", nodes="gpu[01-02],bad03", code=(3,))
    assert {finding["where"].get("node") for finding in between["findings"]} == {"gpu01", "bad03", None}


def test_an_interface_that_is_not_there_is_said_with_those_that_are(mixed: tuple[Lab, Ssh]) -> None:
    result = reach(mixed, "--interface", "ib7", nodes="gpu[01-02]", code=(3,))
    assert "it has no address on ib7; there is eth0 (10.77." in result["findings"][0]["summary"]


def test_preflight_with_reach_keeps_what_it_found(mixed: tuple[Lab, Ssh]) -> None:
    made, ssh = mixed
    argv = [sys.executable, "-m", "ncdiag", "preflight", "--reach", "--only", "shm", "--nodes", "ssh:gpu[01-02],bad03", "--ssh-config",
            str(ssh.config), "--format", "json"]  # fmt: skip
    done = made["head"].run(*argv, env={"PYTHONPATH": str(ROOT)}, timeout_s=90)
    result = json.loads(done.stdout)
    assert done.returncode == result["exit"] == 3
    assert {finding["probe"] for finding in result["findings"]} == {"node", "shm", "reach"}
    assert [finding["status"] for finding in result["findings"] if finding["probe"] == "reach"] == ["unknown", "ok"]


@pytest.mark.parametrize("argv, words", [
    (["--nodes", "ssh:gpu[01-02]", "--between", "gpu01", "gpu07"], "--between: gpu07 is none of the nodes under test, which are gpu[01-02]"),
    (["--nodes", "ssh:gpu[01-02]", "--between", "gpu01", "gpu01"], "--between: gpu01 and gpu01 have no pair of two different nodes"),
    (["--nodes", "ssh:gpu[01-02]", "--between", "gpu[1", "gpu01"], "--between gpu[1: missing bracket"),
    (["--nodes", "ssh:gpu01"], "--nodes names gpu01"),
    (["--nodes", "local"], "reachability is tested between several live nodes"),
    (["--nodes", "file:nodes.json"], "reachability is tested between several live nodes"),
])  # fmt: skip
def test_mistakes_are_told_before_any_node_is_asked(argv: list[str], words: str) -> None:
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "ncdiag", "reach", *argv],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 2 and words in done.stderr and time.monotonic() - started < 8, done.stderr


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
    assert "2 of 6 pairs in 1 round" in short["summary"] and "--pairs all" in short["summary"], short
    (whole,) = reach(hosts, "--budget", "2.5", "--pairs", "all")["findings"]
    assert "6 of 6 pairs in 3 rounds" in whole["summary"] and "can be missed" not in whole["summary"], whole
