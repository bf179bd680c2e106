"""The engine waits for Ray: resources that are not there, a head that does not answer."""

from __future__ import annotations

import re
from typing import Iterator

from ncdiag.hang.addresses import Picture, loopback
from ncdiag.hang.claims import LIKELY, POSSIBLE, Claim, chosen, claim, seen
from ncdiag.hang.scene import Scene, View
from ncdiag.model import Evidence

_SPECS = re.compile(r"placement group of specs|No available node types|cannot be scheduled")
_WHY = (
    "ray-gcs-unreachable",
    "ray-node-lost",
    "ray-version-mismatch",
    "ray-placement-group-leaked",
    "node-ip-wrong-interface",
)
"""Causes that a log may name for a node or GPU that the placement group lacks."""


def placement(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """Without a placement group there is no worker: nodes or GPUs are missing, or held by something else."""
    for view in scene.views:
        if view.verdict not in ("waiting", "stuck", "unknown"):
            continue
        if view.stage == "ray-placement":
            yield from _lacks(scene, view)
        elif view.stage == "ray-connect":
            yield claim(
                "ray-gcs-unreachable",
                POSSIBLE,
                f"{view.name} connects to the Ray head and gets no further",
                [seen(view)],
                where={"node": view.state.node, "stage": view.stage},
            )


def _lacks(scene: Scene, view: View) -> Iterator[Claim]:
    source = view.state.log_source or f"log of {view.name}"
    lines = [Evidence(source, line) for line in view.state.log_tail if _SPECS.search(line)]
    place = {"node": view.state.node, "stage": view.stage}
    address = view.state.settings.get("VLLM_HOST_IP", "")
    if loopback(address):
        yield claim(
            "node-ip-wrong-interface",
            LIKELY,
            f"{view.name} asks Ray for the node {address}, which no node is: VLLM_HOST_IP={address}",
            [seen(view), *chosen(view), *lines[-1:]],
            culprits=[view],
        )
    why = any(cause.cause in _WHY and cause.confidence != POSSIBLE for cause in scene.logs)
    yield claim(
        "ray-resources-infeasible",
        POSSIBLE if why else LIKELY,
        f"{view.name} waits for a placement group: the Ray cluster has not the free GPUs or nodes that it asks for",
        [seen(view), *lines[-1:]],
        where=place,
    )
