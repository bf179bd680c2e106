"""Topologies, graphs and communicators that real NCCL wrote down: read, and compared with what NCCL itself says of them."""

from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest

from ncdiag.nccl.graph_xml import parse_graphs
from ncdiag.nccl.log import NcclLog
from ncdiag.nccl.log_facts import NcclFacts
from ncdiag.nccl.paths import Paths
from ncdiag.nccl.rules import rules_for
from ncdiag.nccl.settings import settings_from
from ncdiag.nccl.topology_xml import parse_topology
from tests.gpu.captures import LOGS

VERSION = (2, 28, 9)
DUMPED = sorted(file.parent.name for file in LOGS.glob("*/topology.xml"))
DISTANCES = sorted(
    file.parent.name
    for file in LOGS.glob("*/rank0.log.gz")
    if b"=== System" in gzip.decompress(file.read_bytes()) and (file.parent / "topology.xml").exists()
)
_ROW = re.compile(r"NCCL INFO GPU/(\S+) :(.*)$", re.M)
_CELL = re.compile(r"(GPU|NET)/(\S+) \(\d+/[\d.]+/(\w+)\)")


def paths(case: str) -> Paths:
    rules, environ = rules_for(VERSION), {"NCCL_P2P_DISABLE": "1"} if case == "healthy-shm" else {}
    return Paths(
        parse_topology((LOGS / case / "topology.xml").read_text()), rules, settings_from(environ, rules).settings
    )


@pytest.mark.parametrize("case", DISTANCES)
def test_distances_are_those_that_nccl_prints(case: str) -> None:
    """Its table counts GPUs by bus number and NICs by number, in the order of the dump."""
    found = paths(case)
    gpus, nets = found.system.of("GPU"), found.system.of("NET")
    rows = _ROW.findall(gzip.decompress((LOGS / case / "rank0.log.gz").read_bytes()).decode())
    assert len(rows) >= len(gpus)
    for gpu, (_, cells) in zip(gpus, rows[: len(gpus)], strict=True):
        told: dict[str, list[str]] = {"GPU": [], "NET": []}
        for kind, _, distance in _CELL.findall(cells):
            told[kind].append(distance)
        assert [found.gpu_gpu[gpu][other].kind for other in gpus] == told["GPU"]
        assert [found.nearest[gpu][net].kind for net in nets] == told["NET"]


@pytest.mark.parametrize("case", DUMPED)
def test_graphs_have_the_channels_of_the_log(case: str) -> None:
    file = LOGS / case / "graph.xml"
    if not file.exists():
        pytest.skip("NCCL wrote no graph")
    graphs = parse_graphs(file.read_text()).graphs
    ring = next(graph for graph in graphs if graph.name == "ring")
    assert ring.channels > 0 and len(ring.orders) == ring.channels
    channels = {rank.coll_channels for comm in facts(LOGS / case).communicators for rank in comm.ranks} - {None}
    assert all(count is not None and count % ring.channels == 0 for count in channels)


def facts(folder: Path) -> NcclFacts:
    parser = NcclLog()
    for file in sorted(folder.glob("*.log.gz")):
        parser.feed(file.name, gzip.decompress(file.read_bytes()))
        parser.end(file.name)
    return parser.finish()


@pytest.mark.parametrize(
    ("case", "ranks", "hosts", "links"),
    [
        ("healthy-p2p", 2, 1, {"P2P/CUMEM"}),
        ("healthy-shm", 2, 1, {"SHM/direct/direct"}),
        ("healthy-sockets", 2, 2, {"NET/Socket"}),
        ("healthy-one-gpu", 2, 2, {"NET/Socket"}),
        ("healthy-eight", 8, 4, {"NET/Socket", "P2P/CUMEM"}),
        ("healthy-all-subsystems", 4, 2, {"NET/Socket", "P2P/CUMEM"}),
    ],
)
def test_communicators(case: str, ranks: int, hosts: int, links: set[str]) -> None:
    found = facts(LOGS / case)
    (comm,) = found.communicators
    assert comm.nranks == len(comm.ranks) == ranks and not comm.missing and not comm.culprits
    assert {rank.stage for rank in comm.ranks} == {"complete"} and {rank.node for rank in comm.ranks} == {
        f"node{number}" for number in range(hosts)
    }
    assert set(comm.transports) == links
    assert found.versions == ["2.28.9"]


@pytest.mark.parametrize(
    ("case", "missing"),
    [("late-first-collective", [1]), ("late-first-collective-of-four", [2]), ("stopped-in-bootstrap", [1])],
)
def test_the_rank_without_a_line_is_named(case: str, missing: list[int]) -> None:
    (comm,) = facts(LOGS / case).communicators
    assert comm.missing == missing
