"""Objects that run engines, made even: which pods make one engine, and where in the file each stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ncdiag.manifests import quantity
from ncdiag.manifests.commandline import Engine, engines_of, environment, ray_start
from ncdiag.manifests.document import Document, ManifestError, Path, mapping, sequence, values


@dataclass(frozen=True)
class Container:
    data: dict[str, Any]
    path: Path

    @property
    def name(self) -> str:
        return str(self.data.get("name", "")) or "unnamed"

    @cached_property
    def engines(self) -> list[Engine]:
        return engines_of(self.data)

    @property
    def engine(self) -> Engine | None:
        """The first that it starts."""
        return self.engines[0] if self.engines else None

    @cached_property
    def ray(self) -> dict[str, str] | None:
        return ray_start(self.data)

    @cached_property
    def environment(self) -> dict[str, str]:
        return environment(self.data)

    @property
    def gpus(self) -> int:
        return quantity.gpus(quantity.limits(self.data))


@dataclass(frozen=True)
class Role:
    """Pods made from one template."""

    name: str
    """`leader`, `worker`, `head`, a worker group's name, `pod`."""
    pods: int | None
    """In one engine; None: not told (a variable, an autoscaler)."""
    spec: dict[str, Any]
    metadata: dict[str, Any]
    path: Path
    """Of the pod's spec."""

    @cached_property
    def containers(self) -> list[Container]:
        found = sequence(self.spec.get("containers"))
        return [Container(mapping(item), (*self.path, "containers", number)) for number, item in enumerate(found)]

    @cached_property
    def main(self) -> Container | None:
        """The container that runs the engine or Ray; else the one with GPUs; else the first."""
        for fits in (lambda one: one.engine or one.ray is not None, lambda one: one.gpus, lambda one: True):
            found = next((one for one in self.containers if fits(one)), None)
            if found is not None:
                return found
        return None

    @property
    def gpus(self) -> int:
        """Of one pod."""
        return sum(one.gpus for one in self.containers)

    @property
    def claims_devices(self) -> bool:
        """GPUs by dynamic resource allocation: how many cannot be told from here."""
        return bool(sequence(self.spec.get("resourceClaims")))


@dataclass(frozen=True)
class Workload:
    document: Document
    roles: list[Role]
    copies: int | None
    """Engines that it asks for; None: not told."""
    sizes: dict[str, int]
    """Parallel sizes from another place than a command line (a RayService's serve configuration)."""
    model_name: str = ""

    @property
    def title(self) -> str:
        return f"{self.document.kind}/{self.document.name}"

    @cached_property
    def engine(self) -> Engine | None:
        """The command line that carries the parallel sizes: of the first role that starts an engine."""
        found = [one.engine for role in self.roles for one in role.containers if one.engine]
        return found[0] if found else None

    @property
    def model(self) -> str:
        return (self.engine.model if self.engine else "") or self.model_name

    @property
    def is_engine(self) -> bool:
        ray = any(one.ray is not None for role in self.roles for one in role.containers)
        image = any("vllm" in str(one.data.get("image", "")) for role in self.roles for one in role.containers)
        return (
            bool(self.engine)
            or ray
            or bool(self.sizes or self.model_name)
            or (image and any(role.gpus for role in self.roles))
        )

    def size(self, option: str) -> int | None:
        """A parallel size; 1 where none is given, None where it cannot be told."""
        key = option.lstrip("-").replace("-", "_")
        if key in self.sizes:
            return self.sizes[key]
        return self.engine.size(option) if self.engine else 1

    @property
    def wanted(self) -> int | None:
        """GPUs of one engine: TP x PP, data parallelism over nodes on top."""
        if self.engine is None and not self.sizes and not self.model_name:
            return None
        parts = [
            self.size(name) for name in ("--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size")
        ]
        product = 1
        for part in parts:
            if part is None:
                return None
            product *= part
        return product

    @property
    def several_nodes(self) -> bool:
        """Whether one engine spans several pods. Of a Ray cluster, a head without GPUs and room for more engines do not count."""
        if self.document.kind.startswith("Ray"):
            most = max((role.gpus for role in self.roles), default=0)
            if self.wanted is not None and self.wanted <= most:
                return False
        holding = [role for role in self.roles if role.gpus or role.claims_devices] or self.roles
        return any(role.pods is None for role in holding) or sum(role.pods or 0 for role in holding) > 1

    @property
    def other_accelerators(self) -> list[str]:
        """Of TPUs and the like, which do not talk by NCCL."""
        return [
            name
            for role in self.roles
            for one in role.containers
            for name in quantity.other_accelerators(quantity.limits(one.data))
        ]

    @property
    def over_ray(self) -> bool:
        return any(
            one.ray is not None for role in self.roles for one in role.containers
        ) or self.document.kind.startswith("Ray")


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
            if name in _SIZES and str(inner).isdigit():
                sizes.setdefault(_SIZES[name], int(inner))
            elif name in ("model_source", "model_id", "model") and isinstance(inner, str):
                model = inner if name == "model_source" or not model else model
            else:
                todo.append(inner)
    return sizes, model
