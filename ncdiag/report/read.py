"""What was saved, back as results: the JSON of any command, snapshots (judged here), bundles and captured trees."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ncdiag import bundle
from ncdiag.check import check, counts
from ncdiag.fleet import FleetError, Request
from ncdiag.fleet.file import FileFleet, sound
from ncdiag.hang.content import DumpContent
from ncdiag.model import Finding, NodeFacts, Snapshot
from ncdiag.registry import ProbeSet
from ncdiag.report.headline import headline
from ncdiag.report.machines import machines_of
from ncdiag.report.measured import of_timeline
from ncdiag.report.plain import one_line
from ncdiag.report.result import Result
from ncdiag.report.run import of_bundle, of_snapshot
from ncdiag.report.saved import result_of

MAX_BYTES = 512 << 20
CODES = {"fail": 1, "warn": 0, "unknown": 3, "ok": 0, "skip": 0}


class ReadError(Exception):
    """A file that is no result; one sentence that begins with its name."""


@dataclass
class Saved:
    """One result, and the JSON that it was read from, where it was."""

    result: Result
    data: Mapping[str, Any] | None = None


@dataclass
class _Parts:
    """What belongs together over several files."""

    saved: list[Saved] = field(default_factory=list)
    dumps: list[DumpContent] = field(default_factory=list)
    snapshot: Snapshot = field(default_factory=Snapshot)
    names: list[str] = field(default_factory=list)


def read(paths: Sequence[str], load: Callable[[], ProbeSet]) -> list[Saved]:
    """`load` gives the probes, where a snapshot is to be judged. Bundles of several nodes become one result, snapshots of several nodes too. Raises ReadError."""
    parts = _Parts()
    for path in paths:
        try:
            _take(path, parts, load)
        except (ValueError, OSError, FleetError, bundle.BundleError, RecursionError) as error:
            reason = error.strerror or str(error) if isinstance(error, OSError) else str(error) or type(error).__name__
            raise ReadError(
                one_line(reason if reason.startswith((path, "cannot read")) else f"{path}: {reason}")
            ) from None
    if parts.dumps:
        parts.saved.append(Saved(of_dumps(parts.dumps, "hang-dump", ", ".join(parts.names))))
    if parts.snapshot.nodes:
        parts.saved.append(Saved(judged(parts.snapshot, load(), ", ".join(parts.names))))
    return parts.saved


def _take(path: str, parts: _Parts, load: Callable[[], ProbeSet]) -> None:
    name = os.path.basename(os.path.abspath(path)) if path != "-" else "stdin"
    content = bundle.find(path) if path != "-" else None
    if content is not None:
        parts.dumps.append(content)
        parts.names.append(name)
        return
    data = None if os.path.isdir(path) or path.endswith((".tar.gz", ".tgz", ".tar", ".tar.xz")) else _json(path)
    if data is None or (isinstance(data, Mapping) and data.get("kind") == "snapshot"):
        found = _nodes(path, data, load)
        clash = sorted(found.nodes.keys() & parts.snapshot.nodes.keys())
        if clash:
            raise ValueError(f"the node {clash[0]} is in another of these files, too; compare them with --against")
        parts.snapshot = Snapshot({**parts.snapshot.nodes, **found.nodes}, found.plan)
        parts.names.append(name)
        return
    if isinstance(data, Mapping) and "command" not in data and isinstance(data.get("rows"), list):
        data = of_timeline(data)
    parts.saved.append(Saved(result_of(data, name), data))


def _json(path: str) -> Any:
    if path == "-":
        raw = sys.stdin.buffer.read(MAX_BYTES + 1)
    else:
        with open(path, "rb") as file:
            raw = file.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise ValueError(f"larger than {MAX_BYTES >> 20} MiB")
    try:
        return json.loads(raw, parse_constant=str, parse_float=_finite)
    except (ValueError, RecursionError):
        raise ValueError("no JSON; ncdiag report reads what ncdiag saved (for logs: ncdiag diagnose)") from None


def _finite(text: str) -> float | str:
    """A number, or the text of one that is too large: what is written again has to be JSON."""
    return float(text) if math.isfinite(float(text)) else text


def _nodes(path: str, data: Any, load: Callable[[], ProbeSet]) -> Snapshot:
    """Of a snapshot, or of a captured tree."""
    if data is not None:
        return sound(Snapshot.from_dict(data), load().values())
    probes = load()
    nodes: Iterable[NodeFacts] = FileFleet([path]).collect(Request(probes.sources(probes)), lambda node, what: None)
    return Snapshot({node.node: node for node in nodes})


def judged(snapshot: Snapshot, probes: ProbeSet, source: str = "") -> Result:
    """A snapshot as `preflight` judges it; its exit code is that of `--fail-on fail`."""
    findings = check(snapshot, probes)
    numbers = counts(findings)
    return of_findings(
        "preflight", snapshot, findings, 1 if numbers["fail"] else 3 if numbers["unknown"] else 0, source
    )


def of_findings(command: str, snapshot: Snapshot, findings: Sequence[Finding], code: int, source: str = "") -> Result:
    """Findings with the topologies of the nodes that they are about."""
    return Result(
        command,
        int(code),
        list(snapshot.nodes),
        list(findings),
        machines=machines_of(snapshot),
        source=source,
        run=of_snapshot(snapshot),
    )


def of_dumps(dumps: Sequence[DumpContent], command: str, source: str = "") -> Result:
    """The verdict on bundles, of one node or of several."""
    content = DumpContent.together(dumps)
    verdict = content.verdict()
    result = Result.of_verdict(command, verdict, content.not_read(), 0, of_bundle(content.meta))
    result.code, result.source = CODES[headline(result).status.value], source
    return result
