"""Every cause has a playbook, and every playbook holds: links, steps, probes, commands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from ncdiag import registry
from ncdiag.cli import COMMANDS
from ncdiag.playbook.commands import refusal
from ncdiag.playbook.lint import lint
from ncdiag.playbook.loader import load, names
from ncdiag.playbook.schema import ProbeStep, RemedyStep, RunStep

ROOT = Path(__file__).parents[2]
PROBES = registry.load()

_CAUSES = """
socket-ifname-wrong hostname-resolves-to-loopback node-ip-wrong-interface bootstrap-blocked-firewall bootstrap-peer-unreachable
port-in-use dns-unresponsive mtu-mismatch clock-skew rank-missing rank-died rank-layout-wrong duplicate-gpu stale-process
launcher-transport killed-by-scheduler
rdma-unavailable net-fallback-slow net-plugin-forced-unavailable net-plugin-incompatible ib-path-unreachable ib-link-or-hca-fault
ib-qp-setup-failed roce-gid-wrong roce-over-bond roce-lossless-missing mixed-hca-fabrics hca-mismatch-between-nodes gdr-disabled
memlock-limit rdma-memory-registration
p2p-broken container-isolation nvls-multicast-failure fabric-manager-not-running imex-unavailable shm-too-small cumem-failure
topology-file-error driver-library-missing driver-too-old visible-devices-conflict pcie-degraded gpu-throttled ptrace-denied
nccl-version-mismatch ray-version-mismatch version-mismatch framework-version-bug env-unknown-or-invalid
ray-resources-infeasible ray-placement-group-leaked ray-driver-without-gpu ray-nested-environment ray-node-lost
ray-gcs-unreachable host-memory-oom disk-full
kv-cache-no-memory max-len-exceeds-kv-cache gpu-memory-occupied gpu-memory-exhausted gpu-memory-fragmented tp-not-dividing
parallel-size-mismatch model-path-missing weights-corrupt storage-slow dtype-conflict
collective-desync rank-stuck-outside-collective rank-stopped slow-load-peer-timeout engine-exception cuda-illegal-memory-access
gpu-hardware-fault gpu-ecc-row-remap nvswitch-error
healthy slow-not-hung unresolved
"""
CAUSES = _CAUSES.split()


def test_every_cause_has_a_playbook() -> None:
    assert not set(CAUSES) - set(names())


def test_every_cause_that_the_code_names_has_a_playbook() -> None:
    pattern = re.compile(r"cause=\"([a-z0-9-]+)\"")
    sources = [*(ROOT / "probes").glob("*.py"), *(ROOT / "ncdiag").rglob("*.py")]
    named = {cause for source in sources for cause in pattern.findall(source.read_text())}
    assert not named - set(names())


@pytest.mark.parametrize("name", names())
def test_it_holds(name: str) -> None:
    assert lint(name, PROBES) == []


@pytest.mark.parametrize("name", names())
def test_its_commands_only_read(name: str) -> None:
    """Asked apart from the lint, so that neither can hide a fault of the other."""
    for step in load(name).steps:
        if isinstance(step, RunStep):
            assert refusal(step.run) is None
        if isinstance(step, RemedyStep) and step.verify.run:
            assert refusal(step.verify.run) is None


@pytest.mark.parametrize("name", [name for name in CAUSES if name not in ("healthy",)])
def test_it_ends_in_advice(name: str) -> None:
    assert any(isinstance(step, RemedyStep) for step in load(name).steps)


def _named_by(probe: str) -> set[str]:
    """Causes whose slugs stand in a probe's file."""
    source = (ROOT / "probes" / f"{probe.replace('-', '_')}.py").read_text()
    return set(re.findall(r"\"([a-z0-9]+(?:-[a-z0-9]+)+)\"", source)) & set(names())


