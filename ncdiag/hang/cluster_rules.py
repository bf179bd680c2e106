"""The engine waits for Ray: resources that are not there, a head that does not answer."""

from __future__ import annotations

import re
from typing import Iterator

from ncdiag.hang.addresses import Picture, loopback
from ncdiag.hang.claims import LIKELY, POSSIBLE, Claim, at_own_line, chosen, claim, names, seen
from ncdiag.hang.scene import Scene, View
from ncdiag.hang.verdict import Wait
from ncdiag.model import Evidence
from ncdiag.stages.order import WORKERS

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


def results(scene: Scene, picture: Picture) -> Iterator[Claim]:
    """A program of its own asks Ray for a result, and no process of its job that was seen works on one."""
    asks = [view for view in scene.views if view.waiting == WORKERS and view.match.detail in ("ray.get", "ray.wait")]
    drivers = [view for view in asks if view.state.role == "script"]
    rest = [view for view in scene.views if view not in asks]
    if not drivers or (scene.world_size or 1) > 1 or any(view.stage != "ray-actor" for view in rest):
        return
    inside = [view for view in asks if view not in drivers]
    if inside:
        found = claim(
            "rank-stuck-outside-collective",
            POSSIBLE,
            f"{names(inside)} {'wait' if len(inside) > 1 else 'waits'} in {inside[0].match.detail}{at_own_line(inside[0])} in the midst of "
            "a task, and no process of the job that was seen here works: they wait in a circle, or for another node",
            [seen(view) for view in (*inside[:2], drivers[0])],
            culprits=inside,
            waits=[Wait(view.name, inside[0].name, view.match.detail) for view in drivers],
        )
        found.cause.remedy = (
            "an actor runs one method at a time: one that asks itself, or one that asks it in turn, waits for ever; call the "
            "function without ray.get, or give it max_concurrency; `ray list tasks` says what runs where"
        )
    else:
        found = claim(
            "ray-resources-infeasible",
            POSSIBLE,
            f"{drivers[0].name} waits in {drivers[0].match.detail}{at_own_line(drivers[0])}, and no process of its job that was seen here works: "
            "Ray has not the free resources for what it asks for, or it runs on another node",
            [seen(drivers[0])],
            where={"node": drivers[0].state.node, "stage": drivers[0].stage},
        )
        found.cause.remedy = (
            "`ray status` (Usage, Demands) and `ray list placement-groups` say what is asked for and not there; `ray list actors` "
            "who holds it: end what is left over, or ask for less"
        )
    yield found


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
