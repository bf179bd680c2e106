"""What was captured before: snapshots (JSON) and captured trees (folders, tar archives), several separated by commas."""

from __future__ import annotations

import json
import os

from ncdiag.collect import collect
from ncdiag.files import must_be_regular
from ncdiag.fleet.base import Fleet, FleetError, Progress, Request
from ncdiag.host import Recorded
from ncdiag.model import NodeFacts, Snapshot
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
                    return list(load_snapshot(path).nodes.values())
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
