"""Objects that run engines, made even: which pods make one engine, and where in the file each stands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ncdiag.manifests import quantity
from ncdiag.manifests.commandline import Engine, engines_of, environment, ray_start
from ncdiag.manifests.document import Document, Path, mapping, sequence


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
