"""What preflight found, as gauges: from a saved result, or by judging this node again and again."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from ncdiag.check import check, counts
from ncdiag.fleet import Request, open_fleet
from ncdiag.metrics.sheet import NotRead, Sheet
from ncdiag.model import Finding, Snapshot, Status
from ncdiag.registry import load
from ncdiag.report.folding import gravest
from ncdiag.report.saved import result_of

MAX_BYTES = 64 << 20
SHOWN = (Status.FAIL, Status.WARN, Status.UNKNOWN)


def add(findings: Sequence[Finding], judged_at: float, sheet: Sheet) -> None:
    """`judged_at`: seconds since 1970."""
    for status, count in counts(findings).items():
        sheet.add("ncdiag_findings", count, status=status)
    places: dict[tuple[str, ...], int] = {}
    for finding in gravest(findings):
        if finding.status in SHOWN:
            where = finding.where
            key = (
                finding.probe,
                finding.status.value,
                finding.cause or "",
                str(where.get("node", "")),
                str(where.get("device", "")),
            )
            places[key] = places.get(key, 0) + 1
    for (probe, status, cause, node, device), count in places.items():
        sheet.add("ncdiag_finding", count, probe=probe, status=status, cause=cause, node=node, device=device)
    sheet.add("ncdiag_findings_time_seconds", judged_at)


def read_file(path: str, sheet: Sheet) -> None:
    """The JSON of `ncdiag preflight --format json -o FILE`. Raises NotRead."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
            judged_at = os.fstat(file.fileno()).st_mtime
        if len(content) > MAX_BYTES:
            raise NotRead(f"{path}: more than {MAX_BYTES >> 20} MiB")
        add(result_of(json.loads(content), path).findings, judged_at, sheet)
    except OSError as error:
        raise NotRead(f"{path}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise NotRead(f"{path}: {error}") from None


def judge_here(timeout_s: float = 60.0) -> list[Finding]:
    """Every probe on this node."""
    probes = load()
    nodes = open_fleet("local").collect(Request(probes.sources(probes), node_timeout_s=timeout_s), lambda *_: None)
    return check(Snapshot({node.node: node for node in nodes}), probes)


class Again:
    """Judges this node every `every_s` seconds in a thread of its own; a scrape gets the last answer."""

    def __init__(self, every_s: float, judge: Callable[[], list[Finding]] = judge_here) -> None:
        self._every_s, self._judge = every_s, judge
        self._last: tuple[list[Finding], float] | None = None
        self._why = "the first run has not ended yet"
        threading.Thread(target=self._run, daemon=True, name="ncdiag-preflight").start()

    def read(self, sheet: Sheet) -> None:
        last = self._last
        if last is not None:
            add(*last, sheet)
        if self._why:
            raise NotRead(self._why)

    def _run(self) -> None:
        pause: Any = threading.Event()
        while True:
            try:
                self._last, self._why = (self._judge(), time.time()), ""
            except Exception as error:  # the fence: the exporter lives on and says so
                self._why = f"{type(error).__name__}: {error}"
            pause.wait(self._every_s)
