"""Every probe keeps the contract: documented, named after its file, plain facts on a bare machine, a conclusion on nothing."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest

from ncdiag import registry
from ncdiag.check import check
from ncdiag.collect import collect
from ncdiag.host import Host, Recorded
from ncdiag.model import NodeFacts, Probe, Snapshot, Status
from ncdiag.tree import MemoryTree, open_tree

ROOT = Path(__file__).parent.parent
PROBES = registry.load()
TREES = sorted((ROOT / "tests" / "trees").glob("*.tar.gz"))


def _source(probe: Probe) -> str:
    return (ROOT / "probes" / (probe.id.replace("-", "_") + ".py")).read_text()


def test_every_file_is_a_probe() -> None:
    assert PROBES and not PROBES.broken


@pytest.mark.parametrize("probe", PROBES.values(), ids=list(PROBES))
def test_is_documented(probe: Probe) -> None:
    docstring = ast.get_docstring(ast.parse(_source(probe))) or ""
    assert len(docstring) > 80, "say what must hold and why it matters"
    assert re.search(r"^Sources?: \S", docstring, re.M), "name the source"
    assert probe.title


@pytest.mark.parametrize("probe", PROBES.values(), ids=list(PROBES))
def test_has_a_test(probe: Probe) -> None:
    assert (ROOT / "tests" / "probes" / f"test_{probe.id.replace('-', '_')}.py").is_file()


@pytest.mark.parametrize("probe", PROBES.values(), ids=list(PROBES))
def test_its_needs_exist(probe: Probe) -> None:
    assert set(probe.needs) <= set(PROBES)


@pytest.mark.parametrize("probe", PROBES.values(), ids=list(PROBES))
def test_concludes_on_an_empty_snapshot(probe: Probe) -> None:
    findings = check(Snapshot(), PROBES.chosen([probe.id]))
    assert probe.judge is None or findings
    assert all(finding.status in (Status.UNKNOWN, Status.SKIP) for finding in findings), "nothing was read"


@pytest.mark.parametrize("probe", PROBES.values(), ids=list(PROBES))
def test_bare_machine_is_not_healthy(probe: Probe) -> None:
    node = collect(Recorded(MemoryTree(), "bare"), PROBES.sources([probe.id]))
    json.dumps(node.facts)
    assert not any("Error" in reason.split(":")[0] for reason in node.errors.values()), node.errors
    findings = check(Snapshot({"bare": node}), PROBES.chosen([probe.id]))
    assert not [finding for finding in findings if finding.status is Status.OK], "ok without having read anything"
    assert not [finding for finding in findings if "broke while judging" in finding.summary]


@pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.name)
def test_every_probe_on_every_tree(tree: Path) -> None:
    node = collect(Recorded(open_tree(str(tree)), tree.name), PROBES.sources(PROBES))
    assert not any("Error" in reason.split(":")[0] for reason in node.errors.values()), node.errors
    findings = check(Snapshot({node.node: node}), PROBES)
    assert not [finding for finding in findings if "broke while judging" in finding.summary]
    for finding in findings:
        json.dumps(finding.as_dict())
        if finding.status in (Status.WARN, Status.FAIL):
            assert finding.source and finding.cause and finding.remedy, finding


def test_live_machine_leaves_no_probe_unaccounted() -> None:
    node = collect(Host(), PROBES.sources(PROBES))
    findings = check(Snapshot({node.node: node}), PROBES)
    judging = {probe.id for probe in PROBES.values() if probe.judge is not None}
    assert judging <= {finding.probe for finding in findings}
    assert not [finding for finding in findings if "broke while judging" in finding.summary]


def test_causes_have_playbooks() -> None:
    named = {slug for probe in PROBES.values() for slug in re.findall(r"cause=[\"']([a-z0-9-]+)[\"']", _source(probe))}
    missing = sorted(slug for slug in named if not (ROOT / "playbooks" / f"{slug}.yaml").is_file())
    assert not missing


def test_node_that_answered_nothing_is_unknown() -> None:
    lost = NodeFacts("gpu07", unreachable="timed out after 10 s")
    findings = check(Snapshot({"gpu07": lost}), PROBES)
    assert any(finding.probe == "node" and finding.status is Status.UNKNOWN for finding in findings)
    assert not [finding for finding in findings if finding.status is Status.OK]
