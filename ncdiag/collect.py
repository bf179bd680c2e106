"""Runs the `collect` of probes on one machine, each behind its own fence. Travels to nodes."""

from __future__ import annotations

import json
import os
import platform
import threading
import time
from typing import Any, Callable, Dict, Optional, Sequence

from ncdiag.host import Host, HostError
from ncdiag.model import NodeFacts, Probe

MAX_FACTS_BYTES = 8 << 20
"""Facts of one probe on one node, as JSON; more than that is a mistake of the probe."""

WORKERS = 4


def collect(
    host: Host, probes: Sequence[Probe], *, budget_s: float = 60.0, done: Optional[Callable[[str], None]] = None
) -> NodeFacts:
    """The facts of all `probes`; one that raises, hangs or returns nonsense becomes its own entry in `errors`."""
    node = NodeFacts(host.node, meta=_meta(host))
    todo = [probe for probe in probes if probe.collect is not None][::-1]
    running: Dict[str, _Run] = {}
    deadline = time.monotonic() + budget_s
    finished = threading.Condition()
    while todo or running:
        while todo and len(running) < WORKERS:
            probe = todo.pop()
            running[probe.id] = _Run(probe, host, finished)
        with finished:
            if not any(run.ended for run in running.values()):
                finished.wait(max(0.01, min(deadline, *(run.deadline for run in running.values())) - time.monotonic()))
        now = time.monotonic()
        for name in [name for name, run in running.items() if run.ended or now >= min(run.deadline, deadline)]:
            running.pop(name).settle(node)
            if done is not None:
                done(name)
        if now >= deadline:
            for probe in todo:
                node.errors[probe.id] = "not started: the node's time of %g s was used up" % budget_s
            break
    for run in running.values():
        run.settle(node)
    return node


class _Run:
    """One `collect` in a thread of its own; a daemon, so that one stuck in the kernel cannot keep ncdiag from ending."""

    def __init__(self, probe: Probe, host: Host, finished: threading.Condition) -> None:
        self.probe = probe
        self.ended = False
        self.deadline = time.monotonic() + probe.timeout_s
        self._host = host
        self._finished = finished
        self._facts: Any = None
        self._error: Optional[str] = None
        threading.Thread(target=self._work, name="collect-" + probe.id, daemon=True).start()

    def _work(self) -> None:
        try:
            self._facts = _plain(self.probe.collect(self._host))  # type: ignore[misc]
        except HostError as error:
            self._error = str(error)
        except BaseException as error:
            self._error = "%s: %s" % (type(error).__name__, error)
        with self._finished:
            self.ended = True
            self._finished.notify_all()

    def settle(self, node: NodeFacts) -> None:
        if not self.ended:
            node.errors[self.probe.id] = "no answer within %g s" % self.probe.timeout_s
        elif self._error is not None:
            node.errors[self.probe.id] = self._error[:2000]
        else:
            node.facts[self.probe.id] = self._facts


def _plain(facts: Any) -> Any:
    """`facts` as JSON gives them back, so that live facts and stored ones are the same. Raises ValueError, TypeError."""
    text = json.dumps(facts, allow_nan=False)
    if len(text) > MAX_FACTS_BYTES:
        raise ValueError("facts of %d bytes; at most %d are taken" % (len(text), MAX_FACTS_BYTES))
    return json.loads(text)


def _meta(host: Host) -> Dict[str, Any]:
    meta: Dict[str, Any] = {"hostname": host.node, "recorded": host.recorded}
    if not host.recorded:
        meta.update(python=platform.python_version(), uid=os.getuid(), collected_at=round(time.time(), 3))
    return meta
