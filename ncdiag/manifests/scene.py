"""What a rule looks at, and how it says what it found: with file and line."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ncdiag.manifests.document import Document, Path
from ncdiag.manifests.workload import Container, Role, Workload
from ncdiag.model import Finding


@dataclass(frozen=True)
class Scene:
    workload: Workload
    documents: Sequence[Document]
    """All objects of all files: services, claims."""
    weights_bytes: float | None
    """Given by the user; None: estimated from the model's name where that tells it."""

    def say(
        self,
        status: Callable[..., Finding],
        summary: str,
        path: Path,
        *,
        role: Role | None = None,
        container: Container | None = None,
        document: Document | None = None,
        **more: Any,
    ) -> Finding:
        """`status`: `fail`, `warn`, `unknown`, `ok` or `skip` of ncdiag.model. `document`: where `path` leads, when it is another object."""
        document = document or self.workload.document
        line = document.line(path)
        inside = f" ({role.name})" if role is not None and len(self.workload.roles) > 1 else ""
        text = f"{self.workload.title}{inside}: {summary}"
        where = {"file": document.source, "line": line, "object": self.workload.title}
        if container is not None:
            where["container"] = container.name
        return status(text, None, source=f"{document.source}:{line}", **more, **where)

    def each(self) -> Iterator[tuple[Role, Container]]:
        """Every role with its main container. A template that stands for two roles comes once."""
        seen = set()
        for role in self.workload.roles:
            if role.main is not None and role.path not in seen:
                seen.add(role.path)
                yield role, role.main

    def devices(self) -> Iterator[tuple[Role, Container]]:
        """The roles that hold GPUs."""
        for role, container in self.each():
            if role.gpus or role.claims_devices or (container.engine is not None and not self.workload.over_ray):
                yield role, container

    def of_kind(self, kind: str) -> list[Document]:
        return [document for document in self.documents if document.kind == kind]

    @property
    def weights(self) -> tuple[float | None, str]:
        """Bytes, and where they are from."""
        if self.weights_bytes is not None:
            return self.weights_bytes, "--weights-gib"
        return guess(self.workload.model), f"the name {self.workload.model}"


_NAMED = re.compile(r"(?<![A-Za-z0-9])(?:(\d+)x)?(\d+(?:\.\d+)?)[bB](?![A-Za-z0-9])")


def guess(name: str) -> float | None:
    """Bytes of a model whose name tells its parameters: `…-70B` has 140e9 in 16 bits, `…-70B-FP8` half of it. None: it tells none."""
    match = _NAMED.search(name)
    if match is None:
        return None
    bits = (
        4
        if re.search(r"awq|gptq|int4|w4a|4bit|fp4", name, re.I)
        else 8
        if re.search(r"fp8|int8|w8a|8bit", name, re.I)
        else 16
    )
    return int(match.group(1) or 1) * float(match.group(2)) * 1e9 * bits / 8
