"""Files that are one document: topology and graph dumps of NCCL, `py-spy dump --json`. They are read whole; everything else goes line by line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from ncdiag.explain import Says, Signal
from ncdiag.logs.intake import Stream
from ncdiag.logs.model import Line
from ncdiag.logs.stacks import Stack, Stacks
from ncdiag.model import Evidence, Finding, Frame, Status
from ncdiag.nccl.graph_xml import looks_like_graphs, parse_graphs
from ncdiag.nccl.rules import rules_for
from ncdiag.nccl.settings import settings_from
from ncdiag.nccl.topology_check import check_topology
from ncdiag.nccl.topology_view import view
from ncdiag.nccl.topology_xml import looks_like_topology, parse_topology

SIZE_LIMIT = 32 << 20  # bytes; no dump is larger
_SAYS = {Status.FAIL: Says.STRONG, Status.WARN: Says.STRONG}


class Documents:
    """Takes what is a document; the rest is left to the line readers."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self._signals: list[Signal] = []
        self.notes: list[str] = []

    def take(self, stream: Stream, order: float) -> bool:
        """True when the stream was a document and is read."""
        head = stream.head.lstrip()[:4096].decode("utf-8", "replace")
        xml = head.startswith("<") and (
            looks_like_topology(stream.head.decode("utf-8", "replace")) or looks_like_graphs(head)
        )
        if not xml and not (head.startswith("[") and '"thread_id"' in stream.head.decode("utf-8", "replace")):
            return False
        whole = b""
        for chunk in stream.chunks:
            whole += chunk
            if len(whole) > SIZE_LIMIT:
                self.notes.append(f"{stream.name}: larger than {SIZE_LIMIT >> 20} MiB, which no dump is; not read")
                return True
        text = whole.decode("utf-8", "replace")
        try:
            if xml:
                self._xml(stream.name, text, order)
            else:
                self._pyspy(stream.name, json.loads(text), order)
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            self.notes.append(f"{stream.name}: begins like a dump, but cannot be read as one ({error})")
        return True

    def _xml(self, name: str, text: str, order: float) -> None:
        if looks_like_graphs(text[:4096]):
            parse_graphs(text)
            return
        rules = rules_for(None)
        shown = view(parse_topology(text), rules, settings_from({}, rules).settings)
        for finding in check_topology(shown, ""):
            if finding.status in (Status.OK, *_SAYS):
                self._signals.append(_signal(name, finding, order))
            else:  # neither right nor wrong: a dump that is cut off, a machine without network cards
                self.notes.append(f"{name}: {finding.summary}")

    def _pyspy(self, name: str, threads: list[dict[str, Any]], order: float) -> None:
        for thread in threads:
            frames = [
                Frame(
                    str(frame.get("name", "")),
                    str(frame.get("filename") or frame.get("short_filename") or ""),
                    int(frame.get("line") or 0),
                )
                for frame in thread.get("frames") or ()
            ]
            pid = thread.get("pid")
            label = str(thread.get("os_thread_id") or thread.get("thread_id") or "")
            self._stacks.found.append(
                Stack(
                    label,
                    str(thread.get("thread_name") or ""),
                    "",
                    Line(name, 1, "", order),
                    frames,
                    pid if isinstance(pid, int) else None,
                )
            )

    def signals(self) -> Iterator[Signal]:
        return (signal for signal in self._signals if signal.cause)

    @property
    def fine(self) -> Signal | None:
        """What a topology says when nothing is wrong with it."""
        return next((signal for signal in self._signals if not signal.cause), None)


def _signal(name: str, finding: Finding, order: float) -> Signal:
    evidence = [Evidence(name, finding.summary)]
    where = {key: value for key, value in finding.where.items() if value not in (None, "")}
    says = _SAYS.get(finding.status, Says.HINT)
    return Signal(
        finding.cause or "" if finding.status in _SAYS else "",
        says,
        finding.summary,
        evidence,
        where,
        condition=True,
        order=order,
        remedy=finding.remedy or "",
    )
