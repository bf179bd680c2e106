"""Ranks of several nodes that look for rank 0's store at a loopback address: every node then has a store of its own, or finds none.

Sources: what torchrun (launch configs), torch.distributed.launch, DeepSpeed, accelerate, detectron2, fairseq, VISSL, SGLang and vLLM print of their settings.
One node alone is right to use loopback, and so are several ranks of it; so is node 0 for itself, where the others are told its address.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ncdiag.explain import Says, Signal
from ncdiag.logs.model import Line
from ncdiag.nccl.log_facts import NcclFacts

_LOOPBACK = r"(?P<peer>(?:localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[?::1\]?)(?::\d{1,5})?)(?![\w.-])"
_STORE = re.compile(
    r"(?i)(?:init[_ -]?(?:method|addr)|dist[_-]?url|master[_-]?addr(?:ess)?|main[_-]process[_-]ip|rdzv[_-](?:endpoint|addr)|coordinator[_-]addr(?:ess)?)"
    r"['\"]?\s{0,30}[:=,]?\s{0,3}['\"]?(?:tcp://)?" + _LOOPBACK
)
_NODES = re.compile(
    r"(?i)(?<![a-z])(?:n_?nodes|num[_-]nodes|num[_-]machines|max[_-]nodes)['\"]?\s{0,30}[:= ]\s{0,3}['\"]?(?:\d{1,5}:)?(?P<count>\d{1,5})\b"
)
_NODE = re.compile(r"(?i)(?<![a-z])(?:node|machine)[_-]?rank['\"]?\s{0,30}[:= ]\s{0,3}['\"]?(?P<number>\d{1,5})\b")
_RANK = re.compile(r"(?i)(?<![a-z_])rank['\"]?\s{0,3}[:= ]\s{0,3}(?P<rank>\d{1,6})\b")
_WORLD = re.compile(r"(?i)(?<![a-z]_)world[_ ]size['\"]?\s{0,3}[:= ]\s{0,3}(?P<size>\d{1,6})\b")
_HOST = re.compile(
    r"^(?:(?P<name>[A-Za-z][\w.-]*): ?$|\w{3} [ \d]\d \d\d:\d\d:\d\d (?P<journal>[\w.-]+) |\[pod/(?P<pod>[^\]\s]+)\]|(?P<service>[A-Za-z][\w.-]*) +\| )"
)
_LIMIT = 10_000  # ranks that are kept

_REMEDY = "give all nodes the same address of node 0, one that they reach, as MASTER_ADDR, init_method, --master-addr, --rdzv-endpoint or --dist-init-addr"


@dataclass
class _Settings:
    """What one source says of its job."""

    store: dict[str, Line] = field(default_factory=dict)
    """Loopback address -> where it is said first."""
    nodes: Line | None = None
    """Where more than one is counted."""
    later: Line | None = None
    """Where a node says that it is not the first one."""


@dataclass
class OwnStore:
    """Addresses of stores at loopback, and how many nodes there are."""

    triggers = (
        "tcp://localhost", "tcp://127.", "tcp://[::1]", "addr=localhost", "addr=127.", "addr localhost", "addr 127.", "ADDR=localhost", "ADDR=127.", "ADDR: localhost",
        "ADDR: 127.", "addr: localhost", "addr: 127.", "addr='localhost", "addr='127.", "addr': 'localhost", "addr': '127.", 'addr="127.', 'addr="localhost',
        "address=localhost", "address=127.", "address='127.", "address='localhost", 'address="localhost', 'address="127.',
        "process_ip", "rdzv_endpoint", "rdzv-endpoint", "init-addr 127.", "init-addr localhost", "init_addr='127.", "init_addr='localhost",
        "nnodes", "num_nodes", "num-nodes", "NNODES", "num_machines", "num-machines", "max_nodes", "node_rank", "node-rank", "NODE_RANK", "machine_rank", "machine-rank",
    )  # fmt: skip
    _said: dict[str, _Settings] = field(default_factory=dict)
    _ranks: dict[tuple[str, int], dict[str, dict[int, Line]]] = field(default_factory=dict)
    """Address and size of the world -> host -> ranks of it."""

    def take(self, line: Line) -> bool:
        settings, text = self._said.setdefault(line.source, _Settings()), line.text
        store = _STORE.search(text)
        if store is not None and len(settings.store) < _LIMIT:
            settings.store.setdefault(store["peer"], line)
            self._place(line, store["peer"])
        nodes, node = _NODES.search(text), _NODE.search(text)
        if nodes is not None and int(nodes["count"]) > 1:
            settings.nodes = settings.nodes or line
        if node is not None and int(node["number"]) > 0:
            settings.later = settings.later or line
        return False

    def _place(self, line: Line, peer: str) -> None:
        host, rank, world = _HOST.match(line.before), _RANK.search(line.text), _WORLD.search(line.text)
        if rank is not None and world is not None:
            name = host[host.lastgroup or 0] if host is not None else line.source
            ranks = self._ranks.setdefault((peer, int(world["size"])), {}).setdefault(name, {})
            if len(ranks) < _LIMIT:
                ranks.setdefault(int(rank["rank"]), line)

    def end(self, source: str) -> None:
        pass

    def signals(self) -> Iterator[Signal]:
        yield from ()

    def split(self) -> tuple[str, dict[str, Line]] | None:
        """An address of a store that hosts use for different ranks of one world: address, host -> its first line. A file with several of the ranks is a host's."""
        for (peer, world), hosts in self._ranks.items():
            if any(len(ranks) < 2 for name, ranks in hosts.items() if name in self._said):
                continue  # a file a rank, as launchers write them on one node, too
            every = [rank for ranks in hosts.values() for rank in ranks]
            if len(hosts) > 1 and len(every) == len(set(every)) and all(len(ranks) < world for ranks in hosts.values()):
                return peer, {host: next(iter(ranks.values())) for host, ranks in hosts.items()}
        return None

    def several(self) -> Iterator[tuple[str, Line, Line, bool]]:
        """Sources with a store at loopback and several nodes: address, its line, the line that tells of nodes, whether this one is not the first."""
        for settings in self._said.values():
            tells = settings.later or settings.nodes
            if settings.store and tells is not None:
                peer, line = next(iter(settings.store.items()))
                yield peer, line, tells, settings.later is not None


def own_stores(found: OwnStore, facts: NcclFacts, proofs: Sequence[Line]) -> Iterator[Signal]:
    """Nothing where ranks found each other: NCCL's communicators are made through the store."""
    if proofs or any(comm.nranks > 1 for comm in facts.communicators):
        return
    apart = found.split()
    if apart is not None:
        peer, hosts = apart
        lines = list(hosts.values())
        yield Signal(
            "node-ip-wrong-interface",
            Says.STRONG,
            f"ranks on {', '.join(list(hosts)[:4])} are all told to find rank 0's store at {peer}: each of these nodes looks for it on itself",
            [line.evidence() for line in lines[:4]],
            {"peer": peer},
            candidates=("rank-missing", "rank-layout-wrong"),
            order=min(line.order for line in lines),
            remedy=_REMEDY,
        )
        return
    for peer, line, tells, later in found.several():
        lines = [line] if line.order == tells.order else [line, tells]
        what = "a node that is not the first one" if later else "a job of several nodes"
        yield Signal(
            "node-ip-wrong-interface",
            Says.STRONG if later else Says.HINT,
            f"{what} is told to find rank 0's store at {peer}, which is each node itself",
            [line.evidence() for line in lines],
            {"peer": peer},
            candidates=("rank-missing", "rank-layout-wrong"),
            order=line.order,
            remedy=_REMEDY,
        )
        return
