"""This machine, in this process."""

from __future__ import annotations

from ncdiag.collect import collect
from ncdiag.fleet.base import Fleet, Progress, Request
from ncdiag.host import Host
from ncdiag.model import NodeFacts


class LocalFleet(Fleet):
    def __init__(self, host: Host | None = None) -> None:
        self._host = host

    def collect(self, request: Request, progress: Progress) -> list[NodeFacts]:
        host = self._host or Host(
            python=request.python, pid=request.pid, environment=request.environment, model=request.model
        )
        node = host.node
        return [
            collect(host, request.probes, budget_s=request.node_timeout_s, done=lambda probe: progress(node, probe))
        ]