@pytest.mark.parametrize("probe", PROBES)
def test_the_playbook_of_a_cause_looks_at_the_probe_that_names_it(probe: str) -> None:
    for cause in _named_by(probe):
        looked = {step.probe for step in load(cause).steps if isinstance(step, ProbeStep)}
        assert probe in looked, f"playbooks/{cause}.yaml does not run the probe {probe}, which names it"


def test_triage_reaches_most_causes() -> None:
    reached, todo = set(), ["triage"]
    while todo:
        name = todo.pop()
        if name in reached:
            continue
        reached.add(name)
        for step in load(name).steps:
            leads = [step.goto(outcome) for outcome in step.outcomes()]
            todo += [goto.partition(":")[2] for goto in leads if goto.startswith("playbook:")]
            if isinstance(step, ProbeStep) and "cause" in leads:
                todo += [cause for cause in _named_by(step.probe) if cause in CAUSES]
    assert len(reached & set(CAUSES)) > 0.8 * len(CAUSES), sorted(set(CAUSES) - reached)


@pytest.mark.parametrize("symptom", ["hangs-at-start", "nccl-error", "slow", "crashed-later", "latency-jumped"])
def test_triage_starts_from_the_symptoms(symptom: str) -> None:
    first = load("triage").steps[0]
    assert symptom in first.outcomes()
    assert first.goto(symptom).startswith("step:")


@pytest.mark.parametrize("name", names())
def test_no_sentence_is_cut_by_a_comment(name: str) -> None:
    """` #` ends a plain YAML value without a word."""
    lines = (ROOT / "playbooks" / f"{name}.yaml").read_text().splitlines()
    assert not [line for line in lines if re.search(r"\S\s+#", line) and not re.search(r"['\"].*#.*['\"]", line)]


@pytest.mark.parametrize("name", names())
def test_no_word_is_broken_where_a_line_ends(name: str) -> None:
    """A folded YAML value has a blank there: `--distributed- executor-backend` is no option."""
    text = (ROOT / "playbooks" / f"{name}.yaml").read_text()
    assert not re.search(r"\S[-/=]\n +(?!- )", text)


def test_what_a_remedy_replaces_can_come_back() -> None:
    """A rule goes before the drop, a broken file is kept, localhost keeps its line, and an old setting is written down first."""
    told = {(name, step.id): step for name in names() for step in load(name).steps if isinstance(step, RemedyStep)}
    assert "nft insert rule" in told["bootstrap-blocked-firewall", "open"].remedy
    assert told["weights-corrupt", "fetch"].remedy.startswith("Move that shard aside")
    assert "localhost must stay" in told["hostname-resolves-to-loopback", "hosts-line"].remedy
    assert "write them down first" in told["roce-lossless-missing", "pfc"].undo


@pytest.mark.parametrize("name", names())
def test_every_undo_is_a_command_that_can_be_typed_or_a_sentence(name: str) -> None:
    """OLD_VALUE in capitals is filled in by the person; prose behind a command is what a hurried person types too."""
    prose = {"with", "of", "on", "the", "and", "again", "it", "that", "or", "none"}
    for step in load(name).steps:
        if not isinstance(step, RemedyStep):
            continue
        if step.undo[0].isupper():
            assert step.undo.endswith(".") and not step.undo.startswith("None"), step.undo
        else:
            words = shlex.split(step.undo)
            assert not prose & set(words) and not step.undo.endswith(".") and ";" not in step.undo, step.undo
            assert words[0] in _UNDOES, f"{words[0]} is no program of an undo known here"


_UNDOES = frozenset(
    ("kill", "kubectl", "mount", "nvidia-smi", "ray", "rmmod", "sysctl", "systemctl", "tuned-adm", "umount")
)


def test_the_commands_of_ncdiag_that_they_name_exist() -> None:
    text = "".join((ROOT / "playbooks" / f"{name}.yaml").read_text() for name in names())
    named = set(re.findall(r"\bncdiag\s+([a-z][a-z-]+)", text)) - {"knows", "itself", "on", "as"}
    assert named <= set(COMMANDS)
