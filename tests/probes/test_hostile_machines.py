"""Broken, hostile and half-readable machines: the RDMA and GPU probes never raise, and never call one healthy that gave nothing."""

from __future__ import annotations

import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.model import NodeFacts, Snapshot
from ncdiag.nccl.recommend import recommend
from tests.probes.machines import Machine, eight_rails
from tests.probes.smi import addresses, with_gpus

CONCERNED = re.compile(r"(rdma|roce|verbs|gpu|nvlink|pci|numa|acs)")
EVERYTHING = registry.load()
CHOSEN = EVERYTHING.chosen([name for name in EVERYTHING if CONCERNED.match(name)])
SOURCES = EVERYTHING.sources(CHOSEN)

NASTY = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"",
            b"-1",
            b"9" * 400,
            b"0x",
            b"N/A",
            b"\0",
            b"Unknown",
            b"4: ACTIVE",
            b"a\nb\nc",
            b"1e400",
            b"0000:0000",
            b"\xff\xfe",
        ]
    ),
)


def full() -> Machine:
    machine = with_gpus(eight_rails(), addresses())
    machine.card(
        "mlx5_8", "0000:60:00.0", layer="Ethernet", netdev="eth0", board="MT_0000000359", rate="100 Gb/sec (4X EDR)"
    )
    machine.counter("mlx5_8", "link_downed", 3)
    machine.file("/proc/cpuinfo", "flags : fpu\n").file("/proc/uptime", "1000.0 1\n")
    return machine.command("dmesg", "NVRM: Xid (PCI:0000:13:00): 79, x\n")


PATHS = sorted(path for path in full().tree.files if path != "/META.json")


def accounted(node: NodeFacts) -> None:
    broken = [reason for reason in node.errors.values() if "Error" in reason.split(":")[0]]
    assert not broken, broken
    snapshot = Snapshot({"a": node, "b": node})
    for finding in check(snapshot, CHOSEN):
        assert "broke while judging" not in finding.summary, finding.summary
    recommend(snapshot)


@pytest.mark.parametrize(
    "text", [b"\0", b"", b"nan 1", b"inf 1", b"-5.0 1", b"1.2.3 4", b"9" * 400, "\u0663 1".encode()]
)
def test_an_uptime_that_is_none(text: bytes) -> None:
    machine = full().file("/proc/uptime", "1000.0 1\n")
    machine.tree.files["/proc/uptime"] = text
    node = collect(machine.host(), SOURCES)
    accounted(node)
    assert node.facts["rdma-counters"]["uptime_s"] is None


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(PATHS), NASTY, max_size=25))
def test_files_with_anything_in_them(changes: dict[str, bytes]) -> None:
    machine = full()
    machine.tree.files.update(changes)
    accounted(collect(machine.host(), SOURCES))


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(PATHS), st.sampled_from([1, 5, 13, 19, 22]), max_size=60))
def test_files_that_cannot_be_read(errors: dict[str, int]) -> None:
    machine = full()
    machine.meta["errors"] = errors
    accounted(collect(machine.host(), SOURCES))


def test_machine_that_only_has_folders() -> None:
    machine = full()
    for path in list(machine.tree.files):
        machine.tree.files[path] = b""
    node = collect(machine.host(), SOURCES)
    accounted(node)
    assert not [finding for finding in check(Snapshot({"a": node}), CHOSEN) if finding.status.value == "ok"]
