"""The engine waits for Ray: resources that are not there, a head that does not answer."""

from __future__ import annotations

import re
from typing import Iterator

from ncdiag.hang.addresses import Picture
from ncdiag.hang.claims import LIKELY, POSSIBLE, Claim, claim, seen
from ncdiag.hang.scene import Scene
from ncdiag.model import Evidence

_SPECS = re.compile(r"placement group of specs|No available node types|cannot be scheduled")


def placement(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """Without a placement group there is no worker: nodes or GPUs are missing, or held by something else."""
    for view in scene.views:
        if view.stage == "ray-placement" and view.verdict in ("waiting", "stuck", "unknown"):
            source = view.state.log_source or f"log of {view.name}"
            lines = [Evidence(source, line) for line in view.state.log_tail if _SPECS.search(line)]
            evidence = [seen(view), *lines[-1:]]
            yield claim("ray-resources-infeasible", LIKELY, f"{view.name} waits for a placement group: the Ray cluster has "
                        "not the free GPUs or nodes that it asks for", evidence,
                        where={"node": view.state.node, "stage": view.stage})
        elif view.stage == "ray-connect" and view.verdict in ("waiting", "stuck", "unknown"):
            yield claim("ray-gcs-unreachable", POSSIBLE, f"{view.name} connects to the Ray head and gets no further",
                        [seen(view)], where={"node": view.state.node, "stage": view.stage})
