"""Real RoCE in a virtual machine: the GID index that NCCL takes, by ncdiag's word, carries a connection; those it calls broken do not.

One machine is started, goes through all set-ups (about a minute without KVM), and everything is judged here from what it left.
"""

from __future__ import annotations

import fcntl
import ipaddress
import json
import os
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest

from ncdiag import payload, registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import Finding, NodeFacts, Plan, Snapshot
from ncdiag.nccl import gid
from ncdiag.nccl.recommend import recommend
from ncdiag.reach import targets
from ncdiag.reach.judge import judge
from ncdiag.reach.seen import Member, Run
from ncdiag.tree import open_tree
from tests.lab.vm import initramfs, machine
from tests.lab.vm.kernel import NotHere, fetch

pytestmark = [pytest.mark.lab, pytest.mark.timeout(900)]  # the kernel is downloaded first, and the machine has 540 s

SETUPS = (
    "one-address-each", "ipv6-before-ipv4", "uneven", "ipv6-only", "an-address-taken-away", "ipv6-disabled", "link-local-only",
    "router-between", "port-down",
)  # fmt: skip
PROBES = registry.load()


class Lab:
    """What the machine left."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.result: dict[str, Any] = json.loads((folder / "result.json").read_text())

    def setup(self, name: str) -> dict[str, Any]:
        told: dict[str, Any] = self.result["setups"][name]
        assert "broke" not in told, told["broke"]
        return told

    def snapshot(self, name: str, version: str | None = None) -> Snapshot:
        """The set-up's recorded tree, read and judged here."""
        host = Recorded(open_tree(str(self.folder / f"{name}.tar.gz")))
        node = collect(host, PROBES.sources(PROBES))
        return Snapshot({name: node}, Plan(nccl_version=version))

    def tables(self, name: str) -> dict[str, list[gid.Gid]]:
        facts = self.snapshot(name).facts(name, "roce-gid")
        return {table["device"]: gid.from_facts(table["entries"]) for table in facts}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    missing = initramfs.missing()
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    kept = Path(os.environ.get("NCDIAG_LAB_VM") or Path(tempfile.gettempdir()) / f"ncdiag-lab-vm-{os.getuid()}")
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "machine"
    folder.mkdir(exist_ok=True)
    with open(folder / "lock", "w") as lock:  # one machine for all workers: the others wait for what it leaves
        fcntl.flock(lock, fcntl.LOCK_EX)
        out = folder / "out"
        if not out.exists():
            try:
                machine.run(folder, fetch(kept))
            except NotHere as reason:
                shutil.rmtree(out, ignore_errors=True)
                pytest.skip(str(reason))
    assert (out / "result.json").exists(), (out / "log").read_text() if (out / "log").exists() else "no log"
    return Lab(out)


@pytest.mark.parametrize("name", SETUPS)
def test_the_index_taken_is_where_the_kernel_and_libibverbs_have_the_address(lab: Lab, name: str) -> None:
    """Held against `ip addr` and `ibv_devinfo`, which know nothing of ncdiag's reading."""
    told = lab.setup(name)
    listed = _devinfo(told["devinfo"])
    for device, table in lab.tables(name).items():
        assert {one.index: int(one.address) for one in table if not one.empty} == listed[device]
        choice = gid.choose(table, "Ethernet", {})
        own = _ipv4(told["addresses"], "veth" + device[-1])
        if own:
            assert choice.gid is not None and choice.gid.ipv4 == own and choice.gid.roce == 2
            assert choice.problems == []
        else:
            assert choice.problems, "without an IPv4 address the newest NCCL takes what reaches no other network"
        assert choice.index == told["taken"][int(device[-1])]


def _devinfo(text: str) -> dict[str, dict[int, int]]:
    """Device -> index -> GID, as `ibv_devinfo -v` lists them."""
    found: dict[str, dict[int, int]] = {}
    device = ""
    for line in text.splitlines():
        if match := re.match(r"hca_id:\s*(\S+)", line):
            device = match.group(1)
            found[device] = {}
        elif match := re.match(r"\s*GID\[\s*(\d+)\]:\s*([0-9a-fA-F:.]+)", line):
            found[device][int(match.group(1))] = int(ipaddress.IPv6Address(match.group(2).rstrip(",")))
    return found


