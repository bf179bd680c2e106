"""What was captured before: snapshots (JSON) and captured trees (folders, tar archives), several separated by commas."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any, get_type_hints

from ncdiag.collect import collect
from ncdiag.files import must_be_regular
from ncdiag.fleet.base import Fleet, FleetError, Progress, Request
from ncdiag.host import Recorded
from ncdiag.model import NodeFacts, Probe, Snapshot
from ncdiag.shapes import fault, fits, unlike
from ncdiag.tree import open_tree

MAX_SNAPSHOT_BYTES = 512 << 20
_TREE_ENDINGS = (".tar.gz", ".tgz", ".tar", ".tar.xz", ".tar.bz2")


class FileFleet(Fleet):
    def __init__(self, paths: list[str]) -> None:
        if not paths:
            raise FleetError("--nodes file: names no file")
        self._paths = paths

    def collect(self, request: Request, progress: Progress) -> list[NodeFacts]:
        nodes: dict[str, NodeFacts] = {}
        for path in self._paths:
            for node in self._read(path, request):
                node.node = _free_name(node.node, nodes)
                nodes[node.node] = node
                progress(node.node, "")
        return list(nodes.values())

    def _read(self, path: str, request: Request) -> list[NodeFacts]:
        try:
            if not os.path.isdir(path):
                must_be_regular(path)
                if not path.endswith(_TREE_ENDINGS):
                    return list(sound(load_snapshot(path), request.probes).nodes.values())
            name = os.path.basename(os.path.abspath(path))
            for ending in _TREE_ENDINGS:
                name = name.removesuffix(ending)
            return [collect(Recorded(open_tree(path), name), request.probes, budget_s=request.node_timeout_s)]
        except FileNotFoundError as error:
            if path == "-":
                raise FleetError(
                    "--nodes file:-: standard input is not read here; save it to a file and name that"
                ) from error
            raise FleetError(f"cannot read {path}: no such file or folder") from error
        except OSError as error:
            raise FleetError(f"cannot read {path}: {error.strerror or error}") from error
        except ValueError as error:
            raise FleetError(f"cannot read {path}: {str(error).removeprefix(f'{path}: ')}") from error


def sound(snapshot: Snapshot, probes: Iterable[Probe]) -> Snapshot:
    """The snapshot without facts of another kind than its probe collects here, which become errors: it may be of another ncdiag. Raises ValueError."""
    for node in snapshot.nodes.values():
        wrong = fault(node)
        if wrong:
            raise ValueError(f"damaged snapshot ({wrong})")
    kinds = {probe.id: _kind(probe) for probe in probes if probe.collect is not None}
    for node in snapshot.nodes.values():
        for name in [name for name in node.facts if name in kinds and not fits(node.facts[name], kinds[name])]:
            node.errors[name] = (
                f"the snapshot has other facts than this ncdiag reads ({unlike(node.facts.pop(name), kinds[name])})"
            )
    return snapshot


def _kind(probe: Probe) -> Any:
    """What `collect` says that it returns; anything where a user's own probe does not say it."""
    try:
        return get_type_hints(probe.collect).get("return", Any)
    except (NameError, TypeError):
        return Any


def load_snapshot(path: str) -> Snapshot:
    """The snapshot in a JSON file. Raises ValueError in one sentence."""
    if not os.path.getsize(path):
        raise ValueError("it is empty")
    if os.path.getsize(path) > MAX_SNAPSHOT_BYTES:
        raise ValueError(f"larger than {MAX_SNAPSHOT_BYTES >> 20} MiB")
    with open(path, encoding="utf-8") as file:
        try:
            return Snapshot.from_dict(json.load(file))
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            why = "not text" if isinstance(error, UnicodeDecodeError) else error
            raise ValueError(f"neither a captured tree nor a snapshot in JSON ({why})") from error


def _free_name(name: str, taken: dict[str, NodeFacts]) -> str:
    number, free = 2, name
    while free in taken:
        free, number = f"{name}#{number}", number + 1
    return free
