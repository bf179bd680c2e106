"""Facts and states from files: what fits its declaration is taken, what does not becomes one sentence and takes nothing else with it."""

from __future__ import annotations

import json
import random
import typing
from pathlib import Path
from typing import Any

import pytest

from ncdiag import registry
from ncdiag.collect import collect
from ncdiag.fleet import Request
from ncdiag.fleet.file import FileFleet
from ncdiag.host import Host, Recorded
from ncdiag.model import NodeFacts, Snapshot
from ncdiag.nccl.recommend import recommend
from ncdiag.shapes import fits, unlike
from ncdiag.tree import open_tree
from tests.env.clusters import two_nodes
from tests.hang_dump.test_bundle import changed
from tests.probes.smi import addresses, with_gpus

TREES = Path(__file__).parent.parent / "trees"
EVERYTHING = registry.load()
SOURCES = EVERYTHING.sources(EVERYTHING)
HOSTS = [*sorted(path.name for path in TREES.glob("*.tar.gz")), "live", "composed"]


def node_of(name: str) -> NodeFacts:
    if name == "live":
        return collect(Host(), SOURCES)
    if name == "composed":
        return collect(with_gpus(two_nodes()[0], addresses()).host(), SOURCES)
    return collect(Recorded(open_tree(str(TREES / name))), SOURCES)


@pytest.mark.parametrize("name", HOSTS)
def test_what_probes_collect_is_what_they_declare(name: str) -> None:
    node = node_of(name)
    for probe in SOURCES:
        if probe.id in node.facts:
            declared = typing.get_type_hints(probe.collect)["return"]
            assert unlike(json.loads(json.dumps(node.facts[probe.id])), declared) is None, probe.id
            assert fits(node.facts[probe.id], declared), probe.id


def judged_file(tmp_path: Path, nodes: dict[str, Any]) -> list[NodeFacts]:
    (tmp_path / "s.json").write_text(json.dumps({"schema": 1, "kind": "snapshot", "plan": {}, "nodes": nodes}))
    return FileFleet([str(tmp_path / "s.json")]).collect(Request(SOURCES), lambda node, what: None)


def saved_node() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(Snapshot({"a": node_of("composed")}).as_dict()))["nodes"]["a"]
    return found


def test_facts_of_another_ncdiag_are_unknown_and_the_rest_stays(tmp_path: Path) -> None:
    node = saved_node()
    node["facts"]["gpus"]["gpus"] = "eight"
    del node["facts"]["rdma-devices"]["devices"][0]["numa_node"]  # newer than that ncdiag, and may be unknown
    (read,) = judged_file(tmp_path, {"a": node})
    assert "gpus" not in read.facts and "gpus is 'eight'" in read.errors["gpus"]
    assert read.facts["rdma-devices"]["devices"][0]["numa_node"] is None and len(read.facts) > 20


@pytest.mark.parametrize("seed", range(12))
def test_facts_with_anything_in_them(tmp_path: Path, seed: int) -> None:
    """What env, topo and plan work out of a snapshot has no fence of its own."""
    dice, node = random.Random(seed), saved_node()
    node["facts"] = {name: changed(facts, dice) for name, facts in node["facts"].items()}
    nodes = judged_file(tmp_path, {"a": node, "b": saved_node()})
    recommend(Snapshot({node.node: node for node in nodes}))