def _ipv4(addresses: list[dict[str, Any]], link: str) -> ipaddress.IPv4Address | None:
    own = [
        one["local"]
        for entry in addresses
        if entry.get("ifname") == link
        for one in entry["addr_info"]
        if one["family"] == "inet"
    ]
    return ipaddress.IPv4Address(own[0]) if own else None


@pytest.mark.parametrize("name", SETUPS)
def test_connections_end_as_ncdiag_says(lab: Lab, name: str) -> None:
    """Every pair of indexes that was tried with ibv_rc_pingpong and ib_write_bw."""
    tables = lab.tables(name)
    for tried in lab.setup(name)["connections"]:
        ends = [
            gid.choose(tables[device], "Ethernet", {"NCCL_IB_GID_INDEX": str(index)})
            for device, index in zip(("rxe0", "rxe1"), tried["indexes"], strict=True)
        ]
        sound = not any(end.problems for end in ends) and len({end.gid.family for end in ends if end.gid}) == 1
        on_one_link = name in ("ipv6-only", "link-local-only") and all(end.gid and end.gid.link_local for end in ends)
        if name == "port-down":
            assert not tried["worked"], tried
        elif on_one_link:
            assert tried["worked"], (tried, "link-local addresses reach what is on the same link, and nothing else")
        else:
            assert tried["worked"] == sound, (tried, [end.problems for end in ends])


def test_both_kinds_were_tried(lab: Lab) -> None:
    every = [tried for name in SETUPS for tried in lab.setup(name)["connections"]]
    assert {(tried["tool"], tried["worked"]) for tried in every} == {
        ("ibv_rc_pingpong", True), ("ibv_rc_pingpong", False), ("ib_write_bw", True), ("ib_write_bw", False),
    }  # fmt: skip
    assert len(every) >= 20


@pytest.mark.parametrize("name, expected", [
    ("one-address-each", "1"), ("ipv6-before-ipv4", "2"), ("an-address-taken-away", "2"), ("ipv6-disabled", "1"),
    ("router-between", "1"), ("uneven", None), ("link-local-only", None),
])  # fmt: skip
def test_the_index_to_set_for_an_old_nccl_works(lab: Lab, name: str, expected: str | None) -> None:
    """No single index is right where the ports differ, and none where there is no address."""
    advice = {one.name: one.value for one in recommend(lab.snapshot(name, "2.20.5"))}
    assert advice.get("NCCL_IB_GID_INDEX") == expected
    if expected:
        pair = [int(expected)] * 2
        assert all(tried["worked"] for tried in lab.setup(name)["connections"] if tried["indexes"] == pair)
    assert "NCCL_IB_GID_INDEX" not in {one.name for one in recommend(lab.snapshot(name, "2.27.3"))}


def test_ipv6_alone_is_told_to_nccl(lab: Lab) -> None:
    (advice,) = (one for one in recommend(lab.snapshot("ipv6-only", "2.27.3")) if one.name == "NCCL_IB_ADDR_FAMILY")
    assert advice.value == "AF_INET6"
    for table in lab.tables("ipv6-only").values():
        choice = gid.choose(table, "Ethernet", {"NCCL_IB_ADDR_FAMILY": "AF_INET6"})
        assert choice.index == 1 and choice.problems == []
    assert any(tried["worked"] for tried in lab.setup("ipv6-only")["connections"] if tried["indexes"] == [1, 1])


def _findings(lab: Lab, name: str, probe: str) -> list[Finding]:
    return check(lab.snapshot(name, "2.27.3"), PROBES.chosen([probe]))


@pytest.mark.parametrize("name, status", [
    ("one-address-each", "ok"), ("router-between", "ok"), ("ipv6-disabled", "ok"), ("link-local-only", "warn"), ("ipv6-only", "warn"),
])  # fmt: skip
def test_what_the_probe_says_of_the_tables(lab: Lab, name: str, status: str) -> None:
    findings = _findings(lab, name, "roce-gid")
    assert max((finding.status for finding in findings), key=lambda one: one.severity).value == status, findings


