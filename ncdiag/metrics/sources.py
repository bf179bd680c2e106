"""From what was asked for to a registry of prometheus-client."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from prometheus_client import CollectorRegistry

from ncdiag.host import Host
from ncdiag.metrics import engine, findings, nic, ranks, rdma
from ncdiag.metrics.exporter import LIMIT_S, Exporter, Source
from ncdiag.metrics.gpu import Gpus
from ncdiag.metrics.sheet import NotRead, Sheet

JUDGING_S = 120.0


@dataclass(frozen=True)
class Chosen:
    """What is read besides ports, interfaces and GPUs, which always are."""

    engines: Sequence[str] = ()
    ranks: int | None = None
    findings: str | None = None


def registry(
    chosen: Chosen,
    *,
    every_s: float | None,
    watch: bool = False,
    host: Host | None = None,
    say: Callable[[str], None] = lambda line: None,
) -> CollectorRegistry:
    """`every_s`: judge this node that often; 0: once, at the scrape; None: do not. `watch`: count Xid events from now on."""
    host = host or Host()
    gpus = Gpus()
    if watch:
        try:
            gpus.watch()
        except NotRead as error:
            say(f"Xid events are not counted: {error}")
    running = rdma.Running()
    sources = [
        Source("rdma", lambda sheet: rdma.read(host, running, sheet)),
        Source("nic", lambda sheet: nic.read(host, sheet)),
        Source("gpu", gpus.read),
        Source("ranks", lambda sheet: ranks.read(host, chosen.ranks, sheet)),
        *(Source("engine", partial(engine.read, url), url) for url in dict.fromkeys(chosen.engines)),
    ]
    if chosen.findings is not None:
        sources.append(Source("findings", partial(findings.read_file, chosen.findings), chosen.findings))
    elif every_s is not None:
        sources.append(Source("findings", findings.Again(every_s).read if every_s else _once))
    found = CollectorRegistry(auto_describe=False)
    found.register(Exporter(sources, JUDGING_S if every_s == 0 else LIMIT_S))
    return found


def _once(sheet: Sheet) -> None:
    findings.add(findings.judge_here(), time.time(), sheet)
