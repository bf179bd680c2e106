"""Before the start: the probes of `ncdiag preflight` that concern this command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ncdiag.bringup.command import Engine
from ncdiag.check import check
from ncdiag.fleet import Request, open_fleet
from ncdiag.model import Finding, Snapshot
from ncdiag.registry import load

ALWAYS = ("shm", "temp-space", "leftover-processes", "ephemeral-ports", "engine-versions", "platform")
SEVERAL_NODES = ("host-name", "node-address", "bootstrap-interface", "clock", "interface-link")
TIMEOUT_S = 30.0


def concerned(engine: Engine, nodes: str) -> list[str]:
    """Ids of the probes: of the model where one is named, of GPUs where their number matters, of addresses where there are several nodes."""
    chosen = list(ALWAYS)
    if engine.model:
        chosen.append("model-path")
    if (engine.plan.ranks or 1) > 1:
        chosen.append("gpus")
    if engine.nodes > 1 or nodes != "local" or engine.ray:
        chosen += SEVERAL_NODES
    return chosen


def run(engine: Engine, nodes: str, ssh: Mapping[str, Any]) -> tuple[list[str], list[Finding]]:
    """(nodes, findings). Raises FleetError when the nodes cannot be asked at all."""
    everything = load()
    probes = everything.chosen(concerned(engine, nodes), ())
    request = Request(everything.sources(probes), model=engine.model, node_timeout_s=TIMEOUT_S)
    answers = open_fleet(nodes, **ssh).collect(request, lambda node, probe: None)
    if nodes != "local":
        answers = [*open_fleet("local").collect(request, lambda node, probe: None), *answers]
    snapshot = Snapshot({node.node: node for node in answers}, engine.plan)
    return list(snapshot.nodes), check(snapshot, probes)