def test_a_port_that_is_down_is_seen(lab: Lab) -> None:
    bad = [finding for finding in _findings(lab, "port-down", "rdma-port") if finding.status.severity > 1]
    assert bad and all(finding.where.get("device", "").startswith("rxe0") for finding in bad), bad
    assert all(finding.status.severity <= 1 for finding in _findings(lab, "one-address-each", "rdma-port"))


def test_the_payload_ran_there(lab: Lab) -> None:
    """The zip as it goes to nodes, by `python3 -S -I`: the same tables, and no probe that broke."""
    node = NodeFacts(**json.loads(payload.unwrap("\n" + lab.result["payload"])))
    assert [(table["device"], table["entries"]) for table in node.facts["roce-gid"]] == [
        (table["device"], table["entries"])
        for table in lab.snapshot("one-address-each").facts("one-address-each", "roce-gid")
    ]
    assert not [why for why in node.errors.values() if why.partition(":")[0].endswith("Error")], node.errors


def test_a_table_that_moves_is_seen(lab: Lab) -> None:
    """Real addresses come and go on rxe0's link while its table is read; rxe1's stays."""
    moving, still = lab.result["moving"]
    assert moving and not still


def _reach(lab: Lab, name: str, lanes: tuple[int, ...]) -> list[Finding]:
    """What `ncdiag reach` concludes from what the two agents told of these lanes."""
    told = lab.result["reach"][name]
    request = told["request"]
    members = [Member(node["hostname"], node["hostname"], node["address"], node["mtu"], f"veth{number}", 0.0, node["rdma"])
               for number, node in enumerate(request["nodes"])]  # fmt: skip
    reports = {}
    for report in told["reports"]:
        kept = [one for one in report["tests"] if not one[2].startswith("rdma") or int(one[2].split()[1]) in lanes]
        reports[report["number"]] = {**report, "tests": kept}
    assert sorted(reports) == [0, 1] and told["left"] == [0, 0]
    return list(judge(Run("NCCL", members, request, reports)))


def test_reach_over_rdma_broke_nowhere(lab: Lab) -> None:
    assert "broke" not in lab.result["reach"], lab.result["reach"]["broke"]


def test_rdma_between_sound_ports_is_ok_on_the_ports_that_reach_would_choose(lab: Lab) -> None:
    (finding,) = _reach(lab, "healthy", (0,))
    assert finding.status.value == "ok" and "RDMA on 1 pair" in finding.summary, finding
    tried = [node["rdma"][0] for node in lab.result["reach"]["healthy"]["request"]["nodes"]]
    assert targets.rdma_ports(lab.snapshot("one-address-each"), "one-address-each") == tried


@pytest.mark.parametrize("lane, words", [
    (1, ("Invalid argument (errno 22)", "do not fit together")), (2, ("No data available (errno 61)", "rxe0:1 (GID index 5)", "on host0")),
])  # fmt: skip
def test_a_wrong_gid_is_told_from_a_path(lab: Lab, lane: int, words: tuple[str, ...]) -> None:
    (finding,) = _reach(lab, "healthy", (lane,))
    assert finding.cause == "roce-gid-wrong" and all(word in finding.summary for word in words), finding


def test_udp_4791_blocked_one_way_is_seen_in_that_direction(lab: Lab) -> None:
    """TCP passes, and so does what the other side sends, though its acknowledgements are lost."""
    (finding,) = _reach(lab, "one-way", (0,))
    assert (finding.cause, finding.observed["one_way"]) == ("ib-path-unreachable", True)
    assert "RDMA from host0 to host1 fails" in finding.summary and "transport retry counter exceeded" in finding.summary
    assert "the way back carries data" in finding.summary and "4791" in str(finding.remedy)


def test_a_switch_that_drops_large_packets_of_rdma(lab: Lab) -> None:
    """Both ports have MTU 4096, TCP is not affected (its packets do not go through that switch here)."""
    (finding,) = _reach(lab, "switch-mtu", (0,))
    assert finding.cause == "mtu-mismatch" and "64 bytes arrives" in finding.summary
