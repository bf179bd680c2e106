"""From the objects of Kubernetes to workloads: where each kind keeps its pods, and how many make one engine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ncdiag.manifests.document import Document, ManifestError, Path, mapping, sequence, values
from ncdiag.manifests.workload import Role, Workload


def workloads(documents: Sequence[Document]) -> list[Workload]:
    """Those that hold pods. Raises ManifestError for a serve configuration that cannot be read."""
    return [found for document in documents for found in _of(document)]


def _of(document: Document) -> Iterator[Workload]:
    spec = mapping(document.data.get("spec"))
    kind = document.kind
    if kind == "Pod":
        yield Workload(document, [Role("pod", 1, spec, mapping(document.data.get("metadata")), ("spec",))], 1, {})
    elif kind in ("Deployment", "StatefulSet", "ReplicaSet", "Job", "DaemonSet"):
        yield _templated(document, spec)
    elif kind == "LeaderWorkerSet":
        yield _leader_worker(document, spec)
    elif kind in ("RayCluster", "RayService", "RayJob"):
        key = {"RayCluster": None, "RayService": "rayClusterConfig", "RayJob": "rayClusterSpec"}[kind]
        yield _ray(document, mapping(spec.get(key)) if key else spec, ("spec", key) if key else ("spec",))


def _whole(value: object, default: int | None) -> int | None:
    if value is None:
        return default
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _role(name: str, pods: int | None, template: object, path: Path) -> Role:
    data = mapping(template)
    return Role(name, pods, mapping(data.get("spec")), mapping(data.get("metadata")), (*path, "spec"))


def _templated(document: Document, spec: dict[str, Any]) -> Workload:
    """Replicas are the nodes of one engine where the command says so, else engines of their own."""
    role = _role("pod", 1, spec.get("template"), ("spec", "template"))
    count = _whole(spec.get("parallelism" if document.kind == "Job" else "replicas"), 1)
    if document.kind == "DaemonSet":
        count = None
    if _spread(role):
        return Workload(document, [Role("pod", count, role.spec, role.metadata, role.path)], 1, {})
    return Workload(document, [role], count, {})


SPREADING = (
    "--nnodes",
    "--node-rank",
    "--headless",
    "--master-addr",
    "--data-parallel-address",
    "--data-parallel-start-rank",
)


def _spread(role: Role) -> bool:
    for one in role.containers:
        if one.ray is not None:
            return True
        engine = one.engine
        if engine is None:
            continue
        if (
            any(name in engine.options for name in SPREADING)
            or engine.options.get("--distributed-executor-backend") == "ray"
        ):
            return True
    return False


def _leader_worker(document: Document, spec: dict[str, Any]) -> Workload:
    outer = mapping(spec.get("leaderWorkerTemplate"))
    path: Path = ("spec", "leaderWorkerTemplate")
    size = _whole(outer.get("size"), 1)
    workers = None if size is None else size - 1
    worker = _role("worker", workers, outer.get("workerTemplate"), (*path, "workerTemplate"))
    if outer.get("leaderTemplate") is not None:
        leader = _role("leader", 1, outer.get("leaderTemplate"), (*path, "leaderTemplate"))
    else:
        leader = Role("leader", 1, worker.spec, worker.metadata, worker.path)
    roles = [leader] if workers == 0 else [leader, worker]
    return Workload(document, roles, _whole(spec.get("replicas"), 1), {})


def _ray(document: Document, cluster: dict[str, Any], path: Path) -> Workload:
    roles = [
        _role("head", 1, mapping(cluster.get("headGroupSpec")).get("template"), (*path, "headGroupSpec", "template"))
    ]
    for number, group in enumerate(sequence(cluster.get("workerGroupSpecs"))):
        group = mapping(group)
        pods = _whole(group.get("replicas"), 1)
        hosts = _whole(group.get("numOfHosts"), 1)
        count = None if pods is None or hosts is None else pods * hosts
        roles.append(
            _role(
                str(group.get("groupName", "worker")),
                count,
                group.get("template"),
                (*path, "workerGroupSpecs", number, "template"),
            )
        )
    sizes, model = _serve_config(document)
    return Workload(document, roles, 1, sizes, model)


_SIZES = {"tensor_parallel_size": "tensor_parallel_size", "pipeline_parallel_size": "pipeline_parallel_size", "data_parallel_size": "data_parallel_size",
          "tensor_parallelism": "tensor_parallel_size", "pipeline_parallelism": "pipeline_parallel_size"}  # fmt: skip
"""Keys of ray.serve.llm and vLLM; the last two are the variables of KubeRay's own example."""


def _serve_config(document: Document) -> tuple[dict[str, int], str]:
    """Sizes and model of a RayService's serve configuration, wherever in it they stand. The first of each counts."""
    text = mapping(document.data.get("spec")).get("serveConfigV2")
    if not isinstance(text, str):
        return {}, ""
    place = f"{document.source}:{document.line(('spec', 'serveConfigV2'))}: serveConfigV2"
    sizes: dict[str, int] = {}
    model = ""
    try:
        todo = [data for data, _ in values(text, "serveConfigV2")]
    except ManifestError as error:
        raise ManifestError(f"{place}: {error}") from None
    while todo:
        value = todo.pop(0)
        if isinstance(value, list):
            todo = value + todo
        for key, inner in mapping(value).items():
            name = str(key).lower().replace("-", "_")
            if name in _SIZES and str(inner).isdecimal():
                sizes.setdefault(_SIZES[name], int(inner))
            elif name in ("model_source", "model_id", "model") and isinstance(inner, str):
                model = inner if name == "model_source" or not model else model
            else:
                todo.append(inner)
    return sizes, model
