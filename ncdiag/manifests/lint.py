"""All rules over all files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from ncdiag.manifests.document import Document
from ncdiag.manifests.objects import workloads
from ncdiag.manifests.rules import images, network, parallel, place, pod, settings, start
from ncdiag.manifests.scene import Scene
from ncdiag.manifests.workload import Workload
from ncdiag.model import Finding, skip, unknown

Rule = Callable[[Scene], Iterator[Finding]]

RULES: dict[str, Rule] = {
    "k8s-host-network": network.host_network,
    "k8s-dns": network.dns,
    "k8s-service": network.governing_service,
    "k8s-ports": network.ports,
    "k8s-shm": pod.shm,
    "k8s-ipc-lock": pod.ipc_lock,
    "k8s-gpus": pod.gpus,
    "k8s-rdma": pod.rdma,
    "k8s-parallel": parallel.sizes,
    "k8s-layout": parallel.layout,
    "k8s-probe-budget": start.probe_budget,
    "k8s-worker-probe": start.worker_probes,
    "k8s-order": start.order,
    "k8s-environment": settings.environment,
    "k8s-interface": settings.interface,
    "k8s-alike": settings.alike,
    "k8s-images": images.one_version,
    "k8s-nodes": place.nodes,
    "k8s-apart": place.apart,
    "k8s-model": place.model,
}
"""The finding's `probe` -> rule."""


def lint(documents: Sequence[Document], weights_bytes: float | None = None) -> list[Finding]:
    """Findings in the order of the files. Raises ManifestError for a serve configuration that cannot be read."""
    found: list[Finding] = []
    engines = [work for work in workloads(documents) if work.is_engine]
    for work in engines:
        found += _passed_over(work) or _of(Scene(work, documents, weights_bytes))
    if not engines:
        kinds = ", ".join(sorted({document.kind for document in documents}))
        found.append(
            replace(
                skip(f"no engine in these files ({kinds})", source=documents[0].source if documents else ""),
                probe="k8s-engine",
            )
        )
    return sorted(found, key=_place)


def _passed_over(work: Workload) -> list[Finding]:
    names = work.other_accelerators
    if not names:
        return []
    text = f"{work.title}: its accelerators ({names[0]}) do not talk by NCCL; it is not judged here"
    where: dict[str, Any] = {"file": work.document.source, "line": work.document.line(()), "object": work.title}
    return [replace(skip(text, source=f"{where['file']}:{where['line']}", **where), probe="k8s-engine")]


def _of(scene: Scene) -> Iterator[Finding]:
    for name, rule in RULES.items():
        try:
            for finding in rule(scene):
                yield replace(finding, probe=name)
        except Exception as error:  # the fence: a manifest of a shape that nobody thought of
            work: Workload = scene.workload
            text = f"{work.title}: the rule {name} broke: {type(error).__name__}: {error}"
            yield replace(unknown(text, source=f"{work.document.source}:{work.document.line(())}"), probe=name)


def _place(finding: Finding) -> tuple[str, int]:
    return str(finding.where.get("file", "")), int(finding.where.get("line", 0))
