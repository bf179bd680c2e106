"""The cluster of a plan from the facts of its nodes (probe `gpus`): how many GPUs, their memory, whether NVLink joins them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from ncdiag.model import Snapshot
from ncdiag.nodeset import fold
from ncdiag.sizing.gpus import GPUS, SAME_AS, SERVER, Cluster, Gpu, GpuError, gpu_of_size

FP8_SINCE = 89
"""Compute capability from which on there are tensor cores for FP8 (8.9, Ada)."""


def cluster_of(snapshot: Snapshot) -> Cluster:
    """Raises GpuError where a node's GPUs could not be read, or nodes differ: an engine needs equal ones."""
    kinds: dict[tuple[Gpu, int], list[str]] = {}
    for node in snapshot.nodes:
        gpus = _gpus(snapshot, node)
        models = {_gpu(gpu, len(gpus)) for gpu in gpus}
        if len(models) > 1:
            names = ", ".join(sorted({f"{gpu.name} of {gpu.memory_mib} MiB" for gpu in models}))
            raise GpuError(f"--nodes: the GPUs of {node} differ ({names}); plan each kind by itself with --gpus")
        kinds.setdefault((models.pop(), len(gpus)), []).append(node)
    if not kinds:
        raise GpuError("--nodes: no node answered")
    if len(kinds) > 1:
        told = "; ".join(
            f"{fold(nodes)}: {count} x {gpu.name} of {gpu.memory_mib} MiB" for (gpu, count), nodes in kinds.items()
        )
        raise GpuError(
            f"--nodes: one engine needs equal nodes, and these differ ({told}); leave some out, or give --gpus"
        )
    (((gpu, count), nodes),) = kinds.items()
    return Cluster(gpu, count, len(nodes))


def _gpus(snapshot: Snapshot, node: str) -> Sequence[Mapping[str, Any]]:
    """Raises GpuError: a node that was not read is not one without GPUs."""
    found = snapshot.nodes[node]
    facts = snapshot.facts(node, "gpus") or {}
    why = found.unreachable or found.errors.get("gpus") or facts.get("why") or "it has none"
    gpus: Sequence[Mapping[str, Any]] = facts.get("gpus") or ()
    if not gpus:
        raise GpuError(f"--nodes: the GPUs of {node} are not known: {why}; leave it out, or give --gpus")
    if any(gpu.get("mig") for gpu in gpus):
        raise GpuError(
            f"--nodes: MIG is on at {node}, which splits its GPUs; turn it off, or give --gpus with the size of a part"
        )
    if any(not gpu.get("memory_total_mib") for gpu in gpus):
        raise GpuError(f"--nodes: the driver of {node} does not tell the memory of its GPUs; give --gpus")
    return gpus


def _gpu(facts: Mapping[str, Any], count: int) -> Gpu:
    """What is known of the model, with the memory, the links and the compute capability that the driver told."""
    memory_mib, sm = int(facts["memory_total_mib"]), facts.get("sm")
    model = _model(str(facts.get("name") or ""), memory_mib)
    fp8 = model.fp8 if sm is None else sm >= FP8_SINCE
    links = facts.get("nvlinks")
    domain = model.domain
    if links is not None and domain <= SERVER:
        domain = count if any(link["active"] for link in links) else 1
    return replace(model, memory_mib=memory_mib, domain=domain, fp8=fp8)


def _model(name: str, memory_mib: int) -> Gpu:
    """`NVIDIA H100 80GB HBM3` is H100: the longest known name all of whose words are in it and whose memory fits. Else by size alone."""
    words = set(name.lower().replace("-", " ").split())
    known = {**GPUS, **{other: GPUS[first] for other, first in SAME_AS.items()}}
    fitting = [
        own
        for own in known
        if set(own.split("-")) <= words and abs(known[own].memory_mib - memory_mib) < memory_mib / 20
    ]
    if fitting:
        return known[max(fitting, key=len)]
    size = gpu_of_size(round(memory_mib / 1024))
    return replace(size, name=name) if name else size
