"""A real machine: two H200 joined by NVLink in a virtual machine without RDMA, driver 580 (open modules), as recorded there.

Only what the GPU probes read was kept; serial numbers and UUIDs are replaced.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Recorded
from ncdiag.model import Finding, Plan, Snapshot
from ncdiag.nccl.topology_live import build
from ncdiag.tree import open_tree

TREE = Path(__file__).parent.parent / "trees" / "two-h200-nvlink-vm.tar.gz"
PROBES = registry.load()


def findings(probe: str, plan: Plan | None = None) -> list[Finding]:
    node = collect(Recorded(open_tree(str(TREE))), PROBES.sources([probe]))
    return check(Snapshot({"gpu-node": node}, plan or Plan()), PROBES.chosen([probe]))


@pytest.mark.parametrize(("probe", "status", "words"), [
    ("gpu-health", "ok", "2 x NVIDIA H200, driver 580.159.04"),
    ("gpu-clocks", "ok", "2 GPUs, none held down"),
    ("gpu-p2p", "ok", "4 directions"),
    ("gpu-xid", "ok", "no Xid"),
    ("nvlink-fabric", "ok", "2 GPUs with 18 links, all active"),
    ("pcie-link", "ok", "2 PCIe links"),
    ("acs-iommu", "skip", "virtual machine"),
    ("numa-affinity", "skip", "virtual machines"),
    ("gpudirect", "skip", "no RDMA device"),
    ("rdma-port", "skip", "NCCL will use sockets"),
    ("roce-gid", "skip", "no RoCE port"),
    ("verbs-access", "skip", "no RDMA device"),
])  # fmt: skip
def test_what_the_probes_say(probe: str, status: str, words: str) -> None:
    (finding,) = [one for one in findings(probe) if "could not be read" not in one.summary]
    assert finding.status.value == status and words in finding.summary, finding


def test_the_facts() -> None:
    node = collect(Recorded(open_tree(str(TREE))), [PROBES["gpus"], PROBES["pci-devices"], PROBES["rdma-devices"]])
    gpus = node.facts["gpus"]["gpus"]
    assert [(one["busid"], one["sm"], one["mig"], one["compute_mode"], one["ecc"]) for one in gpus] == [
        ("0000:00:06.0", 90, False, "Default", True), ("0000:00:07.0", 90, False, "Default", True),
    ]  # fmt: skip
    assert node.facts["gpus"]["cuda"] == "13.0" and node.facts["gpus"]["driver"] == "580.159.04"
    topology = build(node.facts["pci-devices"], node.facts["rdma-devices"], node.facts["gpus"], {})
    assert [gpu.nvlinks[0].count for gpu in topology.gpus()] == [18, 18]


def test_more_ranks_than_gpus() -> None:
    bad = [one for one in findings("gpu-health", Plan(tp=8)) if one.status.value == "fail"]
    assert [one.summary for one in bad] == ["2 GPUs on 1 node, the plan has 8 ranks"]
